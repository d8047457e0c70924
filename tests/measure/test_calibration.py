"""A small version of ``scripts/calibrate_statistics.py``: alike models are called different as often as they may be, and no more."""

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy import stats

from adiabat.measure.resampling import acceleration, bca_interval, jackknife, resampling_counts
from adiabat.measure.statistics import value_of

SCRIPT = Path(__file__).parents[2] / "scripts" / "calibrate_statistics.py"
RESAMPLES = 400


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("calibrate_statistics", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def within(share: float, trials: int, *, low: float, high: float) -> bool:
    """Whether chance would give such a share of the trials where the true one is `low` to `high`, but for one time in a thousand."""
    return stats.binom.ppf(0.001, trials, low) <= round(share * trials) <= stats.binom.ppf(0.999, trials, high)


@pytest.mark.parametrize("name", ["dense", "several", "skewed"])
def test_alike_models_are_told_apart_one_time_in_twenty(script, name):
    cell = script.tried(script.Shape(name, getattr(script, name)), 100, trials=200, resamples=RESAMPLES, seed=0)
    assert cell.trials == 200
    assert within(cell.interval, 200, low=0.04, high=0.07)
    assert within(cell.p, 200, low=0.04, high=0.07)
    assert within(cell.verdict, 200, low=0.03, high=0.06)


@pytest.mark.parametrize("name", ["sparse", "sparse_sizes"])
def test_few_queries_that_changed_do_not_fool_the_verdict(script, name):
    cell = script.tried(script.Shape(name, getattr(script, name)), 100, trials=200, resamples=RESAMPLES, seed=0)
    assert within(cell.interval, 200, low=0.03, high=0.07)
    assert within(cell.verdict, 200, low=0.01, high=0.06)


def test_bca_alone_is_fooled_by_few_queries_that_changed(script):
    random, missed = np.random.default_rng(0), 0
    counts = next(resampling_counts(100, resamples=RESAMPLES, seed=0))
    for _ in range(200):
        (after,), (before,) = script.sparse_sizes(random, 100)
        difference = replace(after, values=after.values - before.values)
        value = float(value_of(difference)[0])
        low, high = bca_interval(value, value_of(difference, counts), acceleration=acceleration(jackknife(difference)))
        missed += not low <= 0 <= high
    assert missed > stats.binom.ppf(0.999, 200, 0.06)


def test_the_two_proportion_test_is_fooled_by_pairs_of_a_query(script):
    cell = script.tried(script.Shape("several", script.several), 100, trials=100, resamples=50, seed=0)
    assert cell.z > 0.2


def test_alike_models_of_three_seeds_are_told_apart_one_time_in_twenty(script):
    cell = script.tried(script.Shape("seeds", script.seeds), 60, trials=200, resamples=RESAMPLES, seed=0)
    assert within(cell.interval, 200, low=0.04, high=0.07)


def test_a_difference_of_the_detectable_size_is_found_four_times_in_five(script):
    shape = script.Shape("dense", script.dense)
    alike = script.tried(shape, 100, trials=50, resamples=RESAMPLES, seed=1)
    cell = script.tried(shape, 100, trials=150, resamples=RESAMPLES, seed=0, shift=alike.detectable)
    assert within(cell.verdict, 150, low=0.75, high=0.85)


def test_shares_outside_four_to_six_per_cent_are_marked(script):
    told = script.told(script.Cell(10_000, interval=0.0612, p=0.07, verdict=0.031, z=None, detectable=0.1))
    assert told == ["6.1 !", "7.0", "3.1 (few)", "-"]
    assert script.told(script.Cell(200, interval=0.08, p=0.05, verdict=0.05, z=0.4, detectable=0.1)) == ["8.0", "5.0", "5.0", "40.0"]


def test_a_shift_is_the_true_difference(script):
    trial = script.several(np.random.default_rng(0), 50)
    (change,) = script.changes_of([script.shifted(trial, 0.25)], seed=0, resamples=20)
    (alike,) = script.changes_of([trial], seed=0, resamples=20)
    assert change.difference == pytest.approx(alike.difference + 0.25)
