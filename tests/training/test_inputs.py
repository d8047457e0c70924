"""Inputs of a training, looked at without being read."""

from pathlib import Path

import pytest

from adiabat.core.errors import DataError, StoreError
from adiabat.store.addressing import require_inputs


def test_what_is_there_passes_unread(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text("no JSON")
    (tmp_path / "beir" / "qrels").mkdir(parents=True)
    for name in ("queries", "corpus"):
        (tmp_path / "beir" / f"{name}.jsonl").touch()
    pairs, folder = str(tmp_path / "pairs.jsonl"), str(tmp_path / "beir")
    require_inputs([pairs, folder, "hf:some/set"], corpora=[pairs, folder, "hf:some/corpus"])


def test_every_fault_is_told_once_as_its_reader_tells_it(tmp_path: Path) -> None:
    gone, notes, store = (str(tmp_path / name) for name in ("gone.jsonl", "notes.txt", "s"))
    Path(notes).touch()
    with pytest.raises(DataError, match="gone.jsonl must exist, got no such file; check the path$"):
        require_inputs([], corpora=[gone])
    with pytest.raises(StoreError, match="s must be a store, there is no such directory"):
        require_inputs([], stores=[store])
    with pytest.raises(
        DataError,
        match=r"^3 faults: .*s must be a store.*; .*gone.jsonl must exist.*; .*notes.txt must end in",
    ):
        require_inputs([gone, gone, notes], stores=[store])
