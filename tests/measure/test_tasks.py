"""Measuring on data sets: the streamed, padded, blockwise ways against plain loops over every document."""

from collections.abc import Callable, Sequence

import pytest

from adiabat.config import MeasureSection
from adiabat.data.ragged import Ragged
from adiabat.errors import DataError
from adiabat.measure import tasks
from adiabat.measure.results import Change, DatasetResult
from adiabat.measure.systems import System
from adiabat.measure.tasks import Role, measure_examples, similarities_of
from adiabat.model.encoder import EncoderSettings
from adiabat.model.towers import DualEncoder
from adiabat.store.addressing import AddressedSet
from adiabat.store.embeddings import Store
from adiabat.watch import SILENT, Watch
from tests.measure.brute_force import all_scores, errors_and_pairs, rank_measures_by_loops
from tests.tiny import tiny_dual, tiny_encoder

MEASURES = ("nDCG@10", "RR", "AP", "P@1")
# Documents 3, 7 and 11 are one text: whatever one of them scores, the others tie with it exactly.
TEXTS = [f"document {number} on {'abcdefg'[number % 7] * 4}" for number in range(20)]
TEXTS[7] = TEXTS[11] = TEXTS[3]
QUERIES = ["what is a", "b or not b", "seeing", "the d", "é à ü", "f"]


@pytest.fixture(scope="module")
def model() -> DualEncoder:
    return tiny_dual(seed=1)


@pytest.fixture(scope="module")
def baseline(model: DualEncoder) -> DualEncoder:
    return DualEncoder(tiny_encoder(seed=2), model.document, "before")


@pytest.fixture(scope="module")
def store(model: DualEncoder, make_store: Callable[..., Store]) -> Store:
    return make_store(model, TEXTS)


def examples(
    positives: Sequence[Sequence[int]],
    negatives: Sequence[Sequence[int]] | None = None,
    *,
    grades: Sequence[Sequence[int]] | None = None,
    ids: Sequence[str] | None = None,
) -> AddressedSet:
    count = len(positives)
    return AddressedSet(
        "set",
        list(ids or [f"q{number}" for number in range(count)]),
        QUERIES[:count],
        Ragged.of(positives),
        Ragged.of(grades or [[1] * len(rows) for rows in positives]),
        Ragged.of(negatives or [[]] * count),
    )


def measured(
    model: DualEncoder,
    baseline: DualEncoder | None,
    store: Store,
    data: AddressedSet,
    *,
    role: Role = "target",
    watch: Watch = SILENT,
    **settings: object,
) -> DatasetResult:
    section = MeasureSection.model_validate({"resamples": 200, **settings})
    before = System(baseline, store) if baseline else None
    return measure_examples(System(model, store), before, data, role=role, settings=section, seed=0, watch=watch)


def change(result: DatasetResult, measure: str, similarity: str = "cosine") -> Change:
    return next(one for one in result.changes if (one.measure, one.similarity) == (measure, similarity))


def pnd_by_loops(table: Sequence[Sequence[float]], data: AddressedSet, others: Sequence[Sequence[int]]) -> tuple[float, float, int]:
    """Mean over queries, pooled, and pairs."""
    counts = [errors_and_pairs(row, data.positives[query].tolist(), others[query]) for query, row in enumerate(table)]
    shares = [wrong / pairs for wrong, pairs in counts]
    pairs = sum(pairs for _, pairs in counts)
    return sum(shares) / len(shares), sum(wrong for wrong, _ in counts) / pairs, pairs


STORE_POSITIVES = [[3], [0, 7, 12], [7, 3], [19], [5, 6], [11]]


def others_of(store: Store, data: AddressedSet, *, left_out: dict[int, int] | None = None) -> list[list[int]]:
    """All documents but a query's positives, and but the one that has its id."""
    rows = range(store.count)
    return [[row for row in rows if row not in data.positives[query] and (left_out or {}).get(query) != row] for query in range(len(data))]


