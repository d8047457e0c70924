from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adiabat.core.errors import DataError
from adiabat.data.table_formats import parquet_paths, parquet_rows, parquet_size
from adiabat.data.table_rows import read_rows


def write(path: Path, *columns: tuple[str, pa.Array]) -> Path:
    pq.write_table(pa.table([values for _, values in columns], names=[name for name, _ in columns]), path)
    return path


def texts_with_a_stray_byte(before: int) -> pa.Array:
    """Texts ``a``, `before` of them, then one that is not UTF-8; Arrow checks none of it."""
    data = b"a" * before + b"b\xff"
    offsets = pa.array([*range(before + 1), before + 2], pa.int32())
    return pa.Array.from_buffers(pa.string(), before + 1, [None, offsets.buffers()[1], pa.py_buffer(data)])


def fault(path: Path, column: str) -> str:
    with pytest.raises(DataError) as caught:
        [row.values[column] for row in read_rows(path)]
    return str(caught.value)


def test_rows_come_back_as_written(tmp_path):
    rows = [{"id": n, "text": f"text {n}", "more": {"list": [n, None]}} for n in range(2500)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    read = list(parquet_rows(tmp_path / "rows.parquet"))
    assert [dict(values) for _, values in read] == rows
    assert [place for place, _ in read] == [f"{tmp_path / 'rows.parquet'}:{n}" for n in range(1, 2501)]
    assert parquet_size(tmp_path) == 2500
    assert parquet_paths(tmp_path) == [tmp_path / "rows.parquet"]
    first = read[0][1]
    assert (list(first), len(first), "text" in first, "none" in first, first.get("none")) == (["id", "text", "more"], 3, True, False, None)


def test_a_time_that_python_cannot_hold_matters_only_where_it_is_used(tmp_path):
    when = pa.array([0, 2**62], pa.timestamp("us"))
    path = write(tmp_path / "rows.parquet", ("id", pa.array([1, 2])), ("when", when))
    assert [row.values["id"] for row in read_rows(path)] == [1, 2]
    message = fault(path, "when")
    assert message.startswith(f'{path}:2: "when" must hold values that Python can hold, got timestamp[us]: ')
    assert message.endswith("; write the column as text, or drop it")


@pytest.mark.parametrize("before", [0, 1500])
def test_a_text_that_is_not_utf8_is_named_with_its_row_and_column(tmp_path, before):
    path = write(tmp_path / "rows.parquet", ("id", pa.array(range(before + 1))), ("text", texts_with_a_stray_byte(before)))
    assert [row.values["id"] for row in read_rows(path)] == list(range(before + 1))
    assert fault(path, "text") == (
        f'{path}:{before + 1}: "text" must be UTF-8, got byte 0xff at byte 2 of the value; write the column again as UTF-8'
    )


def test_a_column_given_twice_matters_only_where_it_is_used(tmp_path):
    path = write(tmp_path / "rows.parquet", ("id", pa.array([1])), ("text", pa.array(["x"])), ("text", pa.array(["y"])))
    assert [(row.values["id"], list(row.values)) for row in read_rows(path)] == [(1, ["id", "text"])]
    assert fault(path, "text") == f'{path} must have one column "text", got 2 of that name; rename or drop the others'
