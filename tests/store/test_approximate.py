"""faiss indexes of a store, in the same process as torch."""

import sys
from inspect import unwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adiabat.errors import MissingDependencyError, StoreError
from adiabat.store.approximate import KINDS, build_faiss, faiss_recall, search_faiss
from adiabat.store.embeddings import Store
from adiabat.store.imports import import_vectors
from adiabat.store.scoring import SIMILARITIES
from adiabat.store.search import search


def store_of(vectors: np.ndarray, folder: Path) -> Store:
    np.save(folder / "v.npy", vectors)
    return import_vectors(folder / "v.npy", folder / "stored", ids=[str(row) for row in range(len(vectors))])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    rng = np.random.default_rng(0)
    return store_of((rng.standard_normal((1000, 16)) * rng.uniform(0.5, 2, (1000, 1))).astype(np.float32), tmp_path)


QUERIES = np.random.default_rng(1).standard_normal((30, 16)).astype(np.float32)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("kind", KINDS)
def test_enough_effort_finds_nearly_what_exact_search_finds(store: Store, tmp_path: Path, kind: Any, similarity: Any) -> None:
    build_faiss(store, tmp_path / "x.faiss", kind=kind, similarity=similarity)
    # torch's threads run between faiss's: both bring an OpenMP of their own.
    assert torch.ones(300, 300).matmul(torch.ones(300, 300))[0, 0] == 300
    exact = search(store, QUERIES, 10, similarity=similarity)
    hits = search_faiss(store, tmp_path / "x.faiss", QUERIES, 10, effort=500)
    same = hits.rows == exact.rows
    assert same.mean() > 0.97
    assert np.array_equal(hits.scores[same], exact.scores[same])
    recall = faiss_recall(store, tmp_path / "x.faiss", QUERIES, 10, effort=500)
    found = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(hits.rows.tolist(), exact.rows.tolist(), strict=True)])
    assert recall == pytest.approx(found, abs=1e-12)
    if kind == "flat":
        assert recall == 1.0


def test_less_effort_finds_less(store: Store, tmp_path: Path) -> None:
    build_faiss(store, tmp_path / "x.faiss", kind="ivf", lists=50)
    recalls = [faiss_recall(store, tmp_path / "x.faiss", QUERIES, 10, effort=effort) for effort in (1, 10, 50)]
    assert recalls[0] < recalls[1] <= recalls[2] == 1.0
    assert faiss_recall(store, tmp_path / "x.faiss", QUERIES, 10, effort=1, sample=3) != recalls[0]


def test_equal_documents_count_as_found_whichever_is_proposed(tmp_path: Path) -> None:
    vectors = np.repeat(np.random.default_rng(0).standard_normal((10, 4)), 20, axis=0).astype(np.float32)
    store = store_of(vectors, tmp_path)
    build_faiss(store, tmp_path / "x.faiss", kind="flat")
    assert faiss_recall(store, tmp_path / "x.faiss", vectors[::20], 5) == 1.0
    hits = search_faiss(store, tmp_path / "x.faiss", vectors[::20], 5)
    assert (np.diff(hits.rows, axis=1) > 0).all()


def test_a_store_smaller_than_k(tmp_path: Path) -> None:
    store = store_of(np.eye(3, dtype=np.float32), tmp_path)
    for kind in KINDS:
        build_faiss(store, tmp_path / "x.faiss", kind=kind)
        assert search_faiss(store, tmp_path / "x.faiss", np.eye(3, dtype=np.float32)[:1], 10).rows.tolist() == [[0, 1, 2]]


def test_a_damaged_index_is_refused_by_name(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "x.faiss"
    build_faiss(store, path, kind="flat")
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    with pytest.raises(StoreError, match=r"x\.faiss must be undamaged, got .* does not match its checksum; build the index again"):
        search_faiss(store, path, QUERIES, 1)


def test_an_index_of_other_vectors_is_refused(store: Store, tmp_path: Path) -> None:
    build_faiss(store, tmp_path / "x.faiss", kind="flat")
    (tmp_path / "other").mkdir()
    other = store_of(np.eye(16, dtype=np.float32), tmp_path / "other")
    with pytest.raises(StoreError, match="was built of other vectors than .* holds now; build it again"):
        search_faiss(other, tmp_path / "x.faiss", QUERIES, 1)


def test_settings_out_of_range_and_missing_files_are_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"lists must lie in 1\.\.1000, got 0; leave it out for a number that goes by the store"):
        build_faiss(store, tmp_path / "x.faiss", kind="ivf", lists=0)
    with pytest.raises(StoreError, match="must be a faiss index with its .json beside it, it is missing"):
        search_faiss(store, tmp_path / "x.faiss", QUERIES, 1)
    build_faiss(store, tmp_path / "x.faiss", kind="flat")
    with pytest.raises(StoreError, match="k and effort must be at least 1, got 0 and 64; raise them"):
        search_faiss(store, tmp_path / "x.faiss", QUERIES, 0)
    with pytest.raises(StoreError, match="at least one query, got sample 100 of 0; raise sample, or give queries"):
        faiss_recall(store, tmp_path / "x.faiss", QUERIES[:0], 1)


def test_kinds_and_similarities_of_no_name_are_refused_with_those_there_are(store: Store, tmp_path: Path) -> None:
    # Without the checks of types, which nobody but tests runs under.
    build: Any = unwrap(build_faiss)
    with pytest.raises(StoreError, match="kind must be flat, ivf or hnsw, got pq; name one of them"):
        build(store, tmp_path / "x.faiss", kind="pq")
    with pytest.raises(StoreError, match="similarity must be cosine, distance or dot, got l2; name one of them"):
        build(store, tmp_path / "x.faiss", similarity="l2")


def test_without_faiss_the_error_says_how_to_install_it(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingDependencyError, match=r"building a faiss index needs .* pip install 'adiabat\[faiss\]'"):
        build_faiss(store, tmp_path / "x.faiss")
