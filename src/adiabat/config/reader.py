"""Reading settings from a TOML file and from ``--set key=value``; pydantic finds the faults, in one go."""

import codecs
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args

import tomli_w
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from adiabat.config.faults import (
    ADVISED,
    PlacedError,
    misfit_phrase,
    single_table_phrase,
    unknown_kind_phrase,
    unknown_phrases,
)
from adiabat.config.section import Choice, MisfitError, Section, by_kind, nest, overlaid, sections_in
from adiabat.core.errors import ConfigError, reraise_unrelated, several
from adiabat.core.files import LARGEST_CONFIGURATION, read_plain
from adiabat.core.formats import to_upgrade
from adiabat.core.wording import option

S = TypeVar("S", bound=Section)

Tables = tuple[type[Section], ...]


class SettingsError(ConfigError):
    """Settings are wrong: a phrase for each fault, and whether a key is unknown, as those of another version
    are.
    """

    def __init__(self, phrases: Sequence[str], *, has_unknown: bool = False) -> None:
        """Join the phrases."""
        super().__init__(several(phrases))
        self.phrases, self.has_unknown = phrases, has_unknown


@contextmanager
def shallow() -> Iterator[None]:
    """Refuse settings that are nested deeper than Python's stack is high; as a decorator, in what a function
    takes.
    """
    try:
        yield
    except RecursionError:
        raise ConfigError(
            "settings must nest at most a few tables or lists, got hundreds in one another; correct them"
        ) from None


def read_settings(kind: type[S], path: Path | None = None, assignments: Sequence[str] = ()) -> S:
    """Read settings from a TOML file and from ``key=value`` assignments, which win.

    Raises:
        ConfigError: Naming every wrong value and unknown key; combinations are checked in tables without any.
    """
    if path is None:
        return checked(kind, assigned(assignments, kind=kind))
    table = read_table(path, kind)
    try:
        return checked(kind, assigned(assignments, table, kind=kind))
    except ConfigError as fault:
        raise in_file(fault, path, option("set") if assignments else "") from None


def in_file(fault: ConfigError, path: Path, beside: str = "") -> ConfigError:
    """The fault with the file of its settings; those given `beside` the file may be at fault too."""
    place = f"{path} and {beside}" if beside else path
    is_former = isinstance(fault, SettingsError) and fault.has_unknown
    advice = f"; for a file of an earlier version, {to_upgrade(path)}" if is_former else ""
    return ConfigError(f"{place}: {fault}{advice}")


@shallow()
def assigned(
    assignments: Sequence[str], table: Mapping[str, Any] | None = None, *, kind: type[Section] | None = None
) -> dict[str, Any]:
    """Lay ``key=value`` assignments over nested tables; values are parsed as TOML, or else taken as text."""
    values: list[tuple[str, Any]] = []
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        names = [name.strip() for name in key.split(".")]
        if not equals or not all(names):
            raise ConfigError(
                f"{option('set')} must be key=value, got {assignment!r}; write it like run.device=cpu"
            )
        # A value is read as it would be in a file, and as text where that fails.
        values.append((".".join(names), _toml_value(value)))
    return with_values(kind, table or {}, values)


@shallow()
def checked(kind: type[S], table: Mapping[str, Any]) -> S:
    """Settings of nested tables; a `ConfigError` names all faults that pydantic finds at once."""
    try:
        return kind.model_validate(table)
    except ValidationError as fault:
        # pydantic finds them in one go; combinations are checked in tables that are right by themselves.
        errors = fault.errors()
        has_unknown = any(error["type"] == "extra_forbidden" for error in errors)
        raise SettingsError(every_phrase(kind, table, errors), has_unknown=has_unknown) from None


def every_phrase(kind: type[Section], table: Any, errors: Iterable[Any]) -> list[str]:
    """The phrases of pydantic's errors, each once."""
    phrases: list[str] = []
    for error in errors:
        phrases += fault_phrases(error, kind, table, advised=max(0, ADVISED - len(phrases)))
    # Two errors of one value, such as those of a union of types, may have one phrase.
    return list(dict.fromkeys(phrases))


