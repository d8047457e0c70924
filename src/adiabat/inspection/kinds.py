"""What kinds of value the columns of a file hold, and which columns could be tags."""

from collections import Counter
from collections.abc import Mapping

from adiabat.data.columns import value_kind
from adiabat.data.tables import Row
from adiabat.errors import DataError
from adiabat.inspection.records import Column

MOST_VALUES = 50
"""A column with more different values is no tag, and its values are not kept."""

_LONGEST_VALUE = 80


class ColumnTally:
    """Counts, row by row, what each column holds."""

    def __init__(self) -> None:
        self._columns: dict[str, _Held] = {}
        self._unreadable: set[str] = set()

    def add(self, row: Row) -> None:
        """Count one row."""
        for name in row.values:
            if name in self._unreadable:
                continue
            try:
                value = row.values[name]
            except DataError:
                self._unreadable.add(name)
                continue
            held = self._columns.get(name)
            if held is None:
                held = self._columns[name] = _Held()
            held.add(value, row.place)

    def columns(self, used: Mapping[str, str]) -> tuple[Column, ...]:
        """What was counted."""
        return tuple(held.column(name, used.get(name, "")) for name, held in self._columns.items())

    def first_place(self, name: str, kind: str) -> str:
        """Where a kind of value stands first."""
        return self._columns[name].places[kind]


class _Held:
    """One column."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}
        self._kinds: Counter[str] = Counter()
        self._values: Counter[str] | None = Counter()
        self._kind_of_type: dict[type, str] = {}

    def add(self, value: object, place: str) -> None:
        kind = self._kind(value)
        self._kinds[kind] += 1
        if kind not in self.places:
            self.places[kind] = place
        if self._values is None or value is None or value == "":
            return
        if isinstance(value, str | int) and len(shown := str(value)) <= _LONGEST_VALUE:
            self._values[shown] += 1
            if len(self._values) <= MOST_VALUES:
                return
        self._values = None

    def column(self, name: str, used_as: str) -> Column:
        values = tuple(self._values.most_common()) if self._values else None
        return Column(name, used_as, tuple(self._kinds.most_common()), self._kinds.total(), values)

    def _kind(self, value: object) -> str:
        kind = self._kind_of_type.get(type(value))
        if kind is None:
            kind = self._kind_of_type[type(value)] = value_kind(value)
        if kind == "a list" and isinstance(value, list | tuple) and len({value_kind(one) for one in value[:64]}) > 1:
            return "a list of several kinds"
        return kind
