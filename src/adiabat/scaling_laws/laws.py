"""Laws of the loss by size, tokens and trained share, and the runs that they are fitted to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from adiabat.core.text import numbered
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
class Term:
    """A summand of a law, by centred logarithms: ``weight * (ln D) * exp(-alpha ln N) ...``.

    Attributes:
        weight: Name of its weight.
        exponents: Names of its exponents: ``alpha`` of ``1 / N``, ``beta`` of ``1 / D``, ``b_s`` of
            ``1 - S``.
        by_tokens: Whether ``ln D`` is a factor.
        positive: Whether the weight is > 0; others have any sign.
    """

    weight: str
    exponents: tuple[str, ...] = ()
    by_tokens: bool = False
    positive: bool = False


@dataclass(frozen=True, slots=True)
class Law:
    """A form of the loss: a sum of terms.

    Attributes:
        formula: Formula in the notation of the source.
        exponents: Names of the exponents, which are > 0.
        terms: Terms, each with a weight to fit.
    """

    formula: str
    exponents: tuple[str, ...]
    terms: tuple[Term, ...]

    @property
    def weights(self) -> tuple[str, ...]:
        """Names of the weights of the terms."""
        return tuple(term.weight for term in self.terms)

    @property
    def positive(self) -> tuple[bool, ...]:
        """Whether each weight is > 0."""
        return tuple(term.positive for term in self.terms)

    @property
    def coefficients(self) -> int:
        """Number of coefficients."""
        return len(self.exponents) + len(self.terms)

    def basis(self, points: Points, centre: Centre) -> tuple[Base, Powers]:
        """Terms without coefficients: ``ln D`` or 1, and the factor of each exponent in the power of e.

        Losses of the runs are not used.
        """
        tokens = np.log(points.tokens) - centre.tokens
        # Where all is trained, ln(1 - S) is minus infinity, which times an exponent of 0 is not a number.
        with np.errstate(divide="ignore"):
            untrained = np.maximum(np.log1p(-points.share), LOG_OF_NOTHING)
        logs = {"alpha": centre.size - np.log(points.size), "beta": -tokens, "b_s": untrained}
        base = np.ones((len(points), len(self.terms)))
        powers = np.zeros((len(self.exponents), *base.shape))
        for column, term in enumerate(self.terms):
            if term.by_tokens:
                base[:, column] = tokens
            for name in term.exponents:
                powers[self.exponents.index(name), :, column] = logs[name]
        return base, powers

    def printed(self, exponents: Exponents, weights: Weights, centre: Centre) -> dict[str, float]:
        """Coefficients as the source writes them, in the order of its formula.

        Fits take ``ln N`` and ``ln D`` about their means ``n`` and ``d``. A weight of ``1 / N^alpha`` is
        ``exp(alpha n)`` times the fitted one, and ``a_d (ln D - d)`` takes ``a_d d`` from ``b_d``.
        """
        # ``1 - S`` is not centred.
        means = {"alpha": centre.size, "beta": centre.tokens, "b_s": 0.0}
        values = dict(zip((*self.exponents, *self.weights), map(float, (*exponents, *weights)), strict=True))
        if "a_d" in values:
            values["b_d"] -= values["a_d"] * centre.tokens
        for term in self.terms:
            values[term.weight] *= np.exp(sum(values[name] * means[name] for name in term.exponents))
        return {name: values[name] for name in sorted(values, key=self.formula.index)}


def columns_of(
    base: Base, powers: Powers, exponents: Float[np.ndarray, "*n e"]
) -> Float[np.ndarray, "*n p w"]:
    """The columns at some exponents, or at each of many: ``base_j * exp(sum_k exponent_k * power_kj)``."""
    # A plain matrix product: `tensordot` spends more time on its arrangement than on the product.
    flat = exponents @ powers.reshape(len(powers), -1)
    return np.asarray(base * np.exp(flat.reshape(*exponents.shape[:-1], *base.shape)))


SIZE_AND_TOKENS = Law(
    "L(N, D) = c + A / N^alpha + B / D^beta",
    ("alpha", "beta"),
    (
        Term("c", positive=True),
        Term("A", ("alpha",), positive=True),
        Term("B", ("beta",), positive=True),
    ),
)
"""Hoffmann et al. 2022, equation 2; Ziarko et al. 2024, section 4.3."""

SHARE = Law(
    "L(S, N, D) = c + (a_d ln D + b_d) / N^alpha + (a_s (1 - S)^b_s + c_s) / D^beta",
    ("alpha", "beta", "b_s"),
    (
        Term("c", positive=True),
        Term("a_d", ("alpha",), by_tokens=True),
        Term("b_d", ("alpha",)),
        Term("a_s", ("beta", "b_s")),
        Term("c_s", ("beta",)),
    ),
)
"""Ziarko et al. 2024, section 4.3 and appendix F, after Frantar et al. 2023."""

ONE_SHARE = Law(
    "L(N, D) = c + (a_d ln D + b_d) / N^alpha + c_s / D^beta",
    ("alpha", "beta"),
    (
        Term("c", positive=True),
        Term("a_d", ("alpha",), by_tokens=True),
        Term("b_d", ("alpha",)),
        Term("c_s", ("beta",)),
    ),
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
        if self.blocks is None:
            return self.name
        return f"{self.name}, {self.blocks} {numbered('block', self.blocks)}"

    @property
    def title(self) -> str:
        """Label of model and method, also used in names of runs."""
        title = f"{self.sized_name}, {self.method}"
        number = self.rank or self.frozen
        return f"{title} {number}" if number else title

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
        adapters = self.parameters.updated if self.way.method == "lora" else 0
        return self.parameters.forward - adapters

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
