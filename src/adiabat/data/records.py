"""The records that travel between rooms, and the legend of dimensions.

Dimensions, one letter each, the same everywhere (lower case in shape annotations):
``B`` queries of a step, ``N`` documents scored, ``H`` hard negatives per query, ``L`` tokens, ``D`` hidden width, ``E`` embedding width.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Side = Literal["query", "document"]
"""Which tower a text goes through."""

SIDES: tuple[Side, Side] = ("query", "document")


@dataclass(frozen=True, slots=True)
class Document:
    """One text of a corpus.

    Attributes:
        doc_id: Its address, unique in the corpus.
        text: What is encoded; a title, where there is one, comes first, followed by one space.
    """

    doc_id: str
    text: str


def is_own_document(query: str, document: str) -> bool:
    """Whether a document that has a query's id is the query itself, as in ArguAna and Quora.

    Two sets numbered from 1 share their ids by chance, so the texts must be equal, but for white space and a title before the document's.
    """
    own, whole = (" ".join(text.split()) for text in (query, document))
    return whole == own or whole.endswith(f" {own}")


@dataclass(frozen=True, slots=True)
class Example:
    """A query with the documents that answer it and some that do not.

    Attributes:
        query_id: Its address, unique in the data set.
        query: The text.
        positives: Relevant documents, in an `ExampleSet` at least one: document ids, or texts, which `text_id` turns into ids.
        negatives: Irrelevant documents, possibly none; ids or texts likewise.
        grades: Relevance of each positive, same length as `positives`; 1 where the data does not grade.
        location: ``file:line`` it came from, for messages.
        topic: What it is about, such as a forum; "" where the data does not say.
        tag: The same, finer; "" likewise.
    """

    query_id: str
    query: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...] = ()
    grades: tuple[int, ...] = ()
    location: str = ""
    topic: str = ""
    tag: str = ""


@dataclass(frozen=True, slots=True)
class ExampleSet:
    """A data set of (query, positives, negatives).

    Attributes:
        name: For tables and reports.
        examples: In file order.
        holds_texts: True where documents are given by their text, False where by id, None where it takes a store to tell.
        is_judged: Whether negatives are documents of a corpus that judges found irrelevant, and not the candidates that a query lists.
    """

    name: str
    examples: Sequence[Example]
    holds_texts: bool | None = None
    is_judged: bool = False

    def __len__(self) -> int:
        return len(self.examples)


@dataclass(frozen=True, slots=True)
class ExampleStream:
    """A data set of which only a few examples are in memory at a time.

    Attributes:
        name: For tables and reports.
        examples: In file order; ends with a DataError where rows were at fault. Those of a labelled row may have negatives alone.
        remarks: Gives sentences on the rows, once they are read.
    """

    name: str
    examples: Iterator[Example]
    remarks: Callable[[], list[str]] = list


@dataclass(frozen=True, slots=True)
class LanguageGridSet:
    """Sentence pairs in several languages with a three-way label (the layout of XNLI).

    Attributes:
        name: For tables and reports.
        languages: Codes, in the order of every inner mapping.
        labels: ``entailment``, ``neutral`` or ``contradiction`` for each pair.
        premises: For each pair, its premise in every language.
        hypotheses: For each pair, its hypothesis in every language; `grid_id` names them as documents.
        incomplete: Languages that some pairs have and some have not, and in what rows they are missing.
    """

    name: str
    languages: tuple[str, ...]
    labels: Sequence[str]
    premises: Sequence[Mapping[str, str]] = field(repr=False)
    hypotheses: Sequence[Mapping[str, str]] = field(repr=False)
    incomplete: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out."""
        lost = ", ".join(f"{language} ({where})" for language, where in self.incomplete.items())
        return (f"languages left out, for rows without them: {lost}; complete these rows to have them measured",) if lost else ()


def text_id(text: str) -> str:
    """Address of a document that has no id of its own: ``text:`` and 128 bits of SHA-256 of its UTF-8 bytes, in hexadecimal."""
    return "text:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def invented_id(number: int, text: str) -> str:
    """Id of a query that has none of its own: row `number`, and 48 bits of `text_id`, so that no document goes by it."""
    return f"row-{number}-{text_id(text).removeprefix('text:')[:12]}"


def grid_id(pair: int, language: str) -> str:
    """Document id of the hypothesis of sentence pair `pair` (its position in the file, from 0) in `language`."""
    return f"{pair}:{language}"


POSITIVE = "entailment"


NEGATIVES = ("neutral", "contradiction")
