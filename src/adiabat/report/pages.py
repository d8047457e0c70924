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
from functools import cache, partial
from importlib import import_module, resources
from typing import Any, ClassVar, Literal

import jinja2
import numpy as np
from jaxtyping import Bool, Float
from markupsafe import Markup
from rich.console import Console, RenderableType

from adiabat.core.text import DASH, cut, duration, printable
from adiabat.report.captions import texts_of
from adiabat.report.chart_style import heat_colours
from adiabat.report.charts import Chart
from adiabat.report.format import Format
from adiabat.report.tables import Cell, Column, Section, Table
from adiabat.results.record import Record

Tone = Literal["good", "bad", "plain"]

Sections = list[Section | None]
"""Sections from top to bottom; None for one that has nothing to show."""

Files = dict[str, Callable[[], str]]
"""Path of each file beside ``result.json``, with the function that renders it."""


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
    text: Format = str
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
        count = len(self.columns)
        if count <= 6:
            return "large"
        return "medium" if count <= 10 else ""

    def cells(self) -> list[list["HeatCell"]]:
        """The cells, row by row."""
        # Maps that share a scale show equal numbers in equal colours.
        colours = heat_colours(self.shades if self.scale is None else self.scale, compared=self.compared)
        marked = np.zeros(self.shades.shape, dtype=np.bool_) if self.marked is None else self.marked
        lines = []
        for row in range(len(self.rows)):
            line = []
            for column in range(len(self.columns)):
                shade = float(self.shades[row, column])
                text = self.texts[row][column] if self.texts else self._text_of(shade)
                background, ink = colours(shade)
                line.append(HeatCell(text, background, ink, marked=bool(marked[row, column])))
            lines.append(line)
        return lines

    def _text_of(self, shade: float) -> str:
        """The text of a cell; a dash where nothing was measured."""
        return self.text(shade) if np.isfinite(shade) else DASH


@dataclass(frozen=True, slots=True)
class HeatCell:
    """A cell of a heat map: its text, the colours below and of the text, and whether it has a dot."""

    text: str
    background: str
    ink: str
    marked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts(Section):
    """Names with values; those with "" are not shown."""

    kind: ClassVar[str] = "facts"
    facts: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes(Section):
    """Notes with the names that they concern."""

    kind: ClassVar[str] = "notes"
    notes: Sequence[tuple[str, str]]
    title: str = "Notes"


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
    """Queries with their lists of results side by side; the template cuts long texts."""

    kind: ClassVar[str] = "examples"
    examples: Sequence[Mapping[str, Any]]
    query_length: int
    document_length: int
    counted_length: int = 2000
    """Characters from which a text that is cut also states its whole length."""


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
        about: Names with values, below the title; "" is not shown.
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
        sections = [section for section in self.sections if section is not None]
        return _template().render(page=self, sections=[*sections, self._made()])

    def _made(self) -> Group:
        """How the record was made: command, facts, settings and versions."""
        record = self.record
        facts = [
            *self.facts,
            ("made", record.created),
            (self.seed, str(record.seed)),
            (self.time, duration(record.seconds)),
        ]
        tables = [
            ("inputs", "Inputs", record.inputs),
            ("settings", "Settings", record.settings if self.settings is None else self.settings),
            *self.tables,
            ("versions", "Versions", record.versions),
        ]
        sections: list[Section] = [Facts(facts=facts)]
        for name, title, settings in tables:
            if settings:
                sections.append(settings_table(name, title, settings))
        return Group(id="made", title="How this was made", sections=sections)


def group(page: str, name: str, /, *sections: Section | None, **values: object) -> Group:
    """Sections under the title and the lead that ``captions.toml`` has for them.

    Args:
        page: Page, the name of a table of ``captions.toml``.
        name: Name in that table, and anchor of the group.
        values: Values for the places in the texts.
    """
    return Group(id=name, sections=sections, **texts_of(page, name, **values))


def figure(
    page: str, name: str, /, *charts: Chart, narrow: Chart | None = None, wide: bool = True, **values: object
) -> Figure:
    """Charts side by side with the title, label and caption that ``captions.toml`` has for them."""
    return Figure(charts=charts, narrow=narrow, wide=wide, **texts_of(page, name, **values))


def settings_table(name: str, title: str, settings: Mapping[str, Any]) -> Table:
    """Settings by dotted key, as written after ``--set``, folded."""
    table = Table(id=name, title=title, columns=[Column("key", "code"), Column("value", "code")], folded=True)
    for key, value in flat(settings):
        table.add(cut(key, limit=200), cut(value, limit=2000))
    return table


