import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import TranslationEvaluator

from adiabat.core.errors import DataError
from adiabat.core.progress import SILENT, Watch
from adiabat.data.labelled import ParallelTexts
from adiabat.evaluation.similarity import finds_translation, score_bitext
from adiabat.models.saving import save
from adiabat.stats.samples import TaskScores
from adiabat.stats.statistics import value_of
from adiabat.store.scoring import FixedPoint, exact_table
from tests.evaluation.given_vectors import give, sentences
from tests.stats.brute_force import pair_score
from tests.tiny import tiny_dual


def parallel(count: int) -> ParallelTexts:
    """Made-up translations: the same words in capitals, so that a random model finds some of them."""
    a = sentences(count, seed=1)
    return ParallelTexts("made up", a, [text.upper() for text in a], ("en", "de"))


def values(scores: TaskScores) -> dict[str, float]:
    return {sample.measure: float(value_of(sample)[0]) for sample in scores.samples}


def by_loops(queries: np.ndarray, answers: np.ndarray, texts: list[str], similarity: str) -> list[bool]:
    found = []
    for row, query in enumerate(queries.astype(np.float64)):
        scores = [pair_score(query, answer, similarity) for answer in answers.astype(np.float64)]
        found.append(
            all(score < scores[row] for score, text in zip(scores, texts, strict=True) if text != texts[row])
        )
    return found


def test_bitext_worked_by_hand(monkeypatch):
    vectors = {
        "one": [1, 0],
        "two": [0, 1],
        "three": [1, 1],
        "eins": [2, 0.1],
        "zwei": [1, 0.9],
        "drei": [0, 3],
    }
    give(monkeypatch, {text: [float(x) for x in vector] for text, vector in vectors.items()})
    # "two" is nearest to "drei", "three" to "zwei": one of three is found. From the other side "eins" finds
    # "one" alone, too.
    pairs = ParallelTexts("hand", ["one", "two", "three"], ["eins", "zwei", "drei"], ("en", "de"))
    scores = score_bitext(tiny_dual(), pairs, side="query", name="hand", watch=SILENT)
    assert scores.samples[1].values.tolist() == [1, 0, 0]
    assert values(scores) == pytest.approx(
        {"accuracy": 1 / 3, "accuracy a to b": 1 / 3, "accuracy b to a": 1 / 3}
    )
    assert {sample.similarity for sample in scores.samples} == {"cosine"}
    assert (scores.kind, scores.unit, scores.documents, list(scores.units)) == (
        "bitext",
        "pair",
        3,
        ["0", "1", "2"],
    )
    assert scores.texts[1] == "two\nzwei"
    assert scores.notes == ('a is "en", b is "de"; a tie with another sentence is an error',)


def test_the_two_ways_differ_and_their_mean_is_taken_pair_by_pair(monkeypatch):
    vectors = {"one": [1, 0.2], "two": [1, 0.3], "eins": [1, 0], "zwei": [1, 0.29]}
    give(monkeypatch, {text: [float(x) for x in vector] for text, vector in vectors.items()})
    # "one" lies nearer to "zwei" than to "eins"; seen from there, everything is found.
    pairs = ParallelTexts("hand", ["one", "two"], ["eins", "zwei"], ("en", "de"))
    scores = score_bitext(tiny_dual(), pairs, side="query", name="hand", watch=SILENT)
    assert [sample.values.tolist() for sample in scores.samples] == [[0.5, 1], [0, 1], [1, 1]]


def test_bitext_equals_the_evaluator_of_sentence_transformers(tmp_path):
    pairs, model = parallel(60), tiny_dual(seed=5)
    save(model, tmp_path)
    judge = TranslationEvaluator(list(pairs.a), list(pairs.b), write_csv=False)
    peer = judge(SentenceTransformer(str(tmp_path), device="cpu"))
    mine = values(score_bitext(model, pairs, side="query", name="peer", watch=SILENT))
    assert 0 < mine["accuracy"] < 1
    assert mine == pytest.approx(
        {
            "accuracy": peer["mean_accuracy"],
            "accuracy a to b": peer["src2trg_accuracy"],
            "accuracy b to a": peer["trg2src_accuracy"],
        }
    )


