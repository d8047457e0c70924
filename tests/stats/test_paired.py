"""Two models on the same units: the whole record of a change, against plain loops, scipy, and what must hold
by symmetry.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from scipy import stats

from adiabat.evaluation.language_grid_measures import measure_grid
from adiabat.results.evaluation_result import Change
from adiabat.stats.jackknife import Jackknife
from adiabat.stats.paired import changes_over_runs, paired_changes
from adiabat.stats.ranking_measures import PairCounts, pnd_samples
from adiabat.stats.resampling import bca_interval, resampling_counts
from adiabat.stats.samples import CORRELATION, SHARE, Sample
from adiabat.stats.significance import Z_CRITICAL, sign_flip_p_values, two_proportion_z
from adiabat.stats.statistics import value_of
from tests.stats.brute_force import discrepancy_by_loops
from tests.stats.test_resampling import bca_of_scipy
from tests.stats.test_statistics import EVERY, clusters, precision, referred, spearman

PAIRED = (
    *("before", "improvement", "difference", "difference_interval", "improvement_interval"),
    *("p", "z", "verdict", "test", "effect", "gained", "lost", "detectable"),
)


def sample(values, *, reference=None, **options) -> Sample:
    weights = None if reference is None else np.asarray(reference, dtype=np.float64)
    return Sample("AP", np.asarray(values, dtype=np.float64), "cosine", weights, **options)


def change(after, before=None, *, resamples: int = 500, seed: int = 0, **options) -> Change:
    other = None if before is None else [sample(before, **options)]
    return paired_changes([sample(after, **options)], other, seed=seed, resamples=resamples)[0]


def noisy(values: Sample, *, seed: int) -> Sample:
    """Another model: similarities a little off, one in five clusters exchanged for the next unit's."""
    random, old = np.random.default_rng(seed), values.values
    if values.statistic == "v-measure":
        return replace(values, values=np.where(random.random(old.size) < 0.2, np.roll(old, 1), old))
    return replace(values, values=old + random.normal(0, 1.0, old.size))


def quantile_by_johnson(freedom: float, acceleration: float) -> float:
    """Quantile of t, as much further out as the normal one is by ``a (2 z^2 + 1)``; no nearer than t."""
    z = stats.norm.ppf(0.975)
    return stats.t.ppf(0.975, freedom) * max(z, z - acceleration * (2 * z**2 + 1)) / z


def pair_counts(errors, pairs) -> PairCounts:
    return PairCounts(np.array(errors), np.array(pairs))


def test_a_change_agrees_with_plain_loops():
    random = np.random.default_rng(4)
    before, after, weight = random.random(9), random.random(9), random.integers(1, 5, 9).astype(float)
    found = change(after, before, reference=weight, lower_is_better=True, seed=5, resamples=300)
    assert found.after == pytest.approx(after.sum() / weight.sum())
    assert found.before == pytest.approx(before.sum() / weight.sum())
    assert found.difference == pytest.approx((after - before).sum() / weight.sum())
    assert found.improvement == pytest.approx(100 * (before.sum() - after.sum()) / before.sum())
    # As many units of equal weight are worth fewer.
    freedom = weight.sum() ** 2 / (weight**2).sum() - 1
    rows = 1 - np.eye(9)
    without = {
        "after": rows @ after / (rows @ weight),
        "difference": rows @ (after - before) / (rows @ weight),
    }
    for name, left_out in without.items():
        error = math.sqrt(8 / 9 * ((left_out - left_out.mean()) ** 2).sum())
        influence = left_out.mean() - left_out
        skewness = (influence**3).sum() / (6 * (influence**2).sum() ** 1.5)
        down, up = (quantile_by_johnson(freedom, a) * error for a in (skewness, -skewness))
        value = getattr(found, name)
        assert getattr(found, f"{name}_interval") == pytest.approx((value - down, value + up)), name
    low, high = found.difference_interval
    quantile = (high - low) / 2 / error
    assert found.improvement_interval == pytest.approx(
        (-100 * high / found.before, -100 * low / found.before)
    )
    c4 = math.sqrt(2 / freedom) * math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2)
    shift = found.detectable * c4 / error
    assert stats.nct.sf(quantile, freedom, shift) == pytest.approx(0.8, abs=1e-3)
    shares = (after - before) / weight.sum()
    assert found.p == sign_flip_p_values(shares[:, None], seed=5, flips=300)[0]
    assert found.effect == pytest.approx(shares.mean() / shares.std(ddof=1))
    assert (found.gained, found.lost) == (int((after < before).sum()), int((after > before).sum()))


