"""Settings of ``adiabat data``, ``adiabat mine`` and ``adiabat inspect``; defaults of data sets are those of Vasilyev et al. 2024."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from adiabat.config.dual_training_data import TrainColumnsSection
from adiabat.config.section import Amount, Fraction, Section, SeedNumber, Text, Texts, each_once
from adiabat.config.shared import DataSection, EmbedDataSection, EncoderSection, ExamplesSection, RankingEncoderSection, RunSection

Documents = Literal["ids", "texts"]
Repeats = Literal["positive", "negative", "drop"]


class DocumentsSection(Section):
    """Settings of all makers of examples."""

    documents: Documents = "ids"
    """How examples name their documents: by id, with ``corpus.jsonl.gz`` beside them, of which one store is built for all files; or by
    the text itself, in the layout ``{"query", "pos": [...], "neg": [...]}`` that other libraries read."""


class MsmarcoSection(DocumentsSection):
    """``[msmarco]``: a file of triplets is split into its first, next and last samples; the publisher's files keep their splits."""

    train: Amount = 487_983
    """First samples of a file of triplets, to tune on."""
    dev: Amount = 4_200
    """The next samples, to validate on."""
    test: Amount = 7_000
    """The last samples, to measure on; those between are left out."""
    pairs: Literal["first", "all"] = "first"
    """Pairs of samples to tune and validate on: the first positive and negative, or all. Samples to measure on have all."""
    subset_negatives: PositiveInt = 65
    """Minimum negatives of the measured samples that also make a subset."""
    most_negatives: PositiveInt = 65
    """Maximum negatives per query of the publisher's files, which list up to a thousand; the first ones are taken."""


class MsmarcoSettings(Section):
    """Everything that ``adiabat data msmarco`` may be told."""

    msmarco: MsmarcoSection = MsmarcoSection()


class SquadSection(DocumentsSection):
    """``[squad]``: sentences of a paragraph that answer a question, against the others."""

    repeats: Repeats = "positive"
    """Class of a sentence with the words of the answer at another place than the marked one. Vasilyev et al. 2024 have 1.3 positives per
    question, more than are marked."""
    min_sentences: Annotated[int, Field(ge=2)] = 5
    """Minimum sentences of the questions that also make a subset."""


class SquadSettings(Section):
    """Everything that ``adiabat data squad`` may be told."""

    squad: SquadSection = SquadSection()


class HotpotqaSection(DocumentsSection):
    """``[hotpotqa]``: paragraphs that support the answer, against the distractors."""

    min_passages: Annotated[int, Field(ge=2)] = 10
    """Minimum paragraphs of a question in ``easy``, ``medium`` and ``hard``."""


class HotpotqaSettings(Section):
    """Everything that ``adiabat data hotpotqa`` may be told."""

    hotpotqa: HotpotqaSection = HotpotqaSection()


class XnliSection(Section):
    """``[xnli]``: sentence pairs in several languages."""

    languages: Annotated[Texts, Field(min_length=1)] | None = None
    """Codes of the languages to keep; None keeps all."""
    incomplete: Literal["error", "drop"] = "error"
    """Pairs that lack a language of others: stop and name them (error), or leave them out and count them (drop)."""


class XnliSettings(Section):
    """Everything that ``adiabat data xnli`` may be told."""

    xnli: XnliSection = XnliSection()


Difficulty = Annotated[int, Field(ge=1, le=21)]


