"""The job of `adiabat.mine`: prepare candidates and filters, mine block by block, write the file and its
statistics.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from adiabat.config.dataset_settings import Bm25Section, MineSettings
from adiabat.config.shared import EmbedDataSection, EncoderSection
from adiabat.core.disk import make_folder
from adiabat.core.errors import ConfigError, DataError, StoreError
from adiabat.core.files import is_store, sole_writer, writing_to
from adiabat.core.progress import SILENT, Watch
from adiabat.core.text import IN_WORDS
from adiabat.core.wording import positional
from adiabat.data.corpora import read_corpus
from adiabat.data.records import ExampleSet, Fingerprint, Side
from adiabat.mining.candidates import CandidateSource, DenseSource, FusedSource, LexicalSource, Vectors
from adiabat.mining.mine_checks import (
    require_free,
    require_source,
)
from adiabat.mining.mined_file import MinedRows, Statistics, row_of, summary_lines, working_in
from adiabat.mining.miner import Miner
from adiabat.mining.mining_queries import (
    Documents,
    MiningQueries,
    WrittenCorpus,
    all_texts,
    queries_in_corpus,
    read_queries,
    rows_in_store,
    written_corpus,
)
from adiabat.models.towers import DualEncoder
from adiabat.runs.output_dir import make_directory
from adiabat.store.bm25 import BM25Index, build_bm25
from adiabat.store.vector_store import Store

BLOCK_QUERIES = 1024
"""Queries between two commits; a store is read once for each such block."""

Loader = Callable[[str, EncoderSection], DualEncoder]
"""From a MODEL's name and its settings to its towers."""


@dataclass(frozen=True, slots=True)
class Mining:
    """The result of `adiabat.mine`.

    Attributes:
        out: The mined file.
        without_negatives: File of the queries without negatives; None if all have some.
        stats: File of the statistics.
        report: Its content.
        lines: The same in a few lines, for people.
    """

    out: Path
    without_negatives: Path | None
    stats: Path
    report: dict[str, Any]
    lines: Sequence[str]

    def __fspath__(self) -> str:
        return str(self.out)


