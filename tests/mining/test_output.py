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
from adiabat.mining.mined_file import APART_FILE, GROWING, ROWS_FILE, STATE_FILE, Partial, apart_of, ending_of, row_of
from tests.mining.world import CORPUS, QUERY, mined, miner_of

PLAN = {"settings": {"x": 1}}


def test_rows_are_those_of_whole_blocks_after_a_kill(tmp_path: Path) -> None:
    partial = Partial.of(tmp_path, PLAN)
    partial.tally.add("queries", 2)
    partial.extend([{"a": 1, "neg": [7]}, {"a": 2, "neg": []}, {"a": 3, "neg": [8]}], 3)
    for name in GROWING:
        with (tmp_path / name).open("ab") as file:
            file.write(b'{"a": 4')
    again = Partial.of(tmp_path, PLAN)
    assert (again.done, again.tally.counts["queries"]) == (3, 2)
    assert (tmp_path / ROWS_FILE).read_text() == '{"a": 1, "neg": [7]}\n{"a": 3, "neg": [8]}\n'
    assert (tmp_path / APART_FILE).read_text() == '{"a": 2, "neg": []}\n'


def test_another_plan_begins_anew(tmp_path: Path) -> None:
    Partial.of(tmp_path, PLAN).extend([{"a": 1, "neg": [7]}, {"a": 2, "neg": []}], 2)
    assert Partial.of(tmp_path, {"settings": {"x": 2}}).done == 0
    assert not (tmp_path / STATE_FILE).exists()


@pytest.mark.parametrize("name", GROWING)
@pytest.mark.parametrize("damage", [lambda content: b"", lambda content: content.replace(b"neg", b"beg")])
def test_rows_that_are_not_those_of_before_are_refused_by_name(tmp_path: Path, name: str, damage: Callable[[bytes], bytes]) -> None:
    Partial.of(tmp_path, PLAN).extend([{"a": 1, "neg": [7]}, {"a": 2, "neg": []}], 2)
    (tmp_path / name).write_bytes(damage((tmp_path / name).read_bytes()))
    with pytest.raises(DataError, match=rf"{name} must be undamaged, .* does not match its checksum; remove the folder .*, and run"):
        Partial.of(tmp_path, PLAN)


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    partial = Partial.of(tmp_path, PLAN)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=rf"{ROWS_FILE} must be writable, got No space left on device; free space there"):
        partial.extend([{"a": 1, "neg": [7]}], 1)


@pytest.mark.parametrize("name", ["m.jsonl", "m.jsonl.gz", "m.JSONL.zst"])
def test_the_file_is_packed_as_its_name_says(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    partial = Partial.of(folder, PLAN)
    partial.extend([{"query": "é", "pos": ["a"], "neg": []}, {"query": "q", "pos": ["b"], "neg": ["c"]}], 2)
    apart = apart_of(tmp_path / name)
    assert apart.name == name.replace("m.", "m.without-negatives.")
    partial.publish(tmp_path / name, apart)
    for path, query in ((tmp_path / name, "q"), (apart, "é")):
        examples = read_examples(path)
        assert isinstance(examples, ExampleSet)
        assert [one.query for one in examples.examples] == [query]
    if name.endswith(".gz"):
        assert gzip.decompress((tmp_path / name).read_bytes()) == (folder / ROWS_FILE).read_bytes()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    partial = Partial.of(tmp_path, PLAN)
    (tmp_path / "m.jsonl").write_text("mine\n")
    with pytest.raises(DataError, match="--out must be a new file, .*m.jsonl exists; remove it, or choose another"):
        partial.publish(tmp_path / "m.jsonl", None)
    assert (tmp_path / "m.jsonl").read_text() == "mine\n"


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
