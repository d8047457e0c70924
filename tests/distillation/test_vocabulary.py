"""What a static model knows: the teacher's tokens as model2vec takes them, and words that are added."""

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float
from model2vec.distill.inference import apply_pca
from model2vec.tokenizer import clean_and_create_vocabulary, turn_tokens_into_ids
from skeletoken import TokenizerModel
from tokenizers import Tokenizer
from tokenizers.models import BPE, Unigram
from tokenizers.pre_tokenizers import ByteLevel, Metaspace, Whitespace
from transformers import PreTrainedTokenizerFast

from adiabat.core.errors import ConfigError, DataError
from adiabat.core.progress import Watch
from adiabat.distillation import vocabulary as passing
from adiabat.distillation.vocabulary import (
    Reduction,
    Sequences,
    TokenPooling,
    Vocabulary,
    Word,
    reduced,
    token_vectors,
    vocabulary_of,
)
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from tests.distillation.worlds import SPECIAL, wordpiece, wrapped
from tests.refused import refused
from tests.tiny import KINDS, Kind, tiny_encoder, tiny_tokenizer


def unigram() -> PreTrainedTokenizerFast:
    pieces = [*SPECIAL, "▁the", "▁cat", "▁", "s", "t", "a", "c", "▁new", "▁york"]
    backend = Tokenizer(Unigram([(piece, -float(row + 1)) for row, piece in enumerate(pieces)], unk_id=1))
    backend.pre_tokenizer = Metaspace()
    return wrapped(backend)


def bpe() -> PreTrainedTokenizerFast:
    merges = [("c", "a"), ("ca", "t"), ("Ġ", "cat")]
    pieces = [*SPECIAL, *sorted(ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    backend = Tokenizer(BPE({piece: row for row, piece in enumerate(pieces)}, merges, unk_token="[UNK]"))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=True)
    return wrapped(backend)


MAKERS = {"wordpiece": wordpiece, "unigram": unigram, "bpe": bpe}


def words(*texts: str) -> list[Word]:
    return [Word(text, f"words.txt:{number}") for number, text in enumerate(texts, start=1)]


def tokens_of(vocabulary: Vocabulary, text: str) -> list[str]:
    found: list[str] = vocabulary.tokenizer.encode(text).tokens
    return found


@pytest.mark.parametrize("kind", MAKERS)
def test_tokens_and_what_passes_for_each_are_model2vecs(kind: str) -> None:
    tokenizer = MAKERS[kind]()
    found = vocabulary_of(tokenizer)
    pruned = TokenizerModel.from_transformers_tokenizer(tokenizer).prune_added_tokens()
    peer = clean_and_create_vocabulary(
        pruned.deep_copy(), [], token_remove_regex=re.compile(r"\[unused\d+\]")
    )
    assert found.tokens == peer.sorted_vocabulary
    old = pruned.model_delta.token_mapping
    passed = [[old[one] for one in ids] for ids in turn_tokens_into_ids(found.tokens, pruned)]
    assert list(found.sequences.token_ids) == passed
    assert (found.sequences.before, found.sequences.after) == (1, 1)
    assert not {"[MASK]", "[unused1]", "[unused2]"} & set(found.tokens)
    own = tokenizer.convert_ids_to_tokens([ids[1] for ids in found.sequences.token_ids])
    assert own == found.tokens


@pytest.mark.parametrize("kind", MAKERS)
def test_rows_are_numbered_without_gaps_and_nothing_is_put_around_texts(kind: str) -> None:
    found = vocabulary_of(MAKERS[kind]())
    assert sorted(found.tokenizer.get_vocab().values()) == list(range(len(found.tokens)))
    assert [found.tokenizer.token_to_id(token) for token in found.tokens] == list(range(len(found.tokens)))
    assert not {"[CLS]", "[SEP]"} & set(tokens_of(found, "the cat"))


@pytest.mark.parametrize("kind", MAKERS)
def test_words_and_phrases_are_added_behind_and_found_in_texts(kind: str) -> None:
    tokenizer = MAKERS[kind]()
    plain = vocabulary_of(tokenizer)
    found = vocabulary_of(tokenizer, words=words("cats", "new york"))
    assert found.tokens[: len(plain.tokens)] == plain.tokens
    assert "new york" in found.tokens[len(plain.tokens) :]
    phrase, word = [token.strip().lstrip("▁Ġ") for token in tokens_of(found, "the new york cats")][-2:]
    assert (phrase, word) == ("new york", "cats")
    # As the teacher takes the text: with its special tokens, and not padded.
    row = found.tokens.index("new york")
    assert list(found.sequences.token_ids[row]) == tokenizer("new york")["input_ids"]


def test_a_fixed_padding_and_a_limit_of_the_teacher_are_not_passed() -> None:
    tokenizer = wordpiece()
    tokenizer.backend_tokenizer.enable_padding(length=16)
    tokenizer.backend_tokenizer.enable_truncation(3)
    found = vocabulary_of(tokenizer, words=words("new york cats"))
    assert len(found.sequences.token_ids[-1]) == 2 + len(["new", "york", "cat", "##s"])


def test_nothing_is_said_that_nobody_can_act_on(caplog: pytest.LogCaptureFixture) -> None:
    vocabulary_of(wordpiece())
    assert caplog.records == []


def test_words_that_are_tokens_already_are_told() -> None:
    found = vocabulary_of(wordpiece(), words=words("Cat", "cats"))
    assert [word.text for word in found.known] == ["Cat"]
    assert found.tokens[-1] == "cats"


SAME = "is the same word as that of words.txt:1"


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (("cats", "at", "Cats"), f"got words.txt:3: 'Cats' {SAME}; "),
        (("Cat", "cats", "cat"), f"got words.txt:3: 'cat' {SAME}; "),
        (
            ("new cat", "cats", "New cat", "cats"),
            f"got 2 faults: words.txt:3: 'New cat' {SAME}; words.txt:4: 'cats' is",
        ),
        (("cats", " "), "got words.txt:2: ' ' is empty once the tokenizer has normalised it; "),
        (("cats", "日本", "中国"), "each word, got 2 faults: words.txt:2: '日本'; words.txt:3: '中国'"),
    ],
)
def test_words_that_cannot_be_added_are_told(texts: tuple[str, ...], told: str) -> None:
    with refused(DataError, told):
        vocabulary_of(wordpiece(), words=words(*texts))


