"""Texts cut before they are tokenised: the tokens that count are those of the whole text, whatever the tokenizer."""

import random
from collections.abc import Callable

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from adiabat.models import tokens as cutting
from adiabat.models.tokens import cut_texts

LETTERS = "abcdeé"
PIECES = [first + second + third for first in LETTERS for second in ["", *LETTERS] for third in ["", "a", "b"]]


def wordpiece() -> Tokenizer:
    vocabulary = ["[UNK]", "[CLS]", "[SEP]", *dict.fromkeys(PIECES), *(f"##{piece}" for piece in dict.fromkeys(PIECES)), "一", "二", "."]
    tokenizer = Tokenizer(models.WordPiece({piece: row for row, piece in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    return tokenizer


def bpe(merged: list[tuple[str, str]], letters: list[str]) -> Tokenizer:
    vocabulary = dict.fromkeys(["<unk>", *letters, *(first + second for first, second in merged)])
    return Tokenizer(models.BPE({piece: row for row, piece in enumerate(vocabulary)}, merged, unk_token="<unk>"))


def byte_level() -> Tokenizer:
    tokenizer = bpe([("a", "b"), ("Ġ", "ab"), ("ab", "c"), ("Ã", "©")], pre_tokenizers.ByteLevel.alphabet())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_tokens([AddedToken("cab abc", lstrip=True)])
    return tokenizer


def sentencepiece_bpe() -> Tokenizer:
    """As Llama 2 has it: the whole text is one word for the pre-tokenizer, of which there is none."""
    tokenizer = bpe([("a", "b"), ("▁", "ab"), ("b", "a"), ("▁", "▁"), ("ab", "ab")], ["▁", *LETTERS, "一", "二", ".", "\n"])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return tokenizer


def unigram() -> Tokenizer:
    pieces = [("<unk>", 0.0), ("▁", -2.0), *((piece, -len(piece) - 1.0) for piece in dict.fromkeys(PIECES)), ("▁ab", -1.5), ("aaaa", -2.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


def across_words() -> Tokenizer:
    """Tokens over several words, and no pre-tokenizer."""
    tokenizer = bpe([("b", "▁"), ("b▁", "a"), ("a", "b▁a"), ("▁", "a")], ["▁", *LETTERS])
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    return tokenizer


def looking_ahead() -> Tokenizer:
    tokenizer = wordpiece()
    tokenizer.normalizer = normalizers.Replace(Regex("a(?=.*é)"), "b")
    return tokenizer


MAKERS = [wordpiece, byte_level, sentencepiece_bpe, unigram, across_words, looking_ahead]


def texts_of(seed: int) -> list[str]:
    drawn = random.Random(seed)

    def words(count: int, longest: int = 9, between: str = " ") -> str:
        return between.join("".join(drawn.choices([*LETTERS, "e\u0301", "A", "."], k=drawn.randint(1, longest))) for _ in range(count))

    return [
        words(2_000),
        words(2_000, between="  \n"),
        words(2_000, between="\n"),
        "a" * drawn.randint(3_000, 3_010),
        "a" * drawn.randint(3_000, 3_010) + " " + words(1_000),
        words(5) + " " + "b" * 4_000 + " " + words(500),
        words(5) + " " * 4_000 + words(500),
        "e" + "\u0301" * 4_000 + words(800),
        "一二" * 2_000,
        words(60) + " 一二" * 1_000 + " é",
        "cab abc " * 700,
        words(10),
        "",
    ]


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "FIRST_CHARACTERS", 400)
    monkeypatch.setattr(cutting, "TAIL", 300)
    monkeypatch.setattr(cutting, "CHARACTERS_PER_TOKEN", 2)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("limit", [3, 40])
def test_the_tokens_that_count_are_those_of_the_whole_text(make: Callable[[], Tokenizer], limit: int) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=make())
    for seed in range(6):
        texts = texts_of(seed)
        cut = cut_texts(tokenizer, texts, limit)
        whole, beginnings = (tokenizer(each, truncation=True, max_length=limit)["input_ids"] for each in (texts, cut))
        assert beginnings == whole
        assert all(text.startswith(beginning) for text, beginning in zip(texts, cut, strict=True))


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(("make", "is_cut"), [(make, make not in (across_words, looking_ahead)) for make in MAKERS])
def test_long_texts_are_cut_where_the_tokenizer_splits_them_into_words(make: Callable[[], Tokenizer], is_cut: bool) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=make())
    (beginning,) = cut_texts(tokenizer, [text := texts_of(0)[0]], 10)
    assert (len(beginning) < len(text) / 4) is is_cut


def test_a_text_that_is_cut_from_the_left_is_left_whole() -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=wordpiece(), truncation_side="left")
    text = "ab " * 100_000
    assert cut_texts(tokenizer, [text], 10) == [text]


def test_a_megabyte_of_words_becomes_a_few_thousand_letters() -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=wordpiece())
    text = "abc cab é. " * 100_000
    (beginning,) = cut_texts(tokenizer, [text], 128)
    assert len(beginning) == cutting.FIRST_CHARACTERS + 128 * cutting.CHARACTERS_PER_TOKEN
