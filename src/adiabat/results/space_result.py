"""What an analysis of embedding spaces leaves behind: plain data for ``result.json``, of which tables and pages are made."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from adiabat.results.record import Record

Whose = Literal["both", "queries", "documents"]
"""Which tower's vectors a number is about."""

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
"""Levels that `Distribution` tells."""


@dataclass(frozen=True, slots=True)
class SpaceNumber:
    """One number of a space, before and after.

    Attributes:
        name: Such as ``uniformity``; unique together with `of`.
        of: Whose vectors it is about.
        formula: In one line, in words and symbols.
        after: Of the model under test; None where it is not defined, such as the rank of vectors that are all the same.
        after_interval: 95 % bootstrap interval; None where the number is no mean over a sample.
        before: Of the baseline; None where there is none, or it is not defined.
        difference_interval: Paired: the same resamples before and after.
    """

    name: str
    of: Whose
    formula: str
    source: str
    after: float | None
    after_interval: tuple[float, float] | None = None
    before: float | None = None
    before_interval: tuple[float, float] | None = None
    difference: float | None = None
    difference_interval: tuple[float, float] | None = None

    @property
    def changed(self) -> bool:
        """Whether the paired interval leaves out zero."""
        return self.difference_interval is not None and not self.difference_interval[0] <= 0 <= self.difference_interval[1]


@dataclass(frozen=True, slots=True)
class Histogram:
    """How values of one model are spread.

    Attributes:
        counts: Values in each bin, one fewer than edges.
        below: Values under the first edge.
        above: Values over the last edge.
        quantiles: At the levels of `QUANTILES`; empty where there are no values.
        left_out: Values that are not defined.
    """

    counts: list[int]
    below: int
    above: int
    quantiles: list[float]
    left_out: int = 0

    @property
    def total(self) -> int:
        """Values in all, those left out apart."""
        return sum(self.counts) + self.below + self.above


@dataclass(frozen=True, slots=True)
class Distribution:
    """How values are spread, before and after in the same bins.

    Attributes:
        name: ``nearest``, ``positive`` or ``ratio``.
        edges: Of the bins, ascending.
        after: Of the model under test.
        before: Of the baseline, or None.
    """

    name: str
    edges: list[float]
    after: Histogram
    before: Histogram | None = None


@dataclass(frozen=True, slots=True)
class MapPanel:
    """Places of one model's vectors in the plane.

    Attributes:
        queries: (x, y) of each query.
        documents: (x, y) of the positive of each.
    """

    queries: list[tuple[float, float]]
    documents: list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class SpaceMap:
    """Maps of both towers by t-SNE, begun from the same places.

    Attributes:
        perplexity: About how many neighbours of a point count.
        after: Of the model under test.
        before: Of the baseline, or None.
    """

    perplexity: float
    after: MapPanel
    before: MapPanel | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceResult(Record):
    """The whole of the ``result.json`` of an analysis.

    Attributes:
        baseline: Name of what it is compared with, or None.
        looked_at: Of them, in the sample.
        distinct: Different positives among those of the sample: queries that share one are drawn together.
        sampled: Of them, in the sample.
        pairs: Of queries, drawn for the ratio.
        distributions: Of cosines and ratios.
        map: None where it was not asked for.
    """

    ROWS: ClassVar[str] = "numbers"

    model: str
    baseline: str | None
    data: str
    queries: int
    looked_at: int
    distinct: int
    documents: int
    sampled: int
    pairs: int
    resamples: int
    numbers: list[SpaceNumber]
    distributions: list[Distribution]
    map: SpaceMap | None = None
    kind: Literal["space"] = "space"

    def number(self, name: str, of: Whose = "both") -> SpaceNumber:
        """One of the numbers."""
        return next(number for number in self.numbers if (number.name, number.of) == (name, of))

    def distribution(self, name: str) -> Distribution:
        """One of the distributions."""
        return next(distribution for distribution in self.distributions if distribution.name == name)