@pytest.mark.parametrize("kind", MAKERS)
def test_phrases_are_no_part_of_words_but_where_a_script_has_no_blanks(kind: str) -> None:
    found = vocabulary_of(MAKERS[kind](), words=words("the cat", "cat 日本"))
    inside, apart = (
        [one.strip() for one in tokens_of(found, text)] for text in ("cats the cats", "cats the cat s")
    )
    assert "the cat" not in inside
    assert "the cat" in apart
    assert "cat 日本" in [token.strip() for token in tokens_of(found, "cat 日本cat")]


TWICE = ["independent", "chihuahua", "banana", "mississippi", "aaaa", "abababab", "été été", "naïveté"]


def frequent_words(count: int) -> list[str]:
    """The most frequent words of the guide."""
    text = (Path(__file__).parents[2] / "docs" / "guide.md").read_text(encoding="utf-8").lower()
    return [word for word, _ in Counter(re.findall(r"[a-z]{4,}", text)).most_common(count)]


@pytest.mark.parametrize("teacher", [bpe, tiny_tokenizer])
def test_words_in_which_a_pair_of_letters_occurs_twice_become_tokens_of_a_bpe_teacher(
    teacher: Callable[[], Any],
) -> None:
    texts = list(dict.fromkeys([*TWICE, *frequent_words(120)]))
    found = vocabulary_of(teacher(), words=words(*texts))
    before = len(teacher().get_vocab())
    for text in texts:
        inside = found.tokenizer.encode(f"a {text} z").ids
        assert len(found.tokenizer.encode(text).ids) == 1, text
        assert found.tokenizer.encode(text).ids[0] in inside, text
    assert found.added >= len(texts)
    assert len(found.tokens) <= before + found.added


def test_merges_lead_to_tokens_alone() -> None:
    # Pairs of letters: Ġi nd ep en de nt. "nd" takes each d before "de" does, and "en" the last n before
    # "nt".
    found = vocabulary_of(tiny_tokenizer(), words=words("independent"))
    model = json.loads(found.tokenizer.to_str())["model"]
    products = ["".join(pair) for pair in model["merges"]]
    assert "Ġindependent" in products
    assert set(products) <= model["vocab"].keys()
    assert {"Ġi", "nd", "ep", "en"} <= set(products)
    assert not {"de", "nt"} & set(products)


def test_words_of_a_bpe_teacher_that_marks_the_ends_of_words_are_matched_whole() -> None:
    letters = [*"abcdehinptu", *(f"{letter}</w>" for letter in "abcdehinptu")]
    pieces = {piece: row for row, piece in enumerate([*SPECIAL, *letters])}
    backend = Tokenizer(BPE(pieces, [], unk_token="[UNK]", end_of_word_suffix="</w>"))
    backend.pre_tokenizer = Whitespace()
    found = vocabulary_of(wrapped(backend), words=words("independent", "chihuahua"))
    tokens = [token.strip() for token in found.tokenizer.encode("a independent chihuahua").tokens]
    assert tokens == ["a</w>", "independent", "chihuahua"]
    assert found.tokenizer.encode("independenta").tokens[0] == "i"


