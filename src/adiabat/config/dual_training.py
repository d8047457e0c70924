"""Settings of ``adiabat train``: both towers, any loss, any method."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from adiabat.config.dual_training_data import BatchesSection, MixtureSection, TrainDataSection
from adiabat.config.faults import ABSENT, Need, without_effect
from adiabat.config.section import (
    Amount,
    Fraction,
    KeptBytes,
    OptimizerName,
    Seconds,
    Section,
    Text,
    Texts,
    by_kind,
)
from adiabat.config.shared import CompiledRunSection, EncoderTables, StepsRunSection
from adiabat.config.training_choices import (
    InBatchLoss,
    InBatchSoftmax,
    Method,
    RegressionLoss,
    Schedule,
    TrainLoss,
)

Kept = Literal["last", "best", "both"]

Widths = Annotated[tuple[PositiveInt, ...], Field(strict=False)]


class DataJobSection(Section):
    """``[job]``: training data."""

    data: Text | None = None
    """Queries with positives and, optionally, negatives. Required, unless `data.sources` lists several files,
    or every variant of a sweep sets its data."""


class ModelJobSection(DataJobSection):
    """``[job]``: model and data."""

    model: Text | None = None
    """Model to start from: a directory, a job, ``demo`` or a hub name. Required, unless every variant of a
    sweep sets one."""


class JobSection(ModelJobSection):
    """``[job]``: model, data and output directory."""

    out: Text | None = None
    """Directory of the job, which becomes the trained model. Required, except for a dry run."""


class DigestsSection(Section):
    """``[digests]``: digests of the job's inputs. adiabat writes them, and refuses to resume a job whose
    inputs have changed.
    """

    model: Text | None = None
    """Digest of the model."""
    examples: Text | None = None
    """Digest of the examples."""


# --- Towers ---


class TowersSection(Section):
    """``[towers]``: weight sharing between the towers, projection and frozen towers (Moiseev et al. 2023)."""

    kind: Literal["shared", "asymmetric", "shared_projection"] = "shared"
    """Weight sharing: one encoder for both sides (shared, SDE), one for each side (asymmetric, ADE), or one
    for each side with a common projection (shared_projection, ADE-SPL)."""
    document_model: Text | None = None
    """Initial model of the document tower; None takes `job.model`."""
    projection_width: PositiveInt | None = None
    """Width of a new linear layer on top of the pooled vector; None adds no layer, or under
    ``shared_projection`` one of the pooled width."""
    projection_start: Text | None = None
    """Initial weights of the new layer: a ``.npy`` file of a matrix [tower width, embedding width]; None
    initialises them at random. In a static model the matrix multiplies the token table instead of adding a
    layer, except under ``shared_projection``."""
    frozen: Literal["none", "query", "document"] = "none"
    """Tower that is not trained; each of its texts is embedded once and cached."""
    store: Text | None = None
    """Store of the frozen document tower; its vectors are read instead of embedding documents."""
    targets: Text | None = None
    """Store of target vectors, such as a teacher's, that the loss uses as document embeddings."""

    needs = (
        Need("document_model", "kind", ("asymmetric", "shared_projection")),
        Need("targets", "kind", ("shared",)),
        Need("frozen", "kind", ("asymmetric",)),
        Need("store", "kind", ("asymmetric",)),
        Need("store", "frozen", ("document",)),
        Need("projection_width", "projection_start", ABSENT),
    )
    """Settings apply to some kinds of towers."""

    @property
    def vectors(self) -> str | None:
        """The store of document vectors."""
        return self.store if self.store is not None else self.targets


# --- Training ---


