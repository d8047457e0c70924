"""How fast a model encodes, and how fast it trains (mission D8)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from time import perf_counter
from typing import Any

from adiabat.measure.comparison import Speed
from adiabat.model.towers import DualEncoder

WARMING = 64
"""Texts encoded before the clock starts: the first pass sets things up, and may try what precision the model stands."""


def encoding_speeds(
    models: Mapping[str, Callable[[], DualEncoder]],
    texts: Sequence[str],
    *,
    rounds: int,
    on_progress: Callable[[int, int], None],
) -> dict[str, Speed]:
    """Time the encoding of documents by several models, in the precision that a store is built in.

    Models take turns, so that what else the machine does meanwhile falls on all of them alike. Each is loaded anew when its turn comes:
    one at a time is in memory.

    Returns:
        Texts per second of each.
    """
    speeds: dict[str, list[float]] = {name: [] for name in models}
    for number in range(rounds):
        for place, (name, load) in enumerate(models.items()):
            on_progress(number * len(models) + place, rounds * len(models))
            speeds[name].append(len(texts) / _seconds(load(), texts))
    on_progress(rounds * len(models), rounds * len(models))
    return {name: Speed(median(one), min(one), max(one), len(texts), rounds) for name, one in speeds.items()}


def _seconds(model: DualEncoder, texts: Sequence[str]) -> float:
    model.encode(texts[:WARMING], side="document")
    begun = perf_counter()
    model.encode(texts, side="document")
    return perf_counter() - begun


def step_seconds(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """Median time of an optimiser step, out of the log of a run.

    A row of the log that stands behind a validation counts from its end, so that validations are left out.

    Returns:
        Seconds; None where no two rows lie a step apart.
    """
    steps, before = list[float](), None
    for row in rows:
        if "loss" in row and before is not None and row["step"] > before["step"]:
            steps.append((row["seconds"] - before["seconds"]) / (row["step"] - before["step"]))
        before = row
    return median(steps) if steps else None
