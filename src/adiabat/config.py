"""What a TOML file, or ``--set key=value``, may say: every setting with its meaning, range and default, and nothing else."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError, model_validator

from adiabat.errors import ConfigError, several
from adiabat.wrong_settings import Need, idle_phrases, misfit_phrase, unknown_phrases

Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[tuple[Text, ...], Field(strict=False)]
"""A list in TOML, which `Section` is too strict to take for a tuple."""
Fraction = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[int, Field(ge=0)]
OptimizerName = Literal["adamw", "adamax", "adamax-no-momentum", "adadelta", "sgd"]
ScheduleName = Literal["constant", "linear", "quadratic", "exponential", "cosine"]
ScalingRule = Literal["none", "linear", "sqrt"]


class IdleError(ValueError):
    """A setting would have no effect."""


class Section(BaseModel):
    """A table of settings; unknown keys are refused, values are taken as they are, and no setting changes after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True)
    needs: ClassVar[Mapping[str, Need]] = {}

    @model_validator(mode="after")
    def _nothing_ignored(self) -> Self:
        """Refuse a setting that another one makes meaningless."""
        if faults := list(idle_phrases(self.needs, vars(self), _defaults(type(self)), "")):
            raise IdleError("; ".join(faults))
        return self


def _defaults(kind: type[Section]) -> dict[str, Any]:
    return {name: field.default for name, field in kind.model_fields.items()}


class EncoderSection(Section):
    """``[encoder]``: what overrides the model's own files; a setting left out is taken from them."""

    pooling: Literal["mean", "cls", "last", "max", "weighted_mean"] | None = None
    """Which token states make the vector."""
    normalize: bool | None = None
    """Whether vectors get unit length. On unit vectors cosine and Euclidean distance rank alike."""
    max_tokens: Annotated[int, Field(ge=3)] | None = None
    """Where texts are cut, in tokens."""
    query_prompt: str | None = None
    """Put before every query."""
    document_prompt: str | None = None
    """Put before every document."""
    trust_remote_code: Text | None = None
    """Name of the one model whose own Python code may run while loading."""
    allow_pickles: bool = False
    """Whether weights may come from a pickle file, which can run code when read."""

    def overrides(self) -> dict[str, str | bool | int]:
        """The settings that were given, by their name in `EncoderSettings`.

        Returns:
            Name to value.
        """
        given = self.model_dump(exclude={"trust_remote_code", "allow_pickles"}, exclude_none=True)
        return dict(given)


class ColumnsSection(Section):
    """``[data.columns]``: names of columns in the user's files, where no alias of ours fits."""

    query: Text | None = None
    query_id: Text | None = None
    positive: Text | None = None
    negative: Text | None = None
    doc_id: Text | None = None
    text: Text | None = None
    title: Text | None = None

    def given(self) -> dict[str, str]:
        """The columns that were named.

        Returns:
            Our name to the file's.
        """
        named: dict[str, str] = self.model_dump(exclude_none=True)
        return named


class DataSection(Section):
    """``[data]``: how the examples are read."""

    split: Text | None = None
    """Of a BEIR folder (``qrels/SPLIT.tsv``; of several, ``train`` is tuned on and ``test`` measured) or a hub data set."""
    columns: ColumnsSection = ColumnsSection()
    """Of an evaluation, the target's alone: retention sets go by the names that are known."""
    missing: Literal["error", "drop"] = "error"
    """What to do with documents that are not in the store: stop and name them, or leave them out and say how many."""


class TuneDataSection(DataSection):
    """``[data]`` of a tuning run: also where validation comes from."""

    needs: ClassVar[Mapping[str, Need]] = {
        "validation_split": Need("validation"),
        "validation_fraction": Need("validation", (None,)),
        "max_validation": Need("validation", (None,)),
    }
    validation: Text | None = None
    """A file or folder of examples to validate on; None holds out `validation_fraction` of the data."""
    validation_split: Text | None = None
    """Split of `validation`; None means as `split`, or ``dev`` of a BEIR folder that has several."""
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of the queries held out, chosen by a hash of the query's text, so that it stays the same when data is added."""
    max_validation: PositiveInt = 4_200
    """Most queries held out; the source's number."""


