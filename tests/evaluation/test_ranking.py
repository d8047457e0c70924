"""Where positives stand: counted, against rankings that are written out and sorted."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from adiabat.core.progress import SILENT
from adiabat.core.ragged import Ragged
from adiabat.evaluation import ranking
from adiabat.evaluation.ranking import (
    Counts,
    FusedRanker,
    PositiveRanks,
    Ranker,
    rank_in_lists,
    rank_in_store,
    tied_positives_last,
)
from adiabat.store.fusion import FusedCandidates
from adiabat.store.search import Hits
from tests.evaluation.given_ranker import GivenRanker, asked

QUERIES, DOCUMENTS = 40, 12


def drawn(seed: int) -> tuple[np.ndarray, list[list[int]], list[list[int]], list[list[int]], list[list[int]]]:
    """Scores of which many coincide and some are 0, positives, grades, negatives, and rows that are left
    out.
    """
    generator = np.random.default_rng(seed)
    table = generator.integers(0, 5, (QUERIES, DOCUMENTS)).astype(np.float32)
    orders = [generator.permutation(DOCUMENTS).tolist() for _ in range(QUERIES)]
    cuts = generator.integers(1, 5, QUERIES).tolist()
    positives = [order[:cut] for order, cut in zip(orders, cuts, strict=True)]
    grades = [generator.integers(1, 4, len(one)).tolist() for one in positives]
    negatives = [order[cut : cut + 4] for order, cut in zip(orders, cuts, strict=True)]
    aside = [order[-1:] if number % 3 else [] for number, order in enumerate(orders)]
    return table, positives, grades, negatives, aside


def by_sorting(
    row: np.ndarray, positives: list[int], grades: list[int], others: list[int], *, least: float
) -> tuple[list[int], int, int]:
    """Places of the positives, pairs in the wrong order, and how many documents are found."""
    grade_of = dict(zip(positives, grades, strict=True))
    order = sorted([*positives, *others], key=lambda document: (-row[document], grade_of.get(document, 0)))
    wrong = sum(row[other] >= row[positive] for positive in positives for other in others)
    places = sorted(order.index(positive) for positive in positives)
    return places, wrong, sum(row[document] >= least for document in order)


def check(found: PositiveRanks, number: int, expected: tuple[list[int], int, int], pairs: int) -> None:
    places, wrong, length = expected
    assert sorted(found.ranks[number].tolist()) == places
    counts = found.counts
    assert (counts.errors[number], counts.pairs[number], found.retrieved[number]) == (wrong, pairs, length)


def same_counts(one: PositiveRanks, other: PositiveRanks) -> None:
    assert one.retrieved.tolist() == other.retrieved.tolist()
    assert one.counts.errors.tolist() == other.counts.errors.tolist()
    assert one.counts.pairs.tolist() == other.counts.pairs.tolist()


@pytest.fixture(autouse=True)
def _blocks_of_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two full blocks and a rest of six."""
    monkeypatch.setattr(ranking, "QUERIES_PER_BLOCK", 17)


every_least = pytest.mark.parametrize("least", [-math.inf, 1.0], ids=["all are found", "some are found"])


@every_least
@pytest.mark.parametrize("seed", range(3))
def test_standings_in_a_store_are_those_of_sorting(seed: int, least: float) -> None:
    table, positives, grades, _, aside = drawn(seed)
    ranker = GivenRanker(table, least)
    assert isinstance(ranker, Ranker)
    found = rank_in_store(ranker, asked(positives, grades=grades), Ragged.of(aside), SILENT)
    for number, near in enumerate(positives):
        others = [row for row in range(DOCUMENTS) if row not in near and row not in aside[number]]
        expected = by_sorting(table[number], near, grades[number], others, least=least)
        check(found, number, expected, len(near) * len(others))


@every_least
def test_documents_judged_not_relevant_have_their_ranks_and_change_no_other(least: float) -> None:
    """The judged documents of a query, some of which are left out, by sorting: unjudged ones first where
    scores tie.
    """
    table, positives, grades, negatives, aside = drawn(4)
    data = replace(asked(positives, grades=grades, negatives=negatives), is_judged=True)
    ranker = GivenRanker(table, least)
    plain, found = (
        rank_in_store(ranker, data, Ragged.of(aside), SILENT, judged=judged) for judged in (False, True)
    )
    same_counts(found, plain)
    for number, near in enumerate(positives):
        judged = dict.fromkeys(set(negatives[number]) - set(aside[number]), 0)
        judged |= zip(near, grades[number], strict=True)
        rows = [row for row in range(DOCUMENTS) if row not in aside[number]]
        order = sorted(rows, key=lambda row: (-table[number][row], judged.get(row, -1)))
        assert sorted(found.ranks[number][: len(near)].tolist()) == sorted(plain.ranks[number].tolist())
        assert sorted(found.ranks[number].tolist()) == sorted(order.index(row) for row in judged)
        assert found.grades[number].tolist() == [*grades[number], *[0] * (len(judged) - len(near))]


