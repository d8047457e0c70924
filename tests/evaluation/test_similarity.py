"""Similarities of pairs and what is made of them, worked by hand and against scipy, scikit-learn and
sentence-transformers.
"""

import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import (
    BinaryClassificationEvaluator,
    EmbeddingSimilarityEvaluator,
    TranslationEvaluator,
)
from sklearn.metrics import average_precision_score
from tokenizers import Tokenizer
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import Unigram, WordLevel
from tokenizers.pre_tokenizers import Metaspace, Whitespace
from transformers import PreTrainedTokenizerFast

from adiabat.core.errors import DataError
from adiabat.core.progress import SILENT, Watch
from adiabat.data.labelled import LabelledPairs, ParallelTexts, ScoredPairs
from adiabat.evaluation.similarity import (
    best_thresholds,
    finds_translation,
    pair_similarities,
    score_bitext,
    score_pair_classification,
    score_sts,
    score_words,
    unknown_words,
)
from adiabat.evaluation.systems import UNIT_LENGTH
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.models.saving import save
from adiabat.models.towers import DualEncoder
from adiabat.stats.samples import TaskScores
from adiabat.stats.statistics import value_of
from adiabat.store.scoring import FixedPoint, exact_table
from tests.evaluation.given_vectors import give, sentences
from tests.stats.brute_force import pair_score
from tests.tiny import tiny_backbone, tiny_dual

RAW = EncoderSettings(max_tokens=64, normalize=False)
SIMILARITIES = ["cosine", "distance", "dot"]


def scored(scores: list[float], sets: list[str] | None = None) -> ScoredPairs:
    one, other = (sentences(len(scores), seed=seed) for seed in (1, 2))
    return ScoredPairs("pairs", one, other, np.array(scores), sets or [""] * len(scores))


def of(*pairs: tuple[str, str, float], sets: list[str] | None = None) -> ScoredPairs:
    a, b, scores = zip(*pairs, strict=True)
    return ScoredPairs("pairs", a, b, np.array(scores, dtype=np.float64), sets or [""] * len(pairs))


sts = partial(score_sts, side="query", name="sts", watch=SILENT)
words_of = partial(score_words, side="query", name="words", watch=SILENT)
classified = partial(score_pair_classification, side="query", name="pairs", watch=SILENT)


def values(scores: TaskScores) -> dict[str, float]:
    return {sample.similarity: float(value_of(sample)[0]) for sample in scores.samples}


def peer_of(model: DualEncoder, folder: Path) -> SentenceTransformer:
    save(model, folder)
    return SentenceTransformer(str(folder), device="cpu")


HAND = {"e": [1.0, 0.0], "n": [0.0, 2.0], "d": [3.0, 3.0], "o": [-1.0, 0.0]}


def test_similarities_worked_by_hand():
    a = np.array([HAND[word] for word in "eede"])
    b = np.array([HAND["n"], HAND["d"], HAND["d"], [0.0, 0.0]])
    assert pair_similarities(a, b, similarity="cosine").tolist() == pytest.approx([0, math.sqrt(0.5), 1, 0])
    assert pair_similarities(a, b, similarity="dot").tolist() == [0, 3, 18, 0]
    assert pair_similarities(a, b, similarity="distance").tolist() == pytest.approx(
        [-math.sqrt(5), -math.sqrt(13), 0, -1]
    )


def test_similarities_of_many_pairs_are_those_of_a_plain_loop_and_do_not_depend_on_the_order_of_a_pair():
    generator = np.random.default_rng(0)
    a, b = generator.standard_normal((2, 5000, 7)).astype(np.float32)
    for similarity in SIMILARITIES:
        scores = pair_similarities(a, b, similarity=similarity)
        wanted = [pair_score(one, other, similarity) for one, other in zip(a, b, strict=True)]
        np.testing.assert_allclose(scores, wanted, atol=1e-6)
        np.testing.assert_array_equal(scores, pair_similarities(b, a, similarity=similarity))


