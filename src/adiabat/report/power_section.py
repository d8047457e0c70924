"""The section on the power of data sets, on the pages of evaluations and tuning jobs."""

from collections.abc import Sequence

from adiabat.core.text import DASH, NO_BREAK, counted, cut, two_digits
from adiabat.report.pages import Group, group
from adiabat.report.tables import Cell, Contents, Table
from adiabat.results.power_record import Power
from adiabat.results.record import Ends


def assumptions(powers: Sequence[Power]) -> list[str]:
    """The assumptions behind predictions, each once."""
    return sorted({assumption(power) for power in powers} - {""})


def assumption(power: Power) -> str:
    """The assumption behind a prediction; "" if differences were observed."""
    if power.spread is None or power.spread_range is None or not power.varies:
        return ""
    low, high = power.spread_range
    return (
        f"No tuned model was measured: it is assumed that tuning changes scores by {power.spread:g} times "
        f"their spread over queries; earlier tunings did by {low:g} to {high:g}."
    )


def finding(power: Power) -> str:
    """What a set could show and exclude, without the assumption behind a prediction."""
    name = _name(power)
    here = f"{counted(power.units, power.unit)} ({power.measure} {power.before:.3f})"
    if not power.varies:
        # A prediction has the scores of queries alone, before any tuning.
        equal = "differences" if power.spread is None else "scores"
        return f"{name}the power of {here} is unknown, because all {equal} are equal."
    shown, excluded = _shown(power), _excluded(power)
    return f"{name}{here} {shown} and {excluded}{_for_margin(power)}."


def in_brief(power: Power) -> str:
    """The gains that a set shows, and the units that it lacks, in one line."""
    gain, _ = improvement(power)
    if not gain or not power.varies:
        return finding(power)
    units = counted(power.units, power.unit)
    return f"{_name(power)}{units} show gains of {gain} or more{_for_margin(power)}"


def _name(power: Power) -> str:
    """The name of a set before its finding; "" for a set without one."""
    return f"{power.name}: " if power.name else ""


def _for_margin(power: Power) -> str:
    """The number of units that the margin needs, as the end of a sentence; "" if these suffice."""
    if power.needed is None:
        return ""
    return f"; excluding a loss of {power.margin_text} takes about {_about_needed(power)}"


def _about_needed(power: Power) -> str:
    """The units needed, to two digits since this is an estimate, and more than there are; "" for none."""
    if power.needed is None:
        return ""
    needed = max(two_digits(power.needed), power.units + 1)
    return counted(needed, power.unit)


def _shown(power: Power) -> str:
    """The gain that a set would show."""
    gain, ends = improvement(power)
    if gain:
        return f"show gains of {_about(power, gain, ends)} or more with 80{NO_BREAK}% probability"
    if power.detectable is None or power.room is None:
        return "cannot show any gain"
    return f"cannot show any gain, because even a perfect score gains only {_size(power, power.room)},"


def _excluded(power: Power) -> str:
    """The loss that a set would exclude."""
    if power.losable == 0:
        return "have no loss to exclude"
    lost, ends = loss(power)
    if not lost:
        return "cannot exclude any loss"
    return f"exclude losses of {_about(power, lost, ends)} or more"


def _about(power: Power, value: str, ends: str) -> str:
    """A difference with its range; predicted ones are said to be estimates."""
    about = value if power.spread is None else f"about {value}"
    return f"{about} ({ends})" if ends else about


def improvement(power: Power) -> tuple[str, str]:
    """The improvement that would show, and its range; empty texts if the measure allows none that large."""
    # A gain that exceeds what the measure can still gain never shows.
    if power.detectable is None or (power.room is not None and power.detectable > power.room):
        return "", ""
    return _with_range(power, power.detectable, power.detectable_range, power.room)


def loss(power: Power) -> tuple[str, str]:
    """The loss that would be excluded, and its range; empty texts if no less than all would be."""
    # Nothing can lose more than it has.
    if power.excludable is None or (power.losable is not None and power.excludable >= power.losable):
        return "", ""
    return _with_range(power, power.excludable, power.excludable_range, power.losable)


def _with_range(power: Power, value: float, ends: Ends | None, most: float | None) -> tuple[str, str]:
    """A difference, and those at the lowest and the highest spread of earlier tunings."""
    size = _size(power, value)
    if ends is None:
        return size, ""
    low, high = (_size(power, end) for end in ends)
    if low == high:
        return size, ""
    # An end that the measure cannot reach is no difference that anyone could see.
    if most is not None and ends[1] > most:
        return size, f"{low} or more"
    return size, f"{low} to {high}"


def _size(power: Power, value: float) -> str:
    """A difference in percent of the baseline, or in the measure's own unit where the baseline is 0."""
    # There are no percents of zero.
    if power.before <= 0:
        return _two_digits(value)
    return f"{_two_digits(100 * value / power.before)}{NO_BREAK}%"


def _two_digits(value: float) -> str:
    """A number with two digits, without an exponent where it is short."""
    rounded = float(f"{value:.2g}")
    return f"{rounded:g}"


def power_section(powers: Sequence[Power]) -> Group | None:
    """What each set could show, and the assumption behind a prediction; None without sets."""
    if not powers:
        return None
    rows: list[Contents] = []
    for power in powers:
        name, units = cut(power.name, limit=120), counted(power.units, power.unit)
        row: Contents = {
            "data set": Cell(name, [units], bold=True),
            "measure": Cell(power.measure, [f"{power.before:.3f}"]),
            "improvement that would show": _range_cell(*improvement(power)),
            "loss that would be excluded": _range_cell(*loss(power)),
            "margin": power.margin_text,
            "needed for the margin": _about_needed(power),
        }
        rows.append(row)
    table = Table.of(rows, {"measure": "text"}, look="stack", caption=assumptions(powers))
    return group("power", "power", table)


def _range_cell(value: str, ends: str) -> Cell:
    """A difference with its range below."""
    return Cell(value or DASH, [ends])
