"""Data and vectors that cannot be measured, or only just: told in a line, never passed over."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from adiabat.config.shared import MeasureSection
from adiabat.core.errors import DataError, StoreError
from adiabat.evaluation.retrieval import score_retrieval
from adiabat.evaluation.systems import System
from adiabat.models.towers import DualEncoder
from adiabat.stats.samples import TaskScores
from adiabat.stats.statistics import value_of
from adiabat.store.addressing import AddressedSet
from adiabat.store.manifest import HEADER_BYTES, VECTOR_FILE
from adiabat.store.vector_store import Store
from tests.evaluation.given_ranker import asked
from tests.evaluation.given_vectors import give, imported_store
from tests.evaluation.scored import figure, sample_of
from tests.tiny import tiny_dual

MODEL = tiny_dual()
TEXTS = [f"document {number} on {'abcdefg'[number % 7] * 4}" for number in range(12)]


@pytest.fixture(scope="module")
def store(make_store: Callable[..., Store]) -> Store:
    return make_store(MODEL, TEXTS)


def scored(store: Store, data: AddressedSet, model: DualEncoder = MODEL) -> TaskScores:
    return score_retrieval(
        System(model, store), data, settings=MeasureSection(depth=8, report=("nDCG@10", "RR", "AP", "P@1"))
    )


def test_where_every_score_ties_every_pair_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = asked([[0], [3, 4], [11]])
    give(monkeypatch, {query: [1.0, 2.0, 3.0, 4.0] for query in data.queries})
    scores = scored(imported_store(tmp_path, np.tile([0.6, 0.8, 0.0, 0.0], (12, 1))), data)
    # Twelve documents, of which the first eight are looked at: the positives are the last of all.
    lost = {"PND": 1.0, "PND pooled": 1.0, "nDCG@10": 0.0, "RR": 0.0, "AP": 0.0, "P@1": 0.0}
    assert {name: figure(scores, name) for name in lost} == lost


def test_a_query_of_a_zero_vector_ties_with_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = asked([[0]])
    give(monkeypatch, {data.queries[0]: [0.0, 0.0]})
    store = imported_store(tmp_path, np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]))
    assert figure(scored(store, data), "PND") == 1.0


@pytest.mark.parametrize("row", [2, 7], ids=["a positive", "another document"])
def test_stored_vectors_that_are_no_numbers_are_named(store: Store, tmp_path: Path, row: int) -> None:
    shutil.copytree(store.path, tmp_path / "damaged")
    damaged = Store.open(tmp_path / "damaged")
    with (tmp_path / "damaged" / VECTOR_FILE).open("r+b") as file:
        file.seek(HEADER_BYTES + row * store.manifest.row_bytes)
        file.write(np.full(store.width, np.nan, dtype=store.dtype).tobytes())
    told = f'damaged must hold finite vectors, got NaN or infinity for "d{row}"; it is damaged: rebuild'
    with pytest.raises(StoreError, match=told):
        scored(damaged, asked([[2]]))


def test_a_store_of_one_document_has_nothing_to_compare_with(make_store: Callable[..., Store]) -> None:
    told = "set: the corpus must hold documents beside the positives .*, got 1 in all; name a larger one"
    with pytest.raises(DataError, match=told):
        scored(make_store(MODEL, TEXTS[:1]), asked([[0]]))


def test_a_query_that_everything_answers_weighs_nothing_beside_others(store: Store) -> None:
    pnd = sample_of(scored(store, asked([list(range(12)), [3]])), "PND")
    assert pnd.reference is not None
    assert pnd.reference.tolist() == [0.0, 1.0]
    assert value_of(pnd)[0] == pnd.values[1]
