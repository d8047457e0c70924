"""Measuring query towers on one data set against one store: listed candidates, the whole store ranked, or a language grid."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from adiabat.config import MeasureSection
from adiabat.data.ragged import Ragged
from adiabat.data.records import LanguageGridSet, grid_id
from adiabat.errors import DataError
from adiabat.measure.grid import cluster_ids, grid_scores, measure_grid
from adiabat.measure.metrics import PairCounts, largest_cutoff, ranking_measures
from adiabat.measure.results import DatasetResult
from adiabat.measure.significance import PerQuery, paired_bootstrap, pnd_per_query
from adiabat.measure.systems import System
from adiabat.model.towers import DualEncoder
from adiabat.store.addressing import AddressedSet
from adiabat.store.embeddings import Store
from adiabat.store.search import count_at_least, score_rows, search
from adiabat.watch import Watch

Role = Literal["target", "retain"]
Similarity = Literal["cosine", "distance"]

QUERIES_AT_A_TIME = 512
"""Queries ranked in one pass over the store: bounds the scores in memory."""


@dataclass(frozen=True, slots=True)
class Scored:
    """What one query tower gives on one data set by one similarity.

    Attributes:
        counts: Errors and pairs per query.
        run: Scores of documents per query, for the rank measures.
    """

    counts: PairCounts
    run: Mapping[str, Mapping[str, float]]


def similarities_of(*models: DualEncoder) -> tuple[Similarity, ...]:
    """What is worth ranking by: on unit vectors Euclidean distance ranks as cosine does.

    Args:
        *models: Whose vectors are compared.

    Returns:
        Cosine, and distance where a tower's vectors have other lengths.
    """
    unit = all(tower.settings.normalize for model in models for tower in (model.query, model.document))
    return ("cosine",) if unit else ("cosine", "distance")


def measure_examples(
    after: System,
    before: System | None,
    examples: AddressedSet,
    *,
    role: Role,
    settings: MeasureSection,
    seed: int,
    watch: Watch,
) -> DatasetResult:
    """Measure on queries with known positives, before and after.

    Args:
        after: Under test.
        before: What it is compared with, or None; a row of its store is the same document.
        examples: Queries and rows.
        role: For the report.
        settings: Measures, depth, which negatives.
        seed: Of the bootstrap.
        watch: Told how far it is.

    Returns:
        The result, with paired intervals where there is a baseline.

    Raises:
        DataError: If listed negatives are asked for and there are none, or the store holds nothing to compare positives with.
    """
    store = after.store
    plan = _planned(store, examples, settings)
    examples = plan.examples
    systems = [after] if before is None else [before, after]
    queries = [one.model.encode(examples.queries, side="query", precision="fp32") for one in systems]
    similarities = similarities_of(*(one.model for one in systems))
    measured: list[PerQuery] = []
    pairs = 0
    for similarity in similarities:
        scored = [plan.score(one.store, vectors, similarity, watch) for one, vectors in zip(systems, queries, strict=True)]
        pairs = int(scored[-1].counts.pairs.sum())
        if not pairs:
            raise DataError(
                f"{examples.name}: the store {store.path} must hold documents beside the positives of a query, "
                f"got {store.count} in all; embed more documents"
            )
        measured += _per_query(examples, scored, similarity, settings)
    return DatasetResult(
        name=examples.name,
        role=role,
        kind="pairs" if plan.listed else "ranking",
        queries=len(examples),
        documents=store.count,
        pairs=pairs,
        main="PND" if plan.listed else settings.measures[0],
        changes=paired_bootstrap(measured, seed=seed, resamples=settings.resamples),
        notes=[*examples.notes, *plan.notes, *_unit_length_note(similarities)],
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the positives of a data set are compared with.

    Attributes:
        examples: The queries that are measured.
        left_out: Rows that a query is not compared with, beside its positives; None where only the listed negatives are.
        depth: How far down the store is ranked.
        notes: The same in sentences.
    """

    examples: AddressedSet
    left_out: Ragged | None
    depth: int
    notes: list[str]

    @property
    def listed(self) -> bool:
        return self.left_out is None

    def score(self, store: Store, queries: Float[np.ndarray, "q e"], similarity: Similarity, watch: Watch) -> "Scored":
        if self.left_out is None:
            return _score_listed(store, queries, self.examples, similarity, watch)
        return _score_store(store, queries, self.examples, similarity, watch, left_out=self.left_out, depth=self.depth)


