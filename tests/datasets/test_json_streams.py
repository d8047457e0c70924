import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from adiabat.core.errors import DataError
from adiabat.core.progress import Watch
from adiabat.data.table_rows import FileFaults
from adiabat.datasets import json_streams as streams
from adiabat.datasets.json_streams import json_elements, read_json, split_files, tab_rows
from tests.data import files
from tests.refused import refused

ELEMENTS: list[Any] = [
    {"a": [1, "x]"], "b": {"c": "מ,"}},
    [],
    'text, with ] and \\ "',
    12345,
    -1.5e10,
    None,
    True,
    {},
]


def write(path: Path, text: str) -> Path:
    return files.write(path, text.encode())


@pytest.mark.parametrize("read_bytes", [1, 2, 3, 7, 64, 1 << 20])
@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_elements_are_those_of_the_whole_array_however_much_is_read_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_bytes: int, indent: int | None, ending: str
) -> None:
    monkeypatch.setattr(streams, "_READ_BYTES", read_bytes)
    assert list(json_elements(write(tmp_path / f"none.json{ending}", "\ufeff [ ] \n"))) == []
    path = write(tmp_path / f"a.json{ending}", json.dumps(ELEMENTS, ensure_ascii=False, indent=indent) + "\n")
    assert list(json_elements(path)) == list(enumerate(ELEMENTS, 1))
    assert read_json(path) == ELEMENTS


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "must be one JSON array, got the end of the file"),
        ('{"a": 1}', 'must be one JSON array, got {"a": 1}'),
        ("[1, 2", "must have a comma or its end after element 2, got the end of the file"),
        ('[1, {"a": "b', 'element 2 must be whole JSON, got {"a": "b'),
        ("[1 2]", "must have a comma or its end after element 1, got 2]"),
        ("[1,]", "element 2 must be whole JSON, got ]"),
        ("[1] 2", "must be one JSON array with nothing after it, got 2"),
        ("[] []", "must be one JSON array with nothing after it, got []"),
        ("[" * 100_000, "element 1 must be whole JSON, got [[[["),
    ],
)
def test_what_is_no_array_is_told_with_its_place(tmp_path: Path, text: str, wanted: str) -> None:
    with refused(DataError, wanted):
        list(json_elements(write(tmp_path / "a.json", text)))


def test_an_array_cut_anywhere_is_an_error_and_never_a_shorter_array(tmp_path: Path) -> None:
    text = json.dumps(ELEMENTS)
    for length in range(len(text)):
        with refused(DataError, "a.json"):
            list(json_elements(write(tmp_path / "a.json", text[:length])))


WHOLE = gzip.compress(json.dumps(list(range(1000))).encode())


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("cut.json.gz", WHOLE[: len(WHOLE) // 2], "be readable to its end"),
        ("plain.json.gz", b"[1]", "be readable to its end"),
        ("a.json", b'["\xe9t\xe9"]', "be UTF-8, got byte 0xe9"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    (tmp_path / name).write_bytes(content)
    for read in (read_json, lambda path: list(json_elements(path))):
        with refused(DataError, f"{name} must {told}"):
            read(tmp_path / name)


def test_an_element_without_end_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_READ_BYTES", 1_000)
    monkeypatch.setattr(streams, "_LONGEST_ELEMENT", 5_000)
    told: list[int] = []
    path = write(tmp_path / "a.json", '[{"a": "' + "x" * 1_000_000)
    with refused(DataError, 'element 1 must be whole JSON, got {"a": "xxx'):
        list(json_elements(path, watch=Watch(progress=lambda label, done, total: told.append(done))))
    assert max(told) <= 32_000


def test_progress_runs_to_the_size_of_the_packed_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(0)
    path = write(tmp_path / "a.json.gz", json.dumps([draw.randbytes(1_000).hex() for _ in range(200)]))
    monkeypatch.setattr(streams, "_READ_BYTES", 5_000)
    told: list[tuple[str, int, int]] = []
    list(json_elements(path, watch=Watch(progress=lambda *one: told.append(one))))
    size = path.stat().st_size
    assert {(label, total) for label, _, total in told} == {("bytes of a.json.gz", size)}
    done = [one[1] for one in told]
    assert done == sorted(done)
    assert done[0] < done[-1] == size


def test_tab_rows_have_their_fields_and_locations_and_faults_do_not_end_them(tmp_path: Path) -> None:
    faults, path = FileFaults(), tmp_path / "a.tsv"
    path.write_bytes(
        '7\tan "odd\u2028text\r\n\n8\tשלום\n9\n10\ta\tb\n11\tfirst\n'.encode() + b"1\t\xff\n2\tlast"
    )
    rows = {1: ["7", 'an "odd\u2028text'], 3: ["8", "שלום"], 6: ["11", "first"], 8: ["2", "last"]}
    assert list(tab_rows(path, 2, faults)) == [(f"{path}:{line}", cells) for line, cells in rows.items()]
    assert faults.told() == (
        f"3 faults: {path}:4 must have 2 fields between tabs, got 1; "
        f"{path}:5 must have 2 fields between tabs, got 3; "
        f"{path}:7 must be UTF-8, got byte 0xff at byte 3 of the line"
    )


def test_the_splits_of_a_source_are_its_files(tmp_path: Path) -> None:
    patterns = {"train": "train-v*.json*", "dev": "dev-v*.json*"}
    with refused(DataError, "must hold train-v*.json* or dev-v*.json*, got none of them"):
        split_files(tmp_path, patterns)
    names = ("dev-v1.1.json", "train-v1.1.json.gz", "README")
    dev, train, other = (write(tmp_path / name, "{}") for name in names)
    assert list(split_files(tmp_path, patterns).items()) == [("train", train), ("dev", dev)]
    assert split_files(dev, patterns) == {"dev": dev}
    assert split_files(other, patterns) == {"test": other}
    write(tmp_path / "dev-v2.0.json", "{}")
    with refused(DataError, "one file of each split, got dev-v1.1.json and dev-v2.0.json"):
        split_files(tmp_path, patterns)
    with refused(DataError, "dev-v1.2.json must exist, got no such file; did you mean"):
        split_files(tmp_path / "dev-v1.2.json", patterns)
