"""Settings of ``adiabat tune``; the defaults are the source's regime (Vasilyev et al. 2024)."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PlainValidator, PositiveFloat, PositiveInt, model_validator

from adiabat.config.section import (
    Amount,
    OptimizerName,
    PlacedError,
    ScalingRule,
    Section,
    Text,
    Texts,
    ValueCount,
    defaults_of,
    positive_or,
    repeated,
    spaced,
)
from adiabat.config.shared import DataSection, HeldOutSection, RankingEncoderSection, StepsRunSection
from adiabat.config.training_choices import ConstantSchedule, FullTraining, Method, Schedule
from adiabat.config.validation import Need

HIGHEST = 1e6
"""Of settings that beyond it leave nothing finite in float32."""


class TuneDataSection(DataSection, HeldOutSection):
    """``[data]`` of a tuning run."""


class TuneSection(Section):
    """``[tune]``: the regime; the defaults are the source's (Vasilyev et al. 2024)."""

    needs: ClassVar[Mapping[str, Need]] = {
        "margin": Need("loss", ("triplet",)),
        "temperature": Need("loss", ("in_batch_softmax", "store_softmax")),
        "negatives": Need("loss", ("triplet", "in_batch_softmax")),
        "negatives_per_query": Need("loss", ("triplet", "in_batch_softmax")),
        "idle_epochs": Need("keep", ("both",)),
        "difficulty": Need("negatives", ("examples",)),
        "reference_batch_size": Need("batch_scaling", ("linear", "sqrt")),
    }
    learning_rate: Annotated[float | Literal["safe"], PlainValidator(positive_or("safe"))] = 5e-8
    """``safe``: the largest one whose drift stays within the guard's limit, found by `LadderSection` before the run."""
    batch_size: PositiveInt = 14
    """Queries per optimiser step."""
    loss: Literal["triplet", "in_batch_softmax", "store_softmax"] = "triplet"
    """``store_softmax``: every document of the store that is not known to answer a query is a negative of it."""
    distance: Literal["cosine", "dot", "euclidean"] | None = None
    """What query and document vectors are compared by, in loss and validation; None takes the similarity that the model states
    (`encoder.similarity`). Margin and temperature are in its units. ``euclidean`` is for the triplet loss alone."""
    margin: Annotated[float, Field(ge=0, le=HIGHEST)] = 0.1
    """Of the triplet loss."""
    temperature: Annotated[float, Field(ge=1e-6, le=HIGHEST)] = 0.05
    """Of either softmax; similarities are divided by it."""
    negatives: Literal["examples", "random", "hardest"] = "examples"
    """Listed with the example; drawn from the store; or the store's hardest, which are the nearest by the query tower of that
    step. Under the triplet loss, queries that list none take the store's hardest."""
    negatives_per_query: PositiveInt = 1
    difficulty: PositiveInt = 1
    """Number of the listed negative that is taken first: of *arxiv-negatives* 1 is the nearest paper, 21 a random one.

    Reference: Vasilyev et al. 2024.
    """
    method: Method = FullTraining()
    """Which weights are tuned."""
    freeze: Texts = ("embeddings",)
    """Names as in `adiabat.models.freezing` (Vasilyev et al. 2024)."""
    optimizer: OptimizerName = "adamw"
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    schedule: Schedule = ConstantSchedule()
    """How the learning rate changes behind the warm-up."""
    warmup_steps: Amount = 0
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
    pull: Annotated[float, Field(ge=0, le=HIGHEST)] = 0.0
    """L2 to the start: this times ``w - w_0`` is added to the gradient of every weight
    (`adiabat.adiabatic.regularization.pull_to_start`)."""

    @model_validator(mode="after")
    def _softmax_takes_products(self) -> Self:
        if self.distance == "euclidean" and self.loss != "triplet":
            raise PlacedError("distance", f"must be cosine or dot with tune.loss = {self.loss}, got euclidean")
        return self

    @model_validator(mode="after")
    def _warm_up_ends(self) -> Self:
        steps = self.max_epochs * self.batches_per_epoch
        if self.warmup_steps > steps:
            raise ValueError(f"tune.warmup_steps must be at most max_epochs x batches_per_epoch = {steps}, got {self.warmup_steps}")
        return self


