"""Scoring a model on data sets: the streamed, padded, blockwise ways against plain loops over every
document.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from adiabat.config.shared import EvaluateSettings, MeasureSection
from adiabat.core.errors import DataError
from adiabat.core.progress import SILENT, Watch
from adiabat.core.ragged import Ragged
from adiabat.data.records import Example, ExampleSet
from adiabat.data.text_hashes import TrainedTexts
from adiabat.evaluation import ranking
from adiabat.evaluation.evaluate import Dataset, dataset_result, evaluate_datasets
from adiabat.evaluation.retrieval import score_retrieval
from adiabat.evaluation.systems import UNIT_LENGTH, System, similarities_of
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.towers import DualEncoder
from adiabat.report import pages
from adiabat.stats.samples import Sample, TaskScores
from adiabat.stats.statistics import value_of
from adiabat.store.addressing import AddressedSet, address
from adiabat.store.vector_store import Store
from tests.stats.brute_force import all_scores, errors_and_pairs, rank_measures_by_loops
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


def scored(
    model: DualEncoder, store: Store, data: AddressedSet, *, watch: Watch = SILENT, **settings: object
) -> TaskScores:
    return score_retrieval(
        System(model, store), data, settings=MeasureSection.model_validate(settings), watch=watch
    )


def sample(scores: TaskScores, measure: str, similarity: str = "cosine") -> Sample:
    return next(one for one in scores.samples if one.key == (measure, similarity))


def value(scores: TaskScores, measure: str, similarity: str = "cosine") -> float:
    return float(value_of(sample(scores, measure, similarity))[0])


def pnd_of(scores: TaskScores, similarity: str = "cosine") -> tuple[float, float, int]:
    """Mean over queries, pooled, and pairs."""
    pairs = sample(scores, "PND pooled", similarity).reference
    assert pairs is not None
    return value(scores, "PND", similarity), value(scores, "PND pooled", similarity), int(pairs.sum())


def pnd_by_loops(
    table: Sequence[Sequence[float]], data: AddressedSet, others: Sequence[Sequence[int]]
) -> tuple[float, float, int]:
    """Mean over queries, pooled, and pairs."""
    counts = [
        errors_and_pairs(row, data.positives[query].tolist(), others[query])
        for query, row in enumerate(table)
    ]
    shares = [wrong / pairs for wrong, pairs in counts]
    pairs = sum(pairs for _, pairs in counts)
    return sum(shares) / len(shares), sum(wrong for wrong, _ in counts) / pairs, pairs


STORE_POSITIVES = [[3], [0, 7, 12], [7, 3], [19], [5, 6], [11]]
LISTED_POSITIVES = [[3], [0, 7], [2], [19], [5, 6, 8], [11]]
LISTED_NEGATIVES = [[7, 1], [11, 4, 5], [9], [0, 1, 2, 3], [10, 3], [3, 12]]


def others_of(store: Store, data: AddressedSet, *, left_out: dict[int, int] | None = None) -> list[list[int]]:
    """All documents but a query's positives, and but the one that has its id."""
    rows = range(store.count)
    return [
        [row for row in rows if row not in data.positives[query] and (left_out or {}).get(query) != row]
        for query in range(len(data))
    ]


@pytest.mark.parametrize("seed", [1, 2])
def test_pnd_against_the_whole_store_equals_loops_with_ties_and_several_positives(
    store: Store, model: DualEncoder, seed: int
) -> None:
    asking = DualEncoder(tiny_encoder(seed=seed), model.document, "asking")
    data = examples(STORE_POSITIVES)
    scores = scored(asking, store, data)
    assert pnd_of(scores) == pytest.approx(
        pnd_by_loops(all_scores(asking, store, data.queries), data, others_of(store, data))
    )
    assert (scores.task, scores.kind, scores.unit, scores.units) == (
        "set",
        "retrieval",
        "query",
        data.query_ids,
    )
    assert (scores.texts, scores.documents) == (data.queries, 20)


def test_a_document_that_ties_with_a_positive_is_an_error_and_a_second_positive_is_none(
    model: DualEncoder, store: Store
) -> None:
    # Row 3 ties with 7 and 11. Alone it has at least two errors; with both beside it as positives, two fewer.
    table = all_scores(model, store, QUERIES[:1])[0]
    above = sum(score > table[3] for score in table)
    assert value(scored(model, store, examples([[3]])), "PND pooled") == pytest.approx((above + 2) / 19)
    assert value(scored(model, store, examples([[3, 7, 11]])), "PND pooled") == pytest.approx(above / 17)