def test_sts_worked_by_hand(monkeypatch):
    give(monkeypatch, HAND)
    # Cosines -1, 0, 0.7, 1 rank as 1, 2, 3, 4; people rank 1, 3, 2, 4: rho = 1 - 6 * 2 / (4 * 15) = 0.8.
    pairs = of(("e", "o", 0), ("e", "n", 3), ("e", "d", 2), ("d", "d", 5))
    scores = sts(tiny_dual(), pairs, name="hand")
    assert values(scores) == {"cosine": pytest.approx(0.8)}
    assert (scores.task, scores.kind, scores.unit) == ("hand", "sts", "pair")
    assert list(scores.units) == ["0", "1", "2", "3"]
    assert scores.texts[1] == "e\nn"
    assert scores.notes == (UNIT_LENGTH,)
    assert scores.samples[0].measure == "Spearman"


def test_sts_equals_scipy_on_a_model_and_unit_vectors_have_cosine_alone():
    pairs = scored(np.random.default_rng(3).integers(0, 6, size=40).astype(float).tolist())
    model = tiny_dual(seed=4)
    scores = sts(model, pairs, side="document")
    encoded = (model.encode(texts, side="document", precision="fp32") for texts in (pairs.a, pairs.b))
    cosines = np.vecdot(*(vectors.astype(np.float64) for vectors in encoded))
    assert values(scores) == {"cosine": pytest.approx(spearmanr(cosines, pairs.scores).statistic, abs=1e-9)}


def test_sts_equals_the_evaluator_of_sentence_transformers(tmp_path):
    pairs = scored(np.random.default_rng(3).random(60).tolist())
    model = tiny_dual(seed=5, settings=RAW)
    names = ["cosine", "euclidean", "dot"]
    options = {"similarity_fn_names": names, "write_csv": False, "name": "peer"}
    peer = EmbeddingSimilarityEvaluator(pairs.a, pairs.b, pairs.scores, **options)(peer_of(model, tmp_path))
    mine = values(sts(model, pairs))
    assert list(mine) == SIMILARITIES
    theirs = [peer[f"peer_spearman_{name}"] for name in names]
    assert list(mine.values()) == pytest.approx(theirs, abs=1e-9)


def test_neither_the_order_of_pairs_nor_the_scale_of_peoples_scores_matters():
    pairs = scored(np.random.default_rng(3).random(30).tolist())
    model = tiny_dual(seed=4, settings=RAW)
    turned = ScoredPairs("pairs", pairs.a[::-1], pairs.b[::-1], np.exp(10 * pairs.scores[::-1]), pairs.sets)
    one, other = (values(sts(model, data)) for data in (pairs, turned))
    assert one == pytest.approx(other, abs=1e-12)


def test_a_zero_vector_is_refused_where_cosines_are_taken(monkeypatch):
    give(monkeypatch, {**HAND, "zero": [0, 0]})
    pairs = of(("e", "zero", 0), ("e", "n", 3))
    with pytest.raises(DataError, match="sts: vectors must not be zero.*'zero'"):
        sts(tiny_dual(), pairs)
    together = LabelledPairs("pairs", pairs.a, pairs.b, np.array([True, False]))
    with pytest.raises(DataError, match="pairs: vectors must not be zero.*'zero'"):
        classified(tiny_dual(), together)


def test_a_model_of_one_vector_is_told_that_it_ranks_nothing(monkeypatch):
    give(monkeypatch, {word: [1.0, 2.0] for word in HAND})
    pairs = of(("e", "n", 0), ("e", "d", 3), sets=["one", "one"])
    told = "sts: the model must find some pairs more similar than others.*got a cosine of 1 for all 2; check"
    with pytest.raises(DataError, match=told):
        sts(tiny_dual(), pairs)
    with pytest.raises(DataError, match="words: the model must find some pairs of one more similar"):
        words_of(tiny_dual(), pairs)


