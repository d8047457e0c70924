"""The record of an advice: what a data set could show and gain, measured before anything is tuned, and one
recommendation.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from adiabat.results.evaluation_result import Change
from adiabat.results.record import Record

Choice = Literal[
    "leave it",
    "fuse with BM25",
    "fuse with BM25, then tune",
    "tune the query tower",
    "get more data",
    "re-embed with a better model",
]

TUNING: frozenset[Choice] = frozenset(("fuse with BM25, then tune", "tune the query tower"))
"""Recommendations to tune."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """Queries by the rank of their first answer under the untuned model.

    Attributes:
        top: Number of queries whose first answer is among the first 10 documents.
        near: Those whose first answer has a rank from 11 to 100.
        beyond: Those without an answer among the first 100.
    """

    top: int
    near: int
    beyond: int

    @property
    def total(self) -> int:
        """All queries."""
        return self.top + self.near + self.beyond


@dataclass(frozen=True, slots=True)
class AdvisedSet:
    """One data set: the untuned model, and what else was tried on the same queries.

    Each change is from the untuned model.

    Attributes:
        queries: Number of queries in the data.
        measured: Number of them that were drawn to measure with.
        untuned: The measure of the untuned model, with its interval; without a baseline.
        bm25: BM25; None for a retention set, or if the store keeps no texts.
        fused: Fusion of the untuned model and BM25; None likewise.
        mapped: The untuned model with a linear map of its query vectors: on the target by cross-validation,
            on a retention set with the map of all measured target queries. None if the map could not be
            cross-validated.
        bm25_over_fused: BM25 compared with the fusion; None without them.
        left_out: Number of further queries that are left out, because the job of the model trained on them or
            on their relevant documents.
    """

    name: str
    role: Literal["target", "retain"]
    queries: int
    measured: int
    documents: int
    headroom: Headroom
    untuned: Change
    bm25: Change | None = None
    fused: Change | None = None
    mapped: Change | None = None
    bm25_over_fused: Change | None = None
    left_out: int = 0

    @property
    def changes(self) -> dict[str, Change]:
        """Every ranking by name, the untuned model first."""
        named = {
            "untuned": self.untuned,
            "BM25": self.bm25,
            "fused with BM25": self.fused,
            "linear map": self.mapped,
        }
        return {name: change for name, change in named.items() if change is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice(Record):
    """The whole ``result.json`` of an advice.

    Attributes:
        datasets: The target, then the retention sets.
        choice: The recommendation.
        reason: Its reason in one or two sentences.
        detectable: The smallest improvement of the measure, in percent of the untuned value, that all queries
            of the target would show with 80 % probability; None if nothing varies.
        spread: Where the spread behind `detectable` comes from: ``the linear map``, or ``earlier tunings`` if
            the map is the identity or was not measured; "" without `detectable`.
        clusters: Number of groups of measured target queries that share no relevant document with another
            group.
        pull: Pull to the identity of the linear map; None if the identity was best, or without a map.
        steps: The calls that do what is recommended.
        tuning: The expected time of ``adiabat tune`` with its default settings, in words; "" if unknown.
    """

    ROWS: ClassVar[str] = "datasets"

    model: str
    datasets: list[AdvisedSet]
    choice: Choice
    reason: str
    detectable: float | None
    spread: str
    clusters: int
    pull: float | None
    tuning: str
    steps: list[str] = field(default_factory=list)
    kind: Literal["advice"] = "advice"

    @property
    def target(self) -> AdvisedSet:
        """The set that the advice is about."""
        return self.datasets[0]

    @property
    def says_tune(self) -> bool:
        """Whether it recommends to tune the query tower, alone or after fusion."""
        return self.choice in TUNING

    def rows(self) -> list[dict[str, Any]]:
        """A row for each data set and ranking."""
        return [
            {"data": entry.name, "role": entry.role, "ranking": name, **asdict(change)}
            for entry in self.datasets
            for name, change in entry.changes.items()
        ]
