"""Tables for other programs."""

import csv
import io

import pytest

from adiabat.report.csv_tables import LENGTH, cell, csv_of


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        (True, "yes"),
        (False, "no"),
        (0.1 + 0.2, "0.30000000000000004"),
        (-0.5, "-0.5"),
        (3, "3"),
        ("name", "name"),
        ("=1+1", "'=1+1"),
        ("-1", "'-1"),
        (" =1", "'=1"),
        ("a\nb", "a b"),
        ("a\u202eb", "a\ufffdb"),
    ],
)
def test_a_cell_is_text_or_a_number_with_all_its_digits(value, shown) -> None:
    assert cell(value) == shown


def test_a_text_without_end_is_cut() -> None:
    assert len(cell("x" * 10 * LENGTH)) == LENGTH


def test_a_table_is_read_back_cell_by_cell() -> None:
    rows = [["a", 0.5, None], ['with "quotes", and commas', -1, True]]
    text = csv_of(("name", "value", "known"), rows)
    assert list(csv.reader(io.StringIO(text))) == [["name", "value", "known"], ["a", "0.5", ""], ['with "quotes", and commas', "-1", "yes"]]
    assert "\r" not in text
