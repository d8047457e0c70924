"""Texts tokenised once and embedded by their number; texts cut before they are tokenised, padding, and
batches of a budget of tokens.
"""

import copy
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis.strategies import integers, sampled_from
from hypothesis.strategies import lists as lists_of
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from adiabat.core.errors import DataError
from adiabat.core.ragged import Ragged
from adiabat.models import bulk as tokens
from adiabat.models import tokens as cutting
from adiabat.models.bulk import TokenTable, embed_all, embed_rows
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.models.tokens import bucket_batches, cut_texts, pad, token_budget_batches, token_lists
from tests.refused import one_line
from tests.tiny import lists, tiny_encoder, tiny_tokenizer

TEXTS = ["a", "query of some length", "", "längeres Wort äöü", "b", "一二三"]
ASKED = EncoderSettings(query_prompt="ask: ", max_tokens=12)


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return tiny_encoder(width=16)


def table_of(encoder: Encoder, folder: Path | None = None) -> TokenTable:
    return TokenTable.of(encoder, TEXTS, side="query", folder=folder)


@pytest.mark.parametrize("block", [2, 4096])
def test_the_table_holds_all_tokens_in_four_bytes_each(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "TOKENIZE_BLOCK", block)
    encoder = tiny_encoder(width=16, settings=ASKED)
    table = table_of(encoder)
    expected = lists(encoder.tokenize(TEXTS, side="query"))
    assert lists(table.take(np.arange(len(TEXTS)))) == expected
    assert lists(table.take(np.array([3, 0, 3]))) == [expected[3], expected[0], expected[3]]
    assert table.lengths.tolist() == [len(ids) for ids in expected]
    assert len(table) == len(TEXTS)
    assert max(table.lengths) == 12
    assert (table.ids.nbytes, table.offsets.nbytes) == (4 * table.lengths.sum(), 8 * (len(TEXTS) + 1))


def test_a_table_in_files_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = tiny_encoder(width=16, settings=ASKED)
    memory = table_of(encoder)
    rows = np.array([3, 0, 5, 3, 2])
    assert lists(table_of(encoder, tmp_path).take(rows)) == lists(memory.take(rows))
    monkeypatch.setattr(type(encoder), "tokenize", lambda *_, **__: pytest.fail("texts were tokenised again"))
    again = table_of(encoder, tmp_path)
    assert (lists(again.take(rows)), again.lengths.tolist()) == (
        lists(memory.take(rows)),
        memory.lengths.tolist(),
    )


