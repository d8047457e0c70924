"""Settings of ``adiabat train``: both towers, any loss, any method."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from adiabat.config.dual_training_data import BatchesSection, MixtureSection, TrainDataSection
from adiabat.config.section import Amount, Fraction, OptimizerName, Seconds, Section, Text, Texts
from adiabat.config.shared import EncoderSection, StepsRunSection
from adiabat.config.training_choices import (
    FallingSchedule,
    FullTraining,
    InBatchLoss,
    InBatchSoftmax,
    Method,
    RegressionLoss,
    Schedule,
    TrainLoss,
)
from adiabat.config.validation import Need

Widths = Annotated[tuple[PositiveInt, ...], Field(strict=False)]


class JobSection(Section):
    """``[job]``: what is trained, on what, and where the job's directory is."""

    model: Text | None = None
    """Where training starts: a directory, a job, ``demo`` or a hub name. Required."""
    data: Text | None = None
    """Queries with positives and perhaps negatives. Required, unless `TrainDataSection.sources` lists several."""
    out: Text | None = None
    """Directory of the job, afterwards a MODEL. Required but for a dry run."""


class DigestsSection(Section):
    """``[digests]``: what the inputs were when a job was begun; adiabat writes it, and refuses other inputs under the same names."""

    model: Text | None = None
    examples: Text | None = None


class TowersSection(Section):
    """``[towers]``: what the two towers share (Moiseev et al. 2023)."""

    needs: ClassVar[Mapping[str, Need]] = {
        "document_model": Need("kind", ("asymmetric", "shared_projection")),
        "frozen": Need("kind", ("asymmetric",)),
        "store": Need("frozen", ("document",)),
        "targets": Need("kind", ("shared",)),
        "projection_width": Need("projection_start", (None,)),
    }
    kind: Literal["shared", "asymmetric", "shared_projection"] = "shared"
    """One set of weights for both sides (SDE), one for each (ADE), or one for each under a common projection (ADE-SPL)."""
    document_model: Text | None = None
    """Where the document tower starts, if elsewhere than `job.model`."""
    projection_width: PositiveInt | None = None
    """Width of a new linear layer on top of the pooled vector; None adds none, except under ``shared_projection``: the pooled width."""
    projection_start: Text | None = None
    """What the new layer starts with in place of random numbers: a ``.npy`` file of a matrix with a row for each number of a tower's vector
    and a column for each of an embedding. A static model takes it into its table, and gets no layer, but under ``shared_projection``."""
    frozen: Literal["none", "query", "document"] = "none"
    """A tower that stays as it is: each of its texts is embedded once, when it is first needed."""
    store: Text | None = None
    """A store of the frozen document tower: its vectors are read, and no document is embedded."""
    targets: Text | None = None
    """A store of vectors, whoever made them, that take the place of document embeddings: what a student is to come close to."""

    @property
    def vectors(self) -> str | None:
        """The store that documents are rows of."""
        return self.store if self.store is not None else self.targets


