"""Nested tables of settings laid over each other, and their dotted keys."""

from collections.abc import Iterator, Mapping
from typing import Any

from adiabat.config.section import Section, depth, overlaid

TRAIN_TABLES = ("job", "encoder", "data", "towers", "mixture", "batches", "train", "memory", "run")
"""Tables of a RUN.toml that all runs of an experiment share."""


def with_values(kind: type[Section], table: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A table with values laid over it, by their dotted keys: a table or its kind before its keys."""
    table = dict(table)
    for key, value in sorted(values.items(), key=lambda item: depth(item[0].split("."))):
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
