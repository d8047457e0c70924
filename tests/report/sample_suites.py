"""Small results of suites for the tests of the report room."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from adiabat.evaluation.suite_findings import analysed
from adiabat.results.evaluation_result import GridComparison
from adiabat.results.suite_result import (
    Pairing,
    Score,
    SuiteGrid,
    SuiteModel,
    SuiteResult,
    SuiteTask,
    UnitRow,
)
from adiabat.results.verdict import Word
from tests.report.sample_results import make_change

MEASURES = {
    "retrieval": "nDCG@10",
    "triplets": "PND",
    "nli_grid": "PND",
    "question_grid": "P@1",
    "sts": "Spearman",
    "words": "Spearman",
}


def make_task(name: str, kind: str = "retrieval", **options: Any) -> SuiteTask:
    measure = MEASURES.get(kind, "accuracy")
    parts = {"unit": "query", "units": 300, "documents": 5183, "measure": measure, "similarity": "cosine"}
    return SuiteTask(name, kind, **{**parts, "lower_is_better": measure == "PND", **options})  # type: ignore[arg-type]


def make_score(
    task: SuiteTask, model: str, value: float, *, measure: str = "", half_width: float = 0.02
) -> Score:
    interval = (value - half_width, value + half_width)
    return Score(
        task.name, model, measure or task.measure, task.similarity, value, interval, task.lower_is_better
    )


def make_pairing(
    task: SuiteTask, model: str, against: str, after: float, before: float, *, half_width: float = 0.02
) -> Pairing:
    """Significant where the interval, `half_width` to either side of the difference, lies beside zero."""
    change = make_change(before, after, measure=task.measure, half_width=half_width)
    significant = change.verdict in ("better", "worse")
    change = replace(
        change,
        similarity=task.similarity,
        p=0.0004 if significant else 0.42,
        test="sign flips",
        effect=(after - before) / 0.3,
        gained=60,
        lost=90,
        detectable=1.4 * half_width,
    )
    return Pairing(task.name, model, against, change)


def make_suite(
    values: Mapping[str, Mapping[str, float]],
    *,
    kinds: Mapping[str, str] | None = None,
    baseline: str | None = None,
    half_width: float = 0.02,
    models: Sequence[SuiteModel] | None = None,
    **parts: Any,
) -> SuiteResult:
    """Values by task and model; every task is of retrieval unless `kinds` says otherwise."""
    tasks = [make_task(name, (kinds or {}).get(name, "retrieval")) for name in values]
    names = list(dict.fromkeys(model for by_model in values.values() for model in by_model))
    pairings = []
    for task in tasks:
        of = values[task.name]
        best = (min if task.lower_is_better else max)(of, key=lambda model: of[model])
        against = baseline if baseline in of else best
        pairings += [
            make_pairing(task, one, against, of[one], of[against], half_width=half_width)
            for one in of
            if one != against
        ]
    result = SuiteResult(
        title="A suite",
        command="adiabat evaluate a b --suite suite.toml --out out",
        created="2026-01-02T03:04:05Z",
        seconds=812.0,
        seed=7,
        versions={"python": "3.11.0"},
        tasks=tasks,
        models=list(
            models or (SuiteModel(name, f"models/{name}", parameters=22_713_216, width=384) for name in names)
        ),
        scores=[
            make_score(task, model, value) for task in tasks for model, value in values[task.name].items()
        ],
        pairings=pairings,
        baseline=baseline,
        resamples=10_000,
        settings={"suite": {"name": "A suite"}},
        inputs={"first": {"sha256": "ab12", "source": "data/first"}},
    )
    return analysed(replace(result, **parts))


def make_grid(
    task: SuiteTask, model: str, against: str | None, *, rows: Sequence[str], columns: Sequence[str] = ()
) -> SuiteGrid:
    """Values rise from cell to cell; the first cell is better than before, the last is worse, the others are
    undecided.
    """
    columns = columns or rows
    size = len(rows) * len(columns)
    after = [
        [0.2 + 0.001 * (row * len(columns) + column) for column in range(len(columns))]
        for row in range(len(rows))
    ]
    grid = GridComparison("entailment-neutral", "cosine", after)
    if against is not None:
        sign = -1 if task.lower_is_better else 1
        gains = {0: 0.031, size - 1: -0.022}
        flat = [
            value - sign * gains.get(cell, 0.001)
            for cell, value in enumerate(value for row in after for value in row)
        ]
        verdict: list[Word] = ["better", *["undecided"] * (size - 2), "worse"]  # type: ignore[list-item]
        before, verdicts = (
            [cells[at : at + len(columns)] for at in range(0, size, len(columns))]
            for cells in (flat, verdict)
        )
        grid = GridComparison("entailment-neutral", "cosine", after, before, None, verdicts, 1, 1, 7, 2)  # type: ignore[arg-type]
    return SuiteGrid(task.name, model, against, list(rows), list(columns), task.lower_is_better, grid)


def full_suite(*, baseline: str | None = None) -> SuiteResult:
    """Every part of a page has data: three models, four tasks of three kinds; ``lexical`` did two of them."""
    values = {
        "first": {"small": 0.55, "large": 0.61, "lexical": 0.60},
        "second": {"small": 0.41, "large": 0.40, "lexical": 0.30},
        "similar": {"small": 0.7, "large": 0.8},
        "xnli": {"small": 0.25, "large": 0.2},
    }
    kinds = {"similar": "sts", "xnli": "nli_grid"}
    models = [
        SuiteModel(
            "small",
            "models/small",
            runs=["models/small-1", "models/small-2"],
            parameters=16_336,
            width=64,
            query_prompt="query: ",
        ),
        SuiteModel("large", "models/large", parameters=22_713_216, width=384, notes=["cut to 128 tokens"]),
        SuiteModel("lexical", "bm25"),
    ]
    result = make_suite(values, kinds=kinds, baseline=baseline, models=models)
    first, xnli = result.tasks[0], result.tasks[-1]
    against = baseline if baseline in values["xnli"] else "large"
    grids = [
        make_grid(xnli, model, None if model == against else against, rows=["en", "de", "zh"])
        for model in ("small", "large")
    ]
    units = [
        UnitRow(
            "first",
            f"q{number}",
            f"text of query {number}",
            {"small": 0.1 * number, "large": 1.0, "lexical": 0.0},
        )
        for number in range(4)
    ]
    extra = [make_score(first, "small", 0.5, measure="RR"), make_score(first, "large", 0.6, measure="RR")]
    return analysed(
        replace(
            result, scores=[*result.scores, *extra], grids=grids, units=units, notes=["a note of the suite"]
        )
    )
