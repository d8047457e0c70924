"""Tables whose columns compute the cells of a row, for the pages of sweeps and suites."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from adiabat.report import tables
from adiabat.report.tables import ColumnKind, Content, csv_cell


@dataclass(frozen=True, slots=True)
class Column:
    """A column, and its function from row to cell."""

    head: str
    of: Callable[[Any], Content]
    kind: ColumnKind = "text"
    sub: Sequence[str] = ()
    first: str = ""
    full: str = ""
    group: str = ""


def no_class(row: Any) -> str:
    """No CSS class."""
    return ""


class Table(tables.Table):
    """A table of rows that the columns can read."""

    def __init__(
        self,
        *,
        columns: Sequence[Column],
        rows: Sequence[Any],
        row_class: Callable[[Any], str] = no_class,
        **options: Any,
    ) -> None:
        if rows and isinstance(rows[0], tables.Row):
            # dataclasses.replace passes what is there already.
            super().__init__(columns=columns, rows=list(rows), **options)
            return
        heads = [
            tables.Column(column.head, column.kind, column.sub, column.first, column.full, column.group)
            for column in columns
        ]
        super().__init__(columns=heads, **options)
        for row in rows:
            self.add(*(column.of(row) for column in columns), style=row_class(row))

    def to_csv(self) -> str:
        """Values with all their digits."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([csv_cell(column.head) for column in self.columns])
        writer.writerows([csv_cell(cell.value) for cell in row.cells] for row in self.rows)
        return file.getvalue()
