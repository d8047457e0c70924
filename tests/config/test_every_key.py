"""Every key of every verb's settings: it is reached by --set and by TOML alike, or refused by name where it
has no effect alone.
"""

import tomllib
from functools import cache
from typing import Any

import pytest
import tomli_w

from adiabat.cli.panel_results import KINDS, kind_of
from adiabat.config.reader import assigned, checked, keys_of
from adiabat.config.section import Section, by_kind, nest, overlaid, value_at
from adiabat.core.errors import ConfigError

CLASSES = list(dict.fromkeys(map(kind_of, KINDS)))
VALUES: tuple[Any, ...] = (
    False,
    True,
    2,
    3,
    21,
    200,
    5_000,
    0.5,
    0.25,
    1.5,
    1e-3,
    "text",
    ["text"],
    [["text"]],
    [5],
    [0.5],
    "24GiB",
)
TABLES = {"tasks", "models", "candidates", "variants", "sources", "grid"}
"""Lists of tables and free tables, which have tests of their own."""


@cache
def place_of(kind: type[Section], key: str) -> tuple[dict[str, Any], tuple[type[Section], ...]]:
    """Nested tables that say which kind of table a key belongs to, and the sections that have it."""
    table: dict[str, Any] = {}
    parts = key.split(".")
    owners: tuple[type[Section], ...] = (kind,)
    for depth, part in enumerate(parts[:-1], 1):
        tables = next(owner.tables_at(part) for owner in owners if owner.tables_at(part))
        words = [word for word, one in by_kind(tables).items() if parts[depth] in one.model_fields]
        if words and len(tables) > 1:
            table = overlaid(None, table, nest([*parts[:depth], "kind"], words[0]))
        owners = tuple(one for one in tables if parts[depth] in one.model_fields)
    return table, owners


FIRST: dict[tuple[str, tuple[type[Section], ...]], type[Section]] = {}
"""The first verb that has a key of some sections, of all that share them."""
for kind in CLASSES:
    for key in keys_of(kind):
        FIRST.setdefault((key, place_of(kind, key)[1]), kind)


def has_first(kind: type[Section], key: str) -> bool:
    return FIRST[key, place_of(kind, key)[1]] is kind


@cache
def usual(kind: type[Section], key: str) -> Any:
    """Of a key: its value where it is not set."""
    return value_at(checked(kind, place_of(kind, key)[0]), key)


def words_of(kind: type[Section], key: str) -> list[str]:
    """The words that a setting takes, as the fault of another one names them."""
    try:
        checked(kind, overlaid(kind, place_of(kind, key)[0], nest(key.split("."), "no such word")))
    except ConfigError as fault:
        part = str(fault).partition(" must be ")[2].partition(", got")[0]
        return [word.strip("'\" ") for word in part.replace("one of ", "").replace(" or ", ",").split(",")]
    return []


def reached(kind: type[Section], key: str, value: Any) -> bool:
    """Whether the settings that are read have the value; TOML and --set agree, which the first verb of a
    section shows.
    """
    company, _ = place_of(kind, key)
    table = overlaid(kind, company, nest(key.split("."), value))
    settings = checked(kind, table)
    if value_at(settings, key) in (None, usual(kind, key)):
        return False
    if not has_first(kind, key):
        return True
    text = tomli_w.dumps(table)
    assert checked(kind, tomllib.loads(text)) == settings
    line = (
        ""
        if isinstance(value, str)
        else tomli_w.dumps({"x": value}, multiline_strings=False).removeprefix("x = ").replace("\n", "")
    )
    assert checked(kind, assigned([f"{key}={line or value}"], company, kind=kind)) == settings
    dumped = settings.model_dump(mode="json", exclude_none=True)
    assert checked(kind, dumped) == settings
    assert (
        checked(kind, settings.model_dump(mode="json", exclude_defaults=True, exclude_none=True)) == settings
    )
    return True


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_key_is_reached_or_refused_by_name(kind: type[Section]) -> None:
    for key in keys_of(kind):
        if key.rpartition(".")[2] in TABLES:
            continue
        told = []
        for value in (*words_of(kind, key), *VALUES):
            try:
                if reached(kind, key, value):
                    break
            except ConfigError as fault:
                told.append(str(fault))
        else:
            assert any(key in one or key.rpartition(".")[0] in one for one in told), (key, told)


def told_of(kind: type[Section], table: dict[str, Any]) -> str:
    try:
        checked(kind, table)
    except ConfigError as fault:
        return str(fault)
    return ""


def test_every_wrong_value_is_told_in_our_own_words() -> None:
    odd: tuple[object, ...] = (None, True, -1, 1.5, float("nan"), "", "text", [], [[]], {}, {"a": 1}, 10**400)
    places = ((kind, key, place_of(kind, key)[0]) for (key, _), kind in FIRST.items())
    told = [
        told_of(kind, overlaid(kind, company, nest(key.split("."), value)))
        for kind, key, company in places
        for value in odd
    ]
    assert sum(map(bool, told)) > len(told) / 3
    assert [one for one in told if "nput should" in one or "should have" in one or "\n" in one] == []
