"""Evaluated models, loaded on first use, and the vectors and BM25 indexes of corpora on disk."""

import hashlib
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Self

from adiabat.config.shared import EncoderSection, FusionSection
from adiabat.config.tasks import ModelSection, TaskSection
from adiabat.core.disk import clear, make_folder, require_no_link
from adiabat.core.errors import AdiabatError, ConfigError
from adiabat.core.files import is_store, sole_writer
from adiabat.core.progress import Watch
from adiabat.data.corpora import Blank, read_corpus
from adiabat.data.judged_sets import is_judged
from adiabat.data.lines import parted_columns
from adiabat.data.records import Document, Fingerprint, text_id
from adiabat.data.text_hashes import TrainedTexts
from adiabat.evaluation.evaluate_checks import is_bm25
from adiabat.evaluation.score_files import folder_names, state_of
from adiabat.evaluation.systems import BM25System, System
from adiabat.models.towers import DualEncoder
from adiabat.results.suite_result import SuiteModel
from adiabat.store.analysers import analyser_of
from adiabat.store.bm25 import VERSION, BM25Index, build_bm25
from adiabat.store.build import build_store
from adiabat.store.own_bm25 import own_fusion
from adiabat.store.text_vectors import known_documents
from adiabat.store.vector_store import Store


@contextmanager
def without_skip_warnings() -> Iterator[None]:
    """Silence warnings about left-out rows when a corpus is read again."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s).* left out", category=UserWarning)
        yield


LoadModel = Callable[[str, EncoderSection], DualEncoder]
"""Loads a model by its name, with overrides."""

TrainedTextsOf = Callable[[str], TrainedTexts | None]
"""Training data of a model's job; None for a model without a job."""


def unknown_training(model: str) -> None:
    """Returns no record, for comparisons that ignore training data."""


FUSED = "in retrieval and triplets, vectors of the weight {weight:g} are fused with {by}"
"""A note on a model whose rankings are fused."""


def _stemmer(model: str) -> str | None:
    """The language in a BM25 name."""
    return model.partition(":")[2] or None


@dataclass(frozen=True)
class MeasuredModel:
    """One run of a model: `model` is loaded by `loader` with the overrides in `encoder`.

    `recorder` reads the training data of its job.
    """

    name: str
    model: str
    encoder: EncoderSection
    loader: LoadModel
    recorder: TrainedTextsOf = unknown_training
    fuse: FusionSection = field(default_factory=FusionSection)

    @classmethod
    def in_memory(cls, model: DualEncoder, name: str, trained: TrainedTexts | None = None) -> Self:
        """A model that is loaded already, with the training data of its job."""

        def loader(name: str, encoder: EncoderSection) -> DualEncoder:
            return model

        def recorder(name: str) -> TrainedTexts | None:
            return trained

        return cls(name, name, EncoderSection(), loader, recorder)

    @property
    def is_bm25(self) -> bool:
        """Whether it is BM25, which has no vectors."""
        return is_bm25(self.model)

    @property
    def stemmer(self) -> str | None:
        """Language of BM25's stemmer; None keeps whole words."""
        return _stemmer(self.model)

    @cached_property
    def towers(self) -> DualEncoder:
        """The model, loaded on first use."""
        return self.loader(self.model, self.encoder)

    @cached_property
    def trained(self) -> TrainedTexts | None:
        """Training data of its job."""
        return self.recorder(self.model)

    @cached_property
    def key(self) -> str:
        """SHA-256 of everything that decides its scores: weights and settings of both towers and the
        similarity, or BM25's tokenizer.
        """
        if self.is_bm25:
            return hashlib.sha256(json.dumps([self.model, VERSION]).encode()).hexdigest()
        return state_of(*self.towers.fingerprints(), self.towers.similarity, self.fuse.key)

    def describe(self, runs: Sequence["MeasuredModel"]) -> SuiteModel:
        """Description for tables and reports."""
        if self.is_bm25:
            words = f"cut to {self.stemmer.capitalize()} stems" if self.stemmer else "as they stand"
            note = (
                f"BM25 ranks by shared words, {words}; without vectors, it does only retrieval and triplets"
            )
            return SuiteModel(self.name, self.model, notes=[note])
        query, document = self.towers.query, self.towers.document
        return SuiteModel(
            name=self.name,
            model=self.model,
            runs=[run.model for run in runs] if len(runs) > 1 else [],
            parameters=self.towers.parameters,
            width=query.width,
            query_prompt=query.settings.query_prompt,
            document_prompt=document.settings.document_prompt,
            notes=[] if self.fuse.by is None else [FUSED.format(by=self.fuse.by, weight=self.fuse.weight)],
        )