def _planned(store: Store, examples: AddressedSet, settings: MeasureSection) -> _Plan:
    """Choose by the settings and by what the data has."""
    listing, every = int((examples.negatives.lengths > 0).sum()), len(examples)
    if settings.negatives == "listed" and not listing:
        raise DataError(f"{examples.name}: measure.negatives = listed needs negatives, no query lists one; set measure.negatives = store")
    # A few queries with negatives must not decide for a set that has none: all the others would be lost.
    if settings.negatives == "listed" or (settings.negatives == "auto" and listing and 2 * listing >= every):
        left = f"{every - listing:,} of {every:,} queries list no negatives and were left out, {listing:,} are measured"
        notes = [*([left] if listing < every else []), "positives are compared with listed negatives"]
        return _Plan(examples.take(np.flatnonzero(examples.negatives.lengths > 0)), None, 0, notes)
    depth = max(settings.depth, largest_cutoff(settings.measures))
    notes = [f"positives are compared with all other documents of the store; rank measures look at the first {depth}"]
    if settings.negatives == "auto" and listing:
        notes.insert(
            0, f"only {listing:,} of {every:,} queries list negatives, too few to measure by: all {every:,} are measured without them"
        )
    left_out = rows_left_out(store, examples, settings)
    if dropped := len(left_out.values):
        notes.append(
            f"{dropped:,} document{'' if dropped == 1 else 's'} with the query's own id {'was' if dropped == 1 else 'were'} left out"
        )
    return _Plan(examples, left_out, depth, notes)


def rows_left_out(store: Store, examples: AddressedSet, settings: MeasureSection) -> Ragged:
    """Documents that a ranking of the store leaves out: BEIR's rule is to drop the one that has the query's own id.

    Args:
        store: That is ranked.
        examples: The queries.
        settings: `drop_same_id`.

    Returns:
        At most one row per query, never a positive.
    """
    if not settings.drop_same_id:
        return Ragged.of([[]] * len(examples))
    rows = store.rows(examples.query_ids)
    return Ragged.of([row] if row >= 0 and row not in examples.positives[query] else [] for query, row in enumerate(rows.tolist()))


def _unit_length_note(similarities: Sequence[Similarity]) -> list[str]:
    return ["vectors have unit length: Euclidean distance ranks as cosine does"] if len(similarities) == 1 else []


def _score_listed(store: Store, queries: Float[np.ndarray, "q e"], examples: AddressedSet, similarity: Similarity, watch: Watch) -> Scored:
    """Score each query's own positives and negatives."""
    counts, run = PairCounts.zeros(len(examples)), {}
    for query, query_id in enumerate(examples.query_ids):
        near, far = examples.positives[query], examples.negatives[query]
        scores = score_rows(store, queries[query : query + 1], np.concatenate([near, far])[None, :], similarity=similarity)[0]
        counts.compare(query, scores[: len(near)], scores[len(near) :])
        run[query_id] = dict(zip(map(str, (*near, *far)), scores.tolist(), strict=True))
        watch.progress(f"scoring {examples.name}", query + 1, len(examples))
    return Scored(counts, run)


