"""The result of an analysis of embedding spaces: plain data for ``result.json``, tables and pages."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from adiabat.results.record import Ends, Record

Whose = Literal["both", "queries", "documents"]
"""Tower whose vectors a number describes."""

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
"""Levels of `Distribution.quantiles`."""


@dataclass(frozen=True, slots=True)
class SpaceNumber:
    """One number of a space, before and after.

    Attributes:
        name: Such as ``uniformity``; unique together with `of`.
        of: Tower whose vectors it describes.
        formula: Formula in one line, in words and symbols.
        after: Value of the model under test; None if it is not defined, such as the rank of identical
            vectors.
        after_interval: 95 % bootstrap interval; None if the number is not a mean over a sample.
        before: Value of the baseline; None if there is none, or if it is not defined.
        difference_interval: Paired interval, from the same resamples before and after.
    """

    name: str
    of: Whose
    formula: str
    source: str
    after: float | None
    after_interval: Ends | None = None
    before: float | None = None
    before_interval: Ends | None = None
    difference: float | None = None
    difference_interval: Ends | None = None

    @property
    def changed(self) -> bool:
        """Whether the paired interval excludes zero."""
        return (
            self.difference_interval is not None
            and not self.difference_interval[0] <= 0 <= self.difference_interval[1]
        )


@dataclass(frozen=True, slots=True)
class Histogram:
    """Distribution of one model's values.

    Attributes:
        counts: Number of values in each bin; one fewer than edges.
        below: Number of values below the first edge.
        above: Number of values above the last edge.
        quantiles: Values at the levels of `QUANTILES`; empty without values.
        left_out: Number of undefined values.
    """

    counts: list[int]
    below: int
    above: int
    quantiles: list[float]
    left_out: int = 0

    @property
    def total(self) -> int:
        """Number of all defined values."""
        return sum(self.counts) + self.below + self.above


@dataclass(frozen=True, slots=True)
class Distribution:
    """Distribution of values before and after, in the same bins.

    Attributes:
        name: ``nearest``, ``positive`` or ``ratio``.
        edges: Edges of the bins, ascending.
        after: Distribution of the model under test.
        before: Distribution of the baseline, or None.
    """

    name: str
    edges: list[float]
    after: Histogram
    before: Histogram | None = None


@dataclass(frozen=True, slots=True)
class MapPanel:
    """Coordinates of one model's vectors in the plane.

    Attributes:
        queries: (x, y) of each query.
        documents: (x, y) of the positive of each.
    """

    queries: list[tuple[float, float]]
    documents: list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class SpaceMap:
    """Maps of both towers by t-SNE, from the same initial positions.

    Attributes:
        perplexity: Perplexity of t-SNE, roughly the number of neighbours considered per point.
        after: Map of the model under test.
        before: Map of the baseline, or None.
    """

    perplexity: float
    after: MapPanel
    before: MapPanel | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceResult(Record):
    """The whole ``result.json`` of an analysis of embedding spaces.

    Attributes:
        baseline: Name of the baseline, or None.
        looked_at: Number of queries in the sample.
        distinct: Number of different positives in the sample; queries that share one are drawn together.
        sampled: Number of documents in the sample.
        pairs: Number of pairs of queries drawn for the ratio.
        distributions: Distributions of cosines and ratios.
        map: None unless requested.
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
