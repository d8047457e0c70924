"""Means of two models over runs of several seeds: intervals over units and seeds, against their parts, and
what must hold of them.
"""

import math
from dataclasses import asdict

import numpy as np
import pytest
from scipy import stats

from adiabat.stats.paired import changes_over_runs, paired_changes
from adiabat.stats.resampling import (
    RunEffect,
    RunResamples,
    acceleration,
    bca_interval,
    jackknife,
    resampling_counts,
)
from adiabat.stats.samples import Sample
from adiabat.stats.statistics import value_of
from tests.stats.test_paired import change, noisy, sample
from tests.stats.test_statistics import clusters, precision, spearman


def run_of(scores: np.ndarray, *, seed: int, moved: float = 0.0) -> Sample:
    return sample(scores + moved + np.random.default_rng(seed).normal(0, 0.02, scores.size))


def test_one_run_of_either_is_the_comparison_of_two_models():
    scores = np.random.default_rng(0).random(50)
    after, before = run_of(scores, seed=1), run_of(scores, seed=2)
    (over,) = changes_over_runs([[after]], [[before]], seed=4, resamples=300)
    (paired,) = paired_changes([after], [before], seed=4, resamples=300)
    assert asdict(over) == asdict(paired)


def test_an_interval_over_runs_agrees_with_its_parts_put_together():
    random = np.random.default_rng(0)
    scores, gains = random.random(40), random.exponential(0.05, 40)
    sides = [
        [run_of(scores + gains, seed=i, moved=0.01 * i) for i in range(3)],
        [run_of(scores, seed=9), run_of(scores, seed=10)],
    ]
    (found,) = changes_over_runs([sides[0]], [sides[1]], seed=4, resamples=800)
    counts = next(resampling_counts(40, resamples=800, seed=4))
    draws = [np.stack([value_of(one, counts) for one in side], axis=1) for side in sides]
    values = [np.array([[float(value_of(one)[0]) for one in side]]) for side in sides]
    runs = RunResamples.draw((3, 2), resamples=800, generator=np.random.default_rng([4, 2]))
    after, before = runs.effects(values, draws)
    units = draws[0].mean(axis=1) - draws[1].mean(axis=1)
    units = found.difference + (units - found.difference) * math.sqrt(
        1 - (after.variance + before.variance) / units.var()
    )
    shift = after.shift - before.shift
    unit_scores = np.mean([one.values for one in sides[0]], axis=0) - np.mean(
        [one.values for one in sides[1]], axis=0
    )
    skewness = acceleration(jackknife(sample(unit_scores))) * (units.std() / (units + shift).std()) ** 3
    # The spread of units is known as well as that of a large sample, that of runs has three degrees of
    # freedom.
    together = 3 * (units.var() + shift.var()) ** 2 / shift.var() ** 2
    widening = np.sqrt(together / stats.chi2.isf(runs.chances, together))
    low, high = bca_interval(
        found.difference,
        found.difference + widening * (units + shift - found.difference),
        acceleration=skewness,
    )
    # 40 units vary by 40 / 39 of what their resamples vary by.
    of_units = units.var() * 40 / 39
    error = math.sqrt(of_units + shift.var())
    freedom = error**4 / (of_units**2 / 39 + shift.var() ** 2 / 3)
    half = stats.t.ppf(0.975, freedom) * error
    assert found.difference_interval == pytest.approx(
        (min(low, found.difference - half), max(high, found.difference + half)), rel=0.005
    )
    assert low < found.difference - half or high > found.difference + half
    # A t statistic with this mean passes half the interval four times in five; the error itself is estimated
    # too low by the factor c4.
    assert found.detectable is not None
    half_width = (found.difference_interval[1] - found.difference_interval[0]) / 2
    c4 = math.sqrt(2 / freedom) * math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2)
    assert stats.nct.sf(half_width / error, freedom, found.detectable * c4 / error) == pytest.approx(
        0.8, abs=1e-3
    )


def test_the_value_over_runs_is_their_mean():
    scores = np.random.default_rng(0).random(50)
    after, before = (
        [run_of(scores, seed=i, moved=0.1) for i in range(3)],
        [run_of(scores, seed=9), run_of(scores, seed=10)],
    )
    (found,) = changes_over_runs([after], [before], seed=4, resamples=500)
    assert found.after == pytest.approx(np.mean([one.values.mean() for one in after]))
    assert found.before == pytest.approx(np.mean([one.values.mean() for one in before]))
    assert found.difference == pytest.approx(found.after - found.before)
    assert (found.test, found.verdict, found.z) == ("bootstrap", "better", None)


def test_runs_that_differ_widen_the_intervals():
    scores = np.random.default_rng(0).random(200)
    narrow, wide = (
        changes_over_runs(
            [[run_of(scores, seed=i, moved=by * (i - 1)) for i in range(3)]],
            [[sample(scores)]],
            seed=0,
            resamples=1000,
        )[0]
        for by in (0.0, 0.1)
    )
    assert np.ptp(wide.difference_interval) > 5 * np.ptp(narrow.difference_interval)
    assert wide.detectable > 5 * narrow.detectable
    assert np.ptp(wide.after_interval) > 1.5 * np.ptp(narrow.after_interval)


