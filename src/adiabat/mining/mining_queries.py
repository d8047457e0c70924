"""What is mined for: queries with the documents that answer them, each document found in the corpus or known by its text."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from jaxtyping import Int64

from adiabat.config.shared import DataSection
from adiabat.core.errors import DataError, Faults, several
from adiabat.core.text import counted
from adiabat.data.examples import read_examples
from adiabat.data.records import Example, ExampleSet, LanguageGridSet, text_id
from adiabat.mining.mining_corpus import Documents
from adiabat.store.id_index import LOOKUP_SLICE


@dataclass(frozen=True, slots=True)
class Questions:
    """A data set of queries whose documents are known.

    Attributes:
        name: For messages and statistics.
        examples: In file order.
        holds_ids: Whether documents are given by id, and not by text.
        shared: Of each query text that several examples ask, every entry that answers it in any of them.
        notes: Sentences on what was left out.
    """

    name: str
    examples: Sequence[Example]
    holds_ids: bool
    shared: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.examples)

    def known(self, example: Example) -> tuple[str, ...]:
        """Every entry that answers the query of an example, in that example or in another."""
        return self.shared.get(example.query, example.positives)

    def digest(self) -> str:
        """SHA-256 over ids, queries, positives and negatives, in their order."""
        digest = hashlib.sha256()
        for example in self.examples:
            for parts in ((example.query_id, example.query), example.positives, example.negatives):
                digest.update(len(parts).to_bytes(8, "little"))
                for part in parts:
                    content = part.encode("utf-8", "surrogatepass")
                    digest.update(len(content).to_bytes(8, "little") + content)
        return digest.hexdigest()


def read_data(source: str, settings: DataSection) -> ExampleSet:
    """Read a data set, before anything costly begins."""
    read = read_examples(source, split=settings.split, columns=settings.columns.given(), usual_split="train")
    if isinstance(read, LanguageGridSet):
        raise DataError(f"{source} must hold queries with positives, got a language grid; mine for a file of examples")
    return read


def questions_of(read: ExampleSet, corpus: Documents, settings: DataSection, *, corpus_name: str, listed: bool) -> Questions:
    """See that the corpus has the documents that a data set names.

    Entries are ids where any positive is the id of a document, and texts otherwise; texts need not be in the corpus.
    """
    shared = _shared_answers(read.examples)
    examples, notes = _without_contradictions(read.examples, shared)
    if not listed:
        examples = [replace(example, negatives=()) if example.negatives else example for example in examples]
    holds_ids = read.holds_texts is False or _names_ids(examples, corpus)
    if holds_ids and (absent := _absent(examples, corpus)):
        if settings.missing == "error":
            raise DataError(_missing_phrase(read.name, absent, examples, corpus, corpus_name))
        examples, note = _without(examples, absent)
        notes = [*notes, note]
    if not examples:
        raise DataError(f"{read.name} must hold at least one query whose positives the corpus {corpus_name} has, got none; check both")
    return Questions(read.name, examples, holds_ids, shared, tuple(f"{read.name}: {note}" for note in notes))


def _names_ids(examples: Sequence[Example], corpus: Documents) -> bool:
    """Whether positives are ids: where one is, or most of them would be in other capitals, which must not pass for texts."""
    if any((corpus.rows(part) >= 0).any() for part in _parts(example.positives for example in examples)):
        return True
    entries = frozenset(chain.from_iterable(example.positives for example in examples))
    alike = _in_other_case(entries, corpus)
    return 2 * sum(entry.casefold() in alike for entry in entries) > len(entries)


def _parts(entries: Iterator[tuple[str, ...]]) -> Iterator[list[str]]:
    """Distinct entries, a slice at a time."""
    distinct = list(dict.fromkeys(chain.from_iterable(entries)))
    return (distinct[start : start + LOOKUP_SLICE] for start in range(0, len(distinct), LOOKUP_SLICE))


def _absent(examples: Sequence[Example], corpus: Documents) -> frozenset[str]:
    parts = _parts((*example.positives, *example.negatives) for example in examples)
    return frozenset(part[place] for part in parts for place in np.flatnonzero(corpus.rows(part) < 0))


def _missing_phrase(name: str, absent: frozenset[str], examples: Sequence[Example], corpus: Documents, corpus_name: str) -> str:
    """What is missing and where it is first named; an id that the corpus has in other capitals is told with it."""
    alike = _in_other_case(absent, corpus)
    places: dict[str, str] = {}
    for example in examples:
        for entry in (*example.positives, *example.negatives):
            if entry in absent:
                places.setdefault(entry, example.where or name)
    phrases = [
        f'{place}: "{entry}"' + (f' (which differs only in case from its "{alike[entry.casefold()]}")' if entry.casefold() in alike else "")
        for entry, place in places.items()
    ]
    advice = "ids must be equal to the letter: correct them" if alike else "name the corpus that holds them, or set data.missing = drop"
    return f"{name}: every document must be in the corpus {corpus_name}, it lacks {several(phrases, of='documents')}; {advice}"


def _in_other_case(absent: frozenset[str], corpus: Documents) -> dict[str, str]:
    """Ids of the corpus that equal a missing one but for case, by their folded form."""
    wanted, found = {entry.casefold() for entry in absent}, dict[str, str]()
    for start in range(0, corpus.count, LOOKUP_SLICE):
        for doc_id in corpus.doc_ids(np.arange(start, min(start + LOOKUP_SLICE, corpus.count))):
            if doc_id.casefold() in wanted:
                found.setdefault(doc_id.casefold(), doc_id)
    return found


def _without(examples: Sequence[Example], absent: frozenset[str]) -> tuple[list[Example], str]:
    kept = [
        replace(
            example,
            positives=tuple(entry for entry in example.positives if entry not in absent),
            negatives=tuple(entry for entry in example.negatives if entry not in absent),
        )
        for example in examples
    ]
    left = [example for example in kept if example.positives]
    dropped = counted(len(kept) - len(left), "query")
    return left, f"{counted(len(absent), 'document')} that the corpus lacks left out, and with that {dropped} without a positive"


def _shared_answers(examples: Sequence[Example]) -> dict[str, tuple[str, ...]]:
    """What answers each query text that is asked more than once."""
    first: dict[str, tuple[str, ...]] = {}
    shared: dict[str, dict[str, None]] = {}
    for example in examples:
        before = first.setdefault(example.query, example.positives)
        if before is not example.positives:
            shared.setdefault(example.query, dict.fromkeys(before)).update(dict.fromkeys(example.positives))
    return {query: tuple(entries) for query, entries in shared.items()}


def _without_contradictions(examples: Sequence[Example], shared: Mapping[str, tuple[str, ...]]) -> tuple[list[Example], list[str]]:
    """Take out listed negatives that answer their query, and say where they stood."""
    faults, kept = Faults(shown=3), []
    for example in examples:
        known = set(shared.get(example.query, example.positives)) if example.negatives else set()
        right = tuple(entry for entry in example.negatives if entry not in known)
        if len(right) < len(example.negatives):
            faults.extend(f"{example.where or example.query_id}" for entry in example.negatives if entry in known)
            example = replace(example, negatives=right)
        kept.append(example)
    told = f"listed negatives that equal a positive of their query left out: {faults.told('of them')}"
    return kept, [told] if faults.count else []


def entry_rows(entries: Sequence[str], corpus: Documents, *, holds_ids: bool) -> Int64[np.ndarray, " n"]:
    """Rows of documents that a data set names.

    Returns:
        One row per entry; -1 for a text that is no document of a corpus addressed by texts.
    """
    return corpus.rows(entries if holds_ids else [text_id(entry) for entry in entries])
