"""What is wrong with settings, in plain words: unknown keys with the nearest known one, values that do not fit, settings without effect."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WANTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text (in quotes)",
    "string_too_short": "text that is not empty",
    "tuple_type": "a list",
    "too_short": "a list that is not empty",
    "model_type": "a table of settings",
    "model_attributes_type": "a table of settings",
    "dict_type": "a table",
    "literal_error": "{expected}",
    "greater_than": "> {gt:.15g}",
    "greater_than_equal": ">= {ge:.15g}",
    "less_than": "< {lt:.15g}",
    "less_than_equal": "<= {le:.15g}",
}
"""What pydantic's kinds of faults ask for, in words."""

LONGEST_VALUE = 80

MOST_KEYS, NEAREST_KEYS = 10, 3
"""Keys of a table that are all told, and how many are where there are more."""

ADVISED = 10
"""Unknown keys of which the nearest known one is looked for: as many as a message spells out."""

SHORTEST_BEGINNING = 3
"""Letters that are taken for the beginning of a key."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a setting takes to have an effect.

    Attributes:
        other: Another setting of the same section.
        among: Values of it with which there is an effect; empty for any but None.
    """

    other: str
    among: tuple[object, ...] = ()

    def met_by(self, value: object) -> bool:
        """Whether there is an effect."""
        return value in self.among if self.among else value is not None


def unmet_need(name: str, needs: Mapping[str, Need], values: Mapping[str, Any]) -> Need | None:
    """Why a setting has no effect: it, or what it needs, needs another value somewhere.

    Returns:
        The first need that is not met, from the setting on; None where it has an effect.
    """
    need = needs.get(name)
    if need is None or not need.met_by(values[need.other]):
        return need
    return unmet_need(need.other, needs, values)


def idle_phrases(needs: Mapping[str, Need], given: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """Find settings that others make meaningless.

    Args:
        prefix: Name of the section with a dot behind it, or "".

    Yields:
        One phrase per setting without effect.
    """
    values = {**defaults, **given}
    for name in needs:
        need = unmet_need(name, needs, values)
        if need is not None and values[name] != defaults[name]:
            other, value = f"{prefix}{need.other}", values[need.other]
            remedy = f"set {other} too" if not need.among else f"set {other} to {' or '.join(_typed(one) for one in need.among)}"
            if need.among == (None,):
                remedy = f"leave out {other}"
            why = f"without {other}" if value is None else f"with {other} = {shown(value)}"
            yield f"{prefix}{name} has no effect {why}; leave it out, or {remedy}"


def _typed(value: object) -> str:
    """As one would write it behind ``--set key=``."""
    return shown(value) if isinstance(value, bool) else str(value)


def misfit_phrase(key: str, fault: Mapping[str, Any], default: object) -> str:
    """One fault of a value.

    Args:
        default: Of the setting; None where it has none.
    """
    wanted = WANTED.get(fault["type"], "").format(**fault.get("ctx", {})) or str(fault["msg"])
    advice = "" if default is None else f"; the default is {shown(default)}"
    return f"{key} must be {wanted}, got {shown(fault['input'])}{advice}"


def unknown_phrases(key: str, value: object, known: Sequence[str], *, advised: int = ADVISED) -> list[str]:
    """The faults of an unknown key; an unknown table counts as each of its keys.

    Returns:
        One phrase per key.
    """
    keys = _leaves(key, value)
    return [_unknown_phrase(one, known) if place < advised else f"unknown key {one}" for place, one in enumerate(keys)]


def _leaves(key: str, value: object) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(f"{key}.{name}", inner)
    else:
        yield key


def _unknown_phrase(key: str, known: Sequence[str]) -> str:
    section, _, name = key.rpartition(".")
    sections = {one.rpartition(".")[0] or one for one in known}
    everywhere = {one.rpartition(".")[2]: one for one in known}
    own = {one.rpartition(".")[2]: one for one in known if one.rpartition(".")[0] == section}
    below = {one.rpartition(".")[2]: one for one in reversed(known) if section and one.startswith(f"{section}.")} | own
    # The same name in another section comes before a similar one in its own.
    near = [everywhere[name]] if name in everywhere else []
    near += [below[one] for one in sorted(below, key=len) if _is_short_for(name, one)]
    near += [names[one] for names in (own, below, everywhere) for one in difflib.get_close_matches(name, names, n=1)]
    listing = _listing(name, own) if own else f"the tables are {', '.join(sorted(sections))}"
    return f"unknown key {key}; {f'did you mean {near[0]}?' if near else listing}"


def unknown_kind_phrase(key: str, value: object, kinds: Sequence[str]) -> str:
    """The fault of a table that may be of several kinds and says none, or another."""
    near = difflib.get_close_matches(str(value), kinds, n=1)
    advice = f"did you mean {near[0]}?" if near else "write one of them"
    return f"{key} must be one of {', '.join(kinds)}, got {'none' if value is None else shown(value)}; {advice}"


def _is_short_for(name: str, known: str) -> bool:
    """Whether it has the first letters of the words, as ``lr``, or is how they begin, as ``temp``."""
    return name == "".join(word[0] for word in known.split("_")) or (len(name) >= SHORTEST_BEGINNING and known.startswith(name))


def _listing(name: str, own: Mapping[str, str]) -> str:
    """The keys of a table, or those of many that are the most alike."""
    if len(own) <= MOST_KEYS:
        return f"the keys here are {', '.join(own.values())}"
    nearest = difflib.get_close_matches(name, own, n=NEAREST_KEYS, cutoff=0.0)
    return f"of the {len(own)} keys here the nearest are {', '.join(own[one] for one in nearest)}"


def single_table_phrase(key: str) -> str:
    """The fault of a table that stands where a list of tables should."""
    return f"{key} must be a list of tables, got the single table [{key}]; double its brackets: [[{key}]]"


def shown(value: object) -> str:
    """A value much as TOML would have it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        text = f"[{', '.join(map(shown, value))}]"
    else:
        text = repr(value) if isinstance(value, str | Mapping) else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."
