"""`adiabat.study`: tuning runs over a grid of settings."""

from adiabat.config.sweeps import StudySettings
from adiabat.core.progress import SILENT, Watch
from adiabat.experiments.sweep import study as run_study
from adiabat.models.model_names import load_with
from adiabat.results.sweep_result import StudyResult


def study(settings: StudySettings, *, resume: bool = False, command: str = "adiabat.study(...)", watch: Watch = SILENT) -> StudyResult:
    """Tune with every combination of a grid, and measure each on the same tasks and probes; see `adiabat.experiments.sweep.study`.

    Args:
        settings: `StudySection.out`, `StudyJobSection` and at least one task must be given.
        resume: Go on with a study that was cut short; grid, variants and seeds may have grown.
        command: For the report.
        watch: Whom to tell.

    Returns:
        What was found, as in ``result.json``.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    return run_study(load_with, settings, resume=resume, command=command, watch=watch)
