"""Faults of settings, each with what to do: wrong values, unknown keys, and settings without effect."""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adiabat.core.misfits import constraint_of

ABSENT = (None,)
"""Of a `Need`: the other setting must be left out."""

TABLE = "\0"
"""Stands for the dotted name of the table in a fault; only the reader knows it. No text of a setting has this
character."""


# --- Settings that do not fit together ---


@dataclass(frozen=True, slots=True)
class Need:
    """A setting has an effect only with some values of another one; both names are dotted, from the table
    that declares the need.

    Attributes:
        values: Those values, of a table its kinds; empty stands for any but None, false, 0 and an empty list.
        reason: Why other values leave the setting without effect, where the names do not tell.
    """

    name: str
    other: str
    values: tuple[object, ...] = ()
    reason: str = ""

    def is_met_by(self, value: object) -> bool:
        """Whether this value of the other setting gives the setting an effect."""
        # Without stated values, any that says something will do: no None, false, 0 or empty list.
        return value in self.values if self.values else bool(value)

    def cause(self, value: object) -> str:
        """The value at fault."""
        other = f"{TABLE}{self.other}"
        if self.values == ABSENT:
            cause = f"with {other}"
        elif value in (None, ()):
            cause = f"without {other}"
        else:
            cause = f"with {other} = {json.dumps(value)}"
        return f"{cause}, {self.reason}" if self.reason else cause

    def remedy(self, value: object) -> str:
        """The change of the other setting that meets the need."""
        other = f"{TABLE}{self.other}"
        if self.values == ABSENT:
            return f"leave out {other}"
        if self.values:
            return f"set {other} = {' or '.join(map(json.dumps, self.values))}"
        return f"{'set' if value in (None, ()) else 'change'} {other}"


def without_effect(cause: str, remedy: str) -> str:
    """The fault of a setting that its table or another one makes meaningless, with both remedies."""
    return f"has no effect {cause}; leave it out, or {remedy}"


class PlacedError(ValueError):
    """Settings of a table do not fit together: the name of each with what is wrong; the reader knows the
    whole of their keys.
    """

    def __init__(self, faults: Sequence[tuple[str, str]]) -> None:
        """Take the faults."""
        self.faults = faults
        super().__init__("; ".join(self.phrases()))

    def phrases(self, table: str = "", entry: str = "") -> list[str]:
        """Each fault with the key of its setting in `table`; `entry` says which table of a list it is."""
        prefix = f"{table}." if table else ""
        phrases = []
        for name, phrase in self.faults:
            key = f"{prefix}{name}" if name else table
            phrases.append(f"{key}{entry} {phrase.replace(TABLE, prefix)}")
        return phrases


# --- Phrases of wrong values and unknown keys ---

ADVISED = 10
"""Maximum number of unknown keys with a suggestion; a message lists no more."""

LONGEST_VALUE = 80
MOST_KEYS, NEAREST_KEYS = 10, 3
"""Maximum number of a table's keys in a message, and the number shown if there are more."""

SHORTEST_BEGINNING = 3
"""Minimum letters of an abbreviated key."""


def misfit_phrase(key: str, fault: Mapping[str, Any], default: object) -> str:
    """The phrase for a wrong value, with the default of its setting."""
    constraint = constraint_of(fault)
    advice = "" if default is None else f"; the default is {shown(default)}"
    return f"{key} must be {constraint}, got {shown(fault['input'])}{advice}"


def unknown_phrases(key: str, value: object, known: Sequence[str], *, advised: int = ADVISED) -> list[str]:
    """The phrases for an unknown key; an unknown table counts as each of its keys."""
    keys = _leaves(key, value)
    return [
        _unknown_phrase(leaf, known) if index < advised else f"unknown key {leaf}"
        for index, leaf in enumerate(keys)
    ]


def _leaves(key: str, value: object) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(f"{key}.{name}", inner)
    else:
        yield key


def _unknown_phrase(key: str, known: Sequence[str]) -> str:
    section, _, name = key.rpartition(".")
    # A known key without a dot is a table by itself.
    sections = {path.rpartition(".")[0] or path for path in known}
    # Of two tables with the key, the first one is suggested.
    everywhere = {path.rpartition(".")[2]: path for path in reversed(known)}
    siblings = {path.rpartition(".")[2]: path for path in known if path.rpartition(".")[0] == section}
    below = {
        path.rpartition(".")[2]: path
        for path in reversed(known)
        if section and path.startswith(f"{section}.")
    } | siblings
    # The same name in another section comes before a similar one in its own.
    near = [everywhere[name]] if name in everywhere else []
    near += [below[candidate] for candidate in sorted(below, key=len) if _is_short_for(name, candidate)]
    near += [
        names[match]
        for names in (siblings, below, everywhere)
        for match in difflib.get_close_matches(name, names, n=1)
    ]
    # Beside tables there is none, but those that a value may stand for.
    is_in_table = bool(section and siblings)
    listing = _listing(name, siblings) if is_in_table else f"the tables are {', '.join(sorted(sections))}"
    return f"unknown key {key}; {f'did you mean {near[0]}?' if near else listing}"


def unknown_kind_phrase(key: str, value: object, kinds: Sequence[str]) -> str:
    """The phrase for a table without a valid `kind`."""
    # difflib's own cutoff of 0.6: a word with more letters wrong is no slip of the keyboard.
    near = difflib.get_close_matches(str(value), kinds, n=1)
    advice = f"did you mean {near[0]}?" if near else "write one of them"
    return (
        f"{key} must be one of {', '.join(kinds)}, got {'none' if value is None else shown(value)}; {advice}"
    )


def _is_short_for(name: str, known: str) -> bool:
    """Whether a key is the initials of a known one, such as ``lr``, or its beginning, such as ``temp``."""
    return name == "".join(word[0] for word in known.split("_")) or (
        len(name) >= SHORTEST_BEGINNING and known.startswith(name)
    )


def _listing(name: str, siblings: Mapping[str, str]) -> str:
    """The keys of a table, or the most similar ones if there are many."""
    if len(siblings) <= MOST_KEYS:
        return f"the keys here are {', '.join(siblings.values())}"
    # No cutoff: a list of the least different keys is shorter than one of all.
    nearest = difflib.get_close_matches(name, siblings, n=NEAREST_KEYS, cutoff=0.0)
    return (
        f"the nearest of the {len(siblings)} keys here are {', '.join(siblings[match] for match in nearest)}"
    )


def single_table_phrase(key: str) -> str:
    """The phrase for a single table where a list of tables is expected."""
    return f"{key} must be a list of tables, got the single table [{key}]; double its brackets: [[{key}]]"


def shown(value: object) -> str:
    """A value as in TOML, truncated."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        text = f"[{', '.join(map(shown, value))}]"
    else:
        text = repr(value) if isinstance(value, str | Mapping) else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."