def test_patterns_that_are_none_or_match_all_are_told() -> None:
    with refused(ConfigError, "static.without must be a regular expression, got '[': "):
        vocabulary_of(wordpiece(), without="[")
    with refused(ConfigError, "static.without must leave tokens, got '.', which matches all; "):
        vocabulary_of(wordpiece(), without=".")
    assert "[unused1]" in vocabulary_of(wordpiece(), without=None).tokens


@pytest.mark.parametrize("kind", MAKERS)
def test_what_a_tokenizer_takes_unknown_words_for_stays(kind: str) -> None:
    found = vocabulary_of(MAKERS[kind](), without=r"(?!.*(cat|ca|c|a|t))")
    assert "[UNK]" in found.tokens
    assert found.tokenizer.encode("日 cat").ids


def test_a_tokenizer_comes_back_from_its_file(tmp_path: Path) -> None:
    found = vocabulary_of(wordpiece(), words=words("new york"))
    found.tokenizer.save(str(tmp_path / "tokenizer.json"))
    again = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert again.encode("The new york cats").ids == found.tokenizer.encode("The new york cats").ids
    assert json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))["post_processor"] is None


def test_a_token_of_a_decoder_that_begins_texts_with_nothing_stands_behind_its_begin_token() -> None:
    tokenizer = tiny_tokenizer("gpt-neox")
    assert tokenizer("a").input_ids == [tokenizer.convert_tokens_to_ids("a")]
    found = vocabulary_of(tokenizer, words=words("cat"))
    assert (found.sequences.before, found.sequences.after) == (1, 0)
    assert {ids[0] for ids in found.sequences.token_ids} == {tokenizer.bos_token_id}
    begin = tokenizer.bos_token_id
    row = found.tokens.index("a")
    assert found.sequences.token_ids[row] == [begin, tokenizer.convert_tokens_to_ids("a")]
    assert list(found.sequences.token_ids[found.tokens.index("Ġcat")][1:]) == tokenizer("cat").input_ids


TOKENS = Sequences([[0, 9, 2], [0, 12, 2], [0, 9, 14, 2], [0, 20, 2]], 1, 1)


def states_of(teacher: Encoder, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = teacher.backbone(
            input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long)
        )[0][0]
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pooling", ["mean", "token", "first", "last"])
def test_vectors_are_those_of_a_plain_loop(kind: Kind, pooling: TokenPooling) -> None:
    prompts = {"query_prompt": "ask: ", "document_prompt": "told: "}
    teacher = tiny_encoder(kind, settings=EncoderSettings(normalize=True, **prompts))
    found = token_vectors(teacher, TOKENS, pooling=pooling)
    for ids, vector in zip(TOKENS.token_ids, found, strict=True):
        states = states_of(teacher, list(ids))
        parts = {
            "mean": states.mean(dim=0),
            "token": states[1:-1].mean(dim=0),
            "first": states[0],
            "last": states[-1],
        }
        np.testing.assert_allclose(vector, parts[pooling].numpy(), atol=1e-5)


