"""Approximate search through faiss, for stores too large to be read for every query; its recall is measured, not presumed."""

import os
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Float32, Int64

from adiabat.errors import StoreError
from adiabat.files import read_json, write_json
from adiabat.seals import Digest, digest_of, require
from adiabat.store.embeddings import Store
from adiabat.store.scoring import SIMILARITIES, Similarity, checked_queries
from adiabat.store.search import Hits, score_rows, search
from adiabat.store.vector_sources import import_faiss

IndexKind = Literal["flat", "ivf", "hnsw"]
KINDS: tuple[IndexKind, ...] = ("flat", "ivf", "hnsw")
BLOCK_ROWS = 16384
REMEDY = "build the index again"
TRAINING_PER_LIST = 64
"""Vectors per inverted list that the clustering sees; faiss warns below 39."""
HNSW_NEIGHBOURS = 32


def build_faiss(
    store: Store,
    path: str | os.PathLike[str],
    *,
    kind: IndexKind = "hnsw",
    similarity: Similarity = "cosine",
    lists: int | None = None,
    seed: int = 0,
) -> None:
    """Build a faiss index of a store; it is held in memory while it is built and while it is searched.

    Args:
        store: The documents.
        path: File of the index; ``<path>.json`` beside it says what it was made of.
        kind: ``flat`` (exact), ``ivf`` (inverted lists) or ``hnsw`` (a graph).
        similarity: What it ranks by; for ``cosine`` the vectors are normalised.
        lists: Inverted lists of ``ivf``, 1 up to the number of documents; None for ``4 sqrt(documents)``, fewer for a small store.
        seed: Of the choice of vectors that the lists are trained on.

    Raises:
        StoreError: If a setting is out of range.
    """
    if kind not in KINDS:
        raise StoreError(f"kind must be flat, ivf or hnsw, got {kind}; name one of them")
    if similarity not in SIMILARITIES:
        raise StoreError(f"similarity must be cosine, distance or dot, got {similarity}; name one of them")
    if lists is not None and not 1 <= lists <= store.count:
        raise StoreError(f"lists must lie in 1..{store.count}, got {lists}; leave it out for a number that goes by the store")
    faiss = import_faiss("building a faiss index")
    index = _empty_index(faiss, store, kind, similarity, lists, seed)
    for _, block in store.blocks(BLOCK_ROWS):
        index.add(_prepared(block.astype(np.float32), similarity))
    partial = f"{os.fspath(path)}.partial"
    faiss.write_index(index, partial)
    os.replace(partial, path)
    made_of = {"sha256": store.manifest.sha256, "count": store.count, "kind": kind, "similarity": similarity}
    write_json({**made_of, "index": digest_of(Path(path))._asdict()}, _note(path))