def test_rank_measures_equal_a_full_ranking_with_ties_against_the_relevant(
    model: DualEncoder, store: Store
) -> None:
    grades = [[1], [2, 1, 3], [1, 1], [4], [1, 2], [1]]
    data = examples(STORE_POSITIVES, grades=grades)
    scores, table = scored(model, store, data, report=MEASURES), all_scores(model, store, QUERIES)
    for query, positives in enumerate(STORE_POSITIVES):
        graded = dict(zip(positives, grades[query], strict=True))
        by_hand = rank_measures_by_loops(table[query], graded, range(store.count))
        assert {name: sample(scores, name).values[query] for name in MEASURES} == pytest.approx(by_hand)


def test_of_positives_that_tie_the_lower_grade_comes_first(model: DualEncoder, store: Store) -> None:
    for order in ([3, 7, 11], [11, 3, 7], [7, 11, 3]):
        grades = [{3: 1, 7: 3, 11: 2}[row] for row in order]
        scores = scored(model, store, examples([order], grades=[grades]))
        table = all_scores(model, store, QUERIES[:1])[0]
        by_hand = rank_measures_by_loops(table, {3: 1, 7: 3, 11: 2}, range(store.count))
        assert sample(scores, "nDCG@10").values[0] == pytest.approx(by_hand["nDCG@10"])


def test_the_document_with_the_querys_own_id_is_left_out_by_its_id_alone_only_where_asked(
    model: DualEncoder, store: Store
) -> None:
    # d4 and d3 are documents; d3 is a positive of its own query and stays.
    data = examples([[0], [3], [5]], ids=["d4", "d3", "q"])
    dropped, kept = (scored(model, store, data, report=MEASURES, drop_same_id=drop) for drop in (True, False))
    table = all_scores(model, store, data.queries)
    for scores, left_out in ((dropped, {0: 4}), (kept, {})):
        others = others_of(store, data, left_out=left_out)
        assert pnd_of(scores) == pytest.approx(pnd_by_loops(table, data, others))
        by_hand = [
            rank_measures_by_loops(
                table[query],
                {int(data.positives[query][0]): 1},
                [*others[query], int(data.positives[query][0])],
            )
            for query in range(3)
        ]
        assert sample(scores, "RR").values == pytest.approx([one["RR"] for one in by_hand])
    assert pnd_of(dropped)[2] == pnd_of(kept)[2] - 1
    assert "1 document left out of the ranking of the query that has the same id" in dropped.notes
    assert not any("same id" in note for note in kept.notes)
    # Left to itself, it ranks a document of the same id and another text, and says so.
    said: list[str] = []
    left = scored(model, store, data, watch=Watch(note=said.append))
    assert pnd_of(left) == pnd_of(kept)
    assert said == [
        "set: 1 document with the id of a query and another text, ranked like all others; "
        "drop_same_id = true leaves documents out by their id alone"
    ]


def test_a_query_that_is_a_document_is_left_out_with_a_title_before_it_or_without(
    model: DualEncoder, store: Store
) -> None:
    # d4 and d5 read as their queries do, d5 but for its first word as a title; d9 ends alike in the middle of
    # a word.
    texts = [TEXTS[4], TEXTS[5].partition(" ")[2], TEXTS[9][1:], TEXTS[3]]
    data = replace(examples([[0], [1], [2], [3]], ids=["d4", "d5", "d9", "d3"]), queries=texts)
    left = scored(model, store, data)
    others = others_of(store, data, left_out={0: 4, 1: 5})
    assert pnd_of(left) == pytest.approx(pnd_by_loops(all_scores(model, store, texts), data, others))
    assert "2 documents left out of the ranking of the query that has the same id and text" in left.notes


def test_what_judges_found_irrelevant_is_ranked_with_the_whole_corpus_unless_candidates_are_asked_for(
    model: DualEncoder, store: Store
) -> None:
    listed = examples(LISTED_POSITIVES, LISTED_NEGATIVES)
    judged = replace(listed, is_judged=True)
    whole = scored(model, store, judged)
    assert (whole.kind, pnd_of(whole)) == (
        "retrieval",
        pnd_of(scored(model, store, judged, negatives="store")),
    )
    asked = scored(model, store, judged, negatives="listed")
    assert (asked.kind, pnd_of(asked)) == ("triplets", pnd_of(scored(model, store, listed)))


