"""Rank measures query by query: from their definitions, and as a measurement of one model takes its means from them."""

import numpy as np
import pytest

from adiabat.config import MeasureSection
from adiabat.data.records import Document, Example, ExampleSet
from adiabat.errors import StoreError
from adiabat.measure.per_query import query_scores
from adiabat.measure.systems import System
from adiabat.measure.tasks import measure_examples
from adiabat.store.addressing import AddressedSet, address
from adiabat.store.build import build_store
from adiabat.store.embeddings import Store
from adiabat.watch import SILENT
from tests.measure.brute_force import all_scores, rank_measures_by_loops
from tests.tiny import tiny_dual

MODEL = tiny_dual()
TEXTS = [f"document {number} about {'abcdefgh'[number % 8] * 5}" for number in range(24)] + ["מסמך", ""]
MEASURES = MeasureSection(measures=("nDCG@10", "RR", "AP", "P@1"), resamples=100)


def examples(*, negatives: bool = False) -> ExampleSet:
    rows = []
    for number in range(12):
        near = (f"d{number}", f"d{number + 7}")
        far = (f"d{number + 1}", f"d{number + 2}") if negatives else ()
        rows.append(Example(f"q{number}", f"question {number} {'abcd'[number % 4] * 3}", near, far, (2, 1), f"x:{number}"))
    return ExampleSet("asked", rows, holds_texts=False)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    documents = [Document(f"d{number}", text) for number, text in enumerate(TEXTS)]
    out = tmp_path_factory.mktemp("built") / "store"
    return build_store(MODEL, lambda: iter(documents), out, dtype="float32", source="s", encoder_name="e").store


def addressed(store: Store, *, negatives: bool = False) -> AddressedSet:
    return address(examples(negatives=negatives), store)


def test_each_query_has_the_value_of_the_definition(store: Store) -> None:
    asked = addressed(store)
    found = query_scores(MODEL, store, asked, settings=MEASURES, watch=SILENT)
    scores = all_scores(MODEL, store, asked.queries)
    for query in range(len(asked)):
        grades = dict(zip(asked.positives[query].tolist(), asked.grades[query].tolist(), strict=True))
        by_hand = rank_measures_by_loops(scores[query], grades, range(store.count))
        assert {name: values[query] for name, values in found.values.items()} == pytest.approx(by_hand)
    assert (found.kind, found.documents) == ("ranking", len(TEXTS))


@pytest.mark.parametrize("negatives", [False, True])
def test_their_means_are_what_a_measurement_reports(store: Store, negatives: bool) -> None:
    asked = addressed(store, negatives=negatives)
    found = query_scores(MODEL, store, asked, settings=MEASURES, watch=SILENT)
    result = measure_examples(System(MODEL, store), None, asked, role="target", settings=MEASURES, seed=0, watch=SILENT)
    values = {change.measure: change.after for change in result.changes if change.similarity == "cosine"}
    assert {name: np.mean(one) for name, one in found.values.items()} == pytest.approx({name: values[name] for name in found.values})
    assert list(found.values) == list(MEASURES.measures)
    assert found.kind == ("pairs" if negatives else "ranking") == result.kind
    assert set(found.notes) <= set(result.notes)


def test_a_store_of_another_model_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="was built by another encoder"):
        query_scores(tiny_dual(seed=5), store, addressed(store), settings=MEASURES, watch=SILENT)
