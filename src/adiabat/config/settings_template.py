"""Every setting of a verb as a TOML file: what it is where nobody says anything, what it may be, and what it means."""

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

import tomli_w
from pydantic.fields import FieldInfo

from adiabat.config.reader import tables_in
from adiabat.config.section import Section
from adiabat.config.validation import Need

WIDTH = 120
"""Characters of a line."""

_BOUNDS: Mapping[str, str] = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
"""How pydantic names them."""

_HEAD = "# Keys stand with their defaults; a key without one is left out of a file, which is what None means here."

_OWN_NAME = re.compile(r"^`\[+[\w.]+\]+`: ")
"""What the description of a table begins with, which stands below its name here."""


def template(kind: type[Section]) -> str:
    """All settings that a verb may be told."""
    return "\n".join([_HEAD, *_lines(kind, "")]).strip() + "\n"


def _lines(kind: type[Section], table: str) -> Iterator[str]:
    tables = {name: field for name, field in kind.model_fields.items() if _section_of(field) or _tables_of(field)}
    for name, field in kind.model_fields.items():
        if name not in tables:
            yield from _key(name, field, kind.needs.get(name))
    for name, field in tables.items():
        if own := _section_of(field):
            yield from ["", f"[{table}{name}]", *_comment(field.description or own.__doc__)]
            yield from _lines(own, f"{table}{name}.")
        for one in _tables_of(field):
            yield from ["", f"#[[{table}{name}]]", *_comment(one.__doc__)]
            yield from (re.sub(r"^\[", "#[", line) for line in _lines(one, f"{table}{name}."))


def _section_of(field: FieldInfo) -> type[Section] | None:
    found = field.annotation
    return found if isinstance(found, type) and issubclass(found, Section) else None


def _tables_of(field: FieldInfo) -> list[type[Section]]:
    return [] if _section_of(field) else list(dict.fromkeys(tables_in(field.annotation)))


def _key(name: str, field: FieldInfo, need: Need | None) -> Iterator[str]:
    yield ""
    yield from _comment(" ".join(part for part in (field.description, _only(need), _takes(field)) if part))
    words = _words(field.annotation)
    value = words[0] if field.is_required() and len(words) == 1 else None if field.is_required() else field.get_default()
    yield f"#{name} =" if value is None else f"#{_assigned(name, value)}"


def _assigned(name: str, value: Any) -> str:
    return f"{name} = {_inline(value)}"


def _inline(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(_assigned(key, own) for key, own in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return tomli_w.dumps({"value": value}).strip().removeprefix("value = ")


def _only(need: Need | None) -> str:
    """When a setting has an effect."""
    if need is None:
        return ""
    if need.among == (None,):
        return f"Only without {need.other}."
    return f"Only with {need.other}{' = ' if need.among else ''}{' or '.join(map(_inline, need.among))}."


def _takes(field: FieldInfo) -> str:
    """What a setting may be, where its kind says it."""
    every = _words(field.annotation)
    words = ", ".join(map(_inline, every)) if len(every) > 1 or not _is_choice(field.annotation) else ""
    limits = [(sign, getattr(one, name, None)) for one in field.metadata for name, sign in _BOUNDS.items()]
    bounds = [f"{sign} {limit:g}" for sign, limit in limits if limit is not None]
    named = "" if not words else f"One of {words}." if _is_choice(field.annotation) else f"A number, or {words}."
    return " ".join(part for part in (named, f"Must be {' and '.join(bounds)}." if bounds else "") if part)


def _is_choice(annotation: Any) -> bool:
    """Whether nothing but words, or nothing, is taken."""
    parts = get_args(annotation)
    return get_origin(annotation) is Literal or (bool(parts) and all(part is type(None) or _is_choice(part) for part in parts))


def _words(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [word for part in get_args(annotation) for word in _words(part)]


def _comment(text: str | None) -> list[str]:
    plain = _OWN_NAME.sub("", " ".join((text or "").replace("``", "`").split()))
    return [f"# {line}" for line in textwrap.wrap(plain, WIDTH - 2)]