def test_measures_look_no_further_than_the_depth_and_pnd_does(model: DualEncoder, store: Store) -> None:
    table = all_scores(model, store, QUERIES[:1])[0]
    last = min(range(store.count), key=table.__getitem__)
    shallow = scored(model, store, examples([[last]]), depth=5, report=("RR",))
    assert (value(shallow, "RR"), value(shallow, "PND")) == (0, 1)
    assert any("first 5" in note for note in shallow.notes)


def test_a_cutoff_beyond_the_depth_is_searched_to(model: DualEncoder, store: Store) -> None:
    table = all_scores(model, store, QUERIES[:1])[0]
    last = min(range(store.count), key=table.__getitem__)
    scores = scored(model, store, examples([[last]]), depth=5, report=("R@5", "R@20"))
    assert (value(scores, "R@5"), value(scores, "R@20")) == (0, 1)
    assert any("first 20" in note for note in scores.notes)


@pytest.mark.parametrize("positives", [[3], [3, 7]], ids=["one positive", "two that tie"])
def test_a_tie_across_the_depth_is_lost(model: DualEncoder, store: Store, positives: list[int]) -> None:
    # Rows 3, 7 and 11 tie: a ranking cut within the tie holds the lower rows, which are the positives, by
    # accident.
    table = all_scores(model, store, QUERIES[:1])[0]
    above = sum(score > table[3] for score in table)
    ties_lost = 3 - len(positives)
    reached = [
        value(scored(model, store, examples([positives]), depth=above + 1 + extra, report=("RR",)), "RR")
        for extra in range(3)
    ]
    assert reached == [
        0 if extra < ties_lost else pytest.approx(1 / (above + ties_lost + 1)) for extra in range(3)
    ]


def test_listed_pairs_equal_loops(model: DualEncoder, store: Store) -> None:
    data = examples(LISTED_POSITIVES, LISTED_NEGATIVES)
    scores, table = scored(model, store, data, report=MEASURES), all_scores(model, store, data.queries)
    assert pnd_of(scores) == pytest.approx(pnd_by_loops(table, data, LISTED_NEGATIVES))
    for query, positives in enumerate(LISTED_POSITIVES):
        by_hand = rank_measures_by_loops(
            table[query], dict.fromkeys(positives, 1), positives + LISTED_NEGATIVES[query]
        )
        assert {name: sample(scores, name).values[query] for name in MEASURES} == pytest.approx(by_hand)
    assert scores.kind == "triplets"
    assert "positives are compared with listed negatives" in scores.notes


def test_measures_that_no_order_of_the_listed_candidates_changes_are_left_out(
    model: DualEncoder, store: Store
) -> None:
    """The longest list has five candidates."""
    scores = scored(
        model,
        store,
        examples(LISTED_POSITIVES, LISTED_NEGATIVES),
        report=("Recall@100", "R@4", "RR@10", "Judged@2", "P@5"),
    )
    assert [sample.measure for sample in scores.samples] == ["PND", "PND pooled", "R@4", "RR@10"]
    assert (
        "left out, since so few listed candidates cannot change it: Recall@100, Judged@2, P@5" in scores.notes
    )
    whole = scored(model, store, examples(STORE_POSITIVES))
    assert [sample.measure for sample in whole.samples] == [
        "nDCG@10",
        "Recall@100",
        "RR@10",
        "PND",
        "PND pooled",
    ]


def test_queries_without_listed_negatives_are_left_out_and_counted(model: DualEncoder, store: Store) -> None:
    some = examples(LISTED_POSITIVES, [[], *LISTED_NEGATIVES[1:4], [], LISTED_NEGATIVES[5]])
    scores, table = scored(model, store, some), all_scores(model, store, some.queries)
    shares = [
        wrong / pairs
        for wrong, pairs in (
            errors_and_pairs(table[query], LISTED_POSITIVES[query], LISTED_NEGATIVES[query])
            for query in (1, 2, 3, 5)
        )
    ]
    assert (scores.units, scores.texts) == (
        ["q1", "q2", "q3", "q5"],
        [QUERIES[query] for query in (1, 2, 3, 5)],
    )
    assert sample(scores, "PND").values == pytest.approx(shares)
    assert "2 of 6 queries list no negatives and were left out, 4 are measured" in scores.notes


