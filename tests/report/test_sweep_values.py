"""Settings, outcomes and counts as tables and sentences show them."""

import pytest

from adiabat.report import sweep_cases as cases
from adiabat.report import sweep_headline as texts
from adiabat.report.sweep_cases import Outcome, overview_of
from tests.report.html_page import plain
from tests.report.sample_sweeps import MARGIN, RATE, make_change, make_run, make_sweep


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (5e-8, "5e-8"),
        (1e-7 / 2**0.5, "7.07107e-8"),
        (0.1, "0.1"),
        (1.0, "1"),
        (14, "14"),
        (123456789, "123456789"),
        (True, "true"),
        (False, "false"),
        ("adamw", "adamw"),
        ("", "none"),
        (None, "none"),
        ([], "none"),
        (["embeddings", "blocks[0]"], "embeddings + blocks[0]"),
        (-0.5, "-0.5"),
        (2.5e20, "2.5e20"),
    ],
)
def test_a_setting_is_shown_as_it_is_written(value, shown) -> None:
    assert cases.setting_value(value) == shown


def test_a_case_is_told_by_what_differs() -> None:
    def runs(*pairs):
        return overview_of(make_sweep([make_run({RATE: rate, MARGIN: margin}) for rate, margin in pairs], varied=(RATE, MARGIN)))

    both = runs((1e-8, 0.1), (2e-8, 0.2))
    assert cases.case_label(both, both.cases[0]) == "learning rate 1e-8 with margin 0.1"
    assert (cases.case_head(both), cases.case_cell(both, both.cases[1])) == ("setting", "learning rate 2e-8 with margin 0.2")
    one = runs((1e-8, 0.1), (1e-8, 0.2))
    assert cases.case_label(one, one.cases[0]) == "margin 0.1"
    assert (cases.case_head(one), cases.case_cell(one, one.cases[0])) == ("margin", "0.1")
    none = runs((1e-8, 0.1))
    assert cases.case_label(none, none.cases[0]) == cases.case_cell(none, none.cases[0]) == "the only setting"


@pytest.mark.parametrize(
    ("improvements", "gain", "bounds", "marks", "words"),
    [
        ([7.3], "+7.3 %", "[+6.3, +8.3]", "▲", "better"),
        ([0.2], "+0.2 %", "[−0.8, +1.2]", "○", "no evidence"),
        ([-1.004], "−1.004 %", "[−2.004, −0.004]", "▼", "worse"),
        ([7.0, 8.0, 9.0], "+8.0 %", "+7.0 to +9.0", "▲", "better"),
        ([0.5, 3.0, 4.0], "+2.5 %", "+0.5 to +4.0", "▲2 ○1", "better in 2 of 3 seeds, no evidence in 1"),
        ([3.0, -3.0], "0.0 %", "−3.0 to +3.0", "▲1 ▼1", "better in 1 of 2 seeds, worse in 1"),
        ([None], "+0.1000", "[+0.0500, +0.1500]", "▲", "better"),
        ([None, 5.0], "+0.0625", "+0.0250 to +0.1000", "▲", "better"),
    ],
)
def test_an_outcome_is_a_mean_with_bounds_and_verdicts(improvements, gain, bounds, marks, words) -> None:
    found = Outcome(tuple(map(make_change, improvements)))
    assert (plain(texts.gain(found)), plain(texts.gain_bounds(found))) == (gain, bounds)
    assert (texts.verdict_marks(found), texts.verdict_words(found)) == (marks, words)


def test_what_was_not_compared_is_a_dash() -> None:
    change = make_change(1.0)
    parts = {"improvement": None, "difference": None, "difference_interval": None, "verdict": None}
    found = Outcome((type(change)(**{**{name: getattr(change, name) for name in change.__slots__}, **parts}),))
    assert (texts.gain(found), texts.gain_bounds(found), texts.verdict_marks(found)) == ("–", "", "")
    assert texts.verdict_words(found) == "no verdict"


@pytest.mark.parametrize(
    ("improved", "worsened", "shown"), [(222.0, 0.0, "222/0"), (221.5, 0.5, "221.5/0.5"), (1200.0, None, "–"), (None, 1.0, "–")]
)
def test_counts_of_language_pairs_stand_side_by_side(improved, worsened, shown) -> None:
    assert texts.sides(improved, worsened) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0.0, "0"),
        (0.05, "0.05"),
        (12_000.0, "12,000"),
        (123_456.0, "123,000"),
        (2e-5, "2e−5"),
        (-1.234e-4, "−1.23e−4"),
        (3.001, "3"),
        (1e7, "1e7"),
        (0.001, "0.001"),
    ],
)
def test_any_number_is_shown_with_three_digits(number, shown) -> None:
    assert cases.rate(number) == shown


def test_a_setting_of_another_table_than_that_of_tuning_says_which() -> None:
    runs = [make_run({RATE: 1e-8, "guard.limit": 0.1, "rehearsal.texts_per_step": count}) for count in (7, 14)]
    seen = overview_of(make_sweep(runs, varied=(RATE, "guard.limit", "rehearsal.texts_per_step")))
    assert [setting.label for setting in seen.settings] == ["learning rate", "guard limit", "rehearsal texts per step"]
