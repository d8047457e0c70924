"""Sections that several verbs have, such as the encoder and where a job runs; and the settings of verbs that have no others."""

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from adiabat.config.reader import shown
from adiabat.config.section import DropSameId, Section, SeedNumber, Text, Texts, each_once
from adiabat.core.errors import ConfigError


class EncoderSection(Section):
    """``[encoder]``: overrides of the model's own files; a setting left out is taken from them."""

    pooling: Literal["mean", "cls", "last", "max", "weighted_mean"] | None = None
    """How token states become one vector."""
    normalize: bool | None = None
    """Scale vectors to unit length, where cosine, dot product and Euclidean distance rank alike."""
    max_tokens: Annotated[int, Field(ge=3)] | None = None
    """Longest text in tokens; longer ones are cut."""
    query_prompt: str | None = None
    """Text before every query."""
    document_prompt: str | None = None
    """Text before every document."""
    blocks: PositiveInt | None = None
    """Number of leading transformer blocks to keep."""
    pad_token: Text | None = None
    """Special token that a tokenizer without a padding token, as of many decoders, pads with; other tokenizers keep theirs."""
    trust_remote_code: Text | None = None
    """Name of the one model whose own Python code may run while loading."""
    allow_pickles: bool = False
    """Load weights from pickle files, which can run code when they are read."""

    def overrides(self) -> dict[str, str | bool | int]:
        """The settings that were given, by their name in `EncoderSettings`."""
        settings = self.model_dump(exclude={"blocks", "similarity", "pad_token", "trust_remote_code", "allow_pickles"}, exclude_none=True)
        return dict(settings)

    def of_saved(self, name: str) -> "EncoderSection":
        """Settings to load a model with that was trained from these; the model holds all but the permission to run code."""
        return EncoderSection(trust_remote_code=None if self.trust_remote_code is None else name)


class RankingEncoderSection(EncoderSection):
    """``[encoder]`` where query and document vectors are compared."""

    similarity: Literal["cosine", "dot", "euclidean"] | None = None
    """Similarity of query and document vectors; None takes that of the model (``similarity_fn_name``), or cosine."""


class ColumnsSection(Section):
    """``[data.columns]``: names of columns in your files, where no alias of ours fits."""

    query: Text | None = None
    query_id: Text | None = None
    positive: Text | None = None
    negative: Text | None = None
    doc_id: Text | None = None
    text: Text | None = None
    title: Text | None = None
    label: str | None = None
    """Column of 0 or 1: whether the documents of a row answer the query; "" reads no labels, so that all do."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Each side has a column of its own."""
        for side, other in combinations(("query", "positive", "negative"), 2):
            column = getattr(self, side)
            if column is not None and column == getattr(self, other):
                yield side, f"must be a different column from {other}, got {shown(column)} for both; name the column of each"

    def given(self) -> dict[str, str]:
        """The columns that were named."""
        columns: dict[str, str] = self.model_dump(exclude_none=True)
        return columns


class ExamplesSection(Section):
    """``[data]``: how examples are read."""

    split: Text | None = None
    """Split of a BEIR folder (``qrels/SPLIT.tsv``; by default ``train`` for training and ``test`` for measuring) or of a hub data set."""
    columns: ColumnsSection = ColumnsSection()
    """In an evaluation, columns of the target alone; retention sets use the known names."""


class DataSection(ExamplesSection):
    """``[data]`` where documents are those of a store."""

    missing: Literal["error", "drop"] = "error"
    """Documents that the store lacks: stop and name them (error), or leave them out and count them (drop)."""


class HeldOutSection(ExamplesSection):
    """``[data]`` of a run with validation."""

    validation: Text | None = None
    """File or folder of examples to validate on; None holds out `validation_fraction` of the data."""
    validation_split: Text | None = None
    """Split of `validation`; None takes `split`, or ``dev`` of a BEIR folder with several."""
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of the queries held out, by a hash of their texts: adding data moves no query from one side to the other."""
    max_validation: PositiveInt = 4_200
    """Maximum number of queries held out; that of Vasilyev et al. 2024."""

    def ignored(self) -> Iterator[tuple[str, str]]:
        """Validation data are held out, or have a file of their own."""
        if self.validation is None:
            yield "validation_split", "without data.validation"
        else:
            yield "validation_fraction", "with data.validation"
            yield "max_validation", "with data.validation"


class EmbedDataSection(Section):
    """``[data]`` of an embedding run."""

    split: Text | None = None
    """Split of a hub data set, or of one saved by the ``datasets`` library."""
    columns: ColumnsSection = ColumnsSection()
    blank: Literal["error", "drop"] = "error"
    """Documents without title and text, or without a token that a static model knows: stop and name them (error), or leave them out and
    count them (drop)."""


class DeviceSection(Section):
    """``[run]`` of verbs that draw nothing."""

    device: Text = "auto"
    """``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""


