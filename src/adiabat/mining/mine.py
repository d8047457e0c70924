"""The job: candidates and filters made ready, queries mined block by block, the file and its statistics written."""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from adiabat.config.dataset_settings import MineSettings
from adiabat.config.shared import EmbedDataSection, EncoderSection, RankingEncoderSection
from adiabat.core.errors import AdiabatError, ConfigError, DataError, StoreError
from adiabat.core.files import is_store, sole_writer, write_text
from adiabat.core.progress import SILENT, Watch
from adiabat.core.provenance import now, versions
from adiabat.core.text import IN_WORDS
from adiabat.data.corpora import read_corpus
from adiabat.data.records import ExampleSet, Side
from adiabat.mining.candidates import DenseSource, FusedSource, LexicalSource, Source, Vectors
from adiabat.mining.mined_file import STATE_FILE, Partial, apart_of, ending_of, refuse_taken, row_of
from adiabat.mining.miner import Miner
from adiabat.mining.mining_corpus import Documents, WrittenCorpus, all_texts, rows_in_store, written
from adiabat.mining.mining_counts import told
from adiabat.mining.mining_queries import Questions, questions_of, read_data
from adiabat.models.fingerprint import Fingerprint
from adiabat.models.towers import DualEncoder
from adiabat.store.bm25 import LexicalIndex, build_lexical
from adiabat.store.vector_store import Store

BLOCK_QUERIES = 1024
"""Queries between two commits; a store is read once for each such block."""
STATS_FORMAT = 1

Loader = Callable[[str, EncoderSection], DualEncoder]
"""From a MODEL's name and its settings to its towers."""


@dataclass(frozen=True, slots=True)
class Mining:
    """What a run of `mine` left behind.

    Attributes:
        out: The mined file; each of its queries has a negative.
        apart: The same of the queries that have none; None where all have some.
        stats: The file of statistics.
        report: Its content.
        lines: The same in a few lines for people.
    """

    out: Path
    apart: Path | None
    stats: Path
    report: dict[str, Any]
    lines: Sequence[str]

    def __fspath__(self) -> str:
        return str(self.out)


@dataclass(frozen=True, slots=True)
class _Measured:
    """A model in the precisions that scores take: queries in float32, documents as they are embedded for a store."""

    towers: DualEncoder

    def fingerprint(self, side: Side) -> Fingerprint:
        return self.towers.fingerprint(side)

    def encode(self, texts: Sequence[str], *, side: Side) -> Float32[np.ndarray, "n e"]:
        return self.towers.encode(texts, side=side, precision="fp32" if side == "query" else "auto")


def mine(
    data: str,
    corpus: str,
    out: Path,
    *,
    load: Loader,
    model: str | None = None,
    store: str | Path | None = None,
    index: Path | None = None,
    settings: MineSettings | None = None,
    command: str = "adiabat.mine(...)",
    watch: Watch = SILENT,
) -> Mining:
    """Find hard negatives for every query of a data set, and write it with them.

    Cut short, in whatever way, the same call goes on after its last whole block, and writes the same file to the last byte.

    Args:
        index: A folder that keeps the corpus and its BM25 index for other runs; None keeps neither.
        settings: None takes the defaults.
    """
    settings, started = settings or MineSettings(), time.monotonic()
    folder = out.with_name(f".{out.name}.mining")
    _require_place(out, folder, index)
    stored = _require_source(settings, corpus, model, store)
    read = read_data(data, settings.data)
    folder.mkdir(exist_ok=True)
    kept = index or folder / "corpus"
    kept.mkdir(parents=True, exist_ok=True)
    with sole_writer(folder), sole_writer(kept) if index else nullcontext():
        try:
            models = (
                _vectors(model, stored, settings.encoder, load),
                _vectors(settings.judge.model, settings.judge.store, EncoderSection(), load),
            )
            documents = _documents(corpus, kept, settings.corpus, own=index is None)
            miner, plan = _prepared(read, documents, models, kept, corpus, settings, watch)
            partial = _mined(miner, Partial.of(folder, plan), watch)
            origin = {"command": command, "data": data, "corpus": corpus, "model": model, "store": None if stored is None else str(stored)}
            if models[0] is not None:
                origin["similarity"] = models[0].similarity
            mining = _finish(out, partial, origin, settings, miner.questions.notes, time.monotonic() - started)
        except AdiabatError:
            if not (folder / STATE_FILE).exists():
                shutil.rmtree(folder)
            raise
        shutil.rmtree(folder)
    return mining


