"""Small results for the tests of the report room."""

from dataclasses import replace

from adiabat.results.evaluation_result import Change, ChangedQuery, DatasetResult, GridComparison, Hit, Result
from adiabat.results.training_record import LayerChange, TrainingRecord
from adiabat.results.verdict import Reason, Word

CREATED = {"created": "2026-01-02T03:04:05Z", "seed": 7, "versions": {"python": "3.11.0", "adiabat": "0.1.0"}}
"""What every record says of how it was made."""


def make_change(
    before: float | None,
    after: float,
    *,
    measure: str = "nDCG@10",
    half_width: float = 0.02,
    z: float | None = None,
) -> Change:
    """A change whose paired interval reaches `half_width` to either side; its verdict follows."""
    lower_is_better = measure.startswith("PND")
    if before is None:
        return Change(measure, "cosine", lower_is_better, after, (after - 0.01, after + 0.01), reasons=[])
    sign = -1 if lower_is_better else 1
    bounds = (after - before - half_width, after - before + half_width)
    gains = sorted(sign * bound for bound in bounds)
    margin = 0.01 * before if before > 0 else None
    # The one-sided end of a normal interval lies at 1.645 of its 1.96 standard errors.
    loss = half_width * 1.645 / 1.96 - sum(gains) / 2
    held: Word = "undecided" if margin is None or loss >= margin else "not worse"
    verdict: Word = "better" if gains[0] > 0 else "worse" if gains[1] < 0 else held
    needed = 1_900 if verdict == "undecided" and margin else None
    percent = None if before == 0 else sign * 100 * (after - before) / before
    percents = None if before == 0 else (100 * gains[0] / before, 100 * gains[1] / before)
    open_to = Reason.NO_MARGIN if margin is None else Reason.LOSS_POSSIBLE
    reasons = [open_to] if verdict == "undecided" else []
    level = Change(measure, "cosine", lower_is_better, after, (after - 0.01, after + 0.01), reasons=reasons)
    change = replace(level, before=before, improvement=percent, improvement_interval=percents)
    change = replace(change, difference=after - before, difference_interval=bounds, p=0.0004, z=z)
    return replace(change, verdict=verdict, margin=margin, loss_bound=loss, needed=needed)


def make_dataset(name: str, role: str, before: float | None, after: float, **options) -> DatasetResult:
    change = make_change(before, after, **options)
    return DatasetResult(name, role, "ranking", 300, 5183, 0, change.measure, [change], units=300)  # type: ignore[arg-type]


def with_reasons(dataset: DatasetResult, *reasons: Reason) -> DatasetResult:
    return replace(dataset, changes=[replace(change, reasons=list(reasons)) for change in dataset.changes])


def make_grid(languages: list[str], *, compared: bool = True, name: str = "XNLI") -> DatasetResult:
    """A grid with one better cell, one worse cell where there is room, and no improvement in the last
    cell.
    """
    side = len(languages)
    after = [[0.2 + 0.01 * row + 0.001 * column for column in range(side)] for row in range(side)]
    grid = GridComparison("entailment-neutral", "cosine", after)
    if compared:
        improvement: list[list[float | None]] = [[1.5] * side for _ in range(side)]
        verdicts: list[list[Word]] = [["undecided"] * side for _ in range(side)]
        improvement[0][0], verdicts[0][0] = 6.25, "better"
        if side > 1:
            improvement[1][0], verdicts[1][0] = -4.0, "worse"
            improvement[-1][-1] = None
        worsened = int(side > 1)
        counts = (1, worsened, 7, worsened)
        grid = GridComparison("entailment-neutral", "cosine", after, after, improvement, verdicts, *counts)
    change = make_change(0.25 if compared else None, 0.245, measure="PND")
    sizes = (1670, 1670 * side, 99)
    return DatasetResult(name, "retain", "grid", *sizes, "PND", [change], languages, [grid], units=500)


def make_tuning(*, best_epoch: int = 2) -> TrainingRecord:
    layers = [
        LayerChange(f"encoder.layer.{index}.weight", index / 1000 or None, 0.5, 0.51, (20 - index) / 10_000)
        for index in range(20)
    ]
    settings = {"learning_rate": 5e-8, "freeze": ["embeddings"], "schedule": {"kind": "constant"}}
    size = {"trained_on": "cs, split train: 1,000 examples", "parameters": 1000, "trainable": 250}
    end = {
        "steps": 300,
        "epochs": 3,
        "best_epoch": best_epoch,
        "stop_reason": "3 epochs done",
        "seconds": 75.0,
    }
    curves = {
        "loss": [(step, 0.1 - step / 10_000) for step in range(10, 301, 10)],
        "validation_loss": [(0, 0.09), (1, 0.08), (2, 0.07), (3, 0.075)],
        "validation_errors": [(0, 2000), (1, 1600), (2, 1500), (3, 1550)],
    }
    return TrainingRecord(settings=settings, layers=layers, validation_pairs=4000, **size, **end, **curves)  # type: ignore[arg-type]


def make_example(query: str = "what is a boson") -> ChangedQuery:
    """Document ``c`` is relevant and rises from 3 to 1, ``a`` falls, ``b`` moves out and ``d`` moves in."""
    a, d = Hit("a", "text of a", 0.9, False), Hit("d", "text of d", 0.5, False)
    before = [a, Hit("b", "", 0.8, False), Hit("c", "text of c", 0.7, True)]
    return ChangedQuery("cs", query, before, [Hit("c", "text of c", 0.95, True), a, d])


def make_result(*datasets: DatasetResult, baseline: str | None = "the start", **options) -> Result:
    kind = "training" if "training" in options and not datasets else "evaluation"
    options = {"title": "A title", "training": None, "examples": [], "kind": kind, **options}
    made = {
        **CREATED,
        "command": "adiabat evaluate job store data --out out",
        "seconds": 12.5,
        "model": "job",
    }
    return Result(baseline=baseline, datasets=list(datasets), **made, **options)


def full_result() -> Result:
    """Every part of a report has data."""
    return make_result(
        make_dataset("cs", "target", 0.612, 0.661),
        make_dataset("maths", "retain", 0.57, 0.572),
        make_grid(["en", "de", "zh"]),
        training=make_tuning(),
        examples=[make_example(f"query {number}") for number in range(12)],
    )
