"""Tables that write themselves as HTML, Markdown, CSV, LaTeX and terminal text."""

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from operator import attrgetter
from textwrap import wrap
from typing import ClassVar, Literal

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table as TerminalTable
from rich.text import Text

from adiabat.core.text import DASH, MINUS, NO_BREAK
from adiabat.report.format import EVEN, VERDICT_MARKS, bounds, cut_name, marked, score
from adiabat.results.evaluation_result import Verdict

CELL_LENGTH = 1000
"""Maximum characters of a CSV cell."""

NAME_LENGTH = 200
"""Maximum characters of a name in a Markdown or LaTeX cell."""

TERMINAL_NAME_LENGTH = 48
"""Maximum characters of a name in a terminal cell."""

NAME_WIDTH, NARROW_NAME_WIDTH = 15, 12
"""Fewest characters of a column of names in a terminal, and where other columns fold too."""

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


def value_cell(
    value: float | None, ends: tuple[float, float] | None = None, text: Callable[[float], str] = score
) -> Cell:
    """A value with its interval; a dash for None."""
    return Cell(DASH if value is None else text(value), [bounds(ends, text)], value=value)


def pair_cell(pair: tuple[str, str], value: float | None = None, *, bold: bool = False) -> Cell:
    """A signed number with its interval, as `adiabat.report.format.signed_pair` writes them."""
    return Cell(pair[0], [pair[1]], value=value, bold=bold)


def verdict_cell(verdict: Verdict | None) -> Cell:
    """A badge; a dash without a verdict."""
    return (
        Cell(DASH) if verdict is None else Cell(marked(verdict), tone=verdict.replace(" ", "-"), badge=True)
    )


Content = Cell | str | float | bool | None
"""What stands in a cell: a text, a number, a truth value, nothing, or a cell with more than that."""


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

    def add(self, *contents: Content, style: str = "") -> None:
        """Add a row below the others: its contents from left to right, and its CSS class."""
        self.rows.append(Row([cell_of(content) for content in contents], style))

    def groups(self) -> list[tuple[str, int]]:
        """Titles over several columns, each with the number of columns; empty if no column has one."""
        groups = [
            (name, len(list(columns))) for name, columns in groupby(self.columns, key=attrgetter("group"))
        ]
        return groups if any(name for name, _ in groups) else []

    def without_empty_columns(self) -> "Table":
        """The table without the columns in which no row has a value."""
        filled = []
        for position in range(len(self.columns)):
            if any(row.cells[position].text not in ("", DASH) for row in self.rows):
                filled.append(position)
        rows = [Row([row.cells[position] for position in filled], row.style) for row in self.rows]
        return replace(self, columns=[self.columns[position] for position in filled], rows=rows)

    def to_markdown(self) -> str:
        """The table in Markdown."""
        heads = ["<br>".join(map(markdown, (column.head, *column.sub))) for column in self.columns]
        rules = ["---:" if column.kind == "number" else "---" for column in self.columns]
        lines = [map(_marked_down, row.cells) for row in self.rows]
        return "".join(f"| {' | '.join(line)} |\n" for line in [heads, rules, *lines])

    def to_latex(self) -> str:
        """The table as a plain ``tabular`` that needs no package."""
        depth = max((len(column.sub) for column in self.columns), default=0)
        heads = [[column.head, *column.sub, *[""] * (depth - len(column.sub))] for column in self.columns]
        alignment = "".join("r" if column.kind == "number" else "l" for column in self.columns)
        lines = [rf"\begin{{tabular}}{{{alignment}}}", r"\hline"]
        if groups := self.groups():
            lines.append(
                " & ".join(rf"\multicolumn{{{count}}}{{c}}{{{latex(name)}}}" for name, count in groups)
                + r" \\"
            )
        lines += [
            " & ".join(latex(cut_name(head, limit=NAME_LENGTH)) for head in level) + r" \\"
            for level in zip(*heads, strict=True)
        ]
        lines.append(r"\hline")
        lines += [" & ".join(map(_set_in_latex, row.cells)) + r" \\" for row in self.rows]
        return "\n".join([*lines, r"\hline", r"\end{tabular}"]) + "\n"

    def to_terminal(self) -> RenderableType:
        """The table for rich, which folds where the terminal is too narrow; square brackets in a text are not
        markup.
        """
        return _InTerminal(self)


