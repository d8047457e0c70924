"""Reading on from a place: in every format the same rows as from the start, with the line numbers of the
file.
"""

import csv
import gzip
import io
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adiabat.core.errors import DataError
from adiabat.data.examples import ExampleReader, SourcePosition
from adiabat.data.lines import Cursor
from adiabat.data.records import Example, invented_id
from adiabat.data.table_rows import Row, read_rows
from tests.data.files import jsonl, zstd
from tests.refused import refused

COUNT = 23
ROWS = [
    {"query": f"frage {n} ä", "positive": f"answer, {n}\nsecond line" if n % 3 == 0 else f"answer {n}"}
    for n in range(COUNT)
]


def delimited(rows: list[dict[str, str]], delimiter: str) -> bytes:
    if delimiter == "\t":
        lines = "".join(f"{row['query']}\t{row['positive']}\n" for row in rows).replace("\nsecond", " second")
        return f"query\tpositive\n{lines}".encode()
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, ["query", "positive"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def with_blanks(content: bytes) -> bytes:
    """A blank line behind every other one, and at both ends."""
    kept = content.splitlines(keepends=True)
    return b"\n" + b"".join(line + b"  \n" * (number % 2) for number, line in enumerate(kept)) + b"\n\n"


def parquet(path: Path) -> None:
    """Two files, of several row groups each."""
    path.mkdir()
    for number, part in enumerate((ROWS[:9], ROWS[9:])):
        pq.write_table(pa.Table.from_pylist(part), path / f"{number}.parquet", row_group_size=4)


def saved(path: Path) -> None:
    datasets.Dataset.from_list(ROWS).save_to_disk(str(path))


CONTENTS: dict[str, bytes | Callable[[Path], None]] = {
    "plain.jsonl": jsonl(ROWS),
    "mark.jsonl": b"\xef\xbb\xbf" + jsonl(ROWS),
    "shards.jsonl": jsonl(ROWS, end="\r\n"),
    "blank.jsonl": with_blanks(jsonl(ROWS)),
    "no-end.jsonl": jsonl(ROWS).rstrip(b"\n"),
    "plain.csv": delimited(ROWS, ","),
    "mark.csv": b"\xef\xbb\xbf" + delimited(ROWS, ",").replace(b"\n", b"\r\n"),
    "plain.tsv": delimited(ROWS, "\t"),
    "blank.tsv": with_blanks(delimited(ROWS, "\t")),
    "packed.jsonl.gz": gzip.compress(jsonl(ROWS), mtime=0),
    "packed.csv.gz": gzip.compress(delimited(ROWS, ","), mtime=0),
    "packed.tsv.zst": zstd(delimited(ROWS, "\t")),
    "folder-of-parquet": parquet,
    "saved": saved,
}


def source_of(folder: Path, name: str) -> str:
    content = CONTENTS[name]
    if isinstance(content, bytes):
        (folder / name).write_bytes(content)
    else:
        content(folder / name)
    return str(folder / name)


def plain_rows(source: str, cursor: Cursor) -> list[tuple[str, dict[str, Any]]]:
    return [(row.location, dict(row.values)) for row in read_rows(source, cursor=cursor)]


@pytest.mark.parametrize("name", CONTENTS)
def test_rows_from_every_place_are_those_that_follow_it_from_the_start(tmp_path: Path, name: str) -> None:
    source = source_of(tmp_path, name)
    expected = plain_rows(source, Cursor())
    assert len(expected) == COUNT
    for count in range(COUNT + 1):
        cursor = Cursor()
        list(islice(read_rows(source, cursor=cursor), count))
        assert cursor.rows == count
        again = cursor.position()
        assert plain_rows(source, again) == expected[count:]
        assert again.rows == COUNT


def test_a_place_in_a_plain_file_is_the_line_and_byte_behind_the_last_row(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"a": 22}\r\n{"a": 3}')
    cursor, places = Cursor(), []
    for _ in read_rows(tmp_path / "a.jsonl", cursor=cursor):
        places.append(cursor.position())
    assert places == [Cursor(1, 1, 13), Cursor(2, 3, 26), Cursor(3, 4, 34)]


def test_a_quoted_field_of_several_lines_counts_as_one_row_of_several_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('query,positive\none,"first\n\nthird"\ntwo,x\n')
    cursor = Cursor()
    next(read_rows(path, cursor=cursor))
    assert cursor.position() == Cursor(1, 4, 15 + 11 + 1 + 7)
    assert [row.location for row in read_rows(path, cursor=cursor)] == [f"{path}:5"]


def test_nothing_before_the_place_is_read_of_a_plain_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"no json at all\n" * 5_000 + jsonl(ROWS))
    seen: list[int] = []
    open_stream = pa.input_stream

    class Noting(io.RawIOBase):
        def __init__(self, *given: Any, **options: Any) -> None:
            self._stream = open_stream(*given, **options)

        def readable(self) -> bool:
            return True

        def seek(self, offset: int, whence: int = 0) -> int:
            return int(self._stream.seek(offset, whence))

        def readinto(self, buffer: Any) -> int:
            seen.append(self._stream.tell())
            return int(self._stream.readinto(buffer))

    monkeypatch.setattr(pa, "input_stream", Noting)
    cursor = Cursor(0, 5_000, 75_000)
    assert len(list(read_rows(path, cursor=cursor))) == COUNT
    assert min(seen) >= 75_000 - 1


