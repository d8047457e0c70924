"""Settings of ``adiabat tune``; the defaults are the source's regime (Vasilyev et al. 2024)."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, PositiveFloat, PositiveInt

from adiabat.config.section import MOST_VALUES, Amount, OptimizerName, Section, SpacedValues, Text, Texts, positive_or
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


class TuneDataSection(DataSection, HeldOutSection):
    """``[data]`` of a tuning run."""


class TuneSection(Section):
    """``[tune]``: the regime; the defaults are the source's (Vasilyev et al. 2024)."""

    learning_rate: Annotated[float | Literal["safe"], PlainValidator(positive_or("safe"))] = 5e-8
    """Peak learning rate; ``safe`` searches for the largest rate whose drift stays within the guard's limit (`[rate_search]`)."""
    batch_size: PositiveInt = 14
    """Queries per optimizer step."""
    loss: TuneLoss = TripletTuning()
    """What is minimised."""
    negatives: Negatives = ListedNegatives()
    """Where the negatives of a query come from."""
    method: Method = FullTraining()
    """Which weights are tuned."""
    freeze: Texts = ("embeddings",)
    """Weights that stay as they are, by names as in `adiabat.models.freezing`."""
    optimizer: OptimizerName = "adamw"
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    schedule: Schedule = ConstantSchedule()
    """How the learning rate changes after the warm-up."""
    warmup_steps: Amount = 0
    """Steps over which the learning rate rises to its peak."""
    batch_scaling: RateScaling = UnscaledRate()
    """How the learning rate follows the batch size."""
    batches_per_epoch: PositiveInt = 1_000
    """Optimizer steps between validations."""
    max_epochs: PositiveInt = 1_000
    """Maximum number of epochs, over which linear, quadratic and cosine schedules run."""
    idle_epochs: PositiveInt = 10
    """Stop after this many epochs without an improvement of both validation loss and validation errors."""
    keep: Literal["both", "last"] = "both"
    """Weights of the result: those of the best epoch, with the lowest validation loss and errors (both), or those after `max_epochs`."""
    dropout: bool = False
    """Keep the model's dropout on."""
    l2_to_start: Annotated[float, Field(ge=0, le=HIGHEST)] = 0.0
    """L2 regularization towards the start: this times ``w - w_0`` is added to the gradient of each weight."""

    def ignored(self) -> Iterator[tuple[str, str]]:
        """Validation ends a run that keeps its best weights; the softmax over the store has fixed negatives."""
        if self.keep == "last":
            yield "idle_epochs", 'with keep = "last"'
        if self.loss.kind == "store_softmax":
            yield "negatives", "with loss = store_softmax, whose negatives are the whole store"

    def faults(self) -> Iterator[tuple[str, str]]:
        """The warm-up ends within the run."""
        steps = self.max_epochs * self.batches_per_epoch
        if self.warmup_steps > steps:
            yield "warmup_steps", f"must be at most max_epochs x batches_per_epoch = {steps}, got {self.warmup_steps}"


class GuardSection(Section):
    """``[guard]``: measure at every validation how far the results of unlabelled probe texts drift."""

    probes: Text = "default"
    """A file of probe texts, or ``default``: those that come with adiabat."""
    store: Text | None = None
    """Store that is searched for them; None takes the store of the job."""
    depth: Annotated[int, Field(ge=2)] = 100
    """Documents per probe whose order is compared."""
    measure: Literal["overlap loss", "margins", "turn"] = "overlap loss"
    """Measure of drift that `limit` applies to (`adiabat.adiabatic.drift`). All are written to the log."""
    limit: Annotated[float | Literal["noise"], PlainValidator(positive_or("noise"))] | None = None
    """Largest drift of an epoch that may be the result; None sets no limit. ``noise`` derives it from the drift of the untuned tower when
    only the punctuation at the end of the probes changes (`adiabat.results.rate_search_result.limits_of`)."""
    action: Literal["stop", "back", "soften"] = "stop"
    """What happens beyond the limit: the run stops; it continues from its best epoch at half the rate; or it continues, and its final
    weights are moved back towards the start until their drift is within the limit (`adiabat.adiabatic.regularization.soften`)."""


class RehearsalSection(Section):
    """``[rehearsal]``: keep the vectors of unlabelled texts near those of the untuned tower."""

    texts: Text = "rehearsal"
    """A file of texts, or ``rehearsal``: those that come with adiabat, of the languages and fields of its probes. Probes that drift is
    measured on may not be among them."""
    weight: PositiveFloat = 10.0
    """Weight of ``1 - cos`` between their vectors and those of the start, which is added to the loss."""
    texts_per_step: PositiveInt = 14
    """Texts drawn in each step."""


class RateSearchSection(SpacedValues):
    """``[rate_search]``: short runs that find the largest rate whose drift stays within the guard's limit.

    Rates are tried from the highest down; a run stops at its first drift beyond the limit, and the first rate that stays within it to the
    end is the result.
    """

    low: PositiveFloat = 1e-8
    """Lowest rate."""
    high: PositiveFloat = 1e-5
    """Highest rate."""
    count: Annotated[int, Field(ge=2, le=MOST_VALUES)] = 10
    """Number of rates, evenly spaced on a logarithmic scale from low to high."""
    steps: PositiveInt = 1_000
    """Optimizer steps of each run."""
    checks: PositiveInt = 20
    """Measurements of drift per run at most, evenly spaced over its steps."""
    seeds: PositiveInt = 1
    """Runs of each rate, with consecutive seeds from that of the run; all must stay within the limit."""


class TuneSettings(Section):
    """Everything that ``adiabat tune`` and ``adiabat safe-rate`` may be told."""

    encoder: RankingEncoderSection = RankingEncoderSection()
    data: TuneDataSection = TuneDataSection()
    tune: TuneSection = TuneSection()
    guard: GuardSection | None = None
    rehearsal: RehearsalSection | None = None
    rate_search: RateSearchSection = RateSearchSection()
    run: StepsRunSection = StepsRunSection()

    @property
    def watched(self) -> GuardSection | None:
        """The guard of the run; a run at a safe rate always has one with a limit."""
        if self.tune.learning_rate != "safe":
            return self.guard
        guard = self.guard or GuardSection()
        return guard.model_copy(update={"limit": guard.limit or "noise"})

    def faults(self) -> Iterator[tuple[str, str]]:
        """An action needs a limit, and the warm-up ends within the runs of the search."""
        rate, warmup, steps = self.tune.learning_rate, self.tune.warmup_steps, self.rate_search.steps
        if self.watched is not None and self.watched.limit is None and self.watched.action != "stop":
            action = self.watched.action
            yield "guard.action", f'has no effect without guard.limit, got "{action}"; set guard.limit too, or leave it out'
        if rate == "safe" and warmup >= steps:
            told = f"must be below rate_search.steps = {steps}, got {warmup}: no run would reach its rate"
            yield "tune.warmup_steps", f"{told}; raise rate_search.steps"

    def ignored(self) -> Iterator[tuple[str, str]]:
        """The search runs for a safe rate alone."""
        if self.tune.learning_rate != "safe":
            yield "rate_search", f"with tune.learning_rate = {self.tune.learning_rate:g}"
