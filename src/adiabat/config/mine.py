"""Settings of ``adiabat mine``: where hard negatives come from, which candidates are taken for false ones, which of the rest are kept."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from adiabat.config.faults import Need
from adiabat.config.section import Amount, Fraction, Section, Text
from adiabat.config.shared import DataSection, EmbedDataSection, RankingEncoderSection, RunSection

Margin = Annotated[float, Field(ge=0)]


class MineSection(Section):
    """``[mine]``: candidates, filters and choice (mission D2)."""

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
    """The same with this share of the positive's score; source 003's successors take 0.05."""
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
