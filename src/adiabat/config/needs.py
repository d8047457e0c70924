"""What settings need of each other to have an effect, and the faults of a table, each with what to do."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

ABSENT = (None,)
"""Of a `Need`: the other setting must be left out."""


@dataclass(frozen=True, slots=True)
class Need:
    """A setting has an effect only with some values of another one; both names are dotted, from the table that declares the need.

    Attributes:
        values: Those values, of a table its kinds; empty stands for any but None, false, 0 and an empty list.
        reason: Why other values leave the setting without effect, where the names do not tell.
    """

    name: str
    other: str
    values: tuple[object, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Unmet:
    """A need that the other setting's value leaves unmet, and the values that would meet it."""

    need: Need
    value: object
    values: tuple[object, ...]

    @property
    def is_missing(self) -> bool:
        """Whether the other setting has no value, or no entry."""
        return self.value in (None, ())

    def cause(self, prefix: str) -> str:
        """The value at fault; `prefix` is put before the name of the other setting."""
        other = f"{prefix}{self.need.other}"
        if self.values == ABSENT:
            cause = f"with {other}"
        elif self.is_missing:
            cause = f"without {other}"
        else:
            cause = f"with {other} = {json.dumps(self.value)}"
        return f"{cause}, {self.need.reason}" if self.need.reason else cause

    def remedy(self, prefix: str) -> str:
        """The change of the other setting that meets the need."""
        other = f"{prefix}{self.need.other}"
        if self.values == ABSENT:
            return f"leave out {other}"
        if self.values:
            return f"set {other} = {' or '.join(map(json.dumps, self.values))}"
        return f"{'set' if self.is_missing else 'change'} {other}"


def without_effect(cause: str, remedy: str) -> str:
    """The fault of a setting that its table or another one makes meaningless, with both remedies."""
    return f"has no effect {cause}; leave it out, or {remedy}"


NOTHING: Mapping[str, Sequence[Unmet]] = MappingProxyType({})


class PlacedError(ValueError):
    """Settings of a table are wrong; the reader knows the whole of their keys."""

    def __init__(self, faults: Sequence[tuple[str, str]], unmet: Mapping[str, Sequence[Unmet]] = NOTHING) -> None:
        """Take the name of each setting with what is wrong with it, and each one without effect with its unmet needs."""
        self.faults, self.unmet = faults, unmet
        super().__init__("; ".join(self.phrases()))

    def phrases(self, table: str = "", entry: str = "") -> list[str]:
        """Each fault with the key of its setting in `table`; `entry` says which table of a list it is."""
        prefix = f"{table}." if table else ""
        phrases = []
        for name, needs in self.unmet.items():
            cause = " and ".join(need.cause(prefix) for need in needs)
            remedy = " and ".join(need.remedy(prefix) for need in needs)
            phrases.append(f"{prefix}{name}{entry} {without_effect(cause, remedy)}")
        return [*phrases, *(f"{'.'.join(filter(None, (table, name)))}{entry} {phrase}" for name, phrase in self.faults)]
