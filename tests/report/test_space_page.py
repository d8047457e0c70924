"""What people read of an analysis of spaces: sentences, tables, pictures, the page and its files, from the
record alone.
"""

import re
from dataclasses import replace

import pytest

from adiabat.report import space_page as words
from adiabat.results.space_result import Distribution, SpaceResult
from tests.report.html_page import Page, csv_rows, html_of, plain, printed, table_of
from tests.report.sample_spaces import make_histogram, make_number, make_space

BOTH = make_space()
ALONE = make_space(separation=(0.9, None), drawn_map=False)


AUC = "(AUC 0.9000 [0.8900, 0.9100], "
APART = f"Queries and their positives lie apart: a linear classifier tells them apart {AUC}"
SCALE = "where 0.5 is chance and 1 is perfect)."


@pytest.mark.parametrize(
    ("separation", "sentence"),
    [
        ((0.9, None), f"{APART}{SCALE}"),
        ((0.505, None), f"does not tell them apart for certain (AUC 0.5050 [0.4950, 0.5150], {SCALE}"),
        ((0.9, 0.99), f"{APART}{SCALE} The AUC of the baseline is 0.9900: the towers came together."),
        ((0.9, 0.8), f"{SCALE} The AUC of the baseline is 0.8000: the towers moved apart."),
        ((0.9, 0.905), "0.9050: whether the towers came together or moved apart is undecided."),
    ],
)
def test_the_head_line_says_no_more_than_the_intervals(
    separation: tuple[float, float | None], sentence: str
) -> None:
    assert plain(words.headline(make_space(separation=separation))).endswith(sentence)


def test_what_was_looked_at_and_left_out_is_told() -> None:
    said = plain(" ".join(words.reservations(BOTH)))
    for fact in (
        "positive: 0.9500, before 0.7000 (median; 1: other queries are as near as their positives).",
        "Drawn at random: 2,000 of 10,000 queries, each with one positive, and 2,000 of 50,000 documents;",
        "2,000 queries have 1,500 different positives; queries that share one are drawn together.",
        "These numbers do not measure how well queries find their documents",
        "a note",
    ):
        assert fact in said


@pytest.mark.parametrize(
    ("below", "share"),
    [(996, "> 99 %"), (99_600, "> 99 %"), (1, "20 %"), (4, "50 %"), (12, "75 %"), (396, "99 %"), (0, None)],
)
def test_values_that_a_histogram_does_not_draw_are_counted_without_an_exponent(
    below: int, share: str | None
) -> None:
    distribution = Distribution("ratio", [0.0, 0.5, 1.0], make_histogram(3, 1, below=below), None)
    assert plain(words.outside(distribution)) == (
        "" if share is None else f"Not drawn: after {share} farther out."
    )
    # 4 of 24 lie over the last edge, 10 have no ratio.
    assert plain(words.outside(BOTH.distribution("ratio"))).endswith(
        "after 17 % farther out, 42 % with a denominator too near 0."
    )


@pytest.mark.parametrize("result", [BOTH, ALONE])
def test_the_table_fits_eighty_columns_with_everything_in_it(result: SpaceResult) -> None:
    said = printed(result)
    assert max(map(len, said.splitlines())) <= 80
    assert "…" not in said
    assert "tower separation, AUC" in said
    assert "queries: effective rank" in said


def test_tables_show_before_and_after_or_the_value_alone() -> None:
    assert re.search(r"AUC +0.9900 +0.9000 +−0.0900 \[−0.1000, −0.0800\]", printed(BOTH))
    assert re.search(r"AUC +0.9000 +\[0.8900, 0.9100\]", printed(ALONE))
    both, alone = table_of(BOTH, "md"), table_of(ALONE, "md")
    assert "| tower separation, AUC | 0.9900 | 0.9000 | **−0.0900**<br>\\[−0.1000, −0.0800\\] |" in both
    assert alone.splitlines()[:2] == ["| number | value<br>\\[95 %\\] |", "| --- | ---: |"]
    assert {line.count(" | ") for line in both.splitlines() if line.startswith("|")} == {3}


def test_the_csv_holds_every_value_unrounded() -> None:
    rows = csv_rows(BOTH)
    assert len(rows) == len(BOTH.numbers)
    for row, one in zip(rows, BOTH.numbers, strict=True):
        assert (row["name"], row["of"], row["formula"]) == (one.name, one.of, one.formula)
        assert (row["after"], row["difference"]) == tuple(
            "" if value is None else repr(value) for value in (one.after, one.difference)
        )
        assert row["before_low"] == ("" if one.before_interval is None else repr(one.before_interval[0]))


def test_differences_bear_the_digits_that_they_need_and_those_beyond_zero_are_bold() -> None:
    numbers = [
        *BOTH.numbers,
        make_number("mean", "queries", 0.5, 0.49999, 0.00002),
        make_number("effective rank", "queries", 150.0, 140.25, None),
    ]
    html = plain(html_of(replace(BOTH, numbers=numbers)))
    assert "[−0.00001, +0.00003]" in html
    assert ">+9.8<" in html
    bold = re.findall(r'<span class="name" dir="auto">([^<]*)</span>', html)
    assert [text for text in bold if text[0] in "+−"] == ["+0.2500", "−0.0900"]


def test_a_histogram_of_nothing_is_not_drawn() -> None:
    empty = Distribution("ratio", [0.0, 0.5, 1.0, 1.5], make_histogram(0, 0, 0, left_out=5))
    others = [one for one in BOTH.distributions if one.name != "ratio"]
    shown = Page(html_of(replace(BOTH, distributions=[*others, empty])))
    assert "ratio" not in shown.ids()
    assert len(shown.tags("svg")) == 3


def test_a_page_says_what_the_tables_say_with_formula_and_source() -> None:
    values = ("0.9900", "[0.9800, 1.0000]", "−0.0900", "[−0.1000, −0.0800]")
    about = ("formula of uniformity | x |", "a source", "space.folds 5")
    assert Page(html_of(BOTH)).lacks(*values, *about) == []
