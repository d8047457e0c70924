"""Names of settings in adiabat 0.1, which readers answer with the present ones; `upgrade` converts whole
files.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from adiabat.config.faults import SettingPath

FORMER_KEYS = {
    "ladder": "rate_search",
    "rate_search.looks": "rate_search.checks",
    "lessons": "data",
    "distil": "distill",
    "distill.side": "distill.tower",
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
    "measure.measures": "measure.report",
    "tasks.measures": "tasks.report",
    "static.dims": "static.reduction.dims",
    "static.sif": "static.weighting.a",
    "static.corpus": "static.weighting.corpus",
}
"""Keys that only settings of adiabat 0.1 have, with their replacements; other keys are reported one by
one."""


def former_settings(table: Mapping[str, Any]) -> dict[SettingPath, str]:
    """The settings that are written for adiabat 0.1, each with its key there."""
    runs = [(path, run) for path, run in _runs(table) if run]
    return {
        (*path, *inner): key
        for key in FORMER_KEYS
        for path, run in runs
        for inner in _paths(run, *key.split("."))
    }


def former_phrase(keys: Iterable[str]) -> str:
    """The fault of settings that are written for adiabat 0.1."""
    return (
        f"settings of adiabat 0.1: {_answer([*dict.fromkeys(keys)])}; `adiabat "
        "settings VERB` lists the current keys"
    )


def present_path(former: str) -> SettingPath:
    """Where the settings have a former key."""
    return tuple(FORMER_KEYS[former].partition(" ")[0].split("."))


def former_keyword(name: str, tables: Container[str]) -> str | None:
    """The current names of settings that a keyword had in adiabat 0.1; `tables` are those of the verb."""
    keys = [
        key
        for key in FORMER_KEYS
        if key == name or (key.partition(".")[0] in tables and key.rpartition(".")[2] == name)
    ]
    return _answer(keys) if keys else None


def _answer(keys: list[str]) -> str:
    return ", ".join(f"{key} is now {FORMER_KEYS[key]}" for key in keys)


def _runs(table: Mapping[str, Any]) -> Iterator[tuple[SettingPath, object]]:
    """The table, and the tables of runs in its grid and variants."""
    variants = table.get("variants", ())
    runs = enumerate(variants) if isinstance(variants, list | tuple) else ()
    for path, run in (((), table), *((("variants", number), run) for number, run in runs)):
        yield path, run
        if isinstance(run, Mapping):
            yield (*path, "grid"), run.get("grid")


def _paths(table: object, name: str, *inner: str) -> Iterator[SettingPath]:
    """Where a table, or each table of a list, has a key."""
    if isinstance(table, list | tuple):
        yield from (
            (number, *path) for number, entry in enumerate(table) for path in _paths(entry, name, *inner)
        )
    elif isinstance(table, Mapping) and name in table:
        yield from ((name, *path) for path in _paths(table[name], *inner)) if inner else ((name,),)
