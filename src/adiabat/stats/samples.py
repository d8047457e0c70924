"""Scores of one model on one task for every unit, from which every measure can be computed again on any resample.

A unit is what a task samples: a query, a pair of texts, a sentence pair in all its languages, a labelled text. Models with scores of the
same units can be compared pairwise, today or from files years later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from adiabat.results.evaluation_result import TrainedOn
from adiabat.results.suite_result import Kind

Statistic = Literal["mean", "spearman", "average precision", "v-measure"]
"""Statistic of the units; `adiabat.stats.statistics` has the formulas."""

Bounds = tuple[float, float]
"""The least and the greatest value that a measure can have."""

SHARE: Bounds = (0.0, 1.0)
CORRELATION: Bounds = (-1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Sample:
    """One measure of one model, unit by unit.

    Attributes:
        measure: Such as ``nDCG@10``, ``PND``, ``Spearman``, ``accuracy``.
        values: One for each unit: its score; for ``spearman`` and ``average precision`` the similarity that the model gave; for
            ``v-measure`` the number of the cluster.
        similarity: What compared the texts: ``cosine``, ``dot``, ``distance``, ``manhattan``, ``bm25``; ``best of all`` where every model
            was given its best, ``run`` for rankings from a file; "" if nothing was compared.
        reference: For ``mean`` the weight of each unit, at least 0, and the value is ``sum(values) / sum(reference)`` (None: 1 for each);
            for ``spearman`` the score people gave; for ``average precision`` 1 where the pair belongs together, else 0; for
            ``v-measure`` the number of the label.
        statistic: How units become a value.
        groups: Where given, the value is the plain mean of the values of each group: numbers from 0, one for each unit.
        lower_is_better: True for the positive-negative discrepancy.
        proportion: Whether values count errors among as many independent trials as `reference` says, which is what the two-proportion
            test takes them for.
        pseudo_values: Whether a value is a pseudo-value, which depends on the other units too, so that one changed unit moves them all.
        bounds: Between which the value must lie, however uncertain it is; None if it may be any number, as a count may.
    """

    measure: str
    values: Float[np.ndarray, " n"]
    similarity: str = ""
    reference: Float[np.ndarray, " n"] | None = None
    statistic: Statistic = "mean"
    groups: Int[np.ndarray, " n"] | None = None
    lower_is_better: bool = False
    proportion: bool = False
    pseudo_values: bool = False
    bounds: Bounds | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Measure and similarity: unique among the measures of a task."""
        return self.measure, self.similarity

    @property
    def weights(self) -> Float[np.ndarray, " n"]:
        """Weight of each unit: its reference, or 1."""
        return np.ones(self.values.shape) if self.reference is None else self.reference

    @property
    def unit_values(self) -> Float[np.ndarray, " n"]:
        """Value of each unit of a mean; NaN for a unit without weight."""
        return np.asarray(np.divide(self.values, self.weights, out=np.full(self.values.shape, np.nan), where=self.weights > 0))

    def judges_like(self, other: "Sample") -> bool:
        """Whether both have the same references and groups."""
        pairs = ((self.reference, other.reference), (self.groups, other.groups))
        return all(mine is theirs or (mine is not None and theirs is not None and np.array_equal(mine, theirs)) for mine, theirs in pairs)

    def take(self, rows: Int[np.ndarray, " k"]) -> "Sample":
        """The units of some rows, in that order."""
        reference, groups = (None if column is None else column[rows] for column in (self.reference, self.groups))
        return replace(self, values=self.values[rows], reference=reference, groups=groups)


def ranking_bounds(measure: str) -> Bounds | None:
    """`SHARE` for a measure of the ir-measures grammar; None for counts such as ``NumRet``."""
    return None if measure.startswith("Num") else SHARE


@dataclass(frozen=True, slots=True)
class GridSample:
    """One comparison of a language grid, such as ``entailment-neutral`` or ``P@1``; the value of a cell is the mean over its units.

    `rows` are the languages of the queries, `columns` those of the documents. A discrepancy over pairs of units has its pseudo-values.
    Where the values are of errors among `total` trials in every cell, `errors` counts them: the value of a cell is ``errors / total``.
    """

    comparison: str
    similarity: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Float32[np.ndarray, "a b n"]
    lower_is_better: bool
    errors: Int[np.ndarray, "a b"] | None = None
    total: int = 0


