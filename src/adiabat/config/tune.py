"""Settings of ``adiabat tune``; the defaults are the source's regime (mission A3)."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from adiabat.config.faults import Need
from adiabat.config.section import Amount, Fraction, OptimizerName, ScalingRule, ScheduleName, Section, Texts
from adiabat.config.shared import DataSection, EncoderSection, HeldOutSection, StepsRunSection


class TuneDataSection(DataSection, HeldOutSection):
    """``[data]`` of a tuning run."""


class TuneSection(Section):
    """``[tune]``: the regime; the defaults are the source's (mission A3)."""

    needs: ClassVar[Mapping[str, Need]] = {
        "distance": Need("loss", ("triplet",)),
        "margin": Need("loss", ("triplet",)),
        "temperature": Need("loss", ("in_batch_softmax",)),
        "gamma": Need("schedule", ("exponential",)),
        "final_fraction": Need("schedule", ("linear", "quadratic", "cosine")),
        "reference_batch_size": Need("batch_scaling", ("linear", "sqrt")),
    }
    learning_rate: PositiveFloat = 5e-8
    batch_size: PositiveInt = 14
    """Queries per optimiser step."""
    loss: Literal["triplet", "in_batch_softmax"] = "triplet"
    distance: Literal["cosine", "euclidean"] = "cosine"
    """Of the triplet loss."""
    margin: Annotated[float, Field(ge=0)] = 0.1
    """Of the triplet loss."""
    temperature: PositiveFloat = 0.05
    """Of the softmax; similarities are divided by it."""
    negatives: Literal["examples", "random", "hardest"] = "examples"
    """Listed with the example; drawn from the store; or the nearest to the current query tower in the whole store (mission A14)."""
    negatives_per_query: PositiveInt = 1
    freeze: Texts = ("embeddings",)
    """Names as in `adiabat.model.freezing` (mission A2)."""
    optimizer: OptimizerName = "adamw"
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    schedule: ScheduleName = "constant"
    gamma: Annotated[float, Field(gt=0, le=1)] = 0.98
    """Of the exponential schedule, per epoch."""
    warmup_steps: Amount = 0
    final_fraction: Fraction = 0.0
    """Of the linear, quadratic and cosine schedules: where they end, as a share of the peak."""
    batch_scaling: ScalingRule = "none"
    """How the rate follows the batch size from `reference_batch_size`."""
    reference_batch_size: PositiveInt = 14
    batches_per_epoch: PositiveInt = 1_000
    max_epochs: PositiveInt = 1_000
    """Upper limit; also the length that linear, quadratic and cosine schedules run over."""
    idle_epochs: PositiveInt = 10
    """Stop after so many epochs without improvement of both validation loss and validation errors."""
    dropout: bool = False

    @model_validator(mode="after")
    def _warm_up_ends(self) -> Self:
        steps = self.max_epochs * self.batches_per_epoch
        if self.warmup_steps > steps:
            raise ValueError(f"tune.warmup_steps must be at most max_epochs x batches_per_epoch = {steps}, got {self.warmup_steps}")
        return self


class TuneSettings(Section):
    """Everything that ``adiabat tune`` may be told."""

    encoder: EncoderSection = EncoderSection()
    data: TuneDataSection = TuneDataSection()
    tune: TuneSection = TuneSection()
    run: StepsRunSection = StepsRunSection()
