"""Measured models by name, loaded when needed, and corpora by the document tower that embedded them."""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path

from adiabat.config.shared import EncoderSection
from adiabat.config.tasks import ModelSection
from adiabat.core.errors import AdiabatError, ConfigError
from adiabat.core.files import is_store, sole_writer
from adiabat.core.progress import Watch
from adiabat.data.corpora import Blank
from adiabat.data.records import Document, text_id
from adiabat.data.trained_texts import TrainedTexts
from adiabat.evaluation.retrieval_data import left_out_was_said
from adiabat.evaluation.score_files import folder_names
from adiabat.evaluation.systems import LexicalSystem
from adiabat.models.fingerprint import Fingerprint
from adiabat.models.towers import DualEncoder
from adiabat.results.suite_result import SuiteModel
from adiabat.store.analysers import analyser_of
from adiabat.store.bm25 import VERSION, LexicalIndex, build_lexical
from adiabat.store.build import build_store
from adiabat.store.text_vectors import known_documents
from adiabat.store.vector_store import Store

Loader = Callable[[str, EncoderSection], DualEncoder]
"""Loads a model by its name, with overrides."""

Recorder = Callable[[str], TrainedTexts | None]
"""Says what the job of a model was trained on; None where the model is of no job."""

LEXICAL = "bm25"
"""Name of a model that is none: words in common. ``bm25:LANGUAGE`` cuts words to their stems."""


def no_record(model: str) -> None:
    """No record: what models were trained on is not looked up."""


def is_lexical(model: str) -> bool:
    """Whether a model's name means BM25."""
    return model.partition(":")[0] == LEXICAL


def _stemmer(model: str) -> str | None:
    """The language that follows the name of BM25."""
    return model.partition(":")[2] or None


@dataclass(frozen=True)
class Subject:
    """One run of a model.

    Attributes:
        name: Of the model, for tables.
        model: What to load.
        encoder: Overrides.
        loader: Loads it.
        recorder: Says what the job of a model was trained on.
    """

    name: str
    model: str
    encoder: EncoderSection
    loader: Loader
    recorder: Recorder = no_record

    @property
    def is_lexical(self) -> bool:
        """Whether it is BM25, which has no vectors."""
        return is_lexical(self.model)

    @property
    def stemmer(self) -> str | None:
        """Of BM25: the language whose words are cut to their stems; None leaves them whole."""
        return _stemmer(self.model)

    @cached_property
    def towers(self) -> DualEncoder:
        """The model, loaded at the first call."""
        return self.loader(self.model, self.encoder)

    @cached_property
    def trained(self) -> TrainedTexts | None:
        """What its job was trained on."""
        return self.recorder(self.model)

    @cached_property
    def key(self) -> str:
        """SHA-256 of what its scores follow from: weights and settings of both towers, what they compare by; of BM25 the rule for words."""
        parts: list[object] = [self.model, VERSION]
        if not self.is_lexical:
            parts = [self.towers.fingerprint(side).to_json() for side in ("query", "document")]
            # Said only where it is not the usual one.
            parts += [] if self.towers.similarity == "cosine" else [self.towers.similarity]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def about(self, runs: Sequence["Subject"]) -> SuiteModel:
        """For tables and reports."""
        others = [run.model for run in runs] if len(runs) > 1 else []
        if self.is_lexical:
            words = f"cut to {self.stemmer.capitalize()} stems" if self.stemmer else "as they stand"
            about = f"BM25 ranks by the words in common, {words}; it has no vectors, so it does retrieval and triplets alone"
            return SuiteModel(self.name, self.model, notes=[about])
        query, document = self.towers.query, self.towers.document
        return SuiteModel(
            name=self.name,
            model=self.model,
            runs=others,
            parameters=self.towers.parameters,
            width=query.width,
            query_prompt=query.settings.query_prompt,
            document_prompt=document.settings.document_prompt,
        )


def subjects_of(
    sections: Sequence[ModelSection], names: Sequence[str], encoder: EncoderSection, loader: Loader, recorder: Recorder = no_record
) -> list[tuple[Subject, ...]]:
    """The models of a suite and of the command line, each with its runs."""
    wanted: list[tuple[str, tuple[str, ...], EncoderSection]] = [(one.name, (one.model, *one.runs), one.encoder) for one in sections]
    # BM25 encodes nothing, so what is set for all models is not for it.
    wanted += [(name, (name,), EncoderSection() if is_lexical(name) else encoder) for name in dict.fromkeys(names)]
    faults = list(_faults(wanted))
    if faults:
        raise ConfigError("; ".join(faults))
    return [tuple(Subject(name, run, own, loader, recorder) for run in runs) for name, runs, own in wanted]


def _faults(wanted: Sequence[tuple[str, Sequence[str], EncoderSection]]) -> Iterator[str]:
    if not wanted:
        yield "at least one model must be given, got none; name it before --suite, or list it under [[models]]"
    for name, count in Counter(name for name, _, _ in wanted).items():
        if count > 1:
            yield f"models must have names of their own, got {name} {count} times; give them names under [[models]]"
    for name, runs, own in wanted:
        if any(map(is_lexical, runs)) and (len(runs) > 1 or own != type(own)()):
            yield f"{name}: BM25 must have neither runs nor encoder settings: it draws nothing and encodes nothing; leave them out"
        for run, count in Counter(runs).items():
            if count > 1:
                yield f"models.runs of {name} must differ, got {run} {count} times; name each once: counted twice, it narrows the interval"
            if is_lexical(run):
                yield from _stemmer_faults(run)


def _stemmer_faults(run: str) -> Iterator[str]:
    """What would be told only when the turn of BM25 comes."""
    try:
        analyser_of(_stemmer(run))
    except AdiabatError as fault:
        yield f"{run}: {fault}"


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
