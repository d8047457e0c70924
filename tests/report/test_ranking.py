"""The ranking of a sweep for people: sentences, tables, pictures and the section of the page."""

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from adiabat.report import pages
from adiabat.report import ranking_section as words
from adiabat.report.ranking_section import ranking_groups, ranking_tables
from adiabat.results.ranking_result import Level, Ranking, Speed
from tests.report.html_page import NASTY, Page, plain, texts
from tests.report.sample_rankings import make_contrast, make_ranking
from tests.report.sample_sweeps import simple_sweep

CLEAR = make_ranking({"squad": 0.61, "quora": 0.55})
OPEN = make_ranking({"squad": 0.61, "quora": 0.55, "medquad": 0.60})
BACKBONES = make_ranking(
    {"large": 0.61, "small": 0.6, "slow": 0.55}, models=True, speeds=[100.0, 1000.0, 90.0]
)


def printed(found: Ranking, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(*(table.to_terminal() for table in ranking_tables(found, "Ranked")))
    assert isinstance(console.file, io.StringIO)
    return plain(console.file.getvalue())


# --- Sentences ---


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (
            CLEAR,
            "squad is best: nDCG@10 0.610 [0.590, 0.630], mean of 2 seeds on "
            "2 tasks; measurably above quora.",
        ),
        (
            OPEN,
            "squad is ahead: nDCG@10 0.610 [0.590, 0.630], mean of 2 seeds on 2 tasks; "
            "measurably above quora; undecided against medquad.",
        ),
        (
            make_ranking({"a": 0.6, "b": 0.5, "c": 0.4}, seeds=[3], tasks=["one"]),
            "a is best: nDCG@10 0.600 [0.580, 0.620], one seed on 1 task; measurably above all others.",
        ),
        (
            make_ranking(dict.fromkeys("bcdefg", 0.6) | {"a": 0.601}),
            "a is ahead: nDCG@10 0.601 [0.581, 0.621], mean of 2 seeds on 2 tasks; "
            "undecided against b, c, d, e and 2 more.",
        ),
    ],
)
def test_the_head_line_says_no_more_than_the_intervals(found: Ranking, sentence: str) -> None:
    assert plain(words.headline(found)) == sentence


def test_only_a_winner_over_several_runs_that_gained_by_training_is_good_news() -> None:
    assert words.tone(make_ranking({"a": 0.51, "b": 0.45})) == "plain"
    assert [words.tone(found) for found in (CLEAR, OPEN, make_ranking({"a": 0.6, "b": 0.5}, seeds=[0]))] == [
        "good",
        "plain",
        "plain",
    ]


def test_reservations_name_what_the_head_line_leaves_out() -> None:
    said = " ".join(words.reservations(CLEAR))
    assert "Runs of one variant differ by 0.004 in standard deviation" in said
    assert "these 2 tasks, weighted equally" in said
    one = " ".join(words.reservations(make_ranking({"a": 0.6, "b": 0.5}, seeds=[0], tasks=["only"])))
    assert "Every variant was trained once" in one
    assert "one task, only; other tasks may rank differently" in one


def test_variants_that_training_made_worse_are_named() -> None:
    worse = " ".join(words.reservations(make_ranking({"a": 0.6, "b": 0.45, "c": 0.4})))
    assert "Training made b and c worse than the untrained start." in worse
    none = " ".join(words.reservations(make_ranking({"a": 0.51, "b": 0.5})))
    assert "No variant is measurably better than its untrained start." in none


def test_numbers_are_told_with_the_digits_that_they_need() -> None:
    assert plain(words.contrast(make_contrast(-0.01, 0.0098))) == "−0.0100 [−0.0198, −0.0002]"
    assert plain(words.contrast(make_contrast(0.02, 0.05))) == "+0.020 [−0.030, +0.070]"
    assert words.contrast(None) == "–"
    assert [plain(words.step_time(one)) for one in (None, 0.084, 0.9961, 12.345)] == [
        "–",
        "84 ms",
        "1.00 s",
        "12.35 s",
    ]
    assert [
        words.rate(one) for one in (None, Speed(1204.4, 1.0, 2.0, 8, 3), Speed(3.14, 1.0, 2.0, 8, 3))
    ] == ["–", "1,204", "3.1"]
    assert words.rate_range(Speed(10.0, 9.0, 12.6, 8, 3)) == "9.0–13"
    assert words.level(Level(-0.1, (-0.2, 0.0))) == "−0.100 [−0.200,\xa00.000]"


# --- Tables ---


@pytest.mark.parametrize("found", [OPEN, BACKBONES])
def test_both_tables_fit_eighty_columns_with_everything_in_them(found: Ranking) -> None:
    said = printed(found)
    assert max(map(len, said.splitlines())) <= 80
    assert "…" not in said
    for one in found.standings:
        assert one.name in said
    assert "○ undecided" in said
    assert re.search(r"start, untrained +0\.500 \[0\.480, 0\.520\]", said)


def test_tables_show_what_each_kind_took() -> None:
    assert re.search(r"squad +90 % +\+0.110 \[\+0.090, \+0.130\] +409,600 +1.2 +84 ms", printed(OPEN))
    assert re.search(r"small +10 % .* 22.7 M +1,000 +84 ms", printed(BACKBONES))


def test_figures_show_every_variant_and_mark_who_is_beaten_by_speed_and_score() -> None:
    ranking, tasks, costs = ranking_groups(BACKBONES)
    scores, differences = (texts(chart.inline()) for chart in ranking.sections[0].charts)
    assert {"large", "small", "slow"} <= set(scores) & set(differences)
    assert [text for text, *_ in tasks.sections[0].cells()[0]] == ["0.610", "0.620"]
    assert {"large", "small", "slow"} <= set(texts(costs.sections[0].charts[0].inline()))
    assert ranking_groups(OPEN)[2].sections[0] is None
    assert ranking_groups(make_ranking({"a": 0.6, "b": 0.5}, tasks=["only"]))[1].sections[0] is None


# --- The page ---


def page(found: Ranking, **changes: Any) -> Page:
    """The page of a sweep with this ranking."""
    return Page(pages.files(replace(simple_sweep(), ranking=found, **changes))["report.html"]())


def test_a_page_has_every_part_and_no_text_of_the_users_as_markup() -> None:
    found = make_ranking({NASTY: 0.6, "b": 0.5}, models=True, speeds=[3.0, 2.0], tasks=[NASTY, "b"])
    shown = page(found, title=NASTY, command=NASTY)
    assert {"verdict", "ranking", "ranked-tasks", "costs", "ranked-measures", "how-to-read-ranks"} <= set(
        shown.ids()
    )
    assert len(shown.ids()) == len(set(shown.ids()))
    assert all("src" not in attributes and "onerror" not in attributes for _, attributes in shown.elements)
    assert (
        len(shown.tags("svg"))
        == len(page(found).tags("svg"))
        == len(Page(pages.files(simple_sweep())["report.html"]()).tags("svg")) + 3
    )


def test_a_page_says_what_the_table_says() -> None:
    text = page(OPEN).text
    for part in (
        "1. squad",
        "0.6100",
        "[0.5900, 0.6300]",
        "−0.0600",
        "[−0.0800, −0.0400]",
        "runs 0.6000, 0.6200",
        "5,183 documents",
    ):
        assert part in text, part
    assert "documents per second" not in text
    assert "documents per second" in page(BACKBONES).text
