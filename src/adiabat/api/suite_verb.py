"""`adiabat.evaluate_suite`: several models on several tasks."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from adiabat.api.arguments import PathLike, SettingsLike, path_of, settings_of
from adiabat.api.call import Progress, called
from adiabat.config.tasks import SuiteSettings, suite_file
from adiabat.evaluation.measured_models import resolve_models
from adiabat.evaluation.suite import evaluate_suite as run_suite
from adiabat.models.model_names import load_with, require_name
from adiabat.models.trained_file import trained_by
from adiabat.results.suite_result import SuiteResult
from adiabat.runs.finish import write_report
from adiabat.runs.output_dir import claimed
from adiabat.stats.ranking_measures import require_relevant_only


def evaluate_suite(
    models: Sequence[PathLike], suite: SettingsLike, out: PathLike, *, progress: Progress = None, **options: Any
) -> SuiteResult:
    """Measure any number of models on a suite of tasks: which are best, by how much, and how sure that is.

    Scores of each query are saved in `out` at once: the same call resumes after an interruption, and adds models or tasks to those
    measured before.

    Args:
        models: Names of models, ``bm25`` or ``bm25:LANGUAGE``; ``[[models]]`` of the suite come before them.
        suite: A TOML file of tasks, the name of a suite that comes with adiabat (``mteb-eight``), `SuiteSettings`, or nested dicts;
            ``adiabat settings suite`` lists the settings.
        out: Directory for ``result.json``, the page, tables, scores, and vectors of corpora.
        progress: Whether progress is shown; None shows it on a terminal and in notebooks.
        **options: Single settings, such as ``baseline="demo"`` or ``device="cuda"``.

    Returns:
        The result.

    Raises:
        AdiabatError: If models, tasks, settings or directory are unusable.
        TypeError: If an argument has a type that is not listed, or a setting is unknown.

    Example:
        >>> result = adiabat.evaluate_suite(["demo", "bm25"], "suite.toml", out="measured")
        >>> [model.name for model in result.models]
        ['demo', 'bm25']
        >>> sorted(set(result.to_frame()["task"]))
        ['test']
    """
    if isinstance(suite, str):
        suite = suite_file(suite)
    settings = settings_of(SuiteSettings, suite, options, section="suite", function="evaluate_suite")
    # A measure that cannot be computed is refused before anything is read.
    for measures in [settings.measure.measures, *(getattr(task, "measures", None) or () for task in settings.tasks)]:
        require_relevant_only(measures)
    loader = partial(load_with, device=settings.run.device)
    names = [path_of(model, "a model of models") for model in models]
    subjects = resolve_models(settings.models, names, settings.encoder, loader, trained_by)
    for model in dict.fromkeys(run.model for runs in subjects for run in runs if not run.is_bm25):
        require_name(model)
    with called("evaluate_suite", progress) as call, claimed(Path(path_of(out, "out")), kind="suite") as folder:
        assert folder is not None
        result = run_suite(subjects, settings, folder, command=call.command, watch=call.watch)
        write_report(result, folder)
    return replace(result, folder=folder)