def _score_store(
    store: Store,
    queries: Float[np.ndarray, "q e"],
    examples: AddressedSet,
    similarity: Similarity,
    watch: Watch,
    *,
    left_out: Ragged,
    depth: int,
) -> Scored:
    """Rank the whole store for each query, and count exactly how many documents each positive loses to."""
    counts, run = PairCounts.zeros(len(examples)), {}
    for start in range(0, len(examples), QUERIES_AT_A_TIME):
        picked = np.arange(start, min(start + QUERIES_AT_A_TIME, len(examples)))
        aside = left_out.take(picked)
        hits = search(store, queries[picked], depth, similarity=similarity, excluded=[aside[i] for i in range(len(picked))])
        for query, rows, scores in zip(picked, hits.rows, hits.scores, strict=True):
            run[examples.query_ids[query]] = {str(row): float(score) for row, score in zip(rows, scores, strict=True) if row >= 0}
        ranked = _store_ranks(store, queries[picked], examples.positives.take(picked), aside, similarity)
        counts.add(picked, ranked.errors.sum(axis=1), ranked.pairs)
        # Where a tie crosses the depth, the search had to choose: a positive that should have lost gives way to one of those that won.
        for place, column in np.argwhere(ranked.places >= depth):
            found, row = run[examples.query_ids[picked[place]]], str(ranked.rows[place, column])
            if row in found:
                found[f"beside {row}"] = found.pop(row)
        watch.progress(f"ranking {examples.name}", int(picked[-1]) + 1, len(examples))
    return Scored(counts, run)


@dataclass(frozen=True, slots=True)
class _Ranks:
    """Where the positives of each query stand among all documents, every tie lost.

    Attributes:
        rows: Positives, as a rectangle filled up with row 0.
        errors: Documents that each of them is not strictly closer than; 0 where filled up.
        places: Of each in the whole ranking, from 0; -1 where filled up.
        pairs: (positive, other document) pairs of each query.
    """

    rows: Int[np.ndarray, "q p"]
    errors: Int[np.ndarray, "q p"]
    places: Int[np.ndarray, "q p"]
    pairs: Int[np.ndarray, " q"]


def _store_ranks(store: Store, queries: Float[np.ndarray, "q e"], positives: Ragged, excluded: Ragged, similarity: Similarity) -> _Ranks:
    """Rank the positives of each query against every document that is neither a positive nor left out."""
    near, inside = _padded(positives)
    thresholds = np.where(inside, score_rows(store, queries, near, similarity=similarity), np.inf).astype(np.float32)
    at_least = count_at_least(store, queries, thresholds, similarity=similarity)
    at_least -= _at_least_among(thresholds, np.where(inside, thresholds, -np.inf))
    aside, there = _padded(excluded)
    if there.any():
        scores = score_rows(store, queries, aside, similarity=similarity)
        at_least -= _at_least_among(thresholds, np.where(there, scores, -np.inf))
    errors = np.where(inside, at_least, 0)
    places = np.where(inside, errors + _better_among(thresholds, np.where(inside, thresholds, -np.inf)), -1)
    distinct = np.array([len(np.unique(np.concatenate([positives[i], excluded[i]]))) for i in range(len(positives))])
    return _Ranks(near, errors, places, positives.lengths * (store.count - distinct))


def _padded(lists: Ragged) -> tuple[Int[np.ndarray, "q p"], Bool[np.ndarray, "q p"]]:
    """Lists as a rectangle filled with row 0, and where it is filled in earnest."""
    widest = max(1, int(lists.lengths.max()))
    inside = np.arange(widest) < lists.lengths[:, None]
    rows = np.zeros(inside.shape, dtype=np.int64)
    rows[inside] = lists.values
    return rows, inside


def _at_least_among(thresholds: Float[np.ndarray, "q p"], scores: Float[np.ndarray, "q n"]) -> Int[np.ndarray, "q p"]:
    counts: Int[np.ndarray, "q p"] = (scores[:, None, :] >= thresholds[:, :, None]).sum(axis=2)
    return counts


def _better_among(thresholds: Float[np.ndarray, "q p"], scores: Float[np.ndarray, "q p"]) -> Int[np.ndarray, "q p"]:
    """How many of a query's positives come before each of them; those that tie come in the order of the list."""
    earlier = np.tri(scores.shape[1], k=-1, dtype=bool)
    ahead = (scores[:, None, :] > thresholds[:, :, None]) | ((scores[:, None, :] == thresholds[:, :, None]) & earlier)
    counts: Int[np.ndarray, "q p"] = ahead.sum(axis=2)
    return counts