class ArxivSection(DocumentsSection):
    """``[arxiv]``: papers against those of the same categories whose abstracts use the most similar words."""

    flavour: Literal["first", "title"] = "first"
    """Query and document: the first sentence and the rest of an abstract (first), or title and abstract (title)."""
    max_category_size: PositiveInt = 10_000
    """Largest category, in papers, whose papers are kept."""
    difficulties: Annotated[tuple[Difficulty, ...], Field(strict=False), each_once("difficulty")] = (21,)
    """Negatives that also get files of their own, beside those with all 21: 1 is the most similar, 21 is random. Vasilyev et al. 2024 tune
    and measure on 21."""
    train_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the papers to tune on, by a hash of the query; 0 measures on all, as Vasilyev et al. 2024 do."""
    narrow: Texts = ()
    """Prefixes of categories, such as ``math.``: their papers make a subset to tune on, and the others one to measure on."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Each subset has a file name of its own."""
        names = self.narrow_names()
        if wrong := [prefix for prefix in self.narrow if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*", prefix)]:
            yield "narrow", f"must be prefixes of category names, got {', '.join(map(repr, wrong))}; write one like math."
        elif len(set(names.values())) < len(self.narrow):
            yield "narrow", f"must name each subset once, got {', '.join(self.narrow)}; remove the duplicates"

    def narrow_names(self) -> dict[str, str]:
        """The subsets by category."""
        return {prefix: prefix.rstrip(".") for prefix in self.narrow}


class ArxivRunSection(Section):
    """``[run]`` of arxiv-negatives."""

    seed: SeedNumber = 0
    """Seed of the draw of random papers."""


class ArxivSettings(Section):
    """Everything that ``adiabat data arxiv-negatives`` may be told."""

    arxiv: ArxivSection = ArxivSection()
    run: ArxivRunSection = ArxivRunSection()


Margin = Annotated[float, Field(ge=0)]


class MineSection(Section):
    """``[mine]``: candidates, filters and choice (Reimers 2021)."""

    source: Literal["bm25", "dense", "fused"] = "bm25"
    """Source of candidates: BM25, the vectors of a store (dense), or both by reciprocal rank (fused)."""
    depth: PositiveInt = 100
    """Candidates per query, known positives among them."""
    negatives_per_query: PositiveInt = 5
    choice: Literal["ranked", "random"] = "random"
    """Choose among the candidates that pass the filters at random, as Reimers 2021 does, or by rank."""
    skip_first: Amount = 0
    """Number of best ranks to skip, which hold most of the false negatives."""
    margin: Margin | None = None
    """Drop candidates whose score is at least the positive's less this margin, in units of the model's similarity, or of BM25's score
    where BM25 is the only source."""
    relative_margin: Fraction | None = None
    """The same margin as a share of the positive's score; common is 0.05."""
    near_duplicate: Fraction = 0.8
    """Drop candidates that share this part of the character 5-grams with a positive; 0 drops equal texts alone."""
    listed: Literal["drop", "keep"] = "drop"
    """Negatives that the data lists: drop them, or keep them before the mined ones and count them."""
    too_few: Literal["keep", "drop"] = "keep"
    """Rows with fewer negatives than wanted: keep or drop them. Rows without negatives go to a file of their own."""
    write: Literal["as_given", "texts"] = "as_given"
    """Documents of the written file: ids or texts as in the data (as_given), or always texts."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Skipped ranks leave candidates."""
        if self.skip_first >= self.depth:
            yield "skip_first", f"must be below mine.depth = {self.depth}, got {self.skip_first}; lower it"


class Bm25Section(Section):
    """``[bm25]``: parameters of BM25, by default those of Anserini, which results on BEIR mostly use."""

    k1: PositiveFloat = 0.9
    """Saturation of repeated words."""
    b: Fraction = 0.4
    """Penalty of long documents."""
    search_by: Literal["query", "positive", "both"] = "query"
    """Text that searches for candidates: the query, its positives, or both by reciprocal rank. Scores are those of the query."""


class JudgeSection(Section):
    """``[judge]``: a second model, which drops candidates that it scores like answers."""

    bare = "model"
    model: Text
    """A MODEL that scores positives and candidates."""
    store: Text | None = None
    """A store of its document tower for the same corpus; None encodes the candidates."""
    margin: Margin = 0.0
    """Drop candidates whose score is at least the positive's less this margin."""
    relative: bool = False
    """The margin is a share of the positive's score."""

    def ignored(self) -> Iterator[tuple[str, str]]:
        """Only a margin can be relative."""
        if not self.margin:
            yield "relative", "without a margin"

    def faults(self) -> Iterator[tuple[str, str]]:
        """A share is at most 1."""
        if self.relative and self.margin > 1:
            yield "margin", f"must be <= 1 where judge.relative is true, got {self.margin:g}; it is a share"


class MineSettings(Section):
    """Everything that ``adiabat mine`` may be told."""

    mine: MineSection = MineSection()
    bm25: Bm25Section = Bm25Section()
    judge: JudgeSection | None = None
    encoder: RankingEncoderSection = RankingEncoderSection()
    """Encoder settings of the model that proposes candidates; a judge has none."""
    data: DataSection = DataSection()
    corpus: EmbedDataSection = EmbedDataSection()
    run: RunSection = RunSection()

    def ignored(self) -> Iterator[tuple[str, str]]:
        """Vectors alone need no BM25."""
        if self.mine.source == "dense":
            yield "bm25", "with mine.source = dense"


class InspectDataSection(ExamplesSection):
    """``[data]`` of an inspection."""

    columns: TrainColumnsSection = TrainColumnsSection()
    """As in training; a topic or tag that is named here must differ between pairs."""
    corpus: Text | None = None
    """Texts of documents that the examples name by id; None takes those of a BEIR folder, and other examples' entries as texts."""


class InspectSection(Section):
    """``[inspect]``: rows that are shown, and texts that are counted."""

    examples: Amount = 10
    """Rows shown, drawn at random."""
    sample: PositiveInt = 10_000
    """Maximum texts of each role, drawn at random, whose tokens and languages are counted; all other counts cover the whole data."""


class InspectRunSection(Section):
    """``[run]`` of verbs without a device."""

    seed: SeedNumber = 0
    """Seed of the rows shown and of the texts drawn."""


class InspectSettings(Section):
    """Everything that ``adiabat inspect`` may be told."""

    encoder: EncoderSection = EncoderSection()
    """Encoder settings of the model whose tokenizer counts; refused without a model."""
    data: InspectDataSection = InspectDataSection()
    inspect: InspectSection = InspectSection()
    run: InspectRunSection = InspectRunSection()
