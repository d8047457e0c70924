"""Inputs of a training, looked at without being read."""

from pathlib import Path

from adiabat.core.errors import DataError, StoreError
from adiabat.store.addressing import require_inputs
from tests.refused import one_line


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
    with one_line(DataError, "gone.jsonl must exist", "no such file", "check the path"):
        require_inputs([], corpora=[gone])
    with one_line(StoreError, f"{store} must be a store", "no such directory"):
        require_inputs([], stores=[store])
    told = (f"{store} must be a store", f"{gone} must exist", f"{notes} must end in")
    with one_line(DataError, "3 faults: ", *told):
        require_inputs([gone, gone, notes], stores=[store])