@pytest.mark.parametrize(("listing", "kind", "queries"), [(2, "retrieval", 6), (3, "triplets", 3)])
def test_listed_negatives_are_chosen_only_where_at_least_half_of_the_queries_list_some(
    model: DualEncoder, store: Store, listing: int, kind: str, queries: int
) -> None:
    some = examples(LISTED_POSITIVES, [*LISTED_NEGATIVES[:listing], *[[]] * (6 - listing)])
    scores = scored(model, store, some)
    assert (scores.kind, len(scores.units)) == (kind, queries)
    said = "only 2 of 6 queries list negatives, too few to measure with: all 6 are measured without them"
    assert (said in scores.notes) == (kind == "retrieval")
    assert len(scored(model, store, some, negatives="listed").units) == listing


def test_no_listed_negatives_at_all_mean_the_store_unless_listed_ones_were_asked_for(
    model: DualEncoder, store: Store
) -> None:
    bare = examples(LISTED_POSITIVES)
    assert scored(model, store, bare).kind == "retrieval"
    told = (
        "measure.negatives must be store or auto where no query lists negatives, "
        "got listed; set measure.negatives = store"
    )
    with pytest.raises(DataError, match=f"^set: {told}$"):
        scored(model, store, bare, negatives="listed")


@pytest.mark.parametrize("negatives", [None, LISTED_NEGATIVES], ids=["store", "listed"])
def test_without_normalising_every_similarity_is_measured(
    make_store: Callable[..., Store], negatives: list[list[int]] | None
) -> None:
    # With this seed the norms differ enough for distance and cosine to rank differently, whatever a machine
    # rounds.
    loose = tiny_dual(seed=9, settings=EncoderSettings(max_tokens=64, normalize=False))
    store = make_store(loose, TEXTS)
    data = examples(LISTED_POSITIVES, negatives)
    scores = scored(loose, store, data)
    assert similarities_of(loose) == ("cosine", "distance", "dot")
    for similarity in similarities_of(loose):
        table = all_scores(loose, store, data.queries, similarity)
        assert pnd_of(scores, similarity) == pytest.approx(
            pnd_by_loops(table, data, negatives or others_of(store, data))
        )
    if not negatives:
        assert value(scores, "PND") != value(scores, "PND", "distance")
    assert not any("unit length" in note for note in scores.notes)


def test_with_both_sides_normalised_only_cosine_is_measured_and_the_notes_say_why(
    model: DualEncoder, store: Store
) -> None:
    left, asked = (
        score_retrieval(System(model, store), examples([[1]]), settings=MeasureSection(), similarities=which)
        for which in (None, ("distance", "cosine"))
    )
    assert similarities_of(model) == ("cosine",)
    assert {one.similarity for one in left.samples} == {"cosine"}
    assert UNIT_LENGTH in left.notes
    assert list(dict.fromkeys(one.similarity for one in asked.samples)) == ["distance", "cosine"]
    assert UNIT_LENGTH not in asked.notes


@pytest.mark.parametrize("side", ["query", "document"])
def test_one_side_that_does_not_normalise_is_enough_for_all(side: str) -> None:
    unit, loose = (
        tiny_encoder(seed=1),
        tiny_encoder(seed=1, settings=EncoderSettings(max_tokens=64, normalize=False)),
    )
    towers = (loose, unit) if side == "query" else (unit, loose)
    assert similarities_of(DualEncoder(*towers, "mixed")) == ("cosine", "distance", "dot")
    stated = DualEncoder(*towers, "mixed", {"similarity_fn_name": "dot"})
    assert similarities_of(stated) == ("dot", "cosine", "distance")


@pytest.mark.parametrize("negatives", [None, LISTED_NEGATIVES], ids=["store", "listed"])
def test_a_result_is_made_from_scores_before_and_after(
    model: DualEncoder, store: Store, negatives: list[list[int]] | None
) -> None:
    data = examples(LISTED_POSITIVES, negatives)
    after = scored(model, store, data)
    before = scored(DualEncoder(tiny_encoder(seed=2), model.document, "before"), store, data)
    result = dataset_result([after], before, None, role="retain", seed=0, resamples=200)
    assert (result.name, result.role, result.queries, result.documents) == ("set", "retain", 6, 20)
    assert (result.kind, result.main) == (("pairs", "PND") if negatives else ("ranking", "nDCG@10"))
    assert result.pairs == pnd_of(after)[2]
    assert result.units == 6
    for change in result.changes:
        assert (change.after, change.before) == pytest.approx(
            (value(after, change.measure), value(before, change.measure))
        )
    assert result.notes == list(after.notes)


