"""The numbers of an analysis of spaces as tables: for the terminal, as CSV and as Markdown."""

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from adiabat.core.text import DASH
from adiabat.report import space_wording as words
from adiabat.report.csv_tables import csv_of
from adiabat.report.wording import cut_name
from adiabat.results.space_result import SpaceNumber, SpaceResult

COLUMNS = (
    *("name", "of", "after", "after_low", "after_high", "before", "before_low", "before_high"),
    *("difference", "difference_low", "difference_high", "formula", "source"),
)


def space_table(result: SpaceResult) -> Table:
    """The numbers for the terminal."""
    table = Table(
        title=Text(cut_name(result.title, limit=200)),
        caption=Text("\n".join(words.scales(result))),
        caption_justify="left",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("", overflow="fold", min_width=24)
    for column in _heads(result):
        table.add_column(Text(column), justify="right", no_wrap=column != "95 %")
    for one in result.numbers:
        table.add_row(Text(_name(one)), *map(Text, _cells(one, result)), style="" if one.changed or not result.baseline else "dim")
    return table


def _heads(result: SpaceResult) -> list[str]:
    return ["before", "after", "difference [95 %]"] if result.baseline else ["value", "95 %"]


def _cells(one: SpaceNumber, result: SpaceResult) -> list[str]:
    if result.baseline:
        return [words.value(one, one.before), words.value(one, one.after), words.difference(one)]
    return [words.value(one, one.after), words.bounds(one.after_interval) or DASH]


def _name(one: SpaceNumber) -> str:
    return one.name if one.of == "both" else f"{one.of}: {one.name}"


def csv_table(result: SpaceResult) -> str:
    """The numbers for other programs, unrounded.

    Returns:
        CSV with a line of names; empty where there is no value.
    """
    return csv_of(COLUMNS, map(_row, result.numbers))


def _row(one: SpaceNumber) -> list[str | float | None]:
    values = ((one.after, one.after_interval), (one.before, one.before_interval), (one.difference, one.difference_interval))
    cells = [cell for value, ends in values for cell in (value, *_ends(ends))]
    return [one.name, one.of, *cells, one.formula, one.source]


def _ends(ends: tuple[float, float] | None) -> tuple[float | None, float | None]:
    return ends or (None, None)


def markdown_table(result: SpaceResult) -> str:
    """The numbers for a note or a README."""
    heads = ["number", *_heads(result)]
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    lines += [[_name(one), *_cells(one, result)] for one in result.numbers]
    # A bar would end a cell.
    table = "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
    return "\n".join([table, *(f"{sentence}\n" for sentence in words.scales(result))])
