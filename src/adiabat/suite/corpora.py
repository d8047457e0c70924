"""Corpora on disk by the document tower that embedded them: no document is encoded twice, for a tuned query tower or a later suite."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from adiabat.data.corpora import Blank
from adiabat.data.records import Document, text_id
from adiabat.locks import sole_writer
from adiabat.model.fingerprint import Fingerprint
from adiabat.model.towers import DualEncoder
from adiabat.store.build import build_store, is_store
from adiabat.store.embeddings import Store
from adiabat.store.lexical import LexicalIndex, build_lexical
from adiabat.store.wordless import known_documents
from adiabat.suite.kept import folder_names
from adiabat.tasks.data import left_out_was_said
from adiabat.tasks.systems import LexicalSystem
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
        blank: Whether documents without a token that a static model knows are faults, or are left out.
    """

    name: str
    sha256: str
    documents: Callable[[], Iterator[Document]]
    stores: tuple[Path, ...] = ()
    blank: Blank = "error"


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
        """
        fingerprint = model.fingerprint("document")
        for place in corpus.stores:
            store = Store.open(place)
            if store.differences(fingerprint):
                continue
            if self._holds(model, store, corpus):
                return store
            self.watch.note(f"{place} does not hold {corpus.name} as it stands, and is not used: its documents are others")
        place = self._place(corpus) / _named(fingerprint)
        if is_store(place):
            # Its folder says what it is of, and a finished store never changes.
            return Store.open(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        label = f"{model.name}: embedding {corpus.name}"

        def told(done: int, total: int) -> None:
            self.watch.progress(label, done, total)

        def documents() -> Iterator[Document]:
            return _known(model, corpus, note=self.watch.note)

        with left_out_was_said():
            return build_store(model, documents, place, on_progress=told, source=corpus.name, encoder_name=model.name).store

    def forget(self, fingerprint: Fingerprint) -> None:
        """Remove the vectors of every corpus that were made by a document tower of which no other model will be measured."""
        for place in self.folder.glob(f"*/{_named(fingerprint)}"):
            shutil.rmtree(place, ignore_errors=True)

    def words(self, corpus: CorpusAtHand, *, stemmer: str | None) -> LexicalSystem:
        """BM25 over a corpus: its index at hand, or built now and kept.

        Args:
            stemmer: Language whose words are cut to stems; None leaves them whole.
        """
        with left_out_was_said():
            known = [(document.doc_id, text_id(document.text)) for document in corpus.documents()]

        def read() -> Iterator[Document]:
            with left_out_was_said():
                yield from corpus.documents()

        return LexicalSystem(self._index(corpus, stemmer), [doc_id for doc_id, _ in known], [text for _, text in known], read)

    def _index(self, corpus: CorpusAtHand, stemmer: str | None) -> LexicalIndex:
        place = self._place(corpus) / (f"bm25-{stemmer}" if stemmer else "bm25")
        if index := LexicalIndex.at_hand(place):
            return index
        place.mkdir(parents=True, exist_ok=True)
        with sole_writer(place), left_out_was_said():
            if index := LexicalIndex.at_hand(place):
                return index
            texts = (document.text for document in corpus.documents())
            return build_lexical(texts, place, corpus=corpus.sha256, stemmer=stemmer)

    def _place(self, corpus: CorpusAtHand) -> Path:
        return self.folder / f"{folder_names([corpus.name])[0]}-{corpus.sha256[:DIGITS]}"

    def _holds(self, model: DualEncoder, store: Store, corpus: CorpusAtHand) -> bool:
        """Whether a store holds the documents of a corpus and no others."""
        asked = (corpus.sha256, Path(store.path))
        if asked not in self.fitting:
            with left_out_was_said():
                self.fitting[asked] = _holds(store, _known(model, corpus, note=lambda said: None))
        return self.fitting[asked]


def _named(fingerprint: Fingerprint) -> str:
    """Folder of the vectors of a document tower."""
    return hashlib.sha256(json.dumps(fingerprint.to_json(), sort_keys=True).encode()).hexdigest()[:DIGITS]


def _known(model: DualEncoder, corpus: CorpusAtHand, *, note: Callable[[str], None]) -> Iterator[Document]:
    """The documents that get a vector."""
    blank = corpus.blank
    return known_documents(model.document, corpus.documents(), blank=blank, source=corpus.name, note=note, setting="tasks.blank")


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