@cache
def keys_of(kind: type[Section], prefix: str = "") -> tuple[str, ...]:
    """Every dotted key that settings know; a list of tables is one key, and so is a table with a short
    form.
    """
    keys: list[str] = []
    for name in kind.model_fields:
        tables = kind.tables_at(name)
        # A table that may be written as a value is a key of its own, beside the keys in it.
        if not tables or has_short_form(kind, name):
            keys.append(f"{prefix}{name}")
        keys += dict.fromkeys(key for table in tables for key in keys_of(table, f"{prefix}{name}."))
    return (*keys,)


def has_short_form(kind: type[Section], name: str) -> bool:
    """Whether a table may be written as a value."""
    tables = kind.tables_at(name)
    return bool(tables) and (issubclass(tables[0], Choice) or bool(tables[0].bare) or kind.is_optional(name))


def _lists_of_tables(
    kind: type[Section], prefix: str = ""
) -> Iterator[tuple[str, tuple[type[Section], ...]]]:
    """Keys of lists of tables, dotted, with the tables that they may hold."""
    for name, field in kind.model_fields.items():
        tables = kind.tables_at(name)
        for table in tables:
            yield from _lists_of_tables(table, f"{prefix}{name}.")
        if not tables and (entries := sections_in(field.annotation)):
            yield f"{prefix}{name}", entries


def fault_phrases(fault: Any, kind: type[Section], table: Any = None, *, advised: int = ADVISED) -> list[str]:
    """A pydantic error in our wording; `table` is the input, to identify the table in a list."""
    place, value = _place_of(kind, fault["loc"], table), fault["input"]
    match fault["type"]:
        case "extra_forbidden":
            return _of_unknown_key(fault, place, kind, advised)
        case "union_tag_invalid" | "union_tag_not_found":
            return [_of_unknown_tag(value, place)]
        case "literal_error" if place.keys[-1] == "kind" and place.field is not None:
            return [_of_wrong_kind(value, place, get_args(place.field.annotation))]
        case "missing":
            return [f"{place.key}{place.entry} must be given, got none"]
        case "tuple_type" if isinstance(value, Mapping) and place.tables:
            return [single_table_phrase(place.key)]
        case "value_error":
            return _of_check(fault, place)
    return [_of_misfit(fault, place)]


@dataclass(frozen=True)
class _Place:
    """Where pydantic found a fault.

    Attributes:
        keys: Keys that lead to it.
        owners: Tables that may hold the last key.
        alternatives: The same, with tables of every kind in its place.
        field: Declaration of the last key; None for an unknown one.
        entry: The table of a list that holds it, or "".
    """

    keys: list[str]
    owners: Tables
    alternatives: Tables
    field: FieldInfo | None
    entry: str

    @property
    def key(self) -> str:
        """The dotted key."""
        return ".".join(self.keys)

    @property
    def tables(self) -> Tables:
        """The tables that the last key may hold."""
        return () if self.field is None else sections_in(self.field.annotation)


def _place_of(kind: type[Section], loc: Sequence[str | int], table: Any) -> _Place:
    """Follow a location of pydantic's, in which the kind of a table stands after its key, and a position
    after a list.
    """
    keys: list[str] = []
    tables = any_kind = Tables((kind,))
    owners = alternatives = Tables()
    field: FieldInfo | None = None
    for key in loc:
        if isinstance(key, int):
            continue
        # pydantic names the kind as a step of its own, which no file has.
        if len(tables) > 1 and key in (kinds := by_kind(tables)):
            tables = (kinds[key],)
            continue
        keys.append(key)
        owners, alternatives = tables, any_kind
        field = next((owner.model_fields[key] for owner in owners if key in owner.model_fields), None)
        tables = any_kind = Tables() if field is None else sections_in(field.annotation)
    return _Place(keys, owners, alternatives, field, _entry(loc, table))


