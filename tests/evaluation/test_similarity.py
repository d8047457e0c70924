import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import (
    BinaryClassificationEvaluator,
    EmbeddingSimilarityEvaluator,
)
from sklearn.metrics import average_precision_score
from tokenizers import Tokenizer
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import Unigram, WordLevel
from tokenizers.pre_tokenizers import Metaspace, Whitespace
from transformers import PreTrainedTokenizerFast

from adiabat.core.errors import DataError
from adiabat.core.progress import SILENT
from adiabat.data.labelled import LabelledPairs, ScoredPairs
from adiabat.evaluation.similarity import (
    best_thresholds,
    pair_similarities,
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
from tests.evaluation.given_vectors import give, sentences
from tests.tiny import tiny_backbone, tiny_dual

RAW = EncoderSettings(max_tokens=64, normalize=False)
SIMILARITIES = ["cosine", "distance", "dot"]


def scored(scores: list[float], sets: list[str] | None = None) -> ScoredPairs:
    count = len(scores)
    return ScoredPairs(
        "pairs", sentences(count, seed=1), sentences(count, seed=2), np.array(scores), sets or [""] * count
    )


def labelled(count: int) -> LabelledPairs:
    together = np.random.default_rng(0).random(count) < 0.4
    return LabelledPairs("pairs", sentences(count, seed=1), sentences(count, seed=2), together)


def of(*pairs: tuple[str, str, float], sets: list[str] | None = None) -> ScoredPairs:
    a, b, scores = zip(*pairs, strict=True)
    return ScoredPairs("pairs", a, b, np.array(scores, dtype=np.float64), sets or [""] * len(pairs))


def values(scores: TaskScores) -> dict[str, float]:
    return {sample.similarity: float(value_of(sample)[0]) for sample in scores.samples}


def peer_of(model: DualEncoder, folder: Path) -> SentenceTransformer:
    save(model, folder)
    return SentenceTransformer(str(folder), device="cpu")


HAND = {"e": [1.0, 0.0], "n": [0.0, 2.0], "d": [3.0, 3.0], "o": [-1.0, 0.0]}


def test_similarities_worked_by_hand():
    a, b = (
        np.array([HAND["e"], HAND["e"], HAND["d"], HAND["e"]]),
        np.array([HAND["n"], HAND["d"], HAND["d"], [0.0, 0.0]]),
    )
    assert pair_similarities(a, b, similarity="cosine").tolist() == pytest.approx([0, math.sqrt(0.5), 1, 0])
    assert pair_similarities(a, b, similarity="dot").tolist() == [0, 3, 18, 0]
    assert pair_similarities(a, b, similarity="distance").tolist() == pytest.approx(
        [-math.sqrt(5), -math.sqrt(13), 0, -1]
    )


def test_similarities_of_many_pairs_are_those_of_a_plain_loop_and_do_not_depend_on_the_order_of_a_pair():
    generator = np.random.default_rng(0)
    a, b = generator.standard_normal((2, 5000, 7)).astype(np.float32)
    loops = {
        "dot": [
            sum(x * y for x, y in zip(one.tolist(), other.tolist(), strict=True))
            for one, other in zip(a, b, strict=True)
        ],
        "cosine": [
            float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))
            for one, other in zip(a, b, strict=True)
        ],
        "distance": [-math.dist(one, other) for one, other in zip(a, b, strict=True)],
    }
    for similarity, wanted in loops.items():
        scores = pair_similarities(a, b, similarity=similarity)
        np.testing.assert_allclose(scores, wanted, atol=1e-6)
        np.testing.assert_array_equal(scores, pair_similarities(b, a, similarity=similarity))


def test_sts_worked_by_hand(monkeypatch):
    give(monkeypatch, HAND)
    # Cosines -1, 0, 0.7, 1 rank as 1, 2, 3, 4; people rank 1, 3, 2, 4: rho = 1 - 6 * 2 / (4 * 15) = 0.8.
    pairs = of(("e", "o", 0), ("e", "n", 3), ("e", "d", 2), ("d", "d", 5))
    scores = score_sts(tiny_dual(), pairs, side="query", name="hand", watch=SILENT)
    assert values(scores) == {"cosine": pytest.approx(0.8)}
    assert (scores.task, scores.kind, scores.unit, list(scores.units)) == (
        "hand",
        "sts",
        "pair",
        ["0", "1", "2", "3"],
    )
    assert scores.texts[1] == "e\nn"
    assert scores.notes == (UNIT_LENGTH,)
    assert scores.samples[0].measure == "Spearman"


