import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportions_ztest

from adiabat.measure.metrics import PairCounts, pnd_mean, pnd_pooled
from adiabat.measure.significance import (
    Z_CRITICAL,
    PairedDraws,
    PerQuery,
    benjamini_hochberg,
    bootstrap_p_values,
    change_from_draws,
    paired_bootstrap,
    percentile_interval,
    pnd_per_query,
    resampling_counts,
    two_proportion_z,
    verdict_of,
)


def measured(after, before=None, *, denominator=None, lower_is_better=False, counts=None) -> PerQuery:
    arrays = [None if values is None else np.asarray(values, dtype=np.float64) for values in (after, before, denominator)]
    return PerQuery("AP", "cosine", lower_is_better, arrays[0], arrays[1], arrays[2], counts)


def drawn(units: int, *, resamples: int, seed: int, block_size: int | None = None) -> np.ndarray:
    return np.concatenate(list(resampling_counts(units, resamples=resamples, seed=seed, block_size=block_size)))


def pair_counts(errors, pairs) -> PairCounts:
    return PairCounts(np.array(errors), np.array(pairs))


def test_two_proportion_z_of_a_case_worked_by_hand():
    # Shares 0.6 and 0.4 of 50: P = 0.5, standard error sqrt(2 / 4 / 50) = 0.1.
    assert two_proportion_z(30, 20, 50) == pytest.approx(-2.0)
    assert two_proportion_z(20, 30, 50) == pytest.approx(2.0)


@pytest.mark.parametrize(("before", "after", "total"), [(300, 250, 1000), (1, 9, 40), (77_000, 77_400, 487_983)])
def test_two_proportion_z_agrees_with_statsmodels(before, after, total):
    expected, _ = proportions_ztest([after, before], [total, total])
    assert two_proportion_z(before, after, total) == pytest.approx(expected)


@pytest.mark.parametrize(("before", "after"), [(0, 0), (10, 10), (4, 4)])
def test_equal_shares_have_z_of_zero(before, after):
    assert two_proportion_z(before, after, 10) == 0.0


@pytest.mark.parametrize(("counts", "message"), [((0, 0, 0), "total"), ((11, 0, 10), "errors_before"), ((0, -1, 10), "errors_after")])
def test_two_proportion_z_refuses_impossible_counts(counts, message):
    with pytest.raises(ValueError, match=f"{message} must"):
        two_proportion_z(*counts)


def test_z_critical_leaves_five_percent_outside():
    assert 2 * stats.norm.sf(Z_CRITICAL) == pytest.approx(0.05, abs=1e-4)


def test_each_resample_draws_as_many_units_as_there_are():
    counts = drawn(37, resamples=200, seed=0)
    assert counts.shape == (200, 37)
    assert (counts.sum(axis=1) == 37).all()


def test_resampling_counts_have_the_moments_of_the_multinomial():
    counts = drawn(20, resamples=20_000, seed=1)
    np.testing.assert_allclose(counts.mean(axis=0), 1.0, atol=0.05)
    np.testing.assert_allclose(counts.var(axis=0), 1 - 1 / 20, atol=0.05)
    assert np.cov(counts[:, 0], counts[:, 1])[0, 1] == pytest.approx(-1 / 20, abs=0.03)


@pytest.mark.parametrize("block_size", [1, 3, 7, 50, 1000])
def test_resamples_do_not_depend_on_the_block_size(block_size):
    # An odd number of units, so that blocks end in the middle of the generator's 64-bit words.
    assert np.array_equal(drawn(13, resamples=50, seed=2, block_size=block_size), drawn(13, resamples=50, seed=2))


def test_resamples_depend_on_the_seed():
    assert not np.array_equal(drawn(13, resamples=50, seed=2), drawn(13, resamples=50, seed=3))


@pytest.mark.parametrize("setting", ["units", "resamples", "block_size"])
def test_resampling_refuses_sizes_that_are_not_positive(setting):
    sizes = {"units": 3, "resamples": 3, "block_size": 3, setting: 0}
    with pytest.raises(ValueError, match=f"{setting} must be above 0, got 0"):
        next(resampling_counts(sizes["units"], resamples=sizes["resamples"], seed=0, block_size=sizes["block_size"]))


