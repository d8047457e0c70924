"""Scoring a model on data sets: the streamed, padded, blockwise ways against plain loops over every
document.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import ir_measures
import numpy as np
import pytest
import pytrec_eval
from sklearn.metrics import roc_auc_score

from adiabat.config.shared import EvaluateSettings, MeasureSection
from adiabat.core.errors import DataError, StoreError
from adiabat.core.progress import SILENT, Watch
from adiabat.data.records import Example, ExampleSet
from adiabat.data.text_hashes import TrainedTexts
from adiabat.evaluation import ranking
from adiabat.evaluation.evaluate import Dataset, dataset_result, evaluate_datasets
from adiabat.evaluation.retrieval import score_retrieval
from adiabat.evaluation.systems import UNIT_LENGTH, System, similarities_of
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.towers import DualEncoder
from adiabat.stats.ranking_measures import pessimistic_run
from adiabat.stats.samples import TaskScores
from adiabat.stats.statistics import value_of
from adiabat.store.addressing import AddressedSet, address
from adiabat.store.manifest import HEADER_BYTES, VECTOR_FILE
from adiabat.store.vector_store import Store
from tests.evaluation.given_ranker import asked
from tests.evaluation.given_vectors import give, imported_store
from tests.evaluation.scored import figure, sample_of
from tests.report.html_page import html_of
from tests.stats.brute_force import all_scores, discrepancy_by_loops, errors_and_pairs, rank_measures_by_loops
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
def system(model: DualEncoder, make_store: Callable[..., Store]) -> System:
    return System(model, make_store(model, TEXTS))


examples = partial(asked, queries=QUERIES)


def scored(system: System, data: AddressedSet, *, watch: Watch = SILENT, **settings: object) -> TaskScores:
    return score_retrieval(system, data, settings=MeasureSection.model_validate(settings), watch=watch)


def loops_of(system: System, queries: Sequence[str], similarity: str = "cosine") -> list[list[float]]:
    return all_scores(system.model, system.store, queries, similarity)


def pnd_of(scores: TaskScores, similarity: str = "cosine") -> tuple[float, float, int]:
    """Mean over queries, pooled, and pairs."""
    pairs = sample_of(scores, "PND pooled", similarity).reference
    assert pairs is not None
    return figure(scores, "PND", similarity), figure(scores, "PND pooled", similarity), int(pairs.sum())


def pnd_by_loops(
    table: Sequence[Sequence[float]], data: AddressedSet, others: Sequence[Sequence[int]]
) -> tuple[float, float, int]:
    """Mean over queries, pooled, and pairs."""
    near = [data.positives[query].tolist() for query in range(len(table))]
    counts = [errors_and_pairs(*of) for of in zip(table, near, others, strict=True)]
    errors, pairs = zip(*counts, strict=True)
    return (*discrepancy_by_loops(errors, pairs), sum(pairs))


STORE_POSITIVES = [[3], [0, 7, 12], [7, 3], [19], [5, 6], [11]]
LISTED_POSITIVES = [[3], [0, 7], [2], [19], [5, 6, 8], [11]]
LISTED_NEGATIVES = [[7, 1], [11, 4, 5], [9], [0, 1, 2, 3], [10, 3], [3, 12]]


def others_of(store: Store, data: AddressedSet, *, left_out: dict[int, int] | None = None) -> list[list[int]]:
    """All documents but a query's positives, and but the one that has its id."""
    every = []
    for query in range(len(data)):
        aside = {*data.positives[query].tolist(), (left_out or {}).get(query)}
        every.append([row for row in range(store.count) if row not in aside])
    return every


@pytest.mark.parametrize("seed", [1, 2])
def test_pnd_against_the_whole_store_equals_loops_with_ties_and_several_positives(
    system: System, seed: int
) -> None:
    asking = DualEncoder(tiny_encoder(seed=seed), system.model.document, "asking")
    data = examples(STORE_POSITIVES)
    scores = scored(System(asking, system.store), data)
    table = all_scores(asking, system.store, data.queries)
    assert pnd_of(scores) == pytest.approx(pnd_by_loops(table, data, others_of(system.store, data)))
    assert (scores.task, scores.kind, scores.unit) == ("set", "retrieval", "query")
    assert (scores.units, scores.texts, scores.documents) == (data.query_ids, data.queries, 20)


