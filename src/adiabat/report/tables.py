"""Tables that write themselves as HTML, Markdown, CSV, LaTeX and terminal text."""

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar, Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table as TerminalTable
from rich.text import Text

from adiabat.core.text import DASH, MINUS, NO_BREAK
from adiabat.report.format import EVEN, VERDICT_MARKS, bounds, cut_name, marked, score
from adiabat.results.evaluation_result import Verdict

CELL_LENGTH = 1000
"""Characters of a text that a cell of CSV holds."""

NAME_LENGTH = 200
"""Characters of a name that a cell of Markdown or LaTeX holds."""

TERMINAL_NAME_LENGTH = 48
"""Characters of a name that a cell of the terminal holds."""

LEVEL, PAIRED = [f"[95{NO_BREAK}%]"], [f"[paired 95{NO_BREAK}%]"]
"""Below the title of a column whose cells hold an interval."""

ColumnKind = Literal["text", "name", "number", "code"]


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell with more than a text.

    Attributes:
        sub: Lines below the text, in smaller letters.
        value: Sort key, and content in CSV; None is sorted last.
        tone: CSS class: a verdict, or ``best``, ``even``, ``muted``, ``bad``.
        badge: Whether the text is drawn as a badge in the colour of its tone.
        sign: Mark behind the text, of CSS class `sign_tone`.
        tag: Word in a frame behind the text.
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


def value_cell(value: float | None, ends: tuple[float, float] | None = None, text: Callable[[float], str] = score) -> Cell:
    """A value with its interval; a dash where there is none."""
    return Cell(DASH if value is None else text(value), [bounds(ends, text)], value=value)


def pair_cell(pair: tuple[str, str], value: float | None = None, *, bold: bool = False) -> Cell:
    """A signed number with its interval, as `adiabat.report.format.signed_pair` writes them."""
    return Cell(pair[0], [pair[1]], value=value, bold=bold)


def verdict_cell(verdict: Verdict | None) -> Cell:
    """A badge; a dash where there is no verdict."""
    return Cell(DASH) if verdict is None else Cell(marked(verdict), tone=verdict.replace(" ", "-"), badge=True)


@dataclass(frozen=True, slots=True)
class Column:
    """A column, and how a cell is made of a row.

    Attributes:
        of: Row to cell; a text, number, truth value or None stands for a cell.
        kind: ``name`` and ``text`` read left to right or right to left, ``number`` is aligned right, ``code`` is monospaced.
        sub: Lines below the title.
        first: Order of the first click; "" where the column is sorted as text.
        full: The whole title, where `head` is cut.
        group: Title over this column and those beside it with the same group.
    """

    head: str
    of: Callable[[Any], Cell | str | float | bool | None]
    kind: ColumnKind = "text"
    sub: Sequence[str] = ()
    first: str = ""
    full: str = ""
    group: str = ""

    def cell(self, row: Any) -> Cell:
        """The cell of a row."""
        content = self.of(row)
        if isinstance(content, Cell):
            return content
        return Cell(DASH if content is None or content == "" else str(content), value=content)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of a page with its anchor; `lead` stands between title and content, and `folded` shows the title alone."""

    id: str = ""
    title: str = ""
    lead: str = ""
    folded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Section):
    """Rows, which are anything that the columns read, under columns, with a caption below.

    Attributes:
        sortable: Whether a click on a head sorts.
        look: ``stack`` (a row becomes a card on a telephone), ``matrix`` (first column and heads stay in sight) or "".
        row_class: Row to CSS class.
        filtered: Label of a box that leaves the rows with a text; "" without box.
    """

    kind: ClassVar[str] = "table"
    columns: Sequence[Column]
    rows: Sequence[Any]
    caption: Sequence[str] = ()
    sortable: bool = False
    look: str = ""
    row_class: Callable[[Any], str] = lambda row: ""
    filtered: str = ""

    def groups(self) -> list[tuple[str, int]]:
        """Titles over several columns, each with their number; empty where no column has one."""
        groups = [(name, len(list(columns))) for name, columns in groupby(self.columns, key=lambda column: column.group)]
        return groups if any(name for name, _ in groups) else []

    def cells(self) -> list[tuple[str, list[Cell]]]:
        """CSS class and cells of each row."""
        return [(self.row_class(row), [column.cell(row) for column in self.columns]) for row in self.rows]

    def to_csv(self) -> str:
        """Values with all their digits; names stay text in a spreadsheet, whatever they begin with."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([csv_cell(column.head) for column in self.columns])
        writer.writerows([csv_cell(column.cell(row).value) for column in self.columns] for row in self.rows)
        return file.getvalue()

    def to_markdown(self) -> str:
        """A table of Markdown with the heads of the columns."""
        heads = ["<br>".join(map(markdown, (column.head, *column.sub))) for column in self.columns]
        rules = ["---:" if column.kind == "number" else "---" for column in self.columns]
        lines = [[_marked_down(cell) for cell in cells] for _, cells in self.cells()]
        return "".join(f"| {' | '.join(line)} |\n" for line in [heads, rules, *lines])

    def to_latex(self) -> str:
        """A plain ``tabular`` that needs no package."""
        depth = max((len(column.sub) for column in self.columns), default=0)
        heads = [[column.head, *column.sub, *[""] * (depth - len(column.sub))] for column in self.columns]
        lines = [rf"\begin{{tabular}}{{{''.join('r' if column.kind == 'number' else 'l' for column in self.columns)}}}", r"\hline"]
        if groups := self.groups():
            lines.append(" & ".join(rf"\multicolumn{{{count}}}{{c}}{{{latex(name)}}}" for name, count in groups) + r" \\")
        lines += [" & ".join(latex(cut_name(head, limit=NAME_LENGTH)) for head in level) + r" \\" for level in zip(*heads, strict=True)]
        lines.append(r"\hline")
        lines += [" & ".join(map(_set_in_latex, cells)) + r" \\" for _, cells in self.cells()]
        return "\n".join([*lines, r"\hline", r"\end{tabular}"]) + "\n"

    def to_terminal(self) -> TerminalTable:
        """A table of rich; square brackets in a text are no styling."""
        table = TerminalTable(
            title=Text(cut_name(self.title, limit=200)) if self.title else None,
            caption=Text("\n".join(self.caption)) if self.caption else None,
            caption_justify="left",
            title_justify="left",
            box=SIMPLE_HEAD,
            pad_edge=False,
            collapse_padding=True,
        )
        for column in self.columns:
            is_name = column.kind == "name"
            head = Text(" ".join([column.head, *column.sub]))
            justify: Literal["right", "left"] = "right" if column.kind == "number" else "left"
            table.add_column(head, justify=justify, no_wrap=not is_name, overflow="fold", min_width=15 if is_name else None)
        for style, cells in self.cells():
            texts = [_in_terminal(cell, column.kind == "name") for cell, column in zip(cells, self.columns, strict=True)]
            table.add_row(*texts, style=STYLES.get(style, ""))
        return table


