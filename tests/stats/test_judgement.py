"""The rule of verdicts: the whole table of decision 033, evidence by evidence."""

import math
from itertools import product

import numpy as np
import pytest

from adiabat.core.margin import FEWEST_UNITS
from adiabat.results.verdict import EXPLAINING, WORDS, Reason, Verdict
from adiabat.stats.clusters import FEWEST_CLUSTERS, Clusters
from adiabat.stats.judgement import Evidence, judge, shown_by
from adiabat.stats.paired import paired_changes
from adiabat.stats.samples import Sample

SHOWN = ("better", None, "worse")
EXCLUDED = (True, False, None)
FOUND = (Reason.MANY_COMPARISONS, Reason.NO_MARGIN, Reason.LOSS_POSSIBLE, Reason.FEW_UNITS)
"""What the rule itself adds."""

KNOWN = [reason for reason in Reason if reason not in FOUND]
DOUBTS = [Reason.TRAINING_UNKNOWN, Reason.SEEN_DOCUMENTS, Reason.NEAR_DUPLICATES]
DOUBTS += [Reason.RUNS_DIFFER, Reason.EQUAL_RUNS]


def judged(shown, excluded, *known: Reason, units: int = 300, **more) -> Verdict:
    return judge(Evidence(shown=shown, loss_excluded=excluded, units=units, known=known, **more))


@pytest.mark.parametrize(
    ("shown", "excluded", "verdict"),
    [
        *((word, excluded, Verdict(word)) for word in ("better", "worse") for excluded in EXCLUDED),
        (None, True, Verdict("not worse")),
        (None, False, Verdict("undecided", (Reason.LOSS_POSSIBLE,))),
        (None, None, Verdict("undecided", (Reason.NO_MARGIN,))),
    ],
)
def test_with_nothing_else_known_the_figures_decide(shown, excluded, verdict: Verdict) -> None:
    assert judged(shown, excluded) == verdict
    doubted = (*verdict.reasons, *DOUBTS)
    assert judged(shown, excluded, *DOUBTS) == Verdict(verdict.word, doubted)


@pytest.mark.parametrize(("shown", "excluded"), [*product(SHOWN, EXCLUDED)])
def test_each_row_of_the_table(shown, excluded) -> None:
    plain = judged(shown, excluded)
    for void in (Reason.TRAINED_ON, Reason.CELLS_OVER_RUNS):
        assert judged(shown, excluded, void) == Verdict("undecided", (void,))
    one = judged(shown, excluded, Reason.ONE_MODEL, Reason.TRAINED_ON, Reason.FEW_CLUSTERS, units=3)
    held, open_to = Verdict("not worse", (Reason.ONE_MODEL,)), Verdict("undecided", (Reason.NO_MARGIN,))
    assert one == (open_to if excluded is None else held)
    few = judged(shown, excluded, Reason.FEW_CLUSTERS)
    assert few == Verdict("worse" if shown == "worse" else "undecided", (Reason.FEW_CLUSTERS,))
    small = judged(shown, excluded, units=FEWEST_UNITS - 1)
    assert (small.word, Reason.FEW_UNITS in small.reasons) == (plain.word, True)
    # What does not hold among all comparisons is as if it were not shown.
    alone = judged(shown, excluded, holds=False)
    assert alone.word == judged(None, excluded).word
    assert (Reason.MANY_COMPARISONS in alone.reasons) == (shown is not None)
    kept = judged(shown, excluded, is_retained=True)
    assert kept.word == plain.word
    hides_loss = shown == "better" and excluded is False
    assert kept.reasons == ((Reason.LOSS_POSSIBLE,) if hides_loss else plain.reasons)


def test_no_evidence_makes_a_word_better_and_undecided_always_has_a_reason() -> None:
    better_first = ["better", "not worse", "undecided", "worse"]
    assert list(WORDS) == better_first
    everything = product(SHOWN, EXCLUDED, (FEWEST_UNITS - 1, 300), (True, False), (True, False))
    for shown, excluded, units, holds, is_retained in everything:
        options = {"units": units, "holds": holds, "is_retained": is_retained}
        without = judged(shown, excluded, **options)
        for reason in KNOWN:
            found = judged(shown, excluded, reason, **options)
            assert found.word != "undecided" or found.reasons
            assert list(found.reasons) == [each for each in Reason if each in found.reasons]
            good = ("better", "not worse")
            if reason is not Reason.ONE_MODEL:
                assert found.word not in good or found.word == without.word
                assert found.word in ("undecided", without.word)
            if found.word in good and reason not in EXPLAINING:
                assert reason in found.reasons


@pytest.mark.parametrize(
    ("interval", "p_value", "lower_is_better", "expected"),
    [
        ((0.1, 0.2), 0.01, False, "better"),
        ((0.1, 0.2), 0.01, True, "worse"),
        ((-0.2, -0.1), 0.01, False, "worse"),
        ((-0.2, -0.1), 0.01, True, "better"),
        ((0.0, 0.2), 0.01, False, None),
        ((-0.2, 0.0), 0.01, True, None),
        ((-0.1, 0.2), 0.3, False, None),
        ((0.1, 0.2), 0.06, False, None),
        ((0.1, 0.2), 0.05, False, None),
        ((0.1, 0.2), math.nan, False, None),
        ((math.nan, math.nan), 0.01, False, None),
        (None, 0.01, False, None),
    ],
)
def test_a_change_needs_an_interval_clear_of_zero_and_a_small_p_value(
    interval, p_value, lower_is_better, expected
) -> None:
    assert shown_by(interval, p_value=p_value, lower_is_better=lower_is_better) == expected


def test_dependent_units_that_are_drawn_singly_are_evidence_wherever_samples_are_compared() -> None:
    base = np.resize([0.5, 0.6], 100)
    few, enough = (Clusters(np.arange(100) % count) for count in (FEWEST_CLUSTERS - 1, FEWEST_CLUSTERS))
    gained = base + np.linspace(0.01, 0.03, 100)

    def compared(after, before, clusters):
        options = {"bounds": (0.0, 1.0), "clusters": clusters}
        sides = ([Sample("nDCG@10", values, **options)] for values in (after, before))
        return paired_changes(*sides, seed=0, resamples=200)[0]

    assert (compared(gained, base, enough).verdict, compared(gained, base, enough).reasons) == ("better", [])
    better, worse = compared(gained, base, few), compared(base, gained, few)
    assert (better.verdict, better.reasons) == ("undecided", [Reason.FEW_CLUSTERS])
    assert (worse.verdict, worse.reasons) == ("worse", [Reason.FEW_CLUSTERS])
    assert (better.loss_bound, better.needed) == (None, None)
    (level,) = paired_changes([Sample("nDCG@10", base, clusters=few)], None, seed=0, resamples=200)
    assert (level.verdict, level.reasons) == (None, [Reason.FEW_CLUSTERS])
