"""Resampling of units and of runs: bootstrap, jackknife, and their intervals.

*Units* (queries, premises) are drawn whole, so the dependence among the pairs of a unit, and between two
models on the same unit, is kept.
Intervals are BCa: corrected for the bias of the draws and for a spread that changes with the value (Efron
1987; Efron and Tibshirani 1993, chapter 14).

*Runs* of several seeds are few, and drawing three of three makes intervals too narrow by a fifth and more.
Therefore:

- Each model draws from one pool of deviations: those of all runs from their model's mean (runs of one length
  on one scale differ alike), widened by ``sqrt(S / (S - 1))``, because a mean lies closer to its own runs
  than the truth does.
- The deviation of runs is itself an estimate. Each resample multiplies its distance from the value by
  ``sqrt(f / chi2_f)``, which turns a normal distribution into a t distribution; f are the degrees of freedom
  of the variance of units and runs together (Satterthwaite 1946). Where only one is known of runs, as with
  two runs beside one baseline, their share counts in place of its square: intervals miss in 5 of 100 trials,
  and in 7 with the square (`scripts/calibrate_statistics.py`).
- Runs differ in part because each is better on other units, and resamples of units vary by that too. It is
  known well, from many units, so it is taken off the spread of the unit resamples, and the deviation of runs
  stays whole.

A model of one run adds no deviation. Sources: Davison and Hinkley 1997, section 3.8; Owen 2007 (the
pigeonhole bootstrap).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from jaxtyping import Float, Int

from adiabat.stats.samples import Sample
from adiabat.stats.statistics import members_of, value_of

RESAMPLES = 10_000
CONFIDENCE = 0.95

LARGEST_BIAS = 0.8
"""Maximum bias, in standard errors, that BCa corrects: at 0.8 an end of the interval lies on the draw that 2
in 10,000 exceed, and further out it would depend on the single most extreme draw."""

MAX_JACKKNIFE = 2000
"""Maximum values of the jackknife; with more units, it leaves out several at a time."""

# Counts per block: 32 MB as 64-bit floats. A product with fewer rows spends its time on loading the other
# factor.
_BLOCK_CELLS = 2**22
_SMALL_BLOCK_CELLS = 2**20

Interval = tuple[float, float]
Counts = Float[np.ndarray, "b u"]
Groups = Int[np.ndarray, " u"]


def resampling_counts(
    units: int, *, resamples: int, seed: int, groups: Groups | None = None, block_size: int | None = None
) -> Iterator[Counts]:
    """How often each unit is drawn in each resample: as many draws with replacement as there are units, in
    blocks of resamples.

    The counts depend on units, groups and `seed` alone, so measures of the same queries share their resamples
    even across calls.

    Args:
        units: Queries, or clusters of sentence pairs, > 0.
        resamples: How many in all, > 0.
        seed: Of the draws.
        groups: Number of each unit's group, from 0: each group is drawn from on its own, as often as it has
            units. None: one group.
        block_size: Resamples per block, > 0; None keeps a block within 32 MB. It changes nothing but the
            memory.

    Yields:
        One row per resample; each row sums to `units`.

    Raises:
        ValueError: If `units`, `resamples` or `block_size` is not above 0.
    """
    rows = max(1, _BLOCK_CELLS // max(units, 1)) if block_size is None else block_size
    for name, value in (("units", units), ("resamples", resamples), ("block_size", rows)):
        if value <= 0:
            raise ValueError(f"{name} must be above 0, got {value}")
    generator = np.random.default_rng(seed)
    members = None if groups is None else members_of(groups, units)
    for start in range(0, resamples, rows):
        draws = _draw(generator, min(rows, resamples - start), units, members)
        counts = np.empty(draws.shape)
        for row, units_drawn in enumerate(draws):
            counts[row] = np.bincount(units_drawn, minlength=units)
        yield counts


def _draw(
    generator: np.random.Generator, rows: int, units: int, members: list[Int[np.ndarray, " _"]] | None
) -> Int[np.ndarray, "b u"]:
    """Drawn units, one row per resample."""
    if members is None:
        return generator.integers(0, units, size=(rows, units), dtype=np.int32)
    sizes = np.repeat([len(each) for each in members], [len(each) for each in members])
    starts = np.repeat(np.cumsum([0, *map(len, members)])[:-1], [len(each) for each in members])
    return np.concatenate(members)[starts + generator.integers(0, sizes, size=(rows, units), dtype=np.int32)]


def jackknife(sample: Sample) -> Float[np.ndarray, " m"]:
    """The sample's value without each of its units, in the order of `jackknife_groups`; NaN if the rest has
    no value.

    Where that would take more than `MAX_JACKKNIFE` evaluations, several units of one group are left out at a
    time. The acceleration stays
    the same: third and second moments of the influences of independent units add up.
    """
    if sample.statistic == "mean":
        return _means_without(sample)
    blocks = _parts(sample)
    values = np.empty(blocks.max() + 1)
    rows = max(1, _SMALL_BLOCK_CELLS // blocks.size)
    for start in range(0, values.size, rows):
        numbers = np.arange(start, min(start + rows, values.size))
        values[numbers] = value_of(sample, (blocks != numbers[:, None]).astype(np.float64))
    return values


def jackknife_groups(sample: Sample) -> Groups | None:
    """Group of the units that each value of `jackknife` leaves out; None if all units are one group."""
    if sample.groups is None or sample.statistic == "mean":
        return sample.groups
    _, first = np.unique(_parts(sample), return_index=True)
    return sample.groups[first]


def _means_without(sample: Sample) -> Float[np.ndarray, " n"]:
    weights = sample.weights
    members = members_of(sample.groups, sample.values.size)
    without = np.empty(sample.values.shape)
    means = [sample.values[units].sum() / weights[units].sum() for units in members]
    for units, mean in zip(members, means, strict=True):
        values, weight = sample.values[units], weights[units]
        remaining = weight.sum() - weight
        # Without a unit that has all the weight, only rounding is left.
        enough = remaining > 1e-9 * weight.sum()
        changed = np.divide(
            values.sum() - values, remaining, out=np.full(remaining.shape, np.nan), where=enough
        )
        without[units] = (sum(means) - mean + changed) / len(members)
    return without


def _parts(sample: Sample) -> Groups:
    """Block that each unit is left out with: its own, or one of about `MAX_JACKKNIFE` blocks, each within one
    group.
    """
    blocks, used = np.empty(sample.values.size, dtype=np.int64), 0
    for units in members_of(sample.groups, sample.values.size):
        count = math.ceil(units.size * min(1, MAX_JACKKNIFE / sample.values.size))
        blocks[units] = used + np.arange(units.size) % count
        used += count
    return blocks


def acceleration(jackknifed: Float[np.ndarray, " m"], groups: Groups | None = None) -> float:
    """Acceleration of BCa: how fast the standard error changes with the value.

    ``a = sum u^3 / (6 (sum u^2)^(3/2))``, with ``u = (m - 1) / m (mean - value)`` in each group of m values.

    Args:
        jackknifed: From `jackknife`; values that are not finite are skipped.
        groups: From `jackknife_groups`.

    Returns:
        The acceleration; 0 if no unit has any influence.

    Reference:
        Efron and Tibshirani 1993, equation 14.15; Davison and Hinkley 1997, section 5.3 (several groups).
    """
    above = below = 0.0
    for members in members_of(groups, jackknifed.size):
        values = jackknifed[members][np.isfinite(jackknifed[members])]
        if values.size > 1:
            influence = (values.mean() - values) * (values.size - 1) / values.size
            above += float((influence**3).sum())
            below += float((influence**2).sum())
    denominator = 6 * below**1.5
    return above / denominator if denominator > 0 else 0.0


Weights = Float[np.ndarray, " m"] | None


def unequal_weights(sample: Sample) -> Weights:
    """Weights above 0 of the units of a mean, as of clusters of unequal sizes; None if they are equal."""
    weights = sample.weights[sample.weights > 0]
    return weights if sample.statistic == "mean" and weights.size and np.ptp(weights) > 0 else None


def equal_units(weights: Float[np.ndarray, " n"]) -> float:
    """Number of units of equal weight that are worth as much as these: ``(sum w)^2 / sum w^2`` (Kish
    1965).
    """
    return float(weights.sum() ** 2 / (weights**2).sum())


def freedom_of_sum(variances: Float[np.ndarray, " n"], freedoms: Float[np.ndarray, " n"]) -> float:
    """Degrees of freedom of a sum of independent variances: ``(sum v)^2 / sum(v^2 / f)`` (Satterthwaite
    1946).
    """
    return float(variances.sum() ** 2 / (variances**2 / freedoms).sum())


def small_sample(
    jackknifed: Float[np.ndarray, " m"], groups: Groups | None = None, weights: Weights = None
) -> tuple[float, float]:
    """Correction of a standard error for few units.

    Resamples of n units have ``(n - 1) / n`` of the variance of the mean. Variances of several groups are
    added, each with its own n (Welch 1938; `freedom_of_sum`). Of units with unequal weights w, ``(sum w)^2 /
    sum w^2`` equal ones are worth as much: where one cluster holds most queries, its own mean decides, and
    the other clusters say little about the spread of that.

    Args:
        jackknifed: From `jackknife`, of the units that have any weight; values that are not finite are
            skipped.
        groups: From `jackknife_groups`.
        weights: From `unequal_weights`, of the same units.

    Returns:
        Factor that widens the standard deviation of resamples, and its degrees of freedom: n - 1 in one
            group, with the n that its weights
        are worth; 0 if that is below 1, so that the spread is unknown. 1 and 0 if no group has two units.

    Reference:
        Kish 1965 (effective number of units).
    """
    resampled, sizes, worth = _resampled_variances(jackknifed, groups, weights)
    if not sizes.size:
        return 1.0, 0.0
    if not resampled.any():
        return 1.0, float((worth - 1).sum())
    true = resampled * sizes / (sizes - 1)
    freedom = freedom_of_sum(true, worth - 1)
    return math.sqrt(true.sum() / resampled.sum()), freedom if freedom > 1 - 1e-9 else 0.0


def jackknife_error(
    jackknifed: Float[np.ndarray, " m"], groups: Groups | None = None, weights: Weights = None
) -> tuple[float, float]:
    """Standard error without any resamples, ``sqrt((m - 1) / m sum_i (v_i - mean)^2)`` in one group, and its
    degrees of freedom.

    Args:
        jackknifed: As for `small_sample`.
        groups: From `jackknife_groups`; variances of groups are added.
        weights: As for `small_sample`.

    Returns:
        The standard error, for a mean exactly the standard deviation over ``sqrt(m)``, and the degrees of
        freedom of `small_sample`.

    Reference:
        Efron and Tibshirani 1993, equation 11.5.
    """
    widening, freedom = small_sample(jackknifed, groups, weights)
    return widening * math.sqrt(_resampled_variances(jackknifed, groups)[0].sum()), freedom


def _resampled_variances(
    jackknifed: Float[np.ndarray, " m"], groups: Groups | None, weights: Weights = None
) -> tuple[Float[np.ndarray, " g"], Float[np.ndarray, " g"], Float[np.ndarray, " g"]]:
    """What each group of two or more values adds to the variance over resamples, its number of values, and
    the number they are worth.
    """
    members = [units[np.isfinite(jackknifed[units])] for units in members_of(groups, jackknifed.size)]
    members = [units for units in members if units.size > 1]
    of_groups = [jackknifed[units] for units in members]
    # The squares of the influences of `acceleration` add up to the variance of resamples.
    variances = [values.var() * (values.size - 1) ** 2 / values.size for values in of_groups]
    sizes = np.array([units.size for units in members], dtype=np.float64)
    worth = sizes if weights is None else np.array([equal_units(weights[units]) for units in members])
    return np.array(variances, dtype=np.float64), sizes, worth


def bca_interval(
    value: float, draws: Float[np.ndarray, " r"], *, acceleration: float = 0.0, confidence: float = CONFIDENCE
) -> Interval:
    """Bootstrap interval that is corrected for bias and skewness: it lies between two quantiles of the draws.

    The levels are ``Phi(b + (b + z) / (1 - a (b + z)))`` for both z of the confidence, where ``Phi(b)`` is
    the share of draws below the value, half of those that tie with it among them, and a the acceleration.

    Where the levels would run out of the draws, as they do when all draws lie on one side of the value
    (`LARGEST_BIAS`), or when ``a (b + z)`` reaches 1, the interval is the value and 1.96 standard deviations
    of the draws on either side. So it never is NaN, and where all draws are the value it has no width.

    Args:
        value: Of the sample as it is.
        draws: In each resample; those that are NaN are passed over.
        acceleration: a above.
        confidence: Share between the two ends, in (0, 1).

    Returns:
        Lower and upper end.

    Raises:
        ValueError: If `value` is not finite, or `confidence` lies outside (0, 1).

    Reference:
        Efron 1987; Efron and Tibshirani 1993, equations 14.9 to 14.15.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")
    if not math.isfinite(value):
        raise ValueError(f"value must be finite, got {value}")
    defined = draws[~np.isnan(draws)]
    if defined.size == 0:
        return value, value
    normal, ends = NormalDist(), []
    bias = _bias(value, defined)
    for level in ((1 - confidence) / 2, (1 + confidence) / 2):
        moved = bias + normal.inv_cdf(level)
        denominator = 1 - acceleration * moved
        if abs(bias) > LARGEST_BIAS or denominator <= 0:
            half = -normal.inv_cdf((1 - confidence) / 2) * float(defined.std())
            return value - half, value + half
        ends.append(normal.cdf(bias + moved / denominator))
    low, high = np.quantile(defined, ends)
    return float(low), float(high)