class EmbedDataSection(Section):
    """``[data]`` of an embedding run."""

    split: Text | None = None
    """Of a hub data set, or of one saved by the ``datasets`` library, that has several."""
    columns: ColumnsSection = ColumnsSection()
    blank: Literal["error", "drop"] = "error"
    """What to do with documents that have neither title nor text: stop and name them, or leave them out and say how many."""


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


class DeviceSection(Section):
    """``[run]`` of what chooses nothing at random."""

    device: Text = "auto"
    """``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""


class RunSection(DeviceSection):
    """``[run]``: where and how a job runs."""

    seed: Amount = 0
    """Of every random choice; of an embedding run, of the documents that are encoded to check imported vectors."""


class TuneRunSection(RunSection):
    """``[run]`` of a tuning run."""

    precision: Literal["fp32", "bf16"] = "fp32"
    """Of forward and backward pass (weights stay float32). At the default rate the changes are below what bfloat16 resolves in a vector."""
    log_every: PositiveInt = 50
    """Steps per row of ``log.jsonl``."""
    checkpoint_seconds: PositiveFloat = 60.0
    """Time between checkpoints; one is also made at each epoch's end."""
    keep_checkpoints: Annotated[int, Field(ge=2)] = 2
    tensorboard: bool = False
    """Also write curves for TensorBoard (extra ``tensorboard``)."""


class StoreSection(Section):
    """``[store]``: how vectors are kept."""

    dtype: Literal["float16", "float32"] = "float16"
    keep_texts: bool = True
    """Whether the texts are kept beside the vectors, for search results and reports."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """``auto`` encodes in bfloat16 where the device has it and the vectors stay at cosine >= 0.9999."""


class MeasureSection(Section):
    """``[measure]``: what is measured, and how surely."""

    needs: ClassVar[Mapping[str, Need]] = {
        "depth": Need("negatives", ("auto", "store")),
        "drop_same_id": Need("negatives", ("auto", "store")),
    }
    measures: Annotated[Texts, Field(min_length=1)] = ("nDCG@10", "RR", "AP", "P@1")
    """Beside PND; names of the ir-measures grammar. Where the whole store is ranked, the first carries the verdict."""
    negatives: Literal["auto", "listed", "store"] = "auto"
    """Compare positives with listed negatives, with the rest of the store, or (auto) with listed ones where half the queries list some."""
    depth: PositiveInt = 100
    """Documents retrieved per query where the whole store is ranked, more for a measure of a larger cutoff; measures see no further."""
    drop_same_id: bool = True
    """Leave out a document whose id equals the query's id, as BEIR does."""
    resamples: Annotated[int, Field(ge=100)] = 10_000
    """Of the paired bootstrap, at the least: a language grid takes as many as its cells need."""

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        if len(set(self.measures)) < len(self.measures):
            raise ValueError(f"measure.measures must name each measure once, got {', '.join(self.measures)}")
        return self


class EmbedSettings(Section):
    """Everything that ``adiabat embed`` may be told."""

    encoder: EncoderSection = EncoderSection()
    data: EmbedDataSection = EmbedDataSection()
    store: StoreSection = StoreSection()
    run: RunSection = RunSection()


class TuneSettings(Section):
    """Everything that ``adiabat tune`` may be told."""

    encoder: EncoderSection = EncoderSection()
    data: TuneDataSection = TuneDataSection()
    tune: TuneSection = TuneSection()
    run: TuneRunSection = TuneRunSection()


class EvaluateSettings(Section):
    """Everything that ``adiabat evaluate`` may be told."""

    encoder: EncoderSection = EncoderSection()
    data: DataSection = DataSection()
    measure: MeasureSection = MeasureSection()
    run: RunSection = RunSection()