def _prepared(
    read: ExampleSet,
    documents: Documents,
    models: tuple[Vectors | None, Vectors | None],
    folder: Path,
    corpus: str,
    settings: MineSettings,
    watch: Watch,
) -> tuple[Miner, dict[str, Any]]:
    """All that a block of queries takes, and what decides its rows."""
    vectors, judge = (None if one is None else _placed(one, documents, corpus) for one in models)
    questions = questions_of(read, documents, settings.data, corpus_name=corpus, listed=settings.mine.listed == "keep")
    for note in questions.notes:
        watch.note(note)
    if vectors is not None:
        watch.note(f"vectors are compared by {IN_WORDS[vectors.similarity]}")
    source = _source(settings, documents, vectors, folder, watch)
    miner = Miner(documents, questions, source, settings.mine, settings.run.seed, judge, settings.judge)
    return miner, _plan(settings, questions, documents, [one for one in (vectors, judge) if one is not None])


def _require_place(out: Path, folder: Path, index: Path | None) -> None:
    ending_of(out)
    refuse_taken(out)
    if not folder.exists():
        # A run that was cut short may have left its own.
        refuse_taken(apart_of(out))
    if not out.parent.is_dir():
        raise DataError(f"--out must be in a folder that exists, got {out}; make {out.parent}")
    if index is not None and index.exists() and (not index.is_dir() or is_store(index)):
        raise DataError(f"--index must be a folder of its own, {index} is {'a store' if index.is_dir() else 'a file'}; choose another")


def _require_source(settings: MineSettings, corpus: str, model: str | None, store: str | Path | None) -> str | Path | None:
    """Refuse a source without what it takes, or with what it does not use; the store that candidates come from, if any."""
    if settings.mine.source == "bm25":
        encoder = None if settings.encoder == RankingEncoderSection() else "settings of a model"
        for name, value in (("--model", model), ("--store", store), ("encoder", encoder)):
            if value is not None:
                raise ConfigError(f"{name} has no effect with mine.source = bm25, got {value}; leave it out, or add --source dense")
        return None
    stored = corpus if store is None and is_store(Path(corpus)) else store
    if model is None or stored is None:
        lacking = " and ".join(name for name, value in (("--model", model), ("--store", stored)) if value is None)
        raise ConfigError(
            f"mine.source = {settings.mine.source} must have {lacking}, got none; "
            "name the MODEL, and the store that adiabat embed made with it"
        )
    return stored


def _vectors(model: str | None, store: str | Path | None, section: EncoderSection, load: Loader) -> Vectors | None:
    """A model and its store, found to belong together; not yet related to the corpus."""
    if model is None:
        return None
    opened = None if store is None else Store.open(store)
    towers = _Measured(load(model, section))
    if opened is not None:
        opened.require_encoder(towers.fingerprint("document"))
    return Vectors(towers, opened, similarity=towers.towers.ranks_by)


def _placed(vectors: Vectors, documents: Documents, corpus: str) -> Vectors:
    """The same, with the rows of the corpus's documents in the store."""
    if vectors.store is None:
        return vectors
    return replace(vectors, in_store=rows_in_store(documents, vectors.store, source=corpus))


def _documents(corpus: str, folder: Path, section: EmbedDataSection, *, own: bool) -> Documents:
    if is_store(Path(corpus)):
        if section != EmbedDataSection():
            raise ConfigError(f"corpus must be left out of the settings where CORPUS is a store, as {corpus} is; remove it")
        store = Store.open(corpus)
        if not store.has_texts:
            raise StoreError(f"{corpus} must keep texts to be mined, it holds vectors only; name the corpus that it was built of")
        return store

    return written(
        lambda: read_corpus(corpus, columns=section.columns.given(), split=section.split, blank=section.blank),
        folder,
        source=corpus,
        replace=own,
    )