def resolve_models(
    sections: Sequence[ModelSection],
    names: Sequence[str],
    encoder: EncoderSection,
    loader: LoadModel,
    recorder: TrainedTextsOf = unknown_training,
) -> list[tuple[MeasuredModel, ...]]:
    """Models of a suite file and of the command line, each with its runs."""
    requested: list[_Requested] = []
    for section in sections:
        listed = (section.model, *section.runs)
        requested.append(_Requested(section.name, listed, section.encoder, section.fuse))
    for name in dict.fromkeys(names):
        # BM25 encodes nothing, so encoder settings do not apply to it.
        overrides = EncoderSection() if is_bm25(name) else encoder
        requested.append(_Requested(name, (name,), overrides, FusionSection()))
    if faults := list(_faults(requested)):
        raise ConfigError("; ".join(faults))
    models = []
    for name, runs, overrides, fuse in requested:
        models.append(tuple(MeasuredModel(name, run, overrides, loader, recorder, fuse) for run in runs))
    return models


class _Requested(NamedTuple):
    """A model of a suite before it is checked."""

    name: str
    runs: Sequence[str]
    encoder: EncoderSection
    fuse: FusionSection


def _faults(requested: Sequence[_Requested]) -> Iterator[str]:
    """Everything that is wrong with the listed models, told at once."""
    if not requested:
        yield "at least one model must be given, got none; name it, or list it under [[models]] of the suite"
    for name, count in Counter(each.name for each in requested).items():
        if count > 1:
            yield (
                f"models must have names of their own, got {name} {count} times; "
                "give them names under [[models]]"
            )
    for name, runs, overrides, fuse in requested:
        has_settings = len(runs) > 1 or overrides != type(overrides)() or fuse.by is not None
        if any(map(is_bm25, runs)) and has_settings:
            yield (
                f"{name}: BM25 must have neither runs nor settings of an encoder or a fusion, since it "
                "has no seed and no encoder; leave them out"
            )
        if fault := _stemmer_fault(fuse.stemmer):
            yield f"{name}: {fault}"
        for run, count in Counter(runs).items():
            if count > 1:
                yield (
                    f"models.runs of {name} must differ, got {run} {count} times; name each "
                    "once: counted twice, it narrows the interval"
                )
            # BM25 itself would report an unknown stemmer only at its turn.
            if is_bm25(run) and (fault := _stemmer_fault(_stemmer(run))):
                yield f"{run}: {fault}"


def _stemmer_fault(stemmer: str | None) -> str:
    """What is wrong with the language of a stemmer; "" if nothing is."""
    try:
        analyser_of(stemmer)
    except AdiabatError as fault:
        return str(fault)
    return ""


DIGITS = 12
"""Digits of a SHA-256 in the name of a folder."""

BLOCK_DOCUMENTS = 4096


@dataclass(frozen=True, slots=True)
class Corpus:
    """Source of the documents of tasks, which share its store."""

    source: str
    split: str | None
    columns: tuple[tuple[str, str], ...]
    blank: Blank

    @classmethod
    def of(cls, section: TaskSection) -> "Corpus":
        """The corpus of a task."""
        columns = section.columns.given()
        if section.corpus is None:
            # The split of a BEIR folder selects judgements; its corpus has no splits.
            split = None if is_judged(section.data) else section.split
            return cls(section.data, split, tuple(columns.items()), section.blank)
        _, document_columns = parted_columns(columns)
        return cls(section.corpus, section.corpus_split, tuple(document_columns.items()), section.blank)

    def documents(self) -> Iterator[Document]:
        """Read it."""
        return read_corpus(self.source, columns=dict(self.columns), split=self.split, blank=self.blank)


@dataclass(frozen=True, slots=True)
class TaskCorpus:
    """A corpus that was read once and checked; `sha256` is of ids and texts.

    `stores` are directories of the user that may hold its vectors. `blank` says whether documents without any
    known token of a static model are faults.
    """

    name: str
    sha256: str
    documents: Callable[[], Iterator[Document]]
    stores: tuple[Path, ...] = ()
    blank: Blank = "error"