MAX_TRAINED_SHARE = 0.1
"""Maximum share of units in the training data of a model for a verdict."""


@dataclass(frozen=True, slots=True)
class TrainingOverlap:
    """Training data of the measured model's job among the units.

    Attributes:
        queries: Whether the job trained or validated on the unit's query, or for a language grid on one of its premises.
        relevant: Number of relevant documents of each unit.
        documents: Number of them that answered a query of the job; None if one side knows texts and the other ids.
        unknown: Why there may be more; "" if there are none.
    """

    queries: Bool[np.ndarray, " n"]
    relevant: Int[np.ndarray, " n"]
    documents: Int[np.ndarray, " n"] | None
    unknown: str = ""

    @property
    def is_proof(self) -> bool:
        """Whether the job saw at most `MAX_TRAINED_SHARE` of the units."""
        return int(self.queries.sum()) <= MAX_TRAINED_SHARE * self.queries.size

    @property
    def unseen(self) -> Bool[np.ndarray, " n"]:
        """Units without any known training data."""
        assert self.documents is not None, "where documents are not known, neither is what is left"
        return np.asarray(~self.queries & (self.documents == 0))

    def take(self, rows: Int[np.ndarray, " k"]) -> "TrainingOverlap":
        """The units of some rows."""
        documents = None if self.documents is None else self.documents[rows]
        return TrainingOverlap(self.queries[rows], self.relevant[rows], documents, self.unknown)


@dataclass(frozen=True, slots=True)
class TaskScores:
    """One model on one task.

    Attributes:
        unit: What the units are, in the singular: ``query``, ``pair``.
        units: Their ids, each once; models measured on the same task have the same ones in the same order.
        samples: All over the same units; the first carries the verdict.
        texts: Of each unit: a query, a pair with a line end between its texts; empty if there is none.
        documents: How many the queries were compared with; 0 if there is no corpus.
        facts: Further figures, such as ``out-of-vocabulary words``, by name.
        trained: Training data of the model's job among the units; None if the model is of no job, or that is not counted.
        ladder: Errors against the first listed negative of each unit, the second, ..., where all list as many; not stored on disk.
    """

    task: str
    kind: Kind
    unit: str
    units: Sequence[str]
    samples: Sequence[Sample]
    texts: Sequence[str] = ()
    documents: int = 0
    grids: Sequence[GridSample] = ()
    facts: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    trained: TrainingOverlap | None = None
    ladder: Sequence[Sample] = ()

    @property
    def is_proof(self) -> bool:
        """Whether a verdict may rest on these scores: False if the model trained on more than a few of the units."""
        return self.trained is None or self.trained.is_proof

    def trained_on(self, model: str) -> list[TrainedOn]:
        """The record of the training data of `model`, which these scores are of; empty if it is of no job."""
        overlap = self.trained
        if overlap is None:
            return []
        counts = overlap.documents
        return [
            TrainedOn(
                model=model,
                queries=len(self.units),
                trained_queries=int(overlap.queries.sum()),
                relevant=int(overlap.relevant.sum()),
                trained_relevant=None if counts is None else int(counts.sum()),
                answered=None if counts is None else int(np.count_nonzero(counts)),
                unknown=overlap.unknown,
                is_proof=overlap.is_proof,
            )
        ]

    def take(self, rows: Int[np.ndarray, " n"]) -> "TaskScores":
        """The units of some rows, in that order; grids keep their pseudo-values and lose their error counts."""
        return replace(
            self,
            units=[self.units[row] for row in rows],
            texts=[self.texts[row] for row in rows] if self.texts else (),
            samples=[sample.take(rows) for sample in self.samples],
            grids=[replace(sample, values=sample.values[:, :, rows], errors=None, total=0) for sample in self.grids],
            trained=None if self.trained is None else self.trained.take(rows),
            ladder=(),
        )
