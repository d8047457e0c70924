"""Settings of ``adiabat data``, ``mine``, ``label`` and ``inspect``; defaults of data sets are those of
Vasilyev et al. 2024.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from adiabat.config.dual_training_data import TrainExamplesSection
from adiabat.config.faults import Need
from adiabat.config.section import Amount, Fraction, Section, Text, Texts, each_once
from adiabat.config.shared import (
    DataSection,
    DeviceSection,
    EmbedDataSection,
    EncoderTables,
    RankingTables,
    RunTables,
    SeedSection,
)
from adiabat.config.training_choices import JudgingSection

# --- Data sets of the literature ---

Documents = Literal["ids", "texts"]
Repeats = Literal["positive", "negative", "drop"]


class DocumentsSection(Section):
    """Settings that all example data sets share."""

    documents: Documents = "ids"
    """Documents in the written examples: ids, with their texts in ``corpus.jsonl.gz``, so that one store
    serves all files; or the texts themselves, in the layout ``{"query", "pos": [...], "neg": [...]}`` that
    other libraries read."""


class MsmarcoSection(DocumentsSection):
    """``[msmarco]``: sizes of splits cut from a file of triplets, and limits of negatives; the publisher's
    files keep their splits.
    """

    train: Amount = 487_983
    """Number of tuning samples, taken from the beginning of a file of triplets."""
    dev: Amount = 4_200
    """Number of validation samples, taken after the tuning samples."""
    test: Amount = 7_000
    """Number of test samples, taken from the end of the file; samples in between are left out."""
    pairs: Literal["first", "all"] = "first"
    """Pairs kept of each tuning and validation sample: the first positive and negative, or all. Test samples
    keep all pairs."""
    subset_negatives: PositiveInt = 65
    """Minimum number of negatives of a test sample in the subset of samples with many negatives."""
    most_negatives: PositiveInt = 65
    """Maximum number of negatives per query in the publisher's files, which list up to a thousand; the first
    ones are kept."""


class MsmarcoSettings(Section):
    """All settings of ``adiabat data msmarco``."""

    msmarco: MsmarcoSection = MsmarcoSection()


class SquadSection(DocumentsSection):
    """``[squad]``: questions, with the sentences of a paragraph that answer them as positives and the other
    sentences as negatives.
    """

    repeats: Repeats = "positive"
    """Treatment of a sentence that repeats the words of the answer outside the marked position. The default
    follows Vasilyev et al. 2024, who count 1.3 positives per question, more than are marked."""
    min_sentences: Annotated[int, Field(ge=2)] = 5
    """Minimum number of sentences in the paragraph of a question for the subset of long paragraphs."""


class SquadSettings(Section):
    """All settings of ``adiabat data squad``."""

    squad: SquadSection = SquadSection()


class HotpotqaSection(DocumentsSection):
    """``[hotpotqa]``: questions, with the paragraphs that support the answer as positives and the distractors
    as negatives.
    """

    min_passages: Annotated[int, Field(ge=2)] = 10
    """Minimum number of paragraphs of a question in the subsets ``easy``, ``medium`` and ``hard``."""


class HotpotqaSettings(Section):
    """All settings of ``adiabat data hotpotqa``."""

    hotpotqa: HotpotqaSection = HotpotqaSection()


class XnliSection(Section):
    """``[xnli]``: sentence pairs in several languages."""

    languages: Annotated[Texts, Field(min_length=1)] | None = None
    """Codes of the languages to keep; None keeps all."""
    incomplete: Literal["error", "drop"] = "error"
    """Pairs without a text in one of the languages: stop and list them (error), or leave them out and count
    them (drop)."""


class XnliSettings(Section):
    """All settings of ``adiabat data xnli``."""

    xnli: XnliSection = XnliSection()


Difficulty = Annotated[int, Field(ge=1, le=21)]


class ArxivSection(DocumentsSection):
    """``[arxiv]``: papers, with papers of the same categories and similarly worded abstracts as negatives."""

    flavour: Literal["first", "title"] = "first"
    """Query and document of a paper: first sentence and rest of its abstract (first), or title and abstract
    (title)."""
    max_category_size: PositiveInt = 10_000
    """Maximum number of papers in a category; papers of larger categories are left out."""
    difficulties: Annotated[tuple[Difficulty, ...], Field(strict=False), each_once("difficulty")] = (21,)
    """Ranks of negatives that get a separate file, beside the files with all 21: rank 1 is the most similar
    paper, rank 21 a random one. Vasilyev et al. 2024 tune and measure on rank 21."""
    train_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the papers in the tuning split, chosen by a hash of the query; 0 puts all papers into the test
    split, as in Vasilyev et al. 2024."""
    narrow: Texts = ()
    """Prefixes of categories, such as ``math.``: each makes a tuning subset of its papers and a test subset
    of all other papers."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Subsets have different file names."""
        # `math` and `math.` would write one file.
        names = self.narrow_names()
        if wrong := [
            prefix for prefix in self.narrow if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*", prefix)
        ]:
            yield (
                "narrow",
                f"must be prefixes of category names, got {', '.join(map(repr, wrong))}; "
                "write one like math.",
            )
        elif len(set(names.values())) < len(self.narrow):
            yield "narrow", f"must name each subset once, got {', '.join(self.narrow)}; remove the duplicates"

    def narrow_names(self) -> dict[str, str]:
        """File name of each subset, by prefix."""
        return {prefix: prefix.rstrip(".") for prefix in self.narrow}


