"""Texts tokenised once, and embedded by their number."""

from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch

from adiabat.core.errors import DataError
from adiabat.models import bulk as tokens
from adiabat.models.bulk import TokenTable, embed_all, embed_rows
from adiabat.models.embedding_head import EncoderSettings
from tests.tiny import tiny_encoder

TEXTS = ["a", "query of some length", "", "längeres Wort äöü", "b", "一二三"]


@pytest.mark.parametrize("block", [2, 4096])
def test_the_table_holds_what_the_tokenizer_gives_in_four_bytes_a_token(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "TOKENIZE_BLOCK", block)
    encoder = tiny_encoder(width=16, layers=1, settings=EncoderSettings(query_prompt="ask: ", max_tokens=12))
    table = TokenTable.of(encoder, TEXTS, side="query")
    expected = encoder.tokenize(TEXTS, side="query")
    assert table.lists(np.arange(len(TEXTS))) == expected
    assert table.lists(np.array([3, 0, 3])) == [expected[3], expected[0], expected[3]]
    assert table.lengths.tolist() == [len(ids) for ids in expected]
    assert len(table) == len(TEXTS)
    assert max(table.lengths) == 12
    assert (table.ids.nbytes, table.offsets.nbytes) == (4 * table.lengths.sum(), 8 * (len(TEXTS) + 1))


def test_a_table_in_files_is_that_in_memory_and_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = tiny_encoder(width=16, layers=1, settings=EncoderSettings(query_prompt="ask: ", max_tokens=12))
    memory = TokenTable.of(encoder, TEXTS, side="query")
    rows = np.array([3, 0, 5, 3, 2])
    assert TokenTable.of(encoder, TEXTS, side="query", folder=tmp_path).lists(rows) == memory.lists(rows)
    monkeypatch.setattr(type(encoder), "tokenize", lambda *_, **__: pytest.fail("texts were tokenised again"))
    again = TokenTable.of(encoder, TEXTS, side="query", folder=tmp_path)
    assert (again.lists(rows), again.lengths.tolist()) == (memory.lists(rows), memory.lengths.tolist())


@pytest.mark.parametrize("ending", ["i32", "npy", "json"])
@pytest.mark.parametrize("cut", [True, False])
def test_tokens_that_were_damaged_are_made_again_and_it_is_said(tmp_path: Path, ending: str, cut: bool) -> None:
    encoder = tiny_encoder(width=16, layers=1)
    expected = TokenTable.of(encoder, TEXTS, side="query", folder=tmp_path).lists(np.arange(len(TEXTS)))
    (file,) = tmp_path.glob(f"tokens-query-*.{ending}")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content[: len(content) // 2] if cut else content)
    with pytest.warns(UserWarning, match=rf"{file} must be undamaged, got .*; it is made again"):
        table = TokenTable.of(encoder, TEXTS, side="query", folder=tmp_path)
    assert table.lists(np.arange(len(TEXTS))) == expected


@pytest.mark.parametrize("other", [{"max_tokens": 13}, {"query_prompt": "tell: "}])
def test_what_decides_tokens_decides_the_files(tmp_path: Path, other: dict[str, Any]) -> None:
    one = tiny_encoder(width=16, layers=1, settings=EncoderSettings(query_prompt="ask: ", max_tokens=12))
    settings = {"query_prompt": "ask: ", "max_tokens": 12, **other}
    changed = tiny_encoder(width=16, layers=1, settings=EncoderSettings(**settings))
    TokenTable.of(one, TEXTS, side="query", folder=tmp_path)
    table = TokenTable.of(changed, TEXTS, side="query", folder=tmp_path)
    assert table.lists(np.arange(len(TEXTS))) == changed.tokenize(TEXTS, side="query")


def test_a_full_disk_leaves_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = tiny_encoder(width=16, layers=1)

    def full(*_: object, **__: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(DataError, match=r"tokens-query-\w+\.npy must be writable, got No space left on device; free space there"):
        TokenTable.of(encoder, TEXTS, side="query", folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_of_a_table_is_taken_by_the_next(tmp_path: Path) -> None:
    encoder = tiny_encoder(width=16, layers=1)
    TokenTable.of(encoder, TEXTS, side="query", folder=tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    for path in list(tmp_path.iterdir()):
        path.unlink()
    for name in names:
        (tmp_path / f".{name}.part0").write_bytes(b"half of it" * 100)
    table = TokenTable.of(encoder, TEXTS, side="query", folder=tmp_path)
    assert table.lists(np.arange(len(TEXTS))) == encoder.tokenize(TEXTS, side="query")
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_no_texts_make_an_empty_table() -> None:
    encoder = tiny_encoder(width=16, layers=1)
    table = TokenTable.of(encoder, [], side="query")
    assert len(table) == 0
    assert embed_all(encoder, table, token_budget=10).shape == (0, 16)


@pytest.mark.parametrize("token_budget", [1, 20, 10_000])
def test_embedding_all_rows_equals_encoding_the_texts(token_budget: int) -> None:
    settings = EncoderSettings(query_prompt="ask: ", max_tokens=32, pool_prompt=False)
    encoder = tiny_encoder(width=16, layers=2, settings=settings, projection=8)
    table = TokenTable.of(encoder, TEXTS, side="query")
    ours = embed_all(encoder, table, token_budget=token_budget)
    np.testing.assert_allclose(ours.numpy(), encoder.encode(TEXTS, side="query", precision="fp32"), atol=1e-6)
    assert not ours.requires_grad


def test_embedding_some_rows_carries_gradients_to_the_weights() -> None:
    encoder = tiny_encoder(width=16, layers=1)
    table = TokenTable.of(encoder, TEXTS, side="query")
    rows = np.array([4, 1])
    embeddings = embed_rows(encoder, table, rows)
    np.testing.assert_allclose(embeddings.detach().numpy(), encoder.encode([TEXTS[4], TEXTS[1]], side="query", precision="fp32"), atol=1e-6)
    embeddings.sum().backward()  # type: ignore[no-untyped-call]
    assert all(weights.grad is not None for weights in encoder.used_parameters().values())


def test_padding_beside_a_long_text_does_not_change_a_short_one() -> None:
    encoder = tiny_encoder(width=16, layers=1)
    table = TokenTable.of(encoder, TEXTS, side="query")
    with torch.no_grad():
        alone, together = embed_rows(encoder, table, np.array([0])), embed_rows(encoder, table, np.array([0, 3]))
    torch.testing.assert_close(alone[0], together[0], atol=1e-6, rtol=0)
