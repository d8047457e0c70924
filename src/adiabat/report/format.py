"""Formatting of numbers and sentences, shared by pages and terminal: rounding, signs and truncation."""

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial

from adiabat.core.text import DASH, MINUS, NO_BREAK, cut, integer
from adiabat.core.text import setting as setting
from adiabat.results.evaluation_result import Change
from adiabat.results.record import Ends
from adiabat.results.verdict import Word

Format = Callable[[float], str]
"""The text of a number."""

EVEN = "\N{ALMOST EQUAL TO}"
"""Mark of a value that is not measurably worse than the best."""

VERDICT_MARKS: dict[Word, str] = {
    "better": "\N{BLACK UP-POINTING TRIANGLE}",
    "not worse": "\N{BLACK SQUARE}",
    "undecided": "\N{WHITE CIRCLE}",
    "worse": "\N{BLACK DOWN-POINTING TRIANGLE}",
}
"""A shape for each verdict, so that colour is never the only sign."""

# Marks that turn the direction of all that follows up to an end of theirs, which may never come.
_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")

NAME_LENGTH = 60
"""Maximum characters of a name in a sentence."""

MOST_NAMED = 4
"""Maximum number of names in a sentence."""


def cut_name(text: str, *, limit: int) -> str:
    """The beginning of a name among other words, isolated so that it cannot change their direction."""
    return _TURNING.sub("\N{REPLACEMENT CHARACTER}", cut(text, limit=limit))


def named(name: str) -> str:
    """A name for use in a sentence."""
    text = cut_name(name, limit=NAME_LENGTH)
    if any(unicodedata.bidirectional(letter) in {"R", "AL"} for letter in text):
        return f"\N{FIRST STRONG ISOLATE}{text}\N{POP DIRECTIONAL ISOLATE}"
    return text


def listed(names: Sequence[str]) -> str:
    """Names in a sentence."""
    if len(names) > MOST_NAMED:
        return first_few(names, separator=", ")
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def first_few(clauses: Sequence[str], *, separator: str = "; ", location: str = "") -> str:
    """The first clauses, and the number of the others."""
    first = separator.join(clauses[:MOST_NAMED])
    more = len(clauses) - MOST_NAMED
    return f"{first} and {more} more{location}" if more > 0 else first


def joined(*texts: str) -> str:
    """Join non-empty texts with spaces."""
    return " ".join(filter(None, texts))


def number(value: float, *, digits: int = 4) -> str:
    """A number with a fixed count of significant digits, a real minus sign and no unnecessary exponent."""
    size = abs(value)
    if value == 0:
        return "0"
    # Zeros before or behind the digits become an exponent where they are many.
    text = f"{value:.{digits - 1}e}"
    if 10**digits <= size < 1e15:
        text = f"{value:,.0f}"
    elif 1e-4 <= size < 10**digits:
        magnitude = math.floor(math.log10(size))
        text = f"{value:.{max(0, digits - 1 - magnitude)}f}"
    return text.replace("-", MINUS)


def if_known(value: float | None, text: Format) -> str | None:
    """The text of a number; None for None, which tables show as a dash."""
    return None if value is None else text(value)


def whole(value: float) -> str:
    """The nearest integer, for an axis of counts."""
    return integer(round(value))


def percent_tick(value: float) -> str:
    """A share in percent, for an axis."""
    return f"{100 * value:g} %"


