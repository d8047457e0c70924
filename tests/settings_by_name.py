"""Settings of a table by their last names alone, wherever inside of the table they are."""

from typing import Any

from adiabat.config.reader import keys_of
from adiabat.config.section import Section, nest, overlaid


def by_name(kind: type[Section], table: str, values: dict[str, Any]) -> dict[str, Any]:
    """Nested tables, such as ``{"tune": {"loss": {"margin": 0.1}}}`` of ``{"margin": 0.1}``."""
    keys: dict[str, str] = {}
    for key in sorted(keys_of(kind), key=lambda key: key.count(".")):
        if key.startswith(f"{table}."):
            keys.setdefault(key.rpartition(".")[2], key)
    found: dict[str, Any] = {}
    # The kind of a table comes before what it holds.
    for name in sorted(values, key=lambda name: keys.get(name, name).count(".")):
        found = overlaid(kind, found, nest(keys.get(name, f"{table}.{name}").split("."), values[name]))
    return found
