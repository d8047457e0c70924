"""The statistics of a comparison: by hand, again in plain loops, and on candidates that differ by chance
alone.
"""

import math

import numpy as np
import pytest
from jaxtyping import Float

from adiabat.stats.clusters import Clusters
from adiabat.stats.resampling import resampling_counts
from adiabat.stats.variant_ranking import (
    MIN_CHANGED,
    Draws,
    best_shares,
    changed_units,
    differences,
    draw,
    intervals,
    overall,
    pairs_of,
    run_deviation,
)

Array = Float[np.ndarray, "_ _ _"]


def scores(*shapes: tuple[int, int, int], seed: int = 0, spread: float = 0.1) -> list[Array]:
    """Tasks whose candidates and runs differ by chance alone."""
    random = np.random.default_rng(seed)
    made = []
    for candidates, runs, queries in shapes:
        shared = random.normal(0.5, 0.3, (1, 1, queries))
        made.append(
            shared
            + random.normal(0, spread / 5, (candidates, runs, 1))
            + random.normal(0, spread, (candidates, runs, queries))
        )
    return made


# --- By hand ---


def test_a_score_is_the_mean_over_queries_and_then_over_tasks() -> None:
    first = np.array([[[0.0, 1.0], [1.0, 1.0]]])
    second = np.array([[[0.2, 0.2, 0.2, 0.6], [0.0, 0.0, 0.0, 0.0]]])
    assert overall([first, second]) == pytest.approx(np.array([[(0.5 + 0.3) / 2, (1.0 + 0.0) / 2]]))


def test_how_much_runs_differ_is_pooled_over_candidates() -> None:
    runs = np.array([[[0.1], [0.3]], [[0.5], [0.5]]])
    assert run_deviation([runs]) == pytest.approx(math.sqrt((0.01 + 0.01) / 2))
    assert run_deviation([runs[:, :1]]) is None


def test_the_share_of_the_best_is_counted_and_ties_share_it() -> None:
    draws = np.array([[1.0, 0.0, 0.5], [0.0, 2.0, 2.0], [3.0, 3.0, 3.0], [0.0, 0.0, 1.0]])
    assert best_shares(draws) == pytest.approx(np.array([1 + 1 / 3, 1 / 2 + 1 / 3, 1 / 2 + 1 / 3 + 1]) / 4)


def test_a_simultaneous_interval_takes_the_largest_deviation_of_a_resample() -> None:
    # Differences of the pairs (0, 1) and (0, 2) in four resamples; both standard errors are 1.
    one, two = np.array([1.0, -1.0, 1.0, -1.0]), np.array([-1.0, -1.0, 1.0, 1.0])
    plain = np.stack([np.zeros(4), -one, -two], axis=1)[:, :, None]
    scaled = np.stack([np.zeros(4), -one, -3 * two], axis=1)[:, :, None]
    flat = [np.zeros((3, 1, 8))]
    found = differences(flat, Draws(scaled, plain), np.array([0, 0]), np.array([1, 2]))
    assert found.values.tolist() == [0.0, 0.0]
    # The largest |deviation| / error is 3 in each resample: also for the pair that never deviates by more
    # than 1.
    assert found.high == pytest.approx([3.0, 3.0])
    assert found.low == pytest.approx([-3.0, -3.0])


def test_queries_that_differ_are_counted_over_all_tasks() -> None:
    first, second = np.zeros((2, 1, 4)), np.zeros((2, 2, 3))
    first[1, 0, :2] = 0.5
    second[1, :, 0] = (0.5, -0.5)
    second[1, 0, 2] = 1.0
    assert changed_units([first, second], np.array([0]), np.array([1])).tolist() == [3]


def test_the_spread_of_the_draws_is_that_of_the_runs_where_queries_do_not_vary() -> None:
    """One query a task: only runs vary, and the variance of a mean of S runs is s^2 / S, s^2 with S - 1
    below.
    """
    runs = np.array([[[0.1], [0.3], [0.2]], [[0.6], [0.5], [0.4]]])
    draws = draw([runs], trained=2, seed=3, resamples=40_000)
    wanted = run_deviation([runs])
    assert wanted is not None
    scaled, plain = draws.overall()
    assert plain.std(axis=0) == pytest.approx([wanted / math.sqrt(3)] * 2, rel=0.02)
    assert plain.mean(axis=0) == pytest.approx([0.2, 0.5], abs=0.002)
    # f / chi2_f has the mean f / (f - 2), with f = 2 candidates x 2.
    assert scaled.var(axis=0) == pytest.approx(plain.var(axis=0) * 2, rel=0.2)