def test_words_are_the_mean_over_sets_whatever_their_sizes():
    sets = ["one"] * 10 + ["two"] * 25
    pairs = scored(np.random.default_rng(3).random(35).tolist(), sets)
    model = tiny_dual(seed=4)
    scores = words_of(model, pairs)
    alone = []
    for rows in (slice(0, 10), slice(10, 35)):
        part = ScoredPairs("part", pairs.a[rows], pairs.b[rows], pairs.scores[rows], pairs.sets[rows])
        alone.append(values(sts(model, part))["cosine"])
    assert values(scores)["cosine"] == pytest.approx(np.mean(alone), abs=1e-12)
    assert [scores.facts[f"Spearman: {name}"] for name in ("one", "two")] == pytest.approx(alone, abs=1e-12)
    assert scores.facts["out-of-vocabulary words"] == 0
    assert scores.notes == (UNIT_LENGTH, "the mean of the rank correlations of 2 sets: one, two")


def test_the_correlation_of_each_set_of_words_is_that_of_scipy(monkeypatch):
    give(monkeypatch, HAND)
    told = [("e", "o", 0), ("e", "n", 3), ("e", "d", 2), ("d", "d", 5)]
    told += [("n", "d", 1), ("o", "n", 1), ("o", "d", 4)]
    cosines = [-1, 0, math.sqrt(0.5), 1, math.sqrt(0.5), 0, -math.sqrt(0.5)]
    scores = words_of(tiny_dual(), of(*told, sets=["ws"] * 4 + ["rg"] * 3))
    people = [score for *_, score in told]
    wanted = [spearmanr(cosines[rows], people[rows]).statistic for rows in (slice(0, 4), slice(4, 7))]
    assert [scores.facts["Spearman: ws"], scores.facts["Spearman: rg"]] == pytest.approx(wanted, abs=1e-12)
    assert values(scores)["cosine"] == pytest.approx(sum(wanted) / 2, abs=1e-12)


def encoder_of(backend: Tokenizer) -> Encoder:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]")
    return Encoder(tiny_backbone(), tokenizer, EncoderSettings(max_tokens=16, query_prompt="cat "))


def whole_words(*words: str) -> Encoder:
    numbers = {token: number for number, token in enumerate(["[UNK]", "[PAD]", *words])}
    backend = Tokenizer(WordLevel(numbers, unk_token="[UNK]"))
    backend.pre_tokenizer = Whitespace()
    return encoder_of(backend)


def marked_pieces(*pieces: str) -> Encoder:
    """As SentencePiece has it: a mark stands before each word, by itself where the word is unknown."""
    backend = Tokenizer(Unigram([(piece, -1.0) for piece in ("[UNK]", "[PAD]", "▁", *pieces)], unk_id=0))
    backend.pre_tokenizer, backend.decoder = Metaspace(), MetaspaceDecoder()
    return encoder_of(backend)


def test_a_word_is_unknown_where_the_tokenizer_keeps_nothing_of_it():
    words = ["cat", "zebra", "dog zebra", "zebra", "lion", " "]
    assert unknown_words(whole_words("cat", "dog"), words) == ["zebra", "lion", " "]
    assert unknown_words(tiny_dual().query, ["zebra", "река", "\U0001f980"]) == []


def test_a_mark_before_an_unknown_word_does_not_make_it_known():
    encoder = marked_pieces("cat", "s")
    assert encoder.tokenizer.tokenize("u") == ["▁", "u"]
    assert encoder.tokenizer.convert_tokens_to_ids("u") == encoder.tokenizer.unk_token_id
    assert unknown_words(encoder, ["cat", "cats", "u", "猫"]) == ["u", "猫"]


