"""`adiabat.evaluate_suite`: several models on several tasks."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from adiabat.config.reader import read_settings
from adiabat.config.tasks import SuiteSettings, suite_file
from adiabat.core.progress import SILENT, Watch
from adiabat.evaluation.measured_models import resolve_models
from adiabat.evaluation.suite import evaluate_suite as run_suite
from adiabat.models.model_names import load_with, require_name
from adiabat.models.trained_file import trained_by
from adiabat.results.suite_result import SuiteResult
from adiabat.runs.finish import write_report
from adiabat.runs.output_dir import claimed
from adiabat.stats.ranking_measures import require_relevant_only


def evaluate_suite(
    models: Sequence[str],
    settings: SuiteSettings | str | Path,
    *,
    out: str | Path,
    command: str = "adiabat.evaluate_suite(...)",
    watch: Watch = SILENT,
) -> SuiteResult:
    """Measure any number of models on a suite of tasks, and say which are best, by how much, and how sure that is.

    What every model scored on every unit is kept in `out` as soon as it is there: the same call goes on after it was cut short, and adds
    models or tasks to what was measured before.

    Args:
        models: Names of models, ``bm25`` or ``bm25:LANGUAGE``; those of ``[[models]]`` come before them.
        settings: Tasks, and what is said of them: a TOML file, or the name of a suite that comes with adiabat, such as ``mteb-eight``; or
            settings as they are read.
        out: Directory for ``result.json``, the page, tables, scores, and vectors of corpora.
        command: For the report.
        watch: Whom to tell.

    Returns:
        The result, as in ``result.json``.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    if not isinstance(settings, SuiteSettings):
        settings = read_settings(SuiteSettings, suite_file(str(settings)))
    # A measure that cannot be had is refused before anything is read.
    for measures in [settings.measure.measures, *(getattr(task, "measures", None) or () for task in settings.tasks)]:
        require_relevant_only(measures)
    loader = partial(load_with, device=settings.run.device)
    subjects = resolve_models(settings.models, models, settings.encoder, loader, trained_by)
    for model in dict.fromkeys(run.model for runs in subjects for run in runs if not run.is_bm25):
        require_name(model)
    with claimed(Path(out), kind="suite") as folder:
        assert folder is not None
        result = run_suite(subjects, settings, folder, command=command, watch=watch)
        write_report(result, folder)
    return result
