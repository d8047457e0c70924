"""Measures of a language grid of sentence pairs, in every pair of languages.

``PND`` compares sentence pairs: every entailment pair is ranked against every neutral (contradiction) pair,
each scored by its own premise
in the query language and its own hypothesis in the document language. ``PND retrieval`` asks one query as
search does: a premise should score its entailed hypothesis above every neutral (contradicted) hypothesis of
another premise. Both are exact, and ties are errors.

The comparisons of a grid are far from independent: a sentence pair takes part in thousands of them, in every
cell. Chance comes from the
choice of premises, each with its sentence pairs: a *cluster*, the unit here. The discrepancy U of a cell is a
two-sample U-statistic. A cluster's contribution to it, to first order (Hoeffding 1948), follows from each
pair's *placement*, the number of opposite pairs that it loses against (DeLong, DeLong and Clarke-Pearson
1988). Each of C clusters so has a *pseudo-value*, ``U + C influence``: their mean is U, and their weighted
mean is U with clusters drawn as often as the weights say, to first order. With them a grid is a sample like
any other.

Letters in shapes: a query languages, b document languages, n sentence pairs, p entailment pairs, m the pairs
or hypotheses they are compared with, c clusters, e embedding width; an underscore before a letter: checked in
the function, with a message of its own.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from adiabat.core.errors import DataError, several
from adiabat.data.records import NEGATIVES, POSITIVE
from adiabat.models.embedding_head import Similarity
from adiabat.stats.ranking_measures import discordant_counts
from adiabat.stats.samples import GridSample, Sample, ranking_sample
from adiabat.stats.unit_arrays import Numbers
from adiabat.store.scoring import Block, FixedPoint, Queries, exact_pairs, row_scores

Vectors = Mapping[str, Float[np.ndarray, "_n _e"]]
Scores = Mapping[str, Float[np.ndarray, "_a _b _n"]]
Cells = Int[np.ndarray, "a b"]
OfClusters = Int[np.ndarray, "a b c"]

# Sentence pairs per block: 15 languages of width 384, both sides, in 64 bits are 6 MB.
_BLOCK_PAIRS = 64


@dataclass(frozen=True, slots=True)
class Placements:
    """For each pair of one comparison, how many of its opponents beat it or tie with it, in every cell."""

    positive: Int[np.ndarray, "a b p"]
    negative: Int[np.ndarray, "a b m"]

    @property
    def errors(self) -> Cells:
        """Comparisons lost by the entailment pair, ties included."""
        return np.asarray(self.positive.sum(axis=-1))

    @property
    def total(self) -> int:
        """Comparisons in each cell."""
        return int(self.positive.shape[-1] * self.negative.shape[-1])


def grid_scores(
    premises: Vectors, hypotheses: Vectors, *, similarities: Sequence[Similarity] = ("cosine", "distance")
) -> dict[str, Float[np.ndarray, "a b n"]]:
    """Score every sentence pair in every pair of languages; higher is closer.

    All sums run in 64 bits and in the same order for every pair and cell: equal vectors have exactly equal
    scores, and a vector has with itself a cosine of exactly 1 and a distance of exactly 0. A zero vector has
    a cosine of 0 with everything.

    Args:
        premises: Query vectors per language, row i for sentence pair i; memory maps are read in blocks.
        hypotheses: Document vectors per language, likewise.
        similarities: To score by; ``distance`` is minus the Euclidean distance.

    Raises:
        ValueError: If a side has no language, or the arrays differ in shape.
        DataError: If a vector is not finite; language and sentence pair of the first ten are listed.
    """
    shapes = {vectors.shape for vectors in (*premises.values(), *hypotheses.values())}
    if not premises or not hypotheses or len(shapes) > 1:
        raise ValueError(
            f"premises and hypotheses must each have languages, all of one shape, got {sorted(shapes)}"
        )
    pairs = next(iter(shapes))[0]
    scores: dict[str, Float[np.ndarray, "a b n"]] = {
        name: np.empty((len(premises), len(hypotheses), pairs)) for name in similarities
    }
    faults: list[str] = []
    for start in range(0, pairs, _BLOCK_PAIRS):
        rows = slice(start, start + _BLOCK_PAIRS)
        query = np.stack([vectors[rows] for vectors in premises.values()], dtype=np.float64)
        document = np.stack([vectors[rows] for vectors in hypotheses.values()], dtype=np.float64)
        query_square, document_square = np.vecdot(query, query), np.vecdot(document, document)
        faults += _vector_faults("premise", list(premises), query_square, start)
        faults += _vector_faults("hypothesis", list(hypotheses), document_square, start)
        # Further blocks are read for their faults alone.
        if faults:
            continue
        # One language of premises at a time bounds the memory.
        for a in range(len(premises)):
            squares = document_square * query_square[a]
            for similarity in similarities:
                scores[similarity][a, :, rows] = row_scores(query[a], document, similarity, squares=squares)
    if faults:
        raise DataError(several(faults))
    return scores


def placements(positive: Float[np.ndarray, "a b p"], negative: Float[np.ndarray, "a b m"]) -> Placements:
    """Placements of entailment pairs (`positive`) and of the others (`negative`) in every cell, by score; a
    NaN is a `ValueError`.
    """
    above = np.empty(positive.shape, dtype=np.int64)
    below = np.empty(negative.shape, dtype=np.int64)
    for cell in np.ndindex(*positive.shape[:2]):
        above[cell] = discordant_counts(positive[cell], negative[cell])
        # Negated scores count the positives that are <= this negative.
        below[cell] = discordant_counts(-negative[cell], -positive[cell])
    return Placements(above, below)


def measure_grid(
    scores: Scores,
    labels: Sequence[str],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    clusters: Numbers,
) -> tuple[list[Sample], list[GridSample]]:
    """Measure both comparisons in every cell, with a pseudo-value for each cluster (Vasilyev et al. 2024).

    With ``influence = sum_i (V_i - U) / p + sum_j (V_j - U) / m`` over the entailment pairs i of a cluster
    and its others j, V the placement as a share of opponents, the pseudo-value is ``U (1 - w) + C (sum_i
    above_i + sum_j below_j) / (p m)``, w being C times the cluster's shares of both sides: one sum of whole
    numbers.

    Args:
        scores: From `grid_scores`, of one similarity or several.
        labels: ``entailment``, ``neutral`` or ``contradiction`` for each sentence pair.
        rows: Languages of the premises.
        columns: Languages of the hypotheses.
        clusters: Of each sentence pair, from `cluster_ids`: XNLI uses every premise three times.

    Returns:
        Per similarity ``PND``, averaged over both comparisons and all cells; and the grids, one per
        similarity and comparison. Units are the clusters by ascending number; pseudo-values may lie outside 0
        to 1.

    Raises:
        DataError: If a label is missing from the data or unknown.
        ValueError: If a score is NaN.
    """
    rows_of, count = rows_by_label(labels), int(clusters.max()) + 1
    positive = rows_of[POSITIVE]
    samples, cells = [], []
    for similarity, values in scores.items():
        measured = _Measured("PND", similarity, tuple(rows), tuple(columns))
        for label in NEGATIVES:
            negative = rows_of[label]
            placed = placements(values[:, :, positive], values[:, :, negative])
            groups = clusters[np.concatenate([positive, negative])]
            lost = _cluster_sums(np.concatenate([placed.positive, placed.negative], axis=-1), groups, count)
            of_positive = np.bincount(clusters[positive], minlength=count) / positive.size
            of_negative = np.bincount(clusters[negative], minlength=count) / negative.size
            measured.add(f"{POSITIVE}-{label}", placed.errors, placed.total, lost, of_positive + of_negative)
        samples.append(measured.sample())
        cells += measured.cells
    return samples, cells


@dataclass(frozen=True, slots=True)
class _Measured:
    """A measure of a grid by one similarity, to which comparisons are added."""

    measure: str
    similarity: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: list[GridSample] = field(default_factory=list)
    values: list[Float[np.ndarray, "_a _b _c"]] = field(default_factory=list)

    def add(
        self, comparison: str, errors: Cells, total: int, lost: OfClusters, shares: Float[np.ndarray, " c"]
    ) -> None:
        """Add a comparison, with its exact counts of errors."""
        values = pseudo_values(errors, total, lost, shares)
        self.values.append(values)
        cells = GridSample(
            comparison,
            self.similarity,
            self.rows,
            self.columns,
            values.astype(np.float32),
            lower_is_better=True,
            errors=errors,
            total=total,
        )
        self.cells.append(cells)

    def sample(self) -> Sample:
        """Pseudo-values of each cluster, averaged over comparisons and cells."""
        mean = np.mean(self.values, axis=(0, 1, 2))
        return replace(ranking_sample(self.measure, mean, self.similarity), pseudo_values=True)


def cluster_ids(premises: Sequence[Hashable]) -> Numbers:
    """Cluster of each sentence pair, from 0 by first appearance: pairs of equal premises share one."""
    number_of: dict[Hashable, int] = {}
    return np.array([number_of.setdefault(premise, len(number_of)) for premise in premises], dtype=np.int64)


def _vector_faults(
    side: str, languages: list[str], square: Float[np.ndarray, "l n"], start: int
) -> list[str]:
    """A phrase for each vector whose squared length is not finite."""
    return [
        f"{side} vector of sentence pair {start + int(row)} in {languages[language]} must be finite, "
        f"got squared length {square[language, row]:g}; encode it again"
        for language, row in np.argwhere(~np.isfinite(square))
    ]


def rows_by_label(labels: Sequence[str]) -> dict[str, Int[np.ndarray, " r"]]:
    """Rows of each of the three labels; a missing or unknown label is a `DataError`."""
    known = [POSITIVE, *NEGATIVES]
    names = np.array(labels, dtype=np.str_)
    rows = {name: np.flatnonzero(names == name) for name in known}
    faults = [
        f"label of sentence pair {i} must be {known[0]}, {known[1]} or {known[2]}, got {label!r}"
        for i, label in enumerate(labels)
        if label not in known
    ]
    faults += [f"labels must hold at least one {name}, got none" for name in known if rows[name].size == 0]
    if faults:
        raise DataError(
            f"{several(faults)}; name a grid of sentence pairs that has all three labels and no other"
        )
    return rows


def pseudo_values(
    errors: Cells, total: int, lost: OfClusters, shares: Float[np.ndarray, " c"]
) -> Float[np.ndarray, "a b c"]:
    """Pseudo-values ``U (1 - C share) + C lost / total`` of every cluster, for ``U = errors / total`` of
    every cell; their mean is U.

    `lost` and `shares` count each comparison once for each of its two sides, so all shares add up to 2.
    """
    clusters = lost.shape[-1]
    # To first order, without its cluster a cell has the value U - (pseudo-value - U) / (C - 1).
    level = (errors / total)[:, :, None]
    return np.asarray(level * (1 - clusters * shares) + clusters * lost / total)


def _cluster_sums(
    values: Int[np.ndarray, "a b r"], groups: Int[np.ndarray, " r"], clusters: int
) -> Int[np.ndarray, "a b c"]:
    """Sum the last axis by cluster."""
    # Sorted by cluster, each cluster is one slice of the last axis.
    order = np.argsort(groups, kind="stable")
    present, first = np.unique(groups[order], return_index=True)
    sums = np.zeros((*values.shape[:2], clusters), dtype=np.int64)
    sums[:, :, present] = np.add.reduceat(values[:, :, order], first, axis=-1)
    return sums


MEASURE = "PND retrieval"


@dataclass(frozen=True, slots=True)
class _Side:
    """Candidates of one label: their sentence pairs, and which of them belong to another premise than each
    entailment pair.

    `shares` are those of each cluster in all comparisons, as query and as owner.
    """

    rows: Int[np.ndarray, " m"]
    others: Bool[np.ndarray, "p m"]
    shares: Float[np.ndarray, " c"]

    @classmethod
    def of(cls, rows: Int[np.ndarray, " m"], positive: Int[np.ndarray, " p"], clusters: Numbers) -> "_Side":
        """The candidates in `rows`; an entailment pair is compared with those of other clusters."""
        asking, owners, count = clusters[positive], clusters[rows], int(clusters.max()) + 1
        # A premise and its own sentence pairs are one cluster: they are no evidence against it.
        others = asking[:, None] != owners
        compared = np.bincount(asking, weights=others.sum(axis=1), minlength=count)
        compared += np.bincount(owners, weights=others.sum(axis=0), minlength=count)
        return cls(rows, others, compared / max(1, int(others.sum())))

    @property
    def total(self) -> int:
        """Comparisons in each cell."""
        return int(self.others.sum())


def measure_grid_retrieval(
    premises: Vectors,
    hypotheses: Vectors,
    labels: Sequence[str],
    *,
    similarities: Sequence[Similarity],
    clusters: Numbers,
) -> tuple[list[Sample], list[GridSample]]:
    """Measure retrieval among the hypotheses of other premises in every cell, with a pseudo-value for each
    cluster.

    ``PND = errors / comparisons`` over entailment pairs (p, h) and the hypotheses h' of other premises that
    are neutral (contradicted), an error being ``s(p, h') >= s(p, h)``. Clusters take part as queries and as
    owners of candidates.

    Args:
        premises: Query vectors per language, row i for sentence pair i, finite.
        hypotheses: Document vectors per language, likewise.
        labels: ``entailment``, ``neutral`` or ``contradiction`` for each sentence pair.
        similarities: To rank by.
        clusters: Of each sentence pair, from `cluster_ids`.

    Returns:
        As `measure_grid`, for ``PND retrieval``; empty if no premise has candidates of others.
    """
    rows_of = rows_by_label(labels)
    positive = rows_of[POSITIVE]
    sides = {name: _Side.of(rows_of[name], positive, clusters) for name in NEGATIVES}
    if not all(side.total for side in sides.values()):
        return [], []
    samples, cells = [], []
    for similarity in similarities:
        lost = _lost(premises, hypotheses, positive, sides, clusters, similarity)
        measured = _Measured(MEASURE, similarity, tuple(premises), tuple(hypotheses))
        for name, side in sides.items():
            # Each error is lost once by its query and once by the owner of the candidate.
            errors = lost[name].sum(axis=-1) // 2
            measured.add(f"retrieval {POSITIVE}-{name}", errors, side.total, lost[name], side.shares)
        samples.append(measured.sample())
        cells += measured.cells
    return samples, cells


def _lost(
    premises: Vectors,
    hypotheses: Vectors,
    positive: Int[np.ndarray, " p"],
    sides: Mapping[str, _Side],
    groups: Numbers,
    similarity: Similarity,
) -> dict[str, Int[np.ndarray, "a b c"]]:
    """Lost comparisons of each cluster, once as query and once as owner: they add up to twice the errors."""
    count = int(groups.max()) + 1
    lost = {name: np.zeros((len(premises), len(hypotheses), count), dtype=np.int64) for name in sides}
    documents = []
    for vectors in hypotheses.values():
        candidates = np.concatenate([vectors[side.rows] for side in sides.values()]).astype(np.float32)
        lengths = np.linalg.norm(candidates.astype(np.float64), axis=1).astype(np.float32)
        block = Block(0, torch.from_numpy(candidates), torch.from_numpy(lengths))
        documents.append((FixedPoint.of(vectors[positive]), block))
    ends = np.cumsum([len(side.rows) for side in sides.values()])[:-1]
    for a, vectors in enumerate(premises.values()):
        queries = Queries(np.asarray(vectors[positive], dtype=np.float32), similarity)
        for b, (own_vectors, block) in enumerate(documents):
            levels = exact_pairs(queries.exact, own_vectors, similarity).numpy()
            # Compared with the score of its own hypothesis, exactly: a tie is an error.
            above = block.at_least(queries, levels)
            for (name, side), errors in zip(sides.items(), np.split(above, ends, axis=1), strict=True):
                errors &= side.others
                np.add.at(lost[name][a, b], groups[positive], errors.sum(axis=1))
                np.add.at(lost[name][a, b], groups[side.rows], errors.sum(axis=0))
    return lost
