"""The page of a suite: headline and reservations, rows and figures, and its tables."""

import re
from dataclasses import replace

import pytest

from adiabat.report import suite_headline as words
from adiabat.report.suite_headline import Overview, headline, tone
from adiabat.results.suite_result import Fact
from tests.report.html_page import Page, csv_rows, html_of, plain, printed, table_of
from tests.report.sample_suites import full_suite, make_suite


def view_of(values, **options) -> Overview:
    return Overview(make_suite(values, **options))


ONE = {"x": {"a": 0.6, "b": 0.5, "c": 0.59}}
CLEAR, OPEN, REVERSED = {"a": 0.6, "b": 0.5}, {"a": 0.6, "b": 0.59}, {"a": 0.5, "b": 0.6}
"""Values of a task: a measurably better than b, not measurably, and the other way round."""

OF_ONE = "is better on 0 of 1 task, worse on 1, not worse by more than 1 % on 0, undecided on 0"


@pytest.mark.parametrize(
    ("view", "sentence"),
    [
        (
            view_of({"x": CLEAR, "y": OPEN, "z": REVERSED}),
            "a is best on 2 of 3 tasks (1 clearly), b on 1 (1 clearly).",
        ),
        (view_of({"x": CLEAR, "y": CLEAR}), "a is best on 2 of 2 tasks (2 clearly)."),
        (
            view_of({f"t{place}": {"a": 0.6, letter: 0.601} for place, letter in enumerate("bcdefg")}),
            "b is best on 1 of 6 tasks (0 clearly), c on 1 (0 clearly), d on 1 (0 clearly), "
            "e on 1 (0 clearly) and 2 more.",
        ),
        (
            view_of({"x": CLEAR, "y": OPEN}, baseline="b"),
            "Against b: a is better on 1 of 2 tasks, worse on 0, not worse by more than 1 % on 0, "
            "undecided on 1.",
        ),
        (
            view_of({"x": CLEAR, "y": {"b": 0.6, "c": 0.5}, "z": {"a": 0.6, "c": 0.5}}, baseline="a"),
            f"Against a: b {OF_ONE}; c {OF_ONE}. Without a: b is best on 1 of 1 task (1 clearly).",
        ),
        (
            view_of(
                {"x": {"a": 0.5, "l": 0.6}, **dict.fromkeys("st", OPEN), **dict.fromkeys("uvw", REVERSED)},
                baseline="l",
            ),
            f"Against l: a {OF_ONE}; b has no task in common with it. "
            "Without l: b is best on 3 of 5 tasks (3 clearly), a on 2 (0 clearly).",
        ),
        (
            view_of({"x": CLEAR, "y": OPEN, "z": {"l": 0.5}}, baseline="l"),
            "a is best on 2 of 2 tasks (1 clearly).",
        ),
        (
            view_of(ONE),
            "a is best on x, nDCG@10 0.600 [0.580, 0.620]; worse: b (−0.100 [−0.120, −0.080]); "
            "undecided: c (−0.010 [−0.030, +0.010]).",
        ),
        (
            view_of(ONE, baseline="b"),
            "b is the baseline on x, nDCG@10 0.500 [0.480, 0.520]; "
            "better: a (+0.100 [+0.080, +0.120]) and c (+0.090 [+0.070, +0.110]).",
        ),
        (
            view_of({"x": {"a": 0.6}, "y": {"a": 0.5}}),
            "x nDCG@10 0.600 [0.580, 0.620]; y nDCG@10 0.500 [0.480, 0.520]. "
            "No task has two models to compare, so differences are unknown.",
        ),
        (
            view_of({"x": {"a": 0.3, "b": 0.1 + 0.2, "c": 0.1}}),
            "b and a are best on x, nDCG@10 0.300 [0.280, 0.320]; worse: c (−0.200 [−0.220, −0.180]).",
        ),
        (view_of({"x": {"a": 0.3, "b": 0.1 + 0.2}}), "b and a are best on x, nDCG@10 0.300 [0.280, 0.320]."),
        (view_of({}), "Nothing was measured."),
    ],
)
def test_the_head_line_says_no_more_than_the_comparisons(view, sentence: str) -> None:
    assert plain(headline(view)) == sentence


