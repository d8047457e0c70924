"""Probe texts: queries to a store before and after tuning, whose right answers are unknown.

``scripts/make_probes.py`` made the packaged sets; ``files/README.md`` describes their content and sources.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from adiabat.adiabatic.drift import written_otherwise
from adiabat.core.errors import DataError
from adiabat.core.provenance import packaged_folder, require_published
from adiabat.data.columns import id_value, parsed_rows, text_value
from adiabat.data.folders import table_name
from adiabat.data.table_rows import FileFaults, Row
from adiabat.data.text_files import addressed_column, is_plain_text, text_column, text_rows, unpacked_name

DEFAULT, SAMPLE, REHEARSAL = "default", "sample", "rehearsal"
"""Names of the packaged sets: one to measure drift on, a quarter of each of its groups, and other texts of
these groups for rehearsal."""

SAMPLED = 4
"""One in this number of the default probes is in the sample."""

LEAST_PROBES = 20
"""Minimum size of a set: a mean over fewer probes describes only them."""

GROUP_COLUMNS = ("group", "lang", "language")
"""Accepted names of the group column, in order of preference."""

_PACKAGED = {
    DEFAULT: ("probes.jsonl.zst", "5d6268e572f3e75e7342828ebd4c07aee2cf9d940aa4ca9c8ff0cbece254322c"),
    REHEARSAL: ("rehearsal.jsonl.zst", "d993dd1351e4dc91ba53db39fe9d66e98ab68c3323560e2a4f6a6f85982b8260"),
}
"""Name to file and SHA-256."""


@dataclass(frozen=True, slots=True)
class ProbeSet:
    """Texts to search with, as queries.

    Attributes:
        name: For tables and reports.
        texts: Distinct texts, in file order.
        groups: Group of each text, such as its language or domain.
        notes: Notes on texts that were left out.
    """

    name: str
    texts: list[str]
    groups: list[str]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    def otherwise(self) -> "ProbeSet":
        """The same probes with changed punctuation (`adiabat.adiabatic.drift`)."""
        return replace(self, texts=[written_otherwise(text) for text in self.texts])

    @property
    def sha256(self) -> str:
        """Digest of texts and groups in order, independent of their file."""
        # JSON keeps texts and groups apart, which a join of them would not.
        rows = json.dumps(list(zip(self.texts, self.groups, strict=True)))
        return hashlib.sha256(rows.encode()).hexdigest()


def read_probes(source: str | Path | None = None) -> ProbeSet:
    """Read probe texts.

    Args:
        source: A text file (``.txt``, plain or compressed) with a probe on each line, whose group is the
            file's name; a table as for `adiabat.data.table_rows.read_rows` with a column ``text``, or another
            name of it in corpora, and optionally one of `GROUP_COLUMNS`; or the name of a packaged set,
            ``default`` (also None), ``sample`` or ``rehearsal``.
    """
    name = DEFAULT if source is None else str(source)
    if name == SAMPLE:
        whole = read_probes(DEFAULT)
        return ProbeSet(SAMPLE, whole.texts[::SAMPLED], whole.groups[::SAMPLED])
    if name in _PACKAGED:
        file, sha256 = _PACKAGED[name]
        return _probe_set(require_published(packaged_folder("adiabatic") / file, sha256), name)
    return _probe_set(name, Path(unpacked_name(Path(name))).stem if is_plain_text(name) else table_name(name))


def _probe_set(source: str | Path, name: str) -> ProbeSet:
    faults, addressed = FileFaults(), addressed_column(source, "text", of="probes")
    rows = text_rows(source, faults, column="text")
    probes = list(parsed_rows(rows, faults, partial(_parse_probe, group=name, text=addressed)))
    faults.raise_if_any()
    # A text that repeats keeps the group of its first row.
    groups: dict[str, str] = {}
    for text, group in probes:
        groups.setdefault(text, group)
    if len(groups) < LEAST_PROBES:
        raise DataError(
            f"{source} must hold at least {LEAST_PROBES} different texts, got {len(groups)}; "
            f"add some, or take the packaged ones ({DEFAULT})"
        )
    # Repeated texts would count twice in every mean.
    repeated = len(probes) - len(groups)
    notes = (
        (f"{repeated:,} of {len(probes):,} probes repeated the text of another and were left out",)
        if repeated
        else ()
    )
    return ProbeSet(name, list(groups), list(groups.values()), notes)


def _parse_probe(row: Row, *, group: str, text: str | None) -> tuple[str, str]:
    """Text and group of a row; `group` is the default of rows without a group column, and `text` the column
    that the address names.
    """
    column = text_column(row, "text", text, of="probes")
    group_column = next((name for name in GROUP_COLUMNS if name in row.values), None)
    probe = text_value(row.values[column], column, row.location)
    return probe, group if group_column is None else id_value(
        row.values[group_column], group_column, row.location
    )