def flat(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Settings by dotted key."""
    rows: list[tuple[str, str]] = []
    for key, value in sorted(settings.items()):
        if isinstance(value, Mapping) and value:
            rows += flat(value, f"{prefix}{key}.")
        elif isinstance(value, Sequence) and value and all(isinstance(item, Mapping) for item in value):
            for position, item in enumerate(value):
                rows.append((f"{prefix}{key}[{position}]", _text(item)))
        else:
            rows.append((f"{prefix}{key}", _text(value)))
    return rows


def _text(value: Any) -> str:
    """A setting as text: JSON, but texts without quotes."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def gathered(notes: Sequence[tuple[str, Sequence[str]]], *, everyone: str) -> list[tuple[str, str]]:
    """Each note once, with the names that it concerns; `everyone` stands for all names."""
    # Dictionaries keep the order of notes and names, and each of them once.
    about: dict[str, dict[str, None]] = {}
    for name, sentences in notes:
        for note in sentences:
            # Notes that were also printed alone begin with the name.
            about.setdefault(note.removeprefix(f"{name}: "), {})[name] = None
    count = len({name for name, _ in notes})
    by_note = []
    for note, names in about.items():
        concerns_all = len(names) == count > 1
        by_note.append((everyone if concerns_all else ", ".join(names), note))
    return by_note


def notes_section(title: str, notes: Sequence[tuple[str, Sequence[str]]], *, everyone: str) -> Notes | None:
    """Notes with the names that they concern, folded; None without notes."""
    by_note = gathered(notes, everyone=everyone)
    return Notes(title=title, notes=by_note, folded=True) if by_note else None


@cache
def _template() -> jinja2.Template:
    """The template with what it may call; made once."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalized,
        auto_reload=False,
    )
    script = _source("sorting.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals.update(
        cut=cut,
        # Markup enters a page only here: our own files, and drawings, which escape the texts in them.
        sheet=Markup(f"<style>\n{_source('style.css')}</style>"),
        script=Markup(f"<script>{script}</script>"),
        svg=_svg,
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'",
        sort_key=_sort_key,
    )
    return environment.get_template("page.html.j2")


def _finalized(value: object) -> object:
    """A value before it is escaped: a text without characters that HTML cannot hold."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value)
    return value


def _svg(chart: Chart) -> Markup:
    """A drawing as markup."""
    return Markup(chart.inline())


def _sort_key(cell: Cell) -> str:
    """The number of a cell in the form that the script reads; "" without one."""
    return str(float(cell.value)) if isinstance(cell.value, int | float) else ""


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
    "tenants": "tenants_page",
}
"""Kind of a record to the module with its `page`, its `terminal` tables and, for some, `exports` and
`notes`."""


def files(record: Record) -> Files:
    """The page of a record, and the files that its module exports."""
    module = _module(record)
    rendered: Files = {"report.html": partial(_html, record)}
    if hasattr(module, "exports"):
        rendered |= module.exports(record)
    return rendered


def _html(record: Record) -> str:
    """The page of a record as one file."""
    page: Page = _module(record).page(record)
    return page.to_html()


def terminal_tables(record: Record) -> list[RenderableType]:
    """The tables of a record, with the headline below them; its title if it has no page."""
    if record.kind not in _MODULES:
        return [record.title]
    tables: list[Table] = _module(record).terminal(record)
    return [table.to_terminal() for table in tables] or [record.title]


def verdict(record: Record) -> tuple[str, list[str]]:
    """The headline of a page, and the sentences below it; nothing for a record without a page of its own."""
    if record.kind not in _MODULES:
        return "", []
    page: Page = _module(record).page(record)
    return page.headline, list(page.reservations)


def notes(record: Record) -> list[str]:
    """Sentences that limit what the table proves."""
    if record.kind not in _MODULES or not hasattr(_module(record), "notes"):
        return []
    sentences: list[str] = _module(record).notes(record)
    return sentences


def summary(record: Record) -> str:
    """Table, headline and notes as plain text."""
    text = io.StringIO()
    Console(file=text, width=WIDTH, highlight=False, color_system=None).print(*terminal_tables(record))
    lines = text.getvalue().splitlines()
    for sentence in notes(record):
        lines.append(f"note: {sentence}")
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def _module(record: Record) -> Any:
    """The module that makes the page of a record; matplotlib and others are loaded with it."""
    return import_module(f"adiabat.report.{_MODULES[record.kind]}")
