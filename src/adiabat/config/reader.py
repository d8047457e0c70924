"""Reading settings from a TOML file and from ``--set key=value``, reporting all faults at once."""

import codecs
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import tomli_w
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from adiabat.config.faults import (
    ADVISED,
    PlacedError,
    SettingPath,
    misfit_phrase,
    single_table_phrase,
    unknown_kind_phrase,
    unknown_phrases,
)
from adiabat.config.former import former_phrase, former_settings, present_path
from adiabat.config.section import APART, Choice, MisfitError, Section, by_kind, nest, overlaid, sections_in
from adiabat.core.errors import ConfigError, reraise_unrelated, several
from adiabat.core.files import LARGEST_CONFIGURATION, read_plain
from adiabat.core.formats import to_upgrade
from adiabat.core.wording import option

S = TypeVar("S", bound=Section)


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
    """Read settings from a TOML file and from ``key=value`` assignments, which win; a `ConfigError` names
    every fault at once.
    """
    if path is None:
        return checked(kind, assigned(assignments, kind=kind))
    table = read_table(path, kind)
    try:
        return checked(kind, assigned(assignments, table, kind=kind))
    except ConfigError as fault:
        # Where --set gives a key of the file too, either of the two may be at fault.
        place = f"{path} and {option('set')}" if assignments else path
        advice = f"; {to_upgrade(path)}" if former_settings(table) else ""
        raise ConfigError(f"{place}: {fault}{advice}") from None


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
        values.append((".".join(names), _toml_value(value)))
    return with_values(kind, table or {}, values)


@shallow()
def checked(kind: type[S], table: Mapping[str, Any]) -> S:
    """Settings of nested tables; a `ConfigError` names every fault at once, former keys of adiabat 0.1
    first.
    """
    if former := former_settings(table):
        others = every_phrase(kind, _without(table, former), renamed=[*map(present_path, former.values())])
        raise ConfigError(several([former_phrase(former.values()), *others]))
    try:
        return kind.model_validate(table)
    except ValidationError as fault:
        raise ConfigError(several(every_phrase(kind, table, fault.errors()))) from None


def every_phrase(
    kind: type[Section], table: Any, errors: Sequence[Any] = (), renamed: Iterable[SettingPath] = ()
) -> list[str]:
    """The phrases of pydantic's errors and of all faults that these hide; combinations with `renamed`
    settings are not checked.

    Pydantic checks no combination in a table with a wrong value. Here wrong values are left out until the
    rest is valid on its own.
    """
    phrases: list[str] = []
    known, wrong = set[SettingPath](), set[SettingPath]()
    while True:
        fresh = [error for error in errors if error["loc"] not in known]
        for error in fresh:
            phrases += fault_phrases(error, kind, table, advised=max(0, ADVISED - len(phrases)))
        known.update(error["loc"] for error in fresh)
        rest = _without(table, wrong)
        try:
            settings = kind.model_validate(rest, context=APART)
        except ValidationError as fault:
            errors = fault.errors()
        else:
            for path in wrong.union(renamed):
                settings = _with_gap(settings, path)
            phrases += _misfits(settings, table)
            break
        if not (culprits := {_innermost(_place(kind, error["loc"]).path, rest) for error in errors} - {()}):
            break
        wrong |= culprits
    # A sweep and its runs may report a fault with different advice, such as another default.
    unique: dict[str, str] = {}
    for phrase in phrases:
        unique.setdefault(phrase.partition("; ")[0], phrase)
    return [*unique.values()]


def _innermost(path: SettingPath, table: Any) -> SettingPath:
    """The part of a path to the innermost setting that the tables have."""
    end = 0
    for number, key in enumerate(path, 1):
        if not (
            key in table
            if isinstance(table, Mapping)
            else isinstance(table, list | tuple) and isinstance(key, int)
        ):
            break
        table = table[key]
        end = number if isinstance(key, str) else end
    return path[:end]


def _without(value: Any, paths: Collection[SettingPath], path: SettingPath = ()) -> Any:
    """A copy of nested tables without the settings at some paths."""
    if isinstance(value, Mapping):
        inner = ((key, (*path, key), entry) for key, entry in value.items())
        return {key: _without(entry, paths, place) for key, place, entry in inner if place not in paths}
    if isinstance(value, list | tuple):
        return [_without(entry, paths, (*path, number)) for number, entry in enumerate(value)]
    return value


def _with_gap(section: S, path: SettingPath) -> S:
    """Settings without the one at a path; tables on the way are copied, as those of defaults belong to all
    settings.
    """
    name, *inner = path
    if name not in vars(section):
        return section
    copy, value = section.model_copy(), vars(section)[name]
    if not inner:
        del vars(copy)[name]
    elif isinstance(value, Section):
        vars(copy)[name] = _with_gap(value, (*inner,))
    elif isinstance(value, tuple) and inner[1:]:
        at, *rest = inner
        entries = enumerate(value)
        vars(copy)[name] = (
            *(
                _with_gap(entry, (*rest,)) if at == n and isinstance(entry, Section) else entry
                for n, entry in entries
            ),
        )
    return copy


def _misfits(section: Section, table: Any, path: SettingPath = ()) -> Iterator[str]:
    """The faults of combinations in a table and the tables in it."""
    for name, value in vars(section).items():
        if isinstance(value, Section):
            yield from _misfits(value, table, (*path, name))
        elif isinstance(value, tuple):
            for number, entry in enumerate(value):
                if isinstance(entry, Section):
                    yield from _misfits(entry, table, (*path, name, number))
    if (misfits := section.misfits()).phrases():
        yield from misfits.phrases(".".join(key for key in path if isinstance(key, str)), _entry(path, table))


