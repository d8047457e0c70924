"""The mined file while it grows, and when it is done."""

import errno
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from adiabat.core.errors import DataError
from adiabat.data.examples import read_examples
from adiabat.data.records import Example, ExampleSet
from adiabat.mining.mined_file import BARE_FILE, ROW_FILES, ROWS_FILE, STATE_FILE, MinedRows, bare_path, ending_of, row_of
from tests.mining.world import CORPUS, QUERY, mined, miner_of

PLAN = {"settings": {"x": 1}}


def test_rows_are_those_of_whole_blocks_after_a_kill(tmp_path: Path) -> None:
    partial = MinedRows.open(tmp_path, PLAN)
    partial.counts.counts["queries"] = 2
    partial.extend([{"a": 1, "neg": [7]}, {"a": 2, "neg": []}, {"a": 3, "neg": [8]}], 3)
    for name in ROW_FILES:
        with (tmp_path / name).open("ab") as file:
            file.write(b'{"a": 4')
    again = MinedRows.open(tmp_path, PLAN)
    assert (again.done, again.counts.counts["queries"]) == (3, 2)
    assert (tmp_path / ROWS_FILE).read_text() == '{"a": 1, "neg": [7]}\n{"a": 3, "neg": [8]}\n'
    assert (tmp_path / BARE_FILE).read_text() == '{"a": 2, "neg": []}\n'
    assert MinedRows.open(tmp_path, {"settings": {"x": 2}}).done == 0
    assert not (tmp_path / STATE_FILE).exists()


@pytest.mark.parametrize("name", ROW_FILES)
@pytest.mark.parametrize("damage", [lambda content: b"", lambda content: content.replace(b"neg", b"beg")])
def test_rows_that_are_not_those_of_before_are_refused_by_name(tmp_path: Path, name: str, damage: Callable[[bytes], bytes]) -> None:
    MinedRows.open(tmp_path, PLAN).extend([{"a": 1, "neg": [7]}, {"a": 2, "neg": []}], 2)
    (tmp_path / name).write_bytes(damage((tmp_path / name).read_bytes()))
    with pytest.raises(DataError, match=rf"{name} must be undamaged, .* does not match its checksum; remove the folder .*, and run"):
        MinedRows.open(tmp_path, PLAN)


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    partial = MinedRows.open(tmp_path, PLAN)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=rf"{ROWS_FILE} must be writable, got No space left on device; free space there"):
        partial.extend([{"a": 1, "neg": [7]}], 1)


@pytest.mark.parametrize("name", ["m.jsonl", "m.jsonl.gz", "m.JSONL.zst"])
def test_the_file_is_packed_as_its_name_says(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    partial = MinedRows.open(folder, PLAN)
    partial.extend([{"query": "é", "pos": ["a"], "neg": []}, {"query": "q", "pos": ["b"], "neg": ["c"]}], 2)
    apart = bare_path(tmp_path / name)
    assert apart.name == name.replace("m.", "m.without-negatives.")
    partial.publish(tmp_path / name, apart)
    with pytest.raises(DataError, match=f"--out must be a new file, .*{name} exists; remove it"):
        partial.publish(tmp_path / name, None)
    for path, query in ((tmp_path / name, "q"), (apart, "é")):
        examples = read_examples(path)
        assert isinstance(examples, ExampleSet)
        assert [one.query for one in examples.examples] == [query]
    if name.endswith(".gz"):
        assert gzip.decompress((tmp_path / name).read_bytes()) == (folder / ROWS_FILE).read_bytes()


@pytest.mark.parametrize("name", ["m.json", "m", "m.jsonl.bz2", ".jsonl", "m.parquet"])
def test_other_endings_are_refused(name: str) -> None:
    with pytest.raises(DataError, match="--out must end in .jsonl, .jsonl.gz or .jsonl.zst"):
        ending_of(Path(name))


def test_a_row_holds_ids_or_texts_and_a_score_for_each(tmp_path: Path) -> None:
    miner = miner_of(tmp_path, [Example("x", QUERY, ("answer",), ("mat",))], listed="keep", negatives_per_query=2)
    (one,) = mined(miner)
    by_id, by_text = (row_of(one, miner.corpus, ids=ids) for ids in (True, False))
    assert list(by_id) == ["query_id", "query", "pos", "neg", "pos_scores", "neg_scores"]
    assert by_id["pos"] == ["answer"]
    assert by_id["neg"][0] == "mat"
    for key in ("pos", "neg"):
        assert by_text[key] == [CORPUS[name] for name in by_id[key]]
        assert len(by_id[f"{key}_scores"]) == len(by_id[key])
    assert by_text["neg_scores"] == by_id["neg_scores"]
    json.dumps(by_id, allow_nan=False)