def test_pnd_against_the_whole_store_equals_loops_with_ties_and_several_positives(
    model: DualEncoder, baseline: DualEncoder, store: Store
) -> None:
    data = examples(STORE_POSITIVES)
    result = measured(model, baseline, store, data)
    after = pnd_by_loops(all_scores(model, store, data.queries), data, others_of(store, data))
    before = pnd_by_loops(all_scores(baseline, store, data.queries), data, others_of(store, data))
    assert (change(result, "PND").after, change(result, "PND pooled").after) == pytest.approx(after[:2])
    assert (change(result, "PND").before, change(result, "PND pooled").before) == pytest.approx(before[:2])
    assert result.pairs == after[2]
    assert (result.kind, result.main, result.queries, result.documents) == ("ranking", "nDCG@10", 6, 20)


def test_a_document_that_ties_with_a_positive_is_an_error_and_a_second_positive_is_none(model: DualEncoder, store: Store) -> None:
    # Row 3 ties with 7 and 11. Alone it has at least two errors; with both beside it as positives, two fewer.
    table = all_scores(model, store, QUERIES[:1])[0]
    above = sum(score > table[3] for score in table)
    one = measured(model, None, store, examples([[3]]))
    three = measured(model, None, store, examples([[3, 7, 11]]))
    assert change(one, "PND pooled").after == pytest.approx((above + 2) / 19)
    assert change(three, "PND pooled").after == pytest.approx(above / 17)


def test_rank_measures_equal_a_full_ranking_with_ties_against_the_relevant(model: DualEncoder, baseline: DualEncoder, store: Store) -> None:
    grades = [[1], [2, 1, 3], [1, 1], [4], [1, 2], [1]]
    data = examples(STORE_POSITIVES, grades=grades)
    result = measured(model, baseline, store, data)
    for tower, side in ((baseline, "before"), (model, "after")):
        table = all_scores(tower, store, data.queries)
        rows = range(store.count)
        by_hand = [
            rank_measures_by_loops(table[query], dict(zip(positives, grades[query], strict=True)), rows)
            for query, positives in enumerate(STORE_POSITIVES)
        ]
        for name in MEASURES:
            assert getattr(change(result, name), side) == pytest.approx(sum(one[name] for one in by_hand) / len(by_hand)), name


def test_the_document_with_the_querys_own_id_is_left_out_only_where_asked(model: DualEncoder, store: Store) -> None:
    # d4 and d3 are documents; d3 is a positive of its own query and stays.
    data = examples([[0], [3], [5]], ids=["d4", "d3", "q"])
    dropped, kept = measured(model, None, store, data), measured(model, None, store, data, drop_same_id=False)
    table = all_scores(model, store, data.queries)
    for result, left_out in ((dropped, {0: 4}), (kept, {})):
        others = others_of(store, data, left_out=left_out)
        mean, pooled, pairs = pnd_by_loops(table, data, others)
        assert (change(result, "PND").after, change(result, "PND pooled").after) == pytest.approx((mean, pooled))
        assert result.pairs == pairs
        by_hand = [
            rank_measures_by_loops(table[query], {int(data.positives[query][0]): 1}, [*others[query], int(data.positives[query][0])])
            for query in range(3)
        ]
        assert change(result, "RR").after == pytest.approx(sum(one["RR"] for one in by_hand) / 3)
    assert dropped.pairs == kept.pairs - 1
    assert "1 document with the query's own id was left out" in dropped.notes
    assert not any("own id" in note for note in kept.notes)


