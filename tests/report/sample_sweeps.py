"""Small results of sweeps for the tests of the report room."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from adiabat.evaluation.suite_findings import analysed
from adiabat.experiments.sweep_analysis import with_variation
from adiabat.results.evaluation_result import Change, GridComparison
from adiabat.results.rate_search_result import Drift
from adiabat.results.sweep_result import SweepResult, SweepRun, TaskOutcome, Value
from adiabat.results.training_record import LayerChange
from adiabat.results.verdict import Reason
from tests.report.sample_results import CREATED
from tests.report.sample_suites import make_suite
from tests.report.sample_suites import make_task as make_suite_task

RATE, MARGIN = "tune.learning_rate", "tune.margin"
RATES = [1e-8, 2e-8, 5e-8, 1e-7]


def make_change(
    improvement: float | None,
    *,
    half_width: float = 1.0,
    similarity: str = "cosine",
    measure: str = "nDCG@10",
) -> Change:
    """Evidence where the interval, `half_width` percent to either side of the improvement, lies beside zero;
    the baseline is 0.5, or 0 where there is no improvement in percent.
    """
    if improvement is None:
        from_zero = Change(
            measure, similarity, False, 0.1, (0.05, 0.15), before=0.0, difference=0.1, reasons=[]
        )
        return replace(from_zero, difference_interval=(0.05, 0.15), p=0.001, verdict="better")
    low, high = improvement - half_width, improvement + half_width
    after = 0.5 * (1 + improvement / 100)
    change = Change(
        measure, similarity, False, after, (after - 0.02, after + 0.02), 0.5, improvement, after - 0.5
    )
    change = replace(change, difference_interval=(low / 200, high / 200), improvement_interval=(low, high))
    if low <= 0 <= high:
        return replace(change, p=0.4, verdict="undecided", reasons=[Reason.LOSS_POSSIBLE])
    return replace(change, p=0.001, verdict="better" if improvement > 0 else "worse", reasons=[])


def make_task(
    name: str, improvement: float | None, *, grids: Sequence[GridComparison] = (), **options: Any
) -> TaskOutcome:
    changes = [make_change(improvement, **options)]
    if improvement is not None:
        changes.append(make_change(improvement + 1, similarity="distance"))
    kind = "nli_grid" if grids else "retrieval"
    return TaskOutcome(name, kind, "query", 300, changes, ["de", "en"] * bool(grids), list(grids))  # type: ignore[arg-type]


def make_tasks(target: float | None, other: float | None) -> list[TaskOutcome]:
    """What a run did to the target of a sweep and to its other task."""
    return [make_task("msmarco", target), make_task("arxiv", other)]


def make_grid(
    improved: int | None, worsened: int | None, *, comparison: str = "entailment-neutral", side: int = 15
) -> GridComparison:
    """Counts alone are of interest; by the z-test one less is better and two more are worse."""
    table = [[0.2] * side for _ in range(side)]
    by_z = (None, None) if improved is None or worsened is None else (max(improved - 1, 0), worsened + 2)
    return GridComparison(comparison, "cosine", table, table, None, None, improved, worsened, *by_z)


def make_layers(rate: float) -> list[LayerChange]:
    """The third never changes; the higher the rate, the more the others do."""
    share = rate * 1e6
    grown = 1 + share
    rows = [
        ("0.output.dense.weight", 0.01 * share, 2.0, 2.0 * grown, (grown - 1) / (grown + 1)),
        ("1.output.dense.bias", 0.05 * share, 1.0, 0.9, -0.1 / 1.9),
        ("1.attention.self.key.weight", 0.0, 9.0, 9.0, 0.0),
        ("0.attention.self.key.weight", 0.02 * share, 3.0, 3.001, 0.001 / 6.001),
    ]
    return [LayerChange(f"encoder.layer.{name}", *numbers) for name, *numbers in rows]


def make_run(
    varied: Mapping[str, Value], tasks: Sequence[TaskOutcome] = (), *, seed: int = 0, **parts: Any
) -> SweepRun:
    rate = varied.get(RATE, 5e-8)
    assert isinstance(rate, float)
    values = [f"{key.rpartition('.')[2]}={value}" for key, value in varied.items()]
    name = ", ".join([*filter(None, [parts.get("variant")]), *values, f"seed={seed}"])
    about = {"name": name, "variant": "", "learning_rate": rate, "batch_size": 14, "trainable": 21_000_000}
    end = {"status": "done", "reason": "10 idle epochs", "seconds": 60.0, "steps": 3000, "epochs": 13}
    losses = {"validation_loss": [(0, 0.05), (3, 0.04)], "best_epoch": 3, "layers": make_layers(rate)}
    errors = {"validation_errors": [(0, 90), (3, 70)], "validation_pairs": 400}
    given = {**about, **end, **losses, **errors, **parts}
    return SweepRun(varied=dict(varied), seed=seed, tasks=list(tasks), **given)


def make_failed(
    varied: Mapping[str, Value], *, seed: int = 0, reason: str = "the loss is not finite", **parts: Any
) -> SweepRun:
    none = dict.fromkeys(("steps", "epochs", "best_epoch", "trainable"), 0)
    nothing: dict[str, Any] = {"layers": [], "validation_loss": [], "validation_errors": []}
    return make_run(varied, seed=seed, status="failed", reason=reason, **{**none, **nothing, **parts})


def run_at(rate: float, target: float | None, other: float | None, **parts: Any) -> SweepRun:
    return make_run({RATE: rate}, make_tasks(target, other), **parts)


def make_sweep(
    runs: Sequence[SweepRun],
    *,
    varied: Sequence[str] = (RATE,),
    tasks: Sequence[str] = ("msmarco", "arxiv"),
    targets: Sequence[str] = ("msmarco",),
    **parts: Any,
) -> SweepResult:
    about = {"title": "A sweep", "command": "adiabat sweep --config sweep.toml", "model": "models/e5-small"}
    inputs = {"data": {"sha256": "ab12", "source": "data/train"}}
    made = {**CREATED, "seconds": 3600.0, "settings": {"tune": {"margin": 0.1}}, "inputs": inputs}
    compared = {"models": [], "scores": [], "pairings": [], "baseline": None, "resamples": 10_000}
    described = [make_suite_task(name) for name in tasks]
    lists = {"runs": list(runs), "varied": list(varied), "tasks": described, "targets": list(targets)}
    return with_variation(analysed(SweepResult(**{**about, **made, **compared, **lists, **parts})))


def simple_sweep(
    gains: Mapping[float, tuple[float | None, float | None]] | None = None, **parts: Any
) -> SweepResult:
    """Learning rate to improvement on the target and on the other task."""
    gains = gains or {1e-8: (0.5, 0.2), 2e-8: (3.0, 1.5), 5e-8: (7.3, 0.4), 1e-7: (9.1, -2.0)}
    return make_sweep([run_at(rate, *improvements) for rate, improvements in gains.items()], **parts)


def even_sweep(
    tasks: Sequence[str], *, rates: Sequence[float] = RATES, improvement: float = 2.0, **parts: Any
) -> SweepResult:
    """Every task gains as much at every rate."""
    runs = [make_run({RATE: rate}, [make_task(task, improvement) for task in tasks]) for rate in rates]
    return make_sweep(runs, tasks=tasks, **parts)


def failed_sweep(*rates: float) -> SweepResult:
    return make_sweep([make_failed({RATE: rate}) for rate in rates])


def sweep_with_a_gap() -> SweepResult:
    """The run at the rate in the middle failed."""
    runs = even_sweep(["msmarco"], rates=(1e-8, 5e-8)).runs
    return make_sweep([*runs, make_failed({RATE: 2e-8})])


def grid_of(*, tasks: Sequence[str] = ("msmarco",), **values: Sequence[Value]) -> SweepResult:
    """A run for each combination, keys without their table."""
    names = [f"tune.{name}" for name in values]
    runs = [
        make_run(dict(zip(names, one, strict=True)), [make_task("msmarco", 2.0)])
        for one in product(*values.values())
    ]
    return make_sweep(runs, varied=names, tasks=tasks)


def drift_at(rate: float) -> Drift:
    means = {"overlap loss": 0.4 * rate * 1e6, "margins": 0.02 * rate * 1e6, "turn": 0.003 * rate * 1e6}
    return Drift(200, means, {name: mean / 10 for name, mean in means.items()}, {"de": means, "zh": means})


def full_sweep(
    *,
    rates: Sequence[float] = RATES,
    seeds: Sequence[int] = (0, 1, 2),
    freezes: Sequence[Value] = (["embeddings"],),
) -> SweepResult:
    """Every part of a page has data: several seeds, a grid, drift, layers, a run that failed at the highest
    rate.
    """
    runs = []
    for freeze in freezes:
        for rate in rates:
            for seed in seeds:
                varied: dict[str, Value] = {RATE: rate, "tune.freeze": freeze}
                at, wobble = math.log10(rate / 1e-8), 0.3 * (seed - 1)
                if rate == max(rates) and seed == 1:
                    runs.append(make_failed(varied, seed=seed))
                    continue
                held = 0.5 if freeze == [] else 1.0
                lost = max(0, round(60 * (at - 0.6)))
                grids = [
                    make_grid(min(222, round(60 + 200 * at)) - lost, lost),
                    make_grid(201 - 2 * lost, 2 + lost, comparison="entailment-contradiction"),
                ]
                tasks = [
                    make_task("msmarco", held * (0.6 + 9 * at) + wobble),
                    make_task("arxiv", held * (4.5 * at - 3.4 * at * at) + wobble),
                    make_task("title", 0.4 + 2 * at - 3.5 * at**3 + wobble),
                    make_task("xnli", 1.0 + 2 * at - 2 * at * at, grids=grids),
                ]
                kept = {"drift": drift_at(rate), "best_epoch": 3 + seed, "steps": 13_000 + 1000 * seed}
                runs.append(make_run(varied, tasks, seed=seed, **kept))
    names, measured = [RATE, "tune.freeze"], ["arxiv", "msmarco", "title", "xnli"]
    return make_sweep(runs, varied=names, tasks=measured, notes=["probes are of two languages"])


def trained_sweep(
    values: Mapping[str, Mapping[str, float]], *, start: str = "untrained", **parts: Any
) -> SweepResult:
    """Settings compared as models of a suite, values by task and model; each has one run that gained 10 %."""
    suite = make_suite(values)
    names = [model.name for model in suite.models if model.name != start]
    tasks = [make_task(task, 10.0) for task in values]
    taken = {"start": start, "parameters": 22_713_216, "pairs": 409_600, "passes": 1.2, "step_seconds": 0.084}
    runs = [make_run({}, tasks, variant=name, **taken) for name in names]
    compared = {"models": suite.models, "scores": suite.scores, "pairings": suite.pairings, "starts": [start]}
    given = {"settings": {"sweep": {"verb": "train"}}, **compared, **parts}
    return make_sweep(runs, varied=(), tasks=list(values), targets=list(values), **given)
