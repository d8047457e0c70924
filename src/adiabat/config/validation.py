"""What is wrong with settings, in plain words: unknown keys with the nearest known one, and values that do not fit."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
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

FORMER_KEYS = {
    "ladder": "rate_search",
    "lessons": "data",
    "distil": "distill",
    "study": "sweep",
    "compare": "sweep",
    "candidates": "variants",
    "sweep.budgets": "scaling.budgets",
    "guard.use": "guard = true",
    "guard.most": "guard.limit",
    "guard.then": "guard.action",
    "rehearsal.use": "rehearsal = true",
    "probes.use": "probes = false",
    "tune.pull": "tune.l2_to_start",
    "tune.difficulty": "tune.negatives.difficulty",
    "train.negatives_seen_by": "train.loss.negatives_shared",
    "train.temperature_schedule": "train.loss.temperature",
    "train.pair_weight": "train.loss.weight",
    "data.window": "data.stream.shard_size",
    "space.map_queries": "space.map.queries",
    "static.dims": "static.reduction.dims",
    "static.sif": "static.weighting.a",
    "static.corpus": "static.weighting.corpus",
}
"""Keys that only settings of adiabat 0.1 have, with what stands for them now; other keys are answered one by one."""

LONGEST_VALUE = 80

MOST_KEYS, NEAREST_KEYS = 10, 3
"""Keys of a table that are all told, and how many are where there are more."""

ADVISED = 10
"""Unknown keys of which the nearest known one is looked for: as many as a message spells out."""

SHORTEST_BEGINNING = 3
"""Letters that are taken for the beginning of a key."""


def former_phrase(table: Mapping[str, Any]) -> str | None:
    """The fault of settings that are written for adiabat 0.1; None where no key tells so."""
    renamed = [f"{key} is now {now}" for key, now in FORMER_KEYS.items() if _holds(table, key)]
    return f"is written for adiabat 0.1: {', '.join(renamed)}; `adiabat settings VERB` lists the keys of today" if renamed else None


def _holds(table: object, key: str) -> bool:
    name, _, rest = key.partition(".")
    return isinstance(table, Mapping) and name in table and (not rest or _holds(table[name], rest))


def misfit_phrase(key: str, fault: Mapping[str, Any], default: object) -> str:
    """The fault of a value, with the default of its setting."""
    wanted = WANTED.get(fault["type"], "").format(**fault.get("ctx", {})) or str(fault["msg"])
    advice = "" if default is None else f"; the default is {shown(default)}"
    return f"{key} must be {wanted}, got {shown(fault['input'])}{advice}"


def unknown_phrases(key: str, value: object, known: Sequence[str], *, advised: int = ADVISED) -> list[str]:
    """The faults of an unknown key; an unknown table counts as each of its keys."""
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
