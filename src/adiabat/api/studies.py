"""How far a query tower can be tuned: studies of many runs."""

from adiabat.api.loading import load
from adiabat.config import StudySettings
from adiabat.measure.study_results import StudyResult
from adiabat.study.study import study as run_study
from adiabat.watch import SILENT, Watch


def study(settings: StudySettings, *, resume: bool = False, command: str = "adiabat.study(...)", watch: Watch = SILENT) -> StudyResult:
    """Tune with every combination of a grid, and measure each on the same tasks and probes; see `adiabat.study.study.study`.

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
    return run_study(lambda name, section: load(name, settings=section), settings, resume=resume, command=command, watch=watch)
