"""Corpora on disk by the document tower that embedded them: no document is encoded twice, for a tuned query tower or a later suite."""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from adiabat.data.records import Document, text_id
from adiabat.model.towers import DualEncoder
from adiabat.store.build import build_store, is_store
from adiabat.store.embeddings import Store
from adiabat.store.lexical import LexicalIndex, build_lexical
from adiabat.suite.kept import folder_names
from adiabat.tasks.data import left_out_was_said
from adiabat.watch import Watch

DIGITS = 12
"""Of a SHA-256 in the name of a folder."""

CHECKED_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class CorpusAtHand:
    """A corpus that was read once and found sound.

    Attributes:
        name: For folders and messages.
        sha256: Of ids and texts.
        documents: Gives it from its beginning.
        stores: Directories of the user that may hold its vectors.
    """

    name: str
    sha256: str
    documents: Callable[[], Iterator[Document]]
    stores: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Catalogue:
    """Where the documents of a corpus stand in it.

    Attributes:
        path: For messages.
        doc_ids: By row.
        texts: Row by `text_id` of a text, the first of equal ones.
    """

    path: Path
    doc_ids: Sequence[str]
    texts: Mapping[str, int]

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {doc_id: row for row, doc_id in enumerate(self.doc_ids)}

    def rows(self, doc_ids: Sequence[str]) -> Int64[np.ndarray, " n"]:
        """Rows of documents by their ids.

        Args:
            doc_ids: Any ids.

        Returns:
            One row per id, -1 for an unknown one.
        """
        return np.array([self._row_of.get(doc_id, -1) for doc_id in doc_ids], dtype=np.int64)

    def rows_of_texts(self, texts: Collection[str]) -> dict[str, int]:
        """Rows of documents by their texts.

        Args:
            texts: Any texts.

        Returns:
            Text to row, for those that are known.
        """
        return {text: row for text in texts if (row := self.texts.get(text_id(text))) is not None}


@dataclass(frozen=True, slots=True)
class Corpora:
    """Where vectors and word indexes of corpora are kept.

    Attributes:
        folder: Of all of them.
        watch: Told how far embedding is.
        fitting: Stores of the user that were found to hold a corpus, by it and them.
    """

    folder: Path
    watch: Watch
    fitting: dict[tuple[str, Path], bool] = field(default_factory=dict)

    def store(self, model: DualEncoder, corpus: CorpusAtHand) -> Store:
        """The vectors of a corpus by a model's document tower: those at hand, or embedded now and kept.

        A call that was cut short is gone on with.

        Args:
            model: Whose document tower.
            corpus: Its documents.

        Returns:
            The store.
        """
        fingerprint = model.fingerprint("document")
        for place in corpus.stores:
            store = Store.open(place)
            if not store.differences(fingerprint) and self._holds(store, corpus):
                return store
        tower = hashlib.sha256(json.dumps(fingerprint.to_json(), sort_keys=True).encode()).hexdigest()
        place = self._place(corpus) / tower[:DIGITS]
        if is_store(place):
            # Its folder says what it is of, and a finished store never changes.
            return Store.open(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        label = f"{model.name}: embedding {corpus.name}"

        def told(done: int, total: int) -> None:
            self.watch.progress(label, done, total)

        with left_out_was_said():
            return build_store(model, corpus.documents, place, on_progress=told, source=corpus.name, encoder_name=model.name).store

    def index(self, corpus: CorpusAtHand, *, stemmer: str | None) -> LexicalIndex:
        """The BM25 index of a corpus.

        Args:
            corpus: Its documents.
            stemmer: Language whose words are cut to stems; None leaves them whole.

        Returns:
            The index.
        """
        place = self._place(corpus) / (f"bm25-{stemmer}" if stemmer else "bm25")
        if (place / "lexical.json").exists():
            return LexicalIndex.open(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        with left_out_was_said():
            texts = (document.text for document in corpus.documents())
            return build_lexical(texts, place, corpus=corpus.sha256, stemmer=stemmer)

    def catalogue(self, corpus: CorpusAtHand) -> Catalogue:
        """Where the documents of a corpus stand in its index.

        Args:
            corpus: Its documents.

        Returns:
            Their rows, by id and by text.
        """
        with left_out_was_said():
            ids = [(document.doc_id, text_id(document.text)) for document in corpus.documents()]
        return Catalogue(
            self._place(corpus), [doc_id for doc_id, _ in ids], {text: row for row, (_, text) in reversed(list(enumerate(ids)))}
        )

    def _place(self, corpus: CorpusAtHand) -> Path:
        return self.folder / f"{folder_names([corpus.name])[0]}-{corpus.sha256[:DIGITS]}"

    def _holds(self, store: Store, corpus: CorpusAtHand) -> bool:
        """Whether a store holds the documents of a corpus and no others."""
        asked = (corpus.sha256, Path(store.path))
        if asked not in self.fitting:
            with left_out_was_said():
                self.fitting[asked] = _holds(store, corpus.documents())
        return self.fitting[asked]


def _holds(store: Store, documents: Iterator[Document]) -> bool:
    count = 0
    while part := list(islice(documents, CHECKED_AT_ONCE)):
        count += len(part)
        rows = store.rows([document.doc_id for document in part])
        if count > store.count or (rows < 0).any():
            return False
        # Where it keeps none, its ids are believed.
        if store.has_texts and store.texts(rows) != [document.text for document in part]:
            return False
    return count == store.count
