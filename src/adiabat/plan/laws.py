"""Laws of the loss by size, tokens and trained share, in the one form in which they are fitted (mission B7).

Given its exponents, each law is a weighted sum of columns: ``L = sum_j weight_j * base_j * exp(sum_k exponent_k * power_kj)``, with sizes
and tokens as logarithms about the centre of the runs. So the weights of the best fit follow from the exponents by least squares, every
derivative is a product with what is there already, and no coefficient is as large as ``N^alpha``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

Column = Float[np.ndarray, " p"]
Weights = Float[np.ndarray, " w"]
Exponents = Float[np.ndarray, " e"]
Base = Float[np.ndarray, "p w"]
Powers = Float[np.ndarray, "e p w"]

LOG_OF_NOTHING = -700.0
"""In the place of ``ln(1 - S)`` where everything is trained: ``exp`` makes 0 of it at any exponent from 0.05 on, without an infinity."""


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Runs that are over, a number for each.

    Attributes:
        size: ``N``: parameters that a token passes, without the table of tokens, > 0.
        tokens: ``D``: trained on, padding left out, > 0.
        share: ``S``: of the parameters that are trained, in (0, 1].
        loss: In nats, > 0.
    """

    size: Column
    tokens: Column
    share: Column
    loss: Column

    def __len__(self) -> int:
        """How many."""
        return len(self.loss)

    def taken(self, rows: np.ndarray) -> "Points":
        """Some of them.

        Args:
            rows: Numbers or truth values.

        Returns:
            These runs, in this order.
        """
        return Points(self.size[rows], self.tokens[rows], self.share[rows], self.loss[rows])


@dataclass(frozen=True, slots=True)
class Centre:
    """Means of ``ln N`` and ``ln D`` over the runs that a law is fitted to."""

    size: float
    tokens: float

    @classmethod
    def of(cls, points: Points) -> "Centre":
        """That of some runs."""
        return cls(float(np.log(points.size).mean()), float(np.log(points.tokens).mean()))


@dataclass(frozen=True, slots=True)
class Law:
    """A form of the loss.

    Attributes:
        formula: In the source's letters.
        exponents: Their names; all are > 0.
        weights: Names of the weights of the columns.
        positive: Which weights are > 0; the others are any numbers.
        base: Columns without their powers, of centred logarithms of sizes and tokens.
        powers: What each exponent multiplies in the power of each column, of centred logarithms and ``ln(1 - S)``.
        printed: The coefficients as the source writes them, of exponents, weights and the centre.
    """

    formula: str
    exponents: tuple[str, ...]
    weights: tuple[str, ...]
    positive: tuple[bool, ...]
    base: Callable[[Column, Column], Base]
    powers: Callable[[Column, Column, Column], Powers]
    printed: Callable[[Exponents, Weights, Centre], Mapping[str, float]]

    def basis(self, points: Points, centre: Centre) -> tuple[Base, Powers]:
        """What of the columns does not depend on coefficients.

        Args:
            points: Runs; their losses are not looked at.
            centre: Of the logarithms.

        Returns:
            `base` and `powers` of these runs.
        """
        size, tokens = np.log(points.size) - centre.size, np.log(points.tokens) - centre.tokens
        with np.errstate(divide="ignore"):
            rest = np.maximum(np.log1p(-points.share), LOG_OF_NOTHING)
        return self.base(size, tokens), self.powers(size, tokens, rest)

    @property
    def coefficients(self) -> int:
        """How many there are to fit."""
        return len(self.exponents) + len(self.weights)


def columns_of(base: Base, powers: Powers, exponents: Exponents) -> Base:
    """The columns at some exponents.

    Args:
        base: Of `Law.basis`.
        powers: Of `Law.basis`.
        exponents: All > 0.

    Returns:
        ``base_j * exp(sum_k exponent_k * power_kj)``.
    """
    # A plain product of matrices: `tensordot` takes longer to arrange it than to do it.
    columns: Base = base * np.exp((exponents @ powers.reshape(len(powers), -1)).reshape(base.shape))
    return columns