def test_names_that_run_right_to_left_are_set_apart_and_none_can_turn_the_words_after_it() -> None:
    assert headline(view_of({"x": {"نموذج": 0.6, "b": 0.5}, "y": {"b": 0.5}})).startswith(
        "\u2068نموذج\u2069 is best"
    )
    said = headline(view_of({"x": {"a\u202eevil": 0.6, "b\u2067": 0.5}, "y": {"a\u202eevil": 0.6}}))
    assert said.startswith("a\ufffdevil is best on x")
    assert not set(said) & set("\u202e\u2067")
    assert "b\ufffd (" in said


@pytest.mark.parametrize(
    ("values", "baseline", "wanted"),
    [
        ({"x": CLEAR, "y": CLEAR}, None, "good"),
        ({"x": CLEAR, "y": OPEN}, None, "plain"),
        ({"x": CLEAR, "y": OPEN}, "b", "good"),
        ({"x": CLEAR, "y": REVERSED}, "b", "plain"),
        ({"x": {"a": 0.4, "b": 0.5}, "y": {"a": 0.5, "b": 0.5}}, "b", "bad"),
        ({"x": {"a": 0.6, "b": 0.5, "c": 0.4}}, "b", "plain"),
        ({"x": {"a": 0.6}}, None, "plain"),
    ],
)
def test_only_one_answer_for_all_tasks_is_good_or_bad_news(values, baseline, wanted) -> None:
    assert tone(make_suite(values, baseline=baseline)) == wanted


def test_reservations_name_what_the_head_line_leaves_out() -> None:
    said = plain(" ".join(words.reservations(full_suite())))
    for fact in (
        "Benjamini–Hochberg at 5 % over all comparisons of main measures",
        "Not worse is not corrected: each such comparison excludes a loss of 1 % for itself",
        "at one-sided 95 %.",
        "Undecided (2 of 6 comparisons)",
        "Some models did not run all 4 tasks: lexical (2).",
        "Means over several seeds, with intervals over seeds and units: small (3).",
    ):
        assert fact in said
    assert said.endswith("a note of the suite")


def test_counts_name_the_margin() -> None:
    result = make_suite({"x": OPEN, "y": CLEAR}, baseline="b")
    result = replace(result, settings={"measure": {"margin": 0.01, "margin_absolute": 0.02}})
    assert "not worse by more than 0.02 on 0" in plain(headline(Overview(result)))
    assert "excludes a loss of 0.02 for itself" in plain(" ".join(words.reservations(result)))


def test_a_similarity_is_told_only_where_all_models_have_it() -> None:
    result = make_suite({"x": {"a": 0.6, "bm25": 0.5}})
    assert words.measure(Overview(result), result.tasks[0]) == "nDCG@10, cosine"
    own = replace(result, scores=[result.scores[0], replace(result.scores[1], similarity="bm25")])
    assert words.measure(Overview(own), own.tasks[0]) == "nDCG@10"


def test_cells_are_marked_as_the_comparisons_say() -> None:
    html = html_of(full_suite())
    cells = re.findall(r'<td class="num ([a-z]+)" data-value="([\d.]+)"', html)
    assert ("best", "0.61") in cells
    assert ("even", "0.4") in cells
    assert Page(html).text.count("▼") >= 3
    beside = Page(html_of(full_suite(baseline="small")))
    assert "baseline" in beside.text
    assert {"better", "worse", "undecided"} <= {
        word for one in beside.with_class("sign") for word in (one["class"] or "").split()
    }


def test_what_the_script_works_on_is_there() -> None:
    html = html_of(full_suite())
    assert html.count('<table class="sortable') >= 4
    assert 'aria-controls="task-0-units"' in html
    assert re.search(r'<table class="sortable " id="task-0-units">', html)
    first = re.findall(r'<th scope="col" class="num" data-first="(\w+)"><span dir="auto" title="xnli"', html)
    assert first == ["ascending"]


