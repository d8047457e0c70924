import pytest

from adiabat.core.text import cut, printable


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
