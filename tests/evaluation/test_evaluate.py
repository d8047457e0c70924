"""One evaluation as a whole: several data sets, a baseline, the queries that changed, and the record of it
all.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from adiabat.config.shared import EvaluateSettings, MeasureSection
from adiabat.core.errors import DataError, StoreError
from adiabat.core.progress import SILENT
from adiabat.data.records import Document, LanguageGridSet
from adiabat.evaluation.evaluate import (
    SAME_TOWER,
    SHOWN_HITS,
    SHOWN_QUERIES,
    Dataset,
    changed_queries,
    evaluate_datasets,
    read_dataset,
)
from adiabat.evaluation.systems import Role, System, baseline_system
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.towers import DualEncoder
from adiabat.report.evaluation_headline import headline
from adiabat.results.record import read_result, write_result
from adiabat.store.addressing import AddressedSet
from adiabat.store.build import build_store
from adiabat.store.search import search
from adiabat.store.vector_store import Store
from tests.evaluation.given_ranker import asked
from tests.evaluation.world import lines
from tests.tiny import tiny_dual, tiny_encoder

SETTINGS = EvaluateSettings.model_validate({"measure": {"resamples": 200}, "run": {"seed": 3}})
TEXTS = [f"document {number} on {'abcdefg'[number % 7] * 4}" for number in range(30)]


@pytest.fixture(scope="module")
def model() -> DualEncoder:
    return tiny_dual(seed=1)


@pytest.fixture(scope="module")
def baseline(model: DualEncoder) -> DualEncoder:
    return DualEncoder(tiny_encoder(seed=2), model.document, "before")


def store_in(folder: Path, model: DualEncoder, numbers: Sequence[int] = range(len(TEXTS))) -> Store:
    documents = [Document(f"d{number}", TEXTS[number]) for number in numbers]
    about = {"source": "corpus", "encoder_name": "tiny", "keep_texts": True}
    return build_store(model, lambda: iter(documents), folder, **about).store


@pytest.fixture(scope="module")
def store(model: DualEncoder, tmp_path_factory: pytest.TempPathFactory) -> Store:
    return store_in(tmp_path_factory.mktemp("store") / "store", model)


def write_lines(path: Path, rows: Sequence[object]) -> str:
    lines(path, rows)
    return str(path)


def questions(count: int, name: str = "set") -> AddressedSet:
    texts = [f"question {number} {'wxyz'[number % 4]}" for number in range(count)]
    return asked([[number % len(TEXTS)] for number in range(count)], queries=texts, name=name)


evaluated = partial(
    evaluate_datasets, settings=SETTINGS, title="A title", command="adiabat evaluate", watch=SILENT
)
changed = partial(changed_queries, settings=SETTINGS.measure, seed=0)
read = partial(read_dataset, settings=SETTINGS, split=None)


@pytest.fixture(scope="module")
def systems(model: DualEncoder, baseline: DualEncoder, store: Store) -> tuple[System, System]:
    return System(model, store), System(baseline, store)


def test_an_encoder_that_did_not_make_a_store_is_refused_for_every_data_set(
    model: DualEncoder, store: Store, tmp_path: Path
) -> None:
    foreign = store_in(tmp_path / "foreign", tiny_dual(seed=9))
    sets = [Dataset(store, questions(3), "target"), Dataset(foreign, questions(3), "retain")]
    with pytest.raises(StoreError, match="foreign was built by another encoder than tiny's: weights"):
        evaluated(model, None, sets)


def test_a_question_in_several_rows_is_one_query_with_all_its_answers(store: Store, tmp_path: Path) -> None:
    rows = [{"query": query, "pos": [f"d{row}"]} for row, query in enumerate(("which", "which", "what"))]
    examples = read(store, write_lines(tmp_path / "pairs.jsonl", rows), role="target").examples
    assert isinstance(examples, AddressedSet)
    assert examples.queries == ["which", "what"]
    assert sorted(examples.positives[0]) == store.rows(["d0", "d1"]).tolist()
    assert examples.positives[1].tolist() == store.rows(["d2"]).tolist()
    assert any("share their question" in note for note in examples.notes)


def test_data_sets_keep_their_order_and_roles(
    model: DualEncoder, baseline: DualEncoder, store: Store
) -> None:
    given: list[tuple[str, Role, int]] = [("a", "target", 4), ("b", "retain", 5), ("c", "retain", 6)]
    sets = [Dataset(store, questions(count, name), role) for name, role, count in given]
    result = evaluated(model, baseline, sets)
    assert [(one.name, one.role, one.queries) for one in result.datasets] == given
    assert (result.model, result.baseline, result.seed, result.title) == ("tiny", "before", 3, "A title")
    assert result.training is None


def test_equal_evaluations_give_equal_results_but_for_the_time(
    model: DualEncoder, baseline: DualEncoder, store: Store
) -> None:
    first, second = (
        evaluated(model, baseline, [Dataset(store, questions(6), "target")]).to_json() for _ in range(2)
    )
    for varying in ("created", "seconds"):
        del first[varying], second[varying]
    assert first == second


def test_at_most_ten_changed_queries_are_shown_each_with_both_rankings(
    model: DualEncoder, baseline: DualEncoder, store: Store, systems: tuple[System, System]
) -> None:
    shown = changed(*systems, questions(25))
    assert len(shown) == SHOWN_QUERIES == 10
    for one in shown:
        place = int(one.query.split()[1])
        for tower, hits in ((baseline, one.before), (model, one.after)):
            vectors = tower.encode([one.query], side="query", precision="fp32")
            assert [hit.doc_id for hit in hits] == store.doc_ids(search(store, vectors, SHOWN_HITS).rows[0])
            assert [hit.relevant for hit in hits] == [hit.doc_id == f"d{place}" for hit in hits]
            assert [hit.text for hit in hits] == [TEXTS[int(hit.doc_id[1:])] for hit in hits]
        assert one.before != one.after


def test_changed_queries_are_drawn_by_the_seed_and_not_for_effect(systems: tuple[System, System]) -> None:
    first, again, other = (changed(*systems, questions(25), seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert [one.query for one in first] != [one.query for one in other]


def test_a_model_that_is_its_own_baseline_has_no_changed_queries_and_that_is_said(
    model: DualEncoder, baseline: DualEncoder, store: Store
) -> None:
    sets = [Dataset(store, questions(12), "target")]
    result = evaluated(model, model, sets)
    assert result.examples == []
    assert result.datasets[0].notes[0] == SAME_TOWER
    assert SAME_TOWER not in evaluated(model, baseline, sets).datasets[0].notes
    assert {change.difference for change in result.datasets[0].changes} == {0.0}
    # Twelve queries exclude no loss of 1 %, but the two models are one.
    assert {(change.verdict, change.needed) for change in result.datasets[0].changes} == {("not worse", None)}
    assert "shows no gain, and a loss of more than 1 % is excluded" in headline(result)


def test_several_runs_are_the_baseline_only_if_all_of_them_are(
    model: DualEncoder, baseline: DualEncoder, store: Store
) -> None:
    kept, moved = replace(model, name="again"), replace(baseline, name="other")
    verdicts, notes = [], []
    for further in ([kept], [moved], [kept, moved]):
        result = evaluated(model, model, [Dataset(store, questions(12), "target")], further=further)
        verdicts.append({change.verdict for change in result.datasets[0].changes})
        notes.append(SAME_TOWER in result.datasets[0].notes)
    assert notes == [True, False, False]
    assert verdicts[0] == {"not worse"}
    assert "not worse" not in verdicts[1] | verdicts[2]


def test_a_language_grid_has_no_queries_to_show(systems: tuple[System, System]) -> None:
    sides = ({"en": "a"}, {"en": "b"}), ({"en": "c"}, {"en": "d"})
    assert changed(*systems, LanguageGridSet("grid", ("en",), ("entailment", "neutral"), *sides)) == []


def test_a_document_with_the_querys_own_id_is_not_shown_where_no_measure_sees_it(
    model: DualEncoder, store: Store, systems: tuple[System, System]
) -> None:
    data = questions(25)
    # Each query goes by the id of the document that is nearest to it, which is not its positive.
    nearest = search(store, model.encode(data.queries, side="query", precision="fp32"), 2).rows.tolist()
    rows = [first if first != query else second for query, (first, second) in enumerate(nearest)]
    own = dict(zip(data.queries, store.doc_ids(np.array(rows)), strict=True))
    data = replace(data, query_ids=list(own.values()))
    for drop in (True, False):
        shown = changed(*systems, data, settings=MeasureSection(drop_same_id=drop))
        hits = {one.query: {hit.doc_id for hit in (*one.before, *one.after)} for one in shown}
        assert any(own[query] in of for query, of in hits.items()) == (not drop)
        assert {len(hits) for one in shown for hits in (one.before, one.after)} == {SHOWN_HITS}


def test_reading_a_data_set_finds_its_documents_or_names_those_that_are_missing(
    store: Store, tmp_path: Path
) -> None:
    rows = [{"query": "x", "pos": ["d3"], "neg": ["nowhere"]}, {"query": "y", "pos": ["another text"]}]
    path = write_lines(tmp_path / "a.jsonl", rows)
    with pytest.raises(DataError, match=r"a\.jsonl:1: 'nowhere'.*a\.jsonl:2: 'another text'"):
        read(store, path, role="target")
    dropping = EvaluateSettings.model_validate({"data": {"missing": "drop"}})
    found = read(store, path, role="retain", settings=dropping)
    assert isinstance(found.examples, AddressedSet)
    assert (found.role, found.examples.queries) == ("retain", ["x"])
    assert found.examples.positives[0].tolist() == [3]
    assert any("2 documents" in note for note in found.examples.notes)


def test_columns_of_the_settings_are_those_of_the_target_and_not_of_a_retention_set(
    store: Store, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"query": "x", "pos": "d3"}])
    columns = {"query": "frage", "positive": "antwort"}
    settings = EvaluateSettings.model_validate({"data": {"columns": columns}})
    found = read(store, path, role="retain", settings=settings)
    assert isinstance(found.examples, AddressedSet)
    assert found.examples.queries == ["x"]
    with pytest.raises(DataError, match="frage"):
        read(store, path, role="target", settings=settings)


def test_a_result_holds_its_settings_and_what_was_read(
    model: DualEncoder, store: Store, tmp_path: Path
) -> None:
    paths = [write_lines(tmp_path / f"{name}.jsonl", [{"query": "x", "pos": "d3"}]) for name in "abc"]
    roles: list[Role] = ["target", "retain", "retain"]
    sets = [read(store, path, role=role) for path, role in zip(paths, roles, strict=True)]
    result = evaluated(model, None, sets)
    assert (result.settings["measure"]["resamples"], result.settings["run"]["seed"]) == (200, 3)
    assert result.settings["measure"]["report"] == ["nDCG@10", "Recall@100", "RR@10"]
    assert list(result.inputs) == ["target", "retain 1", "retain 2"]
    of_store = {"store": str(store.path), "store_sha256": store.manifest.sha256}
    assert result.inputs["retain 2"] == {"data": paths[2], **of_store}
    write_result(result, tmp_path)
    assert read_result(tmp_path / "result.json") == result


# A baseline with documents of its own: found among several stores, measured as if alone, refused in words.


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores")


@pytest.fixture(scope="module")
def other() -> DualEncoder:
    """Of another width, and of vectors that are not of unit length."""
    return tiny_dual(seed=2, width=16, settings=EncoderSettings(max_tokens=64, normalize=False))


@pytest.fixture(scope="module")
def before(here: Path, other: DualEncoder) -> Store:
    return store_in(here / "before", other)


def test_before_and_after_are_what_each_measures_alone(
    model: DualEncoder, other: DualEncoder, store: Store, before: Store
) -> None:
    both = evaluated(model, other, [Dataset(store, questions(20), "target", baseline_stores=[before])])
    alone = {"after": evaluated(model, None, [Dataset(store, questions(20), "target")])}
    alone["before"] = evaluated(other, None, [Dataset(before, questions(20), "target")])
    for when, result in alone.items():
        changes, own = both.datasets[0].changes, result.datasets[0].changes
        found = {(change.measure, change.similarity): getattr(change, when) for change in changes}
        wanted = {(change.measure, change.similarity): change.after for change in own}
        assert wanted
        assert found.items() >= wanted.items()
    assert both.inputs["target"]["baseline_store"] == str(before.path)
    assert both.inputs["target"]["baseline_store_sha256"] == before.manifest.sha256


def test_results_that_changed_are_shown_from_the_store_of_each(
    model: DualEncoder, other: DualEncoder, store: Store, before: Store
) -> None:
    sets = [Dataset(store, questions(20), "target", baseline_stores=[before])]
    shown = evaluated(model, other, sets).examples
    assert shown
    for one in shown:
        for system, where, hits in ((model, store, one.after), (other, before, one.before)):
            query = system.encode([one.query], side="query", precision="fp32")[0]
            vectors = where.gather(np.arange(30))
            best = int(np.argmax(vectors @ query / np.linalg.norm(vectors, axis=1)))
            assert hits[0].doc_id == f"d{best}"


def test_each_data_set_finds_its_own_among_several(
    here: Path, model: DualEncoder, other: DualEncoder, store: Store, before: Store
) -> None:
    few = store_in(here / "few after", model, range(12))
    few_before = store_in(here / "few before", other, range(12))
    stores = [few_before, before]
    assert baseline_system(other, other.fingerprint(), store, stores).store is before
    assert baseline_system(other, other.fingerprint(), few, stores).store is few_before
    assert baseline_system(model, model.fingerprint(), few, stores).store is few


NONE = r"store must be stored by the baseline tiny too, .*\(.*width.*\), got none of its stores; embed"
ORDER = "with other documents, or in another order"


@pytest.mark.parametrize(
    ("documents", "seed", "says"),
    [
        pytest.param(None, None, NONE, id="no store"),
        pytest.param(range(29), None, "before with other documents", id="fewer documents"),
        pytest.param([1, 0, *range(2, 30)], None, ORDER, id="first two swapped"),
        pytest.param([*range(28), 29, 28], None, ORDER, id="last two swapped"),
        pytest.param(range(30), 7, "before of another encoder", id="another encoder"),
    ],
)
def test_a_baseline_without_its_documents_is_refused(
    tmp_path: Path,
    model: DualEncoder,
    other: DualEncoder,
    store: Store,
    documents: Sequence[int] | None,
    seed: int | None,
    says: str,
) -> None:
    builder = other if seed is None else tiny_dual(seed=seed)
    stores = [] if documents is None else [store_in(tmp_path / "before", builder, documents)]
    with pytest.raises(StoreError, match=says):
        evaluated(model, other, [Dataset(store, questions(20), "target", baseline_stores=stores)])


def test_a_store_of_no_use_is_refused(model: DualEncoder, store: Store, before: Store) -> None:
    with pytest.raises(StoreError, match="baseline_stores .*before must serve a data set"):
        evaluated(model, model, [Dataset(store, questions(20), "target", baseline_stores=[before])])