@dataclass(frozen=True, slots=True)
class _ScoringModel:
    """A model in the precisions of scoring: queries in float32, documents as they are embedded for a
    store.
    """

    towers: DualEncoder

    def fingerprint(self, side: Side) -> Fingerprint:
        """Fingerprint of one side's vectors."""
        return self.towers.fingerprint(side)

    def encode(self, texts: Sequence[str], *, side: Side) -> Float32[np.ndarray, "n e"]:
        """One vector per text, in the precision of its side."""
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

    After an interruption of any kind, the same call continues after its last whole block and writes the same
    file, byte for byte.

    Args:
        corpus: A corpus, or a store with texts.
        load: Loads a model by its name.
        model: Encodes queries, for a source that searches vectors.
        store: Vectors of the corpus; None for those of a corpus that is a store.
        index: Folder that keeps the corpus and its BM25 index for other runs.
        command: The call, for the statistics.
    """
    settings, start = settings or MineSettings(), time.monotonic()
    # Cheap checks come first: mining a large data set takes hours.
    require_free(out, index)
    store = require_source(settings, corpus, model, store)
    examples = read_queries(data, settings.data)
    if index is not None:
        make_directory(index, setting="index")
    with working_in(out) as folder, nullcontext() if index is None else sole_writer(index):
        # A folder of the caller outlives the run; one inside the working folder is removed with it.
        corpus_folder = index or folder / "corpus"
        with writing_to(corpus_folder):
            make_folder(corpus_folder)
        ranker = vectors_of(model, store, settings.encoder, load)
        judge = None
        if settings.judge is not None:
            judge = vectors_of(settings.judge.model, settings.judge.store, EncoderSection(), load)
        documents = _documents(corpus, corpus_folder, settings.corpus, replaceable=index is None)
        ranker = ranker and with_rows(ranker, documents, corpus)
        judge = judge and with_rows(judge, documents, corpus)
        miner = _miner(examples, documents, ranker, judge, corpus_folder, corpus, settings, watch)
        models = [vectors for vectors in (ranker, judge) if vectors]
        rows = MinedRows.open(folder, _plan(settings, miner.queries, documents, models))
        read = [documents, *(vectors.store for vectors in models)]
        stores = [store for store in read if isinstance(store, Store)]
        mine_blocks(miner, rows, stores, watch, size=BLOCK_QUERIES)
        origin = {
            "command": command,
            "data": data,
            "corpus": corpus,
            "model": model,
            "store": None if store is None else str(store),
        }
        if ranker is not None:
            origin["similarity"] = ranker.similarity
        _require_rows(rows, out, settings)
        statistics = rows.finish(
            out,
            origin,
            settings,
            seconds=time.monotonic() - start,
            notes=miner.queries.notes,
            device="cpu",
        )
    return _mining(out, statistics, settings)


def vectors_of(
    model: str | None, store: str | Path | None, section: EncoderSection, load: Loader
) -> Vectors | None:
    """A model and a store of its vectors, whose rows are not yet known."""
    if model is None:
        return None
    opened = None if store is None else Store.open(store)
    towers = load(model, section)
    # Vectors of another model would be searched without any error.
    if opened is not None:
        opened.require_encoder(towers.fingerprint("document"))
    return Vectors(_ScoringModel(towers), opened, similarity=towers.ranks_by, device=towers.query.device)


def with_rows(vectors: Vectors, documents: Documents, corpus: str) -> Vectors:
    """The same, with the row in the store of each document of the corpus."""
    if vectors.store is None:
        return vectors
    return replace(vectors, store_rows=rows_in_store(documents, vectors.store, source=corpus))


def _documents(corpus: str, folder: Path, section: EmbedDataSection, *, replaceable: bool) -> Documents:
    """The corpus: a store with texts as it is, any other source written to a folder."""
    if is_store(Path(corpus)):
        if section != EmbedDataSection():
            raise ConfigError(
                f"corpus must be left out of the settings where {positional('corpus')} "
                f"is a store, as {corpus} is; remove it"
            )
        store = Store.open(corpus)
        if not store.has_texts:
            raise StoreError(
                f"{corpus} must keep texts to be mined, it holds vectors only; "
                "name the corpus that it was built of"
            )
        return store
    return written_corpus(
        lambda: read_corpus(
            corpus,
            columns=section.columns.given(),
            split=section.split,
            blank=section.blank,
        ),
        folder,
        source=corpus,
        replace=replaceable,
    )


def _miner(
    examples: ExampleSet,
    documents: Documents,
    ranker: Vectors | None,
    judge: Vectors | None,
    folder: Path,
    corpus: str,
    settings: MineSettings,
    watch: Watch,
) -> Miner:
    """Prepare queries and the source of candidates."""
    queries = queries_in_corpus(
        examples, documents, settings.data, corpus_name=corpus, keep_listed=settings.mine.listed == "keep"
    )
    for note in queries.notes:
        watch.note(note)
    if ranker is not None:
        watch.note(f"vectors are compared by {IN_WORDS[ranker.similarity]}")
    source: CandidateSource
    if ranker is not None and settings.mine.source == "dense":
        source = DenseSource.of(ranker)
    else:
        index = lexical_index(settings.bm25, documents, folder, watch)
        lexical = LexicalSource(index, settings.bm25.search_by)
        source = lexical if ranker is None else FusedSource(lexical, DenseSource.of(ranker))
    return Miner(documents, queries, source, settings.mine, settings.run.seed, judge, settings.judge)


def digest_of_corpus(documents: Documents) -> str:
    """What tells one corpus from another."""
    if isinstance(documents, WrittenCorpus):
        return documents.digest
    assert isinstance(documents, Store)
    return documents.manifest.documents


def lexical_index(section: Bm25Section, documents: Documents, folder: Path, watch: Watch) -> BM25Index:
    """The index in the folder, if it is of this corpus with these parameters, or a new one."""
    digest, parameters = digest_of_corpus(documents), (section.k1, section.b)
    index = BM25Index.at_hand(folder)
    # Mining indexes whole words; another use of the folder may have stemmed them.
    if index and index.corpus == digest and index.parameters == parameters and index.stemmer is None:
        return index
    return build_bm25(
        all_texts(documents),
        folder,
        k1=section.k1,
        b=section.b,
        corpus=digest,
        on_progress=lambda done: watch.progress("building the BM25 index", done, documents.count),
    )


def _plan(
    settings: MineSettings, queries: MiningQueries, documents: Documents, models: Sequence[Vectors]
) -> dict[str, Any]:
    """Everything that decides the rows: settings, data, corpus, models and vectors.

    An interrupted run goes on only if all of it is as before.
    """
    return {
        "settings": settings.model_dump(mode="json"),
        "data": queries.digest(),
        "corpus": digest_of_corpus(documents),
        "similarities": [vectors.similarity for vectors in models],
        "models": [
            [vectors.model.fingerprint(side).to_json() for side in ("query", "document")]
            for vectors in models
        ],
        "stores": [None if vectors.store is None else vectors.store.manifest.sha256 for vectors in models],
        # The last bits of vectors that are encoded here depend on the other texts of their block.
        "block": BLOCK_QUERIES,
    }


def mine_blocks(
    miner: Miner,
    rows: MinedRows,
    stores: Sequence[Store],
    watch: Watch,
    *,
    size: int,
    label: str = "mining",
    written: Callable[..., dict[str, Any]] = row_of,
) -> None:
    """Mine the queries that are not finished yet.

    Args:
        size: Queries between two commits.
        written: The row of a mined query, as `row_of` makes it.
    """
    examples, settings = miner.queries.examples, miner.settings
    ids = miner.queries.holds_ids and settings.write == "as_given"
    if rows.done:
        watch.note(f"resumed at {rows.done:,} of {len(examples):,} queries")
    while rows.done < len(examples):
        block = examples[rows.done : rows.done + size]
        block_rows = []
        for mined in miner.mine(block):
            is_kept = settings.too_few == "keep" or mined.negatives >= settings.negatives_per_query
            rows.counts.add(
                mined, wanted=settings.negatives_per_query, written=is_kept and mined.negatives > 0
            )
            if is_kept:
                block_rows.append(written(mined, miner.corpus, ids=ids))
        # Rows of a store that somebody else changed would name other documents.
        for store in stores:
            store.require_unchanged()
        rows.extend(block_rows, len(block))
        watch.progress(label, rows.done, len(examples))


def mined_before(out: Path, settings: MineSettings) -> Mining:
    """The result of a call that is finished."""
    return _mining(out, Statistics.of(out, remedy="remove it and the mined file, and mine again"), settings)


def _mining(out: Path, statistics: Statistics, settings: MineSettings) -> Mining:
    lines = summary_lines(statistics.report, wanted=settings.mine.negatives_per_query)
    return Mining(out, statistics.without_negatives, statistics.path, statistics.report, lines)


def _require_rows(rows: MinedRows, out: Path, settings: MineSettings) -> None:
    """Refuse a file without any query."""
    if rows.sizes[0]:
        return
    if settings.mine.too_few == "keep":
        need, advice = "a negative", "lower the margins, or raise mine.depth"
    else:
        need = f"mine.negatives_per_query = {settings.mine.negatives_per_query} negatives"
        advice = "lower it or the margins, raise mine.depth, or set mine.too_few = keep"
    raise DataError(f"{out} must hold at least one query, got none with {need}; {advice}")
