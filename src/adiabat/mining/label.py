"""The job of `adiabat.label`: candidates of a store and of BM25 for each query, with the scores of a
cross-encoder, from which the loss ``listwise`` learns.

It is mining whose candidates and positives a reranker scores; all that mining drops as likely answers is
dropped here too.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adiabat.config.dataset_settings import Bm25Section, LabelSettings, MineSection
from adiabat.core.errors import DataError, StoreError
from adiabat.core.progress import SILENT, Watch
from adiabat.core.text import counted
from adiabat.core.wording import option
from adiabat.mining.candidates import DenseSource, LexicalSource, RerankedSource
from adiabat.mining.mine import Loader, digest_of_corpus, lexical_index, mine_blocks, vectors_of, with_rows
from adiabat.mining.mine_checks import require_free
from adiabat.mining.mined_file import MinedRows, Statistics, row_of, working_in
from adiabat.mining.miner import MinedQuery, Miner
from adiabat.mining.mining_queries import Documents, queries_in_corpus, read_queries
from adiabat.models.cross_encoder import load_cross_encoder
from adiabat.models.device import device_of
from adiabat.store.vector_store import Store

BLOCK_QUERIES = 16
"""Queries between two commits; a cross-encoder takes seconds for each."""


@dataclass(frozen=True, slots=True)
class Labelling:
    """The result of `adiabat.label`.

    Attributes:
        out: The file of the examples with their scores.
        stats: File of the statistics.
        report: Its content.
    """

    out: Path
    stats: Path
    report: dict[str, Any]

    def __fspath__(self) -> str:
        return str(self.out)

    @property
    def lines(self) -> Sequence[str]:
        """The statistics in a few lines, for people."""
        report, scores = self.report, self.report["scores"]
        queries, negatives = counted(report["queries"], "query"), counted(report["negatives"], "negative")
        lines = [f"{report['written']:,} of {queries} written with {negatives}"]
        if report["without_negatives"]:
            lines.append(f"queries without any are in {report['without_negatives']}")
        means = [f"{name}s {scores[name]['mean']:.4g}" for name in ("positive", "candidate")]
        return [*lines, f"mean scores of the reranker: {', '.join(means)}"]


def label(
    data: str,
    store: Path,
    out: Path,
    *,
    reranker: str,
    load: Loader,
    model: str | None = None,
    settings: LabelSettings | None = None,
    command: str = "adiabat.label(...)",
    watch: Watch = SILENT,
) -> Labelling:
    """Score the positives of every query, and the top documents of a store and of BM25, by a cross-encoder.

    After an interruption of any kind, the same call continues after its last whole block and writes the same
    file, byte for byte.

    Args:
        load: Loads a model by its name.
        model: Encodes queries; None takes the one that the store names.
        command: The call, for the statistics.
    """
    settings, start = settings or LabelSettings(), time.monotonic()
    require_free(out, None)
    corpus = _with_texts(store)
    examples = read_queries(data, settings.data)
    with working_in(out) as folder:
        queries = queries_in_corpus(
            examples, corpus, settings.data, corpus_name=str(store), keep_listed=False
        )
        for note in queries.notes:
            watch.note(note)
        vectors = vectors_of(model or corpus.manifest.encoder, store, settings.encoder, load)
        assert vectors is not None
        judge = load_cross_encoder(
            reranker,
            device=device_of(settings.run.device),
            max_tokens=settings.label.max_tokens,
            named_by=option("reranker"),
        )
        index = lexical_index(Bm25Section(), corpus, folder / "bm25", watch)
        dense = DenseSource.of(with_rows(vectors, corpus, str(store)))
        source = RerankedSource(LexicalSource(index), dense, judge, corpus.texts)
        plan = {
            "settings": settings.model_dump(mode="json"),
            "data": queries.digest(),
            "store": corpus.manifest.sha256,
            "corpus": digest_of_corpus(corpus),
            "model": vectors.model.fingerprint("query").to_json(),
            "reranker": judge.digest(),
            "block": BLOCK_QUERIES,
        }
        rows = MinedRows.open(folder, plan)
        miner = Miner(corpus, queries, source, _all_of(settings.label.depth))
        mine_blocks(miner, rows, [corpus], watch, size=BLOCK_QUERIES, label="labelling", written=_scored_row)
        origin = {"command": command, "data": data, "store": str(store), "reranker": reranker}
        if not rows.sizes[0]:
            raise DataError(
                f"{out} must hold at least one query, got none with a negative; add documents to the store"
            )
        statistics = rows.finish(
            out,
            origin,
            settings,
            seconds=time.monotonic() - start,
            notes=queries.notes,
            device=settings.run.device,
        )
    return Labelling(out, statistics.path, statistics.report)


def _with_texts(path: Path) -> Store:
    """The store, which must keep its texts."""
    store = Store.open(path)
    if not store.has_texts:
        raise StoreError(
            f"{path} must keep texts for a reranker to read, it holds vectors only; embed the corpus again"
        )
    return store


def _all_of(depth: int) -> MineSection:
    """Mining that keeps every candidate but likely answers: `depth` of each source."""
    return MineSection(depth=2 * depth, negatives_per_query=2 * depth, choice="ranked")


def _scored_row(mined: MinedQuery, corpus: Documents, *, ids: bool) -> dict[str, Any]:
    """One row of the file, its scores in one column."""
    row = row_of(mined, corpus, ids=ids)
    scores = [*row.pop("pos_scores"), *row.pop("neg_scores")]
    return {**row, "scores": scores}


def labelled_before(out: Path) -> Labelling:
    """The result of a call that is finished."""
    found = Statistics.of(out, remedy="remove it and the file of scores, and label again")
    return Labelling(out, found.path, found.report)
