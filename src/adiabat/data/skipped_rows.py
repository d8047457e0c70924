"""What a reader passes over, or takes in its own way, in the rows of a source: a sentence each, once the rows are read."""

import difflib
import warnings
from collections import Counter
from collections.abc import Iterable, Set
from pathlib import Path

from adiabat.core.text import cut
from adiabat.data.table_rows import Row

_USUAL = frozenset(("metadata", "pos_scores", "neg_scores"))
"""Columns that formats of the field have in every row: BEIR's corpora, and FlagEmbedding's mined negatives."""

_SHOWN = 8
_MOST = 1_000
"""Names that are remembered: objects whose keys are ids must not fill the memory."""


class Remarks:
    """Columns that are not read, cells that look like lists, and labels that make documents negatives."""

    def __init__(self) -> None:
        self._unread: dict[str, str] = {}
        self._lists: dict[tuple[str, bool], tuple[str, int]] = {}
        self._wrong: Counter[str] = Counter()

    def add_unread(self, row: Row, used: Set[str], known: Iterable[str] = ()) -> None:
        """Note the columns of a row that are not read."""
        unread = row.values.keys() - used - _USUAL
        if unread <= self._unread.keys() or len(self._unread) == _MOST:
            return
        known = list(known)
        for name in (name for name in row.values if name in unread and name not in self._unread):
            near = difflib.get_close_matches(name.lower(), known, n=1) if len(self._unread) < _SHOWN else []
            self._unread[name] = near[0] if near and near[0] != name else ""
            if len(self._unread) == _MOST:
                return

    def add_list(self, column: str, location: str, *, read: bool) -> None:
        """Note a text that looks like a list."""
        first, count = self._lists.get((column, read), (location, 0))
        self._lists[column, read] = first, count + 1

    def add_label(self, column: str) -> None:
        """Note a row with a document that does not answer."""
        self._wrong[column] += 1

    def interpretations(self) -> list[str]:
        """On values that were taken in a way of our own."""
        sentences = [
            f'"{cut(column, limit=60)}" looks like a list in {count:,} row{"" if count == 1 else "s"} (first {first}) and is '
            + ("read as one" if read else "taken for one text; write a JSON list if it is one")
            for (column, read), (first, count) in self._lists.items()
        ]
        return sentences + [
            f'"{cut(column, limit=60)}" is a label: documents with 0 are negatives, in {count:,} row{"" if count == 1 else "s"}'
            for column, count in self._wrong.items()
        ]

    def sentences(self) -> list[str]:
        """All remarks."""
        sentences = self.interpretations()
        if self._unread:
            names = [
                f'"{cut(name, limit=40)}"' + (f' (nearest known name: "{near}")' if near else "") for name, near in self._unread.items()
            ]
            more = f" and {len(names) - _SHOWN:,} or more" if len(names) == _MOST else f" and {len(names) - _SHOWN:,} more"
            sentences.append(f"columns that are not read: {', '.join(names[:_SHOWN])}" + (more if len(names) > _SHOWN else ""))
        return sentences

    def warn(self, source: str | Path) -> None:
        """Warn of all that was noted."""
        for sentence in self.sentences():
            warnings.warn(f"{source}: {sentence}", stacklevel=2)
