"""Pages: a headline, reservations and sections, which one template shows.

A page is one self-contained HTML file. All text is escaped and stripped of characters that HTML cannot hold.
Its only script, allowed by its hash, sorts tables and filters rows; everything is readable without it. Equal
records give equal bytes.
"""

import base64
import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module, resources
from typing import Any, ClassVar, Literal

import jinja2
import numpy as np
from jaxtyping import Bool, Float
from markupsafe import Markup
from rich.console import Console, RenderableType

from adiabat.core.text import DASH, cut, duration, printable
from adiabat.report.chart_style import heat_colours
from adiabat.report.charts import Chart
from adiabat.report.computed_tables import Column, Table
from adiabat.report.tables import Section
from adiabat.results.record import Record

Tone = Literal["good", "bad", "plain"]

OPEN_NOTES = 5
"""Number of notes shown at first; the others are folded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(Section):
    """Charts side by side, with a label for screen readers; a phone shows `narrow`, or scrolls `wide`."""

    kind: ClassVar[str] = "figure"
    charts: Sequence[Chart]
    label: str
    caption: str = ""
    narrow: Chart | None = None
    wide: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap(Section):
    """A heat map of numbers.

    Attributes:
        shades: Number behind the colour of each cell; NaN for none.
        text: Formats such a number for its cell, unless `texts` is given.
        scale: All numbers that share the colour scale, if other maps use it too.
        compared: Whether the numbers are changes, for which blue is better.
        longest: Maximum characters of a head.
    """

    kind: ClassVar[str] = "heat"
    rows: Sequence[str]
    columns: Sequence[str]
    shades: Float[np.ndarray, "q d"]
    text: Callable[[float], str] = str
    texts: Sequence[Sequence[str]] = ()
    scale: Float[np.ndarray, "..."] | None = None
    compared: bool = False
    marked: Bool[np.ndarray, "q d"] | None = None
    counts: Sequence[str] = ()
    caption: str = ""
    longest: int = 8

    @property
    def size(self) -> str:
        """Size of the cells, by their number."""
        return "large" if len(self.columns) <= 6 else "medium" if len(self.columns) <= 10 else ""

    def cells(self) -> list[list[tuple[str, str, str, bool]]]:
        """Text, background, text colour, and whether there is a dot."""
        colours = heat_colours(self.shades if self.scale is None else self.scale, compared=self.compared)
        marked = np.zeros(self.shades.shape, dtype=np.bool_) if self.marked is None else self.marked
        texts = self.texts or [
            [self.text(shade) if np.isfinite(shade) else DASH for shade in row]
            for row in self.shades.tolist()
        ]
        return [
            [(text, *colours(shade), mark) for text, shade, mark in zip(*row, strict=True)]
            for row in zip(texts, self.shades.tolist(), marked.tolist(), strict=True)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts(Section):
    """Names with values."""

    kind: ClassVar[str] = "facts"
    facts: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes(Section):
    """Notes with the names that they concern; the first `unfolded` are open."""

    kind: ClassVar[str] = "notes"
    notes: Sequence[tuple[str, str]]
    title: str = "Notes"
    unfolded: int = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms(Section):
    """Glossary of the page: terms and their meaning."""

    kind: ClassVar[str] = "terms"
    terms: Sequence[tuple[str, str]]
    id: str = "how-to-read"
    title: str = "How to read this"
    folded: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples(Section):
    """Queries with their lists of results side by side; entries are plain data for the template."""

    kind: ClassVar[str] = "examples"
    examples: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Section):
    """Sections under one title; a folded group has a subtitle, and may be open at first."""

    kind: ClassVar[str] = "group"
    sections: Sequence[Section | None]
    subtitle: str = ""
    opened: bool = False
    side_by_side: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The content of a page.

    Attributes:
        name: Name of the job, above the title.
        tone: Whether the headline is good news.
        reservations: Reservations that an honest reader should know.
        about: Names with values, below the title.
        facts: Names with values, for the section on how the page was made.
        seed: Name of the record's seed in that section.
        time: Name of the record's duration there.
        settings: Settings shown instead of the record's.
        tables: Id, title and nested settings, for the same section.
    """

    record: Record
    name: str
    headline: str
    tone: Tone = "plain"
    reservations: Sequence[str] = ()
    about: Sequence[tuple[str, str]] = ()
    sections: Sequence[Section | None] = ()
    facts: Sequence[tuple[str, str]] = ()
    seed: str = "seed"
    time: str = "time"
    settings: Mapping[str, Any] | None = None
    tables: Sequence[tuple[str, str, Mapping[str, Any]]] = ()

    def to_html(self) -> str:
        """The page as one file."""
        sections = [section for section in [*self.sections, self._made()] if section is not None]
        return _template().render(page=self, sections=sections)

    def _made(self) -> Group:
        """How the record was made: command, facts, settings and versions."""
        record = self.record
        facts = [
            *self.facts,
            ("made", record.created),
            (self.seed, str(record.seed)),
            (self.time, duration(record.seconds)),
        ]
        settings = record.settings if self.settings is None else self.settings
        inputs = [("inputs", "Inputs", record.inputs), ("settings", "Settings", settings)]
        tables = [
            settings_table(*table)
            for table in [*inputs, *self.tables, ("versions", "Versions", record.versions)]
            if table[2]
        ]
        return Group(
            id="made",
            title="How this was made",
            sections=[Facts(facts=[fact for fact in facts if fact[1]]), *tables],
        )


