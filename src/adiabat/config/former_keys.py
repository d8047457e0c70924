"""Settings of adiabat 0.1 that have another name now, for every way to give settings."""

from collections.abc import Container, Iterator, Mapping
from typing import Any

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
"""Keys that only settings of adiabat 0.1 have, with what stands for them now; other keys are answered one by one."""


def former_phrase(table: Mapping[str, Any]) -> str | None:
    """The fault of tables that are written for adiabat 0.1; None where no key tells so."""
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
