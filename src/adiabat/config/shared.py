"""Tables that several verbs share, and the settings of ``embed``, ``evaluate`` and ``search``."""

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from adiabat.config.faults import ABSENT, Need, shown
from adiabat.config.section import DropSameId, Fraction, Section, SeedNumber, Text, Texts, each_once, no_text
from adiabat.core.errors import ConfigError
from adiabat.core.margin import Margin
from adiabat.core.text import WITH_BM25

# --- Models ---


class EncoderSection(Section):
    """``[encoder]``: overrides of the model's configuration.

    Settings left out are read from the model's files.
    """

    pooling: Literal["mean", "cls", "last", "max", "weighted_mean"] | None = None
    """Pooling of token states into one vector."""
    normalize: bool | None = None
    """Scale vectors to unit length, so that cosine, dot product and Euclidean distance give the same
    ranking."""
    max_tokens: Annotated[int, Field(ge=3)] | None = None
    """Maximum length of a text in tokens; longer texts are truncated."""
    query_prompt: str | None = None
    """Text prepended to every query."""
    document_prompt: str | None = None
    """Text prepended to every document."""
    blocks: PositiveInt | None = None
    """Number of leading transformer blocks to keep."""
    pad_token: Text | None = None
    """Special token used for padding if the tokenizer has no padding token, as with many decoders."""
    trust_remote_code: Text | None = None
    """Name of the model whose Python code may run while it is loaded. The code of other models is refused."""
    allow_pickles: bool = False
    """Allow weights in pickle files, which can run code when they are loaded."""

    def overrides(self) -> dict[str, str | bool | int]:
        """The settings that are set, by their names in `EncoderSettings`."""
        settings = self.model_dump(
            exclude={"blocks", "similarity", "pad_token", "trust_remote_code", "allow_pickles"},
            exclude_none=True,
        )
        return dict(settings)

    def of_saved(self, name: str) -> "EncoderSection":
        """Settings to load a model trained with these; its files hold all of them except the permission to
        run code.
        """
        return EncoderSection(trust_remote_code=None if self.trust_remote_code is None else name)


class RankingEncoderSection(EncoderSection):
    """``[encoder]``: overrides of the model's configuration, and the similarity of query and document
    vectors.
    """

    similarity: Literal["cosine", "dot", "euclidean"] | None = None
    """Similarity of query and document vectors; None takes the model's own (``similarity_fn_name``), or
    cosine if it states none."""


# --- Data ---


class ColumnsSection(Section):
    """``[data.columns]``: names of the columns in your files, if adiabat does not recognise them."""

    query: Text | None = None
    """Column with the text of the query."""
    query_id: Text | None = None
    """Column with the id of the query."""
    positive: Text | None = None
    """Column with documents that answer the query, or their ids."""
    negative: Text | None = None
    """Column with documents that do not answer the query, or their ids."""
    doc_id: Text | None = None
    """Column with the id of a document."""
    text: Text | None = None
    """Column with the text of a document."""
    title: Text | None = None
    """Column with the title of a document."""
    label: str | None = None
    """Column of labels: 1 if the documents of a row answer the query, 0 if they do not. "" ignores labels, so
    that all rows count as answers."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Query, positive and negative are different columns."""
        for side, other in combinations(("query", "positive", "negative"), 2):
            column = getattr(self, side)
            if column is not None and column == getattr(self, other):
                yield (
                    side,
                    f"must be a different column from {other}, got {shown(column)} "
                    "for both; name the column of each",
                )

    def given(self) -> dict[str, str]:
        """The columns that are set."""
        columns = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: column for name, column in columns.items() if column is not None}


class ExamplesSection(Section):
    """``[data]``: split and columns of the examples."""

    split: Text | None = None
    """Split of a BEIR folder (``qrels/SPLIT.tsv``; by default ``train`` for training and ``test`` for
    measuring), of a folder whose files name splits (``train.jsonl``, ``data/test-00000-of-00001.parquet``),
    or of a saved or hub data set. None reads all documents of a corpus."""
    columns: ColumnsSection = ColumnsSection()
    """Names of columns of these data, and of validation data in `validation`; a retention set has its own."""


IdForms = Literal["exact", "nfc"]
"""Whether ids that differ in their Unicode form only are one."""


