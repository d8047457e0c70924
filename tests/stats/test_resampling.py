"""Resamples and intervals from them, against plain loops and scipy."""

import math

import numpy as np
import pytest
from scipy import stats

from adiabat.stats.jackknife import Jackknife
from adiabat.stats.resampling import bca_interval, percentile_interval, resampling_counts
from adiabat.stats.samples import Sample
from adiabat.stats.statistics import value_of


def drawn(units: int, **options) -> np.ndarray:
    return np.concatenate(list(resampling_counts(units, **options)))


def test_each_group_is_drawn_from_as_often_as_it_has_units():
    groups = np.array([2, 0, 1, 2, 2, 0, 2])
    counts = drawn(7, resamples=3000, seed=0, groups=groups)
    for group, units in enumerate((2, 1, 4)):
        assert (counts[:, groups == group].sum(axis=1) == units).all()
    np.testing.assert_allclose(counts.mean(axis=0), 1.0, atol=0.06)
    np.testing.assert_allclose(counts[:, groups == 2].var(axis=0), 1 - 1 / 4, atol=0.08)


def test_resampling_counts_have_the_moments_of_the_multinomial():
    counts = drawn(20, resamples=20_000, seed=1)
    np.testing.assert_allclose(counts.mean(axis=0), 1.0, atol=0.05)
    np.testing.assert_allclose(counts.var(axis=0), 1 - 1 / 20, atol=0.05)
    assert np.cov(counts[:, 0], counts[:, 1])[0, 1] == pytest.approx(-1 / 20, abs=0.03)


@pytest.mark.parametrize("groups", [None, np.arange(13) % 3])
@pytest.mark.parametrize("block_size", [1, 3, 7, 50, 1000])
def test_resamples_do_not_depend_on_the_block_size(block_size, groups):
    # An odd number of units, so that blocks end in the middle of the generator's 64-bit words.
    expected = drawn(13, resamples=50, seed=2, groups=groups)
    assert np.array_equal(drawn(13, resamples=50, seed=2, groups=groups, block_size=block_size), expected)


@pytest.mark.parametrize("setting", ["units", "resamples", "block_size"])
def test_resampling_refuses_sizes_that_are_not_positive(setting):
    sizes = {"units": 3, "resamples": 3, "block_size": 3, setting: 0}
    with pytest.raises(ValueError, match=f"{setting} must be above 0, got 0"):
        drawn(sizes.pop("units"), seed=0, **sizes)


def bca_of_scipy(columns, statistic, *, seed: int = 1, **options):
    rng = np.random.default_rng(seed)
    return stats.bootstrap(columns, statistic, **{"n_resamples": 999, "method": "BCa", "rng": rng, **options})


def bca_of(sample: Sample, draws: np.ndarray) -> tuple[float, float]:
    skewness = Jackknife.of(sample).acceleration()
    return bca_interval(float(value_of(sample)[0]), draws, acceleration=skewness)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_bca_is_scipys_on_the_same_draws(seed, confidence):
    values = np.random.default_rng(seed).exponential(size=25)
    peer = bca_of_scipy((values,), np.mean, seed=seed, confidence_level=confidence)
    draws = peer.bootstrap_distribution
    skewness = Jackknife.of(Sample("AP", values)).acceleration()
    found = bca_interval(values.mean(), draws, acceleration=skewness, confidence=confidence)
    assert found == pytest.approx(tuple(peer.confidence_interval), abs=1e-12)
    assert found != pytest.approx(percentile_interval(draws, confidence=confidence), abs=1e-3)


def test_bca_over_groups_is_scipys_over_several_samples():
    random = np.random.default_rng(0)
    parts = (random.exponential(size=12), random.exponential(size=30) ** 2)
    peer = bca_of_scipy(parts, lambda x, y, axis: (x.mean(axis) + y.mean(axis)) / 2)
    sample = Sample("accuracy", np.concatenate(parts), groups=np.repeat([0, 1], [12, 30]))
    found = bca_of(sample, peer.bootstrap_distribution)
    assert found == pytest.approx(tuple(peer.confidence_interval), abs=1e-12)


def test_bca_of_a_rank_correlation_is_scipys():
    random = np.random.default_rng(0)
    people = random.random(20)
    sample = Sample("Spearman", people + random.normal(0, 0.2, 20), reference=people, statistic="spearman")
    one_by_one = {"paired": True, "vectorized": False, "n_resamples": 199}
    peer = bca_of_scipy((sample.values, people), lambda x, y: stats.spearmanr(x, y).statistic, **one_by_one)
    found = bca_of(sample, peer.bootstrap_distribution)
    assert found == pytest.approx(tuple(peer.confidence_interval), abs=1e-9)


def test_bca_follows_a_rescaling():
    draws = np.random.default_rng(0).gamma(4.0, size=2000)
    low, high = bca_interval(3.8, draws, acceleration=0.05)
    assert bca_interval(38.0, 10 * draws, acceleration=0.05) == pytest.approx((10 * low, 10 * high))
    assert bca_interval(-3.8, -draws, acceleration=-0.05) == pytest.approx((-high, -low))


@pytest.mark.parametrize("value", [-5.0, 5.0])
def test_draws_on_one_side_of_the_value_give_a_normal_interval_around_it(value):
    draws = np.random.default_rng(0).normal(size=500)
    half = 1.959963985 * draws.std()
    assert bca_interval(value, draws) == pytest.approx((value - half, value + half))


def test_an_acceleration_that_leaves_the_formula_gives_a_normal_interval():
    draws = np.random.default_rng(0).normal(size=500)
    low, high = bca_interval(0.0, draws, acceleration=0.6)
    assert (low + high) == pytest.approx(0.0)
    assert high == pytest.approx(1.959963985 * draws.std())


def test_draws_that_tie_with_the_value_up_to_rounding_count_half():
    draws = np.array([0.0] * 30 + [0.3] * 40 + [1.0] * 30)
    assert bca_interval(0.1 + 0.2, draws) == bca_interval(0.3, draws) == percentile_interval(draws)


@pytest.mark.parametrize(
    ("value", "confidence", "message"),
    [(math.nan, 0.95, "value must be finite"), (0.0, 1.0, "confidence must")],
)
def test_bca_refuses_what_has_no_interval(value, confidence, message):
    with pytest.raises(ValueError, match=message):
        bca_interval(value, np.arange(5.0), confidence=confidence)


def test_percentile_interval_holds_the_middle_of_the_draws():
    assert percentile_interval(np.arange(101.0), confidence=0.9) == (pytest.approx(5.0), pytest.approx(95.0))
    with pytest.raises(ValueError, match=r"confidence must lie between 0 and 1, got 1\.0"):
        percentile_interval(np.arange(3.0), confidence=1.0)
    with pytest.raises(ValueError, match="at least one resample"):
        percentile_interval(np.array([]))
