"""`adiabat.scaling`: training runs over sizes, methods and budgets."""

from adiabat.config.budgets import ScalingSettings
from adiabat.core.progress import SILENT, Watch
from adiabat.experiments.scaling import scaling as run_scaling
from adiabat.models.model_names import load_with
from adiabat.results.scaling_result import ScalingResult


def scaling(
    settings: ScalingSettings, *, resume: bool = False, command: str = "adiabat.scaling(...)", watch: Watch = SILENT
) -> ScalingResult:
    """Train every size with every method to every budget, and fit how the loss goes with them; see `adiabat.experiments.scaling.scaling`.

    Args:
        settings: `ScalingSection.out`, budgets, a model and data must be given.
        resume: Go on with a scaling experiment that was cut short; models, methods, budgets and seeds may have been added.
        command: For the report.
        watch: Whom to tell.

    Returns:
        What was found, as in ``result.json``.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    return run_scaling(load_with, settings, resume=resume, command=command, watch=watch)
