"""Probe texts: what is asked of a store before and after tuning, without anyone knowing the answer.

The packaged sets were made by ``scripts/make_probes.py``; ``files/README.md`` tells what they hold and whose texts they are.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from adiabat.adiabatic.drift import written_otherwise
from adiabat.core.errors import DataError
from adiabat.core.provenance import packaged_folder, require_published
from adiabat.data.columns import RowError, id_value, parsed_rows, quoted, text_value
from adiabat.data.lines import CODECS, Cursor, text_lines
from adiabat.data.table_headers import COLUMN_ALIASES
from adiabat.data.table_rows import FileFaults, Row, read_rows, require_path, table_name

DEFAULT, REHEARSAL = "default", "rehearsal"
"""Names of the packaged sets: what drift is measured on, and other texts of the same groups, to hold a tower at."""

LEAST_PROBES = 20
"""Of a set: the mean over fewer says little of anything but them."""

GROUP_COLUMNS = ("group", "lang", "language")
"""Names that the column of groups may have, the first found taken."""

_PACKAGED = {
    DEFAULT: ("probes.jsonl.zst", "5d6268e572f3e75e7342828ebd4c07aee2cf9d940aa4ca9c8ff0cbece254322c"),
    REHEARSAL: ("rehearsal.jsonl.zst", "d993dd1351e4dc91ba53db39fe9d66e98ab68c3323560e2a4f6a6f85982b8260"),
}
"""Name to file and SHA-256."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A text to retrieve by.

    Attributes:
        text: As a query would be.
        group: What it is told apart by, such as its language or domain.
    """

    text: str
    group: str


@dataclass(frozen=True, slots=True)
class ProbeSet:
    """Probes, each text once.

    Attributes:
        name: For tables and reports.
        probes: In file order.
        notes: What was left out.
    """

    name: str
    probes: tuple[Probe, ...]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.probes)

    @property
    def texts(self) -> list[str]:
        """Of each probe."""
        return [probe.text for probe in self.probes]

    @property
    def groups(self) -> list[str]:
        """Of each probe."""
        return [probe.group for probe in self.probes]

    def otherwise(self) -> "ProbeSet":
        """The same probes, each written a little otherwise (`adiabat.adiabatic.drift`)."""
        return replace(self, probes=tuple(replace(probe, text=written_otherwise(probe.text)) for probe in self.probes))

    @property
    def sha256(self) -> str:
        """Of texts and groups in their order, whatever file they came in: sets with the same are the same probes."""
        rows = json.dumps([[probe.text, probe.group] for probe in self.probes])
        return hashlib.sha256(rows.encode()).hexdigest()


def read_probes(source: str | Path | None = None) -> ProbeSet:
    """Read probe texts.

    Args:
        source: A text file (``.txt``, plain or packed) with a probe in each line, whose group is the file's name; a table as for
            `adiabat.data.table_rows.read_rows` with a column ``text``, or a name that corpora have for it, and, where probes are told
            apart, one of `GROUP_COLUMNS`; or the name of a packaged set, ``default`` (as None is) or ``rehearsal``.
    """
    name = DEFAULT if source is None else str(source)
    if name in _PACKAGED:
        file, sha256 = _PACKAGED[name]
        return _probe_set(require_published(packaged_folder("adiabatic") / file, sha256), name)
    return _probe_set(name, Path(_unpacked_name(Path(name))).stem if _is_plain_text(name) else table_name(name))


def _probe_set(source: str | Path, name: str) -> ProbeSet:
    faults = FileFaults()
    rows = _line_rows(Path(source), faults) if _is_plain_text(source) else read_rows(source, faults=faults)
    probes: dict[str, Probe] = {}
    repeated = 0
    for probe in parsed_rows(rows, faults, partial(_parse_probe, group=name)):
        repeated += probes.setdefault(probe.text, probe) is not probe
    faults.raise_if_any()
    if len(probes) < LEAST_PROBES:
        raise DataError(
            f"{source} must hold at least {LEAST_PROBES} different texts, got {len(probes)}; "
            f"add some, or take the packaged ones ({DEFAULT})"
        )
    notes = (f"{repeated:,} of {repeated + len(probes):,} probes repeated the text of another and were left out",) if repeated else ()
    return ProbeSet(name, tuple(probes.values()), notes)


def _parse_probe(number: int, row: Row, *, group: str) -> Probe:
    """One row; `group` is that of rows without a column for it."""
    text_column = _text_column(number, row)
    group_column = next((name for name in GROUP_COLUMNS if name in row.values), None)
    text = text_value(row.values[text_column], text_column, row.location)
    return Probe(text, group if group_column is None else id_value(row.values[group_column], group_column, row.location))


def _text_column(number: int, row: Row) -> str:
    """Our own name wins, and another must be the only one."""
    names = [name for name in COLUMN_ALIASES["text"] if name in row.values]
    if "text" in names or len(names) == 1:
        return names[0]
    fault = f'{row.location} must have a column "text", got {quoted(row.values) or "none"}'
    advice = 'name the column of the probes "text"'
    if number == 0:  # No row has it, most likely: there is no need to name them all.
        raise DataError(f"{fault}; {advice}")
    raise RowError(fault, advice=advice)


def _is_plain_text(source: str | Path) -> bool:
    return _unpacked_name(Path(source)).lower().endswith(".txt")


def _unpacked_name(path: Path) -> str:
    return path.stem if path.suffix.lower() in CODECS else path.name


def _line_rows(path: Path, faults: FileFaults) -> Iterator[Row]:
    require_path(path)
    for number, line, sound in text_lines(path, faults, Cursor()):
        if sound:
            yield Row(f"{path}:{number}", {"text": line.rstrip("\r\n")})
