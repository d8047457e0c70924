"""`adiabat.compare`: two models compared from their scores."""

from pathlib import Path

from adiabat.config.tasks import CompareSettings
from adiabat.core.errors import JobError
from adiabat.evaluation.compare import compare_runs as run_comparison
from adiabat.evaluation.score_files import SCORES
from adiabat.results.suite_result import SuiteResult
from adiabat.runs.finish import write_report
from adiabat.runs.output_dir import claimed
from adiabat.stats.ranking_measures import ranking_measures


def compare(
    first: str | Path,
    second: str | Path,
    *,
    qrels: str | Path | None = None,
    out: str | Path | None = None,
    settings: CompareSettings | None = None,
    command: str = "adiabat.compare(...)",
) -> SuiteResult:
    """Compare two models from the scores that evaluations kept of them, or from runs in the format of TREC.

    Args:
        first: What the other is compared with: a folder of scores of one model, one file of them, or a run.
        second: Likewise.
        qrels: Judgements for runs in the format of TREC.
        out: Directory for ``result.json``, the page and tables; None writes nothing.
        settings: None takes the defaults.
        command: For the report.

    Returns:
        The result, with `first` as the baseline.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    settings = settings or CompareSettings()
    ranking_measures({}, {}, settings.measure.measures)
    judged = None if qrels is None else Path(qrels)
    with claimed(None if out is None else Path(out), kind="suite") as folder:
        if folder and (folder / SCORES).exists():
            raise JobError(f"--out must be a folder of its own, got that of an evaluation, {folder}; choose another")
        result = run_comparison(Path(first), Path(second), qrels=judged, settings=settings, command=command)
        if folder:
            write_report(result, folder)
    return result
