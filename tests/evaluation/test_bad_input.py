"""Data and vectors that cannot be measured, or only just: told in a line, never passed over."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from adiabat.config.shared import EvaluateSettings, MeasureSection
from adiabat.core.errors import DataError, StoreError
from adiabat.core.ragged import Ragged
from adiabat.data.examples import read_examples
from adiabat.data.records import ExampleSet
from adiabat.evaluation.evaluate import read_dataset
from adiabat.evaluation.retrieval import score_retrieval
from adiabat.evaluation.systems import System
from adiabat.models.towers import DualEncoder
from adiabat.stats.samples import TaskScores
from adiabat.stats.statistics import value_of
from adiabat.store.addressing import AddressedSet
from adiabat.store.imports import import_vectors
from adiabat.store.manifest import HEADER_BYTES, VECTOR_FILE
from adiabat.store.vector_store import Store
from tests.commands import run_in_process
from tests.evaluation.given_ranker import asked
from tests.evaluation.given_vectors import give
from tests.tiny import tiny_dual

MODEL = tiny_dual()
TEXTS = [f"document {number} on {'abcdefg'[number % 7] * 4}" for number in range(12)]


@pytest.fixture(scope="module")
def store(make_store: Callable[..., Store]) -> Store:
    return make_store(MODEL, TEXTS)


def scored(store: Store, data: AddressedSet, model: DualEncoder = MODEL) -> TaskScores:
    return score_retrieval(System(model, store), data, settings=MeasureSection(depth=8))


def values(scores: TaskScores) -> dict[str, float]:
    return {one.measure: float(value_of(one)[0]) for one in scores.samples}


def beir(folder: Path, judgements: list[tuple[str, str, int]], queries: list[str]) -> Path:
    (folder / "qrels").mkdir(parents=True)
    rows = "".join(f"{query}\t{document}\t{score}\n" for query, document, score in judgements)
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}")
    (folder / "queries.jsonl").write_text("".join(json.dumps({"_id": one, "text": f"text of {one}"}) + "\n" for one in queries))
    (folder / "corpus.jsonl").write_text("".join(json.dumps({"_id": f"d{n}", "text": text}) + "\n" for n, text in enumerate(TEXTS)))
    return folder


def test_judgements_of_unknown_documents_are_counted_and_named_and_refused(store: Store, tmp_path: Path) -> None:
    folder = beir(tmp_path / "set", [("a", "d1", 1), ("a", "gone", 1), ("b", "lost", 1)], ["a", "b"])
    with pytest.raises(DataError, match=r"2 documents: .*'gone'; .*'lost'; embed them .* or set data.missing = drop"):
        read_dataset(store, str(folder), role="target", settings=EvaluateSettings(), split=None)


def test_judgements_of_unknown_documents_are_dropped_where_asked_and_that_is_said(store: Store, tmp_path: Path) -> None:
    folder = beir(tmp_path / "set", [("a", "d1", 1), ("a", "gone", 1), ("b", "lost", 1)], ["a", "b"])
    dropping = EvaluateSettings.model_validate({"data": {"missing": "drop"}})
    found = read_dataset(store, str(folder), role="target", settings=dropping, split=None).examples
    assert isinstance(found, AddressedSet)
    scores = scored(store, found)
    assert scores.units == ["a"]
    assert any("2 documents not in the store left out, and with that 1 query without a positive" in note for note in scores.notes)


def test_judgements_of_unknown_queries_are_named(tmp_path: Path) -> None:
    folder = beir(tmp_path / "set", [("a", "d1", 1), ("x", "d1", 1)], ["a"])
    with pytest.raises(DataError, match=r'test.tsv:3: query must be one of queries.jsonl, got unknown id "x"'):
        read_examples(folder)


def test_queries_without_a_positive_are_left_out_and_counted(tmp_path: Path) -> None:
    folder = beir(tmp_path / "set", [("a", "d1", 1), ("b", "d2", 0)], ["a", "b"])
    with pytest.warns(UserWarning, match="1 of 2 queries have no score above 0 and are left out"):
        found = read_examples(folder)
    assert isinstance(found, ExampleSet)
    assert [one.query_id for one in found.examples] == ["a"]


def test_an_evaluation_of_unknown_documents_ends_with_a_line_and_exit_code_2(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = beir(tmp_path / "set", [("a", "gone", 1)], ["a"])
    said = run_in_process(capsys, monkeypatch, ["evaluate", "demo", str(store.path), str(folder), "--out", str(tmp_path / "out")])
    assert said.code == 2
    assert "every document must be in the store" in said.err
    assert "Traceback" not in said.err


def given(folder: Path, vectors: np.ndarray) -> Store:
    np.save(folder / "vectors.npy", vectors.astype(np.float32))
    return import_vectors(folder / "vectors.npy", folder / "store", ids=[f"d{row}" for row in range(len(vectors))], dtype="float32")


def test_where_every_score_ties_every_pair_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = asked([[0], [3, 4], [11]])
    give(monkeypatch, {query: [1.0, 2.0, 3.0, 4.0] for query in data.queries})
    found = values(scored(given(tmp_path, np.tile([0.6, 0.8, 0.0, 0.0], (12, 1))), data))
    assert (found["PND"], found["PND pooled"]) == (1.0, 1.0)
    # Twelve documents, of which the first eight are looked at: the positives are the last of all.
    assert {found[name] for name in ("nDCG@10", "RR", "AP", "P@1")} == {0.0}


def test_a_query_of_a_zero_vector_ties_with_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = asked([[0]])
    give(monkeypatch, {data.queries[0]: [0.0, 0.0]})
    assert values(scored(given(tmp_path, np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])), data))["PND"] == 1.0


def test_one_query_is_measured(store: Store) -> None:
    scores = scored(store, asked([[5]]))
    assert all(one.values.shape == (1,) and np.isfinite(one.values).all() for one in scores.samples)


def test_a_query_whose_vector_is_not_a_number_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    data = asked([[1], [2]])
    give(monkeypatch, {data.queries[0]: [0.5] * store.width, data.queries[1]: [float("nan")] * store.width})
    with pytest.raises(DataError, match="set: vectors must be finite, got NaN or infinity for 'question 1'"):
        scored(store, data)


@pytest.mark.parametrize("row", [2, 7], ids=["a positive", "another document"])
def test_stored_vectors_that_are_no_numbers_are_named(store: Store, tmp_path: Path, row: int) -> None:
    shutil.copytree(store.path, tmp_path / "damaged")
    damaged = Store.open(tmp_path / "damaged")
    with (tmp_path / "damaged" / VECTOR_FILE).open("r+b") as file:
        file.seek(HEADER_BYTES + row * store.manifest.row_bytes)
        file.write(np.full(store.width, np.nan, dtype=store.dtype).tobytes())
    with pytest.raises(StoreError, match=f'damaged must hold finite vectors, got NaN or infinity for "d{row}"; it is damaged: rebuild'):
        scored(damaged, asked([[2]]))


def test_a_store_of_one_document_has_nothing_to_compare_with(make_store: Callable[..., Store]) -> None:
    with pytest.raises(
        DataError, match="set: the corpus must hold documents beside the positives of a query, got 1 in all; name a larger one"
    ):
        scored(make_store(MODEL, TEXTS[:1]), asked([[0]]))


def test_a_query_that_everything_answers_weighs_nothing_beside_others(store: Store) -> None:
    pnd = next(one for one in scored(store, asked([list(range(12)), [3]])).samples if one.measure == "PND")
    assert pnd.reference is not None
    assert pnd.reference.tolist() == [0.0, 1.0]
    assert value_of(pnd)[0] == pnd.values[1]


def test_listed_rows_of_other_lengths_do_not_touch_each_other(store: Store) -> None:
    data = asked([[0, 1, 2], [3]], negatives=[[4], [5, 6, 7, 8]])
    both = scored(store, data)
    for query in range(2):
        one = AddressedSet(
            "set",
            [data.query_ids[query]],
            [data.queries[query]],
            *(Ragged.of([lists[query]]) for lists in (data.positives, data.grades, data.negatives)),
        )
        for whole, part in zip(both.samples, scored(store, one).samples, strict=True):
            assert whole.values[query] == part.values[0]


def test_a_grid_without_a_label_is_refused_before_anything_is_encoded(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "grid.jsonl"
    path.write_text(json.dumps({"label": "entailment", "premise": {"en": "p"}, "hypothesis": {"en": "h"}}) + "\n")
    with pytest.raises(DataError, match=f"^{path} must have sentence pairs of every label .*, got none of neutral and contradiction; add"):
        read_dataset(store, str(path), role="target", settings=EvaluateSettings(), split=None)
