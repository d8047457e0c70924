"""Vectors, ids and texts that `import_vectors` takes, and what it refuses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import polars
import pytest

import adiabat
from adiabat.core.errors import DataError, StoreError
from adiabat.data.records import text_id
from tests.commands import here as here
from tests.commands import own_world

world = own_world


@pytest.mark.parametrize("kind", [list, tuple, pandas.Series, polars.Series, iter])
def test_texts_of_vectors_are_any_sequence_of_texts(tmp_path: Path, kind: Callable[[list[str]], Any]) -> None:
    store = adiabat.import_vectors(np.eye(2), tmp_path / "new", ids=["x", "y"], texts=kind(["one", "two"]))
    assert (store.doc_ids(range(2)), store.texts(range(2))) == (["x", "y"], ["one", "two"])


@pytest.mark.parametrize("kind", ["array", "list", "frame", "column", "Dataset"])
def test_vectors_in_memory_are_imported(here: Path, kind: str) -> None:
    store = adiabat.embed("model", "corpus.jsonl", "exact", dtype="float32", precision="fp32")
    vectors, ids, texts = np.asarray(store.vectors), store.doc_ids(range(20)), store.texts(range(20))
    column = {"_id": ids, "vector": list(vectors)}
    given: dict[str, tuple[Any, Any]] = {
        "array": (vectors, ids),
        "list": (vectors.tolist(), np.array(ids)),
        "frame": (pandas.DataFrame(vectors, index=ids), None),
        "column": (pandas.DataFrame(column), None),
        "Dataset": (datasets.Dataset.from_dict({"_id": ids, "vector": vectors.tolist()}), None),
    }
    values, names = given[kind]
    corpus = texts if names is not None else "corpus.jsonl"
    imported = adiabat.import_vectors(values, "new", ids=names, texts=corpus, model="model", dtype="float32")
    assert (imported.fingerprint, imported.manifest.encoder) == (store.fingerprint, "model")
    assert imported.same_documents(store)
    np.testing.assert_array_equal(imported.vectors, vectors)


@pytest.mark.parametrize("kind", ["frame", "Dataset", "file", "array"])
def test_listed_texts_take_the_ids_that_the_vectors_hold(tmp_path: Path, kind: str) -> None:
    frame = pandas.DataFrame({"_id": ["x", "y"], "vector": [[1.0, 0.0], [0.0, 1.0]]})
    frame.to_parquet(tmp_path / "vectors.parquet")
    vectors = {
        "frame": frame,
        "Dataset": datasets.Dataset.from_pandas(frame),
        "file": tmp_path / "vectors.parquet",
        "array": np.eye(2),
    }
    store = adiabat.import_vectors(vectors[kind], tmp_path / "new", texts=["one", "two"])
    assert store.doc_ids(range(2)) == ([text_id("one"), text_id("two")] if kind == "array" else ["x", "y"])
    assert store.texts(range(2)) == ["one", "two"]


def test_vectors_that_are_none_or_do_not_fit_are_refused(here: Path) -> None:
    for value in (7, ["a"], np.ones(3), [[1, 2]]):
        with pytest.raises(TypeError, match="vectors must be a path, an array"):
            adiabat.import_vectors(value, "new")
    with pytest.raises(DataError, match="ids and texts must be equally many, got 1 ids and 2 texts"):
        adiabat.import_vectors(np.ones((1, 3)), "new", ids=["a"], texts=["a", "b"])
    with pytest.raises(StoreError, match="ids and vectors must be equally many"):
        adiabat.import_vectors(np.ones((2, 3)), "new", ids=["a"])
    assert adiabat.import_vectors(np.ones((1, 3)), "new", ids=["a"]).fingerprint is None