@pytest.mark.parametrize("ending", ["i32", "npy", "json"])
@pytest.mark.parametrize("cut", [True, False])
def test_damaged_tokens_are_made_again_and_told(
    encoder: Encoder, tmp_path: Path, ending: str, cut: bool
) -> None:
    expected = lists(table_of(encoder, tmp_path).take(np.arange(len(TEXTS))))
    (file,) = tmp_path.glob(f"tokens-query-*.{ending}")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content[: len(content) // 2] if cut else content)
    with pytest.warns(UserWarning, match=rf"{file} must be undamaged, got .*; it is rebuilt"):
        table = table_of(encoder, tmp_path)
    assert lists(table.take(np.arange(len(TEXTS)))) == expected


@pytest.mark.parametrize("other", [{"max_tokens": 13}, {"query_prompt": "tell: "}])
def test_what_decides_tokens_decides_the_files(tmp_path: Path, other: dict[str, Any]) -> None:
    one = tiny_encoder(width=16, settings=ASKED)
    changed = one.with_settings(replace(ASKED, **other))
    table_of(one, tmp_path)
    table = table_of(changed, tmp_path)
    assert lists(table.take(np.arange(len(TEXTS)))) == lists(changed.tokenize(TEXTS, side="query"))


def test_a_full_disk_gets_no_table(encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with one_line(DataError, "/tokens-query-", ".npy must be writable", "No space left on device", "free"):
        table_of(encoder, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_of_a_table_is_taken_by_the_next(encoder: Encoder, tmp_path: Path) -> None:
    table_of(encoder, tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    for path in list(tmp_path.iterdir()):
        path.unlink()
    for name in names:
        (tmp_path / f".{name}.part0").write_bytes(b"half of it" * 100)
    table = table_of(encoder, tmp_path)
    assert lists(table.take(np.arange(len(TEXTS)))) == lists(encoder.tokenize(TEXTS, side="query"))
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_no_texts_make_an_empty_table(encoder: Encoder) -> None:
    table = TokenTable.of(encoder, [], side="query")
    assert len(table) == 0
    assert embed_all(encoder, table, token_budget=10).shape == (0, 16)


@pytest.mark.parametrize("token_budget", [1, 20, 10_000])
def test_embedding_all_rows_equals_encoding_the_texts(token_budget: int) -> None:
    settings = EncoderSettings(query_prompt="ask: ", max_tokens=32, pool_prompt=False)
    encoder = tiny_encoder(width=16, layers=2, settings=settings, projection=8)
    table = table_of(encoder)
    ours = embed_all(encoder, table, token_budget=token_budget)
    np.testing.assert_allclose(ours.numpy(), encoder.encode(TEXTS, side="query", precision="fp32"), atol=1e-6)
    assert not ours.requires_grad


def test_embedding_some_rows_carries_gradients_to_the_weights() -> None:
    encoder = tiny_encoder(width=16)
    table = table_of(encoder)
    rows = np.array([4, 1])
    embeddings = embed_rows(encoder, table, rows)
    np.testing.assert_allclose(
        embeddings.detach().numpy(),
        encoder.encode([TEXTS[4], TEXTS[1]], side="query", precision="fp32"),
        atol=1e-6,
    )
    embeddings.sum().backward()  # type: ignore[no-untyped-call]
    assert all(weights.grad is not None for weights in encoder.used_parameters().values())


def test_padding_beside_a_long_text_does_not_change_a_short_one(encoder: Encoder) -> None:
    table = table_of(encoder)
    with torch.no_grad():
        alone, together = (
            embed_rows(encoder, table, np.array([0])),
            embed_rows(encoder, table, np.array([0, 3])),
        )
    torch.testing.assert_close(alone[0], together[0], atol=1e-6, rtol=0)


LETTERS = "abcdeé"
PIECES = [
    first + second + third for first in LETTERS for second in ["", *LETTERS] for third in ["", "a", "b"]
]


def wordpiece() -> Tokenizer:
    vocabulary = [
        "[UNK]",
        "[CLS]",
        "[SEP]",
        *dict.fromkeys(PIECES),
        *(f"##{piece}" for piece in dict.fromkeys(PIECES)),
        "一",
        "二",
        ".",
    ]
    tokenizer = Tokenizer(
        models.WordPiece({piece: row for row, piece in enumerate(vocabulary)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return tokenizer


def bpe(merged: list[tuple[str, str]], letters: list[str]) -> Tokenizer:
    vocabulary = dict.fromkeys(["<unk>", *letters, *(first + second for first, second in merged)])
    return Tokenizer(
        models.BPE({piece: row for row, piece in enumerate(vocabulary)}, merged, unk_token="<unk>")
    )


def byte_level() -> Tokenizer:
    tokenizer = bpe([("a", "b"), ("Ġ", "ab"), ("ab", "c"), ("Ã", "©")], pre_tokenizers.ByteLevel.alphabet())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_tokens([AddedToken("cab abc", lstrip=True)])
    return tokenizer


def sentencepiece_bpe() -> Tokenizer:
    """As Llama 2 has it: the whole text is one word for the pre-tokenizer, of which there is none."""
    tokenizer = bpe(
        [("a", "b"), ("▁", "ab"), ("b", "a"), ("▁", "▁"), ("ab", "ab")],
        ["▁", *LETTERS, "一", "二", ".", "\n"],
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return tokenizer


def unigram() -> Tokenizer:
    pieces = [
        ("<unk>", 0.0),
        ("▁", -2.0),
        *((piece, -len(piece) - 1.0) for piece in dict.fromkeys(PIECES)),
        ("▁ab", -1.5),
        ("aaaa", -2.0),
    ]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
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
        return between.join(
            "".join(drawn.choices([*LETTERS, "e\u0301", "A", "."], k=drawn.randint(1, longest)))
            for _ in range(count)
        )

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
    for seed in range(2):
        texts = texts_of(seed)
        cut = cut_texts(tokenizer, texts, limit)
        whole, beginnings = (
            tokenizer(each, truncation=True, max_length=limit)["input_ids"] for each in (texts, cut)
        )
        assert beginnings == whole
        assert all(text.startswith(beginning) for text, beginning in zip(texts, cut, strict=True))


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(
    ("make", "is_cut"), [(make, make not in (across_words, looking_ahead)) for make in MAKERS]
)
def test_long_texts_are_cut_where_tokenizers_split_words(make: Callable[[], Tokenizer], is_cut: bool) -> None:
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


def padded_in_plain_loops(
    token_ids: list[list[int]], fill: int, skipped: int
) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    longest = max(len(ids) for ids in token_ids)
    rows, attended, pooled = [], [], []
    for ids in token_ids:
        rows.append(ids + [fill] * (longest - len(ids)))
        attended.append([1] * len(ids) + [0] * (longest - len(ids)))
        left_out = min(skipped, len(ids) - 1)
        pooled.append([0] * left_out + [1] * (len(ids) - left_out) + [0] * (longest - len(ids)))
    return rows, attended, pooled


@pytest.mark.parametrize("skipped", [0, 1, 3, 100])
@pytest.mark.parametrize(
    "token_ids", [[[4]], [[4, 5, 6, 7], [8, 9], [3]], [[2, 2], [2, 2]]], ids=["one token", "ragged", "even"]
)
def test_padding_equals_plain_loops(token_ids: list[list[int]], skipped: int) -> None:
    batch = pad(Ragged.of(token_ids), pad_token_id=0, skipped=skipped)
    rows, attended, pooled = padded_in_plain_loops(token_ids, 0, skipped)
    assert batch.input_ids.tolist() == rows
    assert batch.attention_mask.tolist() == attended
    assert batch.pooling_mask.tolist() == pooled


def test_tokens_at_the_end_may_be_left_out_of_pooling_too() -> None:
    batch = pad(Ragged.of([[1, 2, 3, 4], [5, 6, 7], [8]]), pad_token_id=0, skipped=1, closing=1)
    assert batch.pooling_mask.tolist() == [[0, 1, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 0, 0]]


def test_a_padding_id_inside_a_text_still_counts() -> None:
    # Decoders pad with their end-of-text token, which may stand in a text as well.
    assert pad(Ragged.of([[2, 2], [2]]), pad_token_id=2).attention_mask.tolist() == [[1, 1], [1, 0]]


LENGTHS = lists_of(integers(1, 200), min_size=1, max_size=300)


@given(LENGTHS, integers(1, 5000))
@example([3], 1)
@example([200, 1], 10**6)
def test_every_row_comes_once_in_batches_as_full_as_allowed(lengths: list[int], budget: int) -> None:
    batches = list(token_budget_batches(lengths, budget))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    longest = [max(lengths[row] for row in rows) for rows in batches]
    assert all(
        len(rows) == 1 or len(rows) * length <= budget for rows, length in zip(batches, longest, strict=True)
    )
    assert all((len(rows) + 1) * length > budget for rows, length in zip(batches[:-1], longest, strict=False))


def test_batches_worked_by_hand() -> None:
    # Sorted: row 1 (5), row 3 (4), row 0 (2), row 2 (2). One row of 5; then 8 // 4 = 2 rows; then the rest.
    assert [rows.tolist() for rows in token_budget_batches([2, 5, 2, 4], 8)] == [[1], [3, 0], [2]]


def test_a_batch_filled_up_by_hand() -> None:
    # The last row is a filler, a text of one padding token.
    batch = pad(Ragged.of([[5, 6, 7], [8], [9]]), pad_token_id=9, length=4, skipped=1)
    assert batch.input_ids.tolist() == [[5, 6, 7, 9], [8, 9, 9, 9], [9, 9, 9, 9]]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
    assert batch.pooling_mask.tolist() == [[0, 1, 1, 0], [1, 0, 0, 0], [1, 0, 0, 0]]


def test_buckets_worked_by_hand() -> None:
    # 3 and 4 go to 4; 5 to 8; 130 to the second multiple of 128; 300 to the third, cut at 310. 16 tokens are
    # 4 rows of 4, 2 of 8.
    found = list(bucket_batches([3, 130, 5, 4, 300, 1, 2, 4], 16, (4, 8), longest=310))
    assert [(rows.tolist(), shape) for rows, shape in found] == [
        ([4], (1, 310)),
        ([1], (1, 256)),
        ([2], (2, 8)),
        ([0, 3, 5, 6], (4, 4)),
        ([7], (4, 4)),
    ]


@given(LENGTHS, integers(1, 5000), sampled_from([(64, 128, 196, 256), (10,), (199, 200)]))
@example([200, 1, 10], 1, (10,))
def test_every_row_comes_once_in_its_smallest_bucket(
    lengths: list[int], budget: int, buckets: tuple[int, ...]
) -> None:
    # Beyond the buckets, lengths are multiples of 128.
    beyond = [length for length in (*buckets, 128, 256) if length % 128 == 0]
    seen = []
    for rows, (height, length) in bucket_batches(lengths, budget, buckets, longest=512):
        assert len(rows) <= height == max(1, budget // length)
        for row in rows:
            inside = [bucket for bucket in buckets if bucket >= lengths[row]]
            assert length == min(inside or [bucket for bucket in beyond if bucket >= lengths[row]])
        seen += rows.tolist()
    assert sorted(seen) == list(range(len(lengths)))


class AddsAWord(PreTrainedTokenizerFast):
    """A class with an encoding of its own."""

    def _encode_plus(self, text: list[str], **options: Any) -> Any:
        return super()._encode_plus([f"{one} a" for one in text], **options)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("split", [False, True])
def test_tokens_are_those_of_transformers_whatever_its_tokenizer_is_set_to(side: str, split: bool) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.truncation_side, tokenizer.split_special_tokens = side, split
    tokenizer.backend_tokenizer.enable_padding(length=30)
    texts = ["", "a [SEP] b", "one far longer than the limit", "ж"]
    expected = copy.deepcopy(tokenizer)(texts, truncation=True, max_length=9)["input_ids"]
    assert token_lists(tokenizer, texts, 9) == expected


def test_a_tokenizer_with_an_encoding_of_its_own_keeps_it() -> None:
    own = AddsAWord(tokenizer_object=tiny_tokenizer().backend_tokenizer)
    assert token_lists(own, ["b"], 9) == tiny_tokenizer()(["b a"])["input_ids"]


def test_halves_hold_the_texts_and_know_where_they_lie() -> None:
    texts = [[1, 2, 3], [4], [5, 6], [7, 8], [9]]
    whole = pad(Ragged.of(texts), pad_token_id=0, skipped=1)
    first, second = whole.halves()
    for half, own in ((first, texts[:2]), (second, texts[2:])):
        assert half.layout.lengths == [len(ids) for ids in own]
        assert half.input_ids.flatten()[half.layout.places].tolist() == [
            token for ids in own for token in ids
        ]
        assert half.layout.starts.tolist() == np.cumsum([0, *half.layout.lengths]).tolist()
        assert half.input_ids.shape == half.attention_mask.shape == half.pooling_mask.shape == (len(own), 3)
