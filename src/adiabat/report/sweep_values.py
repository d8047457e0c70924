"""Settings, outcomes and counts of a sweep as its page, tables and sentences show them: written and rounded alike."""

from collections.abc import Sequence

from adiabat.core.text import DASH, MINUS, NO_BREAK
from adiabat.report import format as wording
from adiabat.report.format import VERDICT_MARKS, decimals_for, signed
from adiabat.report.sweep_cases import Case, Outcome, Overview, key_of
from adiabat.results.evaluation_result import Verdict
from adiabat.results.sweep_result import Value

JOIN = " + "
"""Between the parts of a setting that is a list."""

ONLY = "the only setting"
"""What a case is called in a sweep that varies nothing."""

_VERDICTS: tuple[Verdict, ...] = ("better", "no evidence", "worse")


def setting_value(value: Value) -> str:
    """The value of a setting as it is written in a configuration, but for lists.

    Returns:
        For instance ``5e-8``, ``true``, ``embeddings + blocks[0]``; ``none`` for an empty list or text as for None.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return wording.setting(value)
    if isinstance(value, list):
        return JOIN.join(map(str, value)) or "none"
    return "none" if value is None else str(value) or "none"


def combination_label(labels: Sequence[str], values: Sequence[Value]) -> str:
    """Several settings in one line."""
    return ", ".join(f"{label} {setting_value(value)}" for label, value in zip(labels, values, strict=True))


def line_labels(view: Overview, places: Sequence[int], lines: Sequence[Sequence[Case]]) -> list[str]:
    """What tells lines of cases apart."""
    telling = [index for index in places if len(lines) == 1 or len({key_of(cases[0].values[index]) for cases in lines}) > 1]
    labels = [view.settings[index].label for index in telling]
    return [combination_label(labels, [cases[0].values[index] for index in telling]) for cases in lines]


def case_label(view: Overview, case: Case) -> str:
    """A case in one line, by the settings that differ in the sweep."""
    first, *others = [combination_label([view.settings[index].label], [case.values[index]]) for index in _differing(view)] or [ONLY]
    return " with ".join(filter(None, [first, " and ".join(filter(None, [", ".join(others[:-1]), *others[-1:]]))]))


def case_head(view: Overview) -> str:
    """What stands over cells that `case_cell` fills."""
    differing = _differing(view)
    return view.settings[differing[0]].label if len(differing) == 1 else "setting"


def case_cell(view: Overview, case: Case) -> str:
    """A case under `case_head`."""
    differing = _differing(view)
    return setting_value(case.values[differing[0]]) if len(differing) == 1 else case_label(view, case)


def _differing(view: Overview) -> list[int]:
    return [index for index, setting in enumerate(view.settings) if len(setting.values) > 1]


def gain(found: Outcome) -> str:
    """The mean improvement of a case."""
    if found.mean is None:
        return DASH
    return signed(found.mean, decimals=_decimals(found)) + (f"{NO_BREAK}%" if found.percent else "")


def gain_bounds(found: Outcome) -> str:
    """How far the improvement may be from its mean."""
    if found.bounds is None:
        return ""
    decimals = _decimals(found)
    if len(found.changes) == 1:
        return wording.interval(found.bounds, decimals=decimals)
    low, high = (signed(bound, decimals=decimals) for bound in found.bounds)
    return f"{low} to{NO_BREAK}{high}"


def _decimals(found: Outcome) -> int:
    shown = [*found.values, *(found.bounds or ())]
    return decimals_for(shown, least=1, most=3) if found.percent else decimals_for(shown, least=4, most=6)


def verdict_marks(found: Outcome) -> str:
    """Verdicts of the runs of a case."""
    counts = found.verdicts
    if len(counts) < 2:
        return "".join(VERDICT_MARKS[verdict] for verdict in counts)
    return " ".join(f"{VERDICT_MARKS[verdict]}{counts[verdict]}" for verdict in _VERDICTS if counts[verdict])


def verdict_words(found: Outcome) -> str:
    """The same in words."""
    counts = found.verdicts
    if len(counts) < 2:
        return next(iter(counts), "no verdict")
    first, *others = [(verdict, counts[verdict]) for verdict in _VERDICTS if counts[verdict]]
    rest = "".join(f", {verdict} in {count}" for verdict, count in others)
    return f"{first[0]} in {first[1]} of {counts.total()} seeds{rest}"


def count(value: float | None) -> str:
    """A mean of counts.

    Args:
        value: >= 0; None where nothing was counted.

    Returns:
        For instance ``222``, ``221.7``; an en dash for None.
    """
    if value is None:
        return DASH
    return wording.integer(int(value)) if value == int(value) else f"{value:,.1f}"


def sides(improved: float | None, worsened: float | None) -> str:
    """Counts of language pairs as the source has them.

    Args:
        improved: How many; None where nothing was counted.
    """
    return DASH if improved is None or worsened is None else f"{count(improved)}/{count(worsened)}"


def rate(value: float) -> str:
    """A number of any order of magnitude, for an axis or a cell."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{float(f'{value:.3g}'):,g}".replace("-", MINUS)
    digits, _, exponent = f"{value:.2e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}".replace("-", MINUS)