def test_a_document_that_ties_with_a_positive_is_an_error_and_a_second_positive_is_none(
    system: System,
) -> None:
    # Row 3 ties with 7 and 11. Alone it has at least two errors; with both beside it as positives, two fewer.
    table = loops_of(system, QUERIES[:1])[0]
    above = sum(score > table[3] for score in table)
    assert figure(scored(system, examples([[3]])), "PND pooled") == pytest.approx((above + 2) / 19)
    assert figure(scored(system, examples([[3, 7, 11]])), "PND pooled") == pytest.approx(above / 17)


def test_rank_measures_equal_a_full_ranking_with_ties_against_the_relevant(system: System) -> None:
    grades = [[1], [2, 1, 3], [1, 1], [4], [1, 2], [1]]
    data = examples(STORE_POSITIVES, grades=grades)
    scores, table = scored(system, data, report=MEASURES), loops_of(system, QUERIES)
    for query, positives in enumerate(STORE_POSITIVES):
        graded = dict(zip(positives, grades[query], strict=True))
        by_hand = rank_measures_by_loops(table[query], graded, range(20))
        assert {name: sample_of(scores, name).values[query] for name in MEASURES} == pytest.approx(by_hand)


def test_of_positives_that_tie_the_lower_grade_comes_first(system: System) -> None:
    for order in ([3, 7, 11], [11, 3, 7], [7, 11, 3]):
        grades = [{3: 1, 7: 3, 11: 2}[row] for row in order]
        scores = scored(system, examples([order], grades=[grades]))
        table = loops_of(system, QUERIES[:1])[0]
        by_hand = rank_measures_by_loops(table, {3: 1, 7: 3, 11: 2}, range(20))
        assert sample_of(scores, "nDCG@10").values[0] == pytest.approx(by_hand["nDCG@10"])


def test_the_document_with_the_querys_own_id_is_left_out_by_its_id_alone_only_where_asked(
    system: System,
) -> None:
    # d4 and d3 are documents; d3 is a positive of its own query and stays.
    data = examples([[0], [3], [5]], ids=["d4", "d3", "q"])
    dropped, kept = (scored(system, data, report=MEASURES, drop_same_id=drop) for drop in (True, False))
    table = loops_of(system, data.queries)
    for scores, left_out in ((dropped, {0: 4}), (kept, {})):
        others = others_of(system.store, data, left_out=left_out)
        assert pnd_of(scores) == pytest.approx(pnd_by_loops(table, data, others))
        for query, near in enumerate((0, 3, 5)):
            by_hand = rank_measures_by_loops(table[query], {near: 1}, [*others[query], near])
            assert sample_of(scores, "RR").values[query] == pytest.approx(by_hand["RR"])
    assert pnd_of(dropped)[2] == pnd_of(kept)[2] - 1
    assert "1 document left out of the ranking of the query that has the same id" in dropped.notes
    assert not any("same id" in note for note in kept.notes)
    # Left to itself, it ranks a document of the same id and another text, and says so.
    said: list[str] = []
    left = scored(system, data, watch=Watch(note=said.append))
    assert pnd_of(left) == pnd_of(kept)
    assert said == [
        "set: 1 document with the id of a query and another text, ranked like all others; "
        "drop_same_id = true leaves documents out by their id alone"
    ]


def test_a_query_that_is_a_document_is_left_out_with_a_title_before_it_or_without(system: System) -> None:
    # d4 and d5 read as their queries do, d5 but for its first word as a title; d9 ends alike in the middle of
    # a word.
    texts = [TEXTS[4], TEXTS[5].partition(" ")[2], TEXTS[9][1:], TEXTS[3]]
    data = replace(examples([[0], [1], [2], [3]], ids=["d4", "d5", "d9", "d3"]), queries=texts)
    left = scored(system, data)
    others = others_of(system.store, data, left_out={0: 4, 1: 5})
    assert pnd_of(left) == pytest.approx(pnd_by_loops(loops_of(system, texts), data, others))
    assert "2 documents left out of the ranking of the query that has the same id and text" in left.notes


