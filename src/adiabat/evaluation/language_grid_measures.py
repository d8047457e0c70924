"""The language grid of sentence pairs: entailment should be closer than neutral and than contradiction, in every pair of languages.

A sentence pair is scored by its own premise in the query language and its own hypothesis in the document language. Every entailment
pair is compared with every neutral (contradiction) pair, by ranking: exact, ties are errors.

The comparisons of one grid are far from independent: a sentence pair takes part in thousands of them, in every cell. What carries
chance is the choice of premises, each with its sentence pairs: a *cluster*, the unit here. The discrepancy U of a cell is a two-sample
U-statistic; what a cluster contributes to it to first order (Hoeffding 1948) follows from each pair's *placement*, the number of opposite
pairs it loses against (DeLong, DeLong and Clarke-Pearson 1988). So each of C clusters has a *pseudo-value*, ``U + C influence``: their mean
is U, and their weighted mean is U with clusters drawn as often as the weights say, to first order. With them a grid is a sample like any
other.

Letters in shapes: a query languages, b document languages, n sentence pairs, p entailment pairs, m the pairs they are compared with,
c clusters, e embedding width; an underscore before a letter: checked in the function, with a message of its own.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from adiabat.core.errors import DataError, several
from adiabat.data.records import NEGATIVES, POSITIVE
from adiabat.models.embedding_head import Similarity
from adiabat.stats.ranking_measures import discordant_counts
from adiabat.stats.samples import SHARE, GridSample, Sample
from adiabat.store.scoring import row_scores

Vectors = Mapping[str, Float[np.ndarray, "_n _e"]]
Scores = Mapping[str, Float[np.ndarray, "_a _b _n"]]

# Sentence pairs scored at a time: 15 languages of 384 numbers, both sides, in 64 bits are 6 MB.
_BLOCK_PAIRS = 64


@dataclass(frozen=True, slots=True)
class Placements:
    """Where each pair of one comparison stands among its opponents, in every cell.

    Attributes:
        positive: For each entailment pair, how many of the others score at least as high.
        negative: For each of the others, how many entailment pairs score at most as high.
    """

    positive: Int[np.ndarray, "a b p"]
    negative: Int[np.ndarray, "a b m"]

    @property
    def errors(self) -> Int[np.ndarray, "a b"]:
        """Comparisons lost by the entailment pair, ties included."""
        return np.asarray(self.positive.sum(axis=-1))

    @property
    def total(self) -> int:
        """Comparisons in each cell."""
        return int(self.positive.shape[-1] * self.negative.shape[-1])


def grid_scores(
    premises: Vectors, hypotheses: Vectors, *, similarities: Sequence[Similarity] = ("cosine", "distance")
) -> dict[str, Float[np.ndarray, "a b n"]]:
    """Score every sentence pair in every pair of languages.

    All sums run in 64 bits and in the same order for every pair and cell: equal vectors give exactly equal scores, wherever they
    stand; a vector has with itself a cosine of exactly 1 and a distance of exactly 0. A zero vector, as of a text without any known
    word, has a cosine of 0 with everything.

    Args:
        premises: Query vectors per language, row i for sentence pair i; memory maps are read in blocks.
        hypotheses: Document vectors per language, likewise.
        similarities: To score by; ``distance`` is minus the Euclidean distance.

    Returns:
        Per similarity one score for each query language, document language and sentence pair, higher is closer; languages as given.

    Raises:
        ValueError: If a side has no language, or the arrays differ in shape.
        DataError: If a vector is not finite; language and sentence pair of the first ten are listed.

    Reference:
        Vasilyev et al. 2024.
    """
    shapes = {vectors.shape for side in (premises, hypotheses) for vectors in side.values()}
    if not premises or not hypotheses or len(shapes) > 1:
        raise ValueError(f"premises and hypotheses must each have languages, all of one shape, got {sorted(shapes)}")
    pairs = next(iter(shapes))[0]
    scores: dict[str, Float[np.ndarray, "a b n"]] = {name: np.empty((len(premises), len(hypotheses), pairs)) for name in similarities}
    faults: list[str] = []
    for start in range(0, pairs, _BLOCK_PAIRS):
        rows = slice(start, min(start + _BLOCK_PAIRS, pairs))
        query = np.stack([vectors[rows] for vectors in premises.values()], dtype=np.float64)
        document = np.stack([vectors[rows] for vectors in hypotheses.values()], dtype=np.float64)
        query_square, document_square = np.vecdot(query, query), np.vecdot(document, document)
        faults += _vector_faults("premise", list(premises), query_square, start)
        faults += _vector_faults("hypothesis", list(hypotheses), document_square, start)
        if faults:
            continue
        for a in range(len(premises)):
            squares = document_square * query_square[a]
            for similarity in similarities:
                scores[similarity][a, :, rows] = row_scores(query[a], document, similarity, squares=squares)
    if faults:
        raise DataError(several(faults))
    return scores


def placements(positive: Float[np.ndarray, "a b p"], negative: Float[np.ndarray, "a b m"]) -> Placements:
    """Rank entailment pairs among the others in every cell.

    Args:
        positive: Scores of the entailment pairs, higher is closer.
        negative: Scores of the neutral or contradiction pairs.

    Returns:
        Both sides' placements, exact; ties are errors.

    Raises:
        ValueError: If a score is NaN.
    """
    above = np.empty(positive.shape, dtype=np.int64)
    below = np.empty(negative.shape, dtype=np.int64)
    for cell in np.ndindex(*positive.shape[:2]):
        above[cell] = discordant_counts(positive[cell], negative[cell])
        # Seen from the other side: how many positives are <= this negative.
        below[cell] = discordant_counts(-negative[cell], -positive[cell])
    return Placements(above, below)


def measure_grid(
    scores: Scores,
    labels: Sequence[str],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    clusters: Int[np.ndarray, " _n"] | None = None,
) -> tuple[list[Sample], list[GridSample]]:
    """Measure both comparisons in every cell, cluster by cluster.

    Args:
        scores: From `grid_scores`, of one similarity or several.
        labels: ``entailment``, ``neutral`` or ``contradiction`` for each sentence pair.
        rows: Languages of the premises.
        columns: Languages of the hypotheses.
        clusters: Number of each sentence pair's cluster; None takes each by itself. XNLI uses every premise three times: see `cluster_ids`.

    Returns:
        Per similarity ``PND``, averaged over both comparisons and all cells; and the cells, one per similarity and comparison. The units
        of both are the clusters by ascending number, and their values pseudo-values, which may lie outside of 0 to 1.

    Raises:
        DataError: If a label is missing from the data or unknown.
        ValueError: If scores, labels, languages and clusters do not fit together, or a score is NaN.

    Reference:
        Vasilyev et al. 2024.
    """
    rows_of = rows_by_label(labels)
    groups = compact_clusters(clusters, len(labels))
    _check_fit(scores, (len(rows), len(columns), len(labels)))
    samples, cells = [], []
    for similarity, values in scores.items():
        pseudo_values_of = []
        for negative in NEGATIVES:
            sides = rows_of[POSITIVE], rows_of[negative]
            placed = placements(values[:, :, sides[0]], values[:, :, sides[1]])
            pseudo_values_of.append(_pseudo_values(placed, groups[sides[0]], groups[sides[1]], clusters=int(groups.max()) + 1))
            cells.append(
                GridSample(
                    comparison=f"{POSITIVE}-{negative}",
                    similarity=similarity,
                    rows=tuple(rows),
                    columns=tuple(columns),
                    values=pseudo_values_of[-1].astype(np.float32),
                    lower_is_better=True,
                    errors=placed.errors,
                    total=placed.total,
                )
            )
        mean = np.mean(pseudo_values_of, axis=(0, 1, 2))
        samples.append(Sample("PND", mean, similarity, lower_is_better=True, pseudo_values=True, bounds=SHARE))
    return samples, cells


def cluster_ids(premises: Sequence[Hashable]) -> Int[np.ndarray, " n"]:
    """Number the sentence pairs so that pairs of equal premises share a number.

    Args:
        premises: One per sentence pair, such as its texts in all languages: two premises may well read alike in one of them.

    Returns:
        Numbers from 0 in order of first appearance, for `measure_grid`.
    """
    number_of: dict[Hashable, int] = {}
    return np.array([number_of.setdefault(premise, len(number_of)) for premise in premises], dtype=np.int64)


def _vector_faults(side: str, languages: list[str], square: Float[np.ndarray, "l n"], start: int) -> list[str]:
    """A phrase for each vector whose squared length is not finite."""
    return [
        f"{side} vector of sentence pair {start + int(row)} in {languages[language]} must be finite, "
        f"got squared length {square[language, row]:g}; encode it again"
        for language, row in np.argwhere(~np.isfinite(square))
    ]


def rows_by_label(labels: Sequence[str]) -> dict[str, Int[np.ndarray, " r"]]:
    """Positions of each of the three labels.

    Args:
        labels: Of the sentence pairs.

    Returns:
        Label to positions, at least one each.

    Raises:
        DataError: If a label is missing from the data or unknown.
    """
    known = [POSITIVE, *NEGATIVES]
    faults = [
        f"label of sentence pair {i} must be {known[0]}, {known[1]} or {known[2]}, got {label!r}"
        for i, label in enumerate(labels)
        if label not in known
    ]
    rows = {name: np.array([i for i, label in enumerate(labels) if label == name], dtype=np.int64) for name in known}
    faults += [f"labels must hold at least one {name}, got none" for name in known if rows[name].size == 0]
    if faults:
        raise DataError(f"{several(faults)}; name a grid of sentence pairs that has all three labels and no other")
    return rows


def compact_clusters(clusters: Int[np.ndarray, " _n"] | None, pairs: int) -> Int[np.ndarray, " n"]:
    """Cluster numbers 0, 1, ... without gaps.

    Args:
        clusters: Any numbers; None takes each sentence pair by itself.
        pairs: How many sentence pairs there are.

    Returns:
        One number for each.

    Raises:
        ValueError: If there is not one for each.
    """
    clusters = np.arange(pairs) if clusters is None else clusters
    if clusters.size != pairs:
        raise ValueError(f"clusters must have one number for each of {pairs} sentence pairs, got {clusters.size}")
    return np.asarray(np.unique(clusters, return_inverse=True)[1])


def _check_fit(scores: Scores, shape: tuple[int, int, int]) -> None:
    """Scores of the languages and sentence pairs that there are."""
    shapes = sorted({values.shape for values in scores.values()})
    if shapes != [shape]:
        languages = f"{shape[0]} x {shape[1]} languages"
        raise ValueError(f"scores must be of {languages} and, as labels, of {shape[2]} sentence pairs, got {shapes}")


def _pseudo_values(
    placed: Placements, positive: Int[np.ndarray, " p"], negative: Int[np.ndarray, " m"], *, clusters: int
) -> Float[np.ndarray, "a b c"]:
    """``U + C influence`` of every cluster on the discrepancy U of every cell.

    With ``influence = sum_i (V_i - U) / p + sum_j (V_j - U) / m`` over its entailment pairs i and its others j, V the placement as a share
    of opponents, this is ``U (1 - w) + C (sum_i above_i + sum_j below_j) / (p m)``, w being C times the cluster's shares of both sides:
    one sum of whole numbers.
    """
    shares = np.bincount(positive, minlength=clusters) / positive.size + np.bincount(negative, minlength=clusters) / negative.size
    groups = np.concatenate([positive, negative])
    lost = _cluster_sums(np.concatenate([placed.positive, placed.negative], axis=-1), groups, clusters)
    return pseudo_values(placed.errors, placed.total, lost, shares)


def pseudo_values(
    errors: Int[np.ndarray, "a b"], total: int, lost: Int[np.ndarray, "a b c"], shares: Float[np.ndarray, " c"]
) -> Float[np.ndarray, "a b c"]:
    """``U (1 - C share) + C lost / total`` of every cluster on the discrepancy ``U = errors / total`` of every cell.

    Args:
        errors: Comparisons lost.
        total: Comparisons in each cell.
        lost: Comparisons lost in which a cluster has part, once for each of the two sides.
        shares: Share of comparisons in which a cluster has part, likewise; they add up to 2.

    Returns:
        Values whose mean over clusters is U.
    """
    clusters = lost.shape[-1]
    level = (errors / total)[:, :, None]
    return np.asarray(level * (1 - clusters * shares) + clusters * lost / total)


def _cluster_sums(values: Int[np.ndarray, "a b r"], groups: Int[np.ndarray, " r"], clusters: int) -> Int[np.ndarray, "a b c"]:
    """Sum the last axis by cluster."""
    order = np.argsort(groups, kind="stable")
    present, first = np.unique(groups[order], return_index=True)
    sums = np.zeros((*values.shape[:2], clusters), dtype=np.int64)
    sums[:, :, present] = np.add.reduceat(values[:, :, order], first, axis=-1)
    return sums
