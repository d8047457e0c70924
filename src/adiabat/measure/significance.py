"""Whether a change is more than chance: the source's z-test, the paired bootstrap over queries, and Benjamini-Hochberg.

Every measure is a ratio of sums over queries, ``sum(value) / sum(denominator)``: a mean has 1 for each query as denominator, the
pooled discrepancy has the query's pairs. The bootstrap draws whole queries, so the dependence among the pairs of a query, and
between before and after on the same query, is kept (Efron and Tibshirani 1993; mission A8).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from adiabat.measure.metrics import PairCounts, improvement, pnd_shares
from adiabat.measure.results import Change, Verdict

Z_CRITICAL = 1.96
"""Beyond this, the two-sided two-proportion test rejects at 5 %."""

RESAMPLES = 10_000
CONFIDENCE = 0.95

# Counts held at a time: 32 MB as 64-bit floats. A product with fewer rows spends its time on moving the other factor.
_BLOCK_CELLS = 2**22

Interval = tuple[float, float]
Counts = Float[np.ndarray, "b u"]


@dataclass(frozen=True, slots=True)
class PerQuery:
    """One measure of one data set, per query; its value is ``sum(after) / sum(denominator)``.

    Attributes:
        measure: As in `Change.measure`.
        similarity: ``cosine`` or ``distance``: what ranked the documents.
        lower_is_better: True for the positive-negative discrepancy.
        after: Of the model under test.
        before: Of the baseline on the same queries, or None.
        denominator: At least 0; None stands for 1 for every query (a mean).
        counts: Errors before, errors after and pairs, for the z-test; None where the measure counts no pairs.
    """

    measure: str
    similarity: str
    lower_is_better: bool
    after: Float[np.ndarray, " q"]
    before: Float[np.ndarray, " q"] | None = None
    denominator: Float[np.ndarray, " q"] | None = None
    counts: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class PairedDraws:
    """The baseline's side of a bootstrap, on the same resamples as the model under test.

    Attributes:
        before: Value of the baseline.
        before_draws: The same in each resample.
        difference_draws: ``after - before`` in each resample, summed from differences of each query, so that no change is exactly 0.
        changed: How many queries (or clusters) differ between before and after.
    """

    before: float
    before_draws: Float[np.ndarray, " r"]
    difference_draws: Float[np.ndarray, " r"]
    changed: int


def two_proportion_z(errors_before: int, errors_after: int, total: int) -> float:
    """The source's test of two error shares over the same number of pairs.

    ``Z = (p1 - p0) / sqrt(2 P (1 - P) / N)`` with P the share of both together. It takes the pairs for independent, which they
    are not: the paired bootstrap is the answer to trust.

    Args:
        errors_before: Of the baseline.
        errors_after: Of the model under test.
        total: Pairs compared by each, N above.

    Returns:
        Below 0 where errors fell; 0 where P is 0 or 1. Beyond `Z_CRITICAL` in size, significant at 5 %.

    Raises:
        ValueError: If `total` is not above 0, or errors lie outside 0 to `total`.

    Reference:
        Mission A8.
    """
    if total <= 0:
        raise ValueError(f"total must be above 0, got {total}")
    for name, errors in (("errors_before", errors_before), ("errors_after", errors_after)):
        if not 0 <= errors <= total:
            raise ValueError(f"{name} must lie between 0 and total = {total}, got {errors}")
    pooled = (errors_before + errors_after) / (2 * total)
    if pooled in (0, 1):
        return 0.0
    return (errors_after - errors_before) / total / math.sqrt(2 * pooled * (1 - pooled) / total)


def resampling_counts(units: int, *, resamples: int, seed: int, block_size: int | None = None) -> Iterator[Counts]:
    """How often each unit is drawn in each resample: `units` draws with replacement, in blocks of resamples.

    The counts depend on `units` and `seed` alone, so measures of the same queries share their resamples even across calls.

    Args:
        units: Queries, or clusters of sentence pairs, > 0.
        resamples: How many in all, > 0.
        seed: Of the draws.
        block_size: Resamples per block, > 0; None keeps a block within 32 MB. It changes nothing but the memory.

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
    for start in range(0, resamples, rows):
        drawn = generator.integers(0, units, size=(min(rows, resamples - start), units), dtype=np.int32)
        counts = np.empty(drawn.shape)
        for row, units_drawn in enumerate(drawn):
            counts[row] = np.bincount(units_drawn, minlength=units)
        yield counts


def paired_bootstrap(measured: Sequence[PerQuery], *, seed: int, resamples: int = RESAMPLES) -> list[Change]:
    """Percentile bootstrap over queries of several measures at once, before and after on the same resamples.

    A resample in which a measure's denominators sum to 0 leaves that measure undefined and is passed over for it.

    Args:
        measured: Of the same queries in the same order.
        seed: Of the draws.
        resamples: How many, > 0.

    Returns:
        One change per measure, in order, with 95 % intervals; `Change.z` where the measure counts pairs.

    Raises:
        ValueError: If there are no queries, the measures differ in their number, a value is not finite, a denominator is negative
            or 0 throughout, or `resamples` is not above 0.

    Reference:
        Efron and Tibshirani 1993, chapter 13; mission A6-A8.
    """
    if not measured:
        return []
    for measure in measured:
        _check_values(measure, queries=measured[0].after.size)
    columns = np.concatenate([_columns(measure) for measure in measured], axis=1)
    blocks = resampling_counts(columns.shape[0], resamples=resamples, seed=seed)
    sums = np.concatenate([counts @ columns for counts in blocks])
    return [_change(m, sums[:, 4 * i : 4 * i + 4]) for i, m in enumerate(measured)]