def test_paired_bootstrap_agrees_with_plain_loops_over_the_same_resamples():
    generator = np.random.default_rng(4)
    before, after, weight = generator.random(9), generator.random(9), generator.integers(1, 5, 9).astype(float)
    (change,) = paired_bootstrap([measured(after, before, denominator=weight, lower_is_better=True)], seed=5, resamples=300)
    values, differences, improvements = [], [], []
    for counts in drawn(9, resamples=300, seed=5):
        total = sum(count * w for count, w in zip(counts, weight, strict=True))
        value, base = (sum(c * v for c, v in zip(counts, side, strict=True)) / total for side in (after, before))
        values.append(value)
        differences.append(value - base)
        improvements.append(-100 * (value - base) / base)
    assert change.after == pytest.approx(after.sum() / weight.sum())
    assert change.before == pytest.approx(before.sum() / weight.sum())
    assert change.difference == pytest.approx((after - before).sum() / weight.sum())
    assert change.improvement == pytest.approx(100 * (before.sum() - after.sum()) / before.sum())
    assert change.after_interval == pytest.approx(tuple(np.percentile(values, [2.5, 97.5])))
    assert change.difference_interval == pytest.approx(tuple(np.percentile(differences, [2.5, 97.5])))
    assert change.improvement_interval == pytest.approx(tuple(np.percentile(improvements, [2.5, 97.5])))
    tails = [sum(d <= 0 for d in differences), sum(d >= 0 for d in differences)]
    assert change.p_paired == pytest.approx(min(1, 2 * (1 + min(tails)) / 301))


def test_intervals_agree_with_scipy():
    generator = np.random.default_rng(6)
    before = generator.random(400)
    after = before + generator.normal(0.02, 0.1, 400)
    (change,) = paired_bootstrap([measured(after, before)], seed=7)
    peer = stats.bootstrap((after - before,), np.mean, n_resamples=10_000, method="percentile", rng=np.random.default_rng(8), batch=500)
    width = peer.confidence_interval.high - peer.confidence_interval.low
    assert change.difference_interval == pytest.approx((peer.confidence_interval.low, peer.confidence_interval.high), abs=0.03 * width)


def test_measures_of_the_same_queries_share_their_resamples():
    generator = np.random.default_rng(9)
    one, two = (measured(generator.random(30), generator.random(30)) for _ in range(2))
    together = paired_bootstrap([one, two], seed=1, resamples=500)
    apart = [paired_bootstrap([each], seed=1, resamples=500)[0] for each in (one, two)]
    for joint, single in zip(together, apart, strict=True):
        assert joint.difference_interval == pytest.approx(single.difference_interval, abs=1e-12)
        assert joint.p_paired == single.p_paired


def test_pairing_ignores_what_before_and_after_share():
    generator = np.random.default_rng(10)
    base, gain = generator.normal(0, 100, 200), generator.normal(0.05, 0.1, 200)
    (change,) = paired_bootstrap([measured(base + gain, base)], seed=0, resamples=2000)
    assert change.verdict == "better"
    assert change.after_interval[1] - change.after_interval[0] > 100 * (change.difference_interval[1] - change.difference_interval[0])


def test_swapping_before_and_after_mirrors_the_answer():
    generator = np.random.default_rng(11)
    before = generator.random(100)
    after = before + generator.normal(0.05, 0.1, 100)
    (forth,), (back,) = (paired_bootstrap([measured(*sides)], seed=3, resamples=999) for sides in ((after, before), (before, after)))
    assert (forth.verdict, back.verdict) == ("better", "worse")
    assert back.difference_interval == pytest.approx((-forth.difference_interval[1], -forth.difference_interval[0]))
    assert back.p_paired == forth.p_paired


def test_direction_decides_between_better_and_worse():
    before, after = np.linspace(0.2, 0.4, 50), np.linspace(0.3, 0.6, 50)
    higher, lower = paired_bootstrap([measured(after, before), measured(after, before, lower_is_better=True)], seed=0, resamples=500)
    assert (higher.verdict, lower.verdict) == ("better", "worse")
    assert higher.improvement == -lower.improvement > 0