def test_what_judges_found_irrelevant_is_ranked_with_the_whole_corpus_unless_candidates_are_asked_for(
    system: System,
) -> None:
    listed = examples(LISTED_POSITIVES, negatives=LISTED_NEGATIVES)
    judged = replace(listed, is_judged=True)
    whole, of_store = (scored(system, judged, negatives=which) for which in ("auto", "store"))
    assert (whole.kind, pnd_of(whole)) == ("retrieval", pnd_of(of_store))
    candidates = scored(system, judged, negatives="listed")
    assert (candidates.kind, pnd_of(candidates)) == ("triplets", pnd_of(scored(system, listed)))


def test_measures_look_no_further_than_the_depth_and_pnd_does(system: System) -> None:
    table = loops_of(system, QUERIES[:1])[0]
    last = min(range(system.documents.count), key=table.__getitem__)
    shallow = scored(system, examples([[last]]), depth=5, report=("RR",))
    assert (figure(shallow, "RR"), figure(shallow, "PND")) == (0, 1)
    assert any("first 5" in note for note in shallow.notes)


def test_a_cutoff_beyond_the_depth_is_searched_to(system: System) -> None:
    table = loops_of(system, QUERIES[:1])[0]
    last = min(range(system.documents.count), key=table.__getitem__)
    scores = scored(system, examples([[last]]), depth=5, report=("R@5", "R@20"))
    assert (figure(scores, "R@5"), figure(scores, "R@20")) == (0, 1)
    assert any("first 20" in note for note in scores.notes)


@pytest.mark.parametrize("positives", [[3], [3, 7]], ids=["one positive", "two that tie"])
def test_a_tie_across_the_depth_is_lost(system: System, positives: list[int]) -> None:
    # Rows 3, 7 and 11 tie: a ranking cut within the tie holds the lower rows, which are the positives, by
    # accident.
    table = loops_of(system, QUERIES[:1])[0]
    above = sum(score > table[3] for score in table)
    ties_lost = 3 - len(positives)
    for extra in range(3):
        scores = scored(system, examples([positives]), depth=above + 1 + extra, report=("RR",))
        reached = 0 if extra < ties_lost else 1 / (above + ties_lost + 1)
        assert figure(scores, "RR") == pytest.approx(reached)


def test_listed_pairs_equal_loops(system: System) -> None:
    data = examples(LISTED_POSITIVES, negatives=LISTED_NEGATIVES)
    scores, table = scored(system, data, report=MEASURES), loops_of(system, data.queries)
    assert pnd_of(scores) == pytest.approx(pnd_by_loops(table, data, LISTED_NEGATIVES))
    for query, positives in enumerate(LISTED_POSITIVES):
        by_hand = rank_measures_by_loops(
            table[query], dict.fromkeys(positives, 1), positives + LISTED_NEGATIVES[query]
        )
        assert {name: sample_of(scores, name).values[query] for name in MEASURES} == pytest.approx(by_hand)
    assert scores.kind == "triplets"
    assert "positives are compared with listed negatives" in scores.notes


def test_measures_that_no_order_of_the_listed_candidates_changes_are_left_out(system: System) -> None:
    """The longest list has five candidates."""
    listed = examples(LISTED_POSITIVES, negatives=LISTED_NEGATIVES)
    scores = scored(system, listed, report=("Recall@100", "R@4", "RR@10", "Judged@2", "P@5"))
    assert [sample.measure for sample in scores.samples] == ["PND", "PND pooled", "R@4", "RR@10"]
    note = "left out, since so few listed candidates cannot change it: Recall@100, Judged@2, P@5"
    assert note in scores.notes
    whole = [sample.measure for sample in scored(system, examples(STORE_POSITIVES)).samples]
    assert whole == ["nDCG@10", "Recall@100", "RR@10", "PND", "PND pooled"]


