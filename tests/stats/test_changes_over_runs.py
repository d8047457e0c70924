"""Means of two models over runs of several seeds: intervals over units and seeds, against their parts, and
what must hold of them.
"""

import math
from dataclasses import asdict

import numpy as np
import pytest
from scipy import stats

from adiabat.results.evaluation_result import Change
from adiabat.stats.jackknife import Jackknife
from adiabat.stats.paired import changes_over_runs, paired_changes
from adiabat.stats.quantity import RunSpread
from adiabat.stats.samples import Sample
from tests.stats.test_paired import change, noisy, quantile_by_johnson, sample
from tests.stats.test_statistics import clusters, precision, spearman


def run_of(scores: np.ndarray, *, seed: int, moved: float = 0.0) -> Sample:
    return sample(scores + moved + np.random.default_rng(seed).normal(0, 0.02, scores.size))


def over(after, before, *, seed: int = 0, resamples: int = 1000) -> Change:
    """The one change between runs of two models."""
    runs = None if before is None else [before]
    return changes_over_runs([after], runs, seed=seed, resamples=resamples)[0]


def parts_of(after, before) -> tuple[np.ndarray, float, float]:
    """The differences of means over runs, and the variances of their mean from runs and from units, in loops.

    A model of one run stands for itself.
    """
    sides = [np.stack([run.values for run in side]) for side in (after, before)]
    freedom, units = sum(len(side) - 1 for side in sides), sides[0].shape[1]
    share = sum(1 / len(side) for side in sides if len(side) > 1)
    variance = sum(((side.mean(axis=1) - side.mean()) ** 2).sum() for side in sides) / freedom
    apart = [row - side.mean(axis=0) for side in sides for row in side]
    over_units = sum(row.var(ddof=1) / units for row in apart) / freedom
    difference = sides[0].mean(axis=0) - sides[1].mean(axis=0)
    return difference, variance * share, difference.var(ddof=1) / units - over_units * share


def check_interval(found: Change, after, before, freedom: float) -> tuple[float, float]:
    """Half widths in standard errors, downwards and upwards, that an interval with this freedom has."""
    difference, of_runs, of_units = parts_of(after, before)
    error = math.sqrt(of_units + of_runs)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(found.difference) / error, freedom))
    skewness = Jackknife.of(sample(difference)).acceleration() * (of_units / error**2) ** 1.5
    down, up = (quantile_by_johnson(freedom, a) for a in (skewness, -skewness))
    ends = (found.difference - down * error, found.difference + up * error)
    assert found.difference_interval == pytest.approx(ends)
    return down, up


def test_one_run_of_either_is_the_comparison_of_two_models():
    scores = np.random.default_rng(0).random(50)
    after, before = run_of(scores, seed=1), run_of(scores, seed=2)
    (paired,) = paired_changes([after], [before], seed=4, resamples=300)
    assert asdict(over([after], [before], seed=4, resamples=300)) == asdict(paired)


def test_an_interval_over_runs_agrees_with_its_parts_put_together():
    random = np.random.default_rng(0)
    scores, gains = random.random(40), random.exponential(0.05, 40)
    after = [run_of(scores + gains, seed=i, moved=0.01 * i) for i in range(3)]
    before = [run_of(scores, seed=9), run_of(scores, seed=10)]
    found = over(after, before, seed=4, resamples=800)
    _, of_runs, of_units = parts_of(after, before)
    # Deviations of three and two runs have three degrees of freedom together.
    freedom = (of_units + of_runs) ** 2 / (of_units**2 / 39 + of_runs**2 / 3)
    down, up = check_interval(found, after, before, freedom)
    assert max(down, up) > stats.t.ppf(0.975, freedom)
    # A t statistic with this mean passes the quantile four times in five; the error itself is estimated too
    # low by the factor c4.
    c4 = math.sqrt(2 / freedom) * math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2)
    shift = found.detectable * c4 / math.sqrt(of_units + of_runs)
    assert stats.nct.sf((down + up) / 2, freedom, shift) == pytest.approx(0.8, abs=1e-3)


def test_two_runs_beside_one_are_known_by_their_share_of_the_variance():
    """f = 1 / ((1 - r)^2 / (n - 1) + r), r the share of runs in the variance."""
    scores = np.random.default_rng(0).random(30)
    after, before = [run_of(scores, seed=i, moved=0.02 * i) for i in range(2)], [run_of(scores, seed=9)]
    _, of_runs, of_units = parts_of(after, before)
    share = of_runs / (of_runs + of_units)
    freedom = 1 / ((1 - share) ** 2 / 29 + share)
    check_interval(over(after, before, resamples=10), after, before, freedom)


def test_nothing_is_drawn_over_runs():
    scores = np.random.default_rng(0).random(50)
    runs, start = [run_of(scores, seed=i, moved=0.02 * i) for i in range(3)], [run_of(scores, seed=9)]
    assert over(runs, start, seed=0, resamples=10) == over(runs, start, seed=1, resamples=20)