class SearchSettings(Section):
    """Everything that ``adiabat search`` may be told."""

    encoder: EncoderSection = EncoderSection()
    run: DeviceSection = DeviceSection()


S = TypeVar("S", bound=Section)


def read_settings(kind: type[S], path: Path | None = None, assignments: Sequence[str] = ()) -> S:
    """Read settings from a TOML file and from ``key=value`` assignments, which win.

    Args:
        kind: Which settings.
        path: The file, or None for the defaults.
        assignments: ``section.key=value``; the value is read as TOML, and as text where it is none.

    Returns:
        The settings, checked.

    Raises:
        ConfigError: Naming every fault at once: unknown keys with the nearest known one, values out of range or without effect.
    """
    table = _read_toml(path) if path else {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        parts = [part.strip() for part in key.split(".")]
        if not equals or not all(parts):
            raise ConfigError(f"--set must be key=value, got {assignment!r}; write it like tune.margin=0.05")
        _assign(table, parts, _toml_value(value), assignment)
    return checked(kind, table)


def checked(kind: type[S], table: Mapping[str, Any]) -> S:
    """Build settings from nested tables.

    Args:
        kind: Which settings.
        table: As a TOML file would hold them.

    Returns:
        The settings.

    Raises:
        ConfigError: Naming every fault at once.
    """
    try:
        return kind.model_validate(table)
    except ValidationError as fault:
        # Sections that are faulty otherwise were not asked about settings without effect, so all are asked here.
        wrong = [phrase for one in fault.errors() for phrase in _phrases(one, kind)]
        raise ConfigError(several([*wrong, *_idle(kind, table)])) from None


def keys_of(kind: type[Section], prefix: str = "") -> Iterator[str]:
    """Every key that settings know, dotted.

    Args:
        kind: Which settings.
        prefix: Put before each.

    Yields:
        Keys such as ``tune.learning_rate``.
    """
    for name, field in kind.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            yield from keys_of(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _phrases(fault: Any, kind: type[Section]) -> list[str]:
    """One fault of pydantic's in our own form."""
    path = [str(part) for part in fault["loc"] if not isinstance(part, int)]
    if fault["type"] == "extra_forbidden":
        return unknown_phrases(".".join(path), fault["input"], list(keys_of(kind)))
    if fault["type"] == "value_error":
        error = fault["ctx"]["error"]
        return [] if isinstance(error, IdleError) else [str(error)]
    default: Any = kind()
    for part in path:
        default = getattr(default, part)
    return [misfit_phrase(".".join(path), fault, None if isinstance(default, Section) else default)]


def _idle(kind: type[Section], table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Settings without effect in a table and the tables in it, which may be faulty otherwise."""
    yield from idle_phrases(kind.needs, table, _defaults(kind), prefix)
    for name, field in kind.model_fields.items():
        inner, part = field.annotation, table.get(name)
        if isinstance(inner, type) and issubclass(inner, Section) and isinstance(part, Mapping):
            yield from _idle(inner, part, f"{prefix}{name}.")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"--config must name a file, got {path}, which does not exist") from None
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigError(f"--config must name a readable TOML file, got {path}: {getattr(fault, 'strerror', None) or fault}") from fault
    except tomllib.TOMLDecodeError as fault:
        raise ConfigError(f"{path} must be TOML: {fault}") from fault


def _toml_value(text: str) -> Any:
    """A value as TOML reads it; a bare word is text, so that ``--set data.split=train`` needs no quotes.

    A blank at the end of such text is kept: prompts end in one.
    """
    try:
        table = tomllib.loads(f"value = {text.strip()}")
    except tomllib.TOMLDecodeError:
        return text.lstrip()
    return table["value"] if len(table) == 1 else text.lstrip()


def _assign(table: dict[str, Any], path: Sequence[str], value: Any, assignment: str) -> None:
    for part in path[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ConfigError(f"--set {assignment}: {part} is a value, not a table")
    table[path[-1]] = value
