"""Tests of a change: sign flips over units, rank exchanges, the two-proportion z-test, Benjamini-Hochberg.

If two models were equivalent, their scores of a unit could be exchanged. Exchanging them on random halves of
the units shows how far apart the models would be by chance. This preserves the dependence between the pairs
of a unit, which the two-proportion test assumes to be independent (Fisher 1935).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from adiabat.stats.judgement import ERROR_RATE
from adiabat.stats.resampling import RESAMPLES
from adiabat.stats.statistics import members_of, ranks_of
from adiabat.stats.unit_arrays import Numbers, Values

Z_CRITICAL = 1.96
"""Critical value of the two-sided two-proportion test at 5 %."""

EXACT_UNITS = 14
"""Maximum number of differing units for an exact test over all exchanges, 16,384 at most."""

# Exchanges per block: 8 MB as 64-bit floats, read again by every product.
_BLOCK_CELLS = 2**20


def two_proportion_z(errors_before: int, errors_after: int, total: int) -> float:
    """Two-proportion z-test of two error shares over the same number of pairs.

    ``Z = (p1 - p0) / sqrt(2 P (1 - P) / N)`` with P the share of both together. It takes pairs for
    independent; those of one query are not, so trust the paired tests.

    Args:
        errors_before: Of the baseline.
        errors_after: Of the model under test.
        total: Pairs compared by each, N above.

    Returns:
        Below 0 if errors fell; 0 if P is 0 or 1. Beyond `Z_CRITICAL` in size, significant at 5 %.

    Raises:
        ValueError: If `total` is not above 0, or errors lie outside 0 to `total`.

    Reference:
        Vasilyev et al. 2024.
    """
    if total <= 0:
        raise ValueError(f"total must be above 0, got {total}")
    for name, errors in (("errors_before", errors_before), ("errors_after", errors_after)):
        if not 0 <= errors <= total:
            raise ValueError(f"{name} must lie between 0 and total = {total}, got {errors}")
    pooled = (errors_before + errors_after) / (2 * total)
    if pooled in (0, 1):
        return 0.0
    error = math.sqrt(2 * pooled * (1 - pooled) / total)
    return (errors_after - errors_before) / total / error


def sign_flip_p_values(
    differences: Float[np.ndarray, "n k"], *, seed: int, flips: int = RESAMPLES
) -> Float[np.ndarray, " k"]:
    """Two-sided p-values of the mean of each column: how often random signs take its sum at least as far from
    0.

    ``p = (1 + #{|sum(s d)| >= |sum(d)|}) / (flips + 1)`` over random signs s. Where no more than
    `EXACT_UNITS` units of a column differ from 0, all of their signs are gone through instead, and p is the
    share of them. So five units that differ never reach 5 %, however uniform they are, and units that do not
    differ do not matter.

    Args:
        differences: After minus before, one row per unit. All columns share their signs, which depend on
            `seed` and n alone.
        seed: Of the signs.
        flips: How many of them, > 0.

    Returns:
        One p-value per column, in (0, 1]; 1 if nothing differs.

    Raises:
        ValueError: If a difference is not finite, or `flips` is not above 0.

    Reference:
        Fisher 1935; Davison and Hinkley 1997, equation 4.11 (the added one); Smucker et al. 2007 (of
        retrieval).
    """
    if not np.isfinite(differences).all():
        raise ValueError(f"differences must be finite, got {differences[~np.isfinite(differences)][0]}")
    p_values = np.empty(differences.shape[1])
    few = np.count_nonzero(differences, axis=0) <= EXACT_UNITS
    p_values[few] = [_exact_p_value(column[column != 0]) for column in differences.T[few]]
    many = differences[:, ~few]
    if many.size:
        reached = np.zeros(many.shape[1], dtype=np.int64)
        for exchanged in exchanges(len(many), seed=seed, flips=flips, columns=many.shape[1]):
            reached += _reaching(exchanged, many)
        p_values[~few] = (1 + reached) / (flips + 1)
    return p_values


def rank_exchange_p_value(
    after: Values,
    before: Values,
    reference: Values,
    *,
    groups: Numbers | None = None,
    seed: int,
    flips: int = RESAMPLES,
) -> float:
    """Two-sided p-value of a difference of two rank correlations with the same reference.

    Similarities of two models are on scales of their own, so what is exchanged on a random half of the units
    is the ranks that the two give a unit. The sums that a correlation is made of change linearly with what is
    exchanged, and are found for many exchanges at once.

    Args:
        after: Similarity of each unit by the model under test.
        before: By the other.
        reference: What both are correlated with.
        groups: Number of each unit's group, from 0, where the correlations are means over groups.
        seed: Of the exchanges.
        flips: How many of them, > 0.

    Returns:
        ``(1 + #{as far apart as found, or further}) / (flips + 1)``.

    Raises:
        ValueError: If `flips` is not above 0.
    """
    members = members_of(groups, after.size)
    ranked = [_RankSums.of(after[units], before[units], reference[units]) for units in members]
    observed = abs(sum(ranks.difference(np.zeros((1, 3)))[0] for ranks in ranked))
    # Three columns of sums for each group, so that one product serves all groups.
    columns = np.zeros((after.size, 3 * len(members)))
    for i, (units, ranks) in enumerate(zip(members, ranked, strict=True)):
        columns[units, 3 * i : 3 * i + 3] = ranks.moved
    reached = 0
    for exchanged in exchanges(after.size, seed=seed, flips=flips, columns=columns.shape[1]):
        sums = np.split(exchanged @ columns, len(members), axis=1)
        differences = [ranks.difference(moved) for ranks, moved in zip(ranked, sums, strict=True)]
        apart = np.abs(sum(differences))
        # Ranks that all tie have no correlation; they count as reaching the difference.
        reached += int((~(apart < observed - 1e-9)).sum())
    return (1 + reached) / (flips + 1)


def exchanges(units: int, *, seed: int, flips: int, columns: int = 1) -> Iterator[Float[np.ndarray, "b n"]]:
    """Random halves of the units: 1 where the two scores of a unit change places, in blocks of rows of at
    most 8 MB.

    Rows depend on `seed` and `units` alone. `columns` of the matrix that they will be multiplied with set the
    size of blocks.
    """
    for name, value in (("units", units), ("flips", flips)):
        if value <= 0:
            raise ValueError(f"{name} must be above 0, got {value}")
    # A stream apart from the resamples of the same seed.
    generator = np.random.default_rng([seed, 1])
    rows = max(1, _BLOCK_CELLS // max(units, columns))
    for start in range(0, flips, rows):
        # Whole words of the generator, so that rows do not depend on blocks.
        size = (min(rows, flips - start), math.ceil(units / 64))
        words = generator.integers(0, 2**64, size=size, dtype=np.uint64)
        yield np.unpackbits(words.view(np.uint8), axis=1, count=units).astype(np.float64)


def bootstrap_p_value(at_most_zero: int, at_least_zero: int, *, resamples: int, changed: int) -> float:
    """Two-sided p-value from the tails of bootstrapped differences, for statistics whose units have no scores
    to exchange.

    ``p = max(2 (1 + min(#{d <= 0}, #{d >= 0})) / (R + 1), 2^(1 - changed))``, at most 1. The second term is
    the least p-value that any sign-flipping test of so few changed units can reach: below six, no change is
    significant at 5 %, however uniform.

    Args:
        at_most_zero: Resamples whose difference is <= 0.
        at_least_zero: Resamples whose difference is >= 0.
        resamples: R above, > 0.
        changed: How many units differ between before and after.

    Returns:
        The p-value, in (0, 1].

    Raises:
        ValueError: If `resamples` is not above 0.

    Reference:
        Davison and Hinkley 1997, section 4.2 (the added one).
    """
    if resamples <= 0:
        raise ValueError(f"resamples must be above 0, got {resamples}")
    tail = 2 * (1 + min(at_most_zero, at_least_zero)) / (resamples + 1)
    return min(1.0, max(tail, fewest_p_value(changed)))


def fewest_p_value(changed: int) -> float:
    """The least p-value of any test that flips the signs of so few units: ``2^(1 - changed)``, at most 1."""
    return min(1.0, 2.0 ** (1 - changed))


def benjamini_hochberg(
    p_values: Float[np.ndarray, " k"], *, rate: float = ERROR_RATE
) -> Bool[np.ndarray, " k"]:
    """Which hypotheses to reject so that at most a share `rate` of the rejections is expected to be false.

    Rejects the k smallest, k the largest number with ``p_(k) <= rate k / n``.

    Args:
        p_values: In [0, 1].
        rate: False discovery rate, in (0, 1).

    Returns:
        True if rejected, in the order given.

    Raises:
        ValueError: If a p-value is NaN or outside [0, 1], or `rate` outside (0, 1).

    Reference:
        Benjamini and Hochberg 1995.
    """
    if not 0 < rate < 1:
        raise ValueError(f"rate must lie between 0 and 1, got {rate}")
    proper = (p_values >= 0) & (p_values <= 1)
    if not proper.all():
        raise ValueError(f"p_values must lie between 0 and 1, got {p_values[~proper][0]}")
    ascending = np.sort(p_values)
    levels = rate * np.arange(1, p_values.size + 1) / max(p_values.size, 1)
    passing = np.flatnonzero(ascending <= levels)
    if passing.size == 0:
        return np.zeros(p_values.shape, dtype=np.bool_)
    return np.asarray(p_values <= ascending[passing[-1]])


def _exact_p_value(differences: Float[np.ndarray, " m"]) -> float:
    """Share of all exchanges that take the sum at least as far from 0."""
    # The bits of each number from 0 to 2^m - 1 say which units are exchanged.
    patterns = (np.arange(2**differences.size)[:, None] >> np.arange(differences.size)) & 1
    reached = _reaching(patterns.astype(np.float64), differences[:, None])
    return float(reached[0]) / len(patterns)


def _reaching(
    exchanged: Float[np.ndarray, "b n"], differences: Float[np.ndarray, "n k"]
) -> Int[np.ndarray, " k"]:
    """Number of exchanges that take each column's sum at least as far from 0."""
    total = differences.sum(axis=0)
    # Equal sums differ by rounding, depending on their order.
    least = np.abs(total) - 1e-12 * np.abs(differences).sum(axis=0)
    # Exchanging the scores of a unit turns the sign of its difference.
    sums = total - 2 * (exchanged @ differences)
    return np.asarray((np.abs(sums) >= least).sum(axis=0))


@dataclass(frozen=True, slots=True)
class _RankSums:
    """Sums behind two rank correlations: of rank, square, and product with the reference's rank.

    `moved` is what exchanging each unit adds to `after` and takes from `before`; `spread` is the variance of
    the reference's ranks.
    """

    after: Float[np.ndarray, " 3"]
    before: Float[np.ndarray, " 3"]
    moved: Float[np.ndarray, "n 3"]
    units: int
    spread: float

    @classmethod
    def of(cls, after: Values, before: Values, reference: Values) -> "_RankSums":
        """The sums of a group of units, each by its similarity after and before."""

        def scaled(values: Values) -> Values:
            # Ranks scaled to -1 to 1, so that sums lose no digits.
            return 2 * ranks_of(values) / (values.size + 1) - 1

        reference_ranks = scaled(reference)

        def terms(ranks: Values) -> Float[np.ndarray, "n 3"]:
            return np.stack([ranks, ranks**2, ranks * reference_ranks], axis=1)

        first, second = terms(scaled(after)), terms(scaled(before))
        spread = float((reference_ranks**2).mean())
        return cls(first.sum(axis=0), second.sum(axis=0), second - first, after.size, spread)

    def difference(self, moved: Float[np.ndarray, "b 3"]) -> Float[np.ndarray, " b"]:
        """Correlation after less that before, in each exchange."""
        return np.asarray(self._correlation(self.after + moved) - self._correlation(self.before - moved))

    def _correlation(self, sums: Float[np.ndarray, "b 3"]) -> Float[np.ndarray, " b"]:
        """Correlations; NaN if ranks differ by rounding alone."""
        mean, square, product = sums.T / self.units
        # The reference's ranks have mean 0, so the product needs no correction.
        spread = (square - mean**2) * self.spread
        deviation = np.sqrt(np.maximum(spread, 0))
        correlations = np.full(spread.shape, np.nan)
        np.divide(product, deviation, out=correlations, where=spread > 1e-15)
        return correlations
