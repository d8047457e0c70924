"""Tests of a difference, against cases worked by hand, scipy and statsmodels."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportions_ztest

from adiabat.stats import significance
from adiabat.stats.significance import (
    EXACT_UNITS,
    benjamini_hochberg,
    bootstrap_p_value,
    exchanges,
    rank_exchange_p_value,
    sign_flip_p_values,
    two_proportion_z,
)


def flipped(*columns, seed: int = 0, flips: int = 999) -> list[float]:
    return sign_flip_p_values(np.array(columns, dtype=float).T, seed=seed, flips=flips).tolist()


def test_two_proportion_z_of_a_case_worked_by_hand():
    # Shares 0.6 and 0.4 of 50: P = 0.5, standard error sqrt(2 / 4 / 50) = 0.1.
    assert two_proportion_z(30, 20, 50) == pytest.approx(-2.0)
    assert two_proportion_z(20, 30, 50) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("before", "after", "total"), [(300, 250, 1000), (1, 9, 40), (77_000, 77_400, 487_983)]
)
def test_two_proportion_z_agrees_with_statsmodels(before, after, total):
    expected, _ = proportions_ztest([after, before], [total, total])
    assert two_proportion_z(before, after, total) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("counts", "message"),
    [((0, 0, 0), "total"), ((11, 0, 10), "errors_before"), ((0, -1, 10), "errors_after")],
)
def test_two_proportion_z_refuses_impossible_counts(counts, message):
    with pytest.raises(ValueError, match=f"{message} must"):
        two_proportion_z(*counts)


def test_sign_flips_worked_by_hand():
    # Of the eight signs of 1, 2 and 4 only all and none reach 7; six of eight reach 3 in size, 1 + 2 - 4 = -1
    # does not.
    assert flipped([1, 2, 4]) == [2 / 8]
    assert flipped([-1, 0, 0, 4, 0]) == [1.0]
    assert flipped([3, 3, 3, 3, 3, 3]) == [2 / 64]
    assert flipped([0, 0, 0]) == [1.0]


def test_sums_that_are_equal_on_paper_are_equal():
    # 0.1 + 0.2 is not 0.3 in binary: sixteen signs, of which those with 0.3 against 0.1 + 0.2 must tie.
    assert flipped([0.1, 0.2, 0.3, -0.6]) == flipped([1, 2, 3, -6]) == [1.0]
    assert flipped([0.1, 0.2, -0.3, 0.6]) == flipped([1, 2, -3, 6])


def by_scipy(after, before, **options) -> float:
    options = {"permutation_type": "samples", "vectorized": True, **options}
    return stats.permutation_test((after, before), lambda x, y, axis: (x - y).mean(axis), **options).pvalue


@pytest.mark.parametrize("units", [3, 8, EXACT_UNITS])
def test_few_differences_give_scipys_exact_p_value(units):
    differences = np.random.default_rng(units).normal(0.4, 1.0, units)
    peer = by_scipy(differences, np.zeros(units), n_resamples=np.inf)
    assert flipped(differences) == [pytest.approx(peer, abs=1e-12)]


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.25])
def test_many_differences_give_scipys_p_value_up_to_chance(shift):
    random = np.random.default_rng(1)
    after, before = random.random((2, 80))
    after += shift
    peer = by_scipy(after, before, n_resamples=9999, rng=np.random.default_rng(2))
    (found,) = flipped(after - before, flips=9999)
    assert found == pytest.approx(peer, abs=4 * math.sqrt(max(peer, 1e-3) / 9999))


def test_random_signs_agree_with_all_of_them(monkeypatch):
    differences = np.random.default_rng(4).normal(0.3, 1.0, 12)
    (exact,) = flipped(differences)
    monkeypatch.setattr(significance, "EXACT_UNITS", 0)
    assert flipped(differences, flips=20_000) == [pytest.approx(exact, abs=0.01)]


def test_sign_flips_agree_with_plain_loops_over_the_same_exchanges():
    differences = np.random.default_rng(5).normal(0.1, 1.0, 21)
    reached = 0
    for rows in exchanges(21, seed=3, flips=300):
        for row in rows:
            total = sum(-d if exchanged else d for d, exchanged in zip(differences, row, strict=True))
            reached += abs(total) >= abs(sum(differences)) - 1e-12
    assert flipped(differences, seed=3, flips=300) == [(1 + reached) / 301]


def test_columns_share_their_flips_and_are_what_they_are_apart():
    columns = np.random.default_rng(6).normal(0.1, 1.0, (5, 90))
    columns[2, 7:] = 0
    assert flipped(*columns) == [flipped(column)[0] for column in columns]


def test_units_that_do_not_differ_do_not_matter():
    few = [0.3, -0.1, 0.2, 0.5, 0.4, 0.2, 0.3]
    assert flipped(few) == flipped([*few, *[0.0] * 500])
    many = np.random.default_rng(7).normal(0.25, 1.0, 50)
    (with_zeros,) = flipped([*many, *[0.0] * 50], flips=20_000)
    assert flipped(many, flips=20_000) == [pytest.approx(with_zeros, abs=0.01)]


def test_scale_and_direction_do_not_matter():
    column = np.random.default_rng(8).normal(0.2, 1.0, 60)
    assert flipped(column) == flipped(-column) == flipped(1e-9 * column) == flipped(1e9 * column)


def test_exchanges_depend_on_the_seed_and_not_on_the_block(monkeypatch):
    every = np.concatenate(list(exchanges(70, seed=1, flips=40)))
    assert every.shape == (40, 70)
    assert set(np.unique(every)) == {0.0, 1.0}
    assert 0.45 < every.mean() < 0.55
    assert np.array_equal(np.concatenate(list(exchanges(70, seed=1, flips=40, columns=2**18))), every)
    monkeypatch.setattr(significance, "_BLOCK_CELLS", 210)
    blocks = list(exchanges(70, seed=1, flips=40))
    assert len(blocks) == 14
    assert np.array_equal(np.concatenate(blocks), every)
    assert not np.array_equal(np.concatenate(list(exchanges(70, seed=2, flips=40))), every)


@pytest.mark.parametrize(("units", "flips"), [(0, 5), (5, 0)])
def test_exchanges_refuse_sizes_that_are_not_positive(units, flips):
    with pytest.raises(ValueError, match="must be above 0, got 0"):
        next(exchanges(units, seed=0, flips=flips))


def rank_difference(after, before, reference) -> float:
    return float(np.corrcoef(after, reference)[0, 1] - np.corrcoef(before, reference)[0, 1])


@pytest.mark.parametrize("groups", [None, np.arange(24) % 2])
def test_rank_exchanges_agree_with_plain_loops(groups):
    random = np.random.default_rng(9)
    people = random.integers(0, 6, 24).astype(float)
    after, before = people + random.normal(0, 1.5, 24), np.round(people + random.normal(0, 4, 24))
    parts = [np.arange(24)] if groups is None else [np.flatnonzero(groups == g) for g in range(2)]
    ranked = [[stats.rankdata(column[part]) for column in (after, before, people)] for part in parts]
    found = abs(np.mean([rank_difference(*one) for one in ranked]))
    reached = 0
    for row in np.concatenate(list(exchanges(24, seed=5, flips=200))):
        apart = []
        for part, (one, other, third) in zip(parts, ranked, strict=True):
            moved = row[part] == 1
            apart.append(rank_difference(np.where(moved, other, one), np.where(moved, one, other), third))
        reached += abs(np.mean(apart)) >= found - 1e-9
    p_value = rank_exchange_p_value(after, before, people, groups=groups, seed=5, flips=200)
    assert p_value == pytest.approx((1 + reached) / 201)
    assert 0.01 < p_value < 0.99


def test_rank_exchanges_come_close_to_all_of_them():
    random = np.random.default_rng(10)
    people = random.random(9)
    after, before = people + random.normal(0, 0.1, 9), people + random.normal(0, 0.6, 9)
    one, other, third = (stats.rankdata(column) for column in (after, before, people))
    found = abs(rank_difference(one, other, third))
    reached = 0
    for bits in itertools.product([False, True], repeat=9):
        moved = rank_difference(np.where(bits, other, one), np.where(bits, one, other), third)
        reached += abs(moved) >= found - 1e-9
    p_value = rank_exchange_p_value(after, before, people, seed=0, flips=20_000)
    assert p_value == pytest.approx(reached / 2**9, abs=0.015)


def test_groups_in_which_an_exchange_leaves_nothing_to_rank_say_so_quietly():
    # Warnings are errors here. Exchanging one of two opposite pairs ties both ranks of either model: that
    # counts as having reached it.
    columns = (np.array(values, dtype=float) for values in ([1, 2, 3, 4], [2, 1, 4, 3], [0, 1, 2, 3]))
    rows = np.concatenate(list(exchanges(4, seed=0, flips=400)))
    split = (rows[:, 0] != rows[:, 1]) | (rows[:, 2] != rows[:, 3])
    whole = (rows[:, 0] == rows[:, 2]) & ~split
    p_value = rank_exchange_p_value(*columns, groups=np.array([0, 0, 1, 1]), seed=0, flips=400)
    assert p_value == pytest.approx((1 + (split | whole).sum()) / 401)


def test_equal_rankings_have_a_p_value_of_one():
    people = np.random.default_rng(11).random(30)
    values = np.random.default_rng(12).random(30)
    assert rank_exchange_p_value(values, 7 * values + 2, people, seed=0, flips=200) == 1.0


def test_bootstrap_p_values_of_cases_worked_by_hand():
    cases = [(0, 99, 50), (99, 0, 50), (4, 95, 50), (0, 99, 3), (60, 60, 50)]
    p_values = [bootstrap_p_value(low, high, resamples=99, changed=changed) for low, high, changed in cases]
    assert p_values == pytest.approx([0.02, 0.02, 0.1, 0.25, 1.0])
    with pytest.raises(ValueError, match="resamples must be above 0"):
        bootstrap_p_value(0, 0, resamples=0, changed=9)


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("power", [1, 3, 8])
def test_benjamini_hochberg_agrees_with_statsmodels(rate, power):
    p_values = np.round(np.random.default_rng(power).random(225) ** power, 3)
    expected = multipletests(p_values, alpha=rate, method="fdr_bh")[0]
    assert benjamini_hochberg(p_values, rate=rate).tolist() == expected.tolist()


def test_benjamini_hochberg_of_a_case_worked_by_hand():
    # Thresholds 0.0125, 0.025, 0.0375, 0.05: the third passes and takes the second along.
    assert benjamini_hochberg(np.array([0.9, 0.03, 0.01, 0.036])).tolist() == [False, True, True, True]
    assert benjamini_hochberg(np.array([0.06, 0.2])).tolist() == [False, False]
    assert benjamini_hochberg(np.array([])).tolist() == []


@pytest.mark.parametrize("bad", [math.nan, -0.1, 1.1])
def test_benjamini_hochberg_refuses_what_is_no_p_value(bad):
    with pytest.raises(ValueError, match="p_values must lie between 0 and 1"):
        benjamini_hochberg(np.array([0.5, bad]))