def test_words_out_of_vocabulary_are_counted_told_and_scored(monkeypatch):
    encoder = whole_words("cat", "dog", "car")
    give(monkeypatch, {"cat": [1, 0], "dog": [1, 1], "car": [0, 1], "zebra": [0, 0], "lion": [2, 1]})
    pairs = of(
        ("cat", "dog", 3), ("cat", "car", 1), ("cat", "zebra", 1), ("zebra", "lion", 2), ("lion", "dog", 4)
    )
    scores = words_of(DualEncoder(encoder, encoder, "words"), pairs)
    assert scores.samples[0].values.tolist() == pytest.approx([math.sqrt(0.5), 0, 0, 0, 3 / math.sqrt(10)])
    assert scores.facts == {
        "out-of-vocabulary words": 2,
        "pairs with out-of-vocabulary words": 3,
        "words without a vector": 1,
        "pairs with words without a vector": 2,
    }
    assert scores.notes[1:] == (
        "2 of 5 words, in 3 pairs, are unknown to the tokenizer, which cannot tell them apart",
        "1 of 5 words, in 2 pairs, have a zero vector: their similarity counts as 0",
    )


def test_pair_classification_worked_by_hand(monkeypatch):
    give(monkeypatch, HAND)
    # Cosines 1, 0.7, 0, -1; the first and third belong together: AP = 1/2 * 1 + 1/2 * 2/3.
    together = np.array([True, False, True, False])
    scores = classified(tiny_dual(), LabelledPairs("pairs", list("deee"), list("ddno"), together))
    assert values(scores) == {"cosine": pytest.approx(5 / 6)}
    assert scores.facts == {
        "best accuracy by cosine": 0.75,
        "threshold of best accuracy by cosine": 1.0,
        "best F1 by cosine": pytest.approx(0.8),
        "threshold of best F1 by cosine": 0.0,
    }


def test_pair_classification_equals_scikit_learn_and_sentence_transformers(tmp_path):
    one, other = (sentences(60, seed=seed) for seed in (1, 2))
    together = np.random.default_rng(0).random(60) < 0.4
    model = tiny_dual(seed=5, settings=RAW)
    scores = classified(model, LabelledPairs("pairs", one, other, together))
    for sample in scores.samples:
        peer = average_precision_score(together, sample.values)
        assert values(scores)[sample.similarity] == pytest.approx(peer, abs=1e-12)
    names = {"cosine": "cosine", "dot": "dot", "distance": "euclidean"}
    labels = together.astype(int).tolist()
    judge = BinaryClassificationEvaluator(one, other, labels, similarity_fn_names=list(names.values()))
    judged = judge.compute_metrics(peer_of(model, tmp_path))
    for mine, theirs in names.items():
        best = [scores.facts[f"best {figure} by {mine}"] for figure in ("accuracy", "F1")]
        expected = [judged[theirs][figure] for figure in ("ap", "accuracy", "f1")]
        assert [values(scores)[mine], *best] == pytest.approx(expected, abs=1e-9)


def test_the_best_thresholds_are_those_of_a_plain_loop_over_all_similarities():
    generator = np.random.default_rng(0)
    for _ in range(50):
        together = generator.random(12) < generator.random()
        together[0] = True
        scores = generator.integers(0, 5, size=12) / 4 - 0.5
        best = best_thresholds(scores, together)
        accuracy, f1 = {}, {}
        for level in [*scores.tolist(), math.nextafter(max(scores), 2)]:
            above = scores >= level
            accuracy[level] = float((above == together).mean())
            f1[level] = 2 * (together & above).sum() / (together.sum() + above.sum())
        for name, values_of in (("accuracy", accuracy), ("F1", f1)):
            highest = max(values_of.values())
            assert best[f"best {name}"] == pytest.approx(highest)
            levels = [level for level in values_of if values_of[level] == highest]
            assert best[f"threshold of best {name}"] == max(levels)


# Translations.


def parallel(count: int) -> ParallelTexts:
    """Made-up translations: the same words in capitals, so that a random model finds some of them."""
    a = sentences(count, seed=1)
    return ParallelTexts("made up", a, [text.upper() for text in a], ("en", "de"))


bitext = partial(score_bitext, side="query", name="bitext", watch=SILENT)


def accuracies(scores: TaskScores) -> dict[str, float]:
    return {sample.measure: float(value_of(sample)[0]) for sample in scores.samples}