def test_queries_without_listed_negatives_are_left_out_and_counted(system: System) -> None:
    some = examples(LISTED_POSITIVES, negatives=[[], *LISTED_NEGATIVES[1:4], [], LISTED_NEGATIVES[5]])
    scores, table = scored(system, some), loops_of(system, some.queries)
    assert (scores.units, scores.texts) == (
        [f"q{n}" for n in (1, 2, 3, 5)],
        [QUERIES[n] for n in (1, 2, 3, 5)],
    )
    for place, query in enumerate((1, 2, 3, 5)):
        wrong, pairs = errors_and_pairs(table[query], LISTED_POSITIVES[query], LISTED_NEGATIVES[query])
        assert sample_of(scores, "PND").values[place] == pytest.approx(wrong / pairs)
    assert "2 of 6 queries list no negatives and were left out, 4 are measured" in scores.notes


@pytest.mark.parametrize(("listing", "kind", "queries"), [(2, "retrieval", 6), (3, "triplets", 3)])
def test_listed_negatives_are_chosen_only_where_at_least_half_of_the_queries_list_some(
    system: System, listing: int, kind: str, queries: int
) -> None:
    some = examples(LISTED_POSITIVES, negatives=[*LISTED_NEGATIVES[:listing], *[[]] * (6 - listing)])
    scores = scored(system, some)
    assert (scores.kind, len(scores.units)) == (kind, queries)
    said = "only 2 of 6 queries list negatives, too few to measure with: all 6 are measured without them"
    assert (said in scores.notes) == (kind == "retrieval")
    assert len(scored(system, some, negatives="listed").units) == listing


def test_no_listed_negatives_at_all_mean_the_store_unless_listed_ones_were_asked_for(system: System) -> None:
    bare = examples(LISTED_POSITIVES)
    assert scored(system, bare).kind == "retrieval"
    told = "^set: measure.negatives must be store or auto .*, got listed; set measure.negatives = store$"
    with pytest.raises(DataError, match=told):
        scored(system, bare, negatives="listed")


@pytest.mark.parametrize("negatives", [None, LISTED_NEGATIVES], ids=["store", "listed"])
def test_without_normalising_every_similarity_is_measured(
    make_store: Callable[..., Store], negatives: list[list[int]] | None
) -> None:
    # With this seed the norms differ enough for distance and cosine to rank differently, whatever a machine
    # rounds.
    loose = tiny_dual(seed=9, settings=EncoderSettings(max_tokens=64, normalize=False))
    system = System(loose, make_store(loose, TEXTS))
    data = examples(LISTED_POSITIVES, negatives=negatives)
    scores = scored(system, data)
    assert similarities_of(loose) == ("cosine", "distance", "dot")
    for similarity in similarities_of(loose):
        table = loops_of(system, data.queries, similarity)
        by_loops = pnd_by_loops(table, data, negatives or others_of(system.store, data))
        assert pnd_of(scores, similarity) == pytest.approx(by_loops)
    if not negatives:
        assert figure(scores, "PND", "cosine") != figure(scores, "PND", "distance")
    assert not any("unit length" in note for note in scores.notes)


def test_with_both_sides_normalised_only_cosine_is_measured_and_the_notes_say_why(system: System) -> None:
    found = {}
    for wanted in (None, ("distance", "cosine")):
        options = {"settings": MeasureSection(), "similarities": wanted}
        scores = score_retrieval(system, examples([[1]]), **options)
        measured = tuple(dict.fromkeys(one.similarity for one in scores.samples))
        found[wanted] = (measured, UNIT_LENGTH in scores.notes)
    assert similarities_of(system.model) == ("cosine",)
    assert found == {None: (("cosine",), True), ("distance", "cosine"): (("distance", "cosine"), False)}


@pytest.mark.parametrize("side", ["query", "document"])
def test_one_side_that_does_not_normalise_is_enough_for_all(side: str) -> None:
    loose = tiny_encoder(seed=1, settings=EncoderSettings(max_tokens=64, normalize=False))
    unit = tiny_encoder(seed=1)
    towers = (loose, unit) if side == "query" else (unit, loose)
    assert similarities_of(DualEncoder(*towers, "mixed")) == ("cosine", "distance", "dot")
    stated = DualEncoder(*towers, "mixed", {"similarity_fn_name": "dot"})
    assert similarities_of(stated) == ("dot", "cosine", "distance")


