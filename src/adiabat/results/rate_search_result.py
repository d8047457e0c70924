"""Drift of a tuned tower, and the record of a search for the largest learning rate within a limit of it."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from adiabat.results.record import Record


@dataclass(frozen=True, slots=True)
class Drift:
    """Drift of a tuned tower: distance of its results on probe texts from those of the untuned tower.

    Attributes:
        means: Measure to its mean over probes; `adiabat.adiabatic.drift` has the formulas.
        errors: Measure to the standard error of that mean.
        groups: Group of probes, such as a language, to its means.
    """

    probes: int
    means: dict[str, float]
    errors: dict[str, float]
    groups: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RateTrial:
    """One run of a search.

    Attributes:
        rate: Its learning rate, before any scaling with the batch size.
        steps: Steps after which drift was measured, ascending.
        drift: Measure to its mean over the probes at each of these steps.
        losses: Validation loss at each of these steps in a range test; empty in a search for a safe rate.
        left_at: Step at which drift exceeded the limit, or the loss became non-finite; None if neither
            happened.
    """

    rate: float
    seed: int
    steps: list[int]
    drift: dict[str, list[float]]
    left_at: int | None
    reason: str
    seconds: float
    device: str
    losses: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name, unique in the search."""
        return f"rate {self.rate:g}, seed {self.seed}"

    @property
    def diverged(self) -> bool:
        """Whether the loss became non-finite: drift beyond the limit ends a run only where it is measured."""
        return self.left_at is not None and self.left_at not in self.steps


@dataclass(frozen=True, slots=True, kw_only=True)
class SafeRate(Record):
    """The whole ``result.json`` of a search for the largest safe rate.

    Attributes:
        noise: Measure to the drift of the untuned tower on probes with changed punctuation; empty if the
            limit was given as a number.
        steps: Number of steps for which a rate must stay within the limit.
        rates: All rates of the search, ascending.
        rate: The largest rate within the limit for every seed; None if there is none.
    """

    ROWS: ClassVar[str] = "trials"

    model: str
    measure: str
    limit: float
    noise: dict[str, float]
    probes: int
    steps: int
    rates: list[float]
    rate: float | None
    trials: list[RateTrial]
    kind: Literal["rate-search"] = "rate-search"
