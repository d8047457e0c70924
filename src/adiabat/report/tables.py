"""Tables that write themselves as HTML, Markdown, CSV, LaTeX and terminal text."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from operator import attrgetter
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table as TerminalTable
from rich.text import Text

from adiabat.core.text import DASH, MINUS, NO_BREAK
from adiabat.report.format import EVEN, VERDICT_MARKS, Format, bounds, cut_name, marked, score
from adiabat.results.record import Ends
from adiabat.results.verdict import Word

CELL_LENGTH = 1000
"""Maximum characters of a CSV cell."""

NAME_LENGTH = 200
"""Maximum characters of a name in a Markdown or LaTeX cell."""

TERMINAL_NAME_LENGTH = 48
"""Maximum characters of a name in a terminal cell."""

NAME_WIDTH = 12
"""Fewest characters of a column of names in a terminal."""

UNLIMITED = 10_000
"""Characters of a terminal in which every table fits."""

LEVEL, PAIRED = [f"[95{NO_BREAK}%]"], [f"[paired 95{NO_BREAK}%]"]
"""Text below the title of a column of intervals."""

ColumnKind = Literal["text", "name", "number", "code"]


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell with more than a text.

    Attributes:
        sub: Lines below the text, in smaller type.
        value: Sort key, and content in CSV; None sorts last.
        tone: CSS class: a verdict, or ``best``, ``even``, ``muted``, ``bad``.
        badge: Whether the text is drawn as a badge in the colour of its tone.
        sign: Mark after the text, of CSS class `sign_tone`.
        tag: Framed word after the text.
    """

    text: str
    sub: Sequence[str] = ()
    value: float | str | bool | None = None
    tone: str = ""
    badge: bool = False
    bold: bool = False
    sign: str = ""
    sign_tone: str = ""
    tag: str = ""


def value_cell(value: float | None, ends: Ends | None = None, text: Format = score) -> Cell:
    """A value with its interval; a dash for None."""
    level = DASH if value is None else text(value)
    return Cell(level, [bounds(ends, text)], value=value)


def pair_cell(pair: tuple[str, str], value: float | None = None, *, bold: bool = False) -> Cell:
    """A signed number with its interval, as `adiabat.report.format.signed_pair` writes them."""
    return Cell(pair[0], [pair[1]], value=value, bold=bold)


def verdict_cell(verdict: Word | None) -> Cell:
    """A badge; a dash without a verdict."""
    if verdict is None:
        return Cell(DASH)
    # CSS takes a space for the end of a class.
    return Cell(marked(verdict), tone=verdict.replace(" ", "-"), badge=True)


Content = Cell | str | float | bool | None
"""What stands in a cell: a text, a number, a truth value, nothing, or a cell with more than that."""

Contents = dict[str, Content]
"""Contents of a row by the heads of their columns."""


def cell_of(content: Content) -> Cell:
    """The cell of a content, with the content as the value that sorts; a dash for nothing."""
    if isinstance(content, Cell):
        return content
    text = DASH if content is None or content == "" else str(content)
    return Cell(text, value=content)