class TrainSection(Section):
    """``[train]``: loss, method, optimiser, length."""

    loss: TrainLoss = InBatchSoftmax()
    """Loss to minimise."""
    matryoshka: Widths = ()
    """Matryoshka widths, below the full width; the loss is averaged over embeddings cut to them and the full
    embedding."""
    method: Method = Method()
    """Weights that are trained, in both towers."""
    freeze: Texts = ()
    """Weights to freeze in both towers, by the names of `adiabat.models.freezing`."""
    optimizer: OptimizerName = "adamw"
    """Optimizer (`adiabat.training.optimizers`)."""
    learning_rate: PositiveFloat = 2e-5
    """Peak learning rate."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """Weight decay of matrices; it is not applied to biases, norms and a learned temperature."""
    max_grad_norm: Annotated[float, Field(ge=0)] = 1.0
    """Maximum gradient norm, to which larger gradients are scaled; 0 disables clipping."""
    schedule: Schedule = Schedule(kind="linear")
    """Learning-rate schedule after the warm-up."""
    warmup_fraction: Fraction = 0.1
    """Share of the steps over which the learning rate rises linearly to its peak."""
    warmup_steps: Amount | None = None
    """Warm-up in steps, in place of `warmup_fraction`. With a constant schedule, the run can later be
    extended."""
    batch_size: Annotated[int, Field(ge=1)] = 64
    """Queries per optimizer step, over all processes."""
    epochs: PositiveFloat = 1.0
    """Number of passes over the data; fractions are allowed."""
    steps: PositiveInt | None = None
    """Number of optimizer steps, in place of `epochs`."""
    budget_flops: PositiveFloat | None = None
    """Training budget in FLOPs (`adiabat.scaling_laws.flops`; Ziarko et al. 2024), in place of `steps`."""
    budget_seconds: Seconds | None = None
    """Time limit from the start of the command, or of the call in Python, to the written page: seconds, or
    text such as ``"8h"``. Without `steps` and `budget_flops`, the number of steps is estimated from the speed
    of the first ones."""
    validate_every: PositiveInt = 500
    """Optimizer steps between validations; the run also ends with one."""
    idle_epochs: PositiveInt | None = None
    """Stop after this many consecutive validations without improvement; None never stops early."""
    keep: Kept = "last"
    """Weights to save: the last; those with the lowest validation loss (best); or those with the lowest
    validation loss and errors (both), as in `adiabat tune`."""
    error_unit: Literal["queries", "pairs"] = "queries"
    """What counts as a validation error: a query whose top document is wrong, or a (positive, listed
    negative) pair in the wrong order."""
    dropout: bool = True
    """Apply the model's dropout during training."""

    @property
    def goes_by_time(self) -> bool:
        """Whether time alone limits the run; its number of steps is known once some have been timed."""
        return self.budget_seconds is not None and self.steps is None and self.budget_flops is None

    needs = (
        Need("warmup_fraction", "warmup_steps", ABSENT),
        Need("idle_epochs", "keep", ("best", "both")),
        Need("epochs", "budget_flops", ABSENT),
        Need("epochs", "steps", ABSENT),
        Need("epochs", "budget_seconds", ABSENT),
        Need("steps", "budget_flops", ABSENT),
    )
    """Length and warm-up are each set in one unit; only runs that keep their best weights stop early."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """The warm-up ends within the run, and batches have negatives."""
        if self.steps is not None and (self.warmup_steps or 0) > self.steps:
            yield (
                "warmup_steps",
                f"must be at most train.steps = {self.steps}, got {self.warmup_steps}; lower it",
            )
        # A query alone in its batch has its positive as the only document, and a loss of 0.
        if isinstance(self.loss, InBatchLoss) and self.batch_size == 1 and not self.loss.negatives_per_query:
            phrase = (
                f"must be at least 2 for {self.loss.kind}, whose negatives are "
                "the other pairs of the batch, got 1"
            )
            yield "batch_size", f"{phrase}; raise it, or list negatives"


class MemorySection(Section):
    """``[memory]``: ways to fit large batches into memory. None of them changes the gradient."""

    chunk_tokens: PositiveInt | None = None
    """Maximum number of tokens in a forward pass, including padding; None takes 4,096 on a CPU and 65,536 on
    a GPU."""
    cached: bool = False
    """Gradient caching (Gao et al. 2021): embed the whole batch without gradients first, then backpropagate
    through it in chunks."""
    keep: KeptBytes | None = None
    """Bytes, or text such as ``"20GiB"``, of graphs that `memory.cached` keeps instead of computing chunks
    twice; 0 keeps none. None takes what is free on a GPU, and nothing on a CPU."""
    checkpointing: bool = False
    """Gradient checkpointing: store only the hidden states between blocks, and recompute each block in the
    backward pass."""
    length_buckets: Widths = ()
    """Ascending lengths in tokens to which passes are padded, such as 64, 128, 196, 256; empty pads to the
    longest text or packs texts."""
    loss_tile: PositiveInt | None = None
    """Side of the tiles in which the loss computes the score matrix; None computes all of it at once."""

    needs = (Need("keep", "cached"),)
    """Without caching, every chunk keeps its graph."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Lengths ascend."""
        lengths = self.length_buckets
        if any(length >= other for length, other in pairwise(lengths)):
            yield "length_buckets", f"must ascend, got {list(lengths)}; sort them"


class TrainRunSection(StepsRunSection, CompiledRunSection):
    """``[run]``: device, precision, compilation, logs and checkpoints."""


# --- Tables of the verbs ---


class BatchTables(EncoderTables):
    """Tables of runs that train on batches of pairs, which students have too."""

    mixture: MixtureSection = MixtureSection()
    batches: BatchesSection = BatchesSection()
    train: TrainSection = TrainSection()
    memory: MemorySection = MemorySection()
    run: TrainRunSection = TrainRunSection()


class TrainTables(BatchTables):
    """Tables of training runs, also used by sweeps and scaling experiments."""

    data: TrainDataSection = TrainDataSection()
    towers: TowersSection = TowersSection()


class _JobTables(Section):
    job: JobSection = JobSection()
    digests: DigestsSection = DigestsSection()


WITH_SCORES = tuple(by_kind(InBatchLoss.__subclasses__()))
"""Kinds of losses that compare all queries of a batch with all of its documents."""


