"""`adiabat.compare`: compare two models by their scores."""

from pathlib import Path
from typing import Any

from adiabat.api.arguments import PathLike, SettingsLike, optional_path, optional_place, path_of, settings_of
from adiabat.api.repeated import Asked
from adiabat.api.with_page import with_page
from adiabat.config.tasks import CompareSettings
from adiabat.core.errors import JobError
from adiabat.core.wording import option
from adiabat.evaluation.compare_checks import require_comparable
from adiabat.evaluation.score_files import SCORES
from adiabat.results.suite_result import SuiteResult
from adiabat.runs.output_dir import claimed, require_own, write_report
from adiabat.stats.ranking_measures import ranking_measures


def compare(
    first: PathLike,
    second: PathLike,
    *,
    qrels: PathLike | None = None,
    out: PathLike | None = None,
    exist_ok: bool | None = None,
    settings: SettingsLike = None,
    **options: Any,
) -> SuiteResult:
    """Compare two models query by query from stored scores, or two TREC runs, without the models.

    Args:
        first: Baseline: a folder of scores of one model, one file of them, or a TREC run.
        second: The same for the model to compare with the baseline.
        qrels: Judgements for TREC runs.
        out: Directory for ``result.json``, the page and tables; None writes nothing.
        exist_ok: True returns the result of the same call at once, as in `tune`. None replaces an earlier
            comparison.
        settings: `CompareSettings`, a TOML file or nested dicts; ``adiabat settings compare`` lists them.
        **options: Single settings, such as ``resamples=1000`` or ``seed=1``.

    Returns:
        The result, with `first` as the baseline.

    Raises:
        AdiabatError: If scores, settings or directory are unusable, or the two were measured on different
            data.

    Example:
        >>> suite = adiabat.evaluate_suite(["demo", "bm25"], "suite.toml", out="measured")
        >>> result = adiabat.compare("measured/scores/bm25", "measured/scores/demo", resamples=100)
        >>> [model.name for model in result.models]
        ['bm25', 'demo']
    """
    chosen = settings_of(CompareSettings, settings, options, section="measure", function="compare")
    ranking_measures({}, {}, chosen.measure.report)
    paths = Path(path_of(first, "first")), Path(path_of(second, "second"))
    judged, folder = optional_path(qrels, "qrels"), optional_place(out)
    inputs: dict[str, Any] = {"first": paths[0], "second": paths[1], "qrels": judged}
    asked = Asked.of("compare", folder, exist_ok, settings=chosen, replaces=True, **inputs)
    if asked.is_finished():
        return asked.result(SuiteResult)
    require_comparable(*paths, qrels=judged, settings=chosen)
    if folder:
        require_own(folder, "suite")
        if (folder / SCORES).exists():
            raise JobError(
                f"{option('out')} must be a separate folder, {folder} holds an evaluation; choose another"
            )
    # Imported after the checks: torch takes seconds to load.
    from adiabat.evaluation.compare import compare_runs

    with asked.carried_out(False) as call, claimed(folder, kind="suite"):
        result = compare_runs(*paths, qrels=judged, settings=chosen, command=call.command)
        if folder is None:
            return with_page(result, None)
        write_report(result, folder)
        return with_page(result, folder)
