"""Small results of sweeps for the tests of the report room."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from adiabat.evaluation.suite_findings import analysed
from adiabat.experiments.sweep_analysis import with_variation
from adiabat.results.evaluation_result import Change, GridComparison
from adiabat.results.rate_search_result import Drift
from adiabat.results.suite_result import SuiteTask
from adiabat.results.sweep_result import SweepResult, SweepRun, TaskOutcome, Value
from adiabat.results.training_record import LayerChange
from adiabat.results.verdict import Reason, Word
from tests.report.sample_suites import make_suite

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
    the baseline is 0.5.
    """
    if improvement is None:
        return Change(
            measure,
            similarity,
            False,
            0.1,
            (0.05, 0.15),
            0.0,
            None,
            0.1,
            (0.05, 0.15),
            None,
            0.001,
            None,
            "better",
            reasons=[],
        )
    verdict: Word = (
        "undecided" if abs(improvement) <= half_width else "better" if improvement > 0 else "worse"
    )
    low, high = improvement - half_width, improvement + half_width
    after = 0.5 * (1 + improvement / 100)
    return Change(
        measure,
        similarity,
        False,
        after=after,
        after_interval=(after - 0.02, after + 0.02),
        before=0.5,
        improvement=improvement,
        difference=after - 0.5,
        difference_interval=(low / 200, high / 200),
        improvement_interval=(low, high),
        p=0.4 if verdict == "undecided" else 0.001,
        verdict=verdict,
        reasons=[Reason.LOSS_POSSIBLE] if verdict == "undecided" else [],
    )


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
    grown = 1 + rate * 1e6
    return [
        LayerChange(
            "encoder.layer.0.output.dense.weight",
            0.01 * rate * 1e6,
            2.0,
            2.0 * grown,
            (grown - 1) / (grown + 1),
        ),
        LayerChange("encoder.layer.1.output.dense.bias", 0.05 * rate * 1e6, 1.0, 0.9, -0.1 / 1.9),
        LayerChange("encoder.layer.1.attention.self.key.weight", 0.0, 9.0, 9.0, 0.0),
        LayerChange(
            "encoder.layer.0.attention.self.key.weight", 0.02 * rate * 1e6, 3.0, 3.001, 0.001 / 6.001
        ),
    ]


def make_run(
    varied: Mapping[str, Value], tasks: Sequence[TaskOutcome] = (), *, seed: int = 0, **parts: Any
) -> SweepRun:
    rate = varied.get(RATE, 5e-8)
    assert isinstance(rate, float)
    parts_of_name = [
        *filter(None, [parts.get("variant")]),
        *(f"{key.rpartition('.')[2]}={value}" for key, value in varied.items()),
    ]
    name = ", ".join([*parts_of_name, f"seed={seed}"])
    given = {
        **{
            "name": name,
            "variant": "",
            "learning_rate": rate,
            "batch_size": 14,
            "status": "done",
            "reason": "10 idle epochs",
        },
        **{
            "seconds": 60.0,
            "steps": 3000,
            "epochs": 13,
            "best_epoch": 3,
            "validation_loss": [(0, 0.05), (3, 0.04)],
        },
        **{
            "validation_errors": [(0, 90), (3, 70)],
            "validation_pairs": 400,
            "trainable": 21_000_000,
            "layers": make_layers(rate),
        },
        **parts,
    }
    return SweepRun(varied=dict(varied), seed=seed, tasks=list(tasks), **given)


def make_failed(
    varied: Mapping[str, Value], *, seed: int = 0, reason: str = "the loss is not finite", **parts: Any
) -> SweepRun:
    none = {
        "steps": 0,
        "epochs": 0,
        "best_epoch": 0,
        "layers": [],
        "validation_loss": [],
        "validation_errors": [],
        "trainable": 0,
    }
    return make_run(varied, seed=seed, status="failed", reason=reason, **{**none, **parts})


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
    given = {
        **{
            "title": "A sweep",
            "command": "adiabat sweep --config sweep.toml",
            "created": "2026-01-02T03:04:05Z",
            "seconds": 3600.0,
        },
        **{"seed": 7, "versions": {"python": "3.11.0"}, "model": "models/e5-small"},
        **{
            "settings": {"tune": {"margin": 0.1}},
            "inputs": {"data": {"sha256": "ab12", "source": "data/train"}},
        },
        **parts,
    }
    compared = {"models": [], "scores": [], "pairings": [], "baseline": None, "resamples": 10_000}
    described = [
        SuiteTask(name, "retrieval", "query", 300, 5183, "nDCG@10", "cosine", lower_is_better=False)
        for name in tasks
    ]
    lists = {"runs": list(runs), "varied": list(varied), "tasks": described, "targets": list(targets)}
    return with_variation(analysed(SweepResult(**{**compared, **lists, **given})))


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
    return make_sweep(
        [make_run({RATE: rate}, [make_task(task, improvement) for task in tasks]) for rate in rates],
        tasks=tasks,
        **parts,
    )


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
                runs.append(
                    make_run(
                        varied,
                        tasks,
                        seed=seed,
                        drift=drift_at(rate),
                        best_epoch=3 + seed,
                        steps=13_000 + 1000 * seed,
                    )
                )
    names = [RATE, "tune.freeze"]
    return make_sweep(
        runs, varied=names, tasks=["arxiv", "msmarco", "title", "xnli"], notes=["probes are of two languages"]
    )


def trained_sweep(
    values: Mapping[str, Mapping[str, float]], *, start: str = "untrained", **parts: Any
) -> SweepResult:
    """Settings compared as models of a suite, values by task and model; each has one run that gained 10 %."""
    suite = make_suite(values)
    names = [model.name for model in suite.models if model.name != start]
    tasks = [make_task(task, 10.0) for task in values]
    taken = {"start": start, "parameters": 22_713_216, "pairs": 409_600, "passes": 1.2, "step_seconds": 0.084}
    runs = [make_run({}, tasks, variant=name, **taken) for name in names]
    given = {
        "settings": {"sweep": {"verb": "train"}},
        "models": suite.models,
        "scores": suite.scores,
        "pairings": suite.pairings,
        "starts": [start],
        **parts,
    }
    return make_sweep(runs, varied=(), tasks=list(values), targets=list(values), **given)
