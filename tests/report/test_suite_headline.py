"""What a suite says in its head line."""

from dataclasses import replace

import pytest

from adiabat.report import suite_headline as words
from adiabat.report.suite_headline import Overview, headline, tone
from tests.report.html_page import plain
from tests.report.sample_suites import full_suite, make_suite


def seen_of(values, **options):
    return Overview(make_suite(values, **options))


ONE = {"x": {"a": 0.6, "b": 0.5, "c": 0.59}}


@pytest.mark.parametrize(
    ("seen", "sentence"),
    [
        (
            seen_of({"x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.6, "b": 0.59}, "z": {"a": 0.5, "b": 0.6}}),
            "a is best on 2 of 3 tasks (1 clearly), b on 1 (1 clearly); on 1 task the best cannot be told from others.",
        ),
        (
            seen_of({"x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.6, "b": 0.5}}),
            "a is best on 2 of 2 tasks (all clearly); on every task the best is measurably above all others.",
        ),
        (
            seen_of({f"t{place}": {"a": 0.6, letter: 0.601} for place, letter in enumerate("bcdefg")}),
            "b is best on 1 of 6 tasks (none clearly), c on 1 (none clearly), d on 1 (none clearly), e on 1 (none clearly) and 2 more; "
            "on 6 tasks the best cannot be told from others.",
        ),
        (
            seen_of({"x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.6, "b": 0.59}}, baseline="b"),
            "Beside b: a is better on 1 of 2 tasks, worse on 0, no evidence on 1.",
        ),
        (
            seen_of({"x": {"a": 0.6, "b": 0.5}, "y": {"b": 0.6, "c": 0.5}, "z": {"a": 0.6, "c": 0.5}}, baseline="a"),
            "Beside a: b is better on 0 of 1 task, worse on 1, no evidence on 0; c is better on 0 of 1 task, worse on 1, no evidence on 0. "
            "On y, which a did not do: best b 0.600 [0.580, 0.620], clearly.",
        ),
        (
            seen_of(
                {
                    "x": {"a": 0.6, "l": 0.5},
                    **{task: {"a": 0.6, "b": 0.59} for task in "st"},
                    **{task: {"a": 0.5, "b": 0.6} for task in "uvw"},
                },
                baseline="l",
            ),
            "Beside l: a is better on 1 of 1 task, worse on 0, no evidence on 0; b has no task in common with it. "
            "On the 5 tasks that l did not do: b is best on 3 (all clearly), a on 2 (none clearly).",
        ),
        (
            seen_of({"x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.6, "b": 0.59}, "z": {"l": 0.5}}, baseline="l"),
            "a is best on 2 of 2 tasks (1 clearly); on 1 task the best cannot be told from others.",
        ),
        (
            seen_of(ONE),
            "a is best on x, nDCG@10 0.600 [0.580, 0.620]; worse: b (−0.100 [−0.120, −0.080]); "
            "no evidence either way: c (−0.010 [−0.030, +0.010]).",
        ),
        (
            seen_of(ONE, baseline="b"),
            "b is the baseline on x, nDCG@10 0.500 [0.480, 0.520]; better: a (+0.100 [+0.080, +0.120]) and c (+0.090 [+0.070, +0.110]).",
        ),
        (
            seen_of({"x": {"a": 0.6}, "y": {"a": 0.5}}),
            "x nDCG@10 0.600 [0.580, 0.620]; y nDCG@10 0.500 [0.480, 0.520]. No task has two models to compare, "
            "so this says nothing about differences.",
        ),
        (
            seen_of({"x": {"a": 0.3, "b": 0.1 + 0.2, "c": 0.1}}),
            "b and a are best on x, nDCG@10 0.300 [0.280, 0.320]; worse: c (−0.200 [−0.220, −0.180]).",
        ),
        (seen_of({"x": {"a": 0.3, "b": 0.1 + 0.2}}), "b and a are best on x, nDCG@10 0.300 [0.280, 0.320]."),
        (seen_of({}), "Nothing was measured."),
    ],
)
def test_the_head_line_says_no_more_than_the_comparisons(seen, sentence: str) -> None:
    assert plain(headline(seen)) == sentence


def test_names_that_run_right_to_left_are_set_apart_in_a_sentence() -> None:
    assert headline(seen_of({"x": {"نموذج": 0.6, "b": 0.5}, "y": {"b": 0.5}})).startswith("\u2068نموذج\u2069 is best")


def test_a_name_cannot_turn_the_words_after_it() -> None:
    said = headline(seen_of({"x": {"a\u202eevil": 0.6, "b\u2067": 0.5}, "y": {"a\u202eevil": 0.6}}))
    assert said.startswith("a\ufffdevil is best on x")
    assert not set(said) & set("\u202e\u2067")
    assert "b\ufffd (" in said


@pytest.mark.parametrize(
    ("values", "baseline", "wanted"),
    [
        ({"x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.6, "b": 0.5}}, None, "good"),
        ({"x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.6, "b": 0.59}}, None, "plain"),
        ({"x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.6, "b": 0.59}}, "b", "good"),
        ({"x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.5, "b": 0.6}}, "b", "plain"),
        ({"x": {"a": 0.4, "b": 0.5}, "y": {"a": 0.5, "b": 0.5}}, "b", "bad"),
        ({"x": {"a": 0.6, "b": 0.5, "c": 0.4}}, "b", "plain"),
        ({"x": {"a": 0.6}}, None, "plain"),
    ],
)
def test_only_one_answer_for_all_tasks_is_good_or_bad_news(values, baseline, wanted) -> None:
    assert tone(make_suite(values, baseline=baseline)) == wanted


def test_reservations_name_what_the_head_line_leaves_out() -> None:
    said = plain(" ".join(words.reservations(full_suite())))
    assert "Benjamini–Hochberg at 5 % over all 6 comparisons of main measures" in said
    assert "In 2 of 6 comparisons there is no evidence either way, which is not proof of equality" in said
    assert "Not every model did all 4 tasks: lexical (2)." in said
    assert "Means over several seeds, with intervals over seeds and units: small (3). All others are one run" in said
    assert said.endswith("a note of the suite")


def test_a_similarity_is_told_only_where_all_models_have_it() -> None:
    result = make_suite({"x": {"a": 0.6, "bm25": 0.5}})
    assert words.measure(Overview(result), result.tasks[0]) == "nDCG@10, cosine"
    own = replace(result, scores=[result.scores[0], replace(result.scores[1], similarity="bm25")])
    assert words.measure(Overview(own), own.tasks[0]) == "nDCG@10"
