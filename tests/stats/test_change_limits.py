"""Where a change says less: at the ends of a measure, over few units or runs, below a baseline of zero, with
names and rounding aside.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from adiabat.evaluation.language_grid_measures import measure_grid
from adiabat.results.evaluation_result import Change
from adiabat.stats.paired import changes_over_runs, paired_changes
from adiabat.stats.samples import CORRELATION, SHARE, Sample
from tests.stats.test_paired import change, sample
from tests.stats.test_statistics import referred


def partition(values, *, reference) -> Sample:
    return replace(referred(values, reference, "v-measure"), bounds=SHARE)


def correlated(*, sign: float = 1.0) -> Sample:
    """Similarities that rise or fall with what people said, but for a little noise."""
    people, noise = np.linspace(0, 1, 100), np.random.default_rng(0).normal(size=100)
    return replace(referred(sign * people + 0.02 * noise, people, "spearman"), bounds=CORRELATION)


def purged(moved: int) -> tuple[Sample, Sample]:
    """Ninety texts in three clusters, some of which the baseline puts elsewhere."""
    labels = np.repeat([0, 1, 2], 30)
    before = labels.copy()
    before[:moved] = 1
    return partition(labels, reference=labels), partition(before, reference=labels)


@pytest.mark.parametrize("number", [{0: 0, 1: 1, 2: 2}, {0: 2, 1: 0, 2: 1}, {0: 7, 1: 3, 2: 5}])
def test_the_numbers_of_clusters_decide_nothing(number):
    after, before = purged(4)
    renumbered = replace(after, values=np.array([float(number[int(value)]) for value in after.values]))
    (found,) = paired_changes([renumbered], [before], seed=0, resamples=1000)
    # Four texts moved: no sign-flipping test of four can say less than 2 / 2^4.
    assert (found.p, found.verdict) == (0.125, "undecided")


def test_clusters_that_were_split_count_the_texts_that_left():
    labels = np.repeat([0, 1], 20)
    split = np.where(np.arange(40) < 5, 9, labels)
    after, before = (partition(values, reference=labels) for values in (labels, split))
    (found,) = paired_changes([after], [before], seed=0, resamples=1000)
    assert found.p == 2.0 ** (1 - 5)


def test_the_order_of_runs_does_not_decide_how_many_units_changed():
    after, before = purged(20)
    for runs in ([before, after, after], [after, before, after], [after, after, before]):
        (found,) = changes_over_runs([runs], [[before]], seed=0, resamples=1000)
        assert 0 < found.p < 0.5


def test_a_first_run_that_is_the_baseline_does_not_stand_for_all():
    before = np.linspace(0.2, 0.8, 40)
    gains = (0.0, 0.1, 0.11, 0.12, 0.13)
    for ordered in (gains, gains[::-1]):
        runs = [sample(before + gain) for gain in ordered]
        (found,) = changes_over_runs([runs], [[sample(before)]], seed=0, resamples=1000)
        assert found.p < 0.1


def test_a_correlation_that_was_negative_has_no_improvement():
    after, before = correlated(), correlated(sign=-1)
    (found,) = paired_changes([after], [before], seed=0, resamples=300)
    assert found.before < -0.9
    assert (found.verdict, found.improvement, found.improvement_interval) == ("better", None, None)


def test_intervals_of_runs_stay_where_the_measure_is():
    queries = np.arange(100)
    runs = [sample((queries < right).astype(float), bounds=SHARE) for right in (90, 99, 100)]
    free = [replace(run, bounds=None) for run in runs]
    found, unbounded = (changes_over_runs([each], None, seed=0, resamples=1000)[0] for each in (runs, free))
    assert unbounded.after_interval[1] > 1
    assert found.after_interval == (unbounded.after_interval[0], 1.0)


def test_differences_stay_within_the_width_of_the_measure():
    before, after = np.array([0.0, 0.1, 0.0]), np.array([1.0, 1.0, 0.8])
    found = change(after, before, bounds=SHARE)
    assert change(after, before).difference_interval[1] > 1
    assert found.difference_interval[1] == 1.0
    fallen = change(before, after, bounds=SHARE)
    assert fallen.difference_interval[0] == -1.0
    assert fallen.improvement_interval[0] == -100.0
    assert change(before, after).improvement_interval[0] < -100


def test_a_lower_measure_cannot_fall_by_more_than_all_of_it():
    before, after = np.array([0.9, 1.0, 0.6]), np.array([0.0, 0.1, 0.0])
    assert change(after, before, lower_is_better=True).improvement_interval[1] > 100
    assert change(after, before, lower_is_better=True, bounds=SHARE).improvement_interval[1] == 100


def grid_sample(scores: np.ndarray) -> Sample:
    labels, premises = ["entailment", "neutral", "contradiction"] * 30, np.repeat(np.arange(30), 3)
    samples, _ = measure_grid({"cosine": scores}, labels, rows=["a"], columns=["x"], clusters=premises)
    return samples[0]


def test_pseudo_values_gain_and_lose_no_units():
    scores = np.random.default_rng(3).normal(size=(1, 1, 90))
    changed = scores.copy()
    scores[..., 0], changed[..., 0] = -5, 5
    (found,) = paired_changes([grid_sample(changed)], [grid_sample(scores)], seed=0, resamples=300)
    # One premise changed, and thirty pseudo-values.
    assert found.difference == pytest.approx(-1 / 30)
    assert found.effect < 0
    assert (found.gained, found.lost) == (None, None)


def test_a_grid_with_few_errors_has_an_interval_of_shares():
    noise = np.random.default_rng(0).normal(size=(1, 1, 90))
    one = grid_sample(np.tile([1.0, 0.0, 0.0], 30) + 0.25 * noise)
    (found,) = paired_changes([one], None, seed=0, resamples=1000)
    assert (one.values < 0).any()
    assert one.bounds == SHARE
    assert found.after_interval[0] == 0
    assert found.after < found.after_interval[1] < 0.1
    assert paired_changes([replace(one, bounds=None)], None, seed=0, resamples=1000)[0].after_interval[0] < 0


@pytest.mark.parametrize("units", [3, 10, 40])
def test_no_difference_has_an_interval_narrower_than_students(units):
    values = np.random.default_rng(units).normal(0.3, 1, units)
    found = change(values, np.zeros(units), resamples=20_000)
    peer = stats.ttest_1samp(values, 0.0).confidence_interval()
    width = peer.high - peer.low
    assert found.difference_interval[0] <= peer.low + 0.01 * width
    assert found.difference_interval[1] >= peer.high - 0.01 * width
    assert np.ptp(found.difference_interval) < 1.25 * width


@pytest.mark.parametrize("runs", [1, 3])
def test_one_unit_tells_nothing_of_how_much_units_differ(runs):
    after, before = [sample([0.7 + 0.01 * run]) for run in range(runs)], [sample([0.2])]
    (found,) = changes_over_runs([after], [before], seed=0, resamples=100)
    assert found.difference == pytest.approx(0.5 + 0.005 * (runs - 1))
    assert found.after_interval is found.difference_interval is found.improvement_interval is None
    assert found.detectable is None
    assert (found.p, found.verdict) == (1.0, "undecided")


def test_one_unit_with_weight_is_one_unit():
    found = change([0.7, 0.0], [0.2, 0.0], reference=[1, 0])
    assert (found.after_interval, found.difference_interval) == (None, None)


@pytest.mark.parametrize("units", [2, 30])
def test_rounding_is_no_spread(units):
    before = np.random.default_rng(0).random(units)
    found: Change = change(before + 0.1, before)
    assert found.difference_interval == (found.difference, found.difference)
    assert (found.detectable, found.difference) == (None, pytest.approx(0.1))


def test_runs_that_differ_over_units_that_do_not_have_an_interval_of_runs():
    runs = [sample(np.full(20, value)) for value in (0.5, 0.6, 0.7)]
    (found,) = changes_over_runs([runs], [[sample(np.full(20, 0.5))]], seed=0, resamples=1000)
    half = stats.t.ppf(0.975, 2) * 0.1 / math.sqrt(3)
    assert found.difference_interval[0] < found.difference < found.difference_interval[1]
    assert np.ptp(found.difference_interval) == pytest.approx(2 * half, rel=0.2)