# --- In plain loops ---


def drawn_by_loops(tasks: list[Array], *, trained: int, seed: int, resamples: int) -> tuple[Array, Array]:
    candidates, runs, _ = tasks[0].shape
    *streams, last = np.random.SeedSequence(seed).generate_state(len(tasks) + 1).tolist()
    random = np.random.default_rng(last)
    picked = random.integers(0, trained * runs, size=(resamples, trained * runs))
    freedom = trained * (runs - 1)
    chi = random.chisquare(freedom, size=resamples) if freedom else None
    scaled, plain = (
        np.zeros((resamples, candidates, len(tasks))),
        np.zeros((resamples, candidates, len(tasks))),
    )
    for number, (task, stream) in enumerate(zip(tasks, streams, strict=True)):
        counts = np.concatenate(list(resampling_counts(task.shape[2], resamples=resamples, seed=stream)))
        for r in range(resamples):
            mean = {
                (c, s): sum(counts[r, q] * task[c, s, q] for q in range(task.shape[2])) / task.shape[2]
                for c in range(candidates)
                for s in range(runs)
            }
            for c in range(candidates):
                centre = sum(mean[c, s] for s in range(runs)) / runs
                moved = 0.0
                for place in range(runs) if c < trained and runs > 1 else ():
                    other, run = divmod(int(picked[r, c * runs + place]), runs)
                    own = sum(mean[other, s] for s in range(runs)) / runs
                    moved += (mean[other, run] - own) * math.sqrt(runs / (runs - 1)) / runs
                plain[r, c, number] = centre + moved
                scaled[r, c, number] = centre + moved * (
                    math.sqrt(freedom / chi[r]) if chi is not None else 1.0
                )
    return scaled, plain


@pytest.mark.parametrize(("runs", "trained"), [(1, 2), (2, 2), (3, 3), (3, 2)])
def test_draws_are_those_of_plain_loops(runs: int, trained: int) -> None:
    tasks = scores((3, runs, 5), (3, runs, 7))
    found = draw(tasks, trained=trained, seed=11, resamples=6)
    scaled, plain = drawn_by_loops(tasks, trained=trained, seed=11, resamples=6)
    assert found.tasks == pytest.approx(scaled)
    assert found.plain == pytest.approx(plain)


def test_intervals_of_differences_are_those_of_plain_loops() -> None:
    tasks = scores((4, 2, 30), (4, 2, 20))
    draws = draw(tasks, trained=4, seed=2, resamples=300)
    first, second = pairs_of(4)
    found = differences(tasks, draws, first, second)
    scaled, plain = (array.mean(axis=2) for array in (draws.tasks, draws.plain))
    means = [sum(task[c].mean() for task in tasks) / 2 for c in range(4)]
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    errors = [
        math.sqrt(((plain[:, a] - plain[:, b] - (plain[:, a] - plain[:, b]).mean()) ** 2).mean())
        for a, b in pairs
    ]
    largest = [
        max(
            abs(scaled[r, a] - scaled[r, b] - (means[a] - means[b])) / error
            for (a, b), error in zip(pairs, errors, strict=True)
        )
        for r in range(300)
    ]
    factor = np.quantile(largest, 0.95)
    for place, ((a, b), error) in enumerate(zip(pairs, errors, strict=True)):
        assert found.values[place] == pytest.approx(means[a] - means[b])
        assert (found.low[place], found.high[place]) == pytest.approx(
            (means[a] - means[b] - factor * error, means[a] - means[b] + factor * error)
        )


# --- Invariances and hard cases ---


def test_a_start_varies_with_the_queries_and_not_with_runs() -> None:
    tasks = scores((3, 3, 12))
    tasks[0][2] = tasks[0][2, :1]
    draws = draw(tasks, trained=2, seed=0, resamples=50)
    assert np.array_equal(draws.tasks[:, 2], draws.plain[:, 2])
    assert not np.array_equal(draws.tasks[:, 0], draws.plain[:, 0])
    alone = draw([tasks[0][:, :1]], trained=2, seed=0, resamples=50)
    assert draws.tasks[:, 2] == pytest.approx(alone.tasks[:, 2])


def test_what_all_candidates_gain_alike_changes_no_difference() -> None:
    tasks = scores((3, 2, 25), (3, 2, 10))
    first, second = pairs_of(3)
    before, after = (
        differences(some, draw(some, trained=3, seed=4, resamples=100), first, second)
        for some in (tasks, [one + 0.25 for one in tasks])
    )
    assert after.values == pytest.approx(before.values)
    assert after.high == pytest.approx(before.high)