def _digest(documents: Documents) -> str:
    if isinstance(documents, WrittenCorpus):
        return documents.digest
    assert isinstance(documents, Store)
    return documents.manifest.corpus or documents.manifest.sha256


def _source(settings: MineSettings, documents: Documents, vectors: Vectors | None, folder: Path, watch: Watch) -> Source:
    if vectors is not None and settings.mine.source == "dense":
        return DenseSource.of(vectors)
    lexical = LexicalSource(_lexical(settings, documents, folder, watch), settings.bm25.search_by)
    return lexical if vectors is None else FusedSource(lexical, DenseSource.of(vectors))


def _lexical(settings: MineSettings, documents: Documents, folder: Path, watch: Watch) -> LexicalIndex:
    """The index that lies there, if it is one of this corpus by these numbers, or a new one."""
    digest, parameters = _digest(documents), (settings.bm25.k1, settings.bm25.b)
    index = LexicalIndex.at_hand(folder)
    # Words are taken as they stand; another use of the folder may have cut them to stems.
    if index and index.corpus == digest and index.parameters == parameters and index.stemmer is None:
        return index
    return build_lexical(
        all_texts(documents),
        folder,
        k1=settings.bm25.k1,
        b=settings.bm25.b,
        corpus=digest,
        on_progress=lambda done: watch.progress("building the BM25 index", done, documents.count),
    )


def _plan(settings: MineSettings, questions: Questions, documents: Documents, models: Sequence[Vectors]) -> dict[str, Any]:
    """All that decides the rows."""
    return {
        "settings": settings.model_dump(mode="json"),
        "data": questions.digest(),
        "corpus": _digest(documents),
        "similarities": [one.similarity for one in models],
        "models": [[one.model.fingerprint(side).to_json() for side in ("query", "document")] for one in models],
        "stores": [None if one.store is None else one.store.manifest.sha256 for one in models],
        # Vectors of texts that are encoded here depend in their last bits on what is encoded beside them.
        "block": BLOCK_QUERIES,
    }


def _mined(miner: Miner, partial: Partial, watch: Watch) -> Partial:
    """Mine what is not mined yet."""
    examples, settings = miner.questions.examples, miner.settings
    ids = miner.questions.holds_ids and settings.write == "as_given"
    if partial.done:
        watch.note(f"went on from {partial.done:,} of {len(examples):,} queries")
    while partial.done < len(examples):
        block = examples[partial.done : partial.done + BLOCK_QUERIES]
        rows = []
        for one in miner.mine(block):
            kept = settings.too_few == "keep" or one.negatives >= settings.negatives_per_query
            partial.tally.take(one, wanted=settings.negatives_per_query, written=kept and one.negatives > 0)
            if kept:
                rows.append(row_of(one, miner.corpus, ids=ids))
        partial.extend(rows, len(block))
        watch.progress("mining", partial.done, len(examples))
    return partial


def _finish(out: Path, partial: Partial, origin: dict[str, Any], settings: MineSettings, notes: Sequence[str], seconds: float) -> Mining:
    report = partial.tally.report()
    if not report["written"]:
        kept, wanted = settings.mine.too_few == "keep", settings.mine.negatives_per_query
        least = "a negative" if kept else f"mine.negatives_per_query = {wanted} negatives"
        advice = (
            "lower the margins, or raise mine.depth" if kept else "lower it or the margins, raise mine.depth, or set mine.too_few = keep"
        )
        raise DataError(f"{out} must hold at least one query, got none with {least}; {advice}")
    stats = out.with_name(f"{out.name}.stats.json")
    apart = apart_of(out) if partial.sizes[1] else None
    origin = {**origin, "apart": None if apart is None else apart.name}
    head = {"format": STATS_FORMAT, "created": now(), "seconds": round(seconds, 3), **origin, "notes": list(notes)}
    full = {**head, **report, "settings": settings.model_dump(mode="json", exclude_none=True), "versions": versions("cpu")}
    write_text(json.dumps(full, indent=1, ensure_ascii=False, allow_nan=False) + "\n", stats)
    partial.publish(out, apart)
    return Mining(out, apart, stats, full, told(full, wanted=settings.mine.negatives_per_query))
