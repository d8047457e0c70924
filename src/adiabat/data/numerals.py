"""Numbers as data files write them, and what is said of a value that is none."""

import math

from adiabat.excerpts import cut

LARGEST_GRADE = 1_000
"""Of relevance. trec_eval's nDCG takes time with the square of a grade: half a millisecond a query for this one, minutes for 1,000,000.
Grades beyond 64 bits it would take for others."""

A_GRADE = f"a whole number from -{LARGEST_GRADE:,} to {LARGEST_GRADE:,}"
"""What a grade must be, for messages."""

GRADING = "grade documents by small whole numbers, such as 0 to 3"

_SHOWN_CHARACTERS = 60


def number_of(value: str | int | float) -> float | None:
    """The number that a value is.

    Returns:
        The number, None where it is none, or not finite.
    """
    # Python reads 1_0 as 10, and the digits of every script; no other program that reads such files does.
    if isinstance(value, str) and ("_" in value or not value.isascii()):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def grade_of(text: str) -> int | None:
    """The relevance that a text is.

    Returns:
        The grade, None where it is not `A_GRADE`.
    """
    number = number_of(text)
    return int(number) if number is not None and number.is_integer() and abs(number) <= LARGEST_GRADE else None


def shown(value: object) -> str:
    """A value for a message, a text in quotes."""
    return repr(cut(value, limit=_SHOWN_CHARACTERS)) if isinstance(value, str) else cut(repr(value), limit=_SHOWN_CHARACTERS)