@cache
def keys_of(kind: type[Section], prefix: str = "") -> tuple[str, ...]:
    """Every dotted key that settings know; a list of tables is one key, and so is a table with a short
    form.
    """
    keys: list[str] = []
    for name in kind.model_fields:
        tables = kind.tables_at(name)
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


@dataclass(slots=True)
class _Place:
    """Location of a fault: the tables that may hold the setting, narrowed by the file's `kind`, and all
    possible kinds.
    """

    names: list[str]
    owners: tuple[type[Section], ...]
    alternatives: tuple[type[Section], ...]
    field: FieldInfo | None = None
    path: SettingPath = ()

    @property
    def key(self) -> str:
        return ".".join(self.names)

    @property
    def tables(self) -> tuple[type[Section], ...]:
        return () if self.field is None else sections_in(self.field.annotation)

    @property
    def default(self) -> Any:
        default = None if self.field is None or self.field.is_required() else self.field.default
        return None if isinstance(default, Section) else default


def _place(kind: type[Section], loc: Sequence[str | int]) -> _Place:
    """Follow a location of pydantic's, which names the kind of a table after its key, and the position of a
    table in a list.
    """
    setting = _Place([], (), ())
    tables: tuple[type[Section], ...] = (kind,)
    path: SettingPath = ()
    for key in loc:
        if isinstance(key, int):
            path = (*path, key)
            continue
        if len(tables) > 1 and key in (kinds := by_kind(tables)):
            tables = (kinds[key],)
            continue
        # The keys of a mapping belong to its setting.
        path = (*path, key) if tables else path
        field = next((owner.model_fields[key] for owner in tables if key in owner.model_fields), None)
        setting = _Place([*setting.names, key], tables, setting.tables or (kind,), field)
        tables = setting.tables
    setting.path = path
    return setting


def fault_phrases(fault: Any, kind: type[Section], table: Any = None, *, advised: int = ADVISED) -> list[str]:
    """A pydantic error in our wording; `table` is the input, to identify the table in a list."""
    setting, value = _place(kind, fault["loc"]), fault["input"]
    key, entry = setting.key, _entry(fault["loc"], table)
    match fault["type"]:
        case "extra_forbidden":
            return _unknown(setting, value, kind, fault["loc"], advised=advised)
        case "union_tag_invalid" | "union_tag_not_found":
            tag = value if isinstance(value, Mapping) else {}
            name = key if tag.keys() == {"kind"} and not entry else f"{key}.kind{entry}"
            return [unknown_kind_phrase(name, tag.get("kind"), list(by_kind(setting.tables)))]
        case "missing":
            return [f"{key}{entry} must be given, got none"]
        case "tuple_type" if isinstance(value, Mapping) and key in dict(_lists_of_tables(kind)):
            return [single_table_phrase(key)]
        case "value_error":
            error = fault["ctx"]["error"]
            if isinstance(error, PlacedError):
                return error.phrases(key, entry)
            if not isinstance(error, MisfitError):
                return [str(error)]
            fault = {**fault, "msg": error, "ctx": {}}
    return [misfit_phrase(f"{key}{entry}", fault, setting.default)]


def _unknown(
    setting: _Place, value: Any, kind: type[Section], loc: Sequence[str | int], *, advised: int
) -> list[str]:
    """The faults of a key that its table does not know; the same table of another kind may know it."""
    name, others = setting.names[-1], by_kind(setting.alternatives)
    if len(others) > 1 and (homes := [word for word, table in others.items() if name in table.model_fields]):
        words = [word for word, table in others.items() if table in setting.owners]
        present = next((key for key in loc if key in words), words[0])
        remedy = (
            f"set {'.'.join(setting.names[:-1])}.kind "
            f"{f'= {inline(homes[0])}' if len(homes) == 1 else 'to one of them'}"
        )
        return [f"{setting.key} belongs to {', '.join(homes)}; kind is {present}; leave it out, or {remedy}"]
    # If the file states the kind of a table in a list, keys of other kinds are no suggestions.
    in_list = any(isinstance(key, int) for key in loc)
    known = [*keys_of(kind)] if advised else []
    for key, entries in _lists_of_tables(kind) if advised else ():
        chosen = (
            setting.owners
            if in_list and setting.key.startswith(f"{key}.") and setting.owners[0] in entries
            else entries
        )
        known += (known_key for entry in chosen for known_key in keys_of(entry, f"{key}."))
    return unknown_phrases(setting.key, value, known, advised=advised)


def _entry(path: Sequence[str | int], table: Any) -> str:
    """The table of a list on a path: its number from 1, with its path or name; "" without a list."""
    for key in path:
        if isinstance(key, int) and isinstance(table, list | tuple) and isinstance(table[key], Mapping):
            label = next(
                (
                    f" ({' '.join(str(table[key][name]).splitlines())})"
                    for name in ("path", "name")
                    if table[key].get(name)
                ),
                "",
            )
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
        names = keyed[0].split(".")
        return (len(names) - 1, True) if names[-1] == "kind" else (len(names), False)

    table, values = dict(table), list(values)
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
    return tomli_w.dumps({"value": value}).strip().removeprefix("value = ")