def test_with_one_run_of_each_only_queries_are_drawn() -> None:
    tasks = scores((2, 1, 40))
    draws = draw(tasks, trained=2, seed=0, resamples=200)
    counts = np.concatenate(
        list(resampling_counts(40, resamples=200, seed=int(np.random.SeedSequence(0).generate_state(2)[0])))
    )
    assert draws.tasks[:, :, 0] == pytest.approx(counts @ tasks[0][:, 0].T / 40)
    assert np.array_equal(draws.tasks, draws.plain)


def test_candidates_that_are_the_same_on_every_query_are_not_called_different() -> None:
    tasks = [np.repeat(scores((1, 1, 30))[0], 2, axis=0)]
    found = differences(tasks, draw(tasks, trained=2, seed=0, resamples=100), np.array([0]), np.array([1]))
    assert (found.values.tolist(), found.distinct.tolist()) == ([0.0], [False])


@pytest.mark.parametrize(("changed", "distinct"), [(MIN_CHANGED - 1, False), (MIN_CHANGED, True)])
def test_few_changed_queries_are_no_evidence_however_alike_they_changed(changed: int, distinct: bool) -> None:
    task = np.zeros((2, 1, changed))
    task[1] = 0.5
    found = differences([task], draw([task], trained=2, seed=0, resamples=100), np.array([1]), np.array([0]))
    assert found.low == pytest.approx([0.5])
    assert found.distinct.tolist() == [distinct]


def test_queries_of_one_cluster_count_once() -> None:
    task, numbers = np.zeros((2, 1, 4 * MIN_CHANGED)), np.repeat(np.arange(2 * MIN_CHANGED), 2)
    # Of each changed cluster both queries changed; those of the last cluster cancel.
    task[1, 0, : 2 * (MIN_CHANGED - 1)], task[1, 0, -2:] = 0.5, (0.1, -0.1)
    pair, clusters = (np.array([1]), np.array([0])), [Clusters(numbers, "session")]
    assert changed_units([task], *pair, clusters).tolist() == [MIN_CHANGED - 1]
    assert changed_units([task], *pair).tolist() == [2 * MIN_CHANGED]
    # Few clusters of shared documents are not drawn whole, and so not counted.
    assert changed_units([task[:, :, :8]], *pair, [Clusters(numbers[:8])]).tolist() == [8]
    moved = np.ones((2, 1, 4 * MIN_CHANGED))
    moved[0] = np.repeat(np.arange(2 * MIN_CHANGED) >= MIN_CHANGED - 1, 2)
    draws = Draws(np.full((10, 2, 1), [[0.6], [1.0]]), np.full((10, 2, 1), [[0.6], [1.0]]))
    assert differences([moved], draws, *pair).distinct.tolist() == [True]
    assert differences([moved], draws, *pair, clusters=clusters).distinct.tolist() == [False]


def test_candidates_that_differ_by_chance_are_rarely_called_different_and_one_that_is_better_is() -> None:
    first, second = pairs_of(4)
    called = better = 0
    for seed in range(80):
        tasks = scores((4, 2, 60), seed=seed)
        called += bool(
            differences(tasks, draw(tasks, trained=4, seed=seed, resamples=300), first, second).distinct.any()
        )
        tasks[0][0] += 0.25
        found = differences(tasks, draw(tasks, trained=4, seed=seed, resamples=300), first, second)
        better += bool(found.distinct[:3].all())
    # 5 % of 80 are 4; more than 9 come in one of a hundred such series.
    assert called <= 9
    assert better >= 76


def test_intervals_hold_the_middle_of_each_column() -> None:
    draws = np.stack([np.linspace(0, 1, 1001), np.linspace(-2, 0, 1001)], axis=1)
    assert intervals(draws) == pytest.approx(np.array([[0.025, 0.975], [-1.95, -0.05]]))


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ([], "at least one task"),
        ([np.zeros((2, 1, 3)), np.zeros((2, 2, 3))], "the same candidates and runs"),
        ([np.zeros((2, 1, 0))], "on at least one query"),
        ([np.full((2, 1, 3), np.nan)], "finite"),
        ([np.zeros((2, 1, 3))], "trained must be 1 to 2, got 3"),
    ],
)
def test_scores_that_do_not_belong_together_are_refused(tasks: list[Array], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        draw(tasks, trained=3 if tasks and np.isfinite(tasks[0]).all() else 1, seed=0, resamples=10)
