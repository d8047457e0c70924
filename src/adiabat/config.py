"""What a TOML file, or ``--set key=value``, may say: every setting with its meaning, range and default, and nothing else."""

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError, model_validator

from adiabat.errors import ConfigError, several

Fraction = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[int, Field(ge=0)]
OptimizerName = Literal["adamw", "adamax", "adamax-no-momentum", "adadelta", "sgd"]
ScheduleName = Literal["constant", "linear", "quadratic", "exponential", "cosine"]
ScalingRule = Literal["none", "linear", "sqrt"]


class Section(BaseModel):
    """A table of settings; unknown keys are refused, and no setting changes after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


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
    trust_remote_code: str | None = None
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

    query: str | None = None
    query_id: str | None = None
    positive: str | None = None
    negative: str | None = None
    doc_id: str | None = None
    text: str | None = None
    title: str | None = None

    def given(self) -> dict[str, str]:
        """The columns that were named.

        Returns:
            Our name to the file's.
        """
        named: dict[str, str] = self.model_dump(exclude_none=True)
        return named


class DataSection(Section):
    """``[data]``: how the examples are read."""

    split: str | None = None
    """Of a BEIR folder (``qrels/SPLIT.tsv``) or a hub data set."""
    columns: ColumnsSection = ColumnsSection()
    missing: Literal["error", "drop"] = "error"
    """What to do with documents that are not in the store: stop and name them, or leave them out and say how many."""


class TuneDataSection(DataSection):
    """``[data]`` of a tuning run: also where validation comes from."""

    validation: str | None = None
    """A file or folder of examples to validate on; None holds out `validation_fraction` of the data."""
    validation_split: str | None = None
    """Split of `validation`; None means as `split`."""
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of the queries held out, chosen by a hash of the query's text, so that it stays the same when data is added."""
    max_validation: PositiveInt = 4_200
    """Most validation queries; the source's number."""


class EmbedDataSection(Section):
    """``[data]`` of an embedding run."""

    columns: ColumnsSection = ColumnsSection()


class TuneSection(Section):
    """``[tune]``: the regime; the defaults are the source's (mission A3)."""

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
    freeze: tuple[str, ...] = ("embeddings",)
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
    def _nothing_ignored(self) -> Self:
        """Refuse a setting that another one makes meaningless."""
        needs: Mapping[str, tuple[str, Sequence[object]]] = {
            "distance": ("loss", ["triplet"]),
            "margin": ("loss", ["triplet"]),
            "temperature": ("loss", ["in_batch_softmax"]),
            "gamma": ("schedule", ["exponential"]),
            "final_fraction": ("schedule", ["linear", "quadratic", "cosine"]),
            "reference_batch_size": ("batch_scaling", ["linear", "sqrt"]),
        }
        idle = [
            f"{name} has no effect with {other} = {getattr(self, other)!r}; leave it out, or set {other} to {' or '.join(map(repr, values))}"
            for name, (other, values) in needs.items()
            if self._differs(name) and getattr(self, other) not in values
        ]
        if idle:
            raise ValueError("; ".join(idle))
        return self

    def _differs(self, name: str) -> bool:
        return bool(getattr(self, name) != type(self).model_fields[name].default)


class RunSection(Section):
    """``[run]``: where and how a job runs."""

    seed: Amount = 0
    device: str = "auto"
    """``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""


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

    measures: tuple[str, ...] = ("nDCG@10", "RR", "AP", "P@1")
    """Beside PND; names of the ir-measures grammar."""
    negatives: Literal["auto", "listed", "store"] = "auto"
    """Compare positives with the listed negatives, with every other document of the store, or with the listed ones where there are any."""
    depth: PositiveInt = 100
    """Documents retrieved per query where the whole store is ranked; measures see no further."""
    drop_same_id: bool = True
    """Leave out a document whose id equals the query's id, as BEIR does."""
    resamples: Annotated[int, Field(ge=100)] = 10_000
    """Of the paired bootstrap."""


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
    run: RunSection = RunSection()


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
        ConfigError: Naming every fault at once: unknown keys with the nearest known one, values out of range, text that is no TOML.
    """
    table = _read_toml(path) if path else {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set must be key=value, got {assignment!r}")
        _assign(table, key.strip().split("."), _toml_value(value.strip()), assignment)
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
        known = list(keys_of(kind))
        raise ConfigError(several([_phrase(one, known) for one in fault.errors()])) from None


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


def _phrase(fault: Any, known: Sequence[str]) -> str:
    """One fault of pydantic's in our own form."""
    key = ".".join(str(part) for part in fault["loc"] if not isinstance(part, int))
    if fault["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.5) or _same_name(key, known)
        return f"unknown key {key}" + (f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}")
    if fault["type"] == "value_error":
        return f"{key}: {fault['msg'].removeprefix('Value error, ')}"
    wanted = {"tuple_type": "a list", "model_type": "a table of settings"}.get(fault["type"], fault["msg"].removeprefix("Input should be "))
    return f"{key} must be {wanted}, got {fault['input']!r}"


def _same_name(key: str, known: Sequence[str]) -> list[str]:
    """Known keys whose last part is near: for one who left the section out."""
    last = {one.rsplit(".", 1)[-1]: one for one in known}
    return [last[name] for name in difflib.get_close_matches(key.rsplit(".", 1)[-1], last, n=1)]


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"--config must name a file, got {path}, which does not exist") from None
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigError(f"--config must name a readable TOML file, got {path}: {fault}") from fault
    except tomllib.TOMLDecodeError as fault:
        raise ConfigError(f"{path} must be TOML: {fault}") from fault


def _toml_value(text: str) -> Any:
    """A value as TOML reads it; a bare word is text, so that ``--set data.split=train`` needs no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _assign(table: dict[str, Any], path: Sequence[str], value: Any, assignment: str) -> None:
    for part in path[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ConfigError(f"--set {assignment}: {part} is a value, not a table")
    table[path[-1]] = value