@pytest.mark.parametrize("units", [2, 10, 400])
def test_a_paired_interval_of_symmetric_units_is_that_of_scipys_t_test(units):
    before = np.linspace(0.2, 0.7, units)
    after = before + 0.02 + np.linspace(-0.1, 0.1, units)
    found = change(after, before)
    peer = stats.ttest_rel(after, before).confidence_interval()
    assert found.difference_interval == pytest.approx(tuple(peer))
    assert found.after_interval == pytest.approx(tuple(stats.ttest_1samp(after, 0).confidence_interval()))


def test_a_paired_interval_worked_by_hand():
    """Differences 1, 2 and 6: mean 3, standard error sqrt(7 / 3), and t_97.5 of 2 degrees 4.303.

    Their influences -2/3, -1/3 and 1 times 2/3 have the acceleration 18 / (6 14^1.5) = 0.05727. Upwards, the
    normal quantile 1.96 grows by 0.05727 (2 1.96^2 + 1) = 0.4973, t as much; downwards it does not shrink.
    """
    found = change([1.0, 2.0, 6.0], [0.0, 0.0, 0.0])
    half = 4.303 * math.sqrt(7 / 3)
    assert found.difference_interval == pytest.approx((3 - half, 3 + half * 2.4573 / 1.96), rel=1e-3)


def test_a_skewed_interval_is_that_of_bca_or_wider():
    """BCa by scipy, which corrects for skewness too; where it says less, that of t stands."""
    random = np.random.default_rng(6)
    before = random.random(400)
    after = before + random.exponential(0.1, 400)
    found = change(after, before)
    peer = bca_of_scipy((after - before,), np.mean, seed=8, n_resamples=10_000, batch=500)
    low, high = peer.confidence_interval
    by_t = found.difference - 1.96 * peer.standard_error
    assert found.difference_interval == pytest.approx((by_t, high), abs=0.03 * (high - low))


def test_an_interval_of_a_mean_needs_no_resamples():
    random = np.random.default_rng(2)
    after, before = random.random(30), random.random(30)
    few, many = (change(after, before, resamples=resamples, seed=resamples) for resamples in (1, 3000))
    assert few.difference_interval == many.difference_interval
    assert few.after_interval == many.after_interval
    assert few.p != many.p, "sign flips are drawn"


def test_a_level_between_bounds_has_an_interval_between_them():
    """Nine of ten queries: p with |0.9 - p| <= 2.262 sqrt(p (1 - p) / 9), solved by hand."""
    found = change([1.0] * 9 + [0.0], bounds=SHARE)
    pull = 2.262**2 / 9
    centre, half = (0.9 + pull / 2) / (1 + pull), math.sqrt(pull * 0.09 + pull**2 / 4) / (1 + pull)
    assert found.after_interval == pytest.approx((centre - half, centre + half), rel=1e-3)
    assert found.after_interval[1] < 1