def _of_unknown_key(fault: Any, place: _Place, kind: type[Section], advised: int) -> list[str]:
    """A key that the table lacks, which tables of other kinds may have."""
    kinds = by_kind(place.alternatives)
    homes = [word for word, other in kinds.items() if place.keys[-1] in other.model_fields]
    if homes and len(kinds) > 1:
        # The table's kind stands before its key.
        advice = _other_kind(".".join(place.keys[:-1]), str(fault["loc"][-2]), homes)
        return [f"{place.key} belongs to {', '.join(homes)}; {advice}"]
    known = _known(kind, place.keys, place.owners) if advised else ()
    return unknown_phrases(place.key, fault["input"], known, advised=advised)


def _of_unknown_tag(value: Any, place: _Place) -> str:
    """A table of a list without a valid kind."""
    tag = value if isinstance(value, Mapping) else {}
    # A table with a kind alone may have been written as a word.
    is_word = tag.keys() == {"kind"} and not place.entry
    name = place.key if is_word else f"{place.key}.kind{place.entry}"
    return unknown_kind_phrase(name, tag.get("kind"), list(by_kind(place.tables)))


def _of_wrong_kind(value: Any, place: _Place, kinds: Sequence[str]) -> str:
    """A kind that is none of the table's."""
    # A word may have stood in place of the table.
    is_word = issubclass(place.owners[0], Choice) or place.owners[0].bare == "kind"
    table = place.key.removesuffix(".kind")
    name = table if is_word and not place.entry else f"{place.key}{place.entry}"
    return unknown_kind_phrase(name, value, kinds)


def _of_check(fault: Any, place: _Place) -> list[str]:
    """A fault that a check of adiabat found: of settings together, of one value, or of anything else."""
    error = fault["ctx"]["error"]
    if isinstance(error, PlacedError):
        return error.phrases(place.key, place.entry)
    if isinstance(error, MisfitError):
        return [_of_misfit({**fault, "msg": error, "ctx": {}}, place)]
    return [str(error)]


def _of_misfit(fault: Any, place: _Place) -> str:
    """A value that is not what its setting takes, with the default of the setting."""
    field, default = place.field, None
    # The default of a table would fill many lines.
    if field is not None and not field.is_required() and not isinstance(field.default, Section):
        default = field.default
    return misfit_phrase(f"{place.key}{place.entry}", fault, default)


def _other_kind(table: str, present: str, homes: Sequence[str]) -> str:
    """Advice for a key that belongs to tables of other kinds."""
    kinds = f"= {inline(homes[0])}" if len(homes) == 1 else "to one of them"
    return f"kind is {present}; leave it out, or set {table}.kind {kinds}"


def _known(kind: type[Section], keys: Sequence[str], owners: Sequence[type[Section]]) -> list[str]:
    """Keys to suggest for an unknown one: of all tables, and of the lists, where the file states the kind of
    an entry.
    """
    known = [*keys_of(kind)]
    for name, entries in _lists_of_tables(kind):
        # Inside a list, only the keys of the entry's kind; elsewhere, those of every kind.
        inside = ".".join(keys).startswith(f"{name}.") and owners[0] in entries
        for entry in owners if inside else entries:
            known += keys_of(entry, f"{name}.")
    return known


def _entry(path: Sequence[str | int], table: Any) -> str:
    """The table of a list on a path: its number from 1, with its path or name; "" without a list."""
    for key in path:
        if isinstance(key, int) and isinstance(table, list | tuple) and isinstance(table[key], Mapping):
            title = table[key].get("path") or table[key].get("name")
            # A name in the file may have several lines; a message has one.
            label = f" ({' '.join(str(title).splitlines())})" if title else ""
            return f" of number {key + 1}{label}"
        table = table.get(key) if isinstance(table, Mapping) else None
    return ""


def read_table(path: Path, kind: type[Section]) -> dict[str, Any]:
    """Read the nested tables of a TOML file of settings, unchecked."""
    text = _read_text(path)
    try:
        with shallow():
            return tomllib.loads(text)
    except ConfigError as fault:
        raise ConfigError(f"{path}: {fault}") from None
    except tomllib.TOMLDecodeError as fault:
        if advice := _backslash_advice(fault, text):
            raise ConfigError(f"{path} must be TOML: {fault}; {advice}") from fault
        # TOML reports a second single table as a repeated key, which does not help a user who wanted a list.
        single = [
            single_table_phrase(key)
            for key, _ in _lists_of_tables(kind)
            if re.search(rf"^\s*\[{re.escape(key)}\]", text, re.M)
        ]
        raise ConfigError(f"{path}: {single[0]}" if single else f"{path} must be TOML: {fault}") from fault