class IdsSection(ExamplesSection):
    """Data with ids of documents."""

    ids: IdForms = "exact"
    """Whether a document is found by its exact id only, or by an id that differs in Unicode form alone
    (``nfc``): file names of macOS are often decomposed (NFD). An update of a store refuses such ids if they
    must be exact."""


class RetainSection(ExamplesSection):
    """One of ``[[retain]]``: a data set that must not get worse, as ``--retain STORE DATA`` names it."""

    store: Text
    """Document vectors of the model for this set."""
    data: Text
    """Queries with positives: BEIR folder, file or hub data set."""


class ComparedSection(RetainSection):
    """One of ``[[retain]]`` of an evaluation."""

    unlabelled: Text | None = None
    """Further queries of the set's kind, which nobody judged, as ``--unlabelled DATA FILE`` names them: a
    text file with a query on each line, or a table with a column ``query``. Thousands of them, such as a
    query log, bound what queries can lose that the set does not show."""


class DataSection(IdsSection):
    """``[data]``: examples whose documents are in a store."""

    missing: Literal["error", "drop"] = "error"
    """Documents missing from the store or the corpus: stop and list them (error), or leave them out and count
    them (drop)."""


class HeldOutSection(ExamplesSection):
    """``[data]``: training data, and the validation set."""

    validation: Text | None = None
    """File or folder of validation examples; None holds out `validation_fraction` of the data."""
    validation_split: Text | None = None
    """Split of `validation`; None takes `split`, or ``dev`` in a BEIR folder with several splits. Where the
    training data lie in the same place, their split is not taken."""
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of the queries held out for validation. A hash of the text decides, so added data does not move
    other queries."""
    max_validation: PositiveInt = 4_200
    """Maximum number of queries held out for validation; the default is that of Vasilyev et al. 2024."""

    needs: ClassVar[tuple[Need, ...]] = (
        Need("validation_split", "validation"),
        Need("validation_fraction", "validation", ABSENT),
        Need("max_validation", "validation", ABSENT),
    )
    """Validation data are either held out or read from a file."""


class EmbedDataSection(IdsSection):
    """``[data]``: documents to embed."""

    blank: Literal["error", "drop"] = "error"
    """Documents without title and text, or without any token of a static model: stop and list them (error),
    or leave them out and count them (drop)."""


# --- Where a job runs ---


class DeviceSection(Section):
    """``[run]``: where a job runs."""

    device: Text = "auto"
    """Device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""


class SeedSection(Section):
    """``[run]``: the random seed."""

    seed: SeedNumber = 0
    """Seed of all random choices, beside `seeds` of the runs of an experiment. In an import of vectors, it
    draws the documents that are encoded to check them."""


class RunSection(DeviceSection, SeedSection):
    """``[run]``: where and how a job runs."""


class CompiledRunSection(RunSection):
    """``[run]`` of jobs that may compile their model."""

    compile: bool = False
    """Compile each block of the backbone with `torch.compile`, once for texts of all lengths: slower on a
    CPU, and faster on a GPU after a minute. Encoding with a model of BERT-large's size gains that minute back
    after about 1.5 million documents."""


class StepsRunSection(RunSection):
    """``[run]``: device, precision, logs and checkpoints."""

    precision: Literal["fp32", "bf16"] = "fp32"
    """Precision of forward and backward passes; weights stay in float32. Use fp32 for tuning at the default
    rate, whose changes are smaller than bfloat16 resolves."""
    log_every: PositiveInt = 50
    """Optimizer steps per row of ``log.jsonl``."""
    checkpoint_seconds: PositiveFloat = 60.0
    """Seconds between checkpoints; each epoch also ends with one."""
    keep_checkpoints: Annotated[int, Field(ge=2)] | None = None
    """Number of newest checkpoints to keep. None keeps two during the run and one afterwards, from which the
    run can be extended."""
    tensorboard: bool = False
    """Also write curves for TensorBoard (extra ``tensorboard``)."""


# --- Stores ---

NEEDED_COSINE = 0.999
"""Rounding to float16 or bfloat16 leaves this cosine to the exact vector, another prompt or pooling does
not."""


