"""Numbers and sentences as people read them: one place that rounds, signs and cuts, for the page and the terminal alike."""

import math
import re
import unicodedata
from collections.abc import Sequence

from adiabat.core.text import DASH as DASH
from adiabat.core.text import MINUS as MINUS
from adiabat.core.text import NO_BREAK as NO_BREAK
from adiabat.core.text import UNITS as UNITS
from adiabat.core.text import amount as amount
from adiabat.core.text import counted as counted
from adiabat.core.text import cut as cut
from adiabat.core.text import cut_middle as cut_middle
from adiabat.core.text import duration as duration
from adiabat.core.text import integer as integer
from adiabat.core.text import printable as printable
from adiabat.core.text import share as share
from adiabat.results.evaluation_result import Change, Verdict

EVEN = "\N{ALMOST EQUAL TO}"
"""Beside a value: not measurably worse than the best."""

VERDICT_MARKS: dict[Verdict, str] = {
    "better": "\N{BLACK UP-POINTING TRIANGLE}",
    "worse": "\N{BLACK DOWN-POINTING TRIANGLE}",
    "no evidence": "\N{WHITE CIRCLE}",
}
"""A shape beside each verdict, so that colour never carries it alone."""

# Marks that turn the direction of all that follows up to an end of theirs, which may never come.
_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")


def cut_name(text: str, *, limit: int) -> str:
    """The beginning of a name that stands among other words, whose order it must not change."""
    return _TURNING.sub("\N{REPLACEMENT CHARACTER}", cut(text, limit=limit))


def number(value: float, *, digits: int = 4) -> str:
    """A number with a fixed count of significant digits, a real minus sign and no needless exponent."""
    size = abs(value)
    if value == 0:
        return "0"
    if size >= 10**digits:
        text = f"{value:,.0f}" if size < 1e15 else f"{value:.{digits - 1}e}"
    elif size >= 1e-4:
        text = f"{value:.{max(0, digits - 1 - math.floor(math.log10(size)))}f}"
    else:
        text = f"{value:.{digits - 1}e}"
    return text.replace("-", MINUS)


def setting(value: float) -> str:
    """A number as it is written in a configuration."""
    digits, _, exponent = f"{value:.6g}".partition("e")
    return f"{digits}e{int(exponent)}" if exponent else digits


def score(value: float) -> str:
    """A measure between 0 and 1, as a table shows it: four decimals, more digits only where those would all be zero."""
    return f"{value:.4f}".replace("-", MINUS) if abs(value) >= 0.001 or value == 0 else number(value, digits=2)


def signed(value: float, *, decimals: int) -> str:
    """A number with its sign and a fixed count of decimals."""
    rounded = f"{abs(value):,.{decimals}f}"
    if not rounded.strip("0.,"):
        return rounded
    return ("+" if value > 0 else MINUS) + rounded


def decimals_for(values: Sequence[float], *, least: int, most: int) -> int:
    """How many decimals keep every non-zero value away from a printed zero, so that an interval's sign stays visible."""
    for decimals in range(least, most):
        if all(value == 0 or round(abs(value), decimals) > 0 for value in values):
            return decimals
    return most


def interval(bounds: tuple[float, float], *, decimals: int) -> str:
    """An interval of signed numbers."""
    return f"[{signed(bounds[0], decimals=decimals)},{NO_BREAK}{signed(bounds[1], decimals=decimals)}]"


def value_interval(change: Change) -> str:
    """The interval of the value after."""
    if change.after_interval is None:
        return ""
    low, high = map(score, change.after_interval)
    return f"[{low},{NO_BREAK}{high}]"


def improvement(change: Change, *, with_interval: bool = True) -> str:
    """The improvement of a measure in percent, or its plain difference where the baseline is zero and percent means nothing."""
    if change.improvement is None:
        return difference(change, with_interval=with_interval)
    decimals = _percent_decimals(change)
    text = f"{signed(change.improvement, decimals=decimals)}{NO_BREAK}%"
    if not with_interval or change.improvement_interval is None:
        return text
    return f"{text} {interval(change.improvement_interval, decimals=decimals)}"