def test_few_changed_units_are_no_evidence_over_runs():
    """Five of 50 units gain the same in each run: as for sign flips, p is at least 2^-4."""
    scores = np.random.default_rng(0).random(50)
    gained = scores + 0.3 * (np.arange(50) < 5)
    found = over([sample(gained)] * 2, [sample(scores)], resamples=10)
    assert (found.p, found.verdict) == (2**-4, "undecided")


def test_the_value_over_runs_is_their_mean():
    scores = np.random.default_rng(0).random(50)
    after = [run_of(scores, seed=i, moved=0.1) for i in range(3)]
    before = [run_of(scores, seed=9), run_of(scores, seed=10)]
    found = over(after, before, seed=4, resamples=500)
    assert found.after == pytest.approx(np.mean([one.values.mean() for one in after]))
    assert found.before == pytest.approx(np.mean([one.values.mean() for one in before]))
    assert found.difference == pytest.approx(found.after - found.before)
    assert (found.test, found.verdict, found.z) == ("t test", "better", None)


def test_runs_that_differ_widen_the_intervals():
    scores = np.random.default_rng(0).random(200)
    runs = [[run_of(scores, seed=i, moved=by * (i - 1)) for i in range(3)] for by in (0.0, 0.1)]
    narrow, wide = (over(each, [sample(scores)]) for each in runs)
    assert np.ptp(wide.difference_interval) > 5 * np.ptp(narrow.difference_interval)
    assert wide.detectable > 5 * narrow.detectable
    assert np.ptp(wide.after_interval) > 1.5 * np.ptp(narrow.after_interval)


def test_runs_that_are_the_same_add_nothing_to_one():
    scores = np.random.default_rng(0).random(80)
    after, before = run_of(scores, seed=1), run_of(scores, seed=2)
    (one,) = paired_changes([after], [before], seed=4, resamples=1000)
    three = over([after] * 3, [before] * 3, seed=4)
    assert three.difference_interval == pytest.approx(one.difference_interval)
    assert three.detectable == pytest.approx(one.detectable)


@pytest.mark.parametrize("make", [spearman, precision, clusters])
def test_every_statistic_can_be_taken_over_runs(make):
    one = make(40)
    found = over([noisy(one, seed=i) for i in range(3)], [one], resamples=200)
    assert found.difference_interval[0] < found.difference < found.difference_interval[1]


def test_runs_alone_have_intervals_over_seeds_and_units():
    scores = np.random.default_rng(0).random(60)
    runs = [run_of(scores, seed=i, moved=0.2 * i) for i in range(3)]
    found = over(runs, None)
    assert found.before is None
    assert np.ptp(found.after_interval) > 2 * np.ptp(change(runs[1].values).after_interval)


@pytest.mark.parametrize(
    ("after", "before", "message"),
    [
        ([[]], None, "at least one run"),
        ([[sample([1.0])]], [[]], "at least one run"),
        ([[sample([1.0])], [sample([1.0])] * 2], None, r"AP must have as many runs .*\(1, 0\), got \(2, 0\)"),
    ],
)
def test_measures_without_the_same_runs_are_refused(after, before, message):
    with pytest.raises(ValueError, match=message):
        changes_over_runs(after, before, seed=0, resamples=10)


def spread_of(values: list[list[float]], units: np.ndarray | None = None) -> RunSpread:
    """Of runs with these values, whose units vary alike or as the rows of `units` say, one row a unit."""
    sides = [np.array([side]) for side in values]
    without = [np.zeros((4, side.shape[1])) for side in sides]
    if units is not None:
        without[0] = units
    return RunSpread.of((sides[0], sides[1]), (without[0], without[1]), Jackknife(np.zeros(4)))


def test_runs_of_both_models_form_one_pool():
    """Runs at 0, 1, 2 and at 4, 6: squares of 2 and 2 over three degrees of freedom.

    The mean of S runs has a share of 1 / S.
    """
    spread = spread_of([[0.0, 1.0, 2.0], [4.0, 6.0]])
    assert (spread.variance, spread.freedom) == (pytest.approx(4 / 3), 3)
    shares = [spread.share(*sides) for sides in ((1, 0), (0, 1), (1, -1))]
    assert shares == pytest.approx([1 / 3, 1 / 2, 5 / 6])


def test_a_model_of_one_run_stands_for_itself():
    spread = spread_of([[1.0], [0.0, 1.0, 2.0]])
    assert (spread.variance, spread.freedom) == (pytest.approx(1.0), 2)
    assert spread.share(1, 0) == 0
    assert spread_of([[1.0], [2.0]]) == RunSpread((1, 1), 0.0, 0.0)


def test_what_runs_vary_over_units_is_that_of_their_deviations():
    """One run is better on two units and worse on two, the other the reverse."""
    units = np.array([[1.0, 3.0], [1.0, 3.0], [3.0, 1.0], [3.0, 1.0]])
    # Deviations of -1, -1, 1, 1 have the jackknife variance 3 / 4 * 4, and both runs one degree of freedom.
    assert spread_of([[0.0, 1.0], [0.0]], units).over_units == pytest.approx(2 * 3)


def test_runs_that_differ_in_their_last_digits_alone_add_nothing():
    assert spread_of([[0.1, 0.1, float(np.nextafter(0.1, 1))], [0.0]]).variance == 0
