"""Imports of faiss indexes: flat, compressed, behind transforms, with ids of their own."""

import warnings
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from adiabat.core.errors import StoreError
from adiabat.store import imports as imports_module
from tests.imported import import_vectors
from tests.refused import refused
from tests.store.worlds import IDS, assert_holds, own_vectors


def faiss_index(kind: str) -> Any:
    vectors = own_vectors()
    index: Any
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(8, 4)
    elif kind == "ivf":
        index = faiss.index_factory(8, "IVF2,Flat")
        index.cp.min_points_per_centroid = 1
        index.train(vectors)
    else:
        index = faiss.IndexFlatIP(8)
    index.add(vectors)
    return index


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_a_faiss_index_with_ids_given(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports_module, "BLOCK_ROWS", 3)
    faiss.write_index(faiss_index(kind), str(tmp_path / "v.faiss"))
    assert_holds(import_vectors(tmp_path / "v.faiss", tmp_path / "s", ids=IDS))


@pytest.mark.parametrize("factory", ["IDMap,Flat", "IDMap2,Flat", "IVF2,Flat", "IDMap,IVF2,Flat"])
def test_a_faiss_index_with_its_own_ids(tmp_path: Path, factory: str) -> None:
    labels = np.array([40, 3, 17, 1000, 8, 9, 2])
    store = import_vectors(trained_index(tmp_path, factory, own_vectors(), labels), tmp_path / "s")
    found = store.gather(store.rows([str(label) for label in labels]))
    assert np.array_equal(found, own_vectors().astype(np.float16).astype(np.float32))


ROWS = [str(row) for row in range(300)]
VECTORS = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)


def trained_index(folder: Path, factory: str, vectors: np.ndarray, labels: np.ndarray | None) -> Path:
    index = faiss.index_factory(vectors.shape[1], factory)
    if (ivf := faiss.try_extract_index_ivf(index)) is not None:
        ivf.cp.min_points_per_centroid = 1
    index.train(vectors)
    if labels is None:
        index.add(vectors)
    else:
        index.add_with_ids(vectors, labels)
    faiss.write_index(index, str(folder / "v.index"))
    return folder / "v.index"


@pytest.mark.parametrize(
    ("factory", "labelled"),
    [
        *(
            (factory, True)
            for factory in (
                "PCA6,IVF2,Flat",
                "OPQ2_6,IVF2,PQ2x2",
                "OPQ4,IVF2,SQ8",
                "IDMap,OPQ4,IVF2,PQ2x2",
                "L2norm,PCA6,IVF2,Flat",
            )
        ),
        *((factory, False) for factory in ("PCA6,Flat", "OPQ4,IVF2,PQ2x2", "OPQ4,IVF2,PQ2x2,RFlat")),
    ],
)
def test_vectors_behind_a_transform_are_those_that_faiss_gives_back(
    tmp_path: Path, factory: str, labelled: bool
) -> None:
    labels = np.random.default_rng(1).permutation(300) * 7 + 3
    path = trained_index(tmp_path, factory, VECTORS, labels if labelled else None)
    with pytest.warns(UserWarning, match="keeps compressed vectors; the store gets approximations"):
        store = import_vectors(path, tmp_path / "s", ids=None if labelled else ROWS, dtype="float32")
    index = faiss.read_index(str(path))
    ivf = faiss.try_extract_index_ivf(index)
    if ivf is not None:
        ivf.set_direct_map_type(faiss.DirectMap.Hashtable)
    inner = faiss.downcast_index(index.index) if isinstance(index, faiss.IndexIDMap) else index
    keys = labels if labelled and inner is index else np.arange(300)
    given = store.gather(store.rows([str(label) for label in labels] if labelled else ROWS))
    assert np.array_equal(given, np.stack([inner.reconstruct(int(key)) for key in keys]))
    cosines = (given * VECTORS).sum(axis=1) / np.linalg.norm(given, axis=1) / np.linalg.norm(VECTORS, axis=1)
    assert cosines.mean() > 0.6


@pytest.mark.parametrize("factory", ["IVF2,PQ4x4fs", "OPQ4,IVF2,PQ4x4fs", "ITQ4,LSH"])
def test_an_index_that_cannot_give_its_vectors_back_is_refused(tmp_path: Path, factory: str) -> None:
    path = trained_index(tmp_path, factory, VECTORS, None)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*keeps compressed vectors")
        with refused(StoreError, "cannot return its vectors", "original vectors"):
            import_vectors(path, tmp_path / "s", ids=ROWS)
    assert not (tmp_path / "s.building").exists()
