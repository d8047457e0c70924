"""The settings of a verb as a TOML file: each key with its default, allowed values and description."""

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from adiabat.config.reader import has_short_form, inline
from adiabat.config.section import Choice, Section, by_kind, sections_in

WIDTH = 120
"""Maximum characters of a line."""

_BOUNDS: Mapping[str, str] = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
"""pydantic's names of bounds."""

_HEAD = "# Keys show their defaults. None means that the key is left out of the file."

_OWN_NAME = re.compile(r"^`\[+[\w.]+\]+`: (.)")
"""Prefix of a table's description, which the template omits because it stands below the table's name."""


def template(kind: type[Section]) -> str:
    """All settings of a verb."""
    return "\n".join([_HEAD, *_keys(kind), *_tables(kind, "")]).strip() + "\n"


def _keys(kind: type[Section], usual: Section | None = None) -> Iterator[str]:
    """The settings of a table that are not tables, with the values of `usual`."""
    for name, field in kind.model_fields.items():
        if not sections_in(field.annotation):
            yield ""
            yield from _comment(_joined(field.description, _takes(field)))
            yield f"#{_assigned(name, field if usual is None else getattr(usual, name))}"


def _tables(kind: type[Section], prefix: str, given: Section | None = None) -> Iterator[str]:
    """The tables inside a table, with all their content and the values of `given`."""
    for name, field in kind.model_fields.items():
        tables = kind.tables_at(name)
        # A list of tables is empty by default, so its header is a comment too.
        for section in () if tables else sections_in(field.annotation):
            yield from ["", f"#[[{prefix}{name}]]", *_comment(section.__doc__), *_keys(section)]
            yield from (re.sub(r"^\[", "#[", line) for line in _tables(section, f"{prefix}{name}."))
        if not tables:
            continue
        default = field.default if given is None else getattr(given, name)
        # A table that is off by default is shown as its first kind.
        usual = type(default) if isinstance(default, Section) else tables[0]
        yield from [
            "",
            f"{'#' if field.default is None else ''}[{prefix}{name}]",
            *_comment(field.description or usual.__doc__),
        ]
        if field.description and issubclass(usual, Choice):
            yield from _comment(usual.__doc__)
        if has_short_form(kind, name):
            yield from _comment(_short_form(kind, name, field, tables))
        # A header that is no comment would switch on a table that is off.
        inner = [*_keys(usual, default), *_tables(usual, f"{prefix}{name}.", default)]
        yield from (re.sub(r"^\[", "#[", line) for line in inner) if field.default is None else inner
        for table in tables:
            if table is not usual:
                yield from _other_kind(table, usual)


def _short_form(kind: type[Section], name: str, field: FieldInfo, tables: tuple[type[Section], ...]) -> str:
    if kind.is_optional(name):
        if field.default is not None:
            return f"`{name} = false` switches it off."
        forms = []
        if tables[0].bare:
            forms.append(f"`{name} = VALUE` gives `{tables[0].bare}` alone")
        if not any(inner.is_required() for inner in tables[0].model_fields.values()):
            forms.append(f"`{name} = true` takes all of its defaults")
        return f"Off by default; {'; '.join(forms)}."
    words = ", ".join(map(inline, by_kind(tables)))
    bare = next((f" or, in place of {table.bare} alone, a number" for table in tables if table.bare), "")
    return f"`{name} = VALUE` may stand in place of the table, where VALUE is one of {words}{bare}."


def _other_kind(kind: type[Section], usual: type[Section]) -> Iterator[str]:
    """Differences of a table of another kind from the usual one, as plain comments."""
    # What both kinds have, with the same default, was said at the usual kind.
    same = {
        name
        for name, field in kind.model_fields.items()
        if name in usual.model_fields and usual.model_fields[name].default == field.default
    }
    without = [name for name in usual.model_fields if name not in kind.model_fields]
    yield ""
    yield from _comment(
        f"kind = {' or '.join(map(inline, _words(kind.model_fields['kind'].annotation)))}: {kind.__doc__}"
    )
    if without:
        yield from _comment(f"It has no {', '.join(without)}.", indent="  ")
    for name, field in kind.model_fields.items():
        if name != "kind" and name not in same:
            yield from _described(name, field)
            for table in kind.tables_at(name):
                for key, inner in table.model_fields.items():
                    yield from _described(f"{name}.{key}", inner)


def _described(name: str, field: FieldInfo) -> list[str]:
    text = _joined(f"{_assigned(name, field)}:", field.description, _takes(field))
    return _comment(text, indent="  ")


def _assigned(name: str, value: Any) -> str:
    if isinstance(value, FieldInfo):
        words = _words(value.annotation) if name == "kind" else []
        default = words[0] if words else None
        value = default if value.is_required() else value.get_default()
    return f"{name} =" if value is None else f"{name} = {inline(value)}"


def _takes(field: FieldInfo) -> str:
    """Allowed values of a setting, as far as its type states them."""
    choices, is_choice = _words(field.annotation), _is_choice(field.annotation)
    words = ", ".join(map(inline, choices))
    sentences = []
    # A single word is the kind of a table, which its header says.
    if len(choices) > 1 and is_choice:
        sentences.append(f"One of {words}.")
    elif choices and not is_choice:
        sentences.append(f"A number, or {words}.")
    # Each constraint of the type may have any of the bounds.
    limits = [
        (sign, getattr(constraint, name, None))
        for constraint in field.metadata
        for name, sign in _BOUNDS.items()
    ]
    bounds = [f"{sign} {limit:g}" for sign, limit in limits if limit is not None]
    if bounds:
        sentences.append(f"Must be {' and '.join(bounds)}.")
    return " ".join(sentences)


def _joined(*sentences: str | None) -> str:
    """Those sentences that there are, in one text."""
    return " ".join(filter(None, sentences))


def _is_choice(annotation: Any) -> bool:
    """Whether only fixed words, or None, are allowed."""
    kinds = get_args(annotation)
    return get_origin(annotation) is Literal or (
        bool(kinds) and all(kind is type(None) or _is_choice(kind) for kind in kinds)
    )


def _words(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [word for argument in get_args(annotation) for word in _words(argument)]


def _comment(text: str | None, *, indent: str = "") -> list[str]:
    # Docstrings mark code with two backquotes; a comment needs one.
    plain = _OWN_NAME.sub(lambda name: name[1].upper(), " ".join((text or "").replace("``", "`").split()))
    return [f"# {indent}{line}" for line in textwrap.wrap(plain, WIDTH - 2 - len(indent))]
