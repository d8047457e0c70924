"""Non-inferiority: its bound against statsmodels, Clopper-Pearson and plain loops, and the verdicts that
follow.
"""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.weightstats import ttost_paired

from adiabat.core.margin import Margin
from adiabat.results.evaluation_result import Change
from adiabat.stats.paired import changes_over_runs, paired_changes
from adiabat.stats.samples import SHARE, Sample


def measured(values, **options) -> Sample:
    return Sample("nDCG@10", np.asarray(values, dtype=np.float64), "cosine", **{"bounds": SHARE, **options})


def compared(after, before, margin: Margin | None = None, **options) -> Change:
    sides = ([measured(values, **options)] for values in (after, before))
    return paired_changes(*sides, seed=0, resamples=4000, margin=margin or Margin())[0]


def scores(units: int, *, seed: int, change: float = 0.0, spread: float = 0.05):
    random = np.random.default_rng(seed)
    before = random.uniform(0.2, 0.8, units)
    return before + change + random.normal(0, spread, units), before


@pytest.mark.parametrize("lower_is_better", [False, True])
@pytest.mark.parametrize(("margin", "change"), [(0.02, 0.0), (0.1, -0.06), (0.05, -0.0175), (0.01, 0.005)])
def test_an_absolute_margin_agrees_with_the_one_sided_t_test_of_statsmodels(
    margin: float, change: float, lower_is_better: bool
) -> None:
    """Symmetric differences of 2,000 units, many of which lost much, where BCa and t agree to a thousandth of
    the spread.
    """
    after, before = scores(2000, seed=3, change=change, spread=0.25)
    found = compared(after, before, Margin(absolute=margin), lower_is_better=lower_is_better)
    # Whichever way is worse, the test that the loss is below the margin is one side of the TOST.
    _, above, below = ttost_paired(after, before, -margin, margin)
    p = (below if lower_is_better else above)[1]
    assert found.loss_bound is not None
    assert (found.loss_bound < margin) == (p < 0.05)
    sign = -1 if lower_is_better else 1
    error = (after - before).std(ddof=1) / math.sqrt(after.size)
    by_t = -(sign * (after - before).mean() - stats.t.ppf(0.95, after.size - 1) * error)
    assert found.loss_bound == pytest.approx(by_t, abs=0.1 * error)
    assert found.loss_bound >= by_t - 1e-12


def test_a_share_moves_with_the_baseline_of_each_resample() -> None:
    """One percent of the baseline: the bound is that of ``after - 0.99 before`` by a t interval, or wider."""
    random = np.random.default_rng(0)
    before = random.uniform(0, 1, 500)
    after = before * random.uniform(0.5, 1.5, 500)
    found = compared(after, before)
    shifted = after - 0.99 * before
    low = shifted.mean() - stats.t.ppf(0.95, 499) * shifted.std(ddof=1) / math.sqrt(500)
    assert found.margin == pytest.approx(0.01 * before.mean())
    assert found.loss_bound == pytest.approx(0.01 * before.mean() - low, rel=0.03)


def exact_share(lost: int, units: int) -> float:
    """The upper end of Clopper and Pearson's interval."""
    return stats.binomtest(lost, units).proportion_ci(method="exact", confidence_level=0.9).high


@pytest.mark.parametrize(
    ("units", "lost", "verdict"),
    [(50, 0, "undecided"), (298, 0, "undecided"), (299, 0, "not worse"), (600, 1, "not worse")],
)
def test_few_losses_are_bounded_exactly(units: int, lost: int, verdict: str) -> None:
    """Rule of three: with no loss among 298 queries a share of 1 % may still lose, by all they have; with 299
    no more.
    """
    before = np.full(units, 0.72)
    after = before.copy()
    after[:lost] = 0.0
    found = compared(after, before)
    share = exact_share(lost, units) if lost else 1 - 0.05 ** (1 / units)
    assert found.loss_bound == pytest.approx(0.72 * share)
    assert found.verdict == verdict
    assert found.needed == (299 if verdict == "undecided" else None)


