"""A baseline with documents of its own: found among several stores, measured as if it stood alone, and refused in words."""

from pathlib import Path

import numpy as np
import pytest

from adiabat.config.shared import EvaluateSettings
from adiabat.core.errors import StoreError
from adiabat.core.progress import SILENT
from adiabat.core.ragged import Ragged
from adiabat.data.records import Document
from adiabat.evaluation.evaluate import Dataset, evaluate_datasets
from adiabat.evaluation.systems import baseline_system
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.towers import DualEncoder
from adiabat.results.evaluation_result import Result
from adiabat.store.addressing import AddressedSet
from adiabat.store.build import build_store
from adiabat.store.vector_store import Store
from tests.tiny import tiny_dual

SETTINGS = EvaluateSettings.model_validate({"measure": {"resamples": 200}})
TEXTS = [f"document {number} on {'abcdefg'[number % 7] * 4}" for number in range(30)]


def store_in(folder: Path, model: DualEncoder, numbers: list[int]) -> Store:
    documents = [Document(f"d{number}", TEXTS[number]) for number in numbers]
    return build_store(model, lambda: iter(documents), folder, keep_texts=True, source="corpus", encoder_name="tiny").store


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores")


@pytest.fixture(scope="module")
def model() -> DualEncoder:
    return tiny_dual(seed=1)


@pytest.fixture(scope="module")
def other() -> DualEncoder:
    """Of another width, and of vectors that are not of unit length."""
    return tiny_dual(seed=2, width=16, settings=EncoderSettings(max_tokens=64, normalize=False))


@pytest.fixture(scope="module")
def store(here: Path, model: DualEncoder) -> Store:
    return store_in(here / "after", model, list(range(30)))


@pytest.fixture(scope="module")
def before(here: Path, other: DualEncoder) -> Store:
    return store_in(here / "before", other, list(range(30)))


def questions(store: Store, count: int = 20) -> AddressedSet:
    ids = [f"q{number}" for number in range(count)]
    texts = [f"question {number} {'wxyz'[number % 4]}" for number in range(count)]
    rows = [[int(store.rows([f"d{number}"])[0])] for number in range(count)]
    return AddressedSet("set", ids, texts, Ragged.of(rows), Ragged.of([[1]] * count), Ragged.of([[]] * count))


def evaluated(model: DualEncoder, baseline: DualEncoder | None, *datasets: Dataset) -> Result:
    return evaluate_datasets(model, baseline, datasets, settings=SETTINGS, title="A title", command="adiabat evaluate", watch=SILENT)


def test_before_and_after_are_what_each_measures_alone(model: DualEncoder, other: DualEncoder, store: Store, before: Store) -> None:
    both = evaluated(model, other, Dataset(store, questions(store), "target", baseline_stores=[before]))
    alone = {"after": evaluated(model, None, Dataset(store, questions(store), "target"))}
    alone["before"] = evaluated(other, None, Dataset(before, questions(before), "target"))
    for when, result in alone.items():
        found = {(change.measure, change.similarity): getattr(change, when) for change in both.datasets[0].changes}
        wanted = {(change.measure, change.similarity): change.after for change in result.datasets[0].changes}
        assert wanted
        assert {key: found[key] for key in wanted} == wanted
    assert both.inputs["target"]["baseline_store"] == str(before.path)
    assert both.inputs["target"]["baseline_store_sha256"] == before.manifest.sha256


def test_all_similarities_are_measured_where_either_has_vectors_of_any_length(
    model: DualEncoder, other: DualEncoder, store: Store, before: Store
) -> None:
    both = evaluated(model, other, Dataset(store, questions(store), "target", baseline_stores=[before]))
    assert {change.similarity for change in both.datasets[0].changes} == {"cosine", "distance", "dot"}


def test_results_that_changed_are_shown_from_the_store_of_each(model: DualEncoder, other: DualEncoder, store: Store, before: Store) -> None:
    shown = evaluated(model, other, Dataset(store, questions(store), "target", baseline_stores=[before])).examples
    assert shown
    for one in shown:
        for system, where, hits in ((model, store, one.after), (other, before, one.before)):
            query = system.encode([one.query], side="query", precision="fp32")[0]
            vectors = where.gather(np.arange(30))
            best = int(np.argmax(vectors @ query / np.linalg.norm(vectors, axis=1)))
            assert hits[0].doc_id == f"d{best}"


def test_each_data_set_finds_its_own_among_several(here: Path, model: DualEncoder, other: DualEncoder, store: Store, before: Store) -> None:
    few = store_in(here / "few after", model, list(range(12)))
    few_before = store_in(here / "few before", other, list(range(12)))
    stores = [few_before, before]
    assert baseline_system(other, other.fingerprint(), store, stores).store is before
    assert baseline_system(other, other.fingerprint(), few, stores).store is few_before
    assert baseline_system(model, model.fingerprint(), few, stores).store is few


def test_a_baseline_whose_documents_are_nowhere_is_named_with_what_to_do(model: DualEncoder, other: DualEncoder, store: Store) -> None:
    with pytest.raises(StoreError, match=r"after must be stored by the baseline tiny too, .*\(.*width.*\), got no --baseline-store; embed"):
        evaluated(model, other, Dataset(store, questions(store), "target"))


@pytest.mark.parametrize(
    ("numbers", "says"),
    [(list(range(29)), "with 29 documents, not 30"), ([1, 0, *range(2, 30)], "with other documents, or in another order")],
)
def test_other_documents_are_refused(
    tmp_path: Path, model: DualEncoder, other: DualEncoder, store: Store, numbers: list[int], says: str
) -> None:
    wrong = store_in(tmp_path / "wrong", other, numbers)
    with pytest.raises(StoreError, match=says):
        evaluated(model, other, Dataset(store, questions(store), "target", baseline_stores=[wrong]))


def test_a_store_of_a_third_encoder_is_refused(tmp_path: Path, model: DualEncoder, other: DualEncoder, store: Store) -> None:
    third = store_in(tmp_path / "third", tiny_dual(seed=7), list(range(30)))
    with pytest.raises(StoreError, match="third of another encoder than tiny"):
        evaluated(model, other, Dataset(store, questions(store), "target", baseline_stores=[third]))


def test_a_store_of_no_use_is_refused(model: DualEncoder, store: Store, before: Store) -> None:
    with pytest.raises(StoreError, match="--baseline-store .*before must be of use to the baseline"):
        evaluated(model, model, Dataset(store, questions(store), "target", baseline_stores=[before]))


def test_ids_are_compared_across_pieces(here: Path, store: Store, before: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adiabat.store.vector_store.IDS_PER_BLOCK", 7)
    assert store.same_documents(before)
    swapped = store_in(here / "swapped", tiny_dual(seed=1), [*range(28), 29, 28])
    assert not store.same_documents(swapped)
