"""Settings of ``adiabat train``: both towers, any loss, any method."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from adiabat.config.dual_training_data import BatchesSection, MixtureSection, StreamSection, TrainDataSection
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

Widths = Annotated[tuple[PositiveInt, ...], Field(strict=False)]


class JobSection(Section):
    """``[job]``: what is trained, on what, and where the job's directory is."""

    model: Text | None = None
    """Model to start from: a directory, a job, ``demo`` or a hub name. Required."""
    data: Text | None = None
    """Queries with positives and, optionally, negatives. Required, unless `data.sources` lists several files."""
    out: Text | None = None
    """Directory of the job, afterwards a MODEL. Required, except for a dry run."""


class DigestsSection(Section):
    """``[digests]``: digests of the inputs when a job began; adiabat writes them, and refuses other inputs under the same names."""

    model: Text | None = None
    examples: Text | None = None


class TowersSection(Section):
    """``[towers]``: weights that the two towers share (Moiseev et al. 2023)."""

    kind: Literal["shared", "asymmetric", "shared_projection"] = "shared"
    """One set of weights for both sides (SDE), one for each (ADE), or one for each under a common projection (ADE-SPL)."""
    document_model: Text | None = None
    """Model that the document tower starts from; None takes `job.model`."""
    projection_width: PositiveInt | None = None
    """Width of a new linear layer on top of the pooled vector; None adds none, except under ``shared_projection``: the pooled width."""
    projection_start: Text | None = None
    """Initial weights of the new layer: a ``.npy`` file of a matrix [width of the tower, width of an embedding]; None draws them. A static
    model multiplies its table by it and gets no layer, except under ``shared_projection``."""
    frozen: Literal["none", "query", "document"] = "none"
    """Tower that is not trained: each of its texts is embedded once, when it is first needed."""
    store: Text | None = None
    """Store of the frozen document tower, whose vectors replace the embedding of documents."""
    targets: Text | None = None
    """Store of any vectors that stand for document embeddings, such as those of a teacher."""

    def ignored(self) -> Iterator[tuple[str, str]]:
        """Each kind of towers has settings of its own."""
        if self.kind == "shared":
            yield "document_model", 'with towers.kind = "shared"'
        else:
            yield "targets", f'with towers.kind = "{self.kind}"'
        if self.kind != "asymmetric":
            yield "frozen", f'with towers.kind = "{self.kind}"'
        if self.frozen != "document":
            yield "store", 'without towers.frozen = "document"'
        if self.projection_start is not None:
            yield "projection_width", "with towers.projection_start"

    @property
    def vectors(self) -> str | None:
        """The store that documents are rows of."""
        return self.store if self.store is not None else self.targets