class TrainSection(Section):
    """``[train]``: loss, method, optimiser, length."""

    needs: ClassVar[Mapping[str, Need]] = {
        "warmup_fraction": Need("warmup_steps", (None,)),
        "idle_epochs": Need("keep", ("best", "both")),
        "epochs": Need("steps", (None,)),
        "steps": Need("budget_flops", (None,)),
    }
    loss: TrainLoss = InBatchSoftmax()
    """What is minimised."""
    matryoshka: Widths = ()
    """Widths at which the first numbers of an embedding shall do alone; the loss is averaged over them and the whole width."""
    method: Method = FullTraining()
    """Which weights are trained, in both towers."""
    freeze: Texts = ()
    """Names as in `adiabat.models.freezing`; in both towers, and on top of the method."""
    optimizer: OptimizerName = "adamw"
    learning_rate: PositiveFloat = 2e-5
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """Of matrices; biases, norms and a learned temperature never decay."""
    max_grad_norm: Annotated[float, Field(ge=0)] = 1.0
    """Gradients are scaled down to this norm; 0 leaves them."""
    schedule: Schedule = FallingSchedule(kind="linear")
    """How the learning rate changes behind the warm-up."""
    warmup_fraction: Fraction = 0.1
    """Share of the steps over which the rate rises."""
    warmup_steps: Amount | None = None
    """Steps over which it rises, in place of `warmup_fraction`; a constant schedule can then go on to a later end."""
    batch_size: Annotated[int, Field(ge=1)] = 64
    """Queries per optimiser step, over all processes."""
    epochs: PositiveFloat = 1.0
    """Passes over the data."""
    steps: PositiveInt | None = None
    """Optimiser steps, in place of `epochs`."""
    budget_flops: PositiveFloat | None = None
    """Operations by parameters and tokens (`adiabat.scaling_laws.flops`), in place of `steps`: as many steps as they pay for.

    Reference: Ziarko et al. 2024.
    """
    budget_seconds: Seconds | None = None
    """The run ends after so long, in seconds, or such as ``"8h"``. With neither `steps` nor `budget_flops`, its steps are as many as
    fit by the speed of the first."""
    validate_every: PositiveInt = 500
    """Steps between validations; one is also made at the end."""
    idle_epochs: PositiveInt | None = None
    """Stop after so many validations in a row without improvement; None goes on to the end."""
    keep: Literal["last", "best", "both"] = "last"
    """Which weights are the result: the last; those with the lowest validation loss; or, as in `adiabat tune`, those whose loss **and**
    errors are both the lowest."""
    error_unit: Literal["queries", "pairs"] = "queries"
    """What errors of a validation are: queries whose first document is wrong, or (positive, listed negative) pairs in the wrong order."""
    dropout: bool = True

    @property
    def goes_by_time(self) -> bool:
        """Whether nothing but time says how many steps there are; they are known once some have been measured."""
        return self.budget_seconds is not None and self.steps is None and self.budget_flops is None

    @model_validator(mode="after")
    def _passes_say_how_long(self) -> Self:
        if self.goes_by_time and self.epochs != 1.0:
            raise ValueError("train.epochs has no effect with train.budget_seconds, which says how long the run is; leave one of them out")
        return self

    @model_validator(mode="after")
    def _warm_up_ends(self) -> Self:
        if self.steps is not None and (self.warmup_steps or 0) > self.steps:
            raise ValueError(f"train.warmup_steps must be at most train.steps = {self.steps}, got {self.warmup_steps}; lower it")
        return self

    @model_validator(mode="after")
    def _has_negatives(self) -> Self:
        if isinstance(self.loss, InBatchLoss) and self.batch_size == 1 and not self.loss.negatives_per_query:
            raise ValueError(
                f"train.batch_size must be at least 2 for {self.loss.kind}, whose negatives are the other pairs of the batch, got 1; "
                "raise it, or list negatives"
            )
        return self


class MemorySection(Section):
    """``[memory]``: how a batch passes that is larger than the memory; the gradient stays the same."""

    chunk_tokens: PositiveInt | None = None
    """Most tokens of one forward pass, padding counted; None takes 4,096 on a CPU and 65,536 on a GPU."""
    cached: bool = False
    """Gradient caching: pass once without keeping anything, and again chunk by chunk when the gradient is known."""
    checkpointing: bool = False
    """Keep only what stands between blocks, and compute the inside of each block again for its gradient."""
    length_buckets: Widths = ()
    """Lengths, ascending, such as 64, 128, 196, 256, that passes are padded to; none pads, or packs, by the texts themselves."""
    loss_tile: PositiveInt | None = None
    """Rows and columns of the score matrix held at a time; None holds all of it."""

    @model_validator(mode="after")
    def _lengths_ascend(self) -> Self:
        lengths = self.length_buckets
        if any(one >= other for one, other in pairwise(lengths)):
            raise ValueError(f"memory.length_buckets must ascend, got {list(lengths)}; sort them")
        return self


class TrainRunSection(StepsRunSection):
    """``[run]`` of a training run."""

    compile: bool = False
    """Compile the backbone (`torch.compile`), once for each of `memory.length_buckets`. It pays on a GPU, and slows a CPU down."""


