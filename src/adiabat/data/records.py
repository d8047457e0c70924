"""Records that rooms exchange, and the legend of dimensions.

Dimensions, one letter each, the same everywhere (lower case in shape annotations):
``B`` queries of a step, ``N`` documents scored, ``H`` hard negatives per query, ``L`` tokens, ``D`` hidden
width, ``E`` embedding width.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Literal

Side = Literal["query", "document"]
"""Tower of a text."""

SIDES: tuple[Side, Side] = ("query", "document")

POSITIVE = "entailment"
NEGATIVES = ("neutral", "contradiction")
LABELS = (POSITIVE, *NEGATIVES)
"""Labels of sentence pairs; files may also give their number, as XNLI on the hub does."""


@dataclass(frozen=True, slots=True)
class Document:
    """One text of a corpus; a title, if any, precedes it, followed by one space."""

    doc_id: str
    text: str


def is_own_document(query: str, document: str) -> bool:
    """Whether a document that has a query's id is the query itself, as in ArguAna and Quora.

    Two sets numbered from 1 share ids by chance, so the texts must also be equal, apart from white space and
    a title of the document.
    """
    query_words, document_words = (" ".join(text.split()) for text in (query, document))
    return document_words == query_words or document_words.endswith(f" {query_words}")


@dataclass(frozen=True, slots=True)
class Example:
    """A query with documents that answer it and documents that do not.

    Attributes:
        positives: Relevant documents, at least one in an `ExampleSet`: document ids, or texts, which
            `text_id` turns into ids.
        negatives: Irrelevant documents, possibly none; ids or texts likewise.
        clusters: Values that the query shares with those that it is not independent of.
        scores: A teacher's scores of the positives and then of the negatives; empty if the row has none.
    """

    query_id: str
    query: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...] = ()
    grades: tuple[int, ...] = ()
    location: str = ""
    topic: str = ""
    tag: str = ""
    clusters: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ExampleSet:
    """A data set of (query, positives, negatives), in file order.

    Attributes:
        holds_texts: True if documents are texts, False if they are ids, None if only a store can tell.
        is_judged: Whether negatives were judged irrelevant in a corpus, rather than listed as candidates of a
            query.
    """

    name: str
    examples: Sequence[Example]
    holds_texts: bool | None = None
    is_judged: bool = False

    def __len__(self) -> int:
        return len(self.examples)


@dataclass(frozen=True, slots=True)
class ExampleStream:
    """A data set read a few examples at a time; those of a labelled row may have only negatives.

    The examples, in file order, end with a DataError if rows were faulty; `remarks` returns notes on the rows
    read.
    """

    name: str
    examples: Iterator[Example]
    remarks: Callable[[], list[str]] = list


@dataclass(frozen=True, slots=True)
class LanguageGridSet:
    """Sentence pairs in several languages with a three-way label (the layout of XNLI)."""

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
        """A note on languages that are left out."""
        if not self.incomplete:
            return ()
        languages = ", ".join(f"{language} ({locations})" for language, locations in self.incomplete.items())
        left_out = f"languages left out, since some rows lack them: {languages}"
        return (f"{left_out}; complete these rows to measure them",)


def text_id(text: str) -> str:
    """Id for a document without one: ``text:`` and 128 bits of SHA-256 of its UTF-8 bytes, in hexadecimal."""
    return "text:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def invented_id(number: int, text: str) -> str:
    """Id for a query without one: row `number`, and 48 bits of `text_id`, so that it never equals a
    document's id.
    """
    return f"row-{number}-{text_id(text).removeprefix('text:')[:12]}"


def grid_id(pair: int, language: str) -> str:
    """Document id of the hypothesis of sentence pair `pair` (its position in the file, from 0) in
    `language`.
    """
    return f"{pair}:{language}"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Everything that decides the vectors of one tower.

    Attributes:
        backbone: Model family (``model_type`` of the configuration), and options with which a directory
            changes its configuration.
        weights: SHA-256 over the names and bytes of backbone and projection.
        tokenizer: SHA-256 of the tokenizer's definition.
        prompt: Text prepended to every text of the side.
        max_tokens: Maximum tokens of a text, including special tokens.
        width: Width of a vector (E).
        quantised: ``int8`` and the SHA-256 of the quantised weights, if another graph of the same tower made
            the vectors; "" otherwise.
    """

    backbone: str
    weights: str
    tokenizer: str
    pooling: str
    normalize: bool
    prompt: str
    max_tokens: int
    width: int
    quantised: str = ""

    def differences(self, other: "Fingerprint") -> list[str]:
        """A phrase for each field that differs, such as ``prompt "passage: " in the store, "" in the
        encoder``.

        Quantised vectors are those of their tower, to a cosine that the store states: a tower that is not
        quantised differs from none of them by that.
        """
        compared = self if other.quantised else replace(self, quantised="")
        return [
            f"{field.name} {_phrase(getattr(compared, field.name))} in the store, "
            f"{_phrase(getattr(other, field.name))} in the encoder"
            for field in fields(self)
            if getattr(compared, field.name) != getattr(other, field.name)
        ]

    def to_json(self) -> dict[str, str | bool | int]:
        """Plain data for a manifest; earlier versions refuse a key that they do not know, so it is there only
        if it says something.
        """
        record = asdict(self)
        if not self.quantised:
            del record["quantised"]
        return record


def _phrase(value: str | bool | int) -> str:
    """A value for a message: texts in quotes, hashes cut to twelve digits."""
    if isinstance(value, str):
        return f'"{value[:12]}..."' if len(value) == 64 else f'"{value}"'
    return str(value)