def test_no_change_is_no_evidence():
    values = np.random.default_rng(12).random(40) / 3
    (change,) = paired_bootstrap([measured(values, values)], seed=0, resamples=200)
    assert (change.difference, change.difference_interval, change.p_paired, change.verdict) == (0.0, (0.0, 0.0), 1.0, "no evidence")


@pytest.mark.parametrize(("changed", "p_value", "verdict"), [(1, 1.0, "no evidence"), (5, 1 / 16, "no evidence"), (6, 1 / 32, "better")])
def test_few_changed_queries_are_no_evidence_however_uniform(changed, p_value, verdict):
    (change,) = paired_bootstrap([measured(np.ones(changed), np.zeros(changed))], seed=0, resamples=1000)
    assert change.difference_interval == (1.0, 1.0)
    assert (change.p_paired, change.verdict) == (p_value, verdict)


def test_the_bootstrap_rejects_a_true_null_about_five_times_in_a_hundred():
    generator = np.random.default_rng(13)
    differences = generator.standard_normal((60, 400))
    changes = paired_bootstrap([measured(column, np.zeros(60)) for column in differences.T], seed=14, resamples=1000)
    rejected = sum(change.verdict != "no evidence" for change in changes)
    assert 8 <= rejected <= 40


def test_a_single_model_has_only_its_interval():
    (change,) = paired_bootstrap([measured([0.0, 1.0, 1.0, 0.0])], seed=0, resamples=500)
    assert (change.after, change.after_interval) == (0.5, (0.0, 1.0))
    paired = ("before", "improvement", "difference", "difference_interval", "improvement_interval", "p_paired", "z", "verdict")
    assert all(getattr(change, name) is None for name in paired)


def test_a_baseline_of_zero_has_no_improvement():
    (change,) = paired_bootstrap([measured(np.ones(20), np.zeros(20))], seed=0, resamples=100)
    assert (change.improvement, change.improvement_interval, change.verdict) == (None, None, "better")


def test_a_baseline_that_vanishes_in_many_resamples_has_no_improvement_interval():
    before = np.zeros(20)
    before[3] = 1.0
    (change,) = paired_bootstrap([measured(np.ones(20), before)], seed=0, resamples=500)
    assert change.improvement == pytest.approx(1900.0)
    assert change.improvement_interval is None
    assert all(math.isfinite(end) for end in change.difference_interval)


def test_queries_without_denominator_weigh_nothing():
    after, before = [0.2, 0.0, 0.4], [0.1, 0.0, 0.1]
    (change,) = paired_bootstrap([measured(after, before, denominator=[1, 0, 1])], seed=0, resamples=500)
    assert (change.after, change.before) == (pytest.approx(0.3), pytest.approx(0.1))
    assert change.after_interval == (pytest.approx(0.2), pytest.approx(0.4))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (measured([]), "at least one query"),
        (measured([np.nan, 1.0]), "after must be finite"),
        (measured([1.0, 1.0], [np.inf, 1.0]), "before must be finite"),
        (measured([1.0, 1.0], denominator=[0, 0]), "denominator must be"),
        (measured([1.0, 1.0], denominator=[-1, 2]), "denominator must be"),
    ],
)
def test_values_that_cannot_be_measured_are_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        paired_bootstrap([bad], seed=0, resamples=10)


def test_measures_of_different_queries_are_refused():
    with pytest.raises(ValueError, match="same 2 queries as the others, got 3"):
        paired_bootstrap([measured([1.0, 2.0]), measured([1.0, 2.0, 3.0])], seed=0, resamples=10)


def test_nothing_measured_gives_no_changes():
    assert paired_bootstrap([], seed=0) == []


def test_percentile_interval_holds_the_middle_of_the_draws():
    assert percentile_interval(np.arange(101.0), confidence=0.9) == (pytest.approx(5.0), pytest.approx(95.0))
    with pytest.raises(ValueError, match=r"confidence must lie between 0 and 1, got 1\.0"):
        percentile_interval(np.arange(3.0), confidence=1.0)
    with pytest.raises(ValueError, match="at least one resample"):
        percentile_interval(np.array([]))