@pytest.mark.parametrize(
    ("change", "units", "verdict"),
    [(0.02, 1000, "better"), (-0.02, 1000, "worse"), (0.0, 1000, "not worse"), (0.0, 60, "undecided")],
)
def test_the_verdicts_of_a_baseline_and_a_margin(change: float, units: int, verdict: str) -> None:
    found = compared(*scores(units, seed=1, change=change, spread=0.03))
    assert found.verdict == verdict
    assert (found.needed is not None) == (verdict == "undecided")


def test_a_loss_that_is_certain_and_below_the_margin_is_worse() -> None:
    found = compared(*scores(4000, seed=2, change=-0.002, spread=0.02))
    assert found.loss_bound is not None
    assert found.margin is not None
    assert found.loss_bound < found.margin
    assert found.verdict == "worse"


def test_the_needed_number_of_units_decides_four_times_in_five() -> None:
    after, before = scores(200, seed=5, spread=0.08)
    margin, loss, spread = 0.008, -(after - before).mean(), (after - before).std(ddof=1)
    found = compared(after, before, Margin(absolute=margin))
    assert loss > 0
    assert found.verdict == "undecided"
    assert found.needed is not None
    power, one_sided, two_sided = stats.t.ppf([0.8, 0.95, 0.975], 199)
    ways = [((one_sided + power) * spread / (margin - loss)) ** 2, ((two_sided + power) * spread / loss) ** 2]
    assert found.needed == pytest.approx(min(ways), rel=0.02)
    random = np.random.default_rng(0)
    differences = random.normal(-loss, spread, (2000, found.needed))
    error = differences.std(axis=1, ddof=1) / math.sqrt(found.needed)
    excluded = differences.mean(axis=1) - stats.t.ppf(0.95, found.needed - 1) * error > -margin
    assert excluded.mean() == pytest.approx(0.8, abs=0.03)


def test_a_loss_near_the_margin_is_decided_by_showing_it() -> None:
    after, before = scores(300, seed=7, spread=0.05)
    after -= (after - before).mean() + 0.002
    found = compared(after, before, Margin(absolute=0.0031))
    loss, spread = 0.002, (after - before).std(ddof=1)
    assert found.verdict == "undecided"
    quantiles = stats.t.ppf(0.975, 299) + stats.t.ppf(0.8, 299)
    assert found.needed == pytest.approx((quantiles * spread / loss) ** 2, rel=0.02)


def stringer(units: float, losses: list[float]) -> float:
    """By scipy's beta quantiles: the end of no loss, and for each loss what one more adds."""
    ends = [stats.beta.ppf(0.95, lost + 1, units - lost) for lost in range(len(losses) + 1)]
    return ends[0] + sum(
        (ends[place + 1] - ends[place]) * loss for place, loss in enumerate(sorted(losses, reverse=True))
    )


def test_large_losses_count_by_their_size_and_the_rest_by_its_spread() -> None:
    """Of 400 queries at 0.5 three lose all, four fifths and two fifths, and 20 gain or lose a tenth of what
    they have.
    """
    before = np.full(400, 0.5)
    after = before.copy()
    after[:3] -= [0.5, 0.4, 0.2]
    after[10:30] += np.tile([0.05, -0.05, 0.05, 0.05], 5)
    found = compared(after, before, Margin(absolute=0.02))
    rest = np.where(np.arange(400) < 3, 0.0, before - after)
    half = stats.t.ppf(0.95, 399) * rest.std(ddof=1) / 20
    upper, seen = 0.5 * stringer(400, [1.0, 0.8, 0.4]), 0.5 * 2.2 / 400
    assert found.loss_bound == pytest.approx(seen + rest.mean() + math.hypot(upper - seen, half))
    assert found.verdict == "not worse"


@pytest.mark.parametrize(("found_by", "verdict"), [(290, "undecided"), (300, "not worse")])
def test_queries_that_have_nothing_to_lose_are_no_evidence(found_by: int, verdict: str) -> None:
    """Of 1,000 queries those with an answer count: 300 of these exclude a loss of 1 % of what all find."""
    before = np.zeros(1000)
    before[:found_by] = 1.0
    found = compared(before, before)
    assert found.loss_bound == pytest.approx(1 - 0.05 ** (1 / 1000))
    assert found.verdict == verdict
    errors = compared(1 - before, 1 - before, Margin(absolute=found_by / 1e5), lower_is_better=True)
    assert (errors.loss_bound, errors.verdict) == (pytest.approx(found.loss_bound), verdict)


