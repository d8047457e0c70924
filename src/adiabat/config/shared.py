"""Sections that several verbs have, such as the encoder and where a job runs; and the settings of verbs that have no others."""

import re
from collections.abc import Mapping
from itertools import combinations
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from adiabat.config.section import DropSameId, PlacedError, Section, SeedNumber, Text, Texts, each_once
from adiabat.config.validation import Need, shown
from adiabat.core.errors import ConfigError


class EncoderSection(Section):
    """``[encoder]``: what overrides the model's own files; a setting left out is taken from them."""

    pooling: Literal["mean", "cls", "last", "max", "weighted_mean"] | None = None
    """Which token states make the vector."""
    normalize: bool | None = None
    """Whether vectors get unit length. On unit vectors cosine, dot product and Euclidean distance rank alike."""
    max_tokens: Annotated[int, Field(ge=3)] | None = None
    """Where texts are cut, in tokens."""
    query_prompt: str | None = None
    """Put before every query."""
    document_prompt: str | None = None
    """Put before every document."""
    blocks: PositiveInt | None = None
    """Keep only the first so many transformer blocks."""
    pad_token: Text | None = None
    """What a tokenizer that has no padding token, as those of many decoders, pads with: one of its special tokens. Others keep theirs."""
    trust_remote_code: Text | None = None
    """Name of the one model whose own Python code may run while loading."""
    allow_pickles: bool = False
    """Whether weights may come from a pickle file, which can run code when read."""

    def overrides(self) -> dict[str, str | bool | int]:
        """The settings that were given, by their name in `EncoderSettings`."""
        given = self.model_dump(exclude={"blocks", "similarity", "pad_token", "trust_remote_code", "allow_pickles"}, exclude_none=True)
        return dict(given)

    def of_saved(self, name: str) -> "EncoderSection":
        """What a model is loaded with that was trained from one of these settings: they are in it, but for what code may run."""
        return EncoderSection(trust_remote_code=None if self.trust_remote_code is None else name)


class RankingEncoderSection(EncoderSection):
    """``[encoder]`` where query and document vectors are compared."""

    similarity: Literal["cosine", "dot", "euclidean"] | None = None
    """What they are compared by; a model that states none (``similarity_fn_name``) is compared by cosine."""


class ColumnsSection(Section):
    """``[data.columns]``: names of columns in the user's files, where no alias of ours fits."""

    query: Text | None = None
    query_id: Text | None = None
    positive: Text | None = None
    negative: Text | None = None
    doc_id: Text | None = None
    text: Text | None = None
    title: Text | None = None
    label: str | None = None
    """0 or 1: whether the documents of a row answer; "" reads no labels, so that all of them do."""

    @model_validator(mode="after")
    def _sides_differ(self) -> Self:
        for one, other in combinations(("query", "positive", "negative"), 2):
            column = getattr(self, one)
            if column is not None and column == getattr(self, other):
                raise PlacedError(one, f"must be another column than {other}, got {shown(column)} for both; name the column of each")
        return self

    def given(self) -> dict[str, str]:
        """The columns that were named."""
        named: dict[str, str] = self.model_dump(exclude_none=True)
        return named


class ExamplesSection(Section):
    """``[data]``: how examples are read."""

    split: Text | None = None
    """Of a BEIR folder (``qrels/SPLIT.tsv``; of several, ``train`` is trained on and ``test`` measured) or a hub data set."""
    columns: ColumnsSection = ColumnsSection()
    """Of an evaluation, the target's alone: retention sets go by the names that are known."""


class DataSection(ExamplesSection):
    """``[data]`` where documents are those of a store."""

    missing: Literal["error", "drop"] = "error"
    """What to do with documents that are not in the store: stop and name them, or leave them out and say how many."""


class HeldOutSection(ExamplesSection):
    """``[data]`` of a run that validates: also where validation comes from."""

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
    """What to do with documents that have neither title nor text, or of which a static model knows no token: stop and name them, or leave
    them out and say how many."""


class DeviceSection(Section):
    """``[run]`` of what chooses nothing at random."""

    device: Text = "auto"
    """``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""


class RunSection(DeviceSection):
    """``[run]``: where and how a job runs."""

    seed: SeedNumber = 0
    """Of every random choice; of an embedding run, of the documents that are encoded to check imported vectors."""


class StepsRunSection(RunSection):
    """``[run]`` of what takes optimiser steps."""

    precision: Literal["fp32", "bf16"] = "fp32"
    """Of forward and backward pass (weights stay float32). Tuning at its default rate changes less than bfloat16 resolves."""
    log_every: PositiveInt = 50
    """Steps per row of ``log.jsonl``."""
    checkpoint_seconds: PositiveFloat = 60.0
    """Time between checkpoints; one is also made at each epoch's end."""
    keep_checkpoints: Annotated[int, Field(ge=2)] | None = None
    """How many checkpoints are kept, after the run too; None keeps two during the run, and the newest after it, to extend the run from."""
    tensorboard: bool = False
    """Also write curves for TensorBoard (extra ``tensorboard``)."""


class StoreSection(Section):
    """``[store]``: how vectors are kept."""

    dtype: Literal["float16", "float32"] = "float16"
    keep_texts: bool = True
    """Whether the texts are kept beside the vectors, for search results and reports."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """``auto`` encodes in bfloat16 where the device has it and the vectors stay at cosine >= 0.9999."""


class RankingMeasureSection(Section):
    """What is measured on rankings, and how surely."""

    measures: Annotated[Texts, Field(min_length=1), each_once("measure")] = ("nDCG@10", "RR", "AP", "P@1")
    """Beside PND; names of the ir-measures grammar. Where the whole store is ranked, the first carries the verdict."""
    depth: PositiveInt = 100
    """Documents retrieved per query where the whole store is ranked, more for a measure of a larger cutoff; measures see no further."""
    drop_same_id: DropSameId = "auto"
    """Leave out the document that has the query's id: if their texts are equal too (auto), whatever its text (true), or never (false)."""
    resamples: Annotated[int, Field(ge=100)] = 10_000
    """Of the paired bootstrap, at the least: a language grid takes as many as its cells need."""


class MeasureSection(RankingMeasureSection):
    """``[measure]``: the same, and what positives are compared with."""

    needs: ClassVar[Mapping[str, Need]] = {
        "depth": Need("negatives", ("auto", "store")),
        "drop_same_id": Need("negatives", ("auto", "store")),
    }
    negatives: Literal["auto", "listed", "store"] = "auto"
    """Compare positives with listed negatives, with the rest of the store, or (auto) with listed ones where half the queries list some."""


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
