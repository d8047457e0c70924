"""`judge`: the one place where a verdict is made, from what the units show and what is known of them.

Whoever compares two models gathers the evidence first and judges once. Records keep word and reasons;
headlines, tables, colours and exit codes read them. `docs/decisions/033-one-verdict.md` has the table
*evidence x verdict*, and a test goes through it.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from adiabat.core.margin import FEWEST_UNITS
from adiabat.results.verdict import Reason, Verdict, Word
from adiabat.stats.student_t import Interval

ERROR_RATE = 0.05
"""Rate of false positives of a verdict."""

Shown = Literal["better", "worse"]

VOID = (Reason.TRAINED_ON, Reason.CELLS_OVER_RUNS)
"""With these, the units say nothing about others: any word would be a guess."""

NO_GOOD_NEWS = (Reason.FEW_CLUSTERS,)
"""With these, intervals are too narrow to prove a gain or to exclude a loss, but may warn of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that a verdict rests on.

    Attributes:
        shown: The change that interval and test show; None for none.
        loss_excluded: Whether the data exclude a loss of the margin; None where a share of the baseline is no
            margin.
        units: Number of units, or clusters of units, that are drawn.
        holds: Whether a shown change holds among all comparisons of its family; True for a single comparison.
        is_retained: Whether nothing may be lost on the units, so that a gain must exclude a loss too.
        known: What is known of units and models beside their values.
    """

    shown: Shown | None
    loss_excluded: bool | None
    units: int
    holds: bool = True
    is_retained: bool = False
    known: Collection[Reason] = ()


def judge(evidence: Evidence) -> Verdict:
    """The verdict on a comparison of two models.

    Args:
        evidence: What the units show, and what is known of them and of the models.

    Returns:
        ``better`` or ``worse`` if the change is shown, else ``not worse`` if a loss of the margin is
        excluded, else ``undecided``; limited by what is known, with the reasons in the order of `Reason`. An
        undecided verdict always has one.
    """
    known = set(evidence.known)
    if Reason.ONE_MODEL in known:
        return _of_one_model(evidence)
    if known.intersection(VOID):
        return _verdict("undecided", known)
    shown = evidence.shown if evidence.holds else None
    if evidence.shown and not evidence.holds:
        known.add(Reason.MANY_COMPARISONS)
    # Few units exclude no loss, but may show one: the reason limits no word by itself.
    if evidence.units < FEWEST_UNITS:
        known.add(Reason.FEW_UNITS)
    # Bad news counts even where intervals are too narrow: a warning may err, a promise must not.
    if shown == "worse":
        return _verdict("worse", known)
    if known.intersection(NO_GOOD_NEWS):
        return _verdict("undecided", known)
    if shown == "better":
        if evidence.is_retained and evidence.loss_excluded is False:
            known.add(Reason.LOSS_POSSIBLE)
        return _verdict("better", known)
    if evidence.loss_excluded:
        return _verdict("not worse", known)
    known.add(Reason.NO_MARGIN if evidence.loss_excluded is None else Reason.LOSS_POSSIBLE)
    return _verdict("undecided", known)


def shown_by(interval: Interval | None, *, p_value: float, lower_is_better: bool) -> Shown | None:
    """The change that a paired interval and p-value of ``after - before`` show together.

    Args:
        interval: Of the difference; one that touches zero, or None, shows nothing.
        p_value: Guards against intervals over too few changed units; it must be below `ERROR_RATE`.
        lower_is_better: Whether a fall is a gain.

    Returns:
        None if either shows nothing.
    """
    low, high = interval or (0.0, 0.0)
    excludes_zero = low > 0 or high < 0
    if not (excludes_zero and p_value < ERROR_RATE):
        return None
    return "better" if (high < 0) == lower_is_better else "worse"


def _of_one_model(evidence: Evidence) -> Verdict:
    """A model cannot be worse than itself on any units, but a share of nothing is no margin."""
    if evidence.loss_excluded is None:
        return _verdict("undecided", {Reason.NO_MARGIN})
    return _verdict("not worse", {Reason.ONE_MODEL})


def _verdict(word: Word, reasons: Collection[Reason]) -> Verdict:
    """The word with its reasons, in the order of `Reason`."""
    return Verdict(word, tuple(reason for reason in Reason if reason in reasons))
