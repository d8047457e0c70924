"""Values of a suite as its page and tables show them: rounded alike, with their intervals."""

from adiabat.core.text import DASH, MINUS, NO_BREAK, integer
from adiabat.report.wording import decimals_for, interval, signed
from adiabat.results.evaluation_result import Change
from adiabat.results.suite_result import Score


def level(score: Score, *, decimals: int = 3) -> str:
    """A value with its interval."""
    return " ".join(filter(None, [value(score.value, decimals=decimals), bounds(score, decimals=decimals)]))


def value(number: float, *, decimals: int = 3) -> str:
    """A value of any measure."""
    return f"{number:.{decimals_for([number], least=decimals, most=6)}f}".replace("-", MINUS)


def figure(number: float) -> str:
    """A figure that is no measure: a count, or a share."""
    return integer(int(number)) if number.is_integer() else value(number)


def bounds(score: Score, *, decimals: int = 3) -> str:
    """The interval of a value."""
    if score.interval is None:
        return ""
    low, high = (value(bound, decimals=decimals) for bound in score.interval)
    return f"[{low},{NO_BREAK}{high}]"


def difference(change: Change) -> str:
    """A difference with its interval, with as many digits as keep an end of it from looking like zero."""
    if change.difference is None:
        return DASH
    shown = decimals_for([change.difference, *(change.difference_interval or ())], least=3, most=6)
    ends = [interval(change.difference_interval, decimals=shown)] if change.difference_interval else []
    return " ".join([signed(change.difference, decimals=shown), *ends])
