"""`adiabat.sweep`: tuning runs over a grid of settings."""

from adiabat.config.sweeps import SweepSettings
from adiabat.core.progress import SILENT, Watch
from adiabat.experiments.sweep import sweep as run_sweep
from adiabat.models.model_names import load_with
from adiabat.results.sweep_result import SweepResult


def sweep(settings: SweepSettings, *, resume: bool = False, command: str = "adiabat.sweep(...)", watch: Watch = SILENT) -> SweepResult:
    """Tune with every combination of a grid, and measure each on the same tasks and probes; see `adiabat.experiments.sweep.sweep`.

    Args:
        settings: `SweepSection.out`, `SweepJobSection` and at least one task must be given.
        resume: Go on with a sweep that was cut short; grid, variants and seeds may have grown.
        command: For the report.
        watch: Whom to tell.

    Returns:
        What was found, as in ``result.json``.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    return run_sweep(load_with, settings, resume=resume, command=command, watch=watch)
