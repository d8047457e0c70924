"""What is trained on and what is validated on: read, found in the store, parted, and given negatives."""

import hashlib
from dataclasses import replace

import numpy as np

from adiabat.config.tuning import TuneDataSection
from adiabat.core.errors import DataError
from adiabat.core.ragged import Ragged
from adiabat.data.example_stream import held_out_queries
from adiabat.data.examples import read_examples
from adiabat.data.records import LanguageGridSet
from adiabat.models.embedding_head import Similarity
from adiabat.models.encoder import Encoder
from adiabat.store.addressing import AddressedSet, address, sharing_answers
from adiabat.store.search import search
from adiabat.store.vector_store import Store

MINED_NEGATIVES = 10
"""Validation negatives per query where the data lists none: the hardest for the untuned tower."""


def read_data(path: str, settings: TuneDataSection, store: Store) -> tuple[AddressedSet, AddressedSet]:
    """Read the examples, find their documents in the store, and part training from validation."""
    everything = _read(path, settings.split, settings, store, usual="train")
    if settings.validation:
        listed = _read(settings.validation, settings.validation_split or settings.split, settings, store, usual="dev")
        train, validation = sharing_answers(everything, listed)
        return train, _with_overlap_noted(validation, train)
    held_out = held_out_queries(everything.queries, settings.validation_fraction, settings.max_validation)
    trained_rows = np.setdiff1d(np.arange(len(everything)), held_out)
    if not len(held_out) or not len(trained_rows):
        raise DataError(
            f"{path}: data.validation_fraction = {settings.validation_fraction} must leave queries on both sides, got {len(held_out)} of "
            f"{len(everything)} held out; choose another fraction, or name a data.validation file"
        )
    return everything.take(trained_rows), everything.take(held_out)


def _with_overlap_noted(validation: AddressedSet, train: AddressedSet) -> AddressedSet:
    shared = trained_too(validation, train)
    if not shared:
        return validation
    note = f"{shared:,} of {len(validation):,} validation queries are also trained on, so validation looks better than it is"
    return replace(validation, notes=(*validation.notes, note))


def trained_too(validation: AddressedSet, train: AddressedSet) -> int:
    """How many validation queries have a text that is trained on."""
    trained = set(train.queries)
    return sum(query in trained for query in validation.queries)


def _read(path: str, split: str | None, settings: TuneDataSection, store: Store, *, usual: str) -> AddressedSet:
    examples = read_examples(path, split=split, columns=settings.columns.given(), usual_split=usual)
    if isinstance(examples, LanguageGridSet):
        raise DataError(f"{path} must hold queries with positives, got a language grid; use it with adiabat evaluate")
    return address(examples, store, missing=settings.missing)


def with_negatives(
    validation: AddressedSet, store: Store, tower: Encoder, *, similarity: Similarity, mine_all: bool = False
) -> AddressedSet:
    """Give each validation query that lists no negatives the hardest documents for the tower before tuning."""
    bare = np.flatnonzero((validation.negatives.lengths == 0) | mine_all)
    if not len(bare):
        return validation
    vectors = tower.encode([validation.queries[row] for row in bare], side="query", precision="fp32")
    hits = search(store, vectors, MINED_NEGATIVES, similarity=similarity, excluded=[validation.known[int(row)] for row in bare])
    mined = {int(row): hit_rows[hit_rows >= 0] for row, hit_rows in zip(bare, hits.rows, strict=True)}
    lonely = sum(not len(hit_rows) for hit_rows in mined.values())
    if lonely:
        raise DataError(
            f"{store.path} must hold a document beside a validation query's positives, got none for {lonely:,} of them; "
            "list negatives in the data, or add documents to the store"
        )
    lists = [mined.get(row, validation.negatives[row]) for row in range(len(validation))]
    notes = validation.notes
    if replaced := int((validation.negatives.lengths[bare] > 0).sum()):
        listing = f"the negatives that {replaced:,} of {len(validation):,} validation queries list are replaced by the store's"
        notes = (*notes, f"{listing} {MINED_NEGATIVES} hardest, since training takes its negatives from the store too")
    return replace(validation, negatives=Ragged.of(lists), notes=notes)


def examples_digest(*sets: AddressedSet) -> str:
    """SHA-256 over queries, positives and negatives of data sets, in their order."""
    digest = hashlib.sha256()
    for examples in sets:
        lengths = np.array([len(examples), *map(len, examples.queries)], dtype=np.int64)
        digest.update(lengths.data)
        digest.update("".join(examples.queries).encode("utf-8", "surrogatepass"))
        for lists in (examples.positives, examples.negatives):
            digest.update(np.concatenate([lists.offsets, lists.values]).astype(np.int64).data)
    return digest.hexdigest()