def _per_query(examples: AddressedSet, scored: Sequence[Scored], similarity: Similarity, settings: MeasureSection) -> list[PerQuery]:
    """PND and the rank measures, per query, after and (where there are two) before."""
    after = scored[-1]
    before = scored[0] if len(scored) == 2 else None
    qrels = {
        query_id: dict(zip(map(str, examples.positives[query]), examples.grades[query].tolist(), strict=True))
        for query, query_id in enumerate(examples.query_ids)
    }
    values = [ranking_measures(one.run, qrels, settings.measures) for one in scored]
    ranked = [
        PerQuery(name, similarity, False, after=values[-1][name], before=values[0][name] if before else None) for name in settings.measures
    ]
    return [*pnd_per_query(after.counts, before.counts if before else None, similarity=similarity), *ranked]


def measure_languages(
    after: System,
    before: System | None,
    grid: LanguageGridSet,
    *,
    role: Role,
    settings: MeasureSection,
    seed: int,
    watch: Watch,
) -> DatasetResult:
    """Measure a language grid (mission A9): premises through the query tower, hypotheses from the store.

    Args:
        after: Under test; its store holds the hypotheses, by `grid_id`.
        before: What it is compared with, or None; a row of its store is the same hypothesis.
        grid: The sentence pairs.
        role: For the report.
        settings: Number of resamples.
        seed: Of the bootstrap.
        watch: Told how far it is.

    Returns:
        The result; its main change is the mean PND over all cells and both comparisons.

    Raises:
        DataError: If hypotheses are not in the store; they are counted, and the first ten of a language named.
    """
    rows = {language: _hypothesis_rows(after.store, grid, language) for language in grid.languages}
    systems = [after] if before is None else [before, after]
    similarities = similarities_of(*(one.model for one in systems))
    scores: list[dict[str, Float[np.ndarray, "a b n"]]] = []
    for one in systems:
        hypotheses = {language: one.store.gather(rows[language]) for language in grid.languages}
        every = grid_scores(_premises(one.model, grid, watch), hypotheses)
        scores.append({similarity: every[similarity] for similarity in similarities})
    measured = measure_grid(
        scores[-1],
        grid.labels,
        before=scores[0] if before else None,
        clusters=cluster_ids([premise[grid.languages[0]] for premise in grid.premises]),
        seed=seed,
        resamples=settings.resamples,
    )
    drawn = "entailment pairs are compared with neutral and with contradiction pairs; the bootstrap draws premises"
    return DatasetResult(
        name=grid.name,
        role=role,
        kind="grid",
        queries=len(grid) * len(grid.languages),
        documents=after.store.count,
        pairs=measured.pairs,
        main="PND",
        changes=measured.changes,
        languages=list(grid.languages),
        grid=measured.grid,
        notes=[drawn, *measured.notes],
    )


def _hypothesis_rows(store: Store, grid: LanguageGridSet, language: str) -> Int[np.ndarray, " n"]:
    ids = [grid_id(pair, language) for pair in range(len(grid))]
    rows = store.rows(ids)
    if (rows < 0).any():
        absent = [ids[index] for index in np.flatnonzero(rows < 0)]
        raise DataError(
            f"{grid.name}: every hypothesis must be in the store {store.path}, got {len(absent)} in {language} that are not: "
            f"{', '.join(absent[:10])}{', ...' if len(absent) > 10 else ''}; embed the grid file first"
        )
    return rows


def _premises(model: DualEncoder, grid: LanguageGridSet, watch: Watch) -> dict[str, Float[np.ndarray, "n e"]]:
    """Query vectors of every premise in every language; a premise that comes several times is encoded once."""
    vectors = {}
    for number, language in enumerate(grid.languages):
        texts = [premise[language] for premise in grid.premises]
        distinct = list(dict.fromkeys(texts))
        encoded = model.encode(distinct, side="query", precision="fp32")
        place = {text: row for row, text in enumerate(distinct)}
        vectors[language] = encoded[[place[text] for text in texts]]
        watch.progress(f"encoding {grid.name}", number + 1, len(grid.languages))
    return vectors
