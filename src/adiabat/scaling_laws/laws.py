"""Laws of the loss by size, tokens and trained share, and the runs that they are fitted to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from adiabat.scaling_laws.flops import PassedParameters, training_flops

Column = Float[np.ndarray, " p"]
Weights = Float[np.ndarray, " w"]
Exponents = Float[np.ndarray, " e"]
Base = Float[np.ndarray, "p w"]
Powers = Float[np.ndarray, "e p w"]

LOG_OF_NOTHING = -700.0
"""Value of ``ln(1 - S)`` if everything is trained: its ``exp`` is 0 at any exponent from 0.05 on, without an
infinity."""


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Finished runs, a number for each.

    Attributes:
        size: ``N``: parameters that a token passes, without token embeddings, > 0.
        tokens: ``D``: training tokens without padding, > 0.
        share: ``S``: share of the trained parameters, in (0, 1].
        loss: In nats, > 0.
    """

    size: Column
    tokens: Column
    share: Column
    loss: Column

    def __len__(self) -> int:
        return len(self.loss)

    def taken(self, rows: np.ndarray) -> "Points":
        """Some of the runs, by number or mask."""
        return Points(self.size[rows], self.tokens[rows], self.share[rows], self.loss[rows])


@dataclass(frozen=True, slots=True)
class Centre:
    """Means of ``ln N`` and ``ln D`` over the runs that a law is fitted to."""

    size: float
    tokens: float

    @classmethod
    def of(cls, points: Points) -> "Centre":
        """The means of some runs."""
        return cls(float(np.log(points.size).mean()), float(np.log(points.tokens).mean()))


@dataclass(frozen=True, slots=True)
class Law:
    """A form of the loss.

    Attributes:
        formula: Formula in the notation of the source.
        exponents: Names of the exponents, which are > 0.
        weights: Names of the weights of the columns.
        positive: Whether each weight is > 0; others have any sign.
        base: Columns without their powers, from centred logarithms of sizes and tokens.
        powers: Factor of each exponent in the power of each column, from centred logarithms and ``ln(1 -
            S)``.
        printed: Coefficients in the notation of the source, from exponents, weights and the centre.
    """

    formula: str
    exponents: tuple[str, ...]
    weights: tuple[str, ...]
    positive: tuple[bool, ...]
    base: Callable[[Column, Column], Base]
    powers: Callable[[Column, Column, Column], Powers]
    printed: Callable[[Exponents, Weights, Centre], Mapping[str, float]]

    def basis(self, points: Points, centre: Centre) -> tuple[Base, Powers]:
        """`base` and `powers` of some runs, which do not depend on coefficients; losses are not used."""
        size, tokens = np.log(points.size) - centre.size, np.log(points.tokens) - centre.tokens
        with np.errstate(divide="ignore"):
            untrained = np.maximum(np.log1p(-points.share), LOG_OF_NOTHING)
        return self.base(size, tokens), self.powers(size, tokens, untrained)

    @property
    def coefficients(self) -> int:
        """Number of coefficients."""
        return len(self.exponents) + len(self.weights)


def columns_of(
    base: Base, powers: Powers, exponents: Float[np.ndarray, "*n e"]
) -> Float[np.ndarray, "*n p w"]:
    """The columns at some exponents, or at each of many: ``base_j * exp(sum_k exponent_k * power_kj)``."""
    # A plain matrix product: `tensordot` spends more time on its arrangement than on the product.
    return np.asarray(
        base
        * np.exp((exponents @ powers.reshape(len(powers), -1)).reshape(*exponents.shape[:-1], *base.shape))
    )


def _ones_and(*columns: Column) -> Base:
    return np.stack([np.ones_like(columns[0]), *columns], axis=1)


def _powers(*of_exponents: tuple[Column | float, ...]) -> Powers:
    """A row of columns for each exponent; numbers stand for constant columns."""
    return np.stack([np.stack(np.broadcast_arrays(*row), axis=1) for row in of_exponents])


def _size_and_tokens_printed(exponents: Exponents, weights: Weights, centre: Centre) -> Mapping[str, float]:
    alpha, beta = map(float, exponents)
    c, a, b = map(float, weights)
    return {
        "c": c,
        "A": a * np.exp(alpha * centre.size),
        "alpha": alpha,
        "B": b * np.exp(beta * centre.tokens),
        "beta": beta,
    }


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
    coefficients = _share_printed(np.append(exponents, 1.0), np.insert(weights, 3, 0.0), centre)
    return {name: value for name, value in coefficients.items() if name not in {"a_s", "b_s"}}