def settings_table(name: str, title: str, settings: Mapping[str, Any]) -> Table:
    """Settings by dotted key, as written after ``--set``, folded."""
    columns = [
        Column("key", lambda row: cut(row[0], limit=200), "code"),
        Column("value", lambda row: cut(row[1], limit=2000), "code"),
    ]
    return Table(id=name, title=title, columns=columns, rows=flat(settings), folded=True)


def flat(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Settings by dotted key."""
    rows: list[tuple[str, str]] = []
    for key, value in sorted(settings.items()):
        if isinstance(value, Mapping) and value:
            rows += flat(value, f"{prefix}{key}.")
        elif isinstance(value, Sequence) and value and all(isinstance(item, Mapping) for item in value):
            rows += [(f"{prefix}{key}[{position}]", _text(item)) for position, item in enumerate(value)]
        else:
            rows.append((f"{prefix}{key}", _text(value)))
    return rows


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def gathered(notes: Sequence[tuple[str, Sequence[str]]], *, everyone: str) -> list[tuple[str, str]]:
    """Each note once, with the names that it concerns; `everyone` stands for all names."""
    about: dict[str, dict[str, None]] = {}
    for name, sentences in notes:
        for note in sentences:
            # Notes that were also printed alone begin with the name.
            about.setdefault(note.removeprefix(f"{name}: "), {})[name] = None
    count = len({name for name, _ in notes})
    return [
        (everyone if len(names) == count > 1 else ", ".join(names), note) for note, names in about.items()
    ]


def notes_section(title: str, notes: Sequence[tuple[str, Sequence[str]]], *, everyone: str) -> Notes | None:
    """Notes with the names that they concern, the first few open; None without notes."""
    by_note = gathered(notes, everyone=everyone)
    return Notes(title=title, notes=by_note, unfolded=OPEN_NOTES) if by_note else None


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: (
            printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
        ),
        auto_reload=False,
    )
    script = _source("sorting.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals.update(
        cut=cut,
        # Markup enters a page only here: our own files, and drawings, which escape the texts in them.
        sheet=Markup(f"<style>\n{_source('style.css')}</style>"),
        script=Markup(f"<script>{script}</script>"),
        svg=lambda chart: Markup(chart.inline()),
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'",
        # A number in the form that the script reads; "" for no value.
        sort_key=lambda cell: str(float(cell.value)) if isinstance(cell.value, int | float) else "",
    )
    return environment.get_template("page.html.j2")


@cache
def _source(name: str) -> str:
    """The text of a file in this room."""
    return resources.files("adiabat.report").joinpath(name).read_text(encoding="utf-8")


WIDTH = 100
"""Columns of a summary."""

_MODULES = {
    "training": "training_page",
    "evaluation": "evaluation_page",
    "suite": "suite_page",
    "sweep": "sweep_page",
    "rate-search": "rate_search_page",
    **dict.fromkeys(("scaling", "plan"), "scaling_page"),
    "space": "space_page",
    "advice": "advice_page",
}
"""Kind of a record to the module with its `page`, its `terminal` tables and, for some, `exports` and
`notes`."""


def files(record: Record) -> Mapping[str, Callable[[], str]]:
    """Path of each file beside ``result.json``, with the function that renders it."""
    module = _module(record)
    exports: Mapping[str, Callable[[], str]] = module.exports(record) if hasattr(module, "exports") else {}
    return {"report.html": lambda: module.page(record).to_html(), **exports}


def terminal_tables(record: Record) -> list[RenderableType]:
    """The tables of a record, with the headline below them."""
    tables = (
        [table.to_terminal() for table in _module(record).terminal(record)] if record.kind in _MODULES else []
    )
    return tables or [record.title]


def verdict(record: Record) -> tuple[str, list[str]]:
    """The headline of a page, and the sentences below it; nothing for a record without a page of its own."""
    if record.kind not in _MODULES:
        return "", []
    page: Page = _module(record).page(record)
    return page.headline, list(page.reservations)


def notes(record: Record) -> list[str]:
    """Sentences that limit what the table proves."""
    sentences: list[str] = (
        getattr(_module(record), "notes", lambda _: [])(record) if record.kind in _MODULES else []
    )
    return sentences


def summary(record: Record) -> str:
    """Table, headline and notes as plain text."""
    text = io.StringIO()
    Console(file=text, width=WIDTH, highlight=False, color_system=None).print(*terminal_tables(record))
    lines = [*text.getvalue().splitlines(), *(f"note: {sentence}" for sentence in notes(record))]
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def _module(record: Record) -> Any:
    return import_module(f"adiabat.report.{_MODULES[record.kind]}")