STYLES = {
    "better": "bold blue",
    "worse": "bold red",
    "no-evidence": "dim",
    "best": "bold",
    "safe": "bold blue",
    "bad": "bold red",
    "muted": "dim",
}
"""CSS class to style of the terminal."""


def _in_terminal(cell: Cell, is_name: bool) -> Text:
    text = " ".join(filter(None, [cell.text, cell.sign, *cell.sub]))
    indent = " " * (len(text) - len(text.lstrip()))
    style = STYLES.get(cell.tone if cell.badge or cell.tone == "bad" else cell.sign_tone, "bold" if cell.bold else "")
    return Text(indent + cut_name(text, limit=TERMINAL_NAME_LENGTH) if is_name else text, style=style)


_FORMULA = re.compile(r"^[=+\-@\t\r\n|%]")
"""What a spreadsheet takes for the start of a formula."""


def csv_cell(value: object) -> str:
    """A value as its cell holds it: ``yes`` or ``no``, nothing for None, and a formula behind an apostrophe."""
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
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}"},
    # At the start of a row these would be read as an option of the line end before it.
    **{"[": "{[}", "]": "{]}", "*": "{*}"},
    **{MINUS: "$-$", NO_BREAK: "~", DASH: "--", EVEN: r"$\approx$", "|": r"\textbar{}", "\N{REPLACEMENT CHARACTER}": "?"},
    # Straight quotes as they are; the double one of the usual fonts is a curved one, and that of \textquotedbl takes a package.
    **{"`": r"\textasciigrave{}", "'": r"\textquotesingle{}", '"': r"\textquotesingle\textquotesingle{}"},
    **dict(zip(VERDICT_MARKS.values(), (r"$\uparrow$", r"$\downarrow$", r"$\circ$"), strict=True)),
}


def markdown(text: str) -> str:
    """Text of one line as Markdown that shows it as it is."""
    flat = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]#|~!$])", r"\\\1", flat)


def latex(text: str) -> str:
    """Text of one line as LaTeX that sets it as it is."""
    # Two of "-" or "," would be set as a dash, or as a quote.
    return "".join(
        _LATEX.get(letter, letter) + "{}" * (letter in "-," and letter == after) for letter, after in zip(text, f"{text} "[1:], strict=True)
    )


_UNRULY = re.compile("[^\\S \xa0]|[\u202a-\u202e\u2066-\u2069]")
"""White space that ends a line, and marks that turn the direction of all that follows."""


def _line(text: str) -> str:
    """A text in one line; a number keeps the space that must not break."""
    return cut_name(text, limit=NAME_LENGTH) if len(text) > NAME_LENGTH or _UNRULY.search(text) else text


def _marked_down(cell: Cell) -> str:
    text = markdown(_line(cell.text))
    first = (f"**{text}**" if cell.bold else text) + (f"{NO_BREAK}{cell.sign}" if cell.sign else "")
    return "<br>".join(filter(None, [first, *map(markdown, cell.sub)]))


def _set_in_latex(cell: Cell) -> str:
    text = latex(_line(cell.text))
    first = (rf"\textbf{{{text}}}" if cell.bold else text) + (f"~{latex(cell.sign)}" if cell.sign else "")
    return " ".join(filter(None, [first, *map(latex, cell.sub)]))
