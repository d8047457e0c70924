"""Templates of pages, and what all pages share: escaping, the style sheet, and the section on how a page was made.

Every text in a page is escaped and rid of characters that no page can hold; pages hold no address of another resource. Some hold one script
of their own, which sorts tables and filters rows: their policy names it by its hash and allows no other, and without it everything is there
to be read.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from adiabat.report import format as wording


@cache
def template(name: str) -> jinja2.Template:
    """A template of this room, which may include ``made.html.j2`` and shows the style sheet of all pages as ``sheet``."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(source),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalised,
        auto_reload=False,
    )
    environment.globals.update(cut=wording.cut, sheet=Markup(f"<style>\n{source('style.css')}</style>"))
    return environment.get_template(name)


@cache
def source(name: str) -> str:
    """The text of a file of this room."""
    return resources.files("adiabat.report").joinpath(name).read_text(encoding="utf-8")


def script() -> str:
    """What sorts and filters."""
    return source("sorting.js")


def script_hash() -> str:
    """The script by its hash, for the page's policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()}"


def _finalised(value: Any) -> Any:
    """What goes into the page, rid of characters that no page can hold."""
    return wording.printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def picture(svg: str | None) -> Markup | None:
    """A picture as it may stand in a page: the one place where markup enters a page as such.

    Args:
        svg: From a module that draws, which escapes the texts it is given; None where there is nothing to draw.
    """
    return None if svg is None else Markup(svg)


def given(*tables: tuple[str, str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tables of what a run was given, for the section on how a page was made.

    Args:
        *tables: Id in the page, title, and nested plain data; empty ones are left out.
    """
    return [{"id": name, "title": title, "rows": flat(table)} for name, title, table in tables if table]


def flat(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Settings by dotted key, as they are written after ``--set``."""
    rows: list[tuple[str, str]] = []
    for key, value in sorted(settings.items()):
        if isinstance(value, Mapping) and value:
            rows += flat(value, f"{prefix}{key}.")
        elif isinstance(value, Sequence) and value and all(isinstance(one, Mapping) for one in value):
            rows += [(f"{prefix}{key}[{place}]", _text(one)) for place, one in enumerate(value)]
        else:
            rows.append((f"{prefix}{key}", _text(value)))
    return rows


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def gathered(notes: Sequence[tuple[str, Sequence[str]]], *, every: str) -> list[tuple[str, str]]:
    """Each note once, behind the names that it is about."""
    about: dict[str, dict[str, None]] = {}
    for name, said in notes:
        for note in said:
            about.setdefault(note, {})[name] = None
    count = len({name for name, _ in notes})
    return [(every if len(names) == count > 1 else ", ".join(names), note) for note, names in about.items()]
