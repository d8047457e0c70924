"""Nested tables of settings laid over each other, and their dotted keys."""

from collections.abc import Iterator, Mapping
from typing import Any

from adiabat.config.section import Section, overlaid

TRAIN_TABLES = ("job", "encoder", "data", "towers", "mixture", "batches", "train", "memory", "run")
"""Tables of a RUN.toml that all runs of an experiment share."""


def with_values(kind: type[Section], table: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A table with values laid over it, by their dotted keys, one after the other: a later one may decide of which kind a table is."""
    table = dict(table)
    for key, value in values.items():
        for name in reversed(key.split(".")):
            value = {name: value}
        table = overlaid(kind, table, value)
    return table


def leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its dotted key; a table with `low` or `high` is a range of values."""
    for name, value in table.items():
        if isinstance(value, Mapping) and (value or not prefix) and not {"low", "high"} & value.keys():
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