class RunSection(DeviceSection):
    """``[run]``: where and how a job runs."""

    seed: SeedNumber = 0
    """Seed of every random choice; when vectors are imported, of the documents that are encoded to check them."""


class StepsRunSection(RunSection):
    """``[run]`` of verbs that take optimizer steps."""

    precision: Literal["fp32", "bf16"] = "fp32"
    """Precision of forward and backward pass; weights stay float32. Tuning at its default rate changes less than bfloat16 resolves."""
    log_every: PositiveInt = 50
    """Optimizer steps per row of ``log.jsonl``."""
    checkpoint_seconds: PositiveFloat = 60.0
    """Seconds between checkpoints; the end of each epoch has one too."""
    keep_checkpoints: Annotated[int, Field(ge=2)] | None = None
    """Number of newest checkpoints to keep; None keeps two during the run, and one after it, from which the run can be extended."""
    tensorboard: bool = False
    """Also write curves for TensorBoard (extra ``tensorboard``)."""


class StoreSection(Section):
    """``[store]``: how vectors are kept."""

    dtype: Literal["float16", "float32"] = "float16"
    keep_texts: bool = True
    """Keep the texts beside the vectors, for search results and reports."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """``auto`` encodes in bfloat16 where the device has it and the vectors stay at cosine >= 0.9999."""


class RankingMeasureSection(Section):
    """Measures of rankings."""

    measures: Annotated[Texts, Field(min_length=1), each_once("measure")] = ("nDCG@10", "RR", "AP", "P@1")
    """Measures beside PND, in the grammar of ir-measures. Where the whole store is ranked, the first decides the verdict."""
    depth: PositiveInt = 100
    """Documents retrieved per query where the whole store is ranked; a measure with a larger cutoff retrieves more."""
    drop_same_id: DropSameId = "auto"
    """Leave out the document with the query's id: if their texts are equal too (auto), always (true), or never (false)."""
    resamples: Annotated[int, Field(ge=100)] = 10_000
    """Resamples of the paired bootstrap; a language grid takes more where its cells need them."""


class MeasureSection(RankingMeasureSection):
    """``[measure]``: measures of rankings, and the documents that positives are compared with."""

    negatives: Literal["auto", "listed", "store"] = "auto"
    """What positives are compared with: listed negatives, the rest of the store, or (auto) listed ones if half the queries have some."""

    def ignored(self) -> Iterator[tuple[str, str]]:
        """Listed negatives are all scored, without a ranking of the store."""
        if self.negatives == "listed":
            yield "depth", 'with measure.negatives = "listed"'
            yield "drop_same_id", 'with measure.negatives = "listed"'


class EmbedSettings(Section):
    """Everything that ``adiabat embed`` may be told."""

    encoder: EncoderSection = EncoderSection()
    data: EmbedDataSection = EmbedDataSection()
    store: StoreSection = StoreSection()
    run: RunSection = RunSection()


class EvaluateSettings(Section):
    """Everything that ``adiabat evaluate`` may be told."""

    encoder: RankingEncoderSection = RankingEncoderSection()
    data: DataSection = DataSection()
    measure: MeasureSection = MeasureSection()
    run: RunSection = RunSection()


class SearchSettings(Section):
    """Everything that ``adiabat search`` may be told."""

    encoder: RankingEncoderSection = RankingEncoderSection()
    run: DeviceSection = DeviceSection()


def require_device_name(name: str) -> None:
    """Refuse what names no device; whether there is such a device, `adiabat.models.device.device_of` says."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,2})?", name):
        raise ConfigError(f"run.device must be auto, cpu, cuda or cuda:N, got {name!r}")
