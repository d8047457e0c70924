"""The jackknife: values, standard errors and degrees of freedom, by hand, against plain loops and scipy."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from adiabat.stats import jackknife
from adiabat.stats.clusters import Clusters
from adiabat.stats.jackknife import Jackknife, lower_end
from adiabat.stats.samples import Sample
from adiabat.stats.statistics import value_of
from tests.stats.test_statistics import EVERY


@EVERY
@pytest.mark.parametrize("groups", [None, np.arange(30) % 2])
def test_the_jackknife_is_the_value_without_each_unit(make, groups):
    sample = replace(make(30), groups=groups)
    expected = [
        float(value_of(sample, np.delete(np.eye(30), i, axis=0).sum(axis=0)[None])[0]) for i in range(30)
    ]
    left_out = Jackknife.of(sample)
    if groups is not None and sample.statistic != "mean":
        # Parts come group by group.
        expected = [*expected[::2], *expected[1::2]]
        assert left_out.groups.tolist() == [0] * 15 + [1] * 15
    assert left_out.values == pytest.approx(expected, abs=1e-12)


def test_leaving_out_the_only_unit_of_a_group_leaves_nothing_there():
    sample = Sample("accuracy", np.array([1.0, 0.0, 1.0]), groups=np.array([0, 1, 1]))
    assert np.isnan(Jackknife.of(sample).values).tolist() == [True, False, False]
    assert math.isfinite(Jackknife.of(sample).acceleration())
    lonely = Jackknife.of(Sample("PND", np.array([1.0, 0.0]), reference=np.array([0.3, 0.0])))
    assert np.isnan(lonely.values).tolist() == [True], "the unit without weight is passed over"


def test_many_units_are_left_out_in_parts_that_no_two_groups_share(monkeypatch):
    monkeypatch.setattr(jackknife, "MOST_VALUES", 10)
    random = np.random.default_rng(0)
    groups = np.repeat([0, 1], [30, 70])
    people = random.random(100)
    sample = Sample(
        "Spearman", people + random.normal(0, 0.3, 100), reference=people, statistic="spearman", groups=groups
    )
    left_out = Jackknife.of(sample)
    assert left_out.groups.tolist() == [0] * 3 + [1] * 7
    without = np.ones(100)
    without[:30:3] = 0
    assert left_out.values[0] == pytest.approx(value_of(sample, without[None])[0], abs=1e-12)


def test_parts_of_units_give_the_acceleration_of_single_ones(monkeypatch):
    random = np.random.default_rng(2)
    people = random.random(1000)
    sample = Sample("Spearman", people + random.normal(0, 0.2, 1000), reference=people, statistic="spearman")
    monkeypatch.setattr(jackknife, "MOST_VALUES", 1000)
    single = Jackknife.of(sample).acceleration()
    monkeypatch.setattr(jackknife, "MOST_VALUES", 500)
    assert Jackknife.of(sample).acceleration() == pytest.approx(single, rel=0.25)
    assert single < -0.005


def test_acceleration_worked_by_hand():
    # Without 0, 0, 3 the mean is 1.5, 1.5, 0, which is 1 on average: -1/2, -1/2 and 1 above it, times 2/3.
    left_out = Jackknife.of(Sample("AP", np.array([0.0, 0.0, 3.0])))
    assert left_out.values.tolist() == [1.5, 1.5, 0.0]
    assert left_out.acceleration() == pytest.approx((1 - 2 / 8) / (6 * 1.5**1.5))
    assert Jackknife(np.ones(5)).acceleration() == 0.0
    with_none = Jackknife(np.array([np.nan, 1.5, 1.5, 0.0]))
    assert with_none.acceleration() == pytest.approx(left_out.acceleration())


def test_the_standard_error_worked_by_hand():
    # Values 1, 2, 6: their standard deviation is sqrt(7), over sqrt(3); two degrees of freedom.
    left_out = Jackknife.of(Sample("AP", np.array([1.0, 2.0, 6.0])))
    assert left_out.error() == pytest.approx((math.sqrt(7 / 3), 2))
    # A fourth unit without a value changes nothing.
    assert Jackknife(np.append(left_out.values, np.nan)).error() == pytest.approx((math.sqrt(7 / 3), 2))


@pytest.mark.parametrize("size", [3, 40])
def test_the_error_of_a_mean_is_scipys(size):
    values = np.random.default_rng(0).exponential(size=size)
    assert Jackknife.of(Sample("AP", values)).error() == pytest.approx((stats.sem(values), size - 1))


def test_the_error_of_a_ratio_is_that_of_plain_loops():
    """Errors among the pairs of each query: ``sum v / sum w`` without each query."""
    random = np.random.default_rng(1)
    pairs = random.integers(1, 30, 12).astype(float)
    errors = random.binomial(pairs.astype(int), 0.3).astype(float)
    without = np.array([np.delete(errors, i).sum() / np.delete(pairs, i).sum() for i in range(12)])
    expected = math.sqrt(11 / 12 * ((without - without.mean()) ** 2).sum())
    worth = pairs.sum() ** 2 / (pairs**2).sum()
    found = Jackknife.of(Sample("PND pooled", errors, reference=pairs)).error()
    assert found == pytest.approx((expected, worth - 1))


def test_units_of_unequal_weight_are_worth_fewer_equal_ones():
    """A cluster of 60 and eight of five: 100^2 / (60^2 + 8 5^2) = 2.63 equal ones."""
    weights = np.array([60.0, *[5.0] * 8])
    values = weights * np.random.default_rng(0).random(9)
    freedom = Jackknife.of(Sample("AP", values, reference=weights)).error()[1]
    assert freedom == pytest.approx(10_000 / 3_800 - 1)
    # One cluster of nearly all queries says nothing about the spread of others.
    weights[0] = 1000.0
    assert Jackknife.of(Sample("AP", values, reference=weights)).error()[1] == 0


def test_groups_of_few_units_vary_as_welch_has_it():
    random = np.random.default_rng(1)
    parts = [random.normal(0, 1, 4), random.normal(0, 3, 25)]
    sample = Sample("accuracy", np.concatenate(parts), groups=np.repeat([0, 1], [4, 25]))
    error, freedom = Jackknife.of(sample).error()
    assert freedom == pytest.approx(stats.ttest_ind(*parts, equal_var=False).df)
    assert error == pytest.approx(math.sqrt(sum(part.var(ddof=1) / part.size for part in parts)) / 2)


def test_what_no_two_units_tell_is_known_with_no_freedom():
    assert Jackknife(np.array([0.5])).error() == Jackknife(np.array([0.5, np.nan])).error() == (0.0, 0)
    assert Jackknife(np.array([0.5, 0.1]), np.array([0, 1])).error() == (0.0, 0)
    assert Jackknife(np.array([0.5, 0.5, 0.5])).error() == (0.0, 2)
    assert Jackknife(np.array([0.3, 0.1 + 0.2, 0.3])).error() == (0.0, 2), "rounding is no spread"


def test_the_lower_end_of_a_mean_is_that_of_t_and_draws_clusters_whole():
    values = np.array([0.1, 0.3, -0.05, 0.2])
    # mean 0.1375, standard deviation 0.14930, over sqrt(4)
    by_hand = 0.1375 - stats.t.ppf(0.95, 3) * values.std(ddof=1) / 2
    assert lower_end(Sample("gain", values)) == pytest.approx(by_hand)
    pairs = Clusters(np.array([0, 0, 1, 1]))
    means = np.array([0.2, 0.075])
    of_pairs = 0.1375 - stats.t.ppf(0.8, 1) * means.std(ddof=1) / math.sqrt(2)
    assert lower_end(Sample("gain", values, clusters=pairs), 0.8) == pytest.approx(of_pairs)
    assert lower_end(Sample("gain", np.full(5, 0.2))) == pytest.approx(0.2)
    assert lower_end(Sample("gain", np.array([0.4]))) == -math.inf