def test_bootstrap_p_values_of_cases_worked_by_hand():
    low, high, changed = np.array([0, 99, 4, 0]), np.array([99, 0, 95, 99]), np.array([50, 50, 50, 3])
    p_values = bootstrap_p_values(low, high, resamples=99, changed=changed)
    assert p_values.tolist() == pytest.approx([0.02, 0.02, 0.1, 0.25])
    with pytest.raises(ValueError, match="resamples must be above 0"):
        bootstrap_p_values(low, high, resamples=0, changed=changed)


@pytest.mark.parametrize(
    ("interval", "p_value", "lower_is_better", "expected"),
    [
        ((0.1, 0.2), 0.01, False, "better"),
        ((0.1, 0.2), 0.01, True, "worse"),
        ((-0.2, -0.1), 0.01, False, "worse"),
        ((-0.2, -0.1), 0.01, True, "better"),
        ((0.0, 0.2), 0.01, False, "no evidence"),
        ((-0.2, 0.0), 0.01, True, "no evidence"),
        ((-0.1, 0.2), 0.3, False, "no evidence"),
        ((0.1, 0.2), 0.06, False, "no evidence"),
        ((math.nan, math.nan), 0.01, False, "no evidence"),
    ],
)
def test_the_verdict_needs_an_interval_clear_of_zero(interval, p_value, lower_is_better, expected):
    assert verdict_of(interval, p_value=p_value, lower_is_better=lower_is_better) == expected


def test_change_from_draws_names_the_measure():
    draws = np.linspace(-1.0, 1.0, 41)
    paired = PairedDraws(before=0.5, before_draws=draws + 2, difference_draws=draws + 1.5, changed=30)
    change = change_from_draws(1.5, draws, paired, measure="RR", similarity="distance", lower_is_better=False, z=0.7)
    assert (change.measure, change.similarity, change.z, change.verdict) == ("RR", "distance", 0.7, "better")
    assert change.improvement == pytest.approx(200.0)


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


def test_benjamini_hochberg_refuses_a_rate_outside_its_range():
    with pytest.raises(ValueError, match=r"rate must lie between 0 and 1, got 1\.0"):
        benjamini_hochberg(np.array([0.5]), rate=1.0)


def test_both_discrepancies_come_out_as_metrics_defines_them():
    generator = np.random.default_rng(15)
    pairs = generator.integers(0, 30, 50)
    before, after = (pair_counts(generator.binomial(pairs, share), pairs) for share in (0.3, 0.1))
    mean, pooled = paired_bootstrap(pnd_per_query(after, before, similarity="distance"), seed=0, resamples=500)
    assert (mean.measure, pooled.measure, mean.similarity) == ("PND", "PND pooled", "distance")
    assert (mean.after, mean.before) == (pytest.approx(pnd_mean(after.errors, pairs)), pytest.approx(pnd_mean(before.errors, pairs)))
    assert pooled.after == pytest.approx(pnd_pooled(after.errors, pairs))
    assert pooled.z == two_proportion_z(int(before.errors.sum()), int(after.errors.sum()), int(pairs.sum()))
    assert mean.lower_is_better
    assert (mean.verdict, pooled.verdict) == ("better", "better")


def test_the_mean_over_queries_has_no_z_since_it_may_change_the_other_way():
    # Fifty queries of two pairs lose their only error; one of a thousand pairs gains two hundred.
    before = pair_counts([1] * 50 + [500], [2] * 50 + [1000])
    after = pair_counts([0] * 50 + [700], [2] * 50 + [1000])
    mean, pooled = paired_bootstrap(pnd_per_query(after, before, similarity="cosine"), seed=0, resamples=100)
    assert mean.difference < 0 < pooled.difference
    assert (mean.z, pooled.z > Z_CRITICAL) == (None, True)


def test_discrepancies_without_a_baseline_have_no_z():
    changes = paired_bootstrap(pnd_per_query(pair_counts([1, 2], [4, 4]), similarity="cosine"), seed=0, resamples=50)
    assert [change.z for change in changes] == [None, None]
    assert [change.after for change in changes] == [3 / 8, 3 / 8]


def test_discrepancies_over_different_pairs_are_refused():
    with pytest.raises(ValueError, match="must compare the same pairs"):
        pnd_per_query(pair_counts([1], [4]), pair_counts([1], [5]), similarity="cosine")