def test_turning_the_sides_round_turns_the_ways_round():
    pairs, model = parallel(30), tiny_dual(seed=5, shared=False)
    turned = ParallelTexts("turned", pairs.b, pairs.a, ("de", "en"))
    one, two = (
        values(score_bitext(model, data, side="document", name="x", watch=SILENT)) for data in (pairs, turned)
    )
    assert (one["accuracy"], one["accuracy a to b"]) == (two["accuracy"], two["accuracy b to a"])


@pytest.mark.parametrize("similarity", ["cosine", "dot", "distance"])
@pytest.mark.parametrize(("block_rows", "tile_rows"), [(4096, 256), (7, 5), (1, 30), (100, 3)])
def test_blocks_change_nothing_and_plain_loops_find_the_same(block_rows, tile_rows, similarity):
    generator = np.random.default_rng(0)
    answers = generator.standard_normal((60, 6)).astype(np.float32)
    queries = (answers + 0.6 * generator.standard_normal(answers.shape)).astype(np.float32)
    texts = [f"text {number}" for number in range(60)]
    told: list[tuple[str, int, int]] = []
    watch = Watch(progress=lambda *state: told.append(state))
    sizes = {"block_rows": block_rows, "tile_rows": tile_rows}
    found = finds_translation(queries, answers, texts, similarity=similarity, name="x", watch=watch, **sizes)
    assert found.tolist() == by_loops(queries, answers, texts, similarity)
    assert 0 < found.sum() < 60
    assert told[-1] == ("matching x", 60, 60)


def test_answers_too_close_for_quick_products_are_told_apart_exactly():
    generator = np.random.default_rng(0)
    # All cosines lie within 1e-5 of one another: the bound on the quick products leaves every pair open.
    answers = (1 + 1e-3 * generator.standard_normal((40, 16))).astype(np.float32)
    queries = (answers + 1e-3 * generator.standard_normal(answers.shape)).astype(np.float32)
    exact = exact_table(FixedPoint.of(queries), FixedPoint.of(answers), "cosine")
    wanted = [(row[number] > np.delete(row, number)).all() for number, row in enumerate(exact)]
    found = finds_translation(
        queries, answers, [str(number) for number in range(40)], block_rows=16, tile_rows=16
    )
    assert found.tolist() == wanted
    assert 0 < found.sum() < 40


def test_equal_sentences_are_one_answer_and_other_ties_are_errors():
    vectors = np.array([[1, 0], [1, 0], [0, 1]], dtype=np.float32)
    assert finds_translation(vectors, vectors, ["same", "same", "other"]).tolist() == [True, True, True]
    assert finds_translation(vectors, vectors, ["same", "twin", "other"]).tolist() == [False, False, True]


def test_a_tie_is_a_tie_wherever_the_sentences_stand():
    generator = np.random.default_rng(0)
    answers = generator.standard_normal((50, 33)).astype(np.float32)
    answers[37] = answers[4]
    texts = [str(number) for number in range(50)]
    for block_rows in (50, 13, 1):
        found = finds_translation(answers, answers, texts, block_rows=block_rows)
        assert np.flatnonzero(~found).tolist() == [4, 37]


def test_repeated_sentences_are_noted_with_their_language():
    pairs = ParallelTexts("twice", ["one", "two", "three"], ["eins", "zwei", "zwei"], ("en", "de"))
    scores = score_bitext(tiny_dual(), pairs, side="query", name="twice", watch=SILENT)
    assert scores.notes[1:] == ('1 of 3 sentences of "de" repeat another: equal sentences are one answer',)


def test_a_zero_vector_is_refused_with_its_sentence(monkeypatch):
    give(monkeypatch, {"one": [1.0, 0.0], "two": [0.0, 0.0], "eins": [1.0, 0.0], "zwei": [0.0, 1.0]})
    pairs = ParallelTexts("zero", ["one", "two"], ["eins", "zwei"], ("en", "de"))
    with pytest.raises(DataError, match="zero: vectors must not be zero.*'two'"):
        score_bitext(tiny_dual(), pairs, side="query", name="zero", watch=SILENT)