def _read_text(path: Path) -> str:
    try:
        content = read_plain(path, limit=LARGEST_CONFIGURATION, error=ConfigError)
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise ConfigError(
                f"{path} must be UTF-8, got UTF-16; convert it, e.g. with iconv -f UTF-16 -t UTF-8"
            )
        # Editors of Windows put a mark before the text.
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(
            f"{path} must be a TOML file of settings, got no such file; check the path"
        ) from None
    except (OSError, UnicodeDecodeError) as fault:
        reraise_unrelated(fault)
        raise ConfigError(
            f"{path} must be a readable TOML file of settings, got: "
            f"{getattr(fault, 'strerror', None) or fault}"
        ) from fault


def _backslash_advice(fault: tomllib.TOMLDecodeError, text: str) -> str:
    """Advice for a line with a backslash, as in a path of Windows or a regular expression; "" for another
    fault.
    """
    # Python's reader names the line, and not what is wrong with a backslash.
    found = re.search(r"at line (\d+)", str(fault))
    if found is None or "\\" not in text.split("\n")[int(found[1]) - 1]:
        return ""
    return (
        "a backslash in double quotes begins an escape: write the text in "
        "single quotes, or double each backslash"
    )


def _toml_value(text: str) -> Any:
    """A value parsed as TOML; a bare word is text, so that ``--set data.split=train`` needs no quotes.

    A trailing blank of such text is kept, because prompts end in one.
    """
    try:
        table = tomllib.loads(f"value = {text.strip()}")
    except tomllib.TOMLDecodeError as fault:
        quoted = text.strip()
        if quoted.startswith('"') and quoted.endswith('"') and (advice := _backslash_advice(fault, quoted)):
            raise ConfigError(
                f"{option('set')} must be a value in TOML, got {quoted}: {fault}; {advice}"
            ) from fault
        return text.lstrip()
    # A text with line ends may have been read as further keys: then it is a text.
    return table["value"] if len(table) == 1 else text.lstrip()


TRAIN_TABLES = ("job", "encoder", "data", "towers", "mixture", "batches", "train", "memory", "run")
"""Tables of a RUN.toml that all runs of an experiment share."""


@shallow()
def with_values(
    kind: type[Section] | None, table: Mapping[str, Any], values: Iterable[tuple[str, Any]]
) -> dict[str, Any]:
    """A table with values laid over it, by their dotted keys: a table or its `kind` before its other keys,
    otherwise in their order.
    """

    def position(keyed: tuple[str, Any]) -> tuple[int, bool]:
        # Fewer names first: a table comes before the keys in it, and its kind counts as the table.
        names = keyed[0].split(".")
        return (len(names) - 1, True) if names[-1] == "kind" else (len(names), False)

    table, values = dict(table), list(values)
    # A table that one value switches off and another one fills is a contradiction.
    off = [name for name, value in values if value is False]
    for key in dict(values):
        if above := [name for name in off if key.startswith(f"{name}.")]:
            raise ConfigError(f"{key} has no effect with {above[0]} = false; leave one out")
    for key, value in sorted(values, key=position):
        table = overlaid(kind, table, nest(key.split("."), value))
    return table


def leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its dotted key; a table with `low` or `high` is a range of values."""
    for name, value in table.items():
        # An empty table inside another one counts as a value, since it switches that table on.
        if isinstance(value, Mapping) and (value or not prefix) and not {"low", "high"} & value.keys():
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def inline(value: Any) -> str:
    """A value in TOML, on one line."""
    if isinstance(value, Section):
        value = value.model_dump(exclude_none=True)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {inline(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(inline, value)) + "]"
    # The writer takes tables alone, so the value is put into one and taken out again.
    return tomli_w.dumps({"value": value}).strip().removeprefix("value = ")
