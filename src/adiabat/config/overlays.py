"""Nested tables of settings laid over each other, and their dotted keys."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from adiabat.config.section import Section, nest, overlaid

TRAIN_TABLES = ("job", "encoder", "data", "towers", "mixture", "batches", "train", "memory", "run")
"""Tables of a RUN.toml that all runs of an experiment share."""


def with_values(kind: type[Section] | None, table: Mapping[str, Any], values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A table with values laid over it, by their dotted keys: a table or its `kind` before its other keys, otherwise in their order."""

    def position(keyed: tuple[str, Any]) -> tuple[int, bool]:
        parts = keyed[0].split(".")
        return (len(parts) - 1, True) if parts[-1] == "kind" else (len(parts), False)

    table = dict(table)
    for key, value in sorted(values, key=position):
        table = overlaid(kind, table, nest(key.split("."), value))
    return table


def leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its dotted key; a table with `low` or `high` is a range of values."""
    for name, value in table.items():
        if isinstance(value, Mapping) and (value or not prefix) and not {"low", "high"} & value.keys():
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
