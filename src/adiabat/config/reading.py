"""Reading settings from a TOML file and from ``--set key=value``, with every fault told at once."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from adiabat.config.faults import idle_phrases, misfit_phrase, unknown_phrases
from adiabat.config.section import IdleError, Section, defaults_of
from adiabat.errors import ConfigError, several

S = TypeVar("S", bound=Section)


def read_settings(kind: type[S], path: Path | None = None, assignments: Sequence[str] = ()) -> S:
    """Read settings from a TOML file and from ``key=value`` assignments, which win.

    Args:
        kind: Which settings.
        path: The file, or None for the defaults.
        assignments: ``section.key=value``; the value is read as TOML, and as text where it is none.

    Returns:
        The settings, checked.

    Raises:
        ConfigError: Naming every fault at once: unknown keys with the nearest known one, values out of range or without effect.
    """
    table = _read_toml(path) if path else {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        parts = [part.strip() for part in key.split(".")]
        if not equals or not all(parts):
            raise ConfigError(f"--set must be key=value, got {assignment!r}; write it like run.device=cpu")
        _assign(table, parts, _toml_value(value), assignment)
    return checked(kind, table)


def checked(kind: type[S], table: Mapping[str, Any]) -> S:
    """Build settings from nested tables.

    Args:
        kind: Which settings.
        table: As a TOML file would hold them.

    Returns:
        The settings.

    Raises:
        ConfigError: Naming every fault at once.
    """
    try:
        return kind.model_validate(table)
    except ValidationError as fault:
        # Sections that are faulty otherwise were not asked about settings without effect, so all are asked here.
        wrong = [phrase for one in fault.errors() for phrase in _phrases(one, kind)]
        raise ConfigError(several([*wrong, *_idle(kind, table)])) from None


def keys_of(kind: type[Section], prefix: str = "") -> Iterator[str]:
    """Every key that settings know, dotted; a list of tables is one.

    Args:
        kind: Which settings.
        prefix: Put before each.

    Yields:
        Keys such as ``tune.learning_rate``.
    """
    for name, field in kind.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            yield from keys_of(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _keys_in_lists(kind: type[Section], prefix: str = "") -> Iterator[str]:
    """Keys of the tables in lists of tables."""
    for name, field in kind.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            yield from _keys_in_lists(inner, f"{prefix}{name}.")
        for entry in get_args(inner):
            if isinstance(entry, type) and issubclass(entry, Section):
                yield from keys_of(entry, f"{prefix}{name}.")


def _phrases(fault: Any, kind: type[Section]) -> list[str]:
    """One fault of pydantic's in our own form."""
    path = [str(part) for part in fault["loc"] if not isinstance(part, int)]
    if fault["type"] == "extra_forbidden":
        return unknown_phrases(".".join(path), fault["input"], [*keys_of(kind), *_keys_in_lists(kind)])
    if fault["type"] == "missing":
        return [f"{'.'.join(path)} must be given, got none"]
    if fault["type"] == "value_error":
        error = fault["ctx"]["error"]
        return [] if isinstance(error, IdleError) else [str(error)]
    default: Any = kind()
    for part in path:
        # A table of a list has no default.
        default = getattr(default, part, None)
    return [misfit_phrase(".".join(path), fault, None if isinstance(default, Section) else default)]


def _idle(kind: type[Section], table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Settings without effect in a table and the tables in it, which may be faulty otherwise."""
    yield from idle_phrases(kind.needs, table, defaults_of(kind), prefix)
    for name, field in kind.model_fields.items():
        inner, part = field.annotation, table.get(name)
        if isinstance(inner, type) and issubclass(inner, Section) and isinstance(part, Mapping):
            yield from _idle(inner, part, f"{prefix}{name}.")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} must be a TOML file of settings, got no such file; check the path") from None
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigError(f"{path} must be a readable TOML file of settings, got: {getattr(fault, 'strerror', None) or fault}") from fault
    except tomllib.TOMLDecodeError as fault:
        raise ConfigError(f"{path} must be TOML: {fault}") from fault


def _toml_value(text: str) -> Any:
    """A value as TOML reads it; a bare word is text, so that ``--set data.split=train`` needs no quotes.

    A blank at the end of such text is kept: prompts end in one.
    """
    try:
        table = tomllib.loads(f"value = {text.strip()}")
    except tomllib.TOMLDecodeError:
        return text.lstrip()
    return table["value"] if len(table) == 1 else text.lstrip()


def _assign(table: dict[str, Any], path: Sequence[str], value: Any, assignment: str) -> None:
    for part in path[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ConfigError(f"--set {assignment}: {part} is a value, not a table")
    table[path[-1]] = value