LADDER_TEXTS = [f"document {number} on {'abcdefg'[number % 7] * 4}" for number in range(12)]
LADDER_TEXTS[7] = LADDER_TEXTS[3]
# The positive of the third query is one text with document 7: a tie, which is an error. The second query
# lists a document twice.
LADDERS = [(0, (1, 2, 3)), (5, (4, 11, 11)), (3, (7, 6, 8)), (9, (10, 0, 7))]


@pytest.fixture(scope="module")
def ladder_store(model: DualEncoder, make_store: Callable[..., Store]) -> Store:
    return make_store(model, LADDER_TEXTS)


def laddered(
    ladder_store: Store, ladders: Sequence[tuple[int, tuple[int, ...]]] = LADDERS, **options: bool
) -> AddressedSet:
    rows = [
        Example(f"q{number}", f"what is {'abcd'[number]}", (f"d{near}",), tuple(f"d{row}" for row in far))
        for number, (near, far) in enumerate(ladders)
    ]
    return address(ExampleSet("papers", tuple(rows), **options), ladder_store, merge_equal=True)


def test_every_number_is_compared_as_loops_compare_it(
    model: DualEncoder, ladder_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = laddered(ladder_store)
    table = all_scores(model, ladder_store, data.queries)
    expected = [
        [float(table[row][far] >= table[row][near]) for far in negatives]
        for row, (near, negatives) in enumerate(LADDERS)
    ]
    monkeypatch.setattr(ranking, "QUERIES_PER_BLOCK", 3)
    scores = score_retrieval(System(model, ladder_store), data, settings=MeasureSection())
    assert [sample.measure for sample in scores.ladder] == [
        "PND, negative 1",
        "PND, negative 2",
        "PND, negative 3",
    ]
    found = np.stack([sample.values for sample in scores.ladder], axis=1)
    assert found.tolist() == expected
    assert found[2, 0] == 1
    assert 0 < found.sum() < found.size


def test_there_is_no_ladder_where_lists_differ_in_length_or_nothing_is_listed(
    model: DualEncoder, ladder_store: Store
) -> None:
    assert laddered(ladder_store, [*LADDERS[:3], (9, (10, 0))]).negative_columns is None
    assert laddered(ladder_store, [(near, far[:1]) for near, far in LADDERS]).negative_columns is None
    assert laddered(ladder_store, is_judged=True).negative_columns is None
    assert not score_retrieval(
        System(model, ladder_store), laddered(ladder_store), settings=MeasureSection(negatives="store")
    ).ladder


def test_the_curve_stands_in_the_result_and_on_its_page_without_verdicts_where_the_model_was_trained_on_it(
    model: DualEncoder, ladder_store: Store
) -> None:
    before = DualEncoder(tiny_encoder(seed=2), model.document, "before")
    data = Dataset(ladder_store, laddered(ladder_store), "target")
    settings = EvaluateSettings.model_validate({"measure": {"resamples": 100}})
    about = {"settings": settings, "title": "A title", "command": "adiabat evaluate", "watch": SILENT}
    result = evaluate_datasets(model, before, [data], **about)
    (found,) = result.datasets
    table = all_scores(before, ladder_store, data.examples.queries)
    shares = [
        np.mean([table[row][far[place]] >= table[row][near] for row, (near, far) in enumerate(LADDERS)])
        for place in range(3)
    ]
    assert [change.before for change in found.ladder] == pytest.approx(shares)
    page = pages.files(result)["report.html"]()
    assert "Errors by listed negative: papers" in page
    assert "PND, negative 3" in page
    assert (
        "Errors by listed negative"
        not in pages.files(replace(result, datasets=[replace(found, ladder=[])]))["report.html"]()
    )
    trained = TrainedTexts.of(data.examples.queries)
    seen = evaluate_datasets(model, before, [data], trained=[trained, None], **about).datasets[0]
    assert {change.verdict for change in (*seen.changes, *seen.ladder)} == {"undecided"}
