"""A table as CSV, Markdown, LaTeX and terminal text."""

import csv
import io

import pytest
from rich.console import Console

from adiabat.core.text import DASH, MINUS, NO_BREAK
from adiabat.report.tables import (
    CELL_LENGTH,
    LEVEL,
    Cell,
    Column,
    Table,
    csv_cell,
    csv_of,
    markdown,
    verdict_cell,
)

TABLE = Table(
    title="[b]title[/b]",
    columns=[Column("name", "name"), Column("value", "number", ["unit"])],
    caption=["below"],
)
for name, value in (("a|b", 0.1 + 0.2), ("=1+1", -1.0)):
    TABLE.add(
        Cell(name, bold=value > 0),
        Cell(f"{value:.1f}", ["[0, 1]"], value=value, sign="▲", sign_tone="better"),
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        (True, "yes"),
        (False, "no"),
        (0.1 + 0.2, "0.30000000000000004"),
        (-0.5, "-0.5"),
        (3, "3"),
        ("name", "name"),
        ("=1+1", "'=1+1"),
        ("-1", "'-1"),
        (" =1", "'=1"),
        ("a\nb", "a b"),
        ("a\u202eb", "a\ufffdb"),
        ("x" * 10 * CELL_LENGTH, "x" * (CELL_LENGTH - 1) + "…"),
    ],
)
def test_a_cell_of_csv_is_text_or_a_number_with_all_its_digits(value: object, shown: str) -> None:
    assert csv_cell(value) == shown


def test_csv_is_read_back_cell_by_cell() -> None:
    quoted = 'with "quotes", and commas'
    text = csv_of([{"name": "a", "value": 0.5, "known": None}, {"name": quoted, "value": -1, "known": True}])
    read = list(csv.reader(io.StringIO(text)))
    assert read == [["name", "value", "known"], ["a", "0.5", ""], [quoted, "-1", "yes"]]
    assert "\r" not in text


def test_markdown_and_latex_have_the_same_cells_with_escaped_texts() -> None:
    assert TABLE.to_markdown().splitlines() == [
        "| name | value<br>unit |",
        "| --- | ---: |",
        "| **a\\|b** | 0.3\xa0▲<br>\\[0, 1\\] |",
        "| =1+1 | -1.0\xa0▲<br>\\[0, 1\\] |",
    ]
    body = TABLE.to_latex().splitlines()
    assert body[0] == r"\begin{tabular}{lr}"
    assert body[2:4] == [r"name & value \\", r" & unit \\"]
    assert body[5] == r"\bfseries a\textbar{}b & 0.3 $\uparrow$ {[}0, 1{]} \\"


@pytest.mark.parametrize(
    ("text", "set_as"),
    [
        ("a--b", "a-{}-b"),
        (",,", ",{},"),
        ("a_b & 5 % {x}", r"a\_b \& 5 \% \{x\}"),
        ("[x] <y>", r"{[}x{]} \textless{}y\textgreater{}"),
        (f"{MINUS}1{NO_BREAK}{DASH}", r"$-$1~\textendash{}"),
    ],
)
def test_latex_sets_a_text_as_it_is(text: str, set_as: str) -> None:
    table = Table(columns=[Column("same", "name"), Column("same")])
    table.add(text, "other")
    assert rf"{set_as} & other \\" in table.to_latex().splitlines()


def test_markdown_shows_a_text_as_it_is() -> None:
    assert markdown("<b> & *x*") == "&lt;b&gt; &amp; \\*x\\*"


def test_the_terminal_shows_texts_without_styling() -> None:
    said = terminal(TABLE, 60)
    for part in ("[b]title[/b]", "a|b", "0.3 ▲ [0, 1]", "below"):
        assert part in said, part


def changes(measures: list[str]) -> Table:
    """A row with the default measures, and intervals with three decimals."""
    numbers = [Column(measure, "number", LEVEL) for measure in measures]
    columns = [Column("data set", "name"), *numbers, Column("verdict")]
    caption = "undecided on the target, and no retention set was measured, so that forgetting is unknown."
    table = Table(title="An evaluation", columns=columns, caption=[caption])
    change = Cell(f"{MINUS}0.002{NO_BREAK}%", [f"[{MINUS}0.402, +0.416]"])
    name = Cell("target: a-data-set-with-a-name", bold=True)
    table.add(name, *[change] * len(measures), verdict_cell("undecided"))
    return table


def terminal(table: Table, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(table.to_terminal())
    return out.getvalue()


@pytest.mark.parametrize("width", [100, 80, 72, 60, 40])
@pytest.mark.parametrize("measures", [["nDCG@10"], ["nDCG@10", "Recall@100", "RR@10"]])
def test_a_table_that_is_too_wide_for_the_terminal_folds_and_loses_no_word(
    measures: list[str], width: int
) -> None:
    table = changes(measures)
    lines = terminal(table, width).splitlines()
    said = " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= width
    assert any(f"○{NO_BREAK}undecided" in line for line in lines)
    assert table.caption[0] in said
    for word in ("An evaluation", "verdict", *measures):
        assert word in said
    for number in (f"{MINUS}0.002", f"[{MINUS}0.402,", "+0.416]"):
        assert said.count(number) == len(measures), number
    assert "".join(said.split()).count("target:") == 1


def test_a_table_that_fits_has_cells_of_one_line() -> None:
    assert f"{MINUS}0.002{NO_BREAK}% [{MINUS}0.402, +0.416]" in terminal(changes(["nDCG@10"]), 80)


@pytest.mark.parametrize("width", [60, 40])
def test_a_number_and_its_interval_stay_on_their_lines(width: int) -> None:
    columns = [Column("data set", "name"), Column("a long head", "number", LEVEL), Column("verdict")]
    table = Table(columns=columns)
    table.add("a name of twenty letters", Cell("+0.06", [f"[{MINUS}0.01,{NO_BREAK}+0.19]"]), "x" * 9)
    lines = terminal(table, width).splitlines()
    assert any(f"[{MINUS}0.01,{NO_BREAK}+0.19]" in line for line in lines)
    assert any(LEVEL[0] in line for line in lines)


def test_a_table_of_rows_has_no_column_without_a_value() -> None:
    rows = [{"name": "a", "unknown": "", "count": 1}, {"name": "b", "unknown": None, "count": None}]
    table = Table.of(rows, {"unknown": "text"}, ["safe"], title="T")
    assert [(column.head, column.kind) for column in table.columns] == [("name", "name"), ("count", "number")]
    assert [[cell.text for cell in row.cells] for row in table.rows] == [["a", "1"], ["b", DASH]]
    assert [row.style for row in table.rows] == ["safe", ""]
    assert Table.of([]).rows == []