def test_measures_of_the_same_units_share_resamples_and_flips():
    random = np.random.default_rng(9)
    rho = replace(spearman(), measure="rho")
    after, before = ([sample(random.random(30)), sample(random.random(30))] for _ in range(2))
    after, before = [*after, rho], [*before, noisy(rho, seed=1)]
    together = paired_changes(after, before, seed=1, resamples=300)
    for joint, one, other in zip(together, after, before, strict=True):
        (single,) = paired_changes([one], [other], seed=1, resamples=300)
        assert joint.difference_interval == pytest.approx(single.difference_interval, abs=1e-12)
        assert joint.p == single.p


def test_pairing_ignores_what_before_and_after_share():
    random = np.random.default_rng(10)
    base, gain = random.normal(0, 100, 200), random.normal(0.05, 0.1, 200)
    found = change(base + gain, base, resamples=2000)
    assert found.verdict == "better"
    assert np.ptp(found.after_interval) > 100 * np.ptp(found.difference_interval)


@EVERY
def test_swapping_before_and_after_mirrors_the_answer(make):
    one, other = make(60), noisy(make(60), seed=2)
    sides = ((one, other), (other, one))
    (forth,), (back,) = (paired_changes([a], [b], seed=3, resamples=299) for a, b in sides)
    low, high = forth.difference_interval
    assert back.difference_interval == pytest.approx((-high, -low))
    assert (back.p, back.gained, back.lost) == (forth.p, forth.lost, forth.gained)
    assert back.effect == (pytest.approx(-forth.effect) if forth.effect else None)
    assert back.detectable == pytest.approx(forth.detectable)


SHARES = some.integers(0, 8).map(lambda eighths: eighths / 8)
"""Values such as the measures of queries: between 0 and 1, many of them equal."""


@given(some.lists(some.tuples(SHARES, SHARES), min_size=2, max_size=30), some.randoms(use_true_random=False))
def test_a_change_follows_the_order_and_the_scale_of_its_units(pairs, random):
    after, before = np.array(pairs).T
    found = change(after, before, resamples=99)
    order = random.sample(range(len(pairs)), len(pairs))
    mixed = change(after[order], before[order], resamples=99)
    scaled = change(4 * after, 4 * before, resamples=99)
    low, high = found.difference_interval
    assert mixed.difference_interval == pytest.approx((low, high), abs=1e-12)
    assert scaled.difference_interval == pytest.approx((4 * low, 4 * high), abs=1e-12)
    assert scaled.improvement == pytest.approx(found.improvement)
    assert (scaled.p, scaled.verdict) == (found.p, found.verdict)
    assert (mixed.gained, mixed.lost) == (found.gained, found.lost)


@EVERY
def test_no_change_is_no_evidence(make):
    one = make(40)
    (found,) = paired_changes([one], [replace(one, values=one.values.copy())], seed=0, resamples=200)
    assert (found.difference, found.difference_interval) == (0.0, (0.0, 0.0))
    assert (found.p, found.verdict, found.effect, found.detectable) == (1.0, "undecided", None, None)


def test_differences_of_rounding_are_no_change():
    found = change([0.1 + 0.2] * 20, [0.3] * 20)
    assert (found.difference, found.p, found.gained, found.lost) == (0.0, 1.0, 0, 0)


@pytest.mark.parametrize(
    ("changed", "p_value", "verdict"),
    [(2, 1 / 2, "undecided"), (5, 1 / 16, "undecided"), (6, 1 / 32, "better")],
)
def test_few_changed_units_are_no_evidence_however_uniform(changed, p_value, verdict):
    found = change(np.ones(changed), np.zeros(changed))
    assert found.difference_interval == (1.0, 1.0)
    assert (found.p, found.verdict, found.test, found.effect) == (p_value, verdict, "sign flips", None)


def test_each_statistic_says_what_its_p_value_is_of():
    for one, test in ((spearman(), "sign flips"), (precision(), "bootstrap"), (clusters(), "bootstrap")):
        (found,) = paired_changes([one], [noisy(one, seed=1)], seed=0, resamples=200)
        assert (found.test, found.effect, found.gained, found.lost) == (test, None, None, None)
        assert 0 < found.p <= 1
        assert found.detectable > 0