def test_projections_are_passed_through() -> None:
    teacher = tiny_encoder(projection=8).eval()
    found = token_vectors(teacher, TOKENS)
    assert found.shape == (4, 8)
    (projection,) = teacher.projections
    with torch.inference_mode():
        expected = projection(states_of(teacher, [0, 9, 2]).mean(dim=0, keepdim=True))[0]
    np.testing.assert_allclose(found[0], expected.numpy(), atol=1e-5)


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Every sequence that passes, in order."""
    found: list[list[int]] = []
    real = Encoder.encode_tokens

    def noted(self: Encoder, token_ids: Any, **named: Any) -> Any:
        found.extend(map(list, token_ids))
        return real(self, token_ids, **named)

    monkeypatch.setattr(Encoder, "encode_tokens", noted)
    monkeypatch.setattr(passing, "TOKEN_BLOCK", 2)
    return found


def test_what_was_cut_short_goes_on_and_nothing_passes_twice(
    tmp_path: Path, passed: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher = tiny_encoder().eval()
    whole = token_vectors(teacher, TOKENS)
    passed.clear()
    real, calls = passing._require_finite, []

    def cut(found: Any, *where: Any) -> None:
        calls.append(where)
        if len(calls) == 2:
            raise KeyboardInterrupt
        real(found, *where)

    monkeypatch.setattr(passing, "_require_finite", cut)
    with pytest.raises(KeyboardInterrupt):
        token_vectors(teacher, TOKENS, folder=tmp_path / "kept")
    again = token_vectors(teacher, TOKENS, folder=tmp_path / "kept")
    assert np.array_equal(again, whole)
    # The block that was cut short passes again, and no other.
    assert passed == [*map(list, TOKENS.token_ids), *map(list, TOKENS.token_ids[2:])]
    passed.clear()
    token_vectors(teacher, TOKENS, folder=tmp_path / "kept")
    assert passed == []


def test_other_poolings_and_teachers_are_not_taken_for_what_is_there(
    tmp_path: Path, passed: list[list[int]]
) -> None:
    token_vectors(tiny_encoder().eval(), TOKENS, folder=tmp_path)
    for teacher, pooling in ((tiny_encoder().eval(), "token"), (tiny_encoder(seed=1).eval(), "mean")):
        passed.clear()
        assert np.array_equal(
            token_vectors(teacher, TOKENS, pooling=pooling, folder=tmp_path),
            token_vectors(teacher, TOKENS, pooling=pooling),
        )
        assert len(passed) == 2 * len(TOKENS.token_ids)


def test_a_teacher_that_gives_no_numbers_is_told() -> None:
    teacher = tiny_encoder().eval()
    with torch.no_grad():
        teacher.backbone.get_input_embeddings().weight[14] = float("nan")
    with refused(DataError, "the teacher must give finite vectors, got one that is not for '"):
        token_vectors(teacher, TOKENS)


@pytest.fixture(scope="module")
def table() -> Float[np.ndarray, "v e"]:
    """Vectors that differ far more in some directions than in others."""
    generator = np.random.default_rng(0)
    spread = generator.standard_normal((300, 12)) * 0.7 ** np.arange(12)
    return (spread @ np.linalg.qr(generator.standard_normal((12, 12)))[0] + 3).astype(np.float32)


@pytest.mark.parametrize("dims", [1, 5, 12])
def test_pca_is_model2vecs_with_its_signs(table: Float[np.ndarray, "v e"], dims: int) -> None:
    found, kept = reduced(table, dims)
    np.testing.assert_allclose(found, apply_pca(table, dims), atol=1e-4)
    centred = table - table.mean(axis=0)
    assert kept == pytest.approx(float((found**2).sum() / (centred**2).sum()), rel=1e-5)
    assert found.dtype == np.float32


def test_a_random_projection_finds_the_same_directions(table: Float[np.ndarray, "v e"]) -> None:
    exact, kept = reduced(table, 4)
    found, other = reduced(table, 4, how="randomized", seed=3)
    np.testing.assert_allclose(found, exact, atol=1e-3)
    assert other == pytest.approx(kept, rel=1e-5)
    again, _ = reduced(table, 4, how="randomized", seed=3)
    assert np.array_equal(found, again)


def test_independent_directions_span_the_same_as_uncorrelated_ones(table: Float[np.ndarray, "v e"]) -> None:
    found, kept = reduced(table, 4, how="ica")
    exact, as_much = reduced(table, 4)
    assert kept == pytest.approx(as_much, rel=1e-4)
    np.testing.assert_allclose(found.std(axis=0), 1, rtol=1e-3)
    solved, *_ = np.linalg.lstsq(found, exact, rcond=None)
    np.testing.assert_allclose(found @ solved, exact, atol=1e-3)


@pytest.mark.parametrize("how", ["pca", "ica"])
def test_the_largest_number_of_each_direction_is_positive(
    table: Float[np.ndarray, "v e"], how: Reduction
) -> None:
    found, _ = reduced(table, 3, how=how)
    assert (found[np.abs(found).argmax(axis=0), np.arange(3)] > 0).all()


def test_too_many_directions_and_tokens_that_are_all_the_same_are_told(
    table: Float[np.ndarray, "v e"],
) -> None:
    with refused(ConfigError, "static.reduction.dims must be at most 12, the width of the teacher, got 13; "):
        reduced(table, 13)
    with refused(ConfigError, "static.reduction.dims must be below the 5 tokens of the vocabulary, got 5; "):
        reduced(table[:5], 5)
    with refused(DataError, "the teacher must tell tokens apart, got the same vector for all; "):
        reduced(np.ones((20, 3), dtype=np.float32), 2)


def test_directions_that_were_not_found_to_the_end_are_told(table: Float[np.ndarray, "v e"]) -> None:
    # What is normal in all directions has no independent ones.
    notes: list[str] = []
    reduced(table, 4, how="ica", watch=Watch(note=notes.append))
    assert len(notes) == 1
    assert notes[0].startswith("independent directions did not converge")
