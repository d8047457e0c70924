"""Power: by hand, against statsmodels and the noncentral t, and by simulation."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower

from adiabat.core.margin import Margin
from adiabat.report.power_section import assumption, finding, improvement, loss
from adiabat.results.power_record import Power
from adiabat.stats import power as module
from adiabat.stats.clusters import Clusters
from adiabat.stats.paired import paired_changes
from adiabat.stats.power import SPREAD, SPREAD_RANGE, power_of
from adiabat.stats.samples import SHARE, Sample


def said(power: Power) -> str:
    return f"{finding(power)} {assumption(power)}".rstrip()


def sample(values, measure: str = "nDCG@10", **options) -> Sample:
    return Sample(measure, np.asarray(values, dtype=np.float64), "cosine", **{"bounds": SHARE, **options})


def pair(units: int, *, seed: int = 0, spread: float = 0.1) -> tuple[Sample, Sample]:
    random = np.random.default_rng(seed)
    before = random.uniform(0.2, 0.8, units)
    return sample(before), sample(before + random.normal(0, spread, units))


def quantiles(freedom: float, level: float = 0.975) -> float:
    """Standard errors of a difference that is shown at this level four times in five."""
    return stats.t.ppf(level, freedom) + stats.t.ppf(0.8, freedom)


def test_by_hand() -> None:
    """Differences +0.1 and -0.1, eight each: SD 0.1 sqrt(16 / 15), SE 0.1 / sqrt(15); t quantiles of 15
    degrees from a table.
    """
    before = np.full(16, 0.5)
    found = power_of(sample(before), sample(before + np.tile([0.1, -0.1], 8)))
    assert found.detectable == pytest.approx(0.1 / math.sqrt(15) * (2.131 + 0.866), rel=1e-3)
    # None of 16 lost much, so up to 17 % of all may lose what they have.
    by_error, unseen = 0.1 / math.sqrt(15) * (1.753 + 0.866), 0.5 * (1 - 0.05 ** (1 / 16))
    assert found.excludable == pytest.approx(math.hypot(unseen, by_error), rel=1e-3)
    assert (found.units, found.before, found.room, found.margin) == (16, 0.5, 0.5, pytest.approx(0.005))
    assert found.spread is None
    assert found.detectable_range is None


@pytest.mark.parametrize("units", [20, 100, 1000])
def test_a_detectable_difference_has_the_power_that_statsmodels_and_the_noncentral_t_say(units: int) -> None:
    before, after = pair(units)
    found = power_of(before, after)
    assert found.detectable is not None
    assert found.excludable is not None
    spread = (after.values - before.values).std(ddof=1)
    assert TTestPower().power(found.detectable / spread, units, 0.05) == pytest.approx(0.8, abs=0.004)
    if units > 100:  # Of 100 too few lose much.
        one_sided = TTestPower().power(found.excludable / spread, units, 0.05, alternative="larger")
        assert one_sided == pytest.approx(0.8, abs=0.004)
    shift, critical = found.detectable / spread * math.sqrt(units), stats.t.ppf(0.975, units - 1)
    assert stats.nct.sf(critical, units - 1, shift) == pytest.approx(0.8, abs=0.004)


def test_it_is_the_detectable_difference_of_the_comparison() -> None:
    """The bootstrap has the same standard error, to its own noise."""
    before, after = pair(400)
    (change,) = paired_changes([after], [before], seed=0, resamples=10_000)
    assert change.detectable == pytest.approx(power_of(before, after).detectable, rel=0.03)


def test_clusters_of_equal_queries_count_once() -> None:
    before, after = pair(60)
    once = power_of(before, after)
    clusters = Clusters(np.repeat(np.arange(60), 5))
    copies = [replace(side, values=np.repeat(side.values, 5), clusters=clusters) for side in (before, after)]
    found = power_of(*copies)
    assert found.detectable == pytest.approx(once.detectable)
    assert (found.units, found.needed) == (300, 5 * once.needed)
    assert power_of(copies[0]).detectable == pytest.approx(power_of(before).detectable)


def test_weights_and_units_without_weight() -> None:
    """Of pairs that weigh 2 and 3, and nothing in between: the ratio's jackknife by plain loops."""
    values, other = np.array([1.0, 0, 2, 3, 1]), np.array([1.0, 0, 1, 1, 2])
    weights = np.array([2.0, 0, 2, 3, 3])
    options = {"reference": weights, "lower_is_better": True}
    found = power_of(sample(values, "PND pooled", **options), sample(other, "PND pooled", **options))
    rows = [0, 2, 3, 4]
    rest = [[other_row for other_row in rows if other_row != row] for row in rows]
    without = np.array([(other[kept].sum() - values[kept].sum()) / weights[kept].sum() for kept in rest])
    error = math.sqrt(3 / 4 * ((without - without.mean()) ** 2).sum())
    assert found.units == 4
    assert found.before == pytest.approx(0.7)
    assert found.room == pytest.approx(0.7)
    # The four are worth 100 / 26 of equal weight.
    freedom = 100 / 26 - 1
    assert found.detectable == pytest.approx(error * quantiles(freedom))
    assert found.excludable is None, "four units exclude nothing"