@dataclass(frozen=True, slots=True)
class Column:
    """The head of a column, and how its cells look.

    Attributes:
        kind: ``name`` and ``text`` read left to right or right to left, ``number`` is aligned right, ``code``
            is monospaced.
        sub: Lines below the title.
        first: Sort order of the first click; "" sorts as text.
        full: The whole title, if `head` is truncated.
        group: Common title above neighbouring columns with the same group.
    """

    head: str
    kind: ColumnKind = "text"
    sub: Sequence[str] = ()
    first: str = ""
    full: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Cells from left to right, and the CSS class of their row."""

    cells: Sequence[Cell]
    style: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of a page with its anchor; `lead` is below the title, and `folded` shows only the title."""

    id: str = ""
    title: str = ""
    lead: str = ""
    folded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Section):
    """Columns, and the rows that `add` puts below them, with a caption at the foot.

    Attributes:
        sortable: Whether a click on a head sorts.
        look: ``stack`` (rows become cards on a phone), ``matrix`` (first column and heads stay in sight) or
            "".
        filtered: Label of a filter box for rows; "" without a box.
    """

    kind: ClassVar[str] = "table"
    columns: Sequence[Column]
    rows: list[Row] = field(default_factory=list)
    caption: Sequence[str] = ()
    sortable: bool = False
    look: str = ""
    filtered: str = ""

    @classmethod
    def of(
        cls,
        rows: Sequence[Mapping[str, Content]],
        kinds: Mapping[str, ColumnKind] = MappingProxyType({}),
        styles: Sequence[str] = (),
        **options: Any,
    ) -> "Table":
        """A table of rows by head; columns in which no row has a value are left out.

        Args:
            rows: Contents by the head of their column; columns stand in the order of their first row.
            kinds: Kinds of columns: by default names in the first, and numbers in all others.
            styles: CSS class of each row; "" or a missing one is none.
            options: Further fields of the table.
        """
        columns: list[Column] = []
        kind: ColumnKind = "name"
        heads: dict[str, None] = {}
        for row in rows:
            heads |= dict.fromkeys(row)
        for head in heads:
            if any(cell_of(row.get(head)).text not in ("", DASH) for row in rows):
                columns.append(Column(head, kinds.get(head, kind)))
            kind = "number"
        table = cls(columns=columns, **options)
        for row, style in zip(rows, [*styles, *[""] * len(rows)], strict=False):
            table.add(*(row.get(column.head) for column in columns), style=style)
        return table

    def add(self, *contents: Content, style: str = "") -> None:
        """Add a row below the others: its contents from left to right, and its CSS class."""
        self.rows.append(Row([cell_of(content) for content in contents], style))

    def groups(self) -> list[tuple[str, int]]:
        """Titles over several columns, each with the number of columns; empty if no column has one."""
        groups = [
            (name, len(list(columns))) for name, columns in groupby(self.columns, key=attrgetter("group"))
        ]
        return groups if any(name for name, _ in groups) else []

    def to_markdown(self) -> str:
        """The table in Markdown."""
        heads = ["<br>".join(map(markdown, (column.head, *column.sub))) for column in self.columns]
        rules = ["---:" if column.kind == "number" else "---" for column in self.columns]
        lines = [map(_marked_down, row.cells) for row in self.rows]
        return "".join(f"| {' | '.join(line)} |\n" for line in [heads, rules, *lines])

    def to_latex(self) -> str:
        """The table for LaTeX with the rules of the package booktabs."""
        heads = [[cut_name(column.head, limit=NAME_LENGTH), *column.sub] for column in self.columns]
        lines = [r"\toprule"]
        if self.groups():
            spans = []
            for name, count in self.groups():
                text = latex(name)
                spans.append(rf"\multicolumn{{{count}}}{{c}}{{{text}}}" if count > 1 else text)
            lines.append(_latex_row(spans))
        for texts in zip_longest(*heads, fillvalue=""):
            lines.append(_latex_row(map(latex, texts)))
        lines.append(r"\midrule")
        for row in self.rows:
            cells = []
            for cell in row.cells:
                text = latex(_line(_said(cell, " ")))
                cells.append(rf"\bfseries {text}" if cell.bold else text)
            lines.append(_latex_row(cells))
        alignment = "".join("r" if column.kind == "number" else "l" for column in self.columns)
        body = "\n".join([*lines, r"\bottomrule"])
        return f"\\begin{{tabular}}{{{alignment}}}\n{body}\n\\end{{tabular}}\n"

    def to_terminal(self) -> RenderableType:
        """The table for rich, which folds where the terminal is too narrow; square brackets in a text are not
        markup.
        """
        return _InTerminal(self)


@dataclass(frozen=True, slots=True)
class _InTerminal:
    """A table that is as wide as the terminal at most, for which rich folds names and texts.

    What stands below the text of a cell is behind it if that fits, else on lines of its own, where heads fold
    too. A terminal too narrow for both shows a block of lines for each row.
    """

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        for separator in (" ", "\n"):
            grid = self._grid(separator)
            # Measured in a wide terminal: rich cuts the minimum off at the width of a narrow one.
            fewest = console.measure(grid, options=options.update_width(UNLIMITED)).minimum
            # rich shows no title and no caption of a table without columns.
            if grid.columns and fewest <= options.max_width:
                yield grid
                return
        yield from self._blocks()

    def _grid(self, separator: str) -> TerminalTable:
        """The table for rich; `separator` stands between a text and what is below it."""
        grid = TerminalTable(
            title=self._title(),
            caption=self._caption(),
            caption_justify="left",
            title_justify="left",
            box=SIMPLE_HEAD,
            pad_edge=False,
            collapse_padding=True,
        )
        columns = []
        for position, column in enumerate(self.table.columns):
            texts = [_in_terminal(row.cells[position], column, separator) for row in self.table.rows]
            columns.append(texts)
            head = separator.join([column.head, *column.sub])
            cells = "\n".join(text.plain for text in texts)
            if column.kind == "number":
                # As wide as the longest word of the head and the longest number: neither is broken.
                parts = _BREAKS.split(head) if separator == "\n" else [head]
                width = _longest([*parts, *cells.split("\n")])
                grid.add_column(Text(head, no_wrap=False), justify="right", no_wrap=True, width=width)
            else:
                fewest = NAME_WIDTH if column.kind == "name" else _longest(_BREAKS.split(f"{head} {cells}"))
                grid.add_column(Text(head), overflow="fold", min_width=fewest)
        for row, line in zip(self.table.rows, zip(*columns, strict=True), strict=True):
            grid.add_row(*line, style=STYLES.get(row.style, ""))
        return grid

    def _title(self) -> Text | None:
        title = cut_name(self.table.title, limit=200)
        return Text(title, style="table.title") if title else None

    def _caption(self) -> Text | None:
        return Text("\n".join(self.table.caption), style="table.caption") if self.table.caption else None

    def _blocks(self) -> Iterator[RenderableType]:
        """Each row as lines of head and cell."""
        if title := self._title():
            yield title
        for row in self.table.rows:
            block = TerminalTable(box=None, show_header=False, pad_edge=False)
            block.add_column(overflow="fold")
            block.add_column(overflow="fold")
            for column, cell in zip(self.table.columns, row.cells, strict=True):
                text = _in_terminal(cell, column, " ")
                if text.plain:
                    block.add_row(Text(" ".join([column.head, *column.sub])), text)
            yield block
            yield ""
        if caption := self._caption():
            yield caption


