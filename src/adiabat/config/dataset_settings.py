"""Settings of ``adiabat data``, ``adiabat mine`` and ``adiabat inspect``; defaults of data sets are those of Vasilyev et al. 2024."""

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from adiabat.config.dual_training_data import TrainColumnsSection
from adiabat.config.section import Amount, Fraction, Section, SeedNumber, Text, Texts, each_once
from adiabat.config.shared import DataSection, EmbedDataSection, EncoderSection, ExamplesSection, RankingEncoderSection, RunSection
from adiabat.config.validation import Need

Documents = Literal["ids", "texts"]
"""How examples name their documents: by id, with ``corpus.jsonl.gz`` beside them, or by the text itself."""

Repeats = Literal["positive", "negative", "drop"]
"""What a sentence is that holds the words of an answer, but not where the annotator marked them."""


class DocumentsSection(Section):
    """What makers of examples have in common."""

    documents: Documents = "ids"
    """How examples name their documents: by id, with ``corpus.jsonl.gz`` beside them, of which one store is built for all files; or by
    the text itself, in the layout ``{"query", "pos": [...], "neg": [...]}`` that other libraries read."""


class MsmarcoSection(DocumentsSection):
    """``[msmarco]``: a file of triplets is cut into its first, next and last samples; the publisher's own files keep their splits."""

    train: Amount = 487_983
    """First samples of a file of triplets, to tune on."""
    dev: Amount = 4_200
    """The next samples, to validate on."""
    test: Amount = 7_000
    """The last samples, to measure on; those between are left out."""
    pairs: Literal["first", "all"] = "first"
    """Of samples to tune and validate on: the first positive and the first negative alone, or all. Those to measure on have all."""
    subset_negatives: PositiveInt = 65
    """Measured samples with at least so many negatives also make a subset of their own."""
    most_negatives: PositiveInt = 65
    """Negatives kept per query of the publisher's files, which list up to a thousand: the first ones."""


class MsmarcoSettings(Section):
    """Everything that ``adiabat data msmarco`` may be told."""

    msmarco: MsmarcoSection = MsmarcoSection()


class SquadSection(DocumentsSection):
    """``[squad]``: sentences of a paragraph that answer a question, against the others."""

    repeats: Repeats = "positive"
    """What a sentence is that holds the words of the answer, but not where the annotator marked them. The source finds 1.3 positives
    a question, which the marked ones alone do not make."""
    min_sentences: Annotated[int, Field(ge=2)] = 5
    """Questions with at least so many sentences to choose from also make a subset of their own."""


class SquadSettings(Section):
    """Everything that ``adiabat data squad`` may be told."""

    squad: SquadSection = SquadSection()


class HotpotqaSection(DocumentsSection):
    """``[hotpotqa]``: paragraphs that support the answer, against the distractors."""

    min_passages: Annotated[int, Field(ge=2)] = 10
    """Questions with fewer are left out of ``easy``, ``medium`` and ``hard``."""


class HotpotqaSettings(Section):
    """Everything that ``adiabat data hotpotqa`` may be told."""

    hotpotqa: HotpotqaSection = HotpotqaSection()


class XnliSection(Section):
    """``[xnli]``: sentence pairs in several languages."""

    languages: Annotated[Texts, Field(min_length=1)] | None = None
    """Codes of those to keep; None keeps all."""
    incomplete: Literal["error", "drop"] = "error"
    """What to do with pairs that lack a language which others have: stop and name them, or leave them out and say how many."""


class XnliSettings(Section):
    """Everything that ``adiabat data xnli`` may be told."""

    xnli: XnliSection = XnliSection()


Difficulty = Annotated[int, Field(ge=1, le=21)]


