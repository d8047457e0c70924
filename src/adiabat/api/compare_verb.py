"""`adiabat.compare`: data sets or backbones compared by short training runs."""

from adiabat.config.comparison_settings import CompareSettings
from adiabat.core.progress import SILENT, Watch
from adiabat.experiments.comparison import compare as run_comparison
from adiabat.models.model_names import load_with
from adiabat.results.comparison_result import Comparison


def compare(settings: CompareSettings, *, resume: bool = False, command: str = "adiabat.compare(...)", watch: Watch = SILENT) -> Comparison:
    """Train every candidate for the same short run, over several seeds, and rank them; see `adiabat.experiments.comparison.compare`.

    Args:
        settings: `CompareDataSettings` or `CompareBackbonesSettings`; `CompareSection.out`, tasks and two candidates must be given.
        resume: Go on with a comparison that was cut short; seeds and candidates may have been added.
        command: For the report.
        watch: Whom to tell.

    Returns:
        What was found, as in ``result.json``.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    return run_comparison(load_with, settings, resume=resume, command=command, watch=watch)