def test_sts_equals_scipy_on_a_model_and_unit_vectors_have_cosine_alone():
    pairs = scored(np.random.default_rng(3).integers(0, 6, size=40).astype(float).tolist())
    model = tiny_dual(seed=4)
    scores = score_sts(model, pairs, side="document", name="sts", watch=SILENT)
    one, other = (
        model.encode(texts, side="document", precision="fp32").astype(np.float64)
        for texts in (pairs.a, pairs.b)
    )
    assert values(scores) == {
        "cosine": pytest.approx(spearmanr(np.vecdot(one, other), pairs.scores).statistic, abs=1e-9)
    }


def test_sts_equals_the_evaluator_of_sentence_transformers(tmp_path):
    pairs = scored(np.random.default_rng(3).random(60).tolist())
    model = tiny_dual(seed=5, settings=RAW)
    peer = EmbeddingSimilarityEvaluator(
        pairs.a,
        pairs.b,
        pairs.scores,
        similarity_fn_names=["cosine", "euclidean", "dot"],
        write_csv=False,
        name="peer",
    )(peer_of(model, tmp_path))
    mine = values(score_sts(model, pairs, side="query", name="sts", watch=SILENT))
    assert list(mine) == SIMILARITIES
    theirs = [peer[f"peer_spearman_{name}"] for name in ("cosine", "euclidean", "dot")]
    assert list(mine.values()) == pytest.approx(theirs, abs=1e-9)


def test_neither_the_order_of_pairs_nor_the_scale_of_peoples_scores_matters():
    pairs = scored(np.random.default_rng(3).random(30).tolist())
    model = tiny_dual(seed=4, settings=RAW)
    turned = ScoredPairs("pairs", pairs.a[::-1], pairs.b[::-1], np.exp(10 * pairs.scores[::-1]), pairs.sets)
    one, other = (
        values(score_sts(model, data, side="query", name="sts", watch=SILENT)) for data in (pairs, turned)
    )
    assert one == pytest.approx(other, abs=1e-12)


def test_a_zero_vector_is_refused_where_cosines_are_taken(monkeypatch):
    give(monkeypatch, {**HAND, "zero": [0, 0]})
    pairs = of(("e", "zero", 0), ("e", "n", 3))
    with pytest.raises(DataError, match="sts: vectors must not be zero.*'zero'"):
        score_sts(tiny_dual(), pairs, side="query", name="sts", watch=SILENT)
    together = LabelledPairs("pairs", pairs.a, pairs.b, np.array([True, False]))
    with pytest.raises(DataError, match="pairs: vectors must not be zero.*'zero'"):
        score_pair_classification(tiny_dual(), together, side="query", name="pairs", watch=SILENT)


def test_a_model_of_one_vector_is_told_that_it_ranks_nothing(monkeypatch):
    give(monkeypatch, {word: [1.0, 2.0] for word in HAND})
    pairs = of(("e", "n", 0), ("e", "d", 3), sets=["one", "one"])
    with pytest.raises(
        DataError,
        match="sts: the model must find some pairs more similar than others.*got "
        "a cosine of 1 for all 2; check",
    ):
        score_sts(tiny_dual(), pairs, side="query", name="sts", watch=SILENT)
    with pytest.raises(DataError, match="words: the model must find some pairs of one more similar"):
        score_words(tiny_dual(), pairs, side="query", name="words", watch=SILENT)


def test_words_are_the_mean_over_sets_whatever_their_sizes():
    sets = ["one"] * 10 + ["two"] * 25
    pairs = scored(np.random.default_rng(3).random(35).tolist(), sets)
    model = tiny_dual(seed=4)
    scores = score_words(model, pairs, side="query", name="words", watch=SILENT)
    alone = []
    for rows in (slice(0, 10), slice(10, 35)):
        part = ScoredPairs(
            "part", pairs.a[rows], pairs.b[rows], pairs.scores[rows], [""] * len(pairs.a[rows])
        )
        alone.append(values(score_sts(model, part, side="query", name="part", watch=SILENT))["cosine"])
    assert values(scores)["cosine"] == pytest.approx(np.mean(alone), abs=1e-12)
    assert (scores.facts["Spearman: one"], scores.facts["Spearman: two"]) == pytest.approx(
        tuple(alone), abs=1e-12
    )
    assert scores.facts["out-of-vocabulary words"] == 0
    assert scores.notes == (UNIT_LENGTH, "the mean of the rank correlations of 2 sets: one, two")


