"""Runs of several seeds: what other seeds would have added, against plain loops and its moments."""

import numpy as np
import pytest

from adiabat.stats.resampling import RunEffect, RunResamples


def choice(*runs: int, resamples: int = 50, seed: int = 0) -> RunResamples:
    return RunResamples.draw(runs, resamples=resamples, generator=np.random.default_rng(seed))


def test_effects_agree_with_plain_loops():
    random = np.random.default_rng(1)
    found = [random.random((1, 3)), random.random((1, 2))]
    draws = [random.random((50, 3)), random.random((50, 2))]
    drawn = choice(3, 2)
    pool = [(value - side.mean()) * (len(side[0]) / (len(side[0]) - 1)) ** 0.5 for side in found for value in side[0]]
    shifts = [[sum(pool[place] for place in row[:3]) / 3, sum(pool[place] for place in row[3:]) / 2] for row in drawn.indices]
    spreads = []
    for side in draws:
        runs = side.shape[1]
        spreads.append(np.mean([np.var((side[:, run] - side.mean(axis=1)) * (runs / (runs - 1)) ** 0.5) for run in range(runs)]))
    after, before = drawn.effects(found, draws)
    assert np.stack([after.shift, before.shift], axis=1) == pytest.approx(np.array(shifts))
    assert (after.variance, before.variance) == (pytest.approx(np.mean(spreads) / 3), pytest.approx(np.mean(spreads) / 2))


def test_a_model_of_one_run_stands_for_itself():
    one, other = choice(1, 3).effects([np.ones((1, 1)), np.array([[0.0, 1.0, 2.0]])], [np.ones((50, 1)), np.zeros((50, 3))])
    assert not one.shift.any()
    assert one.variance == 0
    assert other.shift.std() > 0
    drawn = choice(1, 1)
    assert (drawn.indices.shape, drawn.widening.tolist()) == ((50, 0), [1.0] * 50)
    assert [effect.variance for effect in drawn.effects([np.ones((1, 1))] * 2, [np.ones((50, 1))] * 2)] == [0.0, 0.0]


def test_shifts_vary_as_a_mean_of_as_many_runs_does():
    random = np.random.default_rng(2)
    variances = []
    for seed in range(300):
        found = [random.normal(0, 1.0, (1, 3))] * 2
        after, _ = choice(3, 3, resamples=200, seed=seed).effects(found, [np.zeros((200, 3))] * 2)
        variances.append(after.shift.var())
    assert np.mean(variances) == pytest.approx(1 / 3, rel=0.15)


def test_widened_draws_have_the_tails_of_a_t_distribution():
    widening = choice(3, 3, resamples=20_000).widening
    assert (1 / widening**2).mean() == pytest.approx(1.0, abs=0.03)
    # Of four degrees of freedom.
    assert (1 / widening**2).var() == pytest.approx(2 / 4, abs=0.05)


def test_runs_that_differ_in_their_last_digits_alone_add_nothing():
    same = np.array([[0.1, 0.1, np.nextafter(0.1, 1)]])
    (effect,) = choice(3).effects([same], [np.repeat(same, 50, axis=0)])
    assert (effect.shift.any(), effect.variance) == (False, 0.0)


def test_the_effect_on_a_difference_is_that_of_both():
    effect = RunEffect(np.array([1.0, 2.0]), 0.5).minus(RunEffect(np.array([3.0, 1.0]), 0.25))
    assert (effect.shift.tolist(), effect.variance) == ([-2.0, 1.0], 0.75)


def test_the_choice_depends_on_the_seed_alone():
    assert np.array_equal(choice(3, 3).indices, choice(3, 3).indices)
    assert not np.array_equal(choice(3, 3).indices, choice(3, 3, seed=1).indices)
