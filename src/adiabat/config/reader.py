"""Reading settings from a TOML file and from ``--set key=value``, with every fault told at once."""

import codecs
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from adiabat.config.section import IdleError, MisfitError, PlacedError, Section, defaults_of
from adiabat.config.validation import ADVISED, idle_phrases, misfit_phrase, single_table_phrase, unknown_kind_phrase, unknown_phrases
from adiabat.core.errors import ConfigError, several

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
    if path is None:
        return checked(kind, assigned(assignments))
    table = read_table(path, kind)
    try:
        return checked(kind, assigned(assignments, table))
    except ConfigError as fault:
        # Of a key that --set gives too, nobody can say which of the two is at fault; the key itself tells.
        raise ConfigError(f"{path}{' and --set' if assignments else ''}: {fault}") from None


def assigned(assignments: Sequence[str], table: dict[str, Any] | None = None) -> dict[str, Any]:
    """Lay ``key=value`` assignments over nested tables.

    Args:
        assignments: ``section.key=value``; the value is read as TOML, and as text where it is none.
        table: Changed in place; None begins with nothing.

    Returns:
        The table.

    Raises:
        ConfigError: If one is no assignment.
    """
    table = {} if table is None else table
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        parts = [part.strip() for part in key.split(".")]
        if not equals or not all(parts):
            raise ConfigError(f"--set must be key=value, got {assignment!r}; write it like run.device=cpu")
        _assign(table, parts, _toml_value(value), assignment)
    return table


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
        wrong: list[str] = []
        for one in fault.errors():
            wrong += _phrases(one, kind, table, advised=max(0, ADVISED - len(wrong)))
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


def _lists_of_tables(kind: type[Section], prefix: str = "") -> Iterator[tuple[str, type[Section]]]:
    """Keys of lists of tables, dotted, with what a table of theirs is."""
    for name, field in kind.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            yield from _lists_of_tables(inner, f"{prefix}{name}.")
        for entry in tables_in(inner):
            yield f"{prefix}{name}", entry


def tables_in(annotation: Any) -> Iterator[type[Section]]:
    """What the tables of a list may be.

    Args:
        annotation: Of a setting.

    Yields:
        Each kind of table; none where the setting is no list of tables.
    """
    for entry in get_args(annotation):
        for one in (entry, *get_args(entry), *(kind for union in get_args(entry) for kind in get_args(union))):
            if isinstance(one, type) and issubclass(one, Section):
                yield one


def _keys_in_lists(kind: type[Section], place: Sequence[str | int] = ()) -> Iterator[str]:
    """Keys of the tables in lists of tables; where a place leads into a table of one kind among several, of that kind alone."""
    for key, entry in _lists_of_tables(kind):
        kinds = _kinds(kind, key)
        told = next((kinds[part] for part in place if isinstance(part, str) and part in kinds), entry)
        if told is entry:
            yield from keys_of(entry, f"{key}.")


def _kinds(kind: type[Section], key: str) -> dict[str, type[Section]]:
    """What a table of a list of tables may be, by its ``kind``; empty where they are all alike."""
    every = [(entry.model_fields["kind"], entry) for name, entry in _lists_of_tables(kind) if name == key and "kind" in entry.model_fields]
    return {word: entry for field, entry in every for word in get_args(field.annotation)}


def _without_kinds(place: Sequence[str | int], kind: type[Section]) -> list[str | int]:
    """A place as its TOML file has it: of tables of several kinds, pydantic puts the kind behind the number."""
    kinds = {word for key, _ in _lists_of_tables(kind) for word in _kinds(kind, key)}
    return [part for before, part in zip((None, *place), place, strict=False) if not (isinstance(before, int) and part in kinds)]


def _phrases(fault: Any, kind: type[Section], table: Any = None, *, advised: int = ADVISED) -> list[str]:
    """One fault of pydantic's in our own form; `table` is what was checked, to say which table of a list is meant."""
    place = _without_kinds(fault["loc"], kind)
    path = [str(part) for part in place if not isinstance(part, int)]
    key, entry = ".".join(path), _entry(fault["loc"], table)
    if fault["type"] == "extra_forbidden":
        known = [*keys_of(kind), *_keys_in_lists(kind, fault["loc"])] if advised else []
        return unknown_phrases(key, fault["input"], known, advised=advised)
    if fault["type"] in ("union_tag_invalid", "union_tag_not_found"):
        kinds = list(_kinds(kind, key))
        return [
            unknown_kind_phrase(f"{key}.kind{entry}", fault["input"].get("kind") if isinstance(fault["input"], Mapping) else None, kinds)
        ]
    if fault["type"] == "missing":
        return [f"{key}{entry} must be given, got none"]
    if fault["type"] == "value_error":
        error = fault["ctx"]["error"]
        if isinstance(error, PlacedError):
            return [f"{key}.{error.name}{entry} {error.phrase}"]
        if not isinstance(error, MisfitError):
            return [] if isinstance(error, IdleError) else [str(error)]
        fault = {**fault, "msg": error, "ctx": {}}
    if fault["type"] == "tuple_type" and isinstance(fault["input"], Mapping) and key in dict(_lists_of_tables(kind)):
        return [single_table_phrase(key)]
    default: Any = kind()
    for part in path:
        # A table of a list has no default.
        default = getattr(default, part, None)
    return [misfit_phrase(f"{key}{entry}", fault, None if isinstance(default, Section) else default)]


def _entry(path: Sequence[str | int], table: Any) -> str:
    """Which table of a list a path leads through: its number from 1, with its path or name; "" where it leads through none."""
    for part in path:
        if isinstance(part, int) and isinstance(table, list | tuple) and isinstance(table[part], Mapping):
            told = next((f" ({table[part][name]})" for name in ("path", "name") if table[part].get(name)), "")
            return f" of number {part + 1}{told}"
        table = table.get(part) if isinstance(table, Mapping) else None
    return ""


def _idle(kind: type[Section], table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Settings without effect in a table and the tables in it, which may be faulty otherwise."""
    yield from idle_phrases(kind.needs, table, defaults_of(kind), prefix)
    for name, field in kind.model_fields.items():
        inner, part = field.annotation, table.get(name)
        if isinstance(inner, type) and issubclass(inner, Section) and isinstance(part, Mapping):
            yield from _idle(inner, part, f"{prefix}{name}.")


def read_table(path: Path, kind: type[Section]) -> dict[str, Any]:
    """Read the nested tables of a TOML file of settings, unchecked."""
    text = _read_text(path)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        # Of two such tables TOML says that the key is declared twice, which is no help to who wanted two.
        single = [single_table_phrase(key) for key, _ in _lists_of_tables(kind) if re.search(rf"^\s*\[{re.escape(key)}\]", text, re.M)]
        raise ConfigError(f"{path}: {single[0]}" if single else f"{path} must be TOML: {fault}") from fault


def _read_text(path: Path) -> str:
    try:
        content = path.read_bytes()
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise ConfigError(f"{path} must be UTF-8, got UTF-16; convert it, e.g. with iconv -f UTF-16 -t UTF-8")
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path} must be a TOML file of settings, got no such file; check the path") from None
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigError(f"{path} must be a readable TOML file of settings, got: {getattr(fault, 'strerror', None) or fault}") from fault


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