def test_the_correlation_of_each_set_of_words_is_that_of_scipy(monkeypatch):
    give(monkeypatch, HAND)
    told = [
        ("e", "o", 0),
        ("e", "n", 3),
        ("e", "d", 2),
        ("d", "d", 5),
        ("n", "d", 1),
        ("o", "n", 1),
        ("o", "d", 4),
    ]
    cosines = [-1, 0, math.sqrt(0.5), 1, math.sqrt(0.5), 0, -math.sqrt(0.5)]
    scores = score_words(
        tiny_dual(), of(*told, sets=["ws"] * 4 + ["rg"] * 3), side="query", name="words", watch=SILENT
    )
    wanted = [
        spearmanr(cosines[rows], [score for *_, score in told[rows]]).statistic
        for rows in (slice(0, 4), slice(4, 7))
    ]
    assert [scores.facts["Spearman: ws"], scores.facts["Spearman: rg"]] == pytest.approx(wanted, abs=1e-12)
    assert values(scores)["cosine"] == pytest.approx(sum(wanted) / 2, abs=1e-12)


def encoder_of(backend: Tokenizer) -> Encoder:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]")
    return Encoder(tiny_backbone(), tokenizer, EncoderSettings(max_tokens=16, query_prompt="cat "))


def whole_words(*words: str) -> Encoder:
    backend = Tokenizer(
        WordLevel(
            {token: number for number, token in enumerate(["[UNK]", "[PAD]", *words])}, unk_token="[UNK]"
        )
    )
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
    scores = score_words(
        DualEncoder(encoder, encoder, "words"), pairs, side="query", name="words", watch=SILENT
    )
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
    pairs = LabelledPairs(
        "pairs", ["d", "e", "e", "e"], ["d", "d", "n", "o"], np.array([True, False, True, False])
    )
    scores = score_pair_classification(tiny_dual(), pairs, side="query", name="hand", watch=SILENT)
    assert values(scores) == {"cosine": pytest.approx(5 / 6)}
    assert scores.facts == {
        "best accuracy by cosine": 0.75,
        "threshold of best accuracy by cosine": 1.0,
        "best F1 by cosine": pytest.approx(0.8),
        "threshold of best F1 by cosine": 0.0,
    }


def test_pair_classification_equals_scikit_learn_and_sentence_transformers(tmp_path):
    pairs, model = labelled(60), tiny_dual(seed=5, settings=RAW)
    scores = score_pair_classification(model, pairs, side="query", name="pairs", watch=SILENT)
    for sample in scores.samples:
        assert float(value_of(sample)[0]) == pytest.approx(
            average_precision_score(pairs.together, sample.values), abs=1e-12
        )
    names = {"cosine": "cosine", "dot": "dot", "distance": "euclidean"}
    judge = BinaryClassificationEvaluator(
        pairs.a, pairs.b, pairs.together.astype(int).tolist(), similarity_fn_names=list(names.values())
    )
    peer = judge.compute_metrics(peer_of(model, tmp_path))
    for mine, theirs in names.items():
        figures = [
            values(scores)[mine],
            scores.facts[f"best accuracy by {mine}"],
            scores.facts[f"best F1 by {mine}"],
        ]
        assert figures == pytest.approx(
            [peer[theirs][figure] for figure in ("ap", "accuracy", "f1")], abs=1e-9
        )


def test_the_best_thresholds_are_those_of_a_plain_loop_over_all_similarities():
    generator = np.random.default_rng(0)
    for _ in range(50):
        together = generator.random(12) < generator.random()
        together[0] = True
        scores = generator.integers(0, 5, size=12) / 4 - 0.5
        best = best_thresholds(scores, together)
        accuracy = {
            level: float(((scores >= level) == together).mean())
            for level in [*scores.tolist(), math.nextafter(max(scores), 2)]
        }
        f1 = {
            level: 2 * (together & (scores >= level)).sum() / (together.sum() + (scores >= level).sum())
            for level in scores.tolist()
        }
        for name, values_of in (("accuracy", accuracy), ("F1", f1)):
            highest = max(values_of.values())
            assert best[f"best {name}"] == pytest.approx(highest)
            assert best[f"threshold of best {name}"] == max(
                level for level in values_of if values_of[level] == highest
            )
