"""Runs of a sweep, and the options that they are runs of: a model, and a way to train it (mission B6)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from adiabat.plan.flops import PassedParameters, training_flops
from adiabat.plan.laws import Points

Method = Literal["full", "freezing", "bias", "lora"]
"""What is trained: everything, all but the tables and leading blocks, biases alone, or low-rank adapters (mission B3)."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A family of models and a method.

    Attributes:
        family: As in `Way`.
        method: What of its models is trained.
    """

    family: str
    method: Method

    def __str__(self) -> str:
        """For people: the method alone where no family has a name."""
        return f"{self.family}, {self.method}" if self.family else self.method


@dataclass(frozen=True, slots=True)
class Way:
    """A model, and what of it is trained.

    Attributes:
        family: Models that differ in size alone, to whose runs one law is fitted.
        name: Of the model, for people.
        model: What `adiabat train` is told.
        blocks: How many of its leading blocks make the model; None takes all.
        method: What is trained.
        rank: Of LoRA; None elsewhere.
        frozen: Leading blocks that are frozen; 0 but for freezing.
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
        """The model as it is trained, for people."""
        return self.name if self.blocks is None else f"{self.name}, {self.blocks} {'block' if self.blocks == 1 else 'blocks'}"

    @property
    def title(self) -> str:
        """For people, and for the name of a run."""
        detail = f" {self.rank}" if self.rank else f" {self.frozen}" if self.frozen else ""
        return f"{self.sized_name}, {self.method}{detail}"

    @property
    def kind(self) -> Kind:
        """Whose runs one law is fitted to."""
        return Kind(self.family, self.method)


@dataclass(frozen=True, slots=True)
class Option:
    """A model and a way to train it, with what that costs.

    Attributes:
        way: Model and method.
        parameters: ``N_F``, ``N_B`` and ``N_U``.
    """

    way: Way
    parameters: PassedParameters

    @property
    def size(self) -> int:
        """``N``: parameters of the model that a token passes; adapters are no part of it, though their operations are paid for."""
        return self.parameters.forward - (self.parameters.updated if self.way.method == "lora" else 0)

    @property
    def share(self) -> float:
        """``S``: trained parameters of all that a token passes."""
        return self.parameters.updated / self.parameters.forward

    @property
    def flops_per_token(self) -> float:
        """Operations by parameters of one token (mission B4)."""
        return training_flops(self.parameters, 1.0)


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is over.

    Attributes:
        option: What was trained.
        budget: That it was given, in FLOP.
        tokens: Trained on.
        loss: In nats; NaN or not above 0 where the run failed to give one.
    """

    option: Option
    budget: float
    tokens: float
    loss: float


def points_of(runs: Sequence[Run]) -> Points:
    """What laws are fitted to."""
    return Points(
        np.array([float(run.option.size) for run in runs]),
        np.array([run.tokens for run in runs]),
        np.array([run.option.share for run in runs]),
        np.array([run.loss for run in runs]),
    )


def usable(runs: Sequence[Run]) -> list[Run]:
    """Runs with a loss that a law can be fitted to."""
    return [run for run in runs if np.isfinite(run.loss) and run.loss > 0]
