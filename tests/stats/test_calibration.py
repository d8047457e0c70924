"""A small version of ``scripts/calibrate_statistics.py``: alike models are called different as often as they
may be, and no more.
"""

import importlib.util
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import stats

from adiabat.core.margin import Margin
from adiabat.stats.jackknife import Jackknife
from adiabat.stats.resampling import bca_interval, resampling_counts
from adiabat.stats.statistics import value_of

SCRIPT = Path(__file__).parents[2] / "scripts" / "calibrate_statistics.py"
TRIALS = 200
RESAMPLES = 400
RUNS_AND_CLUSTERS = ("seeds", "seeds_against_one", "clustered", "one_large")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("calibrate_statistics", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def cells(script: ModuleType) -> dict[str, Any]:
    def tried(name: str, **options: Any) -> Any:
        shape = script.Shape(name, getattr(script, name))
        return script.tried(shape, 100, trials=TRIALS, resamples=RESAMPLES, **options)

    names = ("dense", "several", "skewed", "sparse", "sparse_sizes", *RUNS_AND_CLUSTERS)
    found = {name: tried(name, seed=0) for name in names}
    found["rare_losses"] = tried("rare_losses", seed=3)
    found["lost"] = tried("dense", seed=4, shift=0.03, margin=Margin(absolute=0.03))
    found["kept"] = tried("dense", seed=5, margin=Margin(absolute=found["dense"].detectable))
    found["found"] = tried("dense", seed=1, shift=found["dense"].detectable)
    return found


def within(share: float, *, low: float, high: float) -> bool:
    """Whether chance would give such a share of the trials where the true one is `low` to `high`, but for one
    time in a thousand.
    """
    return (
        stats.binom.ppf(0.001, TRIALS, low) <= round(share * TRIALS) <= stats.binom.ppf(0.999, TRIALS, high)
    )


@pytest.mark.parametrize("name", ["dense", "several", "skewed", *RUNS_AND_CLUSTERS])
def test_alike_models_are_told_apart_one_time_in_twenty(cells, name):
    assert cells[name].trials == TRIALS
    assert within(cells[name].interval, low=0.04, high=0.06)
    assert within(cells[name].p, low=0.04, high=0.07)
    assert within(cells[name].verdict, low=0.03, high=0.06)


@pytest.mark.parametrize("name", ["sparse", "sparse_sizes"])
def test_few_queries_that_changed_do_not_fool_the_verdict(cells, name):
    assert within(cells[name].interval, low=0.03, high=0.06)
    assert within(cells[name].verdict, low=0.01, high=0.06)


def test_the_two_proportion_test_is_fooled_by_pairs_of_a_query(cells):
    assert cells["several"].z > 0.2
    assert cells["sparse"].z < 0.02


def test_a_difference_of_the_detectable_size_is_found_four_times_in_five(cells):
    assert within(cells["found"].verdict, low=0.75, high=0.85)


def test_a_loss_of_the_margin_is_called_not_worse_one_time_in_twenty_at_most(cells):
    assert within(cells["lost"].not_worse, low=0.03, high=0.06)
    assert within(cells["rare_losses"].not_worse, low=0.0, high=0.05)


def test_queries_without_judgements_add_power_and_no_errors(script):
    """300 queries of which those lose that can lose the most, 1 % of the baseline in all; and without it."""
    shape = script.Shape("allowed", script.as_rankings_allow)
    lost, alike, alone = (
        script.tried(
            replace(shape, make=partial(shape.make, **options)), 300, trials=TRIALS, resamples=10, seed=6
        ).not_worse
        for options in ({}, {"loses": False}, {"loses": False, "unlabelled": 0})
    )
    assert within(lost, low=0.0, high=0.05)
    assert alike > 0.9
    assert alone < 0.5


def test_without_a_loss_a_margin_of_the_detectable_size_is_usually_kept(cells):
    # One-sided, so more often than the four times in five of the two-sided verdict.
    assert within(cells["kept"].not_worse, low=0.82, high=0.92)


def test_bca_alone_is_fooled_by_few_queries_that_changed(script):
    random, missed = np.random.default_rng(0), 0
    counts = next(resampling_counts(100, resamples=RESAMPLES, seed=0))
    for _ in range(TRIALS):
        (after,), (before,) = script.sparse_sizes(random, 100)
        difference = replace(after, values=after.values - before.values)
        value = float(value_of(difference)[0])
        skewness = Jackknife.of(difference).acceleration()
        low, high = bca_interval(value, value_of(difference, counts), acceleration=skewness)
        missed += not low <= 0 <= high
    assert missed > stats.binom.ppf(0.999, TRIALS, 0.06)


def test_shares_outside_four_to_six_per_cent_are_marked(script):
    sizes = {"detectable": 0.1, "not_worse": 0.0}
    many = script.Cell(10_000, interval=0.0612, p=0.07, verdict=0.031, z=None, **sizes)
    assert script.told(many) == ["6.1 !", "7.0", "3.1 (few)", "-"]
    few = script.Cell(200, interval=0.08, p=0.05, verdict=0.05, z=0.4, **sizes)
    assert script.told(few) == ["8.0", "5.0", "5.0", "40.0"]


def test_a_shift_is_the_true_difference(script):
    trial = script.several(np.random.default_rng(0), 50)
    (change,) = script.changes_of([script.shifted(trial, 0.25)], seed=0, resamples=20)
    (alike,) = script.changes_of([trial], seed=0, resamples=20)
    assert change.difference == pytest.approx(alike.difference + 0.25)
