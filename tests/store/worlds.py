"""Stores that several tests build, change, search and read."""

from pathlib import Path

import numpy as np

from adiabat.data.records import Document
from adiabat.models.embedding_head import Similarity
from adiabat.store.commit import Change
from adiabat.store.deletion import Deletion
from adiabat.store.manifest import StoreDtype
from adiabat.store.search import score_rows
from adiabat.store.vector_store import Store
from tests.fake_encoder import FakeEncoder
from tests.imported import import_vectors


def numbered(count: int, prefix: str = "d", text: str = "text") -> list[Document]:
    return [Document(f"{prefix}{number}", f"{text} {number}") for number in range(count)]


def vectors_of(documents: list[Document], encoder: FakeEncoder | None = None) -> np.ndarray:
    return (encoder or FakeEncoder()).encode([document.text for document in documents], side="document")


def names(folder: Path) -> list[str]:
    return sorted(child.name for child in folder.iterdir() if child.name[0] != ".")


# --- A store that is updated ---

OLD = numbered(7)
# One document as it was, two with other texts, of which one is that of a deleted document, and two new ones.
CORPUS = [
    OLD[3],
    Document("d1", "another text"),
    Document("n0", "new 0"),
    Document("d5", "text 2"),
    Document("n1", "new 1"),
]
GONE = Deletion(("d2", "d6"))
FINAL = [OLD[0], OLD[3], OLD[4], *CORPUS[1:]]


def content(store: Store) -> dict[str, object]:
    """What readers of a store see."""
    rows = np.arange(store.count)
    return {
        "ids": store.doc_ids(rows),
        "rows": store.rows(store.doc_ids(rows)).tolist(),
        "texts": store.texts(rows) if store.has_texts else None,
        "vectors": [
            vectors.tobytes() for vectors in (store.gather(rows), store.gather(rows[::-1]), store.vectors)
        ],
        "blocks": {
            size: [(start, block.tobytes()) for start, block in store.blocks(size)] for size in (1, 3, 100)
        },
        "found by text": sorted(store.rows_of_texts([document.text for document in [*OLD, *CORPUS]]).items()),
        "digest": store.manifest.sha256,
    }


def numbers(change: Change) -> tuple[int, ...]:
    return change.new, change.replaced, change.unchanged, change.deleted


# --- A store that is searched ---


def store_of(vectors: np.ndarray, folder: Path, *, dtype: StoreDtype = "float32") -> Store:
    """Vectors under the numbers of their rows."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "vectors.npy", vectors)
    ids = [str(row) for row in range(len(vectors))]
    return import_vectors(folder / "vectors.npy", folder / "stored", ids=ids, dtype=dtype)


def duplicated(rng: np.random.Generator, count: int, width: int) -> np.ndarray:
    """Random vectors of unequal lengths, most of them several times."""
    distinct = rng.standard_normal((max(1, count // 4), width)) * 10.0 ** rng.uniform(
        -1, 1, (max(1, count // 4), 1)
    )
    return distinct[rng.integers(len(distinct), size=count)].astype(np.float32)


def drawn_queries(rng: np.random.Generator, store: Store, count: int) -> np.ndarray:
    """Half of them documents of the store."""
    queries = rng.standard_normal((count, store.width)).astype(np.float32)
    queries[::2] = store.gather(rng.integers(store.count, size=len(queries[::2])))
    return queries


def all_scores(store: Store, queries: np.ndarray, similarity: Similarity) -> np.ndarray:
    rows = np.tile(np.arange(store.count), (len(queries), 1))
    return score_rows(store, queries, rows, similarity=similarity)