class StoreSection(Section):
    """``[store]``: format of the store."""

    dtype: Literal["float16", "float32"] = "float16"
    """Number format of the stored vectors."""
    keep_texts: bool = True
    """Store the texts with the vectors, to show them in search results and reports."""
    backend: Literal["auto", "torch", "openvino"] = "auto"
    """What runs the encoder: torch, or OpenVINO on a CPU (extra ``openvino``). ``auto`` times both on some
    texts of a corpus of 4,000 distinct texts or more, and takes the faster one whose vectors have a cosine of
    at least 0.9999 to those in float32."""
    precision: Literal["auto", "fp32", "bf16", "int8"] = "auto"
    """Precision of the encoder. ``auto`` uses bfloat16 if the device supports it and the cosine to the
    float32 vectors is at least 0.9999. ``int8`` is OpenVINO's, calibrated on 300 texts of the corpus; the
    quantised graph stays in the store."""
    min_cosine: Annotated[float, Field(gt=0, le=1)] = NEEDED_COSINE
    """Cosine that each sampled vector of an import with model and texts must have with the model's own.
    Vectors of an engine of lower precision, such as int8, need a lower one."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Only OpenVINO multiplies in int8."""
        if self.backend == "torch" and self.precision == "int8":
            yield (
                "precision",
                'must be auto, fp32 or bf16 for torch, got "int8"; set store.backend = openvino',
            )

    @property
    def needs_openvino(self) -> bool:
        """Whether torch will not do."""
        return self.backend == "openvino" or self.precision == "int8"


# --- Experiments and comparisons ---


class ExperimentSection(Section):
    """What all experiments have in common."""

    out: Text | None = None
    """Directory of the experiment. Required."""
    seeds: Annotated[tuple[SeedNumber, ...], Field(strict=False, min_length=1), each_once("seed")] = (0,)
    """Seeds. Every combination is run once per seed; variation between runs shows only with two or more."""
    keep_models: bool = False
    """Keep the models after they are measured; checkpoints are always removed."""
    engine: Literal["process", "ray"] = "process"
    """Where runs are executed: in this process, or on a Ray cluster (extra ``ray``) whose machines share the
    output directory."""


class ComparisonSection(Section):
    """How two models are compared."""

    resamples: Annotated[int, Field(ge=100)] = 10_000
    """Sign flips, and resamples for measures that are no mean (Spearman, average precision, V-measure); a
    language grid takes more flips if its number of cells requires it."""
    margin: Annotated[
        float,
        # Texts were a small language until 0.1.
        no_text(
            "a share of the baseline such as 0.01; a difference of the measure is measure.margin_absolute"
        ),
        Field(gt=0, lt=1),
    ] = 0.01
    """The loss that would matter, as a share of the baseline's value. A data set is "not worse" if its data
    exclude this loss."""
    margin_absolute: PositiveFloat | None = None
    """The same loss as a difference of the measure that decides, such as 0.01 of nDCG. Other measures keep
    the share."""

    def loss_margin(self) -> Margin:
        """Both as one margin."""
        return Margin(self.margin, self.margin_absolute)


class ReportSection(ComparisonSection):
    """Measures of rankings."""

    report: Annotated[Texts, Field(min_length=1), each_once("measure")] = ("nDCG@10", "Recall@100", "RR@10")
    """Measures of the report, as ir-measures writes them: nDCG@k, Recall@k, RR@k, P@k, Success@k, AP,
    Judged@k. The first one decides the verdict if the whole store is ranked, and is the score of a task in a
    sweep. PND is added, and decides among listed candidates."""


class RankingMeasureSection(ReportSection):
    """Measures of rankings, and how documents are ranked."""

    depth: PositiveInt = 100
    """Number of documents retrieved per query if the whole store is ranked; a measure with a larger cutoff
    retrieves more."""
    drop_same_id: DropSameId = "auto"
    """Leave the document with the query's id out of its ranking: if their texts are equal too (auto), always
    (true), or never (false)."""


class MeasureSection(RankingMeasureSection):
    """``[measure]``: measures of rankings, and the documents that compete with the positives."""

    negatives: Literal["auto", "listed", "store"] = "auto"
    """Documents that compete with the positives: listed negatives, all of the store, or (auto) listed
    negatives if at least half of the queries have some."""
    cluster: Text = "documents"
    """Queries that intervals and tests draw together: those that share relevant documents, if at least 10
    clusters remain (``documents``); those that share a value of a column of the target, named here, such as
    ``session``, which may hold lists; or ``none``."""

    needs = (
        Need("depth", "negatives", ("auto", "store")),
        Need("drop_same_id", "negatives", ("auto", "store")),
    )
    """Settings of the ranking of a store are unset if only listed negatives are scored."""