@every_least
@pytest.mark.parametrize("judged", [False, True])
def test_removed_documents_are_those_of_a_smaller_collection(judged: bool, least: float) -> None:
    """Against a table without their columns, and by sorting what stood above the first relevant document."""
    table, positives, grades, negatives, aside = drawn(5)
    table, removed = np.concatenate([table, table[:, :3] + 1], axis=1), np.arange(DOCUMENTS, DOCUMENTS + 3)
    aside = [[*rows, DOCUMENTS] if number % 2 else rows for number, rows in enumerate(aside)]
    data = replace(asked(positives, grades=grades, negatives=negatives), is_judged=True)
    ranker = GivenRanker(table, least)
    found = rank_in_store(ranker, data, Ragged.of(aside), SILENT, judged=judged, removed=removed)
    left = Ragged.of([row for row in rows if row < DOCUMENTS] for rows in aside)
    alone = rank_in_store(GivenRanker(table[:, :DOCUMENTS], least), data, left, SILENT, judged=judged)
    assert found.ranks.values.tolist() == alone.ranks.values.tolist()
    same_counts(found, alone)
    above = []
    for row, near, out in zip(table, positives, aside, strict=True):
        above.append(any(row[document] >= max(row[near]) for document in removed if document not in out))
    assert alone.above is None
    assert found.above is not None
    assert found.above.tolist() == above
    assert 0 < sum(above) < QUERIES


@dataclass(frozen=True)
class CountingRanker(GivenRanker):
    """Remembers how many queries each pass over the documents was for, and by how many thresholds."""

    passes: list[tuple[int, int]] = field(default_factory=list)

    def count_at_least(self, queries: slice, thresholds: np.ndarray, *more: Any) -> Counts:
        self.passes.append(thresholds.shape)
        return super().count_at_least(queries, thresholds, *more)


@every_least
def test_every_document_is_looked_at_once_for_all_that_is_counted(least: float) -> None:
    table, positives, grades, _, aside = drawn(2)
    ranker = CountingRanker(table, least)
    rank_in_store(ranker, asked(positives, grades=grades), Ragged.of(aside), SILENT)
    # A threshold more counts what is found at all.
    more = int(least > -math.inf)
    widest = [max(map(len, positives[start : start + 17])) + more for start in (0, 17, 34)]
    assert ranker.passes == list(zip((17, 17, 6), widest, strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_standings_in_lists_are_those_of_sorting_whatever_a_candidate_scores(seed: int) -> None:
    table, positives, grades, negatives, _ = drawn(seed)
    data = asked(positives, grades=grades, negatives=negatives)
    found = rank_in_lists(GivenRanker(table, min_score=1.0), data, SILENT)
    for number, near in enumerate(positives):
        expected = by_sorting(table[number], near, grades[number], negatives[number], least=-math.inf)
        check(found, number, expected, len(near) * len(negatives[number]))


def test_an_increasing_map_of_scores_changes_nothing() -> None:
    table, positives, grades, _, aside = drawn(9)
    data = asked(positives, grades=grades)
    one, other = (
        rank_in_store(GivenRanker(each), data, Ragged.of(aside), SILENT) for each in (table, np.exp2(table))
    )
    assert np.array_equal(one.ranks.values, other.ranks.values)
    assert np.array_equal(one.counts.errors, other.counts.errors)


def fused_of(seed: int) -> tuple[FusedRanker, np.ndarray]:
    """A ranker of two tables of scores, of which each query has five to eight candidates, and its scores."""
    generator = np.random.default_rng(seed)
    tables = [generator.integers(0, 4, (QUERIES, DOCUMENTS)).astype(np.float32) for _ in range(2)]
    rows = np.stack([np.sort(generator.permutation(DOCUMENTS)[:8]) for _ in range(QUERIES)])
    rows[::2, :3] = -1
    dense, lexical = map(GivenRanker, tables)
    everything = slice(0, QUERIES)
    candidates = FusedCandidates(rows, dense.scores(everything, rows), lexical.scores(everything, rows))
    ranker = FusedRanker(dense, lexical, candidates, 0.7)  # type: ignore[arg-type]
    table = np.full((QUERIES, DOCUMENTS), -np.inf, dtype=np.float32)
    for number, (own, scores) in enumerate(zip(rows, candidates.fused(0.7), strict=True)):
        table[number, own[own >= 0]] = scores[own >= 0]
    return ranker, table


def test_ranks_of_a_fusion_are_those_of_its_candidates_and_ties_are_lost() -> None:
    ranker, table = fused_of(1)
    _, positives, grades, _, aside = drawn(2)
    data = asked(positives, grades=grades)
    removed = np.array([4])
    kept = [[row for row in near if row != 4] or [(near[0] + 1) % DOCUMENTS] for near in positives]
    for examples, without in ((data, None), (asked(kept), removed)):
        found = rank_in_store(ranker, examples, Ragged.of(aside), SILENT, removed=without)
        expected = rank_in_store(
            GivenRanker(table, min_score=FusedRanker.min_score),
            examples,
            Ragged.of(aside),
            SILENT,
            removed=without,
        )
        assert np.array_equal(found.ranks.values, expected.ranks.values)
        assert np.array_equal(found.retrieved, expected.retrieved)
        assert np.array_equal(found.counts.errors, expected.counts.errors)
        assert np.array_equal(found.counts.pairs, expected.counts.pairs)
        if without is not None:
            assert np.array_equal(found.above, expected.above)
    # A document that is no candidate is not retrieved; among listed documents it has a score.
    rows = np.tile(np.arange(DOCUMENTS), (QUERIES, 1))
    assert np.array_equal(ranker.scores(slice(0, QUERIES), rows), table)
    assert np.isfinite(replace(ranker, in_lists=True).scores(slice(0, QUERIES), rows)).all()


def test_a_positive_is_the_last_of_its_ties_wherever_it_lies_in_the_store() -> None:
    rows = np.array([[4, 0, 1, 2, -1], [4, 0, 1, 2, -1]])
    scores = np.array([[0.9, 0.5, 0.5, 0.5, -np.inf]] * 2, dtype=np.float32)
    ordered = tied_positives_last(Hits(rows, scores), asked([[0], [2]]))
    assert ordered.tolist() == [[4, 1, 2, 0, -1], [4, 0, 1, 2, -1]]