def test_small_changes_do_not_show_that_no_large_loss_is_possible() -> None:
    """Half of 100 queries change by 0.02 at random: as before, up to 3 % may lose all they have."""
    before = np.full(100, 0.5)
    after = before + np.where(np.arange(100) % 2, np.random.default_rng(0).normal(0, 0.02, 100), 0.0)
    found = compared(after, before)
    assert found.verdict == "undecided"
    assert found.loss_bound is not None
    assert found.loss_bound >= 0.5 * (1 - 0.05**0.01) - (after - before).mean()


def test_few_losses_need_as_many_units_as_show_more_of_them() -> None:
    """Of 150 queries two lose 0.3 and two gain it: so many times as many that a loss of the margin is
    excluded, and no fewer.
    """
    before = np.full(150, 0.72)
    after = before.copy()
    after[:2] -= 0.3
    after[2:4] += 0.3
    found = compared(after, before)
    rest = np.where(np.arange(150) < 2, 0.0, before - after)

    def bound(units: int) -> float:
        losses = [0.3 / 0.72] * min(round(2 * units / 150), 5)
        half = stats.t.ppf(0.95, 149) * rest.std(ddof=1) / math.sqrt(units)
        upper, seen = 0.72 * stringer(units, losses), 0.3 * len(losses) / units
        return math.hypot(upper - seen, half)

    assert found.verdict == "undecided"
    assert found.needed is not None
    assert bound(found.needed) < 0.0072 <= bound(found.needed - 1)


def test_where_runs_differ_too_much_no_number_of_units_is_named() -> None:
    random = np.random.default_rng(0)
    before = random.uniform(0.3, 0.9, 3000)
    *runs, start = (
        measured(before + step + random.normal(0, 0.05, 3000)) for step in (-0.02, 0.0, 0.02, 0.0)
    )
    (found,) = changes_over_runs([runs], [[start]], seed=0, resamples=500)
    assert (found.verdict, found.needed) == ("undecided", None)


@pytest.mark.parametrize(("lower_is_better", "level", "gained"), [(False, 0.0, 1.0), (True, 1.0, 0.0)])
def test_a_model_that_can_lose_nothing_is_compared_by_an_absolute_margin_all_the_same(
    lower_is_better: bool, level: float, gained: float
) -> None:
    before = np.full(100, level)
    after = before.copy()
    after[0] = gained
    found = compared(after, before, Margin(absolute=0.001), lower_is_better=lower_is_better)
    assert found.verdict == "undecided"
    assert found.needed is not None
    assert found.needed > 100


def test_an_absurd_number_of_units_is_not_named() -> None:
    before = np.linspace(0.3, 0.7, 40)
    after = before + np.resize([0.2, -0.2], 40)
    assert compared(after, before, Margin(absolute=1e-4)).needed is None
    assert compared(after, before, Margin(absolute=1e-200)).needed is None


def test_all_units_of_a_rank_correlation_count_whatever_people_said() -> None:
    random = np.random.default_rng(0)
    people = -random.random(300)
    before = people + random.normal(0, 0.2, 300)
    after = before + random.normal(0, 0.02, 300)
    ranks = {"reference": people, "statistic": "spearman", "bounds": (-1.0, 1.0)}
    found = compared(after, before, Margin(absolute=0.001), **ranks)
    assert found.verdict == "undecided"
    assert found.needed is not None
    assert found.needed > 300


