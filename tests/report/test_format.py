import math

import pytest

from adiabat.report import format as wording
from tests.report.sample_results import make_change


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0123456, "0.01235"),
        (12.3, "12.30"),
        (-0.5, "−0.5000"),
        (0.0, "0"),
        (0.99996, "1.0000"),
        (123456.0, "123,456"),
        (5e-8, "5.000e−08"),
    ],
)
def test_numbers_have_four_significant_digits_and_a_real_minus_sign(value, text):
    assert wording.number(value) == text


@pytest.mark.parametrize("exponent", range(-12, 14))
def test_a_number_read_back_is_within_half_a_unit_of_its_last_digit(exponent):
    value = 3.14159265 * 10.0**exponent
    read_back = float(wording.number(value).replace(wording.MINUS, "-").replace(",", ""))
    assert math.isclose(read_back, value, rel_tol=5e-4)


def test_what_rounds_to_zero_bears_no_sign():
    assert [wording.signed(value, decimals=1) for value in (-0.04, 0.04, 0.0)] == ["0.0"] * 3
    assert [wording.signed(value, decimals=1) for value in (-0.06, 1234.56)] == ["−0.1", "+1,234.6"]


@pytest.mark.parametrize("mark", "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
def test_a_name_is_rid_of_marks_that_turn_what_follows(mark):
    assert wording.cut_name(f"a{mark} b", limit=9) == "a\ufffd b"


def test_percentages_have_one_decimal():
    assert wording.improvement(make_change(0.5, 0.541, half_width=0.0155)) == "+8.2\xa0% [+5.1,\xa0+11.3]"


def test_percentages_get_more_decimals_where_one_would_hide_the_sign_of_a_bound():
    assert wording.improvement(make_change(0.5, 0.5005, half_width=0.0004)) == "+0.10\xa0% [+0.02,\xa0+0.18]"


def test_a_fall_of_what_should_be_low_is_an_improvement():
    assert wording.improvement(make_change(0.2, 0.1, measure="PND"), with_interval=False) == "+50.0\xa0%"
    assert wording.difference(make_change(0.2, 0.1, measure="PND")) == "−0.1000 [−0.1200,\xa0−0.0800]"


def test_the_plain_difference_stands_in_where_the_baseline_is_zero():
    assert wording.improvement(make_change(0.0, 0.05)) == "+0.0500 [+0.0300,\xa0+0.0700]"


def test_there_is_only_a_dash_without_a_baseline():
    change = make_change(None, 0.5)
    assert {
        wording.improvement(change),
        wording.difference(change),
        wording.z_value(change),
        wording.p_value(change),
        wording.verdict(change),
    } == {"–"}


def test_small_p_values_are_not_printed_as_zero():
    assert wording.p_value(make_change(0.5, 0.6)) == "<\xa00.001"


def test_verdicts_carry_a_shape():
    verdicts = [wording.verdict(make_change(0.5, after)) for after in (0.6, 0.4, 0.5)]
    assert verdicts == ["▲\xa0better", "▼\xa0worse", "○\xa0no\xa0evidence"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.26, "1.3\xa0s"), (59.4, "59\xa0s"), (59.7, "1\xa0min 0\xa0s"), (4521.0, "1\xa0h 15\xa0min")]
)
def test_durations_name_their_two_largest_units(seconds, text):
    assert wording.duration(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(1, "1\xa0query"), (0, "0\xa0queries"), (1200, "1,200\xa0queries")])
def test_counts_agree_with_their_noun(count, text):
    assert wording.counted(count, "query") == text


def test_middle_cuts_keep_both_ends():
    assert wording.cut_middle("encoder.layer.11.weight", limit=11) == "encod…eight"
    assert wording.cut_middle("short", limit=11) == "short"


@pytest.mark.parametrize(
    ("value", "said"), [(0.5, "50 %"), (0.0, "0 %"), (1.0, "100 %"), (0.9999, "> 99 %"), (0.0001, "< 1 %"), (0.985, "98 %")]
)
def test_a_share_is_never_rounded_to_certainty(value, said):
    assert wording.share(value).replace("\xa0", " ") == said
