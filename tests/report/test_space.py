"""What people read of an analysis of spaces: sentences, tables, pictures, the page and its files, from the record alone."""

import csv
import io
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from rich.console import Console

from adiabat.report import space_plots as plots
from adiabat.report import space_wording as words
from adiabat.report.space_page import render_space
from adiabat.report.space_table import COLUMNS, csv_table, markdown_table, space_table
from adiabat.results.space_result import Distribution, SpaceResult
from tests.report.sample_spaces import make_histogram, make_number, make_space
from tests.report.test_page import NASTY, Page

BOTH = make_space()
ALONE = make_space(separation=(0.9, None), drawn_map=False)


def plain(text: str) -> str:
    return text.replace("\xa0", " ")


def printed(result: SpaceResult, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(space_table(result))
    assert isinstance(console.file, io.StringIO)
    return plain(console.file.getvalue())


def svg_texts(svg: str) -> list[str]:
    return ["".join(node.itertext()).strip() for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("}text")]


# --- Sentences ---

SCALE = " (0.5: the towers lie together, 1: apart)"


@pytest.mark.parametrize(
    ("separation", "sentence"),
    [
        (
            (0.9, None),
            f"A straight line tells queries from their positives: AUC 0.9000 [0.8900, 0.9100]{SCALE}.",
        ),
        (
            (0.505, None),
            f"A straight line cannot tell queries from their positives: AUC 0.5050 [0.4950, 0.5150]{SCALE}.",
        ),
        (
            (0.9, 0.99),
            f"tells queries from their positives: AUC 0.9000 [0.8900, 0.9100], before 0.9900{SCALE}; the towers came together.",
        ),
        ((0.9, 0.8), f"AUC 0.9000 [0.8900, 0.9100], before 0.8000{SCALE}; the towers moved apart."),
        ((0.9, 0.905), "1: apart); no evidence that the towers came together or moved apart."),
    ],
)
def test_the_head_line_says_no_more_than_the_intervals(separation: tuple[float, float | None], sentence: str) -> None:
    assert plain(words.headline(make_space(separation=separation))).endswith(sentence)


def test_what_was_looked_at_and_left_out_is_told() -> None:
    said = plain(" ".join(words.reservations(BOTH)))
    assert "in the ratio 0.9500, before 0.7000 (median; 1: other queries are as near as their positives)." in said
    assert "Looked at: 2,000 of 10,000 queries, each with one positive, and 2,000 of 50,000 documents, drawn at random" in said
    assert "2,000 queries have 1,500 different positives; those that share one are drawn together." in said
    assert "a note" in said
    assert "None of this says how well queries find their documents" in said


def test_what_is_whole_is_not_said_to_be_drawn() -> None:
    whole = replace(BOTH, looked_at=10_000, distinct=10_000, sampled=50_000)
    said = " ".join(words.reservations(whole))
    assert "drawn" not in said


def test_an_undefined_ratio_is_not_spoken_of() -> None:
    numbers = [replace(one, after=None) if one.name == words.RATIO else one for one in BOTH.numbers]
    assert "in the ratio" not in " ".join(words.reservations(replace(BOTH, numbers=numbers)))


def test_numbers_are_told_with_the_digits_that_they_need() -> None:
    assert plain(words.difference(make_number("uniformity", "queries", 0.5, 0.49999, 0.00002))) == "+0.00001 [−0.00001, +0.00003]"
    rank = make_number("effective rank", "queries", 150.0, 140.25, None)
    assert (words.value(rank, rank.after), words.difference(rank), words.difference_bounds(rank)) == ("150.0", "+9.8", "")
    assert words.value(rank, None) == words.difference(make_number("uniformity", "queries", 0.5)) == "–"


def test_what_a_histogram_does_not_show_is_counted() -> None:
    ratio = BOTH.distribution("ratio")
    # 4 of 24 lie over the last edge, 10 have no ratio.
    assert plain(words.outside(ratio)) == "Not drawn: after 17 % farther out, 42 % with a denominator too near 0."
    assert words.outside(BOTH.distribution("nearest")) == ""


@pytest.mark.parametrize(
    ("below", "share"), [(996, "> 99 %"), (99_600, "> 99 %"), (1, "20 %"), (4, "50 %"), (12, "75 %"), (396, "99 %"), (0, None)]
)
def test_a_share_is_never_told_with_an_exponent(below: int, share: str | None) -> None:
    found = Distribution("ratio", [0.0, 0.5, 1.0], make_histogram(3, 1, below=below), None)
    assert plain(words.outside(found)) == ("" if share is None else f"Not drawn: after {share} farther out.")


# --- Tables ---


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
    assert "| tower separation, AUC | 0.9900 | 0.9000 | −0.0900 [−0.1000, −0.0800] |" in plain(markdown_table(BOTH))
    assert markdown_table(ALONE).splitlines()[:2] == ["| number | value | 95 % |", "| --- | ---: | ---: |"]
    assert {line.count(" | ") for line in markdown_table(BOTH).splitlines() if line.startswith("|")} == {3}


@pytest.mark.parametrize("shown", [printed, markdown_table])
def test_numbers_without_formulas_stand_over_their_scales(shown) -> None:
    said = " ".join(plain(shown(BOTH)).split())
    assert f"AUC 0.9000 [0.8900, 0.9100], before 0.9900{SCALE}" in said
    assert "in the ratio 0.9500, before 0.7000 (median; 1: other queries are as near as their positives)." in said
    numbers = [replace(one, after=None) if one.name == words.RATIO else one for one in BOTH.numbers]
    assert "in the ratio" not in shown(replace(BOTH, numbers=numbers))


def test_the_csv_holds_every_value_unrounded() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_table(BOTH))))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == len(BOTH.numbers)
    for row, one in zip(rows, BOTH.numbers, strict=True):
        assert (row["name"], row["of"], row["formula"]) == (one.name, one.of, one.formula)
        assert (row["after"], row["difference"]) == tuple("" if value is None else repr(value) for value in (one.after, one.difference))
        assert row["before_low"] == ("" if one.before_interval is None else repr(one.before_interval[0]))


