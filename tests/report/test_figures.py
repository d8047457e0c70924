"""Values of a suite with their intervals."""

from dataclasses import replace

from adiabat.report import suite_values as figures
from tests.report.sample_suites import make_score, make_suite


def plain(text: str) -> str:
    return text.replace("\xa0", " ")


def test_figures_that_are_counts_have_no_decimals() -> None:
    assert [figures.figure(number) for number in (25.0, 1204.0, 0.125, 0.0)] == ["25", "1,204", "0.125", "0"]


def test_small_values_keep_a_digit_that_is_not_zero() -> None:
    score = replace(make_score(make_suite({"x": {"a": 1.0}}).tasks[0], "a", 0.0004), interval=(-0.0002, 0.001))
    assert plain(figures.level(score)) == "0.0004 [−0.0002, 0.001]"


def test_a_value_without_an_interval_stands_alone() -> None:
    score = replace(make_score(make_suite({"x": {"a": 1.0}}).tasks[0], "a", 0.5), interval=None)
    assert (figures.level(score), figures.bounds(score)) == ("0.500", "")
    change = make_suite({"x": {"a": 0.5, "b": 0.4}}).pairings[0].change
    assert figures.difference(replace(change, difference_interval=None)) == "−0.100"
    assert figures.difference(replace(change, difference=None)) == "–"
