"""`adiabat.sweep`: training runs over sizes, methods and budgets."""

from adiabat.config.budgets import SweepSettings
from adiabat.core.progress import SILENT, Watch
from adiabat.experiments.scaling import sweep as run_sweep
from adiabat.models.model_names import load_with
from adiabat.results.scaling_result import SweepResult


def sweep(settings: SweepSettings, *, resume: bool = False, command: str = "adiabat.sweep(...)", watch: Watch = SILENT) -> SweepResult:
    """Train every size with every method to every budget, and fit how the loss goes with them; see `adiabat.experiments.scaling.sweep`.

    Args:
        settings: `SweepSection.out`, budgets, a model and data must be given.
        resume: Go on with a sweep that was cut short; models, methods, budgets and seeds may have been added.
        command: For the report.
        watch: Whom to tell.

    Returns:
        What was found, as in ``result.json``.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    return run_sweep(load_with, settings, resume=resume, command=command, watch=watch)
