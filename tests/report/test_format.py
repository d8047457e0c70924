"""Numbers as people read them."""

import json
import math

import pytest

from adiabat.core import text
from adiabat.report import format as formats
from tests.report.html_page import plain
from tests.report.sample_results import make_change


def test_numbers_have_four_significant_digits_and_a_real_minus_sign() -> None:
    assert [formats.number(value) for value in (0.0123456, 12.3, -0.5, 0.0)] == [
        "0.01235",
        "12.30",
        "−0.5000",
        "0",
    ]
    assert [formats.number(value) for value in (0.99996, 123456.0, 5e-8)] == [
        "1.0000",
        "123,456",
        "5.000e−08",
    ]


@pytest.mark.parametrize("exponent", range(-12, 14))
def test_a_number_read_back_is_within_half_a_unit_of_its_last_digit(exponent: int) -> None:
    value = 3.14159265 * 10.0**exponent
    assert math.isclose(float(formats.number(value).replace("−", "-").replace(",", "")), value, rel_tol=5e-4)


@pytest.mark.parametrize(
    ("change", "improvement", "difference"),
    [
        (make_change(0.5, 0.541, half_width=0.0155), "+8.2 % [+5.1, +11.3]", "+0.0410 [+0.0255, +0.0565]"),
        # More decimals where one would hide the sign of an end.
        (make_change(0.5, 0.5005, half_width=0.0004), "+0.10 % [+0.02, +0.18]", "+0.0005 [+0.0001, +0.0009]"),
        # Lower is better.
        (make_change(0.2, 0.1, measure="PND"), "+50.0 % [+40.0, +60.0]", "−0.1000 [−0.1200, −0.0800]"),
        # There are no percents of zero.
        (make_change(0.0, 0.05), "+0.0500 [+0.0300, +0.0700]", "+0.0500 [+0.0300, +0.0700]"),
        (make_change(None, 0.5), "–", "–"),
    ],
)
def test_changes_bear_a_sign_and_the_digits_that_their_intervals_need(
    change, improvement: str, difference: str
) -> None:
    assert plain(formats.improvement(change)) == improvement
    assert plain(formats.joined(*formats.difference(change))) == difference


def test_what_rounds_to_zero_bears_no_sign_and_a_small_p_value_is_not_zero() -> None:
    signed = [formats.signed(value, decimals=1) for value in (-0.04, 0.04, 0.0, -0.06, 1234.56)]
    assert signed == ["0.0", "0.0", "0.0", "−0.1", "+1,234.6"]
    assert plain(formats.p_value(make_change(0.5, 0.6))) == "< 0.001"
    assert formats.p_value(make_change(None, 0.5)) == "–"


def test_verdicts_carry_a_shape() -> None:
    verdicts = [formats.marked(make_change(0.5, after).verdict) for after in (0.6, 0.4, 0.5)]  # type: ignore[arg-type]
    shapes = [plain(verdict) for verdict in (*verdicts, formats.marked("not worse"))]
    assert shapes == ["▲ better", "▼ worse", "○ undecided", "■ not worse"]


@pytest.mark.parametrize("mark", "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
def test_a_name_is_rid_of_marks_that_turn_what_follows(mark: str) -> None:
    assert formats.cut_name(f"a{mark} b", limit=9) == "a\ufffd b"


def test_durations_counts_names_and_shares() -> None:
    durations = [plain(text.duration(seconds)) for seconds in (1.26, 59.4, 59.7, 4521)]
    assert durations == ["1.3 s", "59 s", "1 min 0 s", "1 h 15 min"]
    counts = [plain(text.counted(count, "query")) for count in (1, 0, 1200)]
    assert counts == ["1 query", "0 queries", "1,200 queries"]
    assert text.cut_middle("encoder.layer.11.weight", limit=11) == "encod…eight"
    assert text.cut_middle("short", limit=11) == "short"
    shares = [plain(text.share(share)) for share in (0.5, 0.0, 1.0, 0.985)]
    assert shares == ["50 %", "0 %", "100 %", "98 %"]
    # Never rounded to certainty.
    assert [plain(text.share(share)) for share in (0.9999, 0.0001)] == ["> 99 %", "< 1 %"]


@pytest.mark.parametrize("written", ["5e-8", "0.1", "-0.5", "2.5e20", "14", "123456789"])
def test_a_number_of_the_settings_is_shown_as_it_is_written(written: str) -> None:
    assert text.setting_text(json.loads(written)) == written


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1e-7 / 2**0.5, "7.07107e-8"),
        (1.0, "1"),
        (True, "true"),
        (False, "false"),
        ("adamw", "adamw"),
        ("", "none"),
        (None, "none"),
        ([], "none"),
        (["embeddings", "blocks[0]"], "embeddings + blocks[0]"),
    ],
)
def test_other_settings_are_rounded_or_shown_in_words(value: object, shown: str) -> None:
    assert text.setting_text(value) == shown


def test_any_number_is_shown_with_three_digits() -> None:
    large = [formats.three_digits(number) for number in (0.0, 12_000.0, 123_456.0, 1e7, 3.001)]
    assert large == ["0", "12,000", "123,000", "1e7", "3"]
    small = [formats.three_digits(number) for number in (0.05, 0.001, 2e-5, -1.234e-4)]
    assert small == ["0.05", "0.001", "2e−5", "−1.23e−4"]