@dataclass(frozen=True, slots=True)
class _InTerminal:
    """A table that is as wide as the terminal at most: cells of one line, else of several lines, else a block
    of lines for each row.
    """

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        columns = self.table.columns
        # Each column has one blank and one divider to its right.
        room = options.max_width - 2 * len(columns)
        for folds in (False, True):
            texts = self._texts(folds=folds)
            fewest = [
                _fewest([line[number] for line in texts], column, folds=folds)
                for number, column in enumerate(columns)
            ]
            if sum(fewest) <= room:
                yield self._grid(
                    texts,
                    _shrunk([list(line) for line in zip(*texts, strict=True)], fewest, room) if folds else [],
                )
                return
        yield from self._blocks()

    def _texts(self, *, folds: bool) -> list[list[Text]]:
        """Texts of the heads, and of each row."""
        columns, separator = self.table.columns, "\n" if folds else " "
        heads = [Text(separator.join([column.head, *column.sub])) for column in columns]
        rows = [
            [
                _in_terminal(cell, column.kind == "name", separator)
                for cell, column in zip(row.cells, columns, strict=True)
            ]
            for row in self.table.rows
        ]
        return [heads, *rows]

    def _grid(self, texts: list[list[Text]], widths: list[int]) -> TerminalTable:
        table = TerminalTable(
            title=Text(cut_name(self.table.title, limit=200)) if self.table.title else None,
            caption=Text("\n".join(self.table.caption)) if self.table.caption else None,
            caption_justify="left",
            title_justify="left",
            box=SIMPLE_HEAD,
            pad_edge=False,
            collapse_padding=True,
        )
        if widths:
            texts = [list(map(_folded, line, widths)) for line in texts]
        heads, *rows = texts
        for number, (head, column) in enumerate(zip(heads, self.table.columns, strict=True)):
            is_name = column.kind == "name"
            table.add_column(
                head,
                justify="right" if column.kind == "number" else "left",
                no_wrap=not is_name and not widths,
                overflow="fold",
                min_width=NAME_WIDTH if is_name and not widths else None,
                width=widths[number] if widths else None,
            )
        for row, texts_of_row in zip(self.table.rows, rows, strict=True):
            table.add_row(*texts_of_row, style=STYLES.get(row.style, ""))
        return table

    def _blocks(self) -> Iterator[RenderableType]:
        """Each row as lines of head and cell."""
        heads, *rows = self._texts(folds=False)
        if self.table.title:
            yield Text(cut_name(self.table.title, limit=200), style="table.title")
        for row in rows:
            block = TerminalTable(box=None, show_header=False, pad_edge=False)
            block.add_column(overflow="fold")
            block.add_column(overflow="fold")
            for head, text in zip(heads, row, strict=True):
                if text.plain:
                    block.add_row(head, text)
            yield block
            yield ""
        if self.table.caption:
            yield Text("\n".join(self.table.caption), style="table.caption")


def _folded(text: Text, width: int) -> Text:
    """The text with its lines broken at blanks; rich would also break at those that hold a number and its
    interval together.
    """
    # Words of wide letters may come out too long, which rich then breaks.
    fold = partial(wrap, width=max(1, width), break_long_words=False, break_on_hyphens=False)
    return Text("\n".join(chain.from_iterable(map(fold, text.plain.split("\n")))), style=text.style)


def _words(text: Text) -> list[str]:
    """Parts between blanks and line ends, which a fold leaves whole."""
    return re.split("[ \n]", text.plain)