class TrainSettings(Section):
    """Everything that ``adiabat train`` may be told."""

    job: JobSection = JobSection()
    digests: DigestsSection = DigestsSection()
    encoder: EncoderSection = EncoderSection()
    data: TrainDataSection = TrainDataSection()
    towers: TowersSection = TowersSection()
    mixture: MixtureSection = MixtureSection()
    batches: BatchesSection = BatchesSection()
    train: TrainSection = TrainSection()
    memory: MemorySection = MemorySection()
    run: TrainRunSection = TrainRunSection()

    @model_validator(mode="after")
    def _sources_are_told_once(self) -> Self:
        if self.job.data is not None and self.data.sources:
            raise ValueError("data.sources must be left out where job.data is given: it takes its place; drop one of them")
        usual = MixtureSection()
        # A stream of one source ends, or begins anew.
        names = ("rule", "one_source_per_batch") if self.data.stream else ("rule", "exhausted", "one_source_per_batch")
        idle = [f"mixture.{name}" for name in names if getattr(self.mixture, name) != getattr(usual, name)]
        if len(self.data.sources) < 2 and idle:
            raise ValueError(
                f"{' and '.join(idle)} {'has' if len(idle) == 1 else 'have'} no effect with one source; list several as [[data.sources]]"
            )
        weighted = [f"{number} ({one.path})" for number, one in enumerate(self.data.sources, 1) if one.weight != 1.0]
        if self.mixture.rule != "weights" and weighted:
            raise ValueError(
                f'data.sources.weight of number {", ".join(weighted)} has no effect where mixture.rule is not "weights"; '
                "leave it out, or set that"
            )
        train = self.train
        if self.batches.token_budget is not None and (train.steps, train.budget_flops, train.budget_seconds) == (None, None, None):
            raise ValueError("train.steps must be given where batches.token_budget is, since batches are of any size then, got none")
        return self

    @model_validator(mode="after")
    def _stream_has_what_it_takes(self) -> Self:
        """Of a stream neither the length is known, nor the sizes of its sources, nor any text but those of a window."""
        if not self.data.stream:
            return self
        where = "where data.stream is true"
        missing = [name for name, value in (("train.steps", self.train.steps), ("data.validation", self.data.validation)) if value is None]
        named = {"data.corpus": self.data.corpus, "towers.store": self.towers.store, "towers.targets": self.towers.targets}
        corpora = [name for name, value in named.items() if value is not None]
        corpora += [f"data.sources.corpus of number {number}" for number, one in enumerate(self.data.sources, 1) if one.corpus is not None]
        faults = [f"{name} must be given {where}, got none; set it" for name in missing]
        faults += [f"{name} must be left out {where}: examples must hold their texts; leave it out, or data.stream" for name in corpora]
        if len(self.data.sources) > 1 and self.mixture.rule not in ("equal", "weights"):
            faults.append(f'mixture.rule must be equal or weights {where}, since sizes are not known, got "{self.mixture.rule}"; set one')
        if self.train.budget_flops is not None:
            faults.append(f"train.budget_flops must be left out {where}, since tokens yet to be read are not known; set train.steps")
        if self.mixture.cap is not None:
            faults.append(f"mixture.cap must be left out {where}, since sizes are not known, got {self.mixture.cap}; leave it out")
        if self.train.schedule.kind == "exponential":
            faults.append(f'train.schedule must go by steps {where}, got "exponential", which goes by passes; choose another')
        if self.data.window < self.train.batch_size:
            faults.append(f"data.window must be at least train.batch_size = {self.train.batch_size}, got {self.data.window}; raise it")
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @property
    def reads_ids(self) -> bool:
        """Whether documents are rows of a store, and nothing asks for their texts: another model as a guide would."""
        guide = self.train.loss.guide
        return self.towers.vectors is not None and (guide is None or guide.model == "self")

    @model_validator(mode="after")
    def _targets_stay(self) -> Self:
        if isinstance(self.train.loss, RegressionLoss) and self.towers.frozen != "document" and self.towers.targets is None:
            raise ValueError(
                f"train.loss = {self.train.loss.kind} must have documents that stay, or all texts would come to one point; "
                'set towers.frozen = "document" (with towers.kind = "asymmetric"), or name a store as towers.targets'
            )
        return self

    @model_validator(mode="after")
    def _compiled_shapes_are_few(self) -> Self:
        if not isinstance(self.train.loss, InBatchLoss) and self.memory.loss_tile is not None:
            told = f"memory.loss_tile has no effect with train.loss = {self.train.loss.kind}, which has no matrix of scores; leave it out"
            raise ValueError(told)
        if self.run.compile and not self.memory.length_buckets:
            raise ValueError("memory.length_buckets must be given where run.compile is true, got none; [64, 128, 196, 256] is a good start")
        if self.run.compile and self.memory.checkpointing:
            raise ValueError("memory.checkpointing must be false where run.compile is true: the compiler decides that, got true")
        return self
