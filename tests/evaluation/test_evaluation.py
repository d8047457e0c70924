"""One evaluation as a whole: several data sets, a baseline, the queries that changed, and the record of it all."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adiabat.config.shared import EvaluateSettings, MeasureSection
from adiabat.core.errors import DataError, StoreError
from adiabat.core.progress import SILENT
from adiabat.core.ragged import Ragged
from adiabat.data.records import Document, LanguageGridSet
from adiabat.evaluation.evaluate import (
    SAME_TOWER,
    SHOWN_CHARACTERS,
    SHOWN_HITS,
    SHOWN_QUERIES,
    Dataset,
    changed_queries,
    evaluate_datasets,
    read_dataset,
)
from adiabat.evaluation.systems import Role, System
from adiabat.models.towers import DualEncoder
from adiabat.results.evaluation_result import Result
from adiabat.results.record import read_result, write_result
from adiabat.store.addressing import AddressedSet
from adiabat.store.build import build_store
from adiabat.store.search import hits_of, search
from adiabat.store.vector_store import Store
from tests.tiny import tiny_dual, tiny_encoder

SETTINGS = EvaluateSettings.model_validate({"measure": {"resamples": 200}, "run": {"seed": 3}})
TEXTS = [f"document {number} on {'abcdefg'[number % 7] * 4}" for number in range(30)]


@pytest.fixture(scope="module")
def model() -> DualEncoder:
    return tiny_dual(seed=1)


@pytest.fixture(scope="module")
def baseline(model: DualEncoder) -> DualEncoder:
    return DualEncoder(tiny_encoder(seed=2), model.document, "before")


def store_in(folder: Path, model: DualEncoder, texts: Sequence[str] = TEXTS, *, keep_texts: bool = True) -> Store:
    documents = [Document(f"d{number}", text) for number, text in enumerate(texts)]
    return build_store(model, lambda: iter(documents), folder, keep_texts=keep_texts, source="corpus", encoder_name="tiny").store


@pytest.fixture(scope="module")
def store(model: DualEncoder, tmp_path_factory: pytest.TempPathFactory) -> Store:
    return store_in(tmp_path_factory.mktemp("store") / "store", model)


def questions(count: int, name: str = "set") -> AddressedSet:
    ids = [f"q{number}" for number in range(count)]
    texts = [f"question {number} {'wxyz'[number % 4]}" for number in range(count)]
    rows = [[number % len(TEXTS)] for number in range(count)]
    return AddressedSet(name, ids, texts, Ragged.of(rows), Ragged.of([[1]] * count), Ragged.of([[]] * count))


def evaluated(model: DualEncoder, baseline: DualEncoder | None, datasets: Sequence[Dataset]) -> Result:
    return evaluate_datasets(model, baseline, datasets, settings=SETTINGS, title="A title", command="adiabat evaluate", watch=SILENT)


def test_an_encoder_that_did_not_make_a_store_is_refused_for_every_data_set(model: DualEncoder, store: Store, tmp_path: Path) -> None:
    foreign = store_in(tmp_path / "foreign", tiny_dual(seed=9))
    sets = [Dataset(store, questions(3), "target"), Dataset(foreign, questions(3), "retain")]
    with pytest.raises(StoreError, match="foreign was built by another encoder than tiny's: weights"):
        evaluated(model, None, sets)


def test_a_question_in_several_rows_is_one_query_with_all_its_answers(store: Store, tmp_path: Path) -> None:
    rows = [{"query": "which", "pos": ["d0"]}, {"query": "which", "pos": ["d1"]}, {"query": "what", "pos": ["d2"]}]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    examples = read_dataset(store, str(tmp_path / "pairs.jsonl"), role="target", settings=SETTINGS, split=None).examples
    assert isinstance(examples, AddressedSet)
    assert examples.queries == ["which", "what"]
    assert [sorted(examples.positives[row]) for row in range(2)] == [store.rows(["d0", "d1"]).tolist(), store.rows(["d2"]).tolist()]
    assert any("share their question" in note for note in examples.notes)


def test_data_sets_keep_their_order_and_roles(model: DualEncoder, baseline: DualEncoder, store: Store) -> None:
    sets = [
        Dataset(store, questions(4, "a"), "target"),
        Dataset(store, questions(5, "b"), "retain"),
        Dataset(store, questions(6, "c"), "retain"),
    ]
    result = evaluated(model, baseline, sets)
    assert [(one.name, one.role, one.queries) for one in result.datasets] == [("a", "target", 4), ("b", "retain", 5), ("c", "retain", 6)]
    assert (result.model, result.baseline, result.seed, result.title) == ("tiny", "before", 3, "A title")
    assert result.training is None


def test_a_result_says_with_what_it_was_made(model: DualEncoder, store: Store) -> None:
    result = evaluated(model, None, [Dataset(store, questions(2), "target")])
    assert {"adiabat", "torch", "transformers", "numpy", "python", "platform", "device"} <= set(result.versions)
    assert result.versions["numpy"] == np.__version__
    assert result.created.endswith("+00:00")
    assert result.seconds > 0
    assert result.baseline is None
    assert result.examples == []


def test_equal_evaluations_give_equal_results_but_for_the_time(model: DualEncoder, baseline: DualEncoder, store: Store) -> None:
    first, second = (evaluated(model, baseline, [Dataset(store, questions(6), "target")]).to_json() for _ in range(2))
    for varying in ("created", "seconds"):
        del first[varying], second[varying]
    assert first == second


def test_a_result_comes_back_from_its_file(model: DualEncoder, baseline: DualEncoder, store: Store, tmp_path: Path) -> None:
    result = evaluated(model, baseline, [Dataset(store, questions(12), "target")])
    write_result(result, tmp_path)
    assert read_result(tmp_path / "result.json") == result


def test_at_most_ten_changed_queries_are_shown_each_with_both_rankings(model: DualEncoder, baseline: DualEncoder, store: Store) -> None:
    dataset = Dataset(store, questions(25), "target")
    shown = changed_queries(System(model, store), System(baseline, store), dataset.examples, settings=SETTINGS.measure, seed=0)
    assert len(shown) == SHOWN_QUERIES == 10
    for one in shown:
        place = int(one.query.split()[1])
        for tower, hits in ((baseline, one.before), (model, one.after)):
            vectors = tower.encode([one.query], side="query", precision="fp32")
            assert [hit.doc_id for hit in hits] == store.doc_ids(search(store, vectors, SHOWN_HITS).rows[0])
            assert [hit.relevant for hit in hits] == [hit.doc_id == f"d{place}" for hit in hits]
            assert [hit.text for hit in hits] == [TEXTS[int(hit.doc_id[1:])] for hit in hits]
        assert one.before != one.after


def test_changed_queries_are_drawn_by_the_seed_and_not_for_effect(model: DualEncoder, baseline: DualEncoder, store: Store) -> None:
    dataset = Dataset(store, questions(25), "target")
    first, again, other = (
        changed_queries(System(model, store), System(baseline, store), dataset.examples, settings=SETTINGS.measure, seed=seed)
        for seed in (0, 0, 1)
    )
    assert first == again
    assert [one.query for one in first] != [one.query for one in other]


def test_a_model_that_is_its_own_baseline_has_no_changed_queries_and_that_is_said(
    model: DualEncoder, baseline: DualEncoder, store: Store
) -> None:
    result = evaluated(model, model, [Dataset(store, questions(12), "target")])
    assert result.examples == []
    assert result.datasets[0].notes[0] == SAME_TOWER
    assert SAME_TOWER not in evaluated(model, baseline, [Dataset(store, questions(12), "target")]).datasets[0].notes
    assert {change.difference for change in result.datasets[0].changes} == {0.0}


def test_a_language_grid_has_no_queries_to_show(model: DualEncoder, baseline: DualEncoder, store: Store) -> None:
    grid = LanguageGridSet("grid", ("en",), ("entailment", "neutral"), ({"en": "a"}, {"en": "b"}), ({"en": "c"}, {"en": "d"}))
    assert changed_queries(System(model, store), System(baseline, store), grid, settings=SETTINGS.measure, seed=0) == []


def test_a_document_with_the_querys_own_id_is_not_shown_where_no_measure_sees_it(
    model: DualEncoder, baseline: DualEncoder, store: Store
) -> None:
    asked = questions(25)
    # Each query goes by the id of the document that is nearest to it, which is not its positive.
    nearest = search(store, model.encode(asked.queries, side="query", precision="fp32"), 2).rows
    rows = [next(int(row) for row in found if row != asked.positives[query][0]) for query, found in enumerate(nearest)]
    own = dict(zip(asked.queries, store.doc_ids(np.array(rows)), strict=True))
    dataset = Dataset(store, replace(asked, query_ids=list(own.values())), "target")
    for drop in (True, False):
        settings = MeasureSection(drop_same_id=drop)
        shown = changed_queries(System(model, store), System(baseline, store), dataset.examples, settings=settings, seed=0)
        assert any(own[one.query] in {hit.doc_id for hit in (*one.before, *one.after)} for one in shown) == (not drop)
        assert {len(hits) for one in shown for hits in (one.before, one.after)} == {SHOWN_HITS}


def test_long_texts_are_cut_and_texts_that_are_not_kept_are_empty(model: DualEncoder, tmp_path: Path) -> None:
    long = store_in(tmp_path / "long", model, ["x" * 2000])
    bare = store_in(tmp_path / "bare", model, keep_texts=False)
    vectors = model.encode(["a"], side="query", precision="fp32")
    none = np.empty(0, dtype=np.int64)
    found, own = search(long, vectors, 5), search(bare, vectors, 5)
    cut = hits_of(long, found, 0, none, similarity="cosine", characters=SHOWN_CHARACTERS)
    assert [len(hit.text) for hit in cut] == [SHOWN_CHARACTERS]
    assert [len(hit.text) for hit in hits_of(long, found, 0, none, similarity="cosine")] == [2000]
    assert {hit.text for hit in hits_of(bare, own, 0, none, similarity="cosine")} == {""}


def write_lines(path: Path, rows: Sequence[object]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_reading_a_data_set_finds_its_documents_or_names_those_that_are_missing(store: Store, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"query": "x", "pos": ["d3"], "neg": ["nowhere"]}, {"query": "y", "pos": ["another text"]}])
    with pytest.raises(DataError, match=r"a\.jsonl:1: 'nowhere'.*a\.jsonl:2: 'another text'"):
        read_dataset(store, path, role="target", settings=SETTINGS, split=None)
    dropping = EvaluateSettings.model_validate({"data": {"missing": "drop"}})
    found = read_dataset(store, path, role="retain", settings=dropping, split=None)
    assert isinstance(found.examples, AddressedSet)
    assert (found.role, found.examples.queries, found.examples.positives[0].tolist()) == ("retain", ["x"], [3])
    assert any("2 documents" in note for note in found.examples.notes)


def test_columns_of_the_settings_are_those_of_the_target_and_not_of_a_retention_set(store: Store, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"query": "x", "pos": "d3"}])
    settings = EvaluateSettings.model_validate({"data": {"columns": {"query": "frage", "positive": "antwort"}}})
    found = read_dataset(store, path, role="retain", settings=settings, split=None)
    assert isinstance(found.examples, AddressedSet)
    assert found.examples.queries == ["x"]
    with pytest.raises(DataError, match="frage"):
        read_dataset(store, path, role="target", settings=settings, split=None)


def test_a_result_holds_its_settings_and_what_was_read(model: DualEncoder, store: Store, tmp_path: Path) -> None:
    paths = [write_lines(tmp_path / f"{name}.jsonl", [{"query": "x", "pos": "d3"}]) for name in "abc"]
    roles: list[Role] = ["target", "retain", "retain"]
    sets = [read_dataset(store, path, role=role, settings=SETTINGS, split=None) for path, role in zip(paths, roles, strict=True)]
    result = evaluated(model, None, sets)
    assert (result.settings["measure"]["resamples"], result.settings["run"]["seed"]) == (200, 3)
    assert result.settings["measure"]["measures"] == ["nDCG@10", "RR", "AP", "P@1"]
    assert list(result.inputs) == ["target", "retain 1", "retain 2"]
    assert result.inputs["retain 2"] == {"data": paths[2], "store": str(store.path), "store_sha256": store.manifest.sha256}
    write_result(result, tmp_path)
    assert read_result(tmp_path / "result.json") == result


def test_columns_of_the_settings_name_those_of_the_file(store: Store, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"frage": "x", "antwort": "d3"}])
    settings = EvaluateSettings.model_validate({"data": {"columns": {"query": "frage", "positive": "antwort"}}})
    found = read_dataset(store, path, role="target", settings=settings, split=None)
    assert isinstance(found.examples, AddressedSet)
    assert found.examples.queries == ["x"]