def _ones_and(*columns: Column) -> Base:
    return np.stack([np.ones_like(columns[0]), *columns], axis=1)


def _powers(*of_exponents: tuple[Column | float, ...]) -> Powers:
    """A row of columns for each exponent; numbers stand for constant columns."""
    return np.stack([np.stack(np.broadcast_arrays(*row), axis=1) for row in of_exponents])


def _size_and_tokens_printed(exponents: Exponents, weights: Weights, centre: Centre) -> Mapping[str, float]:
    alpha, beta = map(float, exponents)
    c, a, b = map(float, weights)
    return {"c": c, "A": a * np.exp(alpha * centre.size), "alpha": alpha, "B": b * np.exp(beta * centre.tokens), "beta": beta}


def _share_printed(exponents: Exponents, weights: Weights, centre: Centre) -> Mapping[str, float]:
    alpha, beta, b_s = map(float, exponents)
    c, a_d, b_d, a_s, c_s = map(float, weights)
    by_size, by_tokens = np.exp(alpha * centre.size), np.exp(beta * centre.tokens)
    return {
        "c": c,
        "a_d": a_d * by_size,
        "b_d": (b_d - a_d * centre.tokens) * by_size,
        "alpha": alpha,
        "a_s": a_s * by_tokens,
        "b_s": b_s,
        "c_s": c_s * by_tokens,
        "beta": beta,
    }


def _one_share_printed(exponents: Exponents, weights: Weights, centre: Centre) -> Mapping[str, float]:
    every = _share_printed(np.append(exponents, 1.0), np.insert(weights, 3, 0.0), centre)
    return {name: value for name, value in every.items() if name not in {"a_s", "b_s"}}


SIZE_AND_TOKENS = Law(
    formula="L(N, D) = c + A / N^alpha + B / D^beta",
    exponents=("alpha", "beta"),
    weights=("c", "A", "B"),
    positive=(True, True, True),
    base=lambda size, tokens: _ones_and(np.ones_like(size), np.ones_like(size)),
    powers=lambda size, tokens, rest: _powers((0 * size, -size, 0.0), (0 * size, 0.0, -tokens)),
    printed=_size_and_tokens_printed,
)
"""Hoffmann et al. 2022, equation 2; source 001, section 4.3."""

SHARE = Law(
    formula="L(S, N, D) = c + (a_d ln D + b_d) / N^alpha + (a_s (1 - S)^b_s + c_s) / D^beta",
    exponents=("alpha", "beta", "b_s"),
    weights=("c", "a_d", "b_d", "a_s", "c_s"),
    positive=(True, False, False, False, False),
    base=lambda size, tokens: _ones_and(tokens, *(np.ones_like(size),) * 3),
    powers=lambda size, tokens, rest: _powers(
        (0 * size, -size, -size, 0.0, 0.0), (0 * size, 0.0, 0.0, -tokens, -tokens), (0 * size, 0.0, 0.0, rest, 0.0)
    ),
    printed=_share_printed,
)
"""Source 001, section 4.3 and appendix F, after Frantar et al. 2023."""

ONE_SHARE = Law(
    formula="L(N, D) = c + (a_d ln D + b_d) / N^alpha + c_s / D^beta",
    exponents=("alpha", "beta"),
    weights=("c", "a_d", "b_d", "c_s"),
    positive=(True, False, False, False),
    base=lambda size, tokens: _ones_and(tokens, *(np.ones_like(size),) * 2),
    powers=lambda size, tokens, rest: _powers((0 * size, -size, -size, 0.0), (0 * size, 0.0, 0.0, -tokens)),
    printed=_one_share_printed,
)
"""`SHARE` where every run trains the same share, so that ``a_s (1 - S)^b_s`` is a part of ``c_s``."""