# --- Tables of the verbs ---


class RunTables(Section):
    """All settings of a verb that has a device and a seed."""

    run: RunSection = RunSection()


class EncoderTables(Section):
    """All settings of a verb that loads a model."""

    encoder: EncoderSection = EncoderSection()


class RankingTables(Section):
    """All settings of a verb that ranks documents by a model."""

    encoder: RankingEncoderSection = RankingEncoderSection()


class EmbedSettings(EncoderTables):
    """All settings of ``adiabat embed``."""

    data: EmbedDataSection = EmbedDataSection()
    store: StoreSection = StoreSection()
    run: CompiledRunSection = CompiledRunSection()


QueryBackend = Literal["torch", "openvino"]


class QueryRunSection(DeviceSection):
    """``[run]`` of jobs that only encode."""

    backend: QueryBackend = "torch"
    """What encodes queries, in float32: torch, or OpenVINO on a CPU (extra ``openvino``), which takes some
    seconds to convert the model."""


class EvaluationRunSection(QueryRunSection, RunSection):
    """``[run]`` of an evaluation."""


class FusionSection(Section):
    """``[fuse]``: the ranking by vectors fused with that of BM25 over the texts of the store."""

    bare = "by"
    by: Annotated[str, Field(pattern=r"^bm25(:[a-z]+)?$")] | None = None
    """``bm25``, or ``bm25:LANGUAGE``, which cuts words to stems; None ranks by vectors alone."""
    weight: Fraction = 0.7
    """Weight of the vectors in the mean of both standardised scores."""

    needs: ClassVar[tuple[Need, ...]] = (Need("weight", "by"),)
    """Without BM25 there is nothing to weigh."""

    @property
    def stemmer(self) -> str | None:
        """Language of the stems; None keeps whole words."""
        return (self.by or "").partition(":")[2] or None

    def named(self, model: str) -> str:
        """The name of a model, with what it is fused with."""
        return model if self.by is None else f"{model} {WITH_BM25}"

    @property
    def key(self) -> str:
        """What decides the fusion; "" without one."""
        return "" if self.by is None else f"{self.by} {self.weight:g}"


class ComparedFusionSection(FusionSection):
    """``[fuse]`` of a model and its baseline."""

    baseline: Literal["same", "none"] = "same"
    """Fuse the baseline's ranking too, or rank it by vectors alone."""

    needs = (*FusionSection.needs, Need("baseline", "by"))


class RetainedTables(RankingTables, RunTables):
    """All settings of a verb that reads a target and retention sets."""

    data: DataSection = DataSection()
    retain: Annotated[tuple[RetainSection, ...], Field(strict=False)] = ()
    """Retention sets, before those of ``--retain``."""


class EvaluateSettings(RetainedTables):
    """All settings of ``adiabat evaluate``."""

    retain: Annotated[tuple[ComparedSection, ...], Field(strict=False)] = ()
    """Retention sets, before those of ``--retain``."""
    run: EvaluationRunSection = EvaluationRunSection()
    measure: MeasureSection = MeasureSection()
    fuse: ComparedFusionSection = ComparedFusionSection()


class AdviseSection(Section):
    """``[advise]``: size of the measurement."""

    queries: Annotated[int, Field(ge=10)] = 1_000
    """Maximum number of queries of each data set to measure with; more are drawn at random."""


class AdviseSettings(RetainedTables):
    """All settings of ``adiabat advise``."""

    advise: AdviseSection = AdviseSection()


class SearchSettings(RankingTables):
    """All settings of ``adiabat search``."""

    fuse: FusionSection = FusionSection()
    run: QueryRunSection = QueryRunSection()


def require_device_name(name: str) -> None:
    """Check the syntax of a device name; `adiabat.models.device.device_of` checks that the device exists."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,2})?", name):
        raise ConfigError(f"run.device must be auto, cpu, cuda or cuda:N, got {name!r}")