def _fewest(texts: Sequence[Text], column: Column, *, folds: bool) -> int:
    """The fewest characters of a column: names break anywhere, other texts at blanks or, in one line,
    nowhere.
    """
    if column.kind == "name" and not folds:
        return NAME_WIDTH
    longest = max(cell_len(part) for text in texts for part in (_words(text) if folds else [text.plain]))
    return min(longest, NARROW_NAME_WIDTH) if column.kind == "name" else longest


def _shrunk(columns: Sequence[Sequence[Text]], fewest: Sequence[int], room: int) -> list[int]:
    """Widths that fit: the widest column that may shrink loses a character at a time."""
    widths = [max(cell_len(line) for text in texts for line in text.plain.split("\n")) for texts in columns]
    while sum(widths) > room:
        widest = max(
            (number for number, width in enumerate(widths) if width > fewest[number]),
            key=lambda number: widths[number],
        )
        widths[widest] -= 1
    return widths


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


def _in_terminal(cell: Cell, is_name: bool, separator: str) -> Text:
    text = separator.join(filter(None, [" ".join(filter(None, [cell.text, cell.sign])), *cell.sub]))
    indent = " " * (len(text) - len(text.lstrip()))
    style = STYLES.get(
        cell.tone if cell.badge or cell.tone == "bad" else cell.sign_tone, "bold" if cell.bold else ""
    )
    return Text(indent + cut_name(text, limit=TERMINAL_NAME_LENGTH) if is_name else text, style=style)


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


_LATEX = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
    },
    # At the start of a row, these would be read as an option of the preceding line end.
    **{"[": "{[}", "]": "{]}", "*": "{*}"},
    **{
        MINUS: "$-$",
        NO_BREAK: "~",
        DASH: "--",
        EVEN: r"$\approx$",
        "|": r"\textbar{}",
        "\N{REPLACEMENT CHARACTER}": "?",
    },
    # Keep straight quotes: usual fonts curve the double quote, and \textquotedbl needs a package.
    **{"`": r"\textasciigrave{}", "'": r"\textquotesingle{}", '"': r"\textquotesingle\textquotesingle{}"},
    **dict(
        zip(VERDICT_MARKS.values(), (r"$\uparrow$", r"$\bullet$", r"$\circ$", r"$\downarrow$"), strict=True)
    ),
}


def markdown(text: str) -> str:
    """One line of text, escaped for Markdown."""
    flat = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]#|~!$])", r"\\\1", flat)


def latex(text: str) -> str:
    """One line of text, escaped for LaTeX."""
    # Two of "-" or "," would be typeset as a dash or a quote.
    return "".join(
        _LATEX.get(letter, letter) + "{}" * (letter in "-," and letter == after)
        for letter, after in zip(text, f"{text} "[1:], strict=True)
    )


_UNRULY = re.compile("[^\\S \xa0]|[\u202a-\u202e\u2066-\u2069]")
"""White space that ends a line, and marks that change the direction of the following text."""


def _line(text: str) -> str:
    """A text in one line; non-breaking spaces in numbers stay."""
    return cut_name(text, limit=NAME_LENGTH) if len(text) > NAME_LENGTH or _UNRULY.search(text) else text


def _marked_down(cell: Cell) -> str:
    text = markdown(_line(cell.text))
    first = (f"**{text}**" if cell.bold else text) + (f"{NO_BREAK}{cell.sign}" if cell.sign else "")
    return "<br>".join(filter(None, [first, *map(markdown, cell.sub)]))


def _set_in_latex(cell: Cell) -> str:
    text = latex(_line(cell.text))
    first = (rf"\textbf{{{text}}}" if cell.bold else text) + (f"~{latex(cell.sign)}" if cell.sign else "")
    return " ".join(filter(None, [first, *map(latex, cell.sub)]))