class ArxivSection(DocumentsSection):
    """``[arxiv]``: papers against those of the same categories whose abstracts use the most similar words."""

    flavour: Literal["first", "title"] = "first"
    """What asks for what: the first sentence of an abstract for the rest of it, or the title for the abstract."""
    max_category_size: PositiveInt = 10_000
    """Papers that have a category of at most so many papers are kept."""
    difficulties: Annotated[tuple[Difficulty, ...], Field(strict=False), each_once("difficulty")] = (21,)
    """Negatives that also get files of their own, beside the files with all 21: 1 is the most alike, 21 is random. The source measures
    and tunes on 21."""
    train_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the papers that is kept apart to tune on, by a hash of the query; 0 measures on all, as the source does."""
    narrow: Texts = ()
    """Beginnings of categories, such as ``math.``: papers that have one make a subset to tune on, and the others one to measure on."""

    @model_validator(mode="after")
    def _narrow_makes_file_names(self) -> Self:
        wrong = [prefix for prefix in self.narrow if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*", prefix)]
        if wrong:
            raise ValueError(f"arxiv.narrow must be beginnings of category names, got {', '.join(map(repr, wrong))}; write one like math.")
        if len(self.narrow_names()) < len(self.narrow) or len(set(self.narrow_names().values())) < len(self.narrow):
            raise ValueError(f"arxiv.narrow must name each subset once, got {', '.join(self.narrow)}; leave out what is the same")
        return self

    def narrow_names(self) -> dict[str, str]:
        """The subsets by category."""
        return {prefix: prefix.rstrip(".") for prefix in self.narrow}


class ArxivRunSection(Section):
    """``[run]`` of arxiv-negatives."""

    seed: SeedNumber = 0
    """Of the random papers."""


class ArxivSettings(Section):
    """Everything that ``adiabat data arxiv-negatives`` may be told."""

    arxiv: ArxivSection = ArxivSection()
    run: ArxivRunSection = ArxivRunSection()


Margin = Annotated[float, Field(ge=0)]


class MineSection(Section):
    """``[mine]``: candidates, filters and choice (Reimers 2021)."""

    source: Literal["bm25", "dense", "fused"] = "bm25"
    """Who proposes candidates: BM25, the vectors of a store, or both by reciprocal rank."""
    depth: PositiveInt = 100
    """Candidates per query, known positives among them."""
    negatives_per_query: PositiveInt = 5
    choice: Literal["ranked", "random"] = "random"
    """Take any of the candidates that pass the filters, as Reimers 2021 does, or the best-ranked ones."""
    skip_first: Amount = 0
    """Best ranks that are passed over; they hold most of the false negatives."""
    margin: Margin | None = None
    """Drop candidates that score at least the positive's score less this: in units of the model's similarity, or of BM25's score
    where that proposes alone."""
    relative_margin: Fraction | None = None
    """The same with this share of the positive's score; Reimers 2021's successors take 0.05."""
    near_duplicate: Fraction = 0.8
    """Drop candidates that share so much of their, or of a positive's, runs of five characters; 0 drops equal texts alone."""
    listed: Literal["drop", "keep"] = "drop"
    """What becomes of negatives that the data lists: they make room, or stand before the mined ones and count among them."""
    too_few: Literal["keep", "drop"] = "keep"
    """What becomes of a row that gets fewer negatives than wanted; rows without any negative go into a file of their own."""
    write: Literal["as_given", "texts"] = "as_given"
    """Documents of the written file: ids or texts as in the data, or texts in any case."""

    @model_validator(mode="after")
    def _leaves_candidates(self) -> Self:
        if self.skip_first >= self.depth:
            raise ValueError(f"mine.skip_first must be below mine.depth = {self.depth}, got {self.skip_first}; lower it")
        return self


class Bm25Section(Section):
    """``[bm25]``: the two numbers of its formula, by default those of Anserini, with which BEIR is usually quoted, and what searches."""

    k1: PositiveFloat = 0.9
    """How soon more of the same word counts no more."""
    b: Fraction = 0.4
    """How much long documents are marked down."""
    search_by: Literal["query", "positive", "both"] = "query"
    """The text that candidates are searched by: the query, its positives, or both, joined by reciprocal rank. Scores are the query's."""


class JudgeSection(Section):
    """``[judge]``: a second model, which may take a candidate for an answer."""

    needs: ClassVar[Mapping[str, Need]] = {"store": Need("model"), "margin": Need("model"), "relative": Need("model")}
    model: Text | None = None
    """A MODEL that scores positives and candidates; None asks nobody."""
    store: Text | None = None
    """A store of its document tower for the same corpus; None encodes the candidates that are asked about."""
    margin: Margin = 0.0
    """Drop candidates that it scores at least as high as the positive, less this."""
    relative: bool = False
    """Whether the margin is a share of the positive's score."""

    @model_validator(mode="after")
    def _margin_means_something(self) -> Self:
        if self.relative and not self.margin:
            raise ValueError("judge.relative has no effect with judge.margin = 0; leave it out, or set the margin")
        if self.relative and self.margin > 1:
            raise ValueError(f"judge.margin must be <= 1 where judge.relative is true, got {self.margin:g}; it is a share")
        return self


class MineSettings(Section):
    """Everything that ``adiabat mine`` may be told."""

    mine: MineSection = MineSection()
    bm25: Bm25Section = Bm25Section()
    judge: JudgeSection = JudgeSection()
    encoder: RankingEncoderSection = RankingEncoderSection()
    """Of the model that proposes candidates; a judge is taken as it is."""
    data: DataSection = DataSection()
    corpus: EmbedDataSection = EmbedDataSection()
    run: RunSection = RunSection()

    @model_validator(mode="after")
    def _sources_are_used(self) -> Self:
        if self.mine.source == "dense" and self.bm25 != Bm25Section():
            raise ValueError("bm25 has no effect with mine.source = dense; leave it out, or set mine.source to bm25 or fused")
        return self


class InspectDataSection(ExamplesSection):
    """``[data]`` of an inspection."""

    columns: TrainColumnsSection = TrainColumnsSection()
    """As training has them; a topic or tag that is named here is meant to be trained by, and must tell pairs apart."""
    corpus: Text | None = None
    """Texts of documents that the examples name by id; None takes a BEIR folder's own, and otherwise the examples' entries as texts."""


class InspectSection(Section):
    """``[inspect]``: how much is looked at and shown."""

    examples: Amount = 10
    """Rows shown, drawn at random."""
    sample: PositiveInt = 10_000
    """Texts of each role whose tokens are counted and languages told, drawn at random where there are more; the rest is counted whole."""


class InspectRunSection(Section):
    """``[run]`` of what reads and draws, and computes on no device."""

    seed: SeedNumber = 0
    """Of the rows shown and of the texts drawn."""


class InspectSettings(Section):
    """Everything that ``adiabat inspect`` may be told."""

    encoder: EncoderSection = EncoderSection()
    """Of the model whose tokenizer counts; without a model no setting of it has an effect, and one that is given is refused."""
    data: InspectDataSection = InspectDataSection()
    inspect: InspectSection = InspectSection()
    run: InspectRunSection = InspectRunSection()
