"""What both towers are trained on: pairs of texts, each distinct text once, with what is known to answer and not to answer each query."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int

from adiabat.config import TrainDataSection
from adiabat.data.corpora import read_corpus
from adiabat.data.examples import is_beir_examples, read_examples
from adiabat.data.records import Example, ExampleSet, LanguageGridSet
from adiabat.data.splitting import held_out_queries
from adiabat.errors import DataError, several
from adiabat.report.wording import cut
from adiabat.store.addressing import Ragged

OF_DOCUMENTS = frozenset(("doc_id", "text", "title"))
"""Columns that `TrainDataSection.corpus` has, and examples have not."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Distinct texts of both sides, in the order in which they first came; pairs name them by their row.

    Attributes:
        queries: Each once.
        documents: Each once; ids where the vectors of a store are read.
        query_ids: The id under which each query came first, for messages.
    """

    queries: list[str]
    documents: list[str]
    query_ids: list[str]


@dataclass(frozen=True, slots=True)
class PairSet:
    """Pairs of a query and a document that answers it.

    Attributes:
        name: Of the data set.
        texts: What the rows below mean; training and validation share it.
        query: Row of each pair's query.
        positive: Row of each pair's document.
        answers: Rows that answer each *query* of `texts`, in any pair of training or validation.
        negatives: Rows listed as not answering each *query*, none of them an answer.
        notes: Sentences on what was left out.
    """

    name: str
    texts: Texts
    query: Int[np.ndarray, " pairs"]
    positive: Int[np.ndarray, " pairs"]
    answers: Ragged
    negatives: Ragged
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.query)

    @property
    def asked(self) -> Int[np.ndarray, " queries"]:
        """Rows of the distinct queries that have a pair, ascending."""
        return np.unique(self.query)

    @property
    def candidates(self) -> Int[np.ndarray, " documents"]:
        """Rows of the documents that a pair has, or one of its queries lists as a negative, ascending: what is ranked in validation."""
        return np.unique(np.concatenate([self.positive, self.negatives.take(self.asked).values]))

    def digest(self) -> str:
        """SHA-256 over texts, pairs and negatives, in their order.

        Returns:
            64 hexadecimal digits.
        """
        digest = hashlib.sha256()
        for texts in (self.texts.queries, self.texts.documents):
            digest.update(np.array([len(texts), *map(len, texts)], dtype=np.int64).data)
            digest.update("".join(texts).encode("utf-8", "surrogatepass"))
        for numbers in (self.query, self.positive, self.negatives.lengths, self.negatives.values):
            digest.update(np.array([len(numbers), *numbers], dtype=np.int64).data)
        return digest.hexdigest()


def read_pairs(source: str, settings: TrainDataSection, *, stored: bool = False) -> tuple[PairSet, PairSet]:
    """Read examples, and part training from validation by the query's text.

    Args:
        source: Of the examples.
        settings: Splits, columns, corpus, and where validation comes from.
        stored: Whether documents are those of a store, so that ids need not be turned into texts.

    Returns:
        Training and validation pairs, over the same texts.

    Raises:
        DataError: If a file is faulty, a document's text is missing, or one of the two parts would be empty.
    """
    everything = _with_texts(_read(source, settings.split, settings, usual="train"), source, settings, stored=stored)
    if not settings.validation:
        (pairs,) = pair_sets(everything)
        return _parted(pairs, source, settings)
    split = settings.validation_split or settings.split
    named = _with_texts(_read(settings.validation, split, settings, usual="dev"), settings.validation, settings, stored=stored)
    train, validation = pair_sets(everything, named)
    shared = len(np.intersect1d(train.asked, validation.asked))
    if shared:
        note = f"{shared:,} of {len(validation.asked):,} validation queries are also trained on, so validation looks better than it is"
        validation = replace(validation, notes=(*validation.notes, note))
    return train, validation


def _read(source: str, split: str | None, settings: TrainDataSection, *, usual: str) -> ExampleSet:
    given = settings.columns.given()
    # With a corpus of its own, those of a document are its columns, not the examples'.
    columns = given if settings.corpus is None else {name: given[name] for name in given if name not in OF_DOCUMENTS}
    examples = read_examples(source, split=split, columns=columns, usual_split=usual)
    if isinstance(examples, LanguageGridSet):
        raise DataError(f"{source} must hold queries with positives, got a language grid; use it with adiabat evaluate")
    return examples


def _with_texts(examples: ExampleSet, source: str, settings: TrainDataSection, *, stored: bool) -> ExampleSet:
    """Put texts in the place of document ids, where the examples hold ids."""
    corpus = settings.corpus or (source if is_beir_examples(source) and not stored else None)
    if corpus is None:
        return examples
    where: dict[str, str] = {}
    for example in examples.examples:
        for entry in (*example.positives, *example.negatives):
            where.setdefault(entry, example.where)
    columns = {name: column for name, column in settings.columns.given().items() if settings.corpus and name in OF_DOCUMENTS}
    # A blank document does no harm where no example names it, and is missing where one does.
    documents = read_corpus(corpus, columns=columns, blank="drop")
    found = {document.doc_id: document.text for document in documents if document.doc_id in where}
    if absent := [f'{place}: "{cut(entry, limit=60)}"' for entry, place in where.items() if entry not in found]:
        raise DataError(
            f"{examples.name}: every document must be in the corpus {corpus}, it lacks {several(absent, of='documents')}; "
            "name the corpus that holds them (data.corpus), or none where the examples hold texts"
        )
    return replace(examples, examples=[_told(example, found) for example in examples.examples], holds_texts=True)


def _told(example: Example, found: dict[str, str]) -> Example:
    positives, negatives = (tuple(found[entry] for entry in entries) for entries in (example.positives, example.negatives))
    return replace(example, positives=positives, negatives=negatives)


def pair_sets(*sets: ExampleSet) -> tuple[PairSet, ...]:
    """Number the texts of data sets, and make one pair of each query with each of its positives.

    Entries of equal query text share what they list, across the sets too; a negative that another entry knows as an answer is left out,
    and counted in a note of the first set.

    Args:
        *sets: With documents as texts.

    Returns:
        One set of pairs for each, over common texts; a pair that is given twice counts once.
    """
    queries: dict[str, int] = {}
    documents: dict[str, int] = {}
    answers: list[dict[int, None]] = []
    listed: list[dict[int, None]] = []
    ids: list[str] = []
    chosen: list[dict[tuple[int, int], None]] = [{} for _ in sets]
    for number, examples in enumerate(sets):
        for example in examples.examples:
            row = queries.setdefault(example.query, len(queries))
            if row == len(answers):
                answers.append({})
                listed.append({})
                ids.append(example.query_id)
            near, far = ([documents.setdefault(text, len(documents)) for text in texts] for texts in (example.positives, example.negatives))
            answers[row].update(dict.fromkeys(near))
            listed[row].update(dict.fromkeys(far))
            chosen[number].update(dict.fromkeys((row, one) for one in near))
    texts, known = Texts(list(queries), list(documents), ids), Ragged.of([list(near) for near in answers])
    wrong = Ragged.of([[far for far in rows if far not in near] for rows, near in zip(listed, answers, strict=True)])
    left_out = sum(map(len, listed)) - len(wrong.values)
    why = f"{left_out:,} of {sum(map(len, listed)):,} listed negatives left out, because they are listed as positives of the same query"
    notes = (why,) if left_out else ()
    return tuple(
        _pair_set(examples.name, texts, list(pairs), known, wrong, () if number else notes)
        for number, (examples, pairs) in enumerate(zip(sets, chosen, strict=True))
    )


def _pair_set(
    name: str, texts: Texts, pairs: Sequence[tuple[int, int]], answers: Ragged, negatives: Ragged, notes: tuple[str, ...]
) -> PairSet:
    query, positive = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return PairSet(name, texts, query, positive, answers, negatives, notes)


def _parted(pairs: PairSet, source: str, settings: TrainDataSection) -> tuple[PairSet, PairSet]:
    held_out = held_out_queries(pairs.texts.queries, settings.validation_fraction, settings.max_validation)
    validated = np.isin(pairs.query, held_out)
    if validated.all() or not validated.any():
        raise DataError(
            f"{source}: data.validation_fraction = {settings.validation_fraction} must leave queries on both sides, got {len(held_out)} of "
            f"{len(pairs.texts.queries)} held out; choose another fraction, or name a data.validation file"
        )
    return _taken(pairs, ~validated), _taken(replace(pairs, notes=()), validated)


def _taken(pairs: PairSet, kept: Bool[np.ndarray, " pairs"]) -> PairSet:
    return replace(pairs, query=pairs.query[kept], positive=pairs.positive[kept])