def test_a_prediction_takes_the_spread_of_the_scores() -> None:
    before, _ = pair(800)
    found = power_of(before)
    factor = quantiles(799) * before.values.std(ddof=1) / math.sqrt(800)
    assert found.spread == SPREAD
    assert found.detectable == pytest.approx(SPREAD * factor)
    assert found.detectable_range == pytest.approx([spread * factor for spread in SPREAD_RANGE])
    # Of 800 queries more than eight are expected to lose much: the spread alone bounds the loss.
    assert found.excludable == pytest.approx(found.detectable * 2.4883 / 2.8055, rel=1e-3)
    ends = f"{SPREAD_RANGE[0]:g} to {SPREAD_RANGE[1]:g}"
    for part in (f"{SPREAD:g} times", ends, "800\N{NO-BREAK SPACE}queries", "about"):
        assert part in said(found)


def test_few_expected_losses_bound_a_loss_by_their_share() -> None:
    """Of 100 queries one is expected to lose half of what it has, and up to 3 % may lose all unseen."""
    before = sample(np.full(100, 0.5) + np.tile([0.01, -0.01], 50))
    assert int(100 * module.LOSING) == 1
    ends = [stats.beta.ppf(0.95, lost + 1, 100 - lost) for lost in (0, 1)]
    upper, seen = 0.51 * (ends[0] + (ends[1] - ends[0]) * module.LARGE_LOSS), 0.51 * module.LARGE_LOSS / 100
    assert power_of(before).excludable == pytest.approx(upper - seen, rel=0.01)


def test_the_units_that_a_margin_needs_exclude_it() -> None:
    before, after = pair(300)
    found = power_of(before, after)
    assert found.margin is not None
    assert found.needed is not None
    assert found.needed > 300
    times = math.ceil(found.needed / 300)
    more = power_of(sample(np.tile(before.values, times)), sample(np.tile(after.values, times)))
    assert more.excludable is not None
    assert more.excludable <= 1.01 * found.margin
    assert more.needed is None
    assert f"takes about {float(f'{found.needed:.2g}'):,.0f}" in said(found)
    assert "To exclude" not in said(more)


def test_an_absolute_margin() -> None:
    before, after = pair(300)
    found = power_of(before, after, margin=Margin(absolute=0.1))
    assert (found.margin, found.margin_text, found.needed) == (0.1, "0.1", None)


@pytest.mark.parametrize(
    ("values", "detectable", "excludable"),
    [([0.5], False, False), ([0.1, 0.9] * 4, True, False)],
)
def test_what_shows_nothing_is_none(values: list[float], detectable: bool, excludable: bool) -> None:
    """One unit; eight."""
    found = power_of(sample(values))
    assert (found.detectable is not None, found.excludable is not None) == (detectable, excludable)
    assert ("cannot show any gain" in said(found)) != detectable
    assert ("cannot exclude any loss" in said(found)) != excludable


@pytest.mark.parametrize("value", [0.0, 0.1, 0.5, 1.0])
def test_power_is_unknown_where_nothing_varies(value: float) -> None:
    before = sample([value] * 400)
    for found, what in ((power_of(before), "scores"), (power_of(before, before), "differences")):
        assert (found.detectable, found.excludable, found.needed, found.varies) == (None, None, None, False)
        assert said(found).endswith(f"is unknown, because all {what} are equal.")
        assert (improvement(found), loss(found)) == (("", ""), ("", ""))
    scores, _ = pair(400)
    assert said(power_of(scores, scores)).endswith("is unknown, because all differences are equal.")