class TrainSection(Section):
    """``[train]``: loss, method, optimiser, length."""

    loss: TrainLoss = InBatchSoftmax()
    """What is minimised."""
    matryoshka: Widths = ()
    """Widths to which an embedding may be cut; the loss is averaged over them and the full width."""
    method: Method = FullTraining()
    """Which weights are trained, in both towers."""
    freeze: Texts = ()
    """Weights that stay as they are in both towers, by names as in `adiabat.models.freezing`."""
    optimizer: OptimizerName = "adamw"
    learning_rate: PositiveFloat = 2e-5
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """Weight decay of matrices; biases, norms and a learned temperature have none."""
    max_grad_norm: Annotated[float, Field(ge=0)] = 1.0
    """Largest norm of the gradient, which is scaled down to it; 0 sets no limit."""
    schedule: Schedule = FallingSchedule(kind="linear")
    """How the learning rate changes after the warm-up."""
    warmup_fraction: Fraction = 0.1
    """Share of the steps over which the rate rises to its peak."""
    warmup_steps: Amount | None = None
    """The same in steps, in place of `warmup_fraction`; a run with a constant schedule can then be extended."""
    batch_size: Annotated[int, Field(ge=1)] = 64
    """Queries per optimizer step, over all processes."""
    epochs: PositiveFloat = 1.0
    """Passes over the data."""
    steps: PositiveInt | None = None
    """Optimizer steps, in place of `epochs`."""
    budget_flops: PositiveFloat | None = None
    """Training budget in FLOPs (`adiabat.scaling_laws.flops`; Ziarko et al. 2024), in place of `steps`."""
    budget_seconds: Seconds | None = None
    """Longest duration, in seconds or such as ``"8h"``. Without `steps` and `budget_flops`, the speed of the first steps decides how many
    there are."""
    validate_every: PositiveInt = 500
    """Optimizer steps between validations; the end has one too."""
    idle_epochs: PositiveInt | None = None
    """Stop after this many validations in a row without an improvement; None never does."""
    keep: Literal["last", "best", "both"] = "last"
    """Weights of the result: the last; those with the lowest validation loss (best); or, as in `adiabat tune`, with the lowest loss and
    errors (both)."""
    error_unit: Literal["queries", "pairs"] = "queries"
    """Errors of a validation: queries whose first document is wrong, or (positive, listed negative) pairs in the wrong order."""
    dropout: bool = True

    @property
    def goes_by_time(self) -> bool:
        """Whether nothing but time says how many steps there are; they are known once some have been measured."""
        return self.budget_seconds is not None and self.steps is None and self.budget_flops is None

    def ignored(self) -> Iterator[tuple[str, str]]:
        """The length and the warm-up of a run are given in one unit."""
        if self.warmup_steps is not None:
            yield "warmup_fraction", "with warmup_steps"
        if self.keep == "last":
            yield "idle_epochs", 'with keep = "last"'
        lengths = ("budget_flops", "steps", "budget_seconds")
        length = next((name for name in lengths if getattr(self, name) is not None), None)
        if length is not None:
            yield "epochs", f"with {length}"
        if length == "budget_flops":
            yield "steps", "with budget_flops"

    def faults(self) -> Iterator[tuple[str, str]]:
        """The warm-up ends within the run, and batches have negatives."""
        if self.steps is not None and (self.warmup_steps or 0) > self.steps:
            yield "warmup_steps", f"must be at most train.steps = {self.steps}, got {self.warmup_steps}; lower it"
        if isinstance(self.loss, InBatchLoss) and self.batch_size == 1 and not self.loss.negatives_per_query:
            phrase = f"must be at least 2 for {self.loss.kind}, whose negatives are the other pairs of the batch, got 1"
            yield "batch_size", f"{phrase}; raise it, or list negatives"


class MemorySection(Section):
    """``[memory]``: how a batch passes that is larger than the memory; the gradient stays the same."""

    chunk_tokens: PositiveInt | None = None
    """Maximum tokens of a forward pass, with padding; None takes 4,096 on a CPU and 65,536 on a GPU."""
    cached: bool = False
    """Gradient caching (Gao et al. 2021): embed all texts first, then pass them again in chunks with their gradients."""
    checkpointing: bool = False
    """Gradient checkpointing: keep the states between blocks alone, and compute each block again for its gradient."""
    length_buckets: Widths = ()
    """Lengths in tokens, ascending, that passes are padded to, such as 64, 128, 196, 256; empty pads, or packs, by the texts."""
    loss_tile: PositiveInt | None = None
    """Rows and columns of the score matrix in memory at a time; None holds all of it."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Lengths ascend."""
        lengths = self.length_buckets
        if any(length >= other for length, other in pairwise(lengths)):
            yield "length_buckets", f"must ascend, got {list(lengths)}; sort them"


class TrainRunSection(StepsRunSection):
    """``[run]`` of a training run."""

    compile: bool = False
    """Compile the backbone (`torch.compile`), once for each of `memory.length_buckets`: faster on a GPU, slower on a CPU."""


class TrainTables(Section):
    """Tables that training runs and experiments on them share."""

    encoder: EncoderSection = EncoderSection()
    data: TrainDataSection = TrainDataSection()
    towers: TowersSection = TowersSection()
    mixture: MixtureSection = MixtureSection()
    batches: BatchesSection = BatchesSection()
    train: TrainSection = TrainSection()
    memory: MemorySection = MemorySection()
    run: TrainRunSection = TrainRunSection()


class _JobTables(Section):
    job: JobSection = JobSection()
    digests: DigestsSection = DigestsSection()