def _bias(value: float, draws: Float[np.ndarray, " r"]) -> float:
    """Standard errors from the middle of the draws up to the value."""
    # Sums of the same units differ by rounding, depending on their order.
    same = np.abs(draws - value) <= 1e-12 * max(abs(value), float(np.abs(draws).max()))
    share = float(((draws < value) & ~same).mean() + same.mean() / 2)
    if not 0 < share < 1:
        return math.copysign(math.inf, share - 0.5)
    return NormalDist().inv_cdf(share)


def percentile_interval(draws: Float[np.ndarray, " r"], *, confidence: float = CONFIDENCE) -> Interval:
    """Central interval that holds `confidence` of the draws; no draws are a `ValueError`."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")
    if draws.size == 0:
        raise ValueError("draws must hold at least one resample, got none")
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def student_quantile(level: float, freedom: float) -> float:
    """Quantile of Student's t distribution; `freedom` may be fractional, or infinite for the normal
    distribution.
    """
    if math.isinf(freedom):
        return NormalDist().inv_cdf(level)
    from scipy.special import stdtrit

    return float(stdtrit(freedom, level))


@dataclass(frozen=True, slots=True)
class RunEffect:
    """Effect of resampled runs on the mean over the runs of a model, or on a difference of two such means, in
    each resample.

    `variance` is the part of the variance over unit resamples that comes from runs being better on other
    units.
    """

    shift: Float[np.ndarray, " r"]
    variance: float

    def minus(self, baseline: "RunEffect") -> "RunEffect":
        """The effect on a difference."""
        return RunEffect(self.shift - baseline.shift, self.variance + baseline.variance)


@dataclass(frozen=True, slots=True)
class RunResamples:
    """Runs drawn for each resample; measures of the same models share them.

    `indices` are drawn deviations of the pool, as many as there are runs of models with several, the first
    model's first. `chances` are the levels at which `widening` takes its quantiles, the same for all
    measures.
    """

    runs: tuple[int, ...]
    indices: Int[np.ndarray, "r p"]
    chances: Float[np.ndarray, " r"]

    @property
    def freedom(self) -> int:
        """Degrees of freedom f of the deviation of runs; 0 if no model has several."""
        return sum(count - 1 for count in self.runs if count > 1)

    @classmethod
    def draw(cls, runs: Sequence[int], *, resamples: int, generator: np.random.Generator) -> "RunResamples":
        """Draw runs for every resample; `runs` counts those of each model."""
        unvaried = cls(tuple(runs), np.zeros((resamples, 0), dtype=np.int64), np.ones(resamples))
        pool = sum(count for count in runs if count > 1)
        if not pool:
            return unvaried
        indices = generator.integers(0, pool, size=(resamples, pool))
        return replace(unvaried, indices=indices, chances=generator.random(resamples))

    def widening(self, of_runs: float) -> Float[np.ndarray, " r"]:
        """The factor ``sqrt(f / chi2_f)`` of each resample; `of_runs` is the share of the variance that comes
        from runs.
        """
        from scipy.special import chdtri

        # Units are many. Two runs hardly tell how they vary: with the square of their share, intervals miss
        # in 7 of 100.
        parts = np.array([1 - of_runs, of_runs])
        freedom = freedom_of_sum(parts, np.array([np.inf, self.freedom])) if self.freedom > 1 else 1 / of_runs
        return np.asarray(np.sqrt(freedom / chdtri(freedom, self.chances)))

    def effects(
        self, values: Sequence[Float[np.ndarray, "1 _"]], draws: Sequence[Float[np.ndarray, "r _"]]
    ) -> list[RunEffect]:
        """Effects of runs on one measure, one for each model; zero for a model of one run.

        `values` and `draws` hold, for each model, the value of each run on the data and on each resample of
        the units.
        """
        several = [i for i, count in enumerate(self.runs) if count > 1]
        effects = [RunEffect(np.zeros(len(self.chances)), 0.0) for _ in self.runs]
        if not several:
            return effects
        pool = np.concatenate([_deviations(values[i])[0] for i in several])
        variance = float(np.mean([np.nanvar(_deviations(draws[i]), axis=0).mean() for i in several]))
        ends = np.cumsum([self.runs[i] for i in several])[:-1]
        for i, deviations in zip(several, np.split(pool[self.indices], ends, axis=1), strict=True):
            effects[i] = RunEffect(deviations.mean(axis=1), variance / self.runs[i])
        return effects


def _deviations(values: Float[np.ndarray, "r s"]) -> Float[np.ndarray, "r s"]:
    """Deviations from the mean over runs, widened; 0 if they are rounding alone."""
    runs = values.shape[1]
    deviations = values - values.mean(axis=1, keepdims=True)
    deviations[np.abs(deviations) <= 1e-12 * np.abs(values)] = 0
    return np.asarray(deviations * np.sqrt(runs / (runs - 1)))