class ArxivSettings(Section):
    """All settings of ``adiabat data arxiv-negatives``."""

    arxiv: ArxivSection = ArxivSection()
    run: SeedSection = SeedSection()


# --- Hard negatives ---

Margin = Annotated[float, Field(ge=0)]


class MineSection(Section):
    """``[mine]``: candidates, filters and choice (Reimers 2021)."""

    source: Literal["bm25", "dense", "fused"] = "bm25"
    """Source of candidates: BM25, the vectors of a store (dense), or both by reciprocal rank (fused)."""
    depth: PositiveInt = 100
    """Number of candidates per query, including known positives."""
    negatives_per_query: PositiveInt = 5
    """Number of negatives to mine per query."""
    choice: Literal["ranked", "random"] = "random"
    """Choose among the candidates that pass the filters: at random, as in Reimers 2021, or the
    highest-ranked."""
    skip_first: Amount = 0
    """Number of top ranks to skip, because they hold most of the false negatives."""
    margin: Margin | None = None
    """Drop candidates that score at least the positive's score minus this margin. The unit is that of the
    model's similarity, or of the BM25 score if BM25 is the only source."""
    relative_margin: Fraction | None = None
    """The same margin as a share of the positive's score; 0.05 is common."""
    near_duplicate: Fraction = 0.8
    """Drop candidates that share at least this fraction of character 5-grams with a positive; 0 drops only
    equal texts."""
    listed: Literal["drop", "keep"] = "drop"
    """Negatives already listed in the data: drop them, or keep them ahead of the mined ones and count
    them."""
    too_few: Literal["keep", "drop"] = "keep"
    """Keep or drop rows with fewer negatives than `negatives_per_query`. Rows without any negative go to a
    separate file."""
    write: Literal["as_given", "texts"] = "as_given"
    """Documents in the written file: ids or texts, whichever the data has (as_given), or always texts."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Some candidates remain after the skipped ranks."""
        if self.skip_first >= self.depth:
            yield "skip_first", f"must be below mine.depth = {self.depth}, got {self.skip_first}; lower it"


class Bm25Section(Section):
    """``[bm25]``: parameters of BM25. The defaults are those of Anserini, which most BEIR results use."""

    k1: PositiveFloat = 0.9
    """Saturation of repeated words: a higher value lets repetitions count more."""
    b: Fraction = 0.4
    """Length normalisation: 0 ignores document length, 1 normalises fully."""
    search_by: Literal["query", "positive", "both"] = "query"
    """Text to search candidates with: the query, its positives, or both, fused by reciprocal rank. Scores are
    always those of the query."""


class JudgeSection(JudgingSection):
    """``[judge]``: a second model, to drop candidates that it scores as high as the positives."""

    store: Text | None = None
    """Store of the judge's vectors for the same corpus; None encodes the candidates."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """A relative margin is at most 1."""
        if self.relative and self.margin > 1:
            yield "margin", f"must be <= 1 where judge.relative is true, got {self.margin:g}; it is a share"


class MineSettings(RankingTables, RunTables):
    """All settings of ``adiabat mine``; those of the encoder belong to the model that proposes candidates,
    not to the judge.
    """

    mine: MineSection = MineSection()
    bm25: Bm25Section = Bm25Section()
    judge: JudgeSection | None = None
    data: DataSection = DataSection()
    corpus: EmbedDataSection = EmbedDataSection()

    needs = (Need("bm25", "mine.source", ("bm25", "fused")),)
    """Dense mining does not use BM25."""


# --- Scores of a teacher ---


class LabelSection(Section):
    """``[label]``: the documents of a query that a cross-encoder scores."""

    depth: PositiveInt = 10
    """Number of top documents of the store, and again of BM25, per query; documents that both find are scored
    once."""
    max_tokens: PositiveInt | None = None
    """Maximum tokens of a query with a document; None takes the limit of the cross-encoder."""


class LabelSettings(RankingTables):
    """All settings of ``adiabat label``; those of the encoder belong to the model of the store."""

    label: LabelSection = LabelSection()
    data: DataSection = DataSection()
    run: DeviceSection = DeviceSection()


# --- Profiles ---


class InspectSection(Section):
    """``[inspect]``: number of examples shown, and of texts sampled."""

    examples: Amount = 10
    """Number of example rows shown, drawn at random."""
    sample: PositiveInt = 10_000
    """Maximum number of texts per role, drawn at random, for counts of tokens and languages; all other counts
    cover the whole data set."""


class InspectSettings(EncoderTables):
    """All settings of ``adiabat inspect``; those of the encoder belong to the model whose tokenizer counts
    the tokens.
    """

    data: TrainExamplesSection = TrainExamplesSection()
    inspect: InspectSection = InspectSection()
    run: SeedSection = SeedSection()