class TrainSettings(TrainTables, _JobTables):  # fields of the last base come first
    """Everything that ``adiabat train`` may be told."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Tables fit each other."""
        yield from self._source_faults()
        if self.data.stream is not None:
            yield from self._stream_faults(self.data.stream)
        train, loss = self.train, self.train.loss
        if self.batches.token_budget is not None and (train.steps, train.budget_flops, train.budget_seconds) == (None, None, None):
            yield "train.steps", "must be given with batches.token_budget, since batch sizes then vary, got none"
        if isinstance(loss, RegressionLoss) and self.towers.frozen != "document" and self.towers.targets is None:
            remedy = 'set towers.frozen = "document" (with towers.kind = "asymmetric"), or name a store as towers.targets'
            yield f"train.loss = {loss.kind}", f"must have fixed document vectors, or all texts would collapse to one point; {remedy}"
        if not isinstance(loss, InBatchLoss) and self.memory.loss_tile is not None:
            yield "memory.loss_tile", f"has no effect with train.loss = {loss.kind}, which has no matrix of scores; leave it out"
        if self.run.compile and not self.memory.length_buckets:
            yield "memory.length_buckets", "must be given where run.compile is true, got none; [64, 128, 196, 256] is a good start"
        if self.run.compile and self.memory.checkpointing:
            yield "memory.checkpointing", "must be false where run.compile is true: the compiler decides that, got true"

    def _source_faults(self) -> Iterator[tuple[str, str]]:
        if self.job.data is not None and self.data.sources:
            yield "data.sources", "must be left out with job.data, which it replaces; drop one of them"
        usual = MixtureSection()
        # A stream of one source ends, or begins anew.
        names = ("rule", "one_source_per_batch") if self.data.stream else ("rule", "exhausted", "one_source_per_batch")
        for name in names if len(self.data.sources) < 2 else ():
            if getattr(self.mixture, name) != getattr(usual, name):
                yield f"mixture.{name}", "has no effect with one source; list several as [[data.sources]]"
        weighted = [f"{number} ({source.path})" for number, source in enumerate(self.data.sources, 1) if source.weight != 1.0]
        if self.mixture.rule.kind != "weights" and weighted:
            phrase = 'has no effect unless mixture.rule is "weights"; leave it out, or set that rule'
            yield f"data.sources.weight of number {', '.join(weighted)}", phrase

    def _stream_faults(self, stream: StreamSection) -> Iterator[tuple[str, str]]:
        """A stream has no known length, no sizes of sources, and the texts of one shard."""
        required, unknown = "must be given with data.stream, got none; set it", "must be left out with data.stream, since"
        if self.train.steps is None:
            yield "train.steps", required
        if self.data.validation is None:
            yield "data.validation", required
        paths = {"data.corpus": self.data.corpus, "towers.store": self.towers.store, "towers.targets": self.towers.targets}
        paths |= {f"data.sources.corpus of number {number}": source.corpus for number, source in enumerate(self.data.sources, 1)}
        for name in (name for name, value in paths.items() if value is not None):
            yield name, "must be left out with data.stream: examples must hold their texts; leave it out, or data.stream"
        if len(self.data.sources) > 1 and (rule := self.mixture.rule.kind) not in ("equal", "weights"):
            yield "mixture.rule", f'must be equal or weights with data.stream, since sizes are not known, got "{rule}"; set one'
        if self.train.budget_flops is not None:
            yield "train.budget_flops", f"{unknown} the number of tokens is not known; set train.steps"
        if self.mixture.cap is not None:
            yield "mixture.cap", f"{unknown} sizes are not known, got {self.mixture.cap}; leave it out"
        if self.train.schedule.kind == "exponential":
            yield "train.schedule", 'must follow steps with data.stream, got "exponential", which follows epochs; choose another'
        if stream.shard_size < self.train.batch_size:
            phrase = f"must be at least train.batch_size = {self.train.batch_size}, got {stream.shard_size}; raise it"
            yield "data.stream.shard_size", phrase

    @property
    def reads_ids(self) -> bool:
        """Whether documents are rows of a store, and nothing asks for their texts: another model as a guide would."""
        guide = self.train.loss.guide
        return self.towers.vectors is not None and (guide is None or guide.model == "self")