def test_no_name_becomes_a_formula_in_a_spreadsheet() -> None:
    hostile = replace(BOTH, numbers=[replace(BOTH.numbers[0], name="=1+1", source="@x")])
    (row,) = csv.DictReader(io.StringIO(csv_table(hostile)))
    assert (row["name"], row["source"]) == ("'=1+1", "'@x")


# --- Pictures ---


def test_pictures_are_well_formed_and_the_same_for_the_same_data() -> None:
    assert BOTH.map is not None
    for _ in range(2):
        drawn = [
            plots.cosines(BOTH.distribution("nearest"), label="cosine", name="nearest"),
            plots.ratio(BOTH.distribution("ratio")),
            plots.towers(BOTH.map),
        ]
        for svg in drawn:
            assert svg is not None
            assert ElementTree.fromstring(svg).tag.endswith("}svg")
            assert re.findall(r"https?://[^\"' ]*", svg) == ["http://www.w3.org/2000/svg"]
    assert drawn[2] == plots.towers(BOTH.map)


def test_histograms_show_before_over_after_and_name_both() -> None:
    assert {"before", "after"} <= set(svg_texts(plots.cosines(BOTH.distribution("nearest"), label="cosine", name="a")))
    assert not {"before", "after"} & set(svg_texts(plots.cosines(ALONE.distribution("nearest"), label="cosine", name="a")))


def test_a_histogram_of_nothing_is_not_drawn() -> None:
    empty = make_histogram(0, 0, 0, left_out=5)
    assert plots.ratio(Distribution("ratio", [0.0, 0.5, 1.0, 1.5], empty)) is None
    half = plots.ratio(Distribution("ratio", [0.0, 0.5, 1.0, 1.5], empty, make_histogram(1, 2, 3)))
    assert half is not None
    assert "before" in svg_texts(half)


def test_a_map_has_a_panel_for_each_model_and_a_mark_for_each_vector() -> None:
    assert BOTH.map is not None
    both, alone = plots.towers(BOTH.map), plots.towers(replace(BOTH.map, before=None))
    assert [text for text in svg_texts(both) if text] == ["before", "after", "queries", "their positives"]
    assert [text for text in svg_texts(alone) if text] == ["queries", "their positives"]
    # Two queries and two documents in each panel, and a mark of each kind in the legend.
    assert [svg.count("<use ") for svg in (both, alone)] == [8 + 2, 4 + 2]
    # No background of its own: the page's shows in the dark too.
    assert "#ffffff" not in both


# --- The page and its files ---


def test_a_page_has_every_part_and_no_text_of_the_users_as_markup() -> None:
    shown = Page(render_space(replace(BOTH, title=NASTY, command=NASTY, model=NASTY, baseline=NASTY, notes=[NASTY])))
    assert {"verdict", "numbers", "nearness", "ratio", "map", "how-to-read", "made", "inputs", "settings", "versions"} <= set(shown.ids())
    assert len(shown.ids()) == len(set(shown.ids()))
    assert shown.tags("script") == []
    assert len(shown.tags("svg")) == 4
    assert all("src" not in attributes and "onerror" not in attributes for _, attributes in shown.elements)


def test_a_page_says_what_the_tables_say_with_formula_and_source() -> None:
    text = Page(render_space(BOTH)).text
    for part in ("0.9900", "[0.9800, 1.0000]", "−0.0900", "[−0.1000, −0.0800]", "formula of uniformity | x |", "a source", "space.folds 5"):
        assert part in text, part


def test_only_differences_whose_interval_leaves_out_zero_are_bold() -> None:
    html = plain(render_space(BOTH))
    assert re.findall(r"<strong>([^<]*)</strong>", html) == ["+0.2500", "−0.0900"]


def test_a_page_without_a_baseline_or_a_map_has_neither() -> None:
    shown = Page(render_space(ALONE))
    assert "map" not in shown.ids()
    assert "There is no baseline." in shown.text
    assert "paired 95" not in shown.text
    assert shown.tags("svg") != []
    assert [cell for cell in shown.tags("td") if cell.get("data-label") in ("before", "difference")] == []