class TrainSettings(TrainTables, _JobTables):  # fields of the last base come first
    """All settings of ``adiabat train``."""

    needs = (Need("memory.loss_tile", "train.loss", WITH_SCORES, "which has no matrix of scores"),)
    """Only losses over a matrix of scores can tile it."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """The tables are consistent with each other."""
        yield from self._compile_faults()
        yield from self._source_faults()
        yield from self._stream_faults()
        train, loss = self.train, self.train.loss
        if self.batches.token_budget is not None and (
            train.steps,
            train.budget_flops,
            train.budget_seconds,
        ) == (None, None, None):
            phrase = "must be given with batches.token_budget, since batch sizes then vary, got none"
            yield "train.steps", f"{phrase}; set it, or leave out batches.token_budget"
        if (
            isinstance(loss, RegressionLoss)
            and self.towers.frozen != "document"
            and self.towers.targets is None
        ):
            remedy = (
                'set towers.frozen = "document" (with towers.kind = "asymmetric"), '
                "or name a store as towers.targets"
            )
            yield (
                f"train.loss = {loss.kind}",
                f"must have fixed document vectors, or all texts would collapse to one point; {remedy}",
            )

    def _compile_faults(self) -> Iterator[tuple[str, str]]:
        if self.run.compile and self.memory.checkpointing:
            phrase = "must be false where run.compile is true: the compiler decides that, got true"
            yield "memory.checkpointing", f"{phrase}; leave one of them out"

    def _source_faults(self) -> Iterator[tuple[str, str]]:
        if self.job.data is not None and self.data.sources:
            yield "data.sources", "must be left out with job.data, which it replaces; drop one of them"
        # Settings of a mixture that differ from their defaults were stated for a purpose.
        usual = MixtureSection()
        # A stream of one source ends, or begins anew.
        names = (
            ("rule", "one_source_per_batch")
            if self.data.stream
            else ("rule", "exhausted", "one_source_per_batch")
        )
        for name in names if len(self.data.sources) < 2 else ():
            if getattr(self.mixture, name) != getattr(usual, name):
                yield f"mixture.{name}", without_effect("with one source", "list several as [[data.sources]]")
        weighted = [
            f"{number} ({source.path})"
            for number, source in enumerate(self.data.sources, 1)
            if source.weight != 1.0
        ]
        if self.mixture.rule.kind != "weights" and weighted:
            phrase = without_effect(
                f'with mixture.rule = "{self.mixture.rule.kind}"', 'set mixture.rule = "weights"'
            )
            yield f"data.sources.weight of number {', '.join(weighted)}", phrase

    def _stream_faults(self) -> Iterator[tuple[str, str]]:
        """A stream has no known length or source sizes, and holds the texts of one shard at a time."""
        if (stream := self.data.stream) is None:
            return
        required, unknown = (
            "must be given with data.stream, got none; set it",
            "must be left out with data.stream, since",
        )
        if self.train.steps is None:
            yield "train.steps", required
        if self.data.validation is None:
            yield "data.validation", required
        paths = {
            "data.corpus": self.data.corpus,
            "towers.store": self.towers.store,
            "towers.targets": self.towers.targets,
        }
        paths |= {
            f"data.sources.corpus of number {number}": source.corpus
            for number, source in enumerate(self.data.sources, 1)
        }
        for name in (name for name, value in paths.items() if value is not None):
            yield (
                name,
                "must be left out with data.stream: examples must hold their "
                "texts; leave it out, or data.stream",
            )
        # The shares of the other rules follow from sizes, which a stream shows at its end.
        if len(self.data.sources) > 1 and (rule := self.mixture.rule.kind) not in ("equal", "weights"):
            yield (
                "mixture.rule",
                "must be equal or weights with data.stream, since sizes are "
                f'not known, got "{rule}"; set one',
            )
        if self.train.budget_flops is not None:
            yield "train.budget_flops", f"{unknown} the number of tokens is not known; set train.steps"
        if self.mixture.cap is not None:
            yield (
                "mixture.cap",
                f"{unknown} sizes are not known, got {self.mixture.cap}; leave it out, or data.stream",
            )
        if self.train.schedule.kind == "exponential":
            yield (
                "train.schedule",
                'must follow steps with data.stream, got "exponential", which follows epochs; choose another',
            )
        if stream.shard_size < self.train.batch_size:
            phrase = (
                f"must be at least train.batch_size = {self.train.batch_size}, "
                f"got {stream.shard_size}; raise it"
            )
            yield "data.stream.shard_size", phrase

    @property
    def reads_ids(self) -> bool:
        """Whether documents are rows of a store and their texts are not needed; a guide other than the model
        itself needs them.
        """
        # A guide of its own embeds texts; the trained model has the vectors already.
        guide = self.train.loss.guide
        return self.towers.vectors is not None and (guide is None or guide.model == "self")