def _empty_index(faiss: Any, store: Store, kind: IndexKind, similarity: Similarity, lists: int | None, seed: int) -> Any:
    metric = faiss.METRIC_L2 if similarity == "distance" else faiss.METRIC_INNER_PRODUCT
    if kind == "flat":
        return faiss.IndexFlat(store.width, metric)
    if kind == "hnsw":
        return faiss.IndexHNSWFlat(store.width, HNSW_NEIGHBOURS, metric)
    lists = lists or max(1, min(int(4 * store.count**0.5), store.count // TRAINING_PER_LIST))
    flat = faiss.IndexFlat(store.width, metric)
    index = faiss.IndexIVFFlat(flat, store.width, lists, metric)
    # faiss would print a warning to standard output where a list has fewer than 39 vectors to learn from.
    index.cp.min_points_per_centroid = 1
    chosen = np.random.default_rng(seed).choice(store.count, size=min(store.count, lists * TRAINING_PER_LIST), replace=False)
    index.train(_prepared(store.gather(np.sort(chosen)), similarity))
    # The index owns what it searches its lists with; without this Python would free it on return.
    flat.this.disown()
    index.own_fields = True
    return index


def search_faiss(
    store: Store,
    path: str | os.PathLike[str],
    queries: Float[np.ndarray, "q e"],
    k: int,
    *,
    effort: int = 64,
) -> Hits:
    """Find about the nearest documents of each query.

    faiss proposes rows; their scores and order are exact, the same that `adiabat.store.search.search` gives.

    Args:
        store: The documents that the index was built of.
        path: The index.
        queries: One row per query.
        k: How many, > 0; a smaller store gives fewer columns.
        effort: Inverted lists visited, or length of the candidate list of the graph, > 0; more finds more, and takes longer.

    Returns:
        Rows and scores; -1 and minus infinity where the index proposed fewer.

    Raises:
        StoreError: If the index was built of other vectors, or a setting is out of range.
    """
    if k < 1 or effort < 1:
        raise StoreError(f"k and effort must be at least 1, got {k} and {effort}; raise them")
    note = _checked_note(store, path)
    checked = checked_queries(queries, store.width, note["similarity"])
    index = _read_index(path, k, effort)
    _, rows = index.search(_prepared(checked.vectors, note["similarity"]), min(k, store.count))
    return _ordered(rows, score_rows(store, checked.vectors, rows, similarity=note["similarity"]))


def faiss_recall(
    store: Store,
    path: str | os.PathLike[str],
    queries: Float[np.ndarray, "q e"],
    k: int,
    *,
    effort: int = 64,
    sample: int = 100,
    seed: int = 0,
) -> float:
    """Share of the exactly nearest documents that the index finds.

    A document that ties with the k-th counts as found whichever of the equals is proposed.

    Args:
        store: The documents that the index was built of.
        path: The index.
        queries: One row per query.
        k: How many nearest, > 0.
        effort: As for `search_faiss`.
        sample: How many of the queries are asked, > 0; all where there are fewer.
        seed: Of their choice.

    Returns:
        Mean over queries, 0 to 1.

    Raises:
        StoreError: If the index was built of other vectors, a setting is out of range, or there is no query.
    """
    if sample < 1 or not len(queries):
        raise StoreError(
            f"recall must be measured on at least one query, got sample {sample} of {len(queries)}; raise sample, or give queries"
        )
    chosen = np.sort(np.random.default_rng(seed).choice(len(queries), size=min(sample, len(queries)), replace=False))
    found = search_faiss(store, path, queries[chosen], k, effort=effort)
    wanted = search(store, queries[chosen], k, similarity=_checked_note(store, path)["similarity"])
    reached = (found.scores >= wanted.scores[:, -1:]) & (found.rows >= 0)
    return float(reached.mean())


def _prepared(vectors: Float32[np.ndarray, "n e"], similarity: Similarity) -> Float32[np.ndarray, "n e"]:
    if similarity != "cosine":
        return np.ascontiguousarray(vectors)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Float32[np.ndarray, "n e"] = vectors / np.where(lengths == 0, 1, lengths)
    return unit


def _read_index(path: str | os.PathLike[str], k: int, effort: int) -> Any:
    faiss = import_faiss("searching a faiss index")
    index = faiss.read_index(os.fspath(path))
    if isinstance(index, faiss.IndexIVF):
        index.nprobe = min(effort, index.nlist)
    if isinstance(index, faiss.IndexHNSW):
        index.hnsw.efSearch = max(effort, k)
    return index


def _ordered(rows: Int64[np.ndarray, "q k"], scores: Float32[np.ndarray, "q k"]) -> Hits:
    """Best first, of equals the lower row; the index's own order comes from rounded arithmetic."""
    order = np.lexsort((rows, -scores), axis=1)
    return Hits(np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1))


def _note(path: str | os.PathLike[str]) -> Path:
    return Path(f"{os.fspath(path)}.json")


def _checked_note(store: Store, path: str | os.PathLike[str]) -> dict[str, Any]:
    if not Path(path).exists() or not _note(path).exists():
        raise StoreError(f"{os.fspath(path)} must be a faiss index with its .json beside it, it is missing; build it with build_faiss")
    note = read_json(_note(path), remedy=REMEDY, error=StoreError)
    if note["sha256"] != store.manifest.sha256:
        raise StoreError(f"{os.fspath(path)} was built of other vectors than {store.path} holds now; build it again")
    require({Path(path).name: Digest(**note["index"])}, Path(path).parent, remedy=REMEDY, error=StoreError)
    return note