@pytest.mark.parametrize("negatives", [None, LISTED_NEGATIVES], ids=["store", "listed"])
def test_a_result_is_made_from_scores_before_and_after(
    system: System, negatives: list[list[int]] | None
) -> None:
    data = examples(LISTED_POSITIVES, negatives=negatives)
    after = scored(system, data)
    other = DualEncoder(tiny_encoder(seed=2), system.model.document, "before")
    before = scored(System(other, system.store), data)
    result = dataset_result([after], before, None, role="retain", seed=0, resamples=200)
    assert (result.name, result.role, result.queries, result.documents) == ("set", "retain", 6, 20)
    assert (result.kind, result.main) == (("pairs", "PND") if negatives else ("ranking", "nDCG@10"))
    assert result.pairs == pnd_of(after)[2]
    assert result.units == 6
    for change in result.changes:
        assert change.after == pytest.approx(figure(after, change.measure))
        assert change.before == pytest.approx(figure(before, change.measure))
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
    rows = []
    for number, (near, far) in enumerate(ladders):
        listed = tuple(f"d{row}" for row in far)
        rows.append(Example(f"q{number}", f"what is {'abcd'[number]}", (f"d{near}",), listed))
    return address(ExampleSet("papers", tuple(rows), **options), ladder_store, merge_equal=True)


def lost_by_loops(table: Sequence[Sequence[float]]) -> list[list[float]]:
    """Whether each listed negative is as close as its query's positive."""
    rows = zip(table, LADDERS, strict=True)
    return [[float(scores[row] >= scores[near]) for row in far] for scores, (near, far) in rows]


