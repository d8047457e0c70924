"""Columns of Arrow tables that no other library is loaded for."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import adiabat
from adiabat.core import arrow_columns
from adiabat.core.arrow_columns import numbers_column, strings_column, table_of


@pytest.mark.parametrize("strings", [[], [""], ["a", "", "ü€ 𝄞", "b" * 300]])
def test_strings_are_the_column_that_arrow_makes(strings: list[str]) -> None:
    made, arrows = strings_column(strings), pa.array(strings, pa.string())
    made.validate(full=True)
    assert made.equals(arrows)


@pytest.mark.parametrize(
    "numbers",
    [
        np.array([1.5, np.nan, -np.inf]),
        np.arange(12, dtype=np.float32)[::3],
        np.array([], dtype=np.int64),
        np.arange(5, dtype=np.uint8),
        np.array([True, False, True] * 5),
        np.zeros(0, dtype=np.bool_),
    ],
)
def test_numbers_are_the_column_that_arrow_makes(numbers: np.ndarray) -> None:
    made, arrows = numbers_column(numbers), pa.array(numbers)
    made.validate(full=True)
    assert made.type == arrows.type
    assert str(made.to_pylist()) == str(arrows.to_pylist())


def test_strings_beyond_the_largest_offset_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_columns, "LARGEST_OFFSET", 5)
    assert len(strings_column(["abc", "de"])) == 2
    with pytest.raises(ValueError, match="at most 5 bytes, got 6"):
        strings_column(["abc", "def"])


def test_rows_are_the_table_that_arrow_makes() -> None:
    columns: dict[str, list[object]] = {
        "text": ["ü", None, "b"],
        "rate": [1e-3, None, 2.0],
        "seed": [1, 2, None],
        "mixed": [2, 0.5, None],
        "ok": [True, None, False],
        "none": [None, None, None],
        "last": [None, "", "c"],
        "list": [[1, 2], None, []],
    }
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for part in (rows, rows[:1], rows[1:2], rows[:0]):
        made = table_of(part)
        made.validate(full=True)
        assert made.equals(pa.Table.from_pylist(part))
        assert made.schema.equals(pa.Table.from_pylist(part).schema)


def test_no_column_is_made_in_a_way_that_imports_pandas() -> None:
    code = (
        "import sys, numpy as np; from adiabat.core.arrow_columns import *; "
        "strings_column(['a']), numbers_column(np.arange(2)); "
    )
    subprocess.run([sys.executable, "-c", f"{code}sys.exit('pandas' in sys.modules)"], check=True)
    sources = (
        path for path in Path(adiabat.__file__).parent.rglob("*.py") if path.name != "arrow_columns.py"
    )
    assert [
        path.name for path in sources if re.search(r"pa\.array\(|from_py", path.read_text(encoding="utf-8"))
    ] == []
