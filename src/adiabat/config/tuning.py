"""Settings of ``adiabat tune``; the defaults are the source's regime (Vasilyev et al. 2024)."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PlainValidator, PositiveFloat, PositiveInt, model_validator

from adiabat.config.section import (
    Amount,
    OptimizerName,
    PlacedError,
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
from adiabat.config.training_choices import (
    HIGHEST,
    ConstantSchedule,
    FullTraining,
    ListedNegatives,
    Method,
    Negatives,
    RateScaling,
    Schedule,
    TripletTuning,
    TuneLoss,
    UnscaledRate,
)
from adiabat.config.validation import Need


class TuneDataSection(DataSection, HeldOutSection):
    """``[data]`` of a tuning run."""


class TuneSection(Section):
    """``[tune]``: the regime; the defaults are the source's (Vasilyev et al. 2024)."""

    needs: ClassVar[Mapping[str, Need]] = {
        "idle_epochs": Need("keep", ("both",)),
    }
    learning_rate: Annotated[float | Literal["safe"], PlainValidator(positive_or("safe"))] = 5e-8
    """``safe``: the largest one whose drift stays within the guard's limit, found by `RateSearchSection` before the run."""
    batch_size: PositiveInt = 14
    """Queries per optimiser step."""
    loss: TuneLoss = TripletTuning()
    """What is minimised."""
    negatives: Negatives = ListedNegatives()
    """Where the negatives of a query come from."""
    method: Method = FullTraining()
    """Which weights are tuned."""
    freeze: Texts = ("embeddings",)
    """Names as in `adiabat.models.freezing` (Vasilyev et al. 2024)."""
    optimizer: OptimizerName = "adamw"
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    schedule: Schedule = ConstantSchedule()
    """How the learning rate changes behind the warm-up."""
    warmup_steps: Amount = 0
    batch_scaling: RateScaling = UnscaledRate()
    """How the learning rate follows the batch size."""
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
    def _negatives_are_used(self) -> Self:
        if self.loss.kind == "store_softmax" and self.negatives != ListedNegatives():
            raise ValueError(
                "tune.negatives has no effect with tune.loss = store_softmax, whose negatives are the whole store; leave it out"
            )
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


class RateSearchSection(Section):
    """``[rate_search]``: short runs that find the largest rate whose drift stays within the guard's limit.

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
            raise PlacedError("low", f"must be below rate_search.high, got {self.low:g} and {self.high:g}; exchange them")
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
    rate_search: RateSearchSection = RateSearchSection()
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
    def _rates_are_searched(self) -> Self:
        rate, warmup, steps = self.tune.learning_rate, self.tune.warmup_steps, self.rate_search.steps
        if rate == "safe" and warmup >= steps:
            raise ValueError(
                f"tune.warmup_steps must be below rate_search.steps = {steps}, got {warmup}: no run would come to its rate; "
                "take more rate_search.steps"
            )
        idle = [
            name for name, value in defaults_of(RateSearchSection).items() if rate != "safe" and getattr(self.rate_search, name) != value
        ]
        if idle:
            told = [f"rate_search.{name} has no effect with tune.learning_rate = {rate:g}" for name in idle]
            raise ValueError(f"{'; '.join(told)}; leave it out, or set tune.learning_rate to safe")
        return self