def improvement_interval(change: Change) -> str:
    """The paired interval of the improvement, percent, rounded as `improvement` rounds."""
    return "" if change.improvement_interval is None else interval(change.improvement_interval, decimals=_percent_decimals(change))


def difference(change: Change, *, with_interval: bool = True) -> str:
    """The difference after minus before."""
    if change.difference is None:
        return DASH
    text = signed(change.difference, decimals=_difference_decimals(change))
    return f"{text} {difference_interval(change)}" if with_interval and change.difference_interval is not None else text


def difference_interval(change: Change) -> str:
    """The paired interval of the difference, rounded as `difference` rounds."""
    return "" if change.difference_interval is None else interval(change.difference_interval, decimals=_difference_decimals(change))


def _percent_decimals(change: Change) -> int:
    return decimals_for([change.improvement or 0.0, *(change.improvement_interval or ())], least=1, most=3)


def _difference_decimals(change: Change) -> int:
    return decimals_for([change.difference or 0.0, *(change.difference_interval or ())], least=4, most=6)


def z_value(change: Change) -> str:
    """The z statistic to two decimals."""
    return DASH if change.z is None else signed(change.z, decimals=2)


def p_value(change: Change) -> str:
    """The paired p-value to three decimals."""
    if change.p is None:
        return DASH
    return f"<{NO_BREAK}0.001" if change.p < 0.001 else f"{change.p:.3f}"


def verdict(change: Change) -> str:
    """The verdict with its mark."""
    return DASH if change.verdict is None else marked(change.verdict)


def millions(parameters: int) -> str:
    """A number of parameters."""
    return f"{parameters / 1e6:,.1f}{NO_BREAK}M" if parameters >= 100_000 else f"{parameters:,}"


NAME_LENGTH = 60
"""Characters of a name that a sentence shows."""

MOST_NAMED = 4
"""Names in a row that a sentence holds."""


def named(name: str) -> str:
    """A name as it may stand in a sentence."""
    shown = cut_name(name, limit=NAME_LENGTH)
    if any(unicodedata.bidirectional(letter) in {"R", "AL"} for letter in shown):
        return f"\N{FIRST STRONG ISOLATE}{shown}\N{POP DIRECTIONAL ISOLATE}"
    return shown


def listed(names: Sequence[str]) -> str:
    """Names in a sentence."""
    if len(names) > MOST_NAMED:
        return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def value(number: float, *, decimals: int = 3) -> str:
    """A value of any measure, with more decimals only where it would look like zero."""
    return f"{number:.{decimals_for([number], least=decimals, most=6)}f}".replace("-", MINUS)


def value_bounds(bounds: tuple[float, float] | None, *, decimals: int = 3) -> str:
    """The interval of a value."""
    if bounds is None:
        return ""
    low, high = (value(bound, decimals=decimals) for bound in bounds)
    return f"[{low},{NO_BREAK}{high}]"


def paired_difference(change: Change) -> tuple[str, str]:
    """A difference and its interval, with as many digits as keep an end of it from looking like zero."""
    if change.difference is None:
        return DASH, ""
    shown = decimals_for([change.difference, *(change.difference_interval or ())], least=3, most=6)
    ends = interval(change.difference_interval, decimals=shown) if change.difference_interval else ""
    return signed(change.difference, decimals=shown), ends


def marked(verdict: Verdict) -> str:
    """A verdict with its mark."""
    return f"{VERDICT_MARKS[verdict]}{NO_BREAK}{verdict.replace(' ', NO_BREAK)}"


def difference_tick(value: float, _: int | None = None) -> str:
    """A difference below its tick, with as few decimals as show all of a round number."""
    return signed(value, decimals=next((decimals for decimals in range(4) if abs(value - round(value, decimals)) < 1e-9), 4))