@pytest.mark.parametrize(
    ("name", "content", "mark", "found"),
    [
        ("a.jsonl", jsonl(ROWS[:1]), Cursor(2, 2, 500), "62 bytes where reading resumes at byte 500"),
        ("a.jsonl", jsonl(ROWS), Cursor(1, 1, 30), "the middle of a line where reading resumes at byte 30"),
        (
            "a.jsonl.gz",
            gzip.compress(jsonl(ROWS[:3]), mtime=0),
            Cursor(5, 5, 500),
            "3 lines where reading resumes at line 6",
        ),
        ("a.csv", b"query,positive\na,b\n", Cursor(3, 4, 80), "19 bytes where reading resumes at byte 80"),
    ],
)
def test_a_file_that_is_no_longer_the_same_is_told_in_one_line(
    tmp_path: Path, name: str, content: bytes, mark: Cursor, found: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with refused(DataError, f"{tmp_path / name} must be unchanged since it was read, got {found}; "):
        list(read_rows(tmp_path / name, cursor=mark.position()))


@pytest.mark.parametrize("name", ["folder-of-parquet", "saved"])
def test_a_table_with_fewer_rows_than_were_read_is_refused(tmp_path: Path, name: str) -> None:
    source = source_of(tmp_path, name)
    assert plain_rows(source, Cursor(COUNT)) == []
    with refused(DataError, f"{name} must be unchanged since it was read, got "):
        plain_rows(source, Cursor(COUNT + 2))


def test_row_groups_before_the_place_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_of(tmp_path, "folder-of-parquet")
    asked: list[list[int]] = []
    batches = pq.ParquetFile.iter_batches

    def noting(self: pq.ParquetFile, **options: Any) -> Any:
        asked.append(options["row_groups"])
        return batches(self, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noting)
    assert len(plain_rows(source, Cursor(9 + 6))) == COUNT - 15
    assert asked == [[1, 2, 3]]


def test_faults_behind_a_place_have_the_line_numbers_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl(ROWS[:4]) + b"{broken\n" + jsonl(ROWS[4:6]) + b"\xff\n")
    cursor = Cursor()
    list(islice(read_rows(path, cursor=cursor), 3))
    with refused(DataError, f"{path}:5 must be one JSON object", f"{path}:8 must be UTF-8"):
        list(read_rows(path, cursor=cursor))


@pytest.mark.parametrize("split", [None, "train"])
def test_a_data_set_of_the_hub_is_streamed_from_its_place(
    monkeypatch: pytest.MonkeyPatch, split: str | None
) -> None:
    asked: list[dict[str, Any]] = []

    def load(name: str, config: str | None, **options: Any) -> Any:
        asked.append({"name": name, "config": config, **options})
        return datasets.IterableDatasetDict({"train": datasets.Dataset.from_list(ROWS).to_iterable_dataset()})

    monkeypatch.setattr(datasets, "load_dataset", load)
    rows = list(read_rows("hf:some/set", split=split, cursor=Cursor(20)))
    assert asked == [{"name": "some/set", "config": None, "cache_dir": None, "streaming": True}]
    assert rows == [Row(f"hf:some/set:{n + 1}", ROWS[n], number=n) for n in range(20, COUNT)]


# --- Example readers ---