def by_loops(queries: np.ndarray, answers: np.ndarray, texts: list[str], similarity: str) -> list[bool]:
    found = []
    for row, query in enumerate(queries.astype(np.float64)):
        scores = [pair_score(query, answer, similarity) for answer in answers.astype(np.float64)]
        others = [score for score, text in zip(scores, texts, strict=True) if text != texts[row]]
        found.append(all(score < scores[row] for score in others))
    return found


def test_bitext_worked_by_hand(monkeypatch):
    english = {"one": [1.0, 0.0], "two": [0.0, 1.0], "three": [1.0, 1.0]}
    give(monkeypatch, english | {"eins": [2.0, 0.1], "zwei": [1.0, 0.9], "drei": [0.0, 3.0]})
    # "two" is nearest to "drei", "three" to "zwei": one of three is found. From the other side "eins" finds
    # "one" alone, too.
    pairs = ParallelTexts("hand", ["one", "two", "three"], ["eins", "zwei", "drei"], ("en", "de"))
    scores = bitext(tiny_dual(), pairs)
    assert scores.samples[1].values.tolist() == [1, 0, 0]
    measures = ("accuracy", "accuracy a to b", "accuracy b to a")
    assert accuracies(scores) == pytest.approx(dict.fromkeys(measures, 1 / 3))
    assert {sample.similarity for sample in scores.samples} == {"cosine"}
    assert (scores.kind, scores.unit, scores.documents) == ("bitext", "pair", 3)
    assert list(scores.units) == ["0", "1", "2"]
    assert scores.texts[1] == "two\nzwei"
    assert scores.notes == ('a is "en", b is "de"; a tie with another sentence is an error',)


def test_the_two_ways_differ_and_their_mean_is_taken_pair_by_pair(monkeypatch):
    give(monkeypatch, {"one": [1, 0.2], "two": [1, 0.3], "eins": [1, 0], "zwei": [1, 0.29]})
    # "one" lies nearer to "zwei" than to "eins"; seen from there, everything is found.
    pairs = ParallelTexts("hand", ["one", "two"], ["eins", "zwei"], ("en", "de"))
    scores = bitext(tiny_dual(), pairs)
    assert [sample.values.tolist() for sample in scores.samples] == [[0.5, 1], [0, 1], [1, 1]]


def test_bitext_equals_the_evaluator_of_sentence_transformers(tmp_path):
    pairs, model = parallel(60), tiny_dual(seed=5)
    judge = TranslationEvaluator(list(pairs.a), list(pairs.b), write_csv=False)
    peer = judge(peer_of(model, tmp_path))
    mine = accuracies(bitext(model, pairs))
    assert 0 < mine["accuracy"] < 1
    theirs = ["mean_accuracy", "src2trg_accuracy", "trg2src_accuracy"]
    names = ["accuracy", "accuracy a to b", "accuracy b to a"]
    assert [mine[name] for name in names] == pytest.approx([peer[name] for name in theirs])


def test_turning_the_sides_round_turns_the_ways_round():
    pairs, model = parallel(30), tiny_dual(seed=5, shared=False)
    turned = ParallelTexts("turned", pairs.b, pairs.a, ("de", "en"))
    one, two = (accuracies(bitext(model, data, side="document")) for data in (pairs, turned))
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
    texts = [str(number) for number in range(40)]
    found = finds_translation(queries, answers, texts, block_rows=16, tile_rows=16)
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
    scores = bitext(tiny_dual(), pairs)
    assert scores.notes[1:] == ('1 of 3 sentences of "de" repeat another: equal sentences are one answer',)


def test_a_zero_vector_is_refused_with_its_sentence(monkeypatch):
    give(monkeypatch, {"one": [1.0, 0.0], "two": [0.0, 0.0], "eins": [1.0, 0.0], "zwei": [0.0, 1.0]})
    pairs = ParallelTexts("zero", ["one", "two"], ["eins", "zwei"], ("en", "de"))
    with pytest.raises(DataError, match="zero: vectors must not be zero.*'two'"):
        bitext(tiny_dual(), pairs, name="zero")