def test_no_more_than_all_is_lost_or_gained() -> None:
    """Ten queries of which one scores 0.2: a mean of 0.02 has only 0.02 to lose; upwards, twelve of which
    half score.
    """
    found = power_of(sample([0.2, *[0.0] * 9]), sample([0.0, 0.9, *[0.0] * 8]))
    assert found.losable == pytest.approx(0.02)
    assert found.excludable is not None
    assert found.excludable > found.losable
    assert "cannot exclude any loss" in said(found)
    assert loss(found) == ("", "")
    half = power_of(sample([0.0, 1.0] * 4 + [0.5]))
    assert half.room == pytest.approx(0.5)
    wide = replace(half, detectable=0.4, detectable_range=(0.25, 0.65))
    assert improvement(wide) == ("80\N{NO-BREAK SPACE}%", "50\N{NO-BREAK SPACE}% or more")
    assert loss(replace(wide, excludable=0.4, excludable_range=(0.25, 0.65))) == improvement(wide)
    nothing = power_of(sample(np.zeros(60)), sample(np.tile([0.1, 0.0], 30)))
    assert "show gains of 0.0" in said(nothing)
    assert "have no loss to exclude" in said(nothing)
    assert power_of(sample(np.arange(20.0), bounds=None)).losable is None


def test_the_share_of_clusters_that_lose_grows_with_their_size() -> None:
    """Of 100 clusters of ten, 11 are expected to lose much: enough that their spread alone bounds the loss;
    of twins only two.
    """
    scores, _ = pair(1000)
    found = power_of(replace(scores, clusters=Clusters(np.repeat(np.arange(100), 10))))
    summed = scores.values.reshape(100, 10).mean(axis=1)
    assert found.excludable == pytest.approx(SPREAD * quantiles(99, 0.95) * summed.std(ddof=1) / 10)
    in_twos = Clusters(np.repeat(np.arange(100), 2))
    twins = power_of(replace(scores, values=scores.values[:200], clusters=in_twos))
    summed = scores.values[:200].reshape(100, 2).mean(axis=1)
    ends = [stats.beta.ppf(0.95, lost + 1, 100 - lost) for lost in range(3)]
    unseen = summed.max() * (ends[0] + (ends[2] - ends[0]) * module.LARGE_LOSS - 2 * module.LARGE_LOSS / 100)
    half = SPREAD * quantiles(99, 0.95) * summed.std(ddof=1) / 10
    assert twins.excludable == pytest.approx(math.hypot(unseen, half))


def test_no_range_is_printed_where_its_ends_are_equal() -> None:
    found = power_of(sample(np.full(60, 0.5) + np.tile([0.01, -0.01], 30)))
    assert found.excludable_range is not None
    assert loss(found) == ("5\N{NO-BREAK SPACE}%", "")
    assert "and exclude losses of about 5\N{NO-BREAK SPACE}% or more" in said(found)


def test_a_perfect_score_may_be_too_near_to_show_it() -> None:
    found = power_of(sample([1.0] * 29 + [0.0]))
    assert found.detectable is not None
    assert found.room == pytest.approx(1 / 30)
    assert "even a perfect score gains only 3.4" in said(found)


def test_a_rank_correlation_is_not_predicted() -> None:
    ranks = {"statistic": "spearman", "reference": np.arange(20.0), "bounds": (-1.0, 1.0)}
    scores, moved = (
        sample(values, "Spearman", **ranks) for values in (np.arange(20.0), np.arange(20.0)[::-1])
    )
    with pytest.raises(ValueError, match="Spearman can be predicted only"):
        power_of(scores)
    assert power_of(scores, moved).units == 20


def test_simulated_comparisons_keep_the_power() -> None:
    """Queries change one in five, by any amount: 400 comparisons of 300 with a true gain, and without one."""
    random = np.random.default_rng(5)
    units, trials = 300, 400
    before = np.clip(random.normal(0.6, 0.35, (trials, units)), 0, 1)
    noise = np.where(random.random((trials, units)) < 0.2, random.normal(0, 0.25, (trials, units)), 0)
    predicted = power_of(sample(before[0]), sample(before[0] + noise[0], bounds=None))
    assert predicted.detectable is not None
    assert predicted.excludable is not None
    shown = stats.ttest_1samp(noise + predicted.detectable, 0, axis=1).pvalue < 0.05
    excluded = stats.ttest_1samp(noise, -predicted.excludable, axis=1, alternative="greater").pvalue < 0.05
    assert np.mean(shown) == pytest.approx(0.8, abs=0.08)
    assert np.mean(excluded) == pytest.approx(0.8, abs=0.08)