def change_from_draws(
    after: float,
    after_draws: Float[np.ndarray, " r"],
    paired: PairedDraws | None = None,
    *,
    measure: str,
    similarity: str,
    lower_is_better: bool,
    z: float | None = None,
) -> Change:
    """Turn bootstrap draws of one measure into intervals, p-value and verdict.

    Args:
        after: Value of the model under test.
        after_draws: The same in each resample.
        paired: The baseline's side, or None; then only `after` and its interval are filled in.
        measure: As in `Change.measure`.
        similarity: What ranked the documents.
        lower_is_better: Whether a negative difference is good.
        z: The two-proportion statistic, where pairs were counted.

    Returns:
        The record for ``result.json``. Its improvement interval is None also where a 2.5 % tail of resamples has a baseline of 0.

    Raises:
        ValueError: If there are no draws.
    """
    change = Change(measure, similarity, lower_is_better, after=after, after_interval=percentile_interval(after_draws))
    if paired is None:
        return change
    draws = paired.difference_draws
    interval = percentile_interval(draws)
    p_values = bootstrap_p_values(
        np.array([(draws <= 0).sum()]), np.array([(draws >= 0).sum()]), resamples=draws.size, changed=np.array([paired.changed])
    )
    relative = improvement(paired.before, after, lower_is_better=lower_is_better)
    return replace(
        change,
        before=paired.before,
        improvement=relative,
        difference=after - paired.before,
        difference_interval=interval,
        improvement_interval=None if relative is None else _improvement_interval(paired, lower_is_better=lower_is_better),
        p_paired=float(p_values[0]),
        z=z,
        verdict=verdict_of(interval, p_value=float(p_values[0]), lower_is_better=lower_is_better),
    )


