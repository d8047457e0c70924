"""From examples to rows of a store: the stored vector of each positive and negative, and the documents that
are missing.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable
from unicodedata import normalize

import numpy as np
from jaxtyping import Int

from adiabat.config.shared import IdForms
from adiabat.core.arrays import RowNumbers
from adiabat.core.errors import AdiabatError, DataError, several
from adiabat.core.ragged import Ragged
from adiabat.core.text import cut, numbered
from adiabat.core.wording import call_of, option
from adiabat.data.folders import place_of
from adiabat.data.judged_sets import is_judged
from adiabat.data.records import Example, ExampleSet, text_id
from adiabat.data.text_hashes import in_blocks
from adiabat.store.vector_store import Store, require_readable

MAX_NEGATIVE_COLUMNS = 50
"""Maximum number of negatives per query for separate measures by position in the list."""

SHOWN_CHARACTERS = 60
"""Maximum characters of a document in a message."""


@dataclass(frozen=True, slots=True)
class AddressedSet:
    """Examples whose documents are rows of a store.

    Attributes:
        name: Of the data set.
        positives: Rows of relevant documents, at least one per query, each once.
        grades: Relevance of each of them, parallel to `positives`.
        negatives: Rows of irrelevant documents, each once, none of them a positive of the query.
        notes: Notes on dropped documents and merged queries.
        answers: Positives of all entries with a query's text; None if every text has one entry. See `known`.
        is_judged: As in `ExampleSet`.
        clusters: Numbers of the values of `Example.clusters` of each query; None if no query has one.
        scores: A teacher's score of each document that a query lists, by its row; empty for queries without.
        unscored: Place of the first query without such scores; "" if all have some.
        negative_columns: Rows of the listed negatives in their order, if every query has one positive and
            equally many negatives, at least two, so that the d-th negatives of queries are comparable; None
            otherwise.
    """

    name: str
    query_ids: list[str]
    queries: list[str]
    positives: Ragged
    grades: Ragged
    negatives: Ragged
    notes: tuple[str, ...] = ()
    answers: Ragged | None = None
    is_judged: bool = False
    negative_columns: Int[np.ndarray, "q d"] | None = None
    clusters: Ragged | None = None
    scores: Sequence[Mapping[int, float]] = ()
    unscored: str = ""

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def known(self) -> Ragged:
        """Rows that must never count as a query's negatives: its positives, and those of every other entry of
        the same text.
        """
        return self.positives if self.answers is None else self.answers

    def take(self, indices: Int[np.ndarray, " n"]) -> "AddressedSet":
        """Some of the queries."""
        return replace(
            self,
            query_ids=[self.query_ids[index] for index in indices],
            queries=[self.queries[index] for index in indices],
            positives=self.positives.take(indices),
            grades=self.grades.take(indices),
            negatives=self.negatives.take(indices),
            answers=None if self.answers is None else self.answers.take(indices),
            clusters=None if self.clusters is None else self.clusters.take(indices),
            scores=[self.scores[index] for index in indices] if self.scores else (),
            negative_columns=None if self.negative_columns is None else self.negative_columns[indices],
        )


def joined(first: AddressedSet, second: AddressedSet) -> AddressedSet:
    """The queries of two sets of one store, whose clusters are numbered alike, with the name of the first;
    their negatives have no common order.
    """
    clusters = answers = None
    if first.clusters is not None and second.clusters is not None:
        clusters = first.clusters.followed_by(second.clusters)
    if first.answers is not None or second.answers is not None:
        answers = first.known.followed_by(second.known)
    return AddressedSet(
        first.name,
        [*first.query_ids, *second.query_ids],
        [*first.queries, *second.queries],
        positives=first.positives.followed_by(second.positives),
        grades=first.grades.followed_by(second.grades),
        negatives=first.negatives.followed_by(second.negatives),
        notes=tuple(dict.fromkeys((*first.notes, *second.notes))),
        answers=answers,
        is_judged=first.is_judged and second.is_judged,
        clusters=clusters,
        scores=[*first.scores, *second.scores] if first.scores and second.scores else (),
        unscored=first.unscored or second.unscored,
    )


@runtime_checkable
class Addresses(Protocol):
    """Looks documents up by id and by text: a store, or the ids and texts of a corpus."""

    @property
    def path(self) -> Path:
        """Name for messages."""

    def rows(self, doc_ids: Sequence[str]) -> RowNumbers:
        """Row of each id; -1 for an unknown id."""

    def rows_of_texts(self, texts: Collection[str]) -> dict[str, int]:
        """The row of each known text."""


Find = Callable[[Sequence[str]], RowNumbers]
"""The row of each id, -1 for an unknown one."""


def other_forms(ids: Iterable[str], find: Find) -> dict[str, str]:
    """Unknown ids, each with a known one that differs from it in its Unicode form alone (NFC or NFD).

    The composed form (NFC) is looked for last, and so wins where both are known.
    """
    known: dict[str, str] = {}
    foreign = [entry for entry in dict.fromkeys(ids) if not entry.isascii()]
    missing = list(compress(foreign, (find(foreign) < 0).tolist()))
    for form in ("NFD", "NFC"):
        forms = [normalize(form, entry) for entry in missing]
        is_known = (find(forms) >= 0).tolist()
        known |= zip(compress(missing, is_known), compress(forms, is_known), strict=True)
    return known


def with_known_ids(examples: ExampleSet, find: Find) -> ExampleSet:
    """Examples with the ids that their documents have, where these differ in Unicode form."""
    known = other_forms(documents_named(examples), find)
    if not known:
        return examples

    def renamed(entries: Sequence[str]) -> tuple[str, ...]:
        return tuple(known.get(entry, entry) for entry in entries)

    renewed = [
        replace(each, positives=renamed(each.positives), negatives=renamed(each.negatives))
        for each in examples.examples
    ]
    return replace(examples, examples=tuple(renewed))


def documents_named(examples: ExampleSet) -> list[str]:
    """The documents of all examples, each once."""
    listed = ((*example.positives, *example.negatives) for example in examples.examples)
    return list(dict.fromkeys(chain.from_iterable(listed)))


def forms_advice(missing: Iterable[str], find: Find) -> str:
    """What to do where missing ids differ from known ones in Unicode form alone; "" where none does."""
    known = other_forms(missing, find)
    if not known:
        return ""
    return f'{len(known):,} of them differ in Unicode form alone (NFC, NFD): set data.ids = "nfc"'


def address(
    examples: ExampleSet,
    store: Addresses,
    *,
    missing: Literal["error", "drop"] = "error",
    ids: IdForms = "exact",
    merge_equal: bool = False,
) -> AddressedSet:
    """Find every document of a data set in a store, by its id, by the hash of its text, or by its text.

    A document that a query lists twice counts once, with its highest grade; a negative that is also a
    positive is dropped. Entries of equal
    query text, such as those of a file with one pair per row, share their positives: `AddressedSet.known`
    holds them all, and none of them stays a negative.

    Args:
        missing: Whether a document missing from the store is an error, or dropped with a note.
        ids: Whether ids must be exact, or may differ in their Unicode form.
        merge_equal: Whether entries of equal query text become one query.
    """
    examples = examples if ids == "exact" else with_known_ids(examples, store.rows)
    entries = documents_named(examples)
    rows = rows_of_entries(entries, store, ids_alone=examples.holds_texts is False)
    row_of = dict(zip(entries, rows.tolist(), strict=True))
    absent = missing_documents(examples, row_of)
    if absent and missing == "error":
        usual = f"embed them ({call_of('embed')}, with {option('append', True)}), or set data.missing = drop"
        raise DataError(
            f"{examples.name}: every document must be in the store {store.path}, it lacks "
            f"{several(absent, of='documents')}; {forms_advice(row_of, store.rows) or usual}"
        )
    queries, merged = _merged(examples) if merge_equal else (examples, "")
    addressed = sharing_answers(_pack(queries, row_of, len(absent), merged))[0]
    if not len(addressed):
        raise DataError(
            f"{examples.name}: at least one query must have a positive document in the store {store.path}, "
            "got none; name the corpus that they were judged on"
        )
    if merge_equal and not absent and not merged:
        addressed = replace(addressed, negative_columns=_negative_columns(examples, row_of))
    return addressed


def sharing_answers(*sets: AddressedSet) -> tuple[AddressedSet, ...]:
    """Let the entries of equal query text, in any of several sets over one store, share their positives."""
    answers: dict[str, dict[int, None]] = {}
    for examples in sets:
        for row, query in enumerate(examples.queries):
            answers.setdefault(query, {}).update(dict.fromkeys(examples.positives[row].tolist()))
    if len(answers) == sum(map(len, sets)):
        return sets
    return tuple(_with_answers(examples, [answers[query] for query in examples.queries]) for examples in sets)


def _with_answers(examples: AddressedSet, answers: Sequence[dict[int, None]]) -> AddressedSet:
    """Examples with the positives of all entries of each text, and without negatives that are among them."""
    negatives = Ragged.of(
        [negative for negative in examples.negatives[row].tolist() if negative not in known]
        for row, known in enumerate(answers)
    )
    notes = examples.notes
    if dropped := len(examples.negatives.values) - len(negatives.values):
        note = (
            f"{examples.name}: {dropped:,} listed {numbered('negative', dropped)} left out, because another "
            "entry of the same question has it as a positive"
        )
        notes = (*notes, note)
    return replace(
        examples, negatives=negatives, notes=notes, answers=Ragged.of(list(known) for known in answers)
    )


def _merged(examples: ExampleSet) -> tuple[ExampleSet, str]:
    """One example for each distinct query text, with the documents of all its entries, and a note on them."""
    by_query: dict[str, list[Example]] = {}
    for example in examples.examples:
        by_query.setdefault(example.query, []).append(example)
    if len(by_query) == len(examples):
        return examples, ""
    merged = [_joined(entries) if len(entries) > 1 else entries[0] for entries in by_query.values()]
    shared = [len(entries) for entries in by_query.values() if len(entries) > 1]
    note = (
        f"{examples.name}: {sum(shared):,} rows share their question with another; merged to "
        f"{len(shared):,} {numbered('query', len(shared))}"
    )
    return replace(examples, examples=tuple(merged)), note


def _joined(entries: Sequence[Example]) -> Example:
    """One example with the documents, grades and clusters of several."""
    grades = (example.grades or (1,) * len(example.positives) for example in entries)
    return replace(
        entries[0],
        positives=tuple(chain.from_iterable(example.positives for example in entries)),
        grades=tuple(chain.from_iterable(grades)),
        negatives=tuple(chain.from_iterable(example.negatives for example in entries)),
        clusters=tuple(chain.from_iterable(example.clusters for example in entries)),
        scores=(),
    )


def rows_of_entries(
    entries: list[str], store: Addresses, *, ids_alone: bool = False
) -> Int[np.ndarray, " entries"]:
    """Find documents in a store by their id, by the hash of their text, or by their text; -1 for a missing
    document.
    """
    rows = store.rows(entries)
    unknown = np.flatnonzero(rows < 0)
    if len(unknown) and not ids_alone:
        rows[unknown] = store.rows([text_id(entries[index]) for index in unknown])
        unknown = unknown[rows[unknown] < 0]
        # Last, because it reads the hashes of all texts of the store.
        # Texts of a corpus have no surrounding white space.
        texts = [(entries[index], entries[index].strip()) for index in unknown]
        by_text = store.rows_of_texts(set(chain.from_iterable(texts)))
        rows[unknown] = [by_text.get(text, by_text.get(bare, -1)) for text, bare in texts]
    return rows


def missing_documents(examples: ExampleSet, row_of: Mapping[str, int]) -> list[str]:
    """Each missing document once, with the line that first names it."""
    phrases: dict[str, str] = {}
    for example in examples.examples:
        place = example.location or examples.name
        for entry in (*example.positives, *example.negatives):
            if row_of[entry] < 0:
                phrases.setdefault(entry, f"{place}: {cut(entry, limit=SHOWN_CHARACTERS)!r}")
    return list(phrases.values())


def _pack(examples: ExampleSet, row_of: Mapping[str, int], absent: int, merged: str) -> AddressedSet:
    """Rows of positives and negatives per query, without missing documents, and without queries that lost all
    positives. `merged` is a note.
    """
    ids, queries, positives, grades, negatives, groups, scores = [], [], [], [], [], [], []
    unscored = ""
    for example in examples.examples:
        graded = _graded(
            [row_of[entry] for entry in example.positives], example.grades or (1,) * len(example.positives)
        )
        if not graded:
            continue
        ids.append(example.query_id)
        queries.append(example.query)
        positives.append(list(graded))
        grades.append(list(graded.values()))
        irrelevant = dict.fromkeys(row_of[entry] for entry in example.negatives)
        negatives.append([row for row in irrelevant if row >= 0 and row not in graded])
        groups.append(example.clusters)
        scores.append(_scores_by_row(example, row_of))
        if not example.scores:
            unscored = unscored or example.location or examples.name
    dropped = len(examples) - len(queries)
    left_out = (
        f"{examples.name}: {absent:,} {numbered('document', absent)} missing from the store left out, and "
        f"{dropped:,} {numbered('query', dropped)} without a positive"
    )
    notes = tuple(note for note in (left_out if absent else "", merged) if note)
    addressed = AddressedSet(
        examples.name, ids, queries, Ragged.of(positives), Ragged.of(grades), Ragged.of(negatives), notes
    )
    numbers = {group: number for number, group in enumerate(dict.fromkeys(chain.from_iterable(groups)))}
    clusters = Ragged.of([numbers[group] for group in of_query] for of_query in groups) if numbers else None
    return replace(
        addressed,
        is_judged=examples.is_judged,
        clusters=clusters,
        scores=scores if any(scores) else (),
        unscored=unscored,
    )


def _scores_by_row(example: Example, row_of: Mapping[str, int]) -> dict[int, float]:
    """A teacher's scores by row; of a document that is listed twice, the first one."""
    scores: dict[int, float] = {}
    if example.scores:
        for entry, score in zip((*example.positives, *example.negatives), example.scores, strict=True):
            scores.setdefault(row_of[entry], score)
    return scores