@dataclass(frozen=True, slots=True)
class CorpusStores:
    """Vectors and BM25 indexes of corpora in a folder.

    `matching` says whether a store of the user holds a corpus, by the checksum of the corpus and the path of
    the store.
    """

    folder: Path
    watch: Watch
    matching: dict[tuple[str, Path], bool] = field(default_factory=dict)
    used: dict[Path, Store] = field(default_factory=dict)
    """Stores of others that the last task read."""

    def require_unchanged(self) -> None:
        """Refuse scores if a store that was read for them changed; the stores of the suite itself never
        do.
        """
        for store in self.used.values():
            store.require_unchanged()
        self.used.clear()

    def system(self, model: MeasuredModel, corpus: TaskCorpus) -> System | BM25System:
        """A model, or BM25, with a corpus."""
        if model.is_bm25:
            return self.bm25(corpus, stemmer=model.stemmer)
        store = self.store(model.towers, corpus)
        return System(model.towers, store, own_fusion(store, model.fuse, self.watch))

    def store(self, model: DualEncoder, corpus: TaskCorpus) -> Store:
        """Vectors of a corpus by a model's document tower: a store that holds them, or a new one; an
        interrupted embedding resumes.
        """
        # Stores of the user come first: they save the embedding.
        fingerprint = model.fingerprint("document")
        for path in corpus.stores:
            store = Store.open(path)
            if store.differences(fingerprint):
                continue
            if self._holds(model, store, corpus):
                self.used[path] = store
                return store
            self.watch.note(f"{path} does not hold {corpus.name} and is not used: its documents differ")
        path = self._place(corpus) / _named(fingerprint)
        if is_store(path):
            # The name of the folder identifies the content, and a finished store never changes.
            return Store.open(path)
        make_folder(path.parent, parents=True)
        require_no_link(path)
        documents = partial(_known, model, corpus, note=self.watch.note)
        on_progress = partial(self.watch.progress, f"{model.name}: embedding {corpus.name}")
        with without_skip_warnings():
            return build_store(
                model, documents, path, on_progress=on_progress, source=corpus.name, encoder_name=model.name
            ).store

    def remove_vectors(self, fingerprint: Fingerprint) -> None:
        """Remove the vectors of every corpus by a document tower that no other model shares."""
        clear(*self.folder.glob(f"*/{_named(fingerprint)}"))

    def bm25(self, corpus: TaskCorpus, *, stemmer: str | None) -> BM25System:
        """BM25 over a corpus: from its stored index, or built and stored now."""

        def read() -> Iterator[Document]:
            with without_skip_warnings():
                yield from corpus.documents()

        doc_ids, text_ids = [], []
        for document in read():
            doc_ids.append(document.doc_id)
            text_ids.append(text_id(document.text))
        return BM25System(self._index(corpus, stemmer), doc_ids, text_ids, read)

    def _index(self, corpus: TaskCorpus, stemmer: str | None) -> BM25Index:
        """The stored index, or a new one; two processes do not build one index."""
        path = self._place(corpus) / (f"bm25-{stemmer}" if stemmer else "bm25")
        if index := BM25Index.at_hand(path):
            return index
        make_folder(path, parents=True)
        # Another process may have built it while this one waited.
        with sole_writer(path), without_skip_warnings():
            if index := BM25Index.at_hand(path):
                return index
            texts = (document.text for document in corpus.documents())
            return build_bm25(texts, path, corpus=corpus.sha256, stemmer=stemmer)

    def _place(self, corpus: TaskCorpus) -> Path:
        """Folder of all that is made of a corpus: named for people, and by its content."""
        return self.folder / f"{folder_names([corpus.name])[0]}-{corpus.sha256[:DIGITS]}"

    def _holds(self, model: DualEncoder, store: Store, corpus: TaskCorpus) -> bool:
        """Whether a store holds exactly the documents of a corpus."""
        # Reading a corpus to the end takes long, so each answer is kept.
        key = (corpus.sha256, Path(store.path))
        if key not in self.matching:
            with without_skip_warnings():
                self.matching[key] = _same_documents(store, _known(model, corpus, note=lambda note: None))
        return self.matching[key]


def _named(fingerprint: Fingerprint) -> str:
    """Folder of the vectors of a document tower."""
    return hashlib.sha256(json.dumps(fingerprint.to_json(), sort_keys=True).encode()).hexdigest()[:DIGITS]


def _known(model: DualEncoder, corpus: TaskCorpus, *, note: Callable[[str], None]) -> Iterator[Document]:
    """Documents that get a vector."""
    blank = corpus.blank
    return known_documents(
        model.document, corpus.documents(), blank=blank, source=corpus.name, note=note, setting="tasks.blank"
    )


def _same_documents(store: Store, documents: Iterator[Document]) -> bool:
    """Whether a store holds these documents and no other, in any order."""
    # Blocks, since a corpus may not fit into memory. Equal counts exclude further documents.
    count = 0
    while block := list(islice(documents, BLOCK_DOCUMENTS)):
        count += len(block)
        rows = store.rows([document.doc_id for document in block])
        if count > store.count or (rows < 0).any():
            return False
        # A store without texts is trusted by its ids.
        if store.has_texts and store.texts(rows) != [document.text for document in block]:
            return False
    return count == store.count
