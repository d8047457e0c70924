"""The language grid of sentence pairs as retrieval: a premise should find what it entails among the hypotheses of other premises.

`adiabat.evaluation.language_grid_measures` compares pairs by their own premises, ``s(p, h)`` with ``s(p', h')``: two queries. Here one
query is asked, as in search: ``s(p, h)`` with ``s(p, h')``, h' being every neutral (contradicted) hypothesis of another premise. In each
cell the premise is in the query language and both hypotheses are in the document language.

Scores are those that search goes by (`adiabat.store.scoring`): exact, and free of the order of computing; ties are errors. Chance is taken
over premises, which take part as queries and as owners of candidates: a cluster's pseudo-value has both parts, as in `measure.grid`.

Letters in shapes: a query languages, b document languages, p entailment pairs, m the pairs that they are compared with, c clusters, e
embedding width; an underscore before a letter: checked in the function.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int

from adiabat.data.records import NEGATIVES, POSITIVE
from adiabat.evaluation.language_grid_measures import Vectors, compact_clusters, pseudo_values, rows_by_label
from adiabat.models.embedding_head import Similarity
from adiabat.stats.samples import SHARE, GridSample, Sample
from adiabat.store.scoring import Block, FixedPoint, Queries, exact_pairs

MEASURE = "PND retrieval"


@dataclass(frozen=True, slots=True)
class _Side:
    """Candidates of one kind.

    Attributes:
        rows: Sentence pairs whose hypotheses they are.
        others: True where a candidate belongs to another premise than the entailment pair.
        shares: Share of each cluster in all comparisons, as query and as owner; the shares add up to 2.
    """

    rows: Int[np.ndarray, " m"]
    others: Bool[np.ndarray, "p m"]
    shares: Float[np.ndarray, " c"]

    @property
    def total(self) -> int:
        return int(self.others.sum())


def measure_grid_retrieval(
    premises: Vectors,
    hypotheses: Vectors,
    labels: Sequence[str],
    *,
    similarities: Sequence[Similarity],
    clusters: Int[np.ndarray, " _n"] | None = None,
) -> tuple[list[Sample], list[GridSample]]:
    """Measure both comparisons in every cell, cluster by cluster.

    ``PND = errors / comparisons`` over entailment pairs (p, h) and the hypotheses h' of other premises that are neutral (contradicted), an
    error being ``s(p, h') >= s(p, h)``.

    Args:
        premises: Query vectors per language, row i for sentence pair i, finite.
        hypotheses: Document vectors per language, likewise.
        labels: ``entailment``, ``neutral`` or ``contradiction`` for each sentence pair.
        similarities: To rank by.
        clusters: Number of each sentence pair's premise; None takes each by itself.

    Returns:
        Per similarity ``PND retrieval``, averaged over both comparisons and all cells; and the cells, one per similarity and comparison.
        Units are the clusters by ascending number, and their values pseudo-values. Nothing where no premise has candidates of others.

    Raises:
        DataError: If a label is missing from the data or unknown.
    """
    rows_of, groups = rows_by_label(labels), compact_clusters(clusters, len(labels))
    positive, count = rows_of[POSITIVE], int(groups.max()) + 1
    sides = {name: _side(groups[positive], groups[rows_of[name]], rows_of[name], count) for name in NEGATIVES}
    if not all(side.total for side in sides.values()):
        return [], []
    samples, cells = [], []
    for similarity in similarities:
        lost = _lost(premises, hypotheses, positive, sides, groups, similarity)
        values = {name: pseudo_values(lost[name].sum(axis=-1) // 2, side.total, lost[name], side.shares) for name, side in sides.items()}
        samples.append(
            Sample(
                MEASURE,
                np.mean(list(values.values()), axis=(0, 1, 2)),
                similarity,
                lower_is_better=True,
                pseudo_values=True,
                bounds=SHARE,
            )
        )
        cells += [
            GridSample(
                comparison=f"retrieval {POSITIVE}-{name}",
                similarity=similarity,
                rows=tuple(premises),
                columns=tuple(hypotheses),
                values=values[name].astype(np.float32),
                lower_is_better=True,
                errors=lost[name].sum(axis=-1) // 2,
                total=side.total,
            )
            for name, side in sides.items()
        ]
    return samples, cells


def _side(asking: Int[np.ndarray, " p"], owners: Int[np.ndarray, " m"], rows: Int[np.ndarray, " m"], count: int) -> _Side:
    others = asking[:, None] != owners
    compared = np.bincount(asking, weights=others.sum(axis=1), minlength=count)
    compared += np.bincount(owners, weights=others.sum(axis=0), minlength=count)
    return _Side(rows, others, compared / max(1, int(others.sum())))


def _lost(
    premises: Vectors,
    hypotheses: Vectors,
    positive: Int[np.ndarray, " p"],
    sides: Mapping[str, _Side],
    groups: Int[np.ndarray, " n"],
    similarity: Similarity,
) -> dict[str, Int[np.ndarray, "a b c"]]:
    """Comparisons lost in which each cluster takes part: once as query and once as owner, so that they add up to twice the errors."""
    count = int(groups.max()) + 1
    lost = {name: np.zeros((len(premises), len(hypotheses), count), dtype=np.int64) for name in sides}
    documents = [(FixedPoint.of(vectors[positive]), _block(vectors, sides)) for vectors in hypotheses.values()]
    ends = np.cumsum([len(side.rows) for side in sides.values()])[:-1]
    for a, vectors in enumerate(premises.values()):
        queries = Queries(np.asarray(vectors[positive], dtype=np.float32), similarity)
        for b, (own_vectors, block) in enumerate(documents):
            above = _at_least(queries, block, exact_pairs(queries.exact, own_vectors, similarity))
            for (name, side), errors in zip(sides.items(), np.split(above, ends, axis=1), strict=True):
                errors &= side.others
                lost[name][a, b] += np.bincount(groups[positive], weights=errors.sum(axis=1), minlength=count).astype(np.int64)
                lost[name][a, b] += np.bincount(groups[side.rows], weights=errors.sum(axis=0), minlength=count).astype(np.int64)
    return lost


def _block(vectors: Float[np.ndarray, "n e"], sides: Mapping[str, _Side]) -> Block:
    candidates = np.concatenate([vectors[side.rows] for side in sides.values()]).astype(np.float32)
    lengths = np.linalg.norm(candidates.astype(np.float64), axis=1).astype(np.float32)
    return Block(0, torch.from_numpy(candidates), torch.from_numpy(lengths))


def _at_least(queries: Queries, block: Block, levels: Float32[np.ndarray, " q"]) -> Bool[np.ndarray, "q m"]:
    """Which candidates score at least as high as a query's level: by quick scores, and by exact ones where these leave it open."""
    scores, error = block.approximate(queries)
    thresholds = levels.astype(np.float64)
    # Quick scores by distance are minus its square.
    thresholds = -np.square(thresholds) if queries.similarity == "distance" else thresholds
    # Bounds in float32, as the scores are, each on its own side of the wider number.
    high = np.nextafter((thresholds + error).astype(np.float32), np.float32(np.inf))[:, None]
    low = np.nextafter((thresholds - error).astype(np.float32), np.float32(-np.inf))[:, None]
    above = scores >= high
    query, column = np.nonzero((scores >= low) & ~above)
    above[query, column] = block.exact(queries, query, column) >= levels[query]
    return np.asarray(above)