def _longest(texts: Iterable[str]) -> int:
    """Columns of the terminal that the longest text takes."""
    return max(map(cell_len, texts))


STYLES = {
    "better": "bold blue",
    "worse": "bold red",
    "undecided": "dim",
    "best": "bold",
    "safe": "bold blue",
    "bad": "bold red",
    "muted": "dim",
}
"""CSS class to terminal style."""

_BREAKS = re.compile("[ \n]")
"""Where words end: a no-break space keeps a number and its unit together."""


def _said(cell: Cell, separator: str) -> str:
    """The text of a cell with its sign, and what stands below."""
    text = f"{cell.text} {cell.sign}" if cell.sign else cell.text
    return separator.join(part for part in (text, *cell.sub) if part)


def _in_terminal(cell: Cell, column: Column, separator: str) -> Text:
    """The text of a cell with its style; a long name is cut, its indent kept."""
    text = _said(cell, separator)
    if column.kind == "name":
        indent = text[: len(text) - len(text.lstrip())]
        text = indent + cut_name(text, limit=TERMINAL_NAME_LENGTH)
    tone = cell.tone if cell.badge or cell.tone == "bad" else cell.sign_tone
    return Text(text, style=STYLES.get(tone, "bold" if cell.bold else ""))


_FORMULA = re.compile(r"^[=+\-@\t\r\n|%]")
"""Characters that a spreadsheet takes for the start of a formula."""


def csv_of(rows: Sequence[Mapping[str, object]]) -> str:
    """A line for each row below the keys of the first; numbers keep all their digits, and names stay text in
    a spreadsheet.
    """
    heads = list(rows[0]) if rows else []
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([csv_cell(head) for head in heads])
    for row in rows:
        writer.writerow([csv_cell(row[head]) for head in heads])
    return file.getvalue()


def csv_cell(value: object) -> str:
    """The text of a value in a cell: ``yes`` or ``no``, nothing for None, and formulas behind an
    apostrophe.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        text = cut_name(value, limit=CELL_LENGTH)
        return f"'{text}" if _FORMULA.match(text) else text
    return repr(value)


_LATEX = str.maketrans(
    {
        **{letter: rf"\{letter}" for letter in "&%$#_{}"},
        **{"~": r"\textasciitilde ", "^": r"\textasciicircum ", "\\": r"\textbackslash "},
        **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"},
        # At the start of a row, these would be read as an option of the preceding line end.
        **{"[": "{[}", "]": "{]}", "*": "{*}"},
        **{
            MINUS: "$-$",
            NO_BREAK: "~",
            DASH: r"\textendash{}",
            EVEN: r"$\approx$",
            "\N{REPLACEMENT CHARACTER}": "?",
        },
        # Keep straight quotes: usual fonts curve the double quote, and \textquotedbl needs a package.
        **{"`": r"\textasciigrave{}", "'": r"\textquotesingle{}", '"': r"\textquotesingle\textquotesingle{}"},
        **dict(
            zip(
                VERDICT_MARKS.values(),
                (r"$\uparrow$", r"$\bullet$", r"$\circ$", r"$\downarrow$"),
                strict=True,
            )
        ),
    }
)
"""Characters with a meaning of their own in LaTeX, or that its usual fonts lack, as commands."""


def latex(text: str) -> str:
    """A text as LaTeX sets it."""
    # Two of "-" or "," would be typeset as a dash or a quote.
    return re.sub(r"([-,])(?=\1)", r"\1{}", text.translate(_LATEX))


def _latex_row(texts: Iterable[str]) -> str:
    """Cells as a row of LaTeX."""
    return rf"{' & '.join(texts)} \\"


def markdown(text: str) -> str:
    """One line of text, escaped for Markdown."""
    flat = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]#|~!$])", r"\\\1", flat)


_UNRULY = re.compile("[^\\S \xa0]|[\u202a-\u202e\u2066-\u2069]")
"""White space that ends a line, and marks that change the direction of the following text."""


def _line(text: str) -> str:
    """A text in one line; non-breaking spaces in numbers stay."""
    return cut_name(text, limit=NAME_LENGTH) if len(text) > NAME_LENGTH or _UNRULY.search(text) else text


def _marked_down(cell: Cell) -> str:
    """A cell as Markdown."""
    text = markdown(_line(cell.text))
    first = (f"**{text}**" if cell.bold else text) + (f"{NO_BREAK}{cell.sign}" if cell.sign else "")
    return "<br>".join(filter(None, [first, *map(markdown, cell.sub)]))
