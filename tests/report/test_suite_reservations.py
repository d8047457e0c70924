"""What a suite says in sentences."""

from dataclasses import replace

import pytest

from adiabat.report import suite_headline as words
from adiabat.report.suite_headline import Overview
from tests.report.html_page import plain
from tests.report.sample_suites import full_suite, make_suite


def seen_of(values, **options):
    return Overview(make_suite(values, **options))


ONE = {"x": {"a": 0.6, "b": 0.5, "c": 0.59}}


def test_reservations_name_what_the_head_line_leaves_out() -> None:
    said = plain(" ".join(words.reservations(full_suite())))
    assert "Benjamini–Hochberg at 5 % over all 6 comparisons of main measures" in said
    assert "In 2 of 6 comparisons there is no evidence either way, which is not proof of equality" in said
    assert "Not every model did all 4 tasks: lexical (2)." in said
    assert "Means over several seeds, with intervals over seeds and units: small (3). All others are one run" in said
    assert said.endswith("a note of the suite")


def test_reservations_that_have_no_cause_are_left_out() -> None:
    said = plain(" ".join(words.reservations(make_suite({"x": {"a": 0.6, "b": 0.5}}))))
    assert "over the one comparison of main measures" in said
    assert "Every model is one run" in said
    for absent in ("no evidence either way", "Not every model", "did not do"):
        assert absent not in said
    assert "Benjamini" not in " ".join(words.reservations(make_suite({"x": {"a": 0.6}})))


MIXED = {"x": {"a": 0.6, "b": 0.5}, "y": {"b": 0.6, "c": 0.5}, "z": {"a": 0.5}}


@pytest.mark.parametrize(
    ("seen", "sentence", "columns"),
    [
        (
            seen_of(MIXED, baseline="a"),
            "Models are compared with a where it did the task, else with the best of the task (y), on the same units.",
            ["beside a", "beside the best, b", "not compared"],
        ),
        (seen_of(MIXED), "Every model is compared with the best of the task on the same units.", ["", "", ""]),
        (seen_of(ONE, baseline="b"), "Every model is compared with b on the same units.", [""]),
        (
            seen_of({**ONE, "y": {"d": 0.5}}, baseline="d"),
            "d did no task beside others: every model is compared with the best of the task on the same units.",
            ["", ""],
        ),
        (seen_of({"x": {"a": 0.6}}), "No task has two models to compare.", [""]),
    ],
)
def test_whom_models_are_compared_with_is_said_once_and_over_each_column_where_it_differs(seen, sentence: str, columns) -> None:
    assert words.references(seen.result) == sentence
    assert [words.beside(seen, task.name) for task in seen.result.tasks] == columns


def test_a_similarity_is_told_only_where_all_models_have_it() -> None:
    result = make_suite({"x": {"a": 0.6, "bm25": 0.5}})
    assert words.measure(Overview(result), result.tasks[0]) == "nDCG@10, cosine"
    own = replace(result, scores=[result.scores[0], replace(result.scores[1], similarity="bm25")])
    assert words.measure(Overview(own), own.tasks[0]) == "nDCG@10"
