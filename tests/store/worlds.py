"""Stores that several tests build, change, search and read."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from adiabat.core.provenance import CHECKED
from adiabat.data.records import Document
from adiabat.models.embedding_head import Similarity
from adiabat.store.commit import Change
from adiabat.store.deletion import Deletion
from adiabat.store.manifest import StoreDtype
from adiabat.store.search import score_rows
from adiabat.store.vector_store import Store
from tests.fake_encoder import FakeEncoder, fake_store
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


def build(out: Path, documents: list[Document] = OLD, **options: Any) -> Store:
    return fake_store(out, documents, source="old", **options).store


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


# --- Vectors that are imported ---

IDS = ["a", "ב", "ج d", "🧭", "e", "f", "7"]
DOCUMENTS = [Document(doc_id, f"text of {doc_id}") for doc_id in IDS]


def own_vectors(encoder: FakeEncoder | None = None) -> np.ndarray:
    return vectors_of(DOCUMENTS, encoder)


def imported(folder: Path, vectors: np.ndarray | None = None, **options: Any) -> Store:
    """Import vectors, by default with ids, into a store of the folder."""
    np.save(folder / "v.npy", own_vectors() if vectors is None else vectors, allow_pickle=True)
    return import_vectors(folder / "v.npy", folder / "s", **{"ids": IDS, **options})


def assert_holds(store: Store, vectors: np.ndarray | None = None) -> None:
    assert store.doc_ids(range(store.count)) == IDS
    assert store.rows([*IDS, "unknown"]).tolist() == [*range(7), -1]
    wanted = own_vectors() if vectors is None else vectors
    assert np.array_equal(store.gather(range(7)), wanted.astype(store.dtype).astype(np.float32))
    store.verify()
    wanted = {
        "id_index.npy",
        "ids.arrow",
        "manifest.json",
        "vectors.npy",
        *(["texts.arrow", "text_hashes.bin"] if store.has_texts else []),
    }
    assert {path.name for path in store.path.iterdir()} - {CHECKED} == wanted


def vector_column(kind: str) -> pa.Array:
    flat = pa.array(own_vectors().ravel())
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(flat, 8)
    if kind == "large":
        return pa.LargeListArray.from_arrays(np.arange(0, 57, 8), flat)
    return pa.ListArray.from_arrays(np.arange(0, 57, 8, dtype=np.int32), flat)


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