def test_many_queries_ranked_in_several_passes_give_the_same(model: DualEncoder, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    data = examples(STORE_POSITIVES, ids=["d4", "q1", "d9", "q3", "q4", "q5"])
    whole = measured(model, None, store, data)
    monkeypatch.setattr(tasks, "QUERIES_AT_A_TIME", 2)
    assert measured(model, None, store, data) == whole


def test_measures_look_no_further_than_the_depth_and_pnd_does(model: DualEncoder, store: Store) -> None:
    table = all_scores(model, store, QUERIES[:1])[0]
    last = min(range(store.count), key=table.__getitem__)
    shallow = measured(model, None, store, examples([[last]]), depth=5, measures=("RR",))
    assert change(shallow, "RR").after == 0
    assert change(shallow, "PND").after == 1
    assert any("first 5" in note for note in shallow.notes)


def test_a_cutoff_beyond_the_depth_is_searched_to(model: DualEncoder, store: Store) -> None:
    table = all_scores(model, store, QUERIES[:1])[0]
    last = min(range(store.count), key=table.__getitem__)
    result = measured(model, None, store, examples([[last]]), depth=5, measures=("R@5", "R@20"))
    assert (change(result, "R@5").after, change(result, "R@20").after) == (0, 1)
    assert any("first 20" in note for note in result.notes)


@pytest.mark.parametrize("positives", [[3], [3, 7]], ids=["one positive", "two that tie"])
def test_a_tie_across_the_depth_is_lost(model: DualEncoder, store: Store, positives: list[int]) -> None:
    # Rows 3, 7 and 11 tie: a ranking cut within the tie holds the lower rows, which are the positives, by accident.
    table = all_scores(model, store, QUERIES[:1])[0]
    above = sum(score > table[3] for score in table)
    ties_lost = 3 - len(positives)
    reached = [
        change(measured(model, None, store, examples([positives]), depth=above + 1 + extra, measures=("RR",)), "RR").after
        for extra in range(3)
    ]
    assert reached == [0 if extra < ties_lost else pytest.approx(1 / (above + ties_lost + 1)) for extra in range(3)]


LISTED_POSITIVES = [[3], [0, 7], [2], [19], [5, 6, 8], [11]]
LISTED_NEGATIVES = [[7, 1], [11, 4, 5], [9], [0, 1, 2, 3], [10, 3], [3, 12]]


def test_listed_pairs_equal_loops(model: DualEncoder, baseline: DualEncoder, store: Store) -> None:
    data = examples(LISTED_POSITIVES, LISTED_NEGATIVES)
    result = measured(model, baseline, store, data, role="retain")
    for tower, side in ((baseline, "before"), (model, "after")):
        table = all_scores(tower, store, data.queries)
        mean, pooled, pairs = pnd_by_loops(table, data, LISTED_NEGATIVES)
        assert getattr(change(result, "PND"), side) == pytest.approx(mean)
        assert getattr(change(result, "PND pooled"), side) == pytest.approx(pooled)
        assert result.pairs == pairs
        by_hand = [
            rank_measures_by_loops(
                table[query], dict.fromkeys(LISTED_POSITIVES[query], 1), LISTED_POSITIVES[query] + LISTED_NEGATIVES[query]
            )
            for query in range(len(data))
        ]
        for name in MEASURES:
            assert getattr(change(result, name), side) == pytest.approx(sum(one[name] for one in by_hand) / len(data)), name
    assert (result.role, result.kind, result.main) == ("retain", "pairs", "PND")
    assert "positives are compared with listed negatives" in result.notes


def test_queries_without_listed_negatives_are_left_out_and_counted(model: DualEncoder, store: Store) -> None:
    some = examples(LISTED_POSITIVES, [[], *LISTED_NEGATIVES[1:4], [], LISTED_NEGATIVES[5]])
    result = measured(model, None, store, some)
    table = all_scores(model, store, some.queries)
    shares = [
        wrong / pairs
        for wrong, pairs in (errors_and_pairs(table[query], LISTED_POSITIVES[query], LISTED_NEGATIVES[query]) for query in (1, 2, 3, 5))
    ]
    assert result.queries == 4
    assert change(result, "PND").after == pytest.approx(sum(shares) / 4)
    assert "2 of 6 queries list no negatives and were left out, 4 are measured" in result.notes


@pytest.mark.parametrize(("listing", "kind", "queries"), [(2, "ranking", 6), (3, "pairs", 3)])
def test_listed_negatives_are_chosen_only_where_at_least_half_of_the_queries_list_some(
    model: DualEncoder, store: Store, listing: int, kind: str, queries: int
) -> None:
    some = examples(LISTED_POSITIVES, [*LISTED_NEGATIVES[:listing], *[[]] * (6 - listing)])
    result = measured(model, None, store, some)
    assert (result.kind, result.queries) == (kind, queries)
    said = "only 2 of 6 queries list negatives, too few to measure by: all 6 are measured without them"
    assert (said in result.notes) == (kind == "ranking")
    assert measured(model, None, store, some, negatives="listed").queries == listing


def test_no_listed_negatives_at_all_mean_the_store_unless_listed_ones_were_asked_for(model: DualEncoder, store: Store) -> None:
    bare = examples(LISTED_POSITIVES)
    assert measured(model, None, store, bare).kind == "ranking"
    with pytest.raises(
        DataError, match=r"set: measure.negatives = listed needs negatives, no query lists one; set measure.negatives = store"
    ):
        measured(model, None, store, bare, negatives="listed")


def test_the_store_can_be_ranked_though_negatives_are_listed(model: DualEncoder, store: Store) -> None:
    listed, bare = examples(STORE_POSITIVES, LISTED_NEGATIVES), examples(STORE_POSITIVES)
    assert measured(model, None, store, listed, negatives="store") == measured(model, None, store, bare)


@pytest.mark.parametrize("negatives", [None, LISTED_NEGATIVES], ids=["store", "listed"])
def test_without_normalising_cosine_and_distance_are_both_measured(
    make_store: Callable[..., Store], negatives: list[list[int]] | None
) -> None:
    loose = tiny_dual(seed=3, settings=EncoderSettings(max_tokens=64, normalize=False))
    store = make_store(loose, TEXTS)
    data = examples(LISTED_POSITIVES, negatives)
    result = measured(loose, None, store, data)
    assert similarities_of(loose) == ("cosine", "distance")
    for similarity in ("cosine", "distance"):
        table = all_scores(loose, store, data.queries, similarity)
        mean, pooled, _ = pnd_by_loops(table, data, negatives or others_of(store, data))
        assert change(result, "PND", similarity).after == pytest.approx(mean)
        assert change(result, "PND pooled", similarity).after == pytest.approx(pooled)
    if not negatives:
        assert change(result, "PND").after != change(result, "PND", "distance").after
    assert not any("unit length" in note for note in result.notes)


def test_with_both_sides_normalised_only_cosine_is_measured_and_the_notes_say_why(model: DualEncoder, store: Store) -> None:
    result = measured(model, None, store, examples([[1]]))
    assert similarities_of(model) == ("cosine",)
    assert {one.similarity for one in result.changes} == {"cosine"}
    assert any("unit length" in note for note in result.notes)


@pytest.mark.parametrize("side", ["query", "document"])
def test_one_side_that_does_not_normalise_is_enough_for_both(side: str) -> None:
    unit, loose = tiny_encoder(seed=1), tiny_encoder(seed=1, settings=EncoderSettings(max_tokens=64, normalize=False))
    towers = (loose, unit) if side == "query" else (unit, loose)
    assert similarities_of(DualEncoder(*towers, "mixed")) == ("cosine", "distance")


@pytest.mark.parametrize("negatives", [None, LISTED_NEGATIVES], ids=["store", "listed"])
def test_a_model_that_is_its_own_baseline_changes_nothing_at_all(
    model: DualEncoder, store: Store, negatives: list[list[int]] | None
) -> None:
    result = measured(model, model, store, examples(LISTED_POSITIVES, negatives))
    assert {one.difference for one in result.changes} == {0.0}
    assert {one.difference_interval for one in result.changes} == {(0.0, 0.0)}
    assert {one.verdict for one in result.changes} == {"no evidence"}


def test_without_a_baseline_nothing_is_compared(model: DualEncoder, store: Store) -> None:
    result = measured(model, None, store, examples(STORE_POSITIVES))
    assert {(one.before, one.difference, one.verdict, one.z) for one in result.changes} == {(None, None, None, None)}


def test_a_single_query_has_an_interval_of_no_width(model: DualEncoder, baseline: DualEncoder, store: Store) -> None:
    result = measured(model, baseline, store, examples([[3]]))
    main = result.main_change()
    assert main.after_interval == (main.after, main.after)
    assert result.queries == 1


def test_a_store_of_one_document_has_nothing_to_compare_with_and_says_so(model: DualEncoder, make_store: Callable[..., Store]) -> None:
    with pytest.raises(DataError, match=r"set: .* documents beside .* positives"):
        measured(model, None, make_store(model, TEXTS[:1]), examples([[0]]))


def test_progress_counts_queries_to_their_end(model: DualEncoder, store: Store) -> None:
    seen: list[tuple[str, int, int]] = []
    watch = Watch(progress=lambda label, done, total: seen.append((label, done, total)))
    measured(model, None, store, examples(STORE_POSITIVES), watch=watch)
    measured(model, None, store, examples(LISTED_POSITIVES, LISTED_NEGATIVES), watch=watch)
    assert ("ranking set", 6, 6) in seen
    assert [one for one in seen if one[0] == "scoring set"] == [("scoring set", done, 6) for done in range(1, 7)]
