"""Texts by themselves: a text file with one on each line, or a column of a table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from adiabat.core.errors import ConfigError, DataError
from adiabat.data.columns import parsed_rows, quoted, text_value
from adiabat.data.folders import require_path
from adiabat.data.lines import CODECS, COLUMN_ALIASES, Cursor, text_lines
from adiabat.data.sources import Source
from adiabat.data.table_rows import FileFaults, Row, RowError, read_rows


@dataclass(frozen=True, slots=True)
class QueryLog:
    """Distinct queries that nobody judged, in the order of their source."""

    source: str
    texts: Sequence[str]


def read_query_log(source: str) -> QueryLog:
    """Read queries without judgements.

    Args:
        source: A text file (``.txt``, plain or compressed) with a query on each line, or a table as for
            `adiabat.data.table_rows.read_rows` with a column ``query``, another name of it, or ``text``.
    """
    faults, addressed = FileFaults(), addressed_column(source, "query", of="queries")
    rows = text_rows(source, faults, column="query")
    texts = dict.fromkeys(parsed_rows(rows, faults, partial(_query_of, addressed=addressed)))
    faults.raise_if_any()
    if not texts:
        raise DataError(f"{source} must hold at least one query, got none; check that the file is complete")
    return QueryLog(source, list(texts))


def _query_of(row: Row, *, addressed: str | None) -> str:
    """The query of a row; rows of texts alone, as of a list in Python, have no other column."""
    is_named = addressed is not None or any(name in row.values for name in COLUMN_ALIASES["query"])
    name = "query" if is_named or "text" not in row.values else "text"
    column = text_column(row, name, addressed, of="queries")
    return text_value(row.values[column], column, row.location)


def addressed_column(source: str | Path, name: str, *, of: str) -> str | None:
    """The column of texts that an address names, if it does; another one is refused."""
    columns = Source.of(source).columns
    if others := [other for other in columns if other != name]:
        raise ConfigError(
            f"{source} must name no column but {name} in its address, got {', '.join(others)}; "
            f"{of} have no others"
        )
    return columns.get(name)


def text_rows(source: str | Path, faults: FileFaults, *, column: str) -> Iterator[Row]:
    """The rows of a table, or the lines of a text file as rows of one column."""
    if not is_plain_text(source):
        yield from read_rows(source, faults=faults, mapped=True)
        return
    path = Path(source)
    require_path(path)
    for number, line, sound in text_lines(path, faults, Cursor()):
        if sound:
            yield Row(f"{path}:{number}", {column: line.rstrip("\r\n")})


def text_column(row: Row, name: str, addressed: str | None, *, of: str) -> str:
    """Find a column: that of the address, or our own name, otherwise there must be exactly one match."""
    names = [
        other for other in (COLUMN_ALIASES[name] if addressed is None else [addressed]) if other in row.values
    ]
    if name in names or len(names) == 1:
        return names[0]
    fault = f'{row.location} must have a column "{addressed or name}", got {quoted(row.values) or "none"}'
    advice = f'name the column of the {of} "{name}"' if addressed is None else "name a column that is there"
    if row.number == 0:  # No row has it, most likely: there is no need to name them all.
        raise DataError(f"{fault}; {advice}")
    raise RowError(fault, advice=advice)


def is_plain_text(source: str | Path) -> bool:
    """Whether a file has a text on each line, compressed or not."""
    return unpacked_name(Path(source)).lower().endswith(".txt")


def unpacked_name(path: Path) -> str:
    """Name of a file without the ending of its compression."""
    return path.stem if path.suffix.lower() in CODECS else path.name
