"""Texts and numbers for messages and pages: truncation, printable characters, number formats, and parsing of
numbers in data files.
"""

import math
import re
from collections.abc import Mapping

IN_WORDS: Mapping[str, str] = {"cosine": "cosine", "dot": "dot product", "distance": "Euclidean distance"}

WITH_BM25 = "with BM25"
"""Added to the name of a model whose ranking is fused."""

MINUS, DASH, ELLIPSIS, NO_BREAK = (
    "\N{MINUS SIGN}",
    "\N{EN DASH}",
    "\N{HORIZONTAL ELLIPSIS}",
    "\N{NO-BREAK SPACE}",
)


def cut_middle(text: str, *, limit: int) -> str:
    """Keep both ends of a name, with an ellipsis between them, because parameter names differ at either
    end.
    """
    flat = " ".join(printable(text).split())
    if len(flat) <= limit:
        return flat
    head = (limit - 1) // 2
    return flat[:head] + ELLIPSIS + flat[-(limit - 1 - head) :]


def integer(value: int) -> str:
    """A count with separators between thousands."""
    return f"{value:,}".replace("-", MINUS)


def two_digits(value: float) -> int:
    """An estimated count, to two digits."""
    return int(float(f"{value:.2g}"))


def duration(seconds: float) -> str:
    """A duration in its two largest units."""
    if seconds < 10:
        return f"{seconds:.1f}{NO_BREAK}s"
    total = round(seconds)
    if total < 60:
        return f"{total}{NO_BREAK}s"
    minutes, remainder = divmod(total, 60)
    if minutes < 60:
        return f"{minutes}{NO_BREAK}min {remainder}{NO_BREAK}s"
    if minutes < 60 * 48:
        return f"{minutes // 60}{NO_BREAK}h {minutes % 60}{NO_BREAK}min"
    return f"{minutes // 1440}{NO_BREAK}d {minutes % 1440 // 60}{NO_BREAK}h"


def counted(count: int, noun: str) -> str:
    """A count with its noun."""
    return f"{integer(count)}{NO_BREAK}{numbered(noun, count)}"


def numbered(noun: str, count: float) -> str:
    """A noun in the singular or the plural."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return noun if count == 1 else plural


def verb(count: float, singular: str, plural: str) -> str:
    """The form of a verb that agrees with a count, such as has and have."""
    return singular if count == 1 else plural


def setting(value: float) -> str:
    """A number as written in a configuration file."""
    # Python writes 1e-05, a file 1e-5.
    digits, _, exponent = f"{value:.6g}".partition("e")
    return f"{digits}e{int(exponent)}" if exponent else digits


def setting_text(value: object) -> str:
    """A setting as written in a configuration file; lists as ``embeddings + blocks[0]``, and ``none`` if
    empty.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return setting(value)
    if isinstance(value, list):
        return " + ".join(map(str, value)) or "none"
    return "none" if value is None else str(value) or "none"


def flop(budget: float) -> str:
    """A number of operations."""
    return f"{budget:.3g} FLOP"


def share(value: float) -> str:
    """A probability in percent, never rounded to certainty."""
    percent = 100 * value
    if 0 < percent < 1:
        return f"<{NO_BREAK}1{NO_BREAK}%"
    if 99 < percent < 100:
        return f">{NO_BREAK}99{NO_BREAK}%"
    return f"{percent:.0f}{NO_BREAK}%"


def amount(size: int | None) -> str:
    """An amount of memory in bytes; "" for None."""
    if not size:
        return ""
    if size < 2**10:
        return counted(size, "byte")
    # Each unit is 2^10 of the one before: log2 of the size, over 10, is the number of the unit.
    power = min(int(math.log2(size)) // 10, 4)
    return f"{size / 2 ** (10 * power):.1f} {'KMGT'[power - 1]}iB"


# Controls (line ends and tabs apart), lone surrogates and non-characters cannot stand in an HTML or SVG text.
# What overrides the direction of the text behind it, marks of annotations and tags, which nobody sees, make a
# page or a terminal show other words than are there; joiners and the marks of direction that right-to-left
# texts need do not, nor does an isolate that is closed and holds none of these.
_MISLEADING = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"
    "\u202a-\u202e\u2066-\u206f\ufff9-\ufffb\U000e0000-\U000e007f"
)
_UNPRINTABLE = re.compile(f"(\u2068[^{_MISLEADING}]*\u2069)|[{_MISLEADING}]")


def printable(text: str) -> str:
    """The text with every character that HTML cannot hold, or that disguises text, replaced by U+FFFD."""
    return _UNPRINTABLE.sub(lambda match: match[1] or "\N{REPLACEMENT CHARACTER}", text)


def cut(text: str, *, limit: int) -> str:
    """The beginning of a text, with an ellipsis if something was left out."""
    # Do not normalise a huge text whole, only as much as can be shown.
    flat = " ".join(printable(text[: 8 * limit]).split())
    if len(flat) <= limit and len(text) <= 8 * limit:
        return flat
    return flat[: limit - 1].rstrip() + ELLIPSIS


LARGEST_GRADE = 1_000
"""Of relevance. trec_eval's nDCG takes time with the square of a grade: half a millisecond a query for this
one, minutes for 1,000,000. Grades beyond 64 bits it would take for others."""

A_GRADE = f"a whole number from -{LARGEST_GRADE:,} to {LARGEST_GRADE:,}"
"""Description of a valid grade, for messages."""

GRADING = "grade documents by small whole numbers, such as 0 to 3"


def number_of(value: str | int | float) -> float | None:
    """Convert a value to a number; None if it is not a finite number."""
    # Python reads 1_0 as 10, and digits of every script; other programs that read such files do not.
    if isinstance(value, str) and ("_" in value or not value.isascii()):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def grade_of(text: str) -> int | None:
    """Convert a text to a relevance grade; None if it is not `A_GRADE`."""
    number = number_of(text)
    is_grade = number is not None and number.is_integer() and abs(number) <= LARGEST_GRADE
    return int(number) if number is not None and is_grade else None


def shown(value: object) -> str:
    """A value for a message, a text in quotes."""
    return repr(cut(value, limit=60)) if isinstance(value, str) else cut(repr(value), limit=60)
