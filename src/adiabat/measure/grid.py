"""The language grid: entailment pairs should be closer than neutral and than contradiction pairs, in every pair of languages.

A sentence pair is scored by its own premise in the query language and its own hypothesis in the document language. Every entailment
pair is compared with every neutral (contradiction) pair, by ranking: exact, ties are errors (mission A9).

The comparisons of one grid are far from independent: a sentence pair takes part in thousands of them, in every cell. What carries
chance is the choice of sentence pairs, so those are resampled, the same ones in all cells (`adiabat.measure.grid_draws`). The discrepancy
of a cell is a two-sample U-statistic; its resampled value is taken to first order in the weights (Hoeffding 1948), from each pair's
*placement*, the number of opposite pairs it loses against (DeLong, DeLong and Clarke-Pearson 1988).

Letters in shapes: a query languages, b document languages, n sentence pairs, p entailment pairs, m the pairs they are compared with,
c clusters, e embedding width; an underscore before a letter: checked in the function, with a message of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from adiabat.errors import DataError, several
from adiabat.measure.grid_draws import (
    DISCOVERY_RATE,
    ByCluster,
    Compared,
    Draws,
    Side,
    cell_p_values,
    draw_grid,
    resamples_for,
    resampling_notes,
)
from adiabat.measure.metrics import discordant_counts, improvement
from adiabat.measure.results import Change, GridComparison
from adiabat.measure.significance import RESAMPLES, Z_CRITICAL, PairedDraws, benjamini_hochberg, change_from_draws, two_proportion_z

SIMILARITIES = ("cosine", "distance")
POSITIVE = "entailment"
NEGATIVES = ("neutral", "contradiction")

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


@dataclass(frozen=True, slots=True)
class GridMeasurement:
    """A measured grid.

    Attributes:
        changes: ``PND`` averaged over both comparisons and all cells, one per similarity; the z-test has no place in an average
            over dependent cells, so `Change.z` is None.
        grid: One per similarity and comparison.
        pairs: (entailment, other) comparisons made by each similarity, all cells and both comparisons.
        notes: Sentences on the resampling, where it differs from what was asked for.
    """

    changes: list[Change]
    grid: list[GridComparison]
    pairs: int
    notes: list[str]


def grid_scores(premises: Vectors, hypotheses: Vectors) -> dict[str, Float[np.ndarray, "a b n"]]:
    """Score every sentence pair in every pair of languages, by cosine and by minus the Euclidean distance.

    All sums run in 64 bits and in the same order for every pair and cell: equal vectors give exactly equal scores, wherever they
    stand; a vector has with itself a cosine of exactly 1 and a distance of exactly 0.

    Args:
        premises: Query vectors per language, row i for sentence pair i, of any length above 0; memory maps are read in blocks.
        hypotheses: Document vectors per language, likewise.

    Returns:
        For ``cosine`` and ``distance``: one score per query language, document language and sentence pair, higher is closer;
        languages in the order given.

    Raises:
        ValueError: If a side has no language, or the arrays differ in shape.
        DataError: If a vector is zero, or not finite; language and sentence pair of each are listed.

    Reference:
        Mission A9.
    """
    shapes = {vectors.shape for side in (premises, hypotheses) for vectors in side.values()}
    if not premises or not hypotheses or len(shapes) > 1:
        raise ValueError(f"premises and hypotheses must each have languages, all of one shape, got {sorted(shapes)}")
    pairs = next(iter(shapes))[0]
    cosine, distance = np.empty((2, len(premises), len(hypotheses), pairs))
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
            # One square root of the product, not a product of two: for equal vectors it gives back the square exactly.
            cosine[a, :, rows] = np.vecdot(document, query[a]) / np.sqrt(document_square * query_square[a])
            gap = document - query[a]
            distance[a, :, rows] = -np.sqrt(np.vecdot(gap, gap))
    if faults:
        raise DataError(several(faults))
    return {"cosine": cosine, "distance": distance}


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
    after: Scores,
    labels: Sequence[str],
    *,
    before: Scores | None = None,
    clusters: Int[np.ndarray, " _n"] | None = None,
    seed: int,
    resamples: int = RESAMPLES,
) -> GridMeasurement:
    """Measure both comparisons in every cell, and against a baseline where there is one.

    A cell is better or worse where its paired bootstrap p-value survives Benjamini-Hochberg at 5 % over the cells of its comparison.

    Args:
        after: Scores of the model under test, from `grid_scores`.
        labels: ``entailment``, ``neutral`` or ``contradiction`` for each sentence pair.
        before: The baseline's scores, or None.
        clusters: Sentence pairs with the same number are drawn together; None draws each by itself. XNLI uses every premise three
            times: see `cluster_ids`.
        seed: Of the draws.
        resamples: How many at the least, > 0; against a baseline, as many as so many cells need: see `resamples_for`.

    Returns:
        The grand averages and the grids, ``cosine`` and ``distance`` as in `after`.

    Raises:
        DataError: If a label is missing from the data or unknown.
        ValueError: If scores, labels, clusters and baseline do not fit together, a score is NaN, or `resamples` is not above 0.

    Reference:
        Mission A8, A9.
    """
    rows = _rows_by_label(labels)
    groups = _compact_clusters(clusters, len(labels))
    _check_fit(after, before, len(labels))
    compared = [
        _compare(similarity, negative, scores, None if before is None else before[similarity], rows, groups)
        for similarity, scores in after.items()
        for negative in NEGATIVES
    ]
    cells = 0 if before is None else compared[0].after.errors.size
    drawn = draw_grid(compared, seed=seed, resamples=resamples_for(cells, wanted=resamples))
    return GridMeasurement(
        changes=[_grand_average(compared, drawn, column) for column in range(len(after))],
        grid=[_grid_comparison(one, drawn, row) for row, one in enumerate(compared)],
        pairs=sum(one.total * one.after.errors.size for one in compared) // len(after),
        notes=resampling_notes(cells, wanted=resamples),
    )


def cluster_ids(texts: Sequence[str]) -> Int[np.ndarray, " n"]:
    """Number the sentence pairs so that pairs of equal text share a number.

    Args:
        texts: One per sentence pair, such as its premise in one language.

    Returns:
        Numbers from 0 in order of first appearance, for `measure_grid`.
    """
    number_of: dict[str, int] = {}
    return np.array([number_of.setdefault(text, len(number_of)) for text in texts], dtype=np.int64)


def _vector_faults(side: str, languages: list[str], square: Float[np.ndarray, "l n"], start: int) -> list[str]:
    """A phrase for each vector whose squared length is 0 or not finite."""
    return [
        f"{side} vector of sentence pair {start + int(row)} in {languages[language]} must be finite and not zero, "
        f"got squared length {square[language, row]:g}; encode it again"
        for language, row in np.argwhere(~(np.isfinite(square) & (square > 0)))
    ]


def _rows_by_label(labels: Sequence[str]) -> dict[str, Int[np.ndarray, " r"]]:
    """Positions of each of the three labels."""
    known = [POSITIVE, *NEGATIVES]
    faults = [f"label of sentence pair {i} must be one of {known}, got {label!r}" for i, label in enumerate(labels) if label not in known]
    rows = {name: np.array([i for i, label in enumerate(labels) if label == name], dtype=np.int64) for name in known}
    faults += [f"labels must hold at least one {name}, got none" for name in known if rows[name].size == 0]
    if faults:
        raise DataError(several(faults))
    return rows


def _compact_clusters(clusters: Int[np.ndarray, " _n"] | None, pairs: int) -> Int[np.ndarray, " n"]:
    """Cluster numbers 0, 1, ... without gaps."""
    clusters = np.arange(pairs) if clusters is None else clusters
    if clusters.size != pairs:
        raise ValueError(f"clusters must have one number for each of {pairs} sentence pairs, got {clusters.size}")
    return np.asarray(np.unique(clusters, return_inverse=True)[1])


def _check_fit(after: Scores, before: Scores | None, pairs: int) -> None:
    """Same similarities, languages and sentence pairs on both sides."""
    if not after or (before is not None and list(before) != list(after)):
        raise ValueError(f"before must have the similarities of after, at least one, got {list(before or {})} and {list(after)}")
    shapes = {scores.shape for side in (after, before or {}) for scores in side.values()}
    if len(shapes) > 1 or next(iter(shapes))[-1] != pairs:
        raise ValueError(f"after and before must have one shape, with {pairs} sentence pairs last as in labels, got {sorted(shapes)}")


def _compare(
    similarity: str,
    negative: str,
    after: Float[np.ndarray, "a b n"],
    before: Float[np.ndarray, "a b n"] | None,
    rows: Mapping[str, Int[np.ndarray, " r"]],
    groups: Int[np.ndarray, " n"],
) -> Compared:
    """Placements of one comparison, reduced to errors and influences."""
    sides = groups[rows[POSITIVE]], groups[rows[negative]]
    clusters = int(groups.max()) + 1
    now = placements(after[:, :, rows[POSITIVE]], after[:, :, rows[negative]])
    result = Compared(f"{POSITIVE}-{negative}", similarity, now.total, Side(now.errors, _influence(now, sides, clusters)))
    if before is None:
        return result
    was = placements(before[:, :, rows[POSITIVE]], before[:, :, rows[negative]])
    moved = _cluster_sums((now.positive != was.positive).astype(np.float64), sides[0], clusters)
    moved += _cluster_sums((now.negative != was.negative).astype(np.float64), sides[1], clusters)
    return replace(result, before=Side(was.errors, _influence(was, sides, clusters)), moved=moved)


def _influence(placed: Placements, sides: tuple[Int[np.ndarray, " p"], Int[np.ndarray, " m"]], clusters: int) -> ByCluster:
    """First-order effect on a cell's discrepancy U of drawing a cluster once more.

    ``sum_i (V_i - U) / p + sum_j (V_j - U) / m`` over its entailment pairs i and its others j, V the placement as a share of opponents.
    """
    share = (placed.errors / placed.total)[:, :, None]
    p, m = placed.positive.shape[-1], placed.negative.shape[-1]
    sums = _cluster_sums((placed.positive / m - share) / p, sides[0], clusters)
    return np.asarray(sums + _cluster_sums((placed.negative / p - share) / m, sides[1], clusters))


def _cluster_sums(values: Float[np.ndarray, "a b r"], groups: Int[np.ndarray, " r"], clusters: int) -> ByCluster:
    """Sum the last axis by cluster; one row per cluster, one column per cell."""
    order = np.argsort(groups, kind="stable")
    present, first = np.unique(groups[order], return_index=True)
    flat = values.reshape(-1, groups.size)[:, order]
    sums = np.zeros((clusters, flat.shape[0]))
    sums[present] = np.add.reduceat(flat, first, axis=1).T
    return sums


def _grand_average(every: Sequence[Compared], drawn: Draws, column: int) -> Change:
    """The discrepancy of one similarity averaged over comparisons and cells."""
    compared = every[column * len(NEGATIVES) : (column + 1) * len(NEGATIVES)]
    after = float(np.mean([one.after.errors / one.total for one in compared]))
    # To first order a draw may step over the ends of the scale, hence the clipping.
    draws = np.clip(after + drawn.after[:, column], 0, 1)
    paired = None
    if all(one.before is not None for one in compared):
        before = float(np.mean([one.before.errors / one.total for one in compared if one.before is not None]))
        moved = np.concatenate([one.moved for one in compared if one.moved is not None], axis=1)
        paired = PairedDraws(
            before=before,
            before_draws=np.clip(before + drawn.before[:, column], 0, 1),
            difference_draws=after - before + drawn.difference[:, column],
            changed=int(moved.any(axis=1).sum()),
        )
    return change_from_draws(after, draws, paired, measure="PND", similarity=compared[0].similarity, lower_is_better=True)


def _grid_comparison(one: Compared, drawn: Draws, index: int) -> GridComparison:
    """Tables of one comparison; with a baseline also verdicts and both counts of cells."""
    after = one.after.errors / one.total
    result = GridComparison(one.comparison, one.similarity, after=after.tolist())
    if one.before is None or one.moved is None:
        return result
    before = one.before.errors / one.total
    p_values = cell_p_values(one, one.moved, drawn, index)
    rows = zip(before.tolist(), after.tolist(), strict=True)
    significant = benjamini_hochberg(p_values, rate=DISCOVERY_RATE).reshape(after.shape)
    verdicts = np.where(significant, np.where(after < before, "better", "worse"), "no evidence")
    counted = zip(one.before.errors.ravel().tolist(), one.after.errors.ravel().tolist(), strict=True)
    z = np.array([two_proportion_z(errors_before, errors_after, one.total) for errors_before, errors_after in counted])
    return replace(
        result,
        before=before.tolist(),
        improvement=[[improvement(b, a, lower_is_better=True) for b, a in zip(*row, strict=True)] for row in rows],
        verdicts=verdicts.tolist(),
        improved=int((verdicts == "better").sum()),
        worsened=int((verdicts == "worse").sum()),
        improved_z=int((z < -Z_CRITICAL).sum()),
        worsened_z=int((z > Z_CRITICAL).sum()),
    )