def test_every_number_is_compared_as_loops_compare_it(
    model: DualEncoder, ladder_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = laddered(ladder_store)
    table = all_scores(model, ladder_store, data.queries)
    expected = lost_by_loops(table)
    monkeypatch.setattr(ranking, "QUERIES_PER_BLOCK", 3)
    scores = score_retrieval(System(model, ladder_store), data, settings=MeasureSection())
    assert [sample.measure for sample in scores.ladder] == [f"PND, negative {place}" for place in (1, 2, 3)]
    found = np.stack([sample.values for sample in scores.ladder], axis=1)
    assert found.tolist() == expected
    assert found[2, 0] == 1
    assert 0 < found.sum() < found.size


def test_there_is_no_ladder_where_lists_differ_in_length_or_nothing_is_listed(
    model: DualEncoder, ladder_store: Store
) -> None:
    assert laddered(ladder_store, [*LADDERS[:3], (9, (10, 0))]).negative_columns is None
    assert laddered(ladder_store, [(near, far[:1]) for near, far in LADDERS]).negative_columns is None
    two = laddered(ladder_store, [(near, far[:2]) for near, far in LADDERS]).negative_columns
    assert two is not None
    assert two.shape == (len(LADDERS), 2)
    assert laddered(ladder_store, is_judged=True).negative_columns is None
    assert not scored(System(model, ladder_store), laddered(ladder_store), negatives="store").ladder


def test_the_curve_stands_in_the_result_and_on_its_page_without_verdicts_where_the_model_was_trained_on_it(
    model: DualEncoder, ladder_store: Store
) -> None:
    before = DualEncoder(tiny_encoder(seed=2), model.document, "before")
    data = Dataset(ladder_store, laddered(ladder_store), "target")
    settings = EvaluateSettings.model_validate({"measure": {"resamples": 100}})
    about = {"settings": settings, "title": "A title", "command": "adiabat evaluate", "watch": SILENT}
    result = evaluate_datasets(model, before, [data], **about)
    (found,) = result.datasets
    shares = np.mean(lost_by_loops(all_scores(before, ladder_store, data.examples.queries)), axis=0)
    assert [change.before for change in found.ladder] == pytest.approx(shares.tolist())
    page, without = (
        html_of(each) for each in (result, replace(result, datasets=[replace(found, ladder=[])]))
    )
    assert "Errors by listed negative: papers" in page
    assert "PND, negative 3" in page
    assert "Errors by listed negative" not in without
    trained = TrainedTexts.of(data.examples.queries)
    seen = evaluate_datasets(model, before, [data], trained=[trained, None], **about).datasets[0]
    assert {change.verdict for change in (*seen.changes, *seen.ladder)} == {"undecided"}


# Data and vectors that cannot be measured, or only just.


def test_where_every_score_ties_every_pair_is_lost(
    model: DualEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = asked([[0], [3, 4], [11]])
    give(monkeypatch, {query: [1.0, 2.0, 3.0, 4.0] for query in data.queries})
    store = imported_store(tmp_path, np.tile([0.6, 0.8, 0.0, 0.0], (12, 1)))
    scores = scored(System(model, store), data, depth=8, report=MEASURES)
    # Twelve documents, of which the first eight are looked at: the positives are the last of all.
    lost = {"PND": 1.0, "PND pooled": 1.0, "nDCG@10": 0.0, "RR": 0.0, "AP": 0.0, "P@1": 0.0}
    assert {name: figure(scores, name) for name in lost} == lost


def test_a_query_of_a_zero_vector_ties_with_everything(
    model: DualEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = asked([[0]])
    give(monkeypatch, {data.queries[0]: [0.0, 0.0]})
    store = imported_store(tmp_path, np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]))
    assert figure(scored(System(model, store), data), "PND") == 1.0


@pytest.mark.parametrize("row", [2, 7], ids=["a positive", "another document"])
def test_stored_vectors_that_are_no_numbers_are_named(system: System, tmp_path: Path, row: int) -> None:
    store = system.store
    shutil.copytree(store.path, tmp_path / "damaged")
    damaged = Store.open(tmp_path / "damaged")
    with (tmp_path / "damaged" / VECTOR_FILE).open("r+b") as file:
        file.seek(HEADER_BYTES + row * store.manifest.row_bytes)
        file.write(np.full(store.width, np.nan, dtype=store.dtype).tobytes())
    told = f'damaged must hold finite vectors, got NaN or infinity for "d{row}"; it is damaged: rebuild'
    with pytest.raises(StoreError, match=told):
        scored(System(system.model, damaged), asked([[2]]))


def test_a_store_of_one_document_has_nothing_to_compare_with(
    model: DualEncoder, make_store: Callable[..., Store]
) -> None:
    told = "set: the corpus must hold documents beside the positives .*, got 1 in all; name a larger one"
    with pytest.raises(DataError, match=told):
        scored(System(model, make_store(model, TEXTS[:1])), asked([[0]]))


def test_a_query_that_everything_answers_weighs_nothing_beside_others(system: System) -> None:
    pnd = sample_of(scored(system, asked([list(range(20)), [3]])), "PND")
    assert pnd.reference is not None
    assert pnd.reference.tolist() == [0.0, 1.0]
    assert value_of(pnd)[0] == pnd.values[1]


# All figures against pytrec_eval, ir-measures and scikit-learn on the run written out.

TREC = {"nDCG@10": "ndcg_cut_10", "nDCG": "ndcg", "AP": "map", "AP@30": "map_cut_30"}
TREC |= {"RR": "recip_rank", "P@5": "P_5", "R@30": "recall_30"}
JUDGED = ("Judged@10", "Judged@3", "Success@5", "RR@10", "Recall@100")
Case = tuple[TaskScores, AddressedSet, np.ndarray, bool]
DOCUMENTS, ASKED, WIDTH = 60, 25, 8


def vectors(seed: int, count: int, *, tied: bool) -> np.ndarray:
    """Of unit length; where they may tie, most of them come several times."""
    generator = np.random.default_rng(seed)
    drawn = generator.standard_normal((count // 4 if tied else count, WIDTH)).astype(np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return drawn[generator.integers(0, len(drawn), count)] if tied else drawn


def judged_data(seed: int) -> AddressedSet:
    generator = np.random.default_rng(seed)

    def drawn(most: int) -> list[int]:
        return generator.permutation(DOCUMENTS)[:most].tolist()

    positives = [drawn(generator.integers(1, 9)) for _ in range(ASKED)]
    grades = [generator.integers(1, 4, len(one)).tolist() for one in positives]
    irrelevant = [[row for row in drawn(12) if row not in near] for near in positives]
    return replace(asked(positives, grades=grades, negatives=irrelevant), is_judged=True)


@pytest.fixture(params=[False, True], ids=["no ties", "ties"])
def case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    """Scores by a model of given vectors, the data, the cosine of every query and document, and whether some
    are equal.
    """
    tied = bool(request.param)
    documents, queries, data = (
        vectors(1, DOCUMENTS, tied=tied),
        vectors(2, ASKED, tied=False),
        judged_data(3),
    )
    give(monkeypatch, dict(zip(data.queries, queries.tolist(), strict=True)))
    settings = MeasureSection(report=(*TREC, *JUDGED), depth=DOCUMENTS)
    scores = score_retrieval(
        System(tiny_dual(), imported_store(tmp_path, documents)), data, settings=settings
    )
    # Element by element, so that equal documents score equal: a product of matrices may add in another order.
    table = (queries.astype(np.float64)[:, None] * documents.astype(np.float64)).sum(axis=2)
    return scores, data, table / np.linalg.norm(documents.astype(np.float64), axis=1), tied


def test_every_rank_measure_of_every_query_is_that_of_trec_eval(case: Case) -> None:
    scores, data, table, tied = case
    run, qrels = {}, {}
    for query, query_id in enumerate(data.query_ids):
        run[query_id] = {f"d{row}": float(score) for row, score in enumerate(table[query])}
        grades = zip(data.positives[query], data.grades[query], strict=True)
        qrels[query_id] = {f"d{row}": int(grade) for row, grade in grades}
    assert (len(np.unique(table)) < table.size) == tied
    judge = pytrec_eval.RelevanceEvaluator(qrels, set(TREC.values()))
    judged = judge.evaluate(pessimistic_run(run, qrels) if tied else run)
    for name, theirs in TREC.items():
        ours = sample_of(scores, name).values
        assert ours.tolist() == [judged[query_id][theirs] for query_id in data.query_ids], name


def test_measures_of_all_judged_documents_are_those_of_ir_measures(case: Case) -> None:
    """Of documents that tie, unjudged ones come first, relevant ones last."""
    scores, data, table, _ = case
    run, qrels = {}, {}
    for query, query_id in enumerate(data.query_ids):
        grades = dict(zip(data.positives[query].tolist(), data.grades[query].tolist(), strict=True))
        judged = dict.fromkeys(data.negatives[query].tolist(), 0) | grades
        order = sorted(range(DOCUMENTS), key=lambda row: (-table[query][row], judged.get(row, -1)))
        run[query_id] = {f"d{row}": float(DOCUMENTS - place) for place, row in enumerate(order)}
        qrels[query_id] = {f"d{row}": int(grade) for row, grade in judged.items()}
    for name in JUDGED:
        metrics = ir_measures.iter_calc([ir_measures.parse_measure(name)], qrels, run)
        theirs = {metric.query_id: metric.value for metric in metrics}
        ours = sample_of(scores, name).values
        assert ours == pytest.approx([theirs[query_id] for query_id in data.query_ids], abs=1e-12), name
    assert len(set(sample_of(scores, "Judged@10").values.tolist())) > 3


def test_pnd_is_one_minus_the_area_under_the_curve_where_half_of_the_ties_are_added(case: Case) -> None:
    """The area counts a tie as half in order: ``1 - AUC = (errors - ties / 2) / (p n)``, so ``PND = 1 - AUC +
    ties / (2 p n)``.
    """
    scores, data, table, tied = case
    ours, all_ties = sample_of(scores, "PND").values, 0
    for query, row in enumerate(table.astype(np.float32)):
        relevant = np.isin(np.arange(DOCUMENTS), data.positives[query])
        ties = int((row[relevant][:, None] == row[~relevant][None]).sum())
        halves = ties / (2 * relevant.sum() * (~relevant).sum())
        assert ours[query] == pytest.approx(1 - roc_auc_score(relevant, row) + halves, abs=1e-12)
        all_ties += ties
    assert (all_ties > 0) == tied