SIZE_AND_TOKENS = Law(
    formula="L(N, D) = c + A / N^alpha + B / D^beta",
    exponents=("alpha", "beta"),
    weights=("c", "A", "B"),
    positive=(True, True, True),
    base=lambda size, tokens: _ones_and(np.ones_like(size), np.ones_like(size)),
    powers=lambda size, tokens, untrained: _powers((0 * size, -size, 0.0), (0 * size, 0.0, -tokens)),
    printed=_size_and_tokens_printed,
)
"""Hoffmann et al. 2022, equation 2; Ziarko et al. 2024, section 4.3."""

SHARE = Law(
    formula="L(S, N, D) = c + (a_d ln D + b_d) / N^alpha + (a_s (1 - S)^b_s + c_s) / D^beta",
    exponents=("alpha", "beta", "b_s"),
    weights=("c", "a_d", "b_d", "a_s", "c_s"),
    positive=(True, False, False, False, False),
    base=lambda size, tokens: _ones_and(tokens, *(np.ones_like(size),) * 3),
    powers=lambda size, tokens, untrained: _powers(
        (0 * size, -size, -size, 0.0, 0.0),
        (0 * size, 0.0, 0.0, -tokens, -tokens),
        (0 * size, 0.0, 0.0, untrained, 0.0),
    ),
    printed=_share_printed,
)
"""Ziarko et al. 2024, section 4.3 and appendix F, after Frantar et al. 2023."""

ONE_SHARE = Law(
    formula="L(N, D) = c + (a_d ln D + b_d) / N^alpha + c_s / D^beta",
    exponents=("alpha", "beta"),
    weights=("c", "a_d", "b_d", "c_s"),
    positive=(True, False, False, False),
    base=lambda size, tokens: _ones_and(tokens, *(np.ones_like(size),) * 2),
    powers=lambda size, tokens, untrained: _powers(
        (0 * size, -size, -size, 0.0), (0 * size, 0.0, 0.0, -tokens)
    ),
    printed=_one_share_printed,
)
"""`SHARE` if every run trains the same share, so that ``c_s`` contains ``a_s (1 - S)^b_s``."""

Method = Literal["full", "freezing", "bias", "lora"]
"""Trained parameters: all, all but embedding tables and leading blocks, only biases, or low-rank adapters
(Ziarko et al. 2024)."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A family of models and a method, to whose runs one law is fitted."""

    family: str
    method: Method

    def __str__(self) -> str:
        """Label: only the method if the family has no name."""
        return f"{self.family}, {self.method}" if self.family else self.method


@dataclass(frozen=True, slots=True)
class Way:
    """A model and a method.

    Attributes:
        family: Family of models that differ only in size.
        blocks: Number of leading blocks that form the model; None for the whole model.
        frozen: Number of frozen leading blocks; 0 except for freezing.
    """

    family: str
    name: str
    model: str
    blocks: int | None
    method: Method
    rank: int | None
    frozen: int

    @property
    def sized_name(self) -> str:
        """Label of the model with its number of blocks."""
        return (
            self.name
            if self.blocks is None
            else f"{self.name}, {self.blocks} {'block' if self.blocks == 1 else 'blocks'}"
        )

    @property
    def title(self) -> str:
        """Label of model and method, also used in names of runs."""
        detail = f" {self.rank}" if self.rank else f" {self.frozen}" if self.frozen else ""
        return f"{self.sized_name}, {self.method}{detail}"

    @property
    def kind(self) -> Kind:
        """Family and method."""
        return Kind(self.family, self.method)


@dataclass(frozen=True, slots=True)
class Option:
    """A model and a method, with the parameters that decide its cost."""

    way: Way
    parameters: PassedParameters

    @property
    def size(self) -> int:
        """``N``: parameters of the model that a token passes, without adapters, although their operations
        count.
        """
        return self.parameters.forward - (self.parameters.updated if self.way.method == "lora" else 0)

    @property
    def share(self) -> float:
        """``S``: share of trained parameters among those that a token passes."""
        return self.parameters.updated / self.parameters.forward

    @property
    def flops_per_token(self) -> float:
        """`training_flops` of one token."""
        return training_flops(self.parameters, 1.0)


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run: its budget in FLOP, training tokens, and loss in nats (NaN or not positive where the
    run failed).
    """

    option: Option
    budget: float
    tokens: float
    loss: float


def points_of(runs: Sequence[Run]) -> Points:
    """The runs as columns, to which laws are fitted."""
    return Points(
        np.array([float(run.option.size) for run in runs]),
        np.array([run.tokens for run in runs]),
        np.array([run.option.share for run in runs]),
        np.array([run.loss for run in runs]),
    )


def usable(runs: Sequence[Run]) -> list[Run]:
    """Runs with a loss that a law can be fitted to."""
    return [run for run in runs if np.isfinite(run.loss) and run.loss > 0]