def test_losses_are_bounded_in_each_group_and_by_what_weights_are_worth() -> None:
    """Three texts of a rare class are half of the balanced accuracy; a query with nearly all pairs is nearly
    all of the pooled PND.
    """
    before = np.full(1000, 0.9)
    groups = np.array([0] * 997 + [1] * 3)
    grouped = compared(before, before, groups=groups)
    share = (1 - 0.05 ** (1 / 997) + 1 - 0.05 ** (1 / 3)) / 2
    assert grouped.loss_bound == pytest.approx(0.9 * share)
    weights = np.r_[39_600.0, np.ones(399)]
    assert compared(0.9 * weights, 0.9 * weights, reference=weights).verdict == "undecided"
    weights = np.r_[[9_900.0] * 4, np.ones(396)]
    weighted = compared(0.9 * weights, 0.9 * weights, reference=weights)
    effective = weights.sum() ** 2 / (weights**2).sum()
    assert weighted.loss_bound == pytest.approx(0.9 * (1 - 0.05 ** (1 / effective)))
    assert (grouped.verdict, weighted.verdict) == ("undecided", "undecided")


def test_one_changed_unit_among_pseudo_values_is_one_loss() -> None:
    before = np.full(60, 0.5)
    after = before.copy()
    after[0] += 0.1
    after[1:] -= 0.1 / 60
    found = compared(after, before, Margin(absolute=0.02), lower_is_better=True, pseudo_values=True)
    assert found.loss_bound == pytest.approx(0.5 * exact_share(1, 60))
    assert found.verdict == "undecided"


def test_without_a_baseline_above_zero_a_share_decides_nothing() -> None:
    found = compared(np.zeros(400), np.zeros(400))
    assert (found.margin, found.verdict, found.needed) == (None, "undecided", None)


def test_nine_units_exclude_no_loss_and_one_has_no_bound() -> None:
    before = np.linspace(0.1, 0.9, 9)
    after = before + np.resize([1e-4, -1e-4], 9)
    found = compared(after, before, Margin(absolute=0.9))
    assert (found.verdict, found.loss_bound, found.not_worse) == ("undecided", None, False)
    assert compared([0.5], [0.5]).loss_bound is None


def test_an_absolute_margin_is_that_of_the_measure_that_decides() -> None:
    """At 0.9 of the measure all is excluded, but other measures keep the share."""
    before = np.full(100, 0.5)
    samples = [Sample(name, before, bounds=(0.0, 1.0)) for name in ("nDCG@10", "RR@10")]
    margin = Margin(0.01, absolute=0.3)
    main, other = paired_changes(samples, samples, seed=0, resamples=200, margin=margin)
    assert (main.margin, main.verdict) == (0.3, "not worse")
    assert (other.margin, other.verdict) == (0.005, "undecided")


POSSIBLE = np.r_[np.full(5, 0.5), np.full(995, 0.2)]
"""Of 1,000 further queries five can lose 0.5, the others 0.2."""


def beside_further(after, before, possible=POSSIBLE, margin: Margin | None = None) -> Change:
    sides = [measured(after, possible_losses=possible)], [measured(before)]
    return paired_changes(*sides, seed=0, resamples=200, margin=margin or Margin())[0]


def largest_mean(share: float, losses: np.ndarray) -> float:
    """The mean of the largest losses over a share, by sorting."""
    units = share * losses.size
    largest = np.sort(losses)[::-1]
    whole = int(units)
    return float((largest[:whole].sum() + (units - whole) * largest[whole]) / units)


@pytest.mark.parametrize("share", [0.001, 0.0295, 0.1234, 0.9])
def test_the_mean_of_the_largest_losses_is_a_threshold_and_what_exceeds_it(share: float) -> None:
    losses = np.random.default_rng(0).beta(2, 5, 1000)
    threshold = np.sort(losses)[::-1][int(share * losses.size)]
    exceeding = np.maximum(losses - threshold, 0).mean()
    assert threshold + exceeding / share == pytest.approx(largest_mean(share, losses))
    # No other threshold gives less.
    for other in np.linspace(0, 1, 20):
        assert other + np.maximum(losses - other, 0).mean() / share >= largest_mean(share, losses) - 1e-12