def percentile_interval(draws: Float[np.ndarray, " r"], *, confidence: float = CONFIDENCE) -> Interval:
    """Central interval that holds `confidence` of the draws.

    Args:
        draws: Bootstrap draws of a statistic.
        confidence: Share between the two ends, in (0, 1).

    Returns:
        Lower and upper end.

    Raises:
        ValueError: If there are no draws, or `confidence` lies outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")
    if draws.size == 0:
        raise ValueError("draws must hold at least one resample, got none")
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def bootstrap_p_values(
    at_most_zero: Int[np.ndarray, " k"], at_least_zero: Int[np.ndarray, " k"], *, resamples: int, changed: Int[np.ndarray, " k"]
) -> Float[np.ndarray, " k"]:
    """Two-sided p-values from the tails of bootstrapped differences.

    ``p = max(2 (1 + min(#{d <= 0}, #{d >= 0})) / (R + 1), 2^(1 - changed))``, at most 1. The second term is the least p-value that
    any sign-flipping test of so few changed queries can reach: below six, no change is significant at 5 %, however uniform.

    Args:
        at_most_zero: Resamples whose difference is <= 0.
        at_least_zero: Resamples whose difference is >= 0.
        resamples: R above, > 0.
        changed: How many queries (or clusters) differ between before and after.

    Returns:
        One p-value each, in (0, 1].

    Raises:
        ValueError: If `resamples` is not above 0.

    Reference:
        Davison and Hinkley 1997, section 4.2 (the added one); mission A8.
    """
    if resamples <= 0:
        raise ValueError(f"resamples must be above 0, got {resamples}")
    tail = 2 * (1 + np.minimum(at_most_zero, at_least_zero)) / (resamples + 1)
    return np.asarray(np.clip(tail, np.minimum(np.exp2(1.0 - changed), 1.0), 1.0))


def verdict_of(interval: Interval, *, p_value: float, lower_is_better: bool, rate: float = 1 - CONFIDENCE) -> Verdict:
    """What a paired interval of ``after - before`` allows to say.

    Args:
        interval: Lower and upper end; an end at zero is no evidence.
        p_value: Of the same bootstrap; it guards against intervals over too few changed queries.
        lower_is_better: Whether a negative difference is good.
        rate: The p-value must lie below this, in (0, 1).

    Returns:
        ``better``, ``worse`` or ``no evidence``.
    """
    low, high = interval
    if not (low > 0 or high < 0) or not p_value < rate:
        return "no evidence"
    return "better" if (high < 0) == lower_is_better else "worse"


def benjamini_hochberg(p_values: Float[np.ndarray, " k"], *, rate: float = 0.05) -> Bool[np.ndarray, " k"]:
    """Which hypotheses to reject so that at most a share `rate` of the rejections is expected to be false.

    Rejects the k smallest, k the largest number with ``p_(k) <= rate k / n``.

    Args:
        p_values: In [0, 1].
        rate: False discovery rate, in (0, 1).

    Returns:
        True where rejected, in the order given.

    Raises:
        ValueError: If a p-value is NaN or outside [0, 1], or `rate` outside (0, 1).

    Reference:
        Benjamini and Hochberg 1995; mission A8.
    """
    if not 0 < rate < 1:
        raise ValueError(f"rate must lie between 0 and 1, got {rate}")
    if not ((p_values >= 0) & (p_values <= 1)).all():
        raise ValueError(f"p_values must lie between 0 and 1, got {p_values[~((p_values >= 0) & (p_values <= 1))][0]}")
    ascending = np.sort(p_values)
    passing = np.flatnonzero(ascending <= rate * np.arange(1, p_values.size + 1) / max(p_values.size, 1))
    if passing.size == 0:
        return np.zeros(p_values.shape, dtype=np.bool_)
    return np.asarray(p_values <= ascending[passing[-1]])


def pnd_per_query(after: PairCounts, before: PairCounts | None = None, *, similarity: str) -> list[PerQuery]:
    """The two forms of the positive-negative discrepancy, ``PND`` (mean over queries) and ``PND pooled``.

    Args:
        after: Counts of the model under test.
        before: Counts of the baseline on the same pairs, or None.
        similarity: What ranked the documents.

    Returns:
        The mean first; queries without pairs weigh nothing in either. Only the pooled one counts pairs as the z-test does: the mean
        over queries weighs them otherwise, and may even change the other way.

    Raises:
        ValueError: If before and after compare different numbers of pairs, or have more errors than pairs.

    Reference:
        Mission A6.
    """
    if before is not None and not np.array_equal(before.pairs, after.pairs):
        raise ValueError("before and after must compare the same pairs, got different counts; measure both on the same examples")
    counts = None
    if before is not None:
        counts = (int(before.errors.sum()), int(after.errors.sum()), int(after.pairs.sum()))
    mean = PerQuery(
        measure="PND",
        similarity=similarity,
        lower_is_better=True,
        after=pnd_shares(after.errors, after.pairs),
        before=None if before is None else pnd_shares(before.errors, before.pairs),
        denominator=(after.pairs > 0).astype(np.float64),
    )
    pooled = PerQuery(
        measure="PND pooled",
        similarity=similarity,
        lower_is_better=True,
        after=after.errors.astype(np.float64),
        before=None if before is None else before.errors.astype(np.float64),
        denominator=after.pairs.astype(np.float64),
        counts=counts,
    )
    return [mean, pooled]


def _columns(measure: PerQuery) -> Float[np.ndarray, "q 4"]:
    """What is summed in each resample: after, denominator, difference, before."""
    weight = np.ones(measure.after.shape) if measure.denominator is None else measure.denominator
    before = measure.after if measure.before is None else measure.before
    return np.stack([measure.after, weight, measure.after - before, before], axis=1, dtype=np.float64)


def _change(measure: PerQuery, sums: Float[np.ndarray, "r 4"]) -> Change:
    """One measure's change from the resampled sums of its `_columns`."""
    columns = _columns(measure)
    after, total, _, before = columns.sum(axis=0)
    defined = sums[sums[:, 1] > 0]
    draws = defined / defined[:, 1:2]
    paired = None
    if measure.before is not None:
        paired = PairedDraws(float(before / total), draws[:, 3], draws[:, 2], changed=int(np.count_nonzero(columns[:, 2])))
    return change_from_draws(
        float(after / total),
        draws[:, 0],
        paired,
        measure=measure.measure,
        similarity=measure.similarity,
        lower_is_better=measure.lower_is_better,
        z=None if measure.counts is None else two_proportion_z(*measure.counts),
    )


def _improvement_interval(paired: PairedDraws, *, lower_is_better: bool) -> Interval | None:
    """Of the percentage; a resampled baseline of 0 makes it infinite, and an infinite end is not reported."""
    with np.errstate(divide="ignore", invalid="ignore"):
        draws = (-100 if lower_is_better else 100) * paired.difference_draws / paired.before_draws
        draws = draws[~np.isnan(draws)]
        if draws.size == 0:
            return None
        low, high = percentile_interval(draws)
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _check_values(measure: PerQuery, *, queries: int) -> None:
    """Refuse what would end as NaN in a report."""
    if measure.after.size == 0:
        raise ValueError(f"{measure.measure} must be measured on at least one query, got none")
    if measure.after.size != queries:
        raise ValueError(f"{measure.measure} must be of the same {queries} queries as the others, got {measure.after.size}")
    for name, values in (("after", measure.after), ("before", measure.before), ("denominator", measure.denominator)):
        if values is not None and not np.isfinite(values).all():
            raise ValueError(f"{measure.measure} {name} must be finite, got {values[~np.isfinite(values)][0]}")
    weight = measure.denominator
    if weight is not None and ((weight < 0).any() or not weight.any()):
        raise ValueError(f"{measure.measure} denominator must be at least 0, and above 0 for some query, got a sum of {weight.sum()}")