def _negative_columns(examples: ExampleSet, row_of: Mapping[str, int]) -> Int[np.ndarray, "q d"] | None:
    """Rows of the listed negatives, if all queries have one positive and list equally many."""
    sizes = {(len(example.positives), len(example.negatives)) for example in examples.examples}
    positives, negatives = next(iter(sizes))
    if examples.is_judged or len(sizes) > 1 or positives != 1 or not 2 <= negatives <= MAX_NEGATIVE_COLUMNS:
        return None
    return np.array([[row_of[entry] for entry in example.negatives] for example in examples.examples])


def _graded(rows: Sequence[int], grades: Sequence[int]) -> dict[int, int]:
    """The highest grade of each row that is not -1, in the order of first mention."""
    highest: dict[int, int] = {}
    for row, grade in zip(rows, grades, strict=True):
        if row >= 0:
            highest[row] = max(grade, highest.get(row, grade))
    return highest


def stored_documents(store: Store, rows: Int[np.ndarray, " n"]) -> dict[str, Iterator[str]]:
    """Documents of a store, for `TrainedTexts.of`."""
    name, take = ("documents", store.texts) if store.has_texts else ("doc_ids", store.doc_ids)
    return {name: in_blocks(take, rows)}


def require_inputs(
    examples: Iterable[str], *, corpora: Iterable[str] = (), stores: Iterable[str] = (), whole: bool = False
) -> None:
    """Refuse inputs that are missing or of an unknown format, all at once; and examples of several splits,
    unless they are `whole`.
    """
    checks: list[tuple[Callable[[str], object], Iterable[str]]] = [
        (require_readable, stores),
        (lambda source: is_judged(source) or place_of(source, whole=whole), examples),
        (_corpus_form, corpora),
    ]
    faults: list[AdiabatError] = []
    for check, sources in checks:
        for source in dict.fromkeys(sources):
            try:
                check(source)
            except AdiabatError as fault:
                faults.append(fault)
    # A single fault keeps its class.
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise DataError(several(map(str, faults)))


def _corpus_form(source: str) -> object:
    """Refuse a corpus that is missing or of an unknown format."""
    # Tuning has no corpus to check, so it does not load the reader.
    from adiabat.data.corpora import documents_file

    return place_of(documents_file(source), whole=True)
