import pytest

from adiabat.core.text import LARGEST_GRADE, cut, grade_of, number_of, printable, shown
from adiabat.stats.ranking_measures import ranking_measures


@pytest.mark.parametrize("length", [1, 9, 10, 11, 81, 100_000])
def test_cut_texts_keep_the_limit_and_end_in_an_ellipsis(length):
    text = cut("x" * length, limit=10)
    assert text == ("x" * length if length <= 10 else "x" * 9 + "…")
    # Blanks beyond the limit still mark the text as cut.
    assert cut("a" + " " * 200 + "b", limit=10) == "a…"


def test_characters_that_no_page_can_hold_are_replaced():
    assert printable("a\x00b\ud800c\ufffed\n\te\x85") == "a�b�c�d\n\te�"


def test_what_turns_words_around_or_hides_them_is_replaced_and_what_scripts_need_stays():
    assert printable("a\u202eb\u2066c\u2069d\U000e0041e\ufff9f") == "a�b�c�d�e�f"
    needed = "שלום\u200f می\u200cخواهم 👩\u200d👧 soft\u00adhyphen"
    assert printable(needed) == needed


@pytest.mark.parametrize(
    ("value", "number"), [("3", 3), (" -0.5 ", -0.5), ("1e-3", 0.001), (".5", 0.5), (7, 7), (0.25, 0.25)]
)
def test_numbers_are_read(value, number):
    assert number_of(value) == number


@pytest.mark.parametrize(
    "value",
    ["1_0", "\u0661", "", "three", "0x10", "nan", "-inf", "1e999", 10**400, float("nan"), float("inf")],
)
def test_what_other_programs_take_for_no_number_is_none(value):
    assert number_of(value) is None


def test_grades_are_whole_and_bounded():
    assert [grade_of(text) for text in ("0", "2", "-1", "2.0", "1000", "-1000")] == [0, 2, -1, 2, 1000, -1000]
    assert [grade_of(text) for text in ("1.5", "1001", "-1001", "1e300", "9" * 30, "1_0", "nan", "")] == [
        None
    ] * 8


def test_the_largest_grade_is_measured_right():
    run, qrels = {"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": 1, "b": LARGEST_GRADE, "c": -LARGEST_GRADE}}
    found = ranking_measures(run, qrels, ["nDCG@10"])["nDCG@10"]
    discount = 1 / 1.584962500721156
    assert found == pytest.approx((1 + LARGEST_GRADE * discount) / (LARGEST_GRADE + discount))


@pytest.mark.parametrize(
    ("value", "phrase"),
    [("high", "'high'"), (float("nan"), "nan"), ("9" * 61, f"'{'9' * 59}…'"), (10**400, f"1{'0' * 58}…")],
)
def test_values_are_shown_in_at_most_60_characters(value, phrase):
    assert shown(value) == phrase
