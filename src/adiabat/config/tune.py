"""Settings of ``adiabat tune``; the defaults are the source's regime (mission A3)."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from adiabat.config.faults import Need
from adiabat.config.section import Amount, Fraction, OptimizerName, ScalingRule, ScheduleName, Section, Text, Texts
from adiabat.config.shared import DataSection, EncoderSection, HeldOutSection, StepsRunSection


class TuneDataSection(DataSection, HeldOutSection):
    """``[data]`` of a tuning run."""


class TuneSection(Section):
    """``[tune]``: the regime; the defaults are the source's (mission A3)."""

    needs: ClassVar[Mapping[str, Need]] = {
        "distance": Need("loss", ("triplet",)),
        "margin": Need("loss", ("triplet",)),
        "temperature": Need("loss", ("in_batch_softmax",)),
        "idle_epochs": Need("keep", ("both",)),
        "difficulty": Need("negatives", ("examples",)),
        "rank": Need("method", ("lora",)),
        "alpha": Need("method", ("lora",)),
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
    difficulty: PositiveInt = 1
    """Number of the listed negative that is taken first: of *arxiv-negatives* 1 is the nearest paper, 21 a random one (mission A10)."""
    method: Literal["full", "bias", "lora"] = "full"
    """What is tuned: everything that is not frozen, the biases alone, or low-rank adapters of the dense layers, merged when saved."""
    rank: PositiveInt = 64
    """Of LoRA."""
    alpha: PositiveFloat | None = None
    """LoRA's factor times its rank; None takes the rank."""
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
    keep: Literal["both", "last"] = "both"
    """Which weights are the result: those of the best epoch, whose validation loss and errors are both the lowest, or the last ones, which
    come after `max_epochs`, whatever validation says."""
    dropout: bool = False

    @model_validator(mode="after")
    def _warm_up_ends(self) -> Self:
        steps = self.max_epochs * self.batches_per_epoch
        if self.warmup_steps > steps:
            raise ValueError(f"tune.warmup_steps must be at most max_epochs x batches_per_epoch = {steps}, got {self.warmup_steps}")
        return self


class GuardSection(Section):
    """``[guard]``: how far the answers to unlabelled probe texts may drift while a tower is tuned (mission A12)."""

    needs: ClassVar[Mapping[str, Need]] = {name: Need("use", (True,)) for name in ("probes", "store", "depth", "measure", "most", "then")}
    use: bool = False
    """Whether drift is measured at every validation."""
    probes: Text = "default"
    """A file of texts, or ``default``: those that come with adiabat."""
    store: Text | None = None
    """Where they are looked for; None takes that of the job."""
    depth: Annotated[int, Field(ge=2)] = 100
    """Documents whose order is compared."""
    measure: Literal["overlap loss", "margins", "turn"] = "overlap loss"
    """What `most` is of; `adiabat.measure.drift` has the formulas. All are written to the log."""
    most: PositiveFloat | None = None
    """An epoch that drifts further is never the result; None only watches."""
    then: Literal["stop", "back"] = "stop"
    """What follows: the run ends, or it goes on from the best epoch so far at half the rate."""

    @model_validator(mode="after")
    def _something_follows(self) -> Self:
        if self.then == "back" and self.most is None:
            raise ValueError('guard.then has no effect without guard.most, got "back"; set guard.most too, or leave it out')
        return self


class TuneSettings(Section):
    """Everything that ``adiabat tune`` may be told."""

    encoder: EncoderSection = EncoderSection()
    data: TuneDataSection = TuneDataSection()
    tune: TuneSection = TuneSection()
    guard: GuardSection = GuardSection()
    run: StepsRunSection = StepsRunSection()