class GuardSection(Section):
    """``[guard]``: how far the answers to unlabelled probe texts may drift while a tower is tuned."""

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
    """What `most` is of; `adiabat.adiabatic.drift` has the formulas. All are written to the log."""
    most: Annotated[float | Literal["noise"], PlainValidator(positive_or("noise"))] | None = None
    """An epoch that drifts further is never the result; None only watches. ``noise``: a limit made of the drift of the untuned tower when
    nothing but the end of the probes is written otherwise (`adiabat.results.drift_judgement.limits_of`)."""
    then: Literal["stop", "back", "soften"] = "stop"
    """What follows: the run ends; it goes on from the best epoch so far at half the rate; or it goes on as if nothing were, and the
    result is taken back towards the start until its drift is within the limit (`adiabat.adiabatic.regularization.soften`)."""


class RehearsalSection(Section):
    """``[rehearsal]``: texts whose vectors are to stay where the untuned tower puts them."""

    needs: ClassVar[Mapping[str, Need]] = {name: Need("use", (True,)) for name in ("texts", "weight", "texts_per_step")}
    use: bool = False
    texts: Text = "rehearsal"
    """A file of them, as of probes, or ``rehearsal``: those that come with adiabat, of the languages and fields of its probes. None may be
    among those that drift is measured on, which would no longer tell anything."""
    weight: PositiveFloat = 10.0
    """Of ``1 - cos`` between their vectors and those of the start, beside the loss."""
    texts_per_step: PositiveInt = 14


class LadderSection(Section):
    """``[ladder]``: short runs that find the largest rate whose drift stays within the guard's limit.

    The highest rate comes first; a run ends as soon as it leaves the band, and the first rate that stays inside to its end is the answer.
    """

    low: PositiveFloat = 1e-8
    high: PositiveFloat = 1e-5
    count: ValueCount = 10
    """Rates, evenly spaced on a logarithmic scale from one end to the other, of three digits each."""
    steps: PositiveInt = 1_000
    """Optimiser steps for which a rate must stay inside."""
    looks: PositiveInt = 20
    """Most looks at the drift, evenly spaced over the steps."""
    seeds: PositiveInt = 1
    """Runs of a rate, with the seed of the run and those that follow it; it is safe if all stay inside."""

    @model_validator(mode="after")
    def _ascends(self) -> Self:
        if not self.low < self.high:
            raise PlacedError("low", f"must be below ladder.high, got {self.low:g} and {self.high:g}; exchange them")
        if told := repeated(self.rates, self.low, self.high):
            raise PlacedError("count", told)
        return self

    @property
    def rates(self) -> tuple[float, ...]:
        """All of them, ascending."""
        return spaced(self.low, self.high, self.count)


class TuneSettings(Section):
    """Everything that ``adiabat tune`` and ``adiabat safe-rate`` may be told."""

    encoder: RankingEncoderSection = RankingEncoderSection()
    data: TuneDataSection = TuneDataSection()
    tune: TuneSection = TuneSection()
    guard: GuardSection = GuardSection()
    rehearsal: RehearsalSection = RehearsalSection()
    ladder: LadderSection = LadderSection()
    run: StepsRunSection = StepsRunSection()

    @model_validator(mode="after")
    def _a_limit_comes_before_what_follows(self) -> Self:
        then = self.guard.then
        if then != "stop" and self.watched.most is None:
            raise ValueError(f'guard.then has no effect without guard.most, got "{then}"; set guard.most too, or leave it out')
        return self

    @property
    def watched(self) -> GuardSection:
        """The guard as it is used: a safe rate is found by one, and has one beside it afterwards."""
        if self.tune.learning_rate != "safe":
            return self.guard
        return self.guard.model_copy(update={"use": True, "most": self.guard.most or "noise"})

    @model_validator(mode="after")
    def _ladder_is_climbed(self) -> Self:
        rate, warmup, steps = self.tune.learning_rate, self.tune.warmup_steps, self.ladder.steps
        if rate == "safe" and warmup >= steps:
            raise ValueError(
                f"tune.warmup_steps must be below ladder.steps = {steps}, got {warmup}: no run would come to its rate; "
                "take more ladder.steps"
            )
        idle = [name for name, value in defaults_of(LadderSection).items() if rate != "safe" and getattr(self.ladder, name) != value]
        if idle:
            told = [f"ladder.{name} has no effect with tune.learning_rate = {rate:g}" for name in idle]
            raise ValueError(f"{'; '.join(told)}; leave it out, or set tune.learning_rate to safe")
        return self