def three_digits(value: float) -> str:
    """A number of any magnitude with three digits, for an axis or a cell."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        rounded = float(f"{value:.3g}")
        return f"{rounded:,g}".replace("-", MINUS)
    digits, _, exponent = f"{value:.2e}".partition("e")
    short = digits.rstrip("0").rstrip(".")
    return f"{short}e{int(exponent)}".replace("-", MINUS)


def score(value: float) -> str:
    """A measure: four decimals, more only if all of those would be zero."""
    if 0 < abs(value) < 0.001:
        return number(value, digits=2)
    return f"{value:.4f}".replace("-", MINUS)


def value(number: float, *, decimals: int = 3) -> str:
    """A value of any measure, with more decimals only if it would look like zero."""
    digits = decimals_for([number], least=decimals, most=6)
    return f"{number:.{digits}f}".replace("-", MINUS)


def bounds(ends: Ends | None, text: Format = score) -> str:
    """An interval; "" for None."""
    if ends is None:
        return ""
    low, high = ends
    return f"[{text(low)},{NO_BREAK}{text(high)}]"


def signed(value: float, *, decimals: int) -> str:
    """A number with its sign and a fixed count of decimals."""
    # A number that rounds to zero has no sign.
    rounded = f"{abs(value):,.{decimals}f}"
    if not rounded.strip("0.,"):
        return rounded
    return ("+" if value > 0 else MINUS) + rounded


def interval(ends: Ends | None, *, decimals: int) -> str:
    """An interval of signed numbers."""
    return bounds(ends, partial(signed, decimals=decimals))


def decimals_for(values: Sequence[float], *, least: int, most: int) -> int:
    """Number of decimals at which no non-zero value is printed as zero, so that an interval's sign stays
    visible.
    """
    for decimals in range(least, most):
        if all(value == 0 or round(abs(value), decimals) > 0 for value in values):
            return decimals
    return most


def signed_pair(value: float | None, ends: Ends | None, *, least: int, most: int) -> tuple[str, str]:
    """A signed number and its interval, rounded alike; a dash and "" without a number."""
    if value is None:
        return DASH, ""
    decimals = decimals_for([value, *(ends or ())], least=least, most=most)
    return signed(value, decimals=decimals), interval(ends, decimals=decimals)


def percent(change: Change) -> tuple[str, str]:
    """The improvement in percent and its paired interval; a dash if the baseline is zero."""
    text, ends = signed_pair(change.improvement, change.improvement_interval, least=1, most=3)
    if change.improvement is not None:
        text += f"{NO_BREAK}%"
    return text, ends


def possible_losses(change: Change) -> tuple[str, str]:
    """The largest loss that the data allow, and the largest by the spread of the units alone; "" for one that
    is unknown.
    """
    return _possible_loss(change, change.loss_bound), _possible_loss(change, change.loss_by_spread)


def _possible_loss(change: Change, loss: float | None) -> str:
    """A loss in percent of the baseline, or in the measure's unit where the baseline is not above 0."""
    if loss is None or change.before is None or change.most is None:
        return ""
    # No loss is larger than all that there is, and a certain gain allows none.
    size = max(0.0, min(loss, change.most))
    if change.before <= 0:
        return number(size, digits=3)
    return f"{100 * size / change.before:.1f}{NO_BREAK}%"


def difference(change: Change, *, least: int = 4) -> tuple[str, str]:
    """The difference (after minus before) and its paired interval."""
    return signed_pair(change.difference, change.difference_interval, least=least, most=6)


def improvement(change: Change) -> str:
    """The improvement with its interval, or the plain difference where there is no percentage."""
    if change.improvement is None:
        return joined(*difference(change))
    return joined(*percent(change))


def p_value(change: Change) -> str:
    """The paired p-value to three decimals."""
    if change.p is None:
        return DASH
    if change.p < 0.001:
        return f"<{NO_BREAK}0.001"
    return f"{change.p:.3f}"


def marked(verdict: Word) -> str:
    """A verdict with its mark."""
    # A badge that breaks into two lines looks like two.
    word = verdict.replace(" ", NO_BREAK)
    return f"{VERDICT_MARKS[verdict]}{NO_BREAK}{word}"


def millions(parameters: int) -> str:
    """A number of parameters."""
    # Below a tenth of a million, one decimal of millions says too little.
    if parameters < 100_000:
        return f"{parameters:,}"
    return f"{parameters / 1e6:,.1f}{NO_BREAK}M"


def difference_tick(value: float) -> str:
    """A difference for a tick label, with just enough decimals for a round number."""
    decimals = 0
    # The tolerance covers what rounding leaves of 0.1 + 0.2.
    while decimals < 4 and abs(value - round(value, decimals)) >= 1e-9:
        decimals += 1
    return signed(value, decimals=decimals)
