"""Faults of settings, each with what to do: settings that need others to have an effect, or have another name since adiabat 0.1."""

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

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


FORMER_KEYS = {
    "ladder": "rate_search",
    "rate_search.looks": "rate_search.checks",
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
    "tune.negatives_per_query": "tune.negatives.per_query",
    "train.negatives_seen_by": "train.loss.negatives_shared",
    "train.temperature_schedule": "train.loss.temperature",
    "train.first_temperature": "train.loss.temperature.first",
    "train.temperature_steps": "train.loss.temperature.steps",
    "train.guide_margin": "train.loss.guide.margin",
    "train.guide_relative": "train.loss.guide.relative",
    "train.pair_weight": "train.loss.weight",
    "train.pair_printed": "train.loss.printed",
    "data.window": "data.stream.shard_size",
    "space.map_queries": "space.map.queries",
    "static.dims": "static.reduction.dims",
    "static.sif": "static.weighting.a",
    "static.corpus": "static.weighting.corpus",
}
"""Keys that only settings of adiabat 0.1 have, with their replacements; other keys are reported one by one."""


def former_phrase(table: Mapping[str, Any]) -> str | None:
    """The fault of tables that are written for adiabat 0.1; None if there is no such key."""
    renamed = [key for key in FORMER_KEYS if any(_holds(run, key) for run in _runs(table))]
    return f"settings of adiabat 0.1: {_answer(renamed)}; `adiabat settings VERB` lists the current keys" if renamed else None


def former_keyword(name: str, tables: Container[str]) -> str | None:
    """The current names of settings that a keyword had in adiabat 0.1; `tables` are those of the verb."""
    keys = [key for key in FORMER_KEYS if key == name or (key.partition(".")[0] in tables and key.rpartition(".")[2] == name)]
    return _answer(keys) if keys else None


def _answer(keys: list[str]) -> str:
    return ", ".join(f"{key} is now {FORMER_KEYS[key]}" for key in keys)


def _runs(table: Mapping[str, Any]) -> Iterator[object]:
    """The table, and the tables of runs in its grid and variants."""
    variants = table.get("variants", ())
    for run in (table, *(variants if isinstance(variants, list | tuple) else ())):
        yield run
        if isinstance(run, Mapping):
            yield run.get("grid")


def _holds(table: object, key: str) -> bool:
    name, _, subkey = key.partition(".")
    return isinstance(table, Mapping) and name in table and (not subkey or _holds(table[name], subkey))
