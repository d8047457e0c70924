"""Inputs of a training, looked at without being read."""

from collections.abc import Callable
from pathlib import Path

import pytest

from adiabat.core.errors import DataError, StoreError
from adiabat.store.addressing import require_inputs


def beir(folder: Path) -> str:
    (folder / "qrels").mkdir(parents=True)
    (folder / "queries.jsonl").touch()
    (folder / "corpus.jsonl").touch()
    return str(folder)


def test_what_is_there_passes_unread(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text("no JSON")
    pairs, folder = str(tmp_path / "pairs.jsonl"), beir(tmp_path / "beir")
    require_inputs([pairs, folder, "hf:some/set"], corpora=[pairs, folder, "hf:some/corpus"])


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        (lambda path: {"examples": [path]}, DataError, "gone.jsonl must exist, got no such file; check the path"),
        (lambda path: {"examples": [], "corpora": [path]}, DataError, "gone.jsonl must exist, got no such file; check the path"),
        (lambda path: {"examples": [], "stores": [path]}, StoreError, "gone.jsonl must be a store, there is no such directory"),
    ],
)
def test_one_fault_is_told_as_its_reader_tells_it(
    given: Callable[[str], dict[str, list[str]]], error: type[Exception], told: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=told):
        require_inputs(**given(str(tmp_path / "gone.jsonl")))


def test_several_faults_are_told_at_once_and_each_once(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(DataError) as fault:
        require_inputs([str(tmp_path / "a.jsonl"), str(tmp_path / "a.jsonl"), str(tmp_path / "notes.txt")], stores=[str(tmp_path / "s")])
    told = str(fault.value)
    assert told.startswith("3 faults: ")
    assert [word for word in ("a.jsonl must exist", "notes.txt must end in", "s must be a store") if word not in told] == []
