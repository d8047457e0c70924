"""Settings of ``adiabat tune``; the defaults are those of Vasilyev et al. 2024."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, PositiveFloat, PositiveInt

from adiabat.config.faults import Need
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
    """``[data]``: tuning and validation data, with documents from a store."""


class TuneSection(Section):
    """``[tune]``: loss, method, learning rate and length. The defaults are those of Vasilyev et al. 2024."""

    learning_rate: Annotated[float | Literal["safe"], PlainValidator(positive_or("safe"))] = 5e-8
    """Peak learning rate; ``safe`` searches for the largest rate whose drift stays within the guard's limit (`[rate_search]`)."""
    batch_size: PositiveInt = 14
    """Queries per optimizer step."""
    loss: TuneLoss = TripletTuning()
    """Loss to minimise."""
    negatives: Negatives = ListedNegatives()
    """Source of the negatives of a query."""
    method: Method = FullTraining()
    """Weights that are tuned."""
    freeze: Texts = ("embeddings",)
    """Weights to freeze, by the names of `adiabat.models.freezing`."""
    optimizer: OptimizerName = "adamw"
    """Optimizer (`adiabat.training.optimizers`)."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """Weight decay of all tuned weights."""
    schedule: Schedule = ConstantSchedule()
    """Learning-rate schedule after the warm-up."""
    warmup_steps: Amount = 0
    """Steps over which the learning rate rises to its peak."""
    batch_scaling: RateScaling = UnscaledRate()
    """Scaling of the learning rate with the batch size."""
    batches_per_epoch: PositiveInt = 1_000
    """Optimizer steps per epoch; each epoch ends with a validation."""
    max_epochs: PositiveInt = 1_000
    """Maximum number of epochs, and the length of linear, quadratic and cosine schedules."""
    idle_epochs: PositiveInt = 10
    """Stop after this many epochs without an improvement of both validation loss and validation errors."""
    keep: Literal["both", "last"] = "both"
    """Weights to save: those of the epoch with the lowest validation loss and errors (both), or those after `max_epochs` (last)."""
    dropout: bool = False
    """Apply the model's dropout during tuning."""
    l2_to_start: Annotated[float, Field(ge=0, le=HIGHEST)] = 0.0
    """Strength of L2 regularization towards the initial weights: adds this value times ``w - w_0`` to the gradient of each weight."""

    def needs(self) -> Iterator[Need]:
        """Early stopping applies only to the best weights, and negatives are not drawn for the softmax over the store."""
        yield Need("idle_epochs", "keep", ("both",))
        yield Need("negatives", "loss", ("triplet", "in_batch_softmax"), "whose negatives are the whole store")

    def faults(self) -> Iterator[tuple[str, str]]:
        """The warm-up ends within the run."""
        steps = self.max_epochs * self.batches_per_epoch
        if self.warmup_steps > steps:
            yield "warmup_steps", f"must be at most max_epochs x batches_per_epoch = {steps}, got {self.warmup_steps}; lower it"


class GuardSection(Section):
    """``[guard]``: measure at every validation how far the search results of unlabelled probe texts drift, and limit the drift."""

    probes: Text = "default"
    """File of probe texts, or ``default`` for those packaged with adiabat."""
    store: Text | None = None
    """Store to search with the probes; None takes the store of the job."""
    depth: Annotated[int, Field(ge=2)] = 100
    """Number of documents per probe whose order is compared."""
    measure: Literal["overlap loss", "margins", "turn"] = "overlap loss"
    """Measure of drift that `limit` applies to (`adiabat.adiabatic.drift`); the log has all of them."""
    limit: Annotated[float | Literal["noise"], PlainValidator(positive_or("noise"))] | None = None
    """Maximum drift; None sets no limit. ``noise`` derives it from the drift of the untuned tower when only the punctuation at the end of
    the     probes changes (`adiabat.results.rate_search_result.limits_of`)."""
    action: Literal["stop", "back", "soften"] = "stop"
    """Action when drift exceeds the limit: stop; go back to the best epoch and continue at half the rate (back); or continue, and finally
    move     the weights towards the initial ones until their drift is within the limit (soften,
    `adiabat.adiabatic.regularization.soften`)."""


class RehearsalSection(Section):
    """``[rehearsal]``: a second loss that keeps the vectors of unlabelled texts near those of the untuned tower."""

    texts: Text = "rehearsal"
    """File of texts, or ``rehearsal`` for those packaged with adiabat, which cover the languages and fields of its probes. The texts must
    not     contain probes on which drift is measured."""
    weight: PositiveFloat = 10.0
    """Weight of the rehearsal loss: ``1 - cos`` between the vectors of the tuned and the untuned tower."""
    texts_per_step: PositiveInt = 14
    """Number of texts drawn per step."""


class RateSearchSection(SpacedValues):
    """``[rate_search]``: short runs that find the largest learning rate whose drift stays within the guard's limit.

    Rates are tried from the highest down. A run stops when its drift exceeds the limit; the first rate whose run stays within the limit
    to the end is the result.
    """

    low: PositiveFloat = 1e-8
    """Lowest learning rate."""
    high: PositiveFloat = 1e-5
    """Highest learning rate."""
    count: Annotated[int, Field(ge=2, le=MOST_VALUES)] = 10
    """Number of rates, evenly spaced on a logarithmic scale from low to high."""
    steps: PositiveInt = 1_000
    """Optimizer steps of each run."""
    checks: PositiveInt = 20
    """Maximum number of drift measurements per run, evenly spaced over its steps."""
    seeds: PositiveInt = 1
    """Number of runs per rate, with consecutive seeds from `run.seed`; all of them must stay within the limit."""


class TuneSettings(Section):
    """All settings of ``adiabat tune`` and ``adiabat safe-rate``."""

    encoder: RankingEncoderSection = RankingEncoderSection()
    data: TuneDataSection = TuneDataSection()
    tune: TuneSection = TuneSection()
    guard: GuardSection | None = None
    rehearsal: RehearsalSection | None = None
    rate_search: RateSearchSection = RateSearchSection()
    run: StepsRunSection = StepsRunSection()

    @property
    def watched(self) -> GuardSection | None:
        """The guard of the run; a run at a safe rate always has a guard with a limit."""
        if self.tune.learning_rate != "safe":
            return self.guard
        guard = self.guard or GuardSection()
        return guard.model_copy(update={"limit": guard.limit or "noise"})

    def faults(self) -> Iterator[tuple[str, str]]:
        """The search has a guard, and the warm-up ends within its runs."""
        rate, warmup, steps = self.tune.learning_rate, self.tune.warmup_steps, self.rate_search.steps
        if rate == "safe" and self.guard is None and "guard" in self.model_fields_set:
            yield "guard", 'must be on with tune.learning_rate = "safe", whose search measures drift, got false; leave it out'
        if rate == "safe" and warmup >= steps:
            told = f"must be below rate_search.steps = {steps}, got {warmup}: no run would reach its rate"
            yield "tune.warmup_steps", f"{told}; raise rate_search.steps"

    def needs(self) -> Iterator[Need]:
        """The rate search runs only for a safe rate, whose guard always has a limit; other guards act only with a limit."""
        yield Need("rate_search", "tune.learning_rate", ("safe",))
        if self.guard is not None and self.tune.learning_rate != "safe":
            yield Need("guard.action", "guard.limit")