def test_facts_grids_and_units_stand_on_the_page() -> None:
    shown = Page(html_of(replace(full_suite(), facts=[Fact("small", "first", "unknown words", 1204.0)])))
    cells = ("1 better, 1 worse, 0 not worse, 7 undecided, of 9", "mean of the cells 20.4")
    assert shown.lacks("unknown words", "1,204", *cells, "text of query 3", "q3") == []


def test_a_suite_of_one_model_or_of_nothing_has_page_and_tables() -> None:
    alone = make_suite({"x": {"a": 0.6}})
    assert "paired 95" not in Page(html_of(alone)).text
    assert "0.600" in table_of(alone, "md")
    nothing = make_suite({})
    assert "Nothing was measured." in Page(html_of(nothing)).text
    assert table_of(nothing, "tex").count("rule") == 3


def test_csv_has_a_line_for_each_score_and_fact_with_all_digits() -> None:
    result = replace(full_suite(), facts=[Fact("small", "first", "unknown words", 3.0)])
    rows = csv_rows(result)
    assert len(rows) == len(result.scores) + 1
    first = rows[0]
    score = {"task": "first", "model": "small", "main": "yes", "value": "0.55", "runs": "3"}
    beside = {"against": "large", "significant": "yes", "verdict": "worse"}
    assert first.items() >= (score | beside).items()
    assert float(first["difference"]) == pytest.approx(-0.06)
    assert (first["best"], first["even"], rows[1]["best"], rows[1]["even"]) == ("no", "no", "yes", "yes")
    assert (rows[-1]["measure"], rows[-1]["value"], rows[-1]["low"]) == ("unknown words", "3.0", "")


def test_beside_a_baseline_csv_leaves_open_which_model_is_even_with_the_best() -> None:
    assert [row["even"] for row in csv_rows(make_suite(ONE, baseline="b"))] == ["yes", "", ""]


def test_markdown_and_latex_mark_the_best_and_those_that_are_not_measurably_worse() -> None:
    result = make_suite(ONE)
    assert "| a | **0.600**<br>\\[0.580, 0.620\\] | 1.0 |" in table_of(result, "md")
    assert "0.590 ≈<br>" in table_of(result, "md")
    assert r"\bfseries 0.600 {[}0.580, 0.620{]}" in table_of(result, "tex")
    assert "a & " in table_of(result, "tex")
    assert "▲" in table_of(make_suite(ONE, baseline="b"), "md")


@pytest.mark.parametrize("ending", ["md", "tex"])
def test_tables_hold_reservations_and_notes_and_a_hostile_name_breaks_no_row(ending: str) -> None:
    assert "cut to 128 tokens" in table_of(full_suite(), ending)
    assert "a note of the suite" in table_of(full_suite(), ending)
    hostile = make_suite({"x": {"a|b & $c_{}\\ ^~%#": 0.6, "b": 0.5}})
    rows = [line for line in table_of(hostile, ending).splitlines() if line.startswith(("|", "a"))]
    between = r"(?<!\\)\|" if ending == "md" else r"(?<!\\)&"
    assert len({len(re.findall(between, row)) for row in rows if "&amp;" not in row}) == 1


@pytest.mark.parametrize("baseline", [None, "small"])
def test_the_terminal_fits_eighty_columns(baseline: str | None) -> None:
    text = printed(full_suite(baseline=baseline))
    assert max(map(len, text.splitlines())) <= 80
    for part in ("first", "  large", "0.610 [0.590, 0.630]", "rank", "PND, lower is better"):
        assert part in text, part


def test_of_many_models_on_many_tasks_the_terminal_shows_the_best_and_the_even() -> None:
    by_model = {"m0": 0.9} | {f"m{model}": 0.1 for model in range(1, 9)}
    assert printed(make_suite({str(task): by_model for task in range(10)})).count("and 8 more") == 10