def queries(examples: Iterator[Example]) -> list[str]:
    return [example.query for example in examples]


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("name", ["plain.jsonl", "plain.csv", "packed.jsonl.gz", "folder-of-parquet"])
def test_readings_that_follow_each_other_give_every_example_once(
    tmp_path: Path, name: str, anew: bool
) -> None:
    source = source_of(tmp_path, name)
    reader, position, found = ExampleReader(source), SourcePosition(), []
    while not position.ended:
        reader = ExampleReader(source) if anew else reader
        found.append(list(reader.read(position, 5)))
        position = reader.position()
    assert [len(one) for one in found] == [5, 5, 5, 5, 3]
    whole = list(ExampleReader(source).read(SourcePosition(), COUNT))
    assert [one for part in found for one in part] == whole
    assert [one.query_id for one in whole] == [invented_id(n, one.query) for n, one in enumerate(whole)]
    assert (position.mark.rows, position.ends) == (COUNT, 1)
    assert queries(reader.read(position, 5)) == []
    assert queries(reader.read(position.rewound(), 2)) == [row["query"] for row in ROWS[:2]]
    assert reader.position().ends == 1


def test_the_end_is_seen_where_fewer_examples_come_than_were_asked_for(tmp_path: Path) -> None:
    reader = ExampleReader(source_of(tmp_path, "plain.jsonl"))
    assert len(queries(reader.read(SourcePosition(), COUNT))) == COUNT
    behind = reader.position()
    assert not behind.ended
    assert queries(reader.read(behind, 1)) == []
    assert reader.position() == SourcePosition(behind.mark, ended=True, ends=1)


def test_a_packed_file_is_opened_once_for_readings_that_follow_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = ExampleReader(source_of(tmp_path, "packed.jsonl.gz"))
    opened: list[str] = []
    open_stream = pa.input_stream

    def noting(path: str, **options: Any) -> Any:
        opened.append(path)
        return open_stream(path, **options)

    monkeypatch.setattr(pa, "input_stream", noting)
    position = SourcePosition()
    for _ in range(4):
        queries(reader.read(position, 5))
        position = reader.position()
    assert len(opened) == 1


def test_a_reading_that_was_given_up_halfway_does_not_move_the_tape(tmp_path: Path) -> None:
    reader = ExampleReader(source_of(tmp_path, "plain.jsonl"))
    queries(reader.read(SourcePosition(), 4))
    position = reader.position()
    next(iter(reader.read(position, 6)))
    assert queries(reader.read(position, 2)) == [row["query"] for row in ROWS[4:6]]


def test_a_fault_ends_its_own_reading_alone_and_a_mended_line_lets_reading_continue(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl(ROWS[:6]) + b"{broken\n" + jsonl(ROWS[6:]))
    reader = ExampleReader(str(path))
    queries(reader.read(SourcePosition(), 6))
    position = reader.position()
    with refused(DataError, "a.jsonl:7 must be one JSON object"):
        queries(reader.read(position, 6))
    path.write_bytes(jsonl(ROWS))
    assert queries(reader.read(position, 6)) == [row["query"] for row in ROWS[6:12]]


@pytest.mark.parametrize(
    ("name", "content", "facts"),
    [
        ("empty.jsonl", b"", ["at least one row, got none"]),
        (
            "cut.jsonl.gz",
            gzip.compress(jsonl(ROWS * 50), 0, mtime=0)[:-5],
            ["a whole gzip file, got one that ends early, after line"],
        ),
        (
            "grid.jsonl",
            jsonl([{"premise": {"de": "a"}, "hypothesis": {"de": "b"}, "label": 0}]),
            ["got a language grid"],
        ),
        (
            "other.jsonl",
            jsonl([{"query": "a", "reply": "b"}]),
            ['must have "query", "positive" ', 'got "query", "reply"'],
        ),
    ],
)
def test_what_cannot_be_streamed_is_told(tmp_path: Path, name: str, content: bytes, facts: list[str]) -> None:
    (tmp_path / name).write_bytes(content)
    with refused(DataError, *facts):
        queries(ExampleReader(str(tmp_path / name)).read(SourcePosition(), 10**6))
    (tmp_path / "qrels").mkdir()
    (tmp_path / "queries.jsonl").write_text("{}")
    with refused(DataError, "one example a row with data.stream, got a BEIR folder"):
        ExampleReader(str(tmp_path))
