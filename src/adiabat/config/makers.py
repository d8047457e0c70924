"""Settings of ``adiabat data``: how each of the mission's data sets is made (mission A10); the defaults are the source's."""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from adiabat.config.section import Amount, Section, SeedNumber, Texts, each_once

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
