"""Small results of suites for the tests of the report room."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

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
from tests.report.sample_results import CREATED, make_change

MEASURES = {"retrieval": "nDCG@10", "triplets": "PND", "nli_grid": "PND", "sts": "Spearman"}


def make_task(name: str, kind: str = "retrieval", **options: Any) -> SuiteTask:
    measure = MEASURES.get(kind, "accuracy")
    parts = {"unit": "query", "units": 300, "documents": 5183, "measure": measure, "similarity": "cosine"}
    return SuiteTask(name, kind, **{**parts, "lower_is_better": measure == "PND", **options})  # type: ignore[arg-type]


def make_model(name: str, **options: Any) -> SuiteModel:
    return SuiteModel(name, f"models/{name}", **{"parameters": 22_713_216, "width": 384, **options})


def make_score(task: SuiteTask, model: str, value: float, *, measure: str = "") -> Score:
    interval = (value - 0.02, value + 0.02)
    measured = (measure or task.measure, task.similarity, value, interval, task.lower_is_better)
    return Score(task.name, model, *measured)


def make_pairing(
    task: SuiteTask, model: str, against: str, after: float, before: float, *, half_width: float = 0.02
) -> Pairing:
    """Significant where the interval, `half_width` to either side of the difference, lies beside zero."""
    change = make_change(before, after, measure=task.measure, half_width=half_width)
    p = 0.0004 if change.verdict in ("better", "worse") else 0.42
    sizes = {"effect": (after - before) / 0.3, "gained": 60, "lost": 90, "detectable": 1.4 * half_width}
    change = replace(change, similarity=task.similarity, p=p, test="sign flips", **sizes)
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
    names = dict.fromkeys(model for by_model in values.values() for model in by_model)
    models = list(models or (make_model(name) for name in names))
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
        seconds=812.0,
        tasks=tasks,
        models=models,
        scores=[
            make_score(task, model, value) for task in tasks for model, value in values[task.name].items()
        ],
        pairings=pairings,
        baseline=baseline,
        resamples=10_000,
        settings={"suite": {"name": "A suite"}},
        inputs={"first": {"sha256": "ab12", "source": "data/first"}},
        **CREATED,
    )
    return analysed(replace(result, **parts))


def make_grid(
    task: SuiteTask, model: str, against: str | None, *, rows: Sequence[str], columns: Sequence[str] = ()
) -> SuiteGrid:
    """Values rise from cell to cell; the first cell is better than before, the last is worse, the others are
    undecided.
    """
    columns = columns or rows
    shape = (len(rows), len(columns))
    after = 0.2 + 0.001 * np.arange(len(rows) * len(columns)).reshape(shape)
    grid = GridComparison("entailment-neutral", "cosine", after.tolist())
    if against is not None:
        gains, verdicts = np.full(shape, 0.001), np.full(shape, "undecided", dtype=object)
        gains[0, 0], verdicts[0, 0] = 0.031, "better"
        gains[-1, -1], verdicts[-1, -1] = -0.022, "worse"
        before = after + gains if task.lower_is_better else after - gains
        compared = {"before": before.tolist(), "verdicts": verdicts.tolist(), "improved": 1, "worsened": 1}
        grid = replace(grid, **compared, improved_z=7, worsened_z=2)
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
    runs = ["models/small-1", "models/small-2"]
    models = [
        make_model("small", runs=runs, parameters=16_336, width=64, query_prompt="query: "),
        make_model("large", notes=["cut to 128 tokens"]),
        SuiteModel("lexical", "bm25"),
    ]
    result = make_suite(values, kinds=kinds, baseline=baseline, models=models)
    first, xnli = result.tasks[0], result.tasks[-1]
    against = baseline if baseline in values["xnli"] else "large"
    grids = [
        make_grid(xnli, model, None if model == against else against, rows=["en", "de", "zh"])
        for model in ("small", "large")
    ]
    by_unit = [{"small": 0.1 * number, "large": 1.0, "lexical": 0.0} for number in range(4)]
    units = [UnitRow("first", f"q{n}", f"text of query {n}", of) for n, of in enumerate(by_unit)]
    extra = [make_score(first, "small", 0.5, measure="RR"), make_score(first, "large", 0.6, measure="RR")]
    scores, notes = [*result.scores, *extra], ["a note of the suite"]
    return analysed(replace(result, scores=scores, grids=grids, units=units, notes=notes))
