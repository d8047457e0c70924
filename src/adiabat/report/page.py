"""Pages: a headline, reservations and sections, which one template shows.

A page is one HTML file that needs nothing but itself. Every text in it is escaped and rid of characters that no page can hold; its only
script sorts tables and filters rows, is allowed by its hash alone, and without it everything is there to be read. Equal records give equal
bytes.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, ClassVar, Literal

import jinja2
import numpy as np
from jaxtyping import Bool, Float
from markupsafe import Markup

from adiabat.core.text import DASH, cut, printable
from adiabat.report.chart_style import heat_scale
from adiabat.report.charts import Chart
from adiabat.report.format import signed
from adiabat.report.tables import Cell, Column, Section, Table
from adiabat.results.record import Record

Tone = Literal["good", "bad", "plain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(Section):
    """Charts side by side in a card, with a caption.

    Attributes:
        charts: Drawn from left to right.
        label: For readers who do not see the picture.
        narrow: Drawn in their place on a telephone.
        wide: Whether a telephone scrolls instead of shrinking the picture.
    """

    kind: ClassVar[str] = "figure"
    charts: Sequence[Chart]
    label: str
    caption: str = ""
    narrow: Chart | None = None
    wide: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap(Section):
    """A map of numbers whose cells are coloured.

    Attributes:
        rows: Heads of the rows.
        columns: Heads of the columns.
        cells: Texts with colours.
        longest: Characters of a head.
        lines: Counts above the map.
    """

    kind: ClassVar[str] = "heat"
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Sequence[Sequence["HeatCell"]]
    lines: Sequence[str] = ()
    caption: str = ""
    longest: int = 8


@dataclass(frozen=True, slots=True)
class HeatCell:
    """A cell of a heat map: its text, background and letters as CSS colours, and whether it is marked."""

    text: str
    background: str
    ink: str
    marked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts(Section):
    """Names with values."""

    kind: ClassVar[str] = "facts"
    facts: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes(Section):
    """Notes behind the names that they are about; from the `shown`-th on they are folded."""

    kind: ClassVar[str] = "notes"
    notes: Sequence[tuple[str, str]]
    title: str = "Notes"
    shown: int = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms(Section):
    """How to read the page: terms and what they mean."""

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
    """Sections under one title.

    Attributes:
        said: Behind the title of a folded group.
        opened: Whether a folded group is open at first.
        side_by_side: Whether sections stand in two columns where there is room.
    """

    kind: ClassVar[str] = "group"
    sections: Sequence[Section | None]
    said: str = ""
    opened: bool = False
    side_by_side: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a page shows.

    Attributes:
        record: That it is made of.
        name: Of the job, above the title.
        headline: The finding in a sentence.
        tone: Whether that is good news.
        reservations: What the headline leaves out and an honest reader should know.
        about: Names with values, below the title.
        sections: In order; those without content may be None.
        facts: Names with values, for the section on how the page was made.
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
    tables: Sequence[tuple[str, str, Mapping[str, Any]]] = field(default_factory=tuple)

    def to_html(self) -> str:
        """The page as one file."""
        sections = [section for section in [*self.sections, self._made()] if section is not None]
        return _template().render(page=self, sections=sections)

    def _made(self) -> Group:
        """How the record was made: command, facts, settings and versions."""
        tables = [*self.tables, ("versions", "Versions", self.record.versions)]
        parts: list[Section] = [Facts(facts=[fact for fact in self.facts if fact[1]])]
        parts += [settings_table(name, title, settings) for name, title, settings in tables if settings]
        return Group(id="made", title="How this was made", sections=parts)


def settings_table(name: str, title: str, settings: Mapping[str, Any]) -> Table:
    """Settings by dotted key, as they are written after ``--set``, folded."""
    columns = [Column("key", lambda row: cut(row[0], limit=200), "code"), Column("value", lambda row: cut(row[1], limit=2000), "code")]
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


def gathered(notes: Sequence[tuple[str, Sequence[str]]], *, every: str) -> list[tuple[str, str]]:
    """Each note once, behind the names that it is about."""
    about: dict[str, dict[str, None]] = {}
    for name, sentences in notes:
        for note in sentences:
            about.setdefault(note, {})[name] = None
    count = len({name for name, _ in notes})
    return [(every if len(names) == count > 1 else ", ".join(names), note) for note, names in about.items()]


def heat_cells(
    values: Float[np.ndarray, "q d"],
    marked: Bool[np.ndarray, "q d"],
    *,
    among: Float[np.ndarray, "..."],
    compared: bool,
    lower_is_better: bool = False,
    decimals: int = 1,
) -> list[list[HeatCell]]:
    """Cells of a heat map.

    Args:
        values: As they are shown; NaN where there is no value.
        marked: Cells with a dot.
        among: All values that share the scale of colours.
        compared: Whether the values are changes: they bear a sign, and blue is better.
        lower_is_better: Whether negative changes are better.
        decimals: Of the texts.
    """
    scale = heat_scale(among, compared=compared)
    direction = -1 if compared and lower_is_better else 1

    def cell(value: float, is_marked: bool) -> HeatCell:
        if not np.isfinite(value):
            return HeatCell(DASH, "transparent", scale.text_colour(value), is_marked)
        text = signed(value, decimals=decimals) if compared else f"{value:.{decimals}f}"
        shown = direction * value
        return HeatCell(text, scale.colour(shown), scale.text_colour(shown), is_marked)

    return [list(map(cell, *row)) for row in zip(values.tolist(), marked.tolist(), strict=True)]


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
        auto_reload=False,
    )
    script = _source("sorting.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals.update(
        cut=cut,
        # Markup enters a page here alone: our own files, and drawings, which escape the texts that they are given.
        sheet=Markup(f"<style>\n{_source('style.css')}</style>"),
        script=Markup(f"<script>{script}</script>"),
        svg=lambda chart: Markup(chart.inline()),
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'",
        sort_key=_sort_key,
    )
    return environment.get_template("page.html.j2")


@cache
def _source(name: str) -> str:
    """The text of a file of this room."""
    return resources.files("adiabat.report").joinpath(name).read_text(encoding="utf-8")


def _sort_key(cell: Cell) -> str:
    """A number as the script reads it; "" where the cell has none."""
    return str(float(cell.value)) if isinstance(cell.value, int | float) else ""