def test_runs_that_are_the_same_add_nothing_to_one():
    scores = np.random.default_rng(0).random(80)
    after, before = run_of(scores, seed=1), run_of(scores, seed=2)
    (one,) = paired_changes([after], [before], seed=4, resamples=1000)
    (three,) = changes_over_runs([[after] * 3], [[before] * 3], seed=4, resamples=1000)
    assert three.difference_interval == pytest.approx(one.difference_interval)
    assert three.detectable == pytest.approx(one.detectable)


@pytest.mark.parametrize("make", [spearman, precision, clusters])
def test_every_statistic_can_be_taken_over_runs(make):
    one = make(40)
    (found,) = changes_over_runs([[noisy(one, seed=i) for i in range(3)]], [[one]], seed=0, resamples=200)
    assert found.difference_interval[0] < found.difference < found.difference_interval[1]


def test_runs_alone_have_intervals_over_seeds_and_units():
    scores = np.random.default_rng(0).random(60)
    runs = [run_of(scores, seed=i, moved=0.2 * i) for i in range(3)]
    (found,) = changes_over_runs([runs], None, seed=0, resamples=1000)
    assert found.before is None
    assert np.ptp(found.after_interval) > 2 * np.ptp(change(runs[1].values).after_interval)


@pytest.mark.parametrize(
    ("after", "before", "message"),
    [
        ([[]], None, "at least one run"),
        ([[sample([1.0])]], [[]], "at least one run"),
        (
            [[sample([1.0])], [sample([1.0])] * 2],
            None,
            r"AP must have as many runs as the first measure, \(1, 0\), got \(2, 0\)",
        ),
    ],
)
def test_measures_without_the_same_runs_are_refused(after, before, message):
    with pytest.raises(ValueError, match=message):
        changes_over_runs(after, before, seed=0, resamples=10)


def choice(*runs: int, resamples: int = 50, seed: int = 0) -> RunResamples:
    return RunResamples.draw(runs, resamples=resamples, generator=np.random.default_rng(seed))


def test_effects_agree_with_plain_loops():
    random = np.random.default_rng(1)
    found = [random.random((1, 3)), random.random((1, 2))]
    draws = [random.random((50, 3)), random.random((50, 2))]
    drawn = choice(3, 2)
    pool = [
        (value - side.mean()) * (len(side[0]) / (len(side[0]) - 1)) ** 0.5
        for side in found
        for value in side[0]
    ]
    shifts = [
        [sum(pool[place] for place in row[:3]) / 3, sum(pool[place] for place in row[3:]) / 2]
        for row in drawn.indices
    ]
    spreads = []
    for side in draws:
        runs = side.shape[1]
        spreads.append(
            np.mean(
                [
                    np.var((side[:, run] - side.mean(axis=1)) * (runs / (runs - 1)) ** 0.5)
                    for run in range(runs)
                ]
            )
        )
    after, before = drawn.effects(found, draws)
    assert np.stack([after.shift, before.shift], axis=1) == pytest.approx(np.array(shifts))
    assert (after.variance, before.variance) == (
        pytest.approx(np.mean(spreads) / 3),
        pytest.approx(np.mean(spreads) / 2),
    )


def test_a_model_of_one_run_stands_for_itself():
    one, other = choice(1, 3).effects(
        [np.ones((1, 1)), np.array([[0.0, 1.0, 2.0]])], [np.ones((50, 1)), np.zeros((50, 3))]
    )
    assert not one.shift.any()
    assert one.variance == 0
    assert other.shift.std() > 0
    drawn = choice(1, 1)
    assert drawn.indices.shape == (50, 0)
    assert [effect.variance for effect in drawn.effects([np.ones((1, 1))] * 2, [np.ones((50, 1))] * 2)] == [
        0.0,
        0.0,
    ]


def test_shifts_vary_as_a_mean_of_as_many_runs_does():
    random = np.random.default_rng(2)
    variances = []
    for seed in range(300):
        found = [random.normal(0, 1.0, (1, 3))] * 2
        after, _ = choice(3, 3, resamples=200, seed=seed).effects(found, [np.zeros((200, 3))] * 2)
        variances.append(after.shift.var())
    assert np.mean(variances) == pytest.approx(1 / 3, rel=0.15)


def test_widened_draws_have_the_tails_of_a_t_distribution():
    # Of four degrees of freedom, or sixteen if half of the variance comes from runs.
    for share, freedom in ((1.0, 4), (0.5, 16)):
        widening = choice(3, 3, resamples=20_000).widening(share)
        assert (1 / widening**2).mean() == pytest.approx(1.0, abs=0.03)
        assert (1 / widening**2).var() == pytest.approx(2 / freedom, rel=0.1)


def test_runs_that_differ_in_their_last_digits_alone_add_nothing():
    same = np.array([[0.1, 0.1, np.nextafter(0.1, 1)]])
    (effect,) = choice(3).effects([same], [np.repeat(same, 50, axis=0)])
    assert (effect.shift.any(), effect.variance) == (False, 0.0)


def test_the_effect_on_a_difference_is_that_of_both():
    effect = RunEffect(np.array([1.0, 2.0]), 0.5).minus(RunEffect(np.array([3.0, 1.0]), 0.25))
    assert (effect.shift.tolist(), effect.variance) == ([-2.0, 1.0], 0.75)