def test_further_queries_bound_losses_that_were_not_seen() -> None:
    """100 queries without a loss, at 0.8: of the 2.95 % that may lose, 0.2 each is sure, and more of five in
    a thousand, or of 3 in a thousand that nobody saw.
    """
    before = np.full(100, 0.8)
    found = beside_further(before, before)
    unseen = 1 - 0.05**0.01
    exceeding = stringer(1000, [1.0] * 5) * 0.3 + (1 - 0.05**0.001) * (0.6 - 0.3)
    assert found.loss_bound == pytest.approx(0.2 * unseen + exceeding)
    # The sum by hand: ends of 0 and of 5 of 1,000.
    none, five = (stats.beta.ppf(0.95, lost + 1, 1000 - lost) for lost in (0, 5))
    assert found.loss_bound == pytest.approx(0.2 * unseen + 0.6 * none + 0.3 * (five - none))
    without = compared(before, before)
    assert without.loss_bound == pytest.approx(0.8 * unseen)
    assert (without.verdict, found.verdict) == ("undecided", "undecided")
    assert found.needed is not None
    assert without.needed is not None
    assert found.needed < without.needed


def test_the_needed_number_rests_on_the_same_bound() -> None:
    """As many unmoved queries as are needed exclude the margin, and one fewer do not."""
    needed = beside_further(np.full(100, 0.8), np.full(100, 0.8)).needed
    assert needed is not None
    verdicts = [
        beside_further(np.full(units, 0.8), np.full(units, 0.8)).verdict for units in (needed - 1, needed)
    ]
    assert verdicts == ["undecided", "not worse"]


def test_a_set_on_which_nothing_moves_is_not_worse() -> None:
    """No query moved, judged or not: the further ones bound the loss by themselves."""
    before = np.full(60, 0.7)
    found = beside_further(before, before, np.zeros(5000))
    assert (found.verdict, found.gained, found.lost) == ("not worse", 0, 0)
    assert found.loss_bound == pytest.approx(0.7 * (1 - 0.05 ** (1 / 5000)))
    assert compared(before, before).verdict == "undecided"


@pytest.mark.parametrize("further", [20, 60])
def test_no_more_further_queries_than_judged_ones_bound_nothing(further: int) -> None:
    """What 60 queries may miss, as many others may miss too: the lists of the judged ones add nothing."""
    before = np.full(60, 0.7)
    found = beside_further(before, before, np.zeros(further))
    assert found.loss_bound == pytest.approx(compared(before, before).loss_bound)


def test_a_loss_that_was_seen_counts_as_it_is() -> None:
    """One of 400 queries lost all; the further ones say that none can lose more than 0.1."""
    before = np.full(400, 0.8)
    after = before.copy()
    after[0] = 0.0
    found, without = beside_further(after, before, np.full(5000, 0.1)), compared(after, before)
    assert found.loss_bound == pytest.approx(without.loss_bound)
    after[0] = 0.4
    found, without = beside_further(after, before, np.full(5000, 0.1)), compared(after, before)
    # What was not seen may be as large as what was: half of all for one of 400, seen or not.
    assert found.loss_bound == pytest.approx(0.4 * exact_share(1, 400))
    assert without.loss_bound == pytest.approx(0.8 * stringer(400, [0.5]))


def test_several_runs_share_the_mean_of_what_can_be_lost() -> None:
    before = measured(np.full(100, 0.8))
    runs = [measured(np.full(100, 0.8), possible_losses=losses) for losses in (POSSIBLE, np.zeros(1000))]
    (found,) = changes_over_runs([runs], [[before]], seed=0, resamples=200)
    halved = beside_further(np.full(100, 0.8), np.full(100, 0.8), POSSIBLE / 2)
    assert found.loss_bound == pytest.approx(halved.loss_bound)
    # A run of which nothing is known may lose all.
    (unknown,) = changes_over_runs([[runs[0], before]], [[before]], seed=0, resamples=200)
    assert unknown.loss_bound == pytest.approx(0.8 * (1 - 0.05**0.01))


def test_the_spread_alone_is_told_beside_the_bound() -> None:
    after, before = scores(60, seed=1, spread=0.03)
    found = compared(after, before)
    shifted = after - 0.99 * before
    low = shifted.mean() - stats.t.ppf(0.95, 59) * shifted.std(ddof=1) / math.sqrt(60)
    assert found.loss_by_spread == pytest.approx(0.01 * before.mean() - low)
    assert found.loss_bound is not None
    assert found.loss_bound > found.loss_by_spread