def test_other_statistics_agree_with_plain_loops_over_the_same_resamples():
    one = precision()
    other = noisy(one, seed=1)
    (found,) = paired_changes([one], [other], seed=2, resamples=150)
    rows = [row[None] for row in next(resampling_counts(30, resamples=150, seed=2))]
    draws = np.concatenate([value_of(one, row) - value_of(other, row) for row in rows])
    left = replace(Jackknife.of(one), values=Jackknife.of(one).values - Jackknife.of(other).values)
    low, high = bca_interval(found.difference, draws, acceleration=left.acceleration())
    half = stats.t.ppf(0.975, 29) * left.error()[0]
    expected = (min(low, found.difference - half), max(high, found.difference + half))
    assert found.difference_interval == pytest.approx(expected)
    tail = min(sum(draws <= 0), sum(draws >= 0))
    assert found.p == pytest.approx(min(1.0, 2 * (1 + tail) / 151))


def test_groups_are_resampled_and_flipped_as_groups():
    random = np.random.default_rng(3)
    groups = np.repeat([0, 1], [10, 50])
    before = random.random(60)
    after = before + random.normal(0.1, 0.2, 60)
    found = change(after, before, groups=groups, resamples=2000)
    parts = [after[groups == g] - before[groups == g] for g in range(2)]
    assert found.difference == pytest.approx(np.mean([part.mean() for part in parts]))
    # One less the other, as scipy compares them, varies as their sum does.
    welch = stats.ttest_ind(*parts, equal_var=False)
    error = np.ptp(welch.confidence_interval()) / stats.t.ppf(0.975, welch.df) / 4
    factor = stats.t.ppf(0.975, welch.df) + stats.t.ppf(0.8, welch.df)
    assert found.detectable == pytest.approx(factor * error, rel=0.05)
    shares = (after - before) / np.where(groups == 0, 20, 100)
    assert found.p == pytest.approx(sign_flip_p_values(shares[:, None], seed=0, flips=2000)[0])


def test_a_single_model_has_only_its_interval():
    found = change([0.0, 1.0, 1.0, 0.0])
    half = stats.t.ppf(0.975, 3) * math.sqrt(1 / 12)
    assert (found.after, found.after_interval) == (0.5, pytest.approx((0.5 - half, 0.5 + half)))
    assert {name: getattr(found, name) for name in PAIRED if getattr(found, name) is not None} == {}


def test_a_baseline_of_zero_has_no_improvement():
    found = change(np.ones(20), np.zeros(20))
    assert (found.improvement, found.improvement_interval, found.verdict) == (None, None, "better")


def test_one_query_that_makes_baseline_and_change_has_no_certain_share() -> None:
    """The ratio is the same in every resample that has the query; the change is not shown."""
    before = np.zeros(30)
    before[3] = 0.33
    found = change(before * 0.95, before)
    assert found.improvement == pytest.approx(-5.0)
    low, high = found.improvement_interval
    assert low < -5.0 < 0 < high


def test_units_without_weight_do_not_count():
    found = change([0.2, 0.0, 0.4], [0.1, 0.0, 0.1], reference=[1, 0, 1])
    assert (found.after, found.before) == (pytest.approx(0.3), pytest.approx(0.1))
    assert found.effect == pytest.approx(0.2 / np.std([0.1, 0.3], ddof=1))
    assert (found.gained, found.lost) == (2, 0)


def test_a_value_that_is_defined_on_no_resample_has_an_interval_all_the_same():
    assert next(resampling_counts(3, resamples=1, seed=4)).max() == 3
    found = change([1.0, 2.0, 3.0], resamples=1, reference=[1.0, 2.0, 3.0], statistic="spearman", seed=4)
    assert found.after == 1.0
    assert all(math.isfinite(end) for end in found.after_interval)


def discrepancies(after: PairCounts, before: PairCounts, **options) -> list[Change]:
    sides = (pnd_samples(side, similarity="distance") for side in (after, before))
    return paired_changes(*sides, seed=0, **options)


def test_both_discrepancies_come_out_as_metrics_defines_them():
    random = np.random.default_rng(15)
    pairs = random.integers(0, 30, 50)
    before, after = (pair_counts(random.binomial(pairs, share), pairs) for share in (0.3, 0.1))
    mean, pooled = discrepancies(after, before, resamples=500)
    assert (mean.measure, pooled.measure, mean.similarity) == ("PND", "PND pooled", "distance")
    for counts, found in ((after, (mean.after, pooled.after)), (before, (mean.before, pooled.before))):
        assert found == pytest.approx(discrepancy_by_loops(counts.errors.tolist(), pairs.tolist()))
    assert pooled.z == two_proportion_z(int(before.errors.sum()), int(after.errors.sum()), int(pairs.sum()))
    assert mean.lower_is_better
    assert (mean.verdict, pooled.verdict) == ("better", "better")


def test_the_mean_over_queries_has_no_z_since_it_may_change_the_other_way():
    # Fifty queries of two pairs lose their only error; one of a thousand pairs gains two hundred.
    before = pair_counts([1] * 50 + [500], [2] * 50 + [1000])
    after = pair_counts([0] * 50 + [700], [2] * 50 + [1000])
    mean, pooled = discrepancies(after, before, resamples=100)
    assert mean.difference < 0 < pooled.difference
    assert (mean.z, pooled.z > Z_CRITICAL) == (None, True)


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ([], {}, "at least one unit"),
        ([np.nan, 1.0], {}, "AP values must be finite, got nan"),
        ([1.0, 1.0], {"before": [np.inf, 1.0]}, "AP values must be finite, got inf"),
        ([1.0, 1.0], {"reference": [0, 0]}, "AP must have a mean, got none"),
        ([1.0, 1.0], {"reference": [-1, 2]}, "AP reference must be at least 0, got -1"),
        ([1.0, 1.0], {"statistic": "spearman"}, "must have a reference"),
        ([1.0, 2.0], {"reference": [3, 3], "statistic": "spearman"}, "AP must have a spearman, got none"),
        ([1.0, 2.0], {"groups": np.array([0, 2])}, "AP must have a mean, got none"),
        ([1.0, 2.0], {"before": [1.0, 2.0], "resamples": 0}, "must be above 0"),
    ],
)
def test_values_that_cannot_be_measured_are_refused(values, options, message):
    with pytest.raises(ValueError, match=message):
        change(values, **options)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"measure": "RR"}, "measure must be 'AP' for both models, got 'RR'"),
        ({"lower_is_better": True}, "lower_is_better must be False for both models"),
        *(
            (other, "AP reference and groups must be the same for both models")
            for other in (
                {"reference": np.array([1.0, 3.0])},
                {"reference": None},
                {"groups": np.array([0, 1])},
            )
        ),
    ],
)
def test_models_that_were_not_measured_alike_are_refused(other, message):
    one = sample([0.5, 1.0], reference=[1.0, 2.0])
    with pytest.raises(ValueError, match=message):
        paired_changes([one], [replace(one, **other)], seed=0, resamples=10)


def test_measures_of_different_units_are_refused():
    with pytest.raises(ValueError, match="AP must be of the same 2 units as the first measure, got 3"):
        paired_changes([sample([1.0, 2.0]), sample([1.0, 2.0, 3.0])], None, seed=0, resamples=10)
    with pytest.raises(ValueError, match="before must be of the same 2 measures as after, got 1"):
        paired_changes([sample([1.0, 2.0])] * 2, [sample([1.0, 2.0])], seed=0, resamples=10)


# Where a change says less: at the ends of a measure, over few units or runs, with names and rounding aside.


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
