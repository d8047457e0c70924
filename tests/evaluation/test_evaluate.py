"""One evaluation as a whole: several data sets, a baseline, the queries that changed, and the record of it
all.
"""

import json
from collections.abc import Callable, Sequence
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
from adiabat.results.evaluation_result import Result
from adiabat.results.record import read_result, write_result
from adiabat.store.addressing import AddressedSet
from adiabat.store.build import build_store
from adiabat.store.search import search
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


def store_in(folder: Path, model: DualEncoder, numbers: Sequence[int] = range(len(TEXTS))) -> Store:
    documents = [Document(f"d{number}", TEXTS[number]) for number in numbers]
    return build_store(
        model, lambda: iter(documents), folder, keep_texts=True, source="corpus", encoder_name="tiny"
    ).store


@pytest.fixture(scope="module")
def store(model: DualEncoder, tmp_path_factory: pytest.TempPathFactory) -> Store:
    return store_in(tmp_path_factory.mktemp("store") / "store", model)


def questions(count: int, name: str = "set") -> AddressedSet:
    ids = [f"q{number}" for number in range(count)]
    texts = [f"question {number} {'wxyz'[number % 4]}" for number in range(count)]
    rows = [[number % len(TEXTS)] for number in range(count)]
    return AddressedSet(name, ids, texts, Ragged.of(rows), Ragged.of([[1]] * count), Ragged.of([[]] * count))


def evaluated(model: DualEncoder, baseline: DualEncoder | None, datasets: Sequence[Dataset]) -> Result:
    return evaluate_datasets(
        model,
        baseline,
        datasets,
        settings=SETTINGS,
        title="A title",
        command="adiabat evaluate",
        watch=SILENT,
    )


def test_an_encoder_that_did_not_make_a_store_is_refused_for_every_data_set(
    model: DualEncoder, store: Store, tmp_path: Path
) -> None:
    foreign = store_in(tmp_path / "foreign", tiny_dual(seed=9))
    sets = [Dataset(store, questions(3), "target"), Dataset(foreign, questions(3), "retain")]
    with pytest.raises(StoreError, match="foreign was built by another encoder than tiny's: weights"):
        evaluated(model, None, sets)


def test_a_question_in_several_rows_is_one_query_with_all_its_answers(store: Store, tmp_path: Path) -> None:
    rows = [
        {"query": "which", "pos": ["d0"]},
        {"query": "which", "pos": ["d1"]},
        {"query": "what", "pos": ["d2"]},
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    examples = read_dataset(
        store, str(tmp_path / "pairs.jsonl"), role="target", settings=SETTINGS, split=None
    ).examples
    assert isinstance(examples, AddressedSet)
    assert examples.queries == ["which", "what"]
    assert [sorted(examples.positives[row]) for row in range(2)] == [
        store.rows(["d0", "d1"]).tolist(),
        store.rows(["d2"]).tolist(),
    ]
    assert any("share their question" in note for note in examples.notes)


def test_data_sets_keep_their_order_and_roles(
    model: DualEncoder, baseline: DualEncoder, store: Store
) -> None:
    sets = [
        Dataset(store, questions(4, "a"), "target"),
        Dataset(store, questions(5, "b"), "retain"),
        Dataset(store, questions(6, "c"), "retain"),
    ]
    result = evaluated(model, baseline, sets)
    assert [(one.name, one.role, one.queries) for one in result.datasets] == [
        ("a", "target", 4),
        ("b", "retain", 5),
        ("c", "retain", 6),
    ]
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
    model: DualEncoder, baseline: DualEncoder, store: Store
) -> None:
    dataset = Dataset(store, questions(25), "target")
    shown = changed_queries(
        System(model, store), System(baseline, store), dataset.examples, settings=SETTINGS.measure, seed=0
    )
    assert len(shown) == SHOWN_QUERIES == 10
    for one in shown:
        place = int(one.query.split()[1])
        for tower, hits in ((baseline, one.before), (model, one.after)):
            vectors = tower.encode([one.query], side="query", precision="fp32")
            assert [hit.doc_id for hit in hits] == store.doc_ids(search(store, vectors, SHOWN_HITS).rows[0])
            assert [hit.relevant for hit in hits] == [hit.doc_id == f"d{place}" for hit in hits]
            assert [hit.text for hit in hits] == [TEXTS[int(hit.doc_id[1:])] for hit in hits]
        assert one.before != one.after


def test_changed_queries_are_drawn_by_the_seed_and_not_for_effect(
    model: DualEncoder, baseline: DualEncoder, store: Store
) -> None:
    dataset = Dataset(store, questions(25), "target")
    first, again, other = (
        changed_queries(
            System(model, store),
            System(baseline, store),
            dataset.examples,
            settings=SETTINGS.measure,
            seed=seed,
        )
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
    assert (
        SAME_TOWER
        not in evaluated(model, baseline, [Dataset(store, questions(12), "target")]).datasets[0].notes
    )
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
        sets = [Dataset(store, questions(12), "target")]
        options = {"settings": SETTINGS, "title": "", "command": "", "watch": SILENT, "further": further}
        result = evaluate_datasets(model, model, sets, **options)
        verdicts.append({change.verdict for change in result.datasets[0].changes})
        notes.append(SAME_TOWER in result.datasets[0].notes)
    assert notes == [True, False, False]
    assert verdicts[0] == {"not worse"}
    assert "not worse" not in verdicts[1] | verdicts[2]


def test_a_language_grid_has_no_queries_to_show(
    model: DualEncoder, baseline: DualEncoder, store: Store
) -> None:
    grid = LanguageGridSet(
        "grid", ("en",), ("entailment", "neutral"), ({"en": "a"}, {"en": "b"}), ({"en": "c"}, {"en": "d"})
    )
    assert (
        changed_queries(
            System(model, store), System(baseline, store), grid, settings=SETTINGS.measure, seed=0
        )
        == []
    )


def test_a_document_with_the_querys_own_id_is_not_shown_where_no_measure_sees_it(
    model: DualEncoder, baseline: DualEncoder, store: Store
) -> None:
    asked = questions(25)
    # Each query goes by the id of the document that is nearest to it, which is not its positive.
    nearest = search(store, model.encode(asked.queries, side="query", precision="fp32"), 2).rows
    rows = [
        next(int(row) for row in found if row != asked.positives[query][0])
        for query, found in enumerate(nearest)
    ]
    own = dict(zip(asked.queries, store.doc_ids(np.array(rows)), strict=True))
    dataset = Dataset(store, replace(asked, query_ids=list(own.values())), "target")
    for drop in (True, False):
        settings = MeasureSection(drop_same_id=drop)
        shown = changed_queries(
            System(model, store), System(baseline, store), dataset.examples, settings=settings, seed=0
        )
        assert any(own[one.query] in {hit.doc_id for hit in (*one.before, *one.after)} for one in shown) == (
            not drop
        )
        assert {len(hits) for one in shown for hits in (one.before, one.after)} == {SHOWN_HITS}


def write_lines(path: Path, rows: Sequence[object]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_reading_a_data_set_finds_its_documents_or_names_those_that_are_missing(
    store: Store, tmp_path: Path
) -> None:
    path = write_lines(
        tmp_path / "a.jsonl",
        [{"query": "x", "pos": ["d3"], "neg": ["nowhere"]}, {"query": "y", "pos": ["another text"]}],
    )
    with pytest.raises(DataError, match=r"a\.jsonl:1: 'nowhere'.*a\.jsonl:2: 'another text'"):
        read_dataset(store, path, role="target", settings=SETTINGS, split=None)
    dropping = EvaluateSettings.model_validate({"data": {"missing": "drop"}})
    found = read_dataset(store, path, role="retain", settings=dropping, split=None)
    assert isinstance(found.examples, AddressedSet)
    assert (found.role, found.examples.queries, found.examples.positives[0].tolist()) == (
        "retain",
        ["x"],
        [3],
    )
    assert any("2 documents" in note for note in found.examples.notes)


def test_columns_of_the_settings_are_those_of_the_target_and_not_of_a_retention_set(
    store: Store, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"query": "x", "pos": "d3"}])
    settings = EvaluateSettings.model_validate(
        {"data": {"columns": {"query": "frage", "positive": "antwort"}}}
    )
    found = read_dataset(store, path, role="retain", settings=settings, split=None)
    assert isinstance(found.examples, AddressedSet)
    assert found.examples.queries == ["x"]
    with pytest.raises(DataError, match="frage"):
        read_dataset(store, path, role="target", settings=settings, split=None)


def test_a_result_holds_its_settings_and_what_was_read(
    model: DualEncoder, store: Store, tmp_path: Path
) -> None:
    paths = [write_lines(tmp_path / f"{name}.jsonl", [{"query": "x", "pos": "d3"}]) for name in "abc"]
    roles: list[Role] = ["target", "retain", "retain"]
    sets = [
        read_dataset(store, path, role=role, settings=SETTINGS, split=None)
        for path, role in zip(paths, roles, strict=True)
    ]
    result = evaluated(model, None, sets)
    assert (result.settings["measure"]["resamples"], result.settings["run"]["seed"]) == (200, 3)
    assert result.settings["measure"]["report"] == ["nDCG@10", "Recall@100", "RR@10"]
    assert list(result.inputs) == ["target", "retain 1", "retain 2"]
    assert result.inputs["retain 2"] == {
        "data": paths[2],
        "store": str(store.path),
        "store_sha256": store.manifest.sha256,
    }
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
        found = {
            (change.measure, change.similarity): getattr(change, when) for change in both.datasets[0].changes
        }
        wanted = {(change.measure, change.similarity): change.after for change in result.datasets[0].changes}
        assert wanted
        assert {key: found[key] for key in wanted} == wanted
    assert both.inputs["target"]["baseline_store"] == str(before.path)
    assert both.inputs["target"]["baseline_store_sha256"] == before.manifest.sha256


def test_results_that_changed_are_shown_from_the_store_of_each(
    model: DualEncoder, other: DualEncoder, store: Store, before: Store
) -> None:
    shown = evaluated(
        model, other, [Dataset(store, questions(20), "target", baseline_stores=[before])]
    ).examples
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


@pytest.mark.parametrize(
    ("stores", "says"),
    [
        (
            lambda folder, other: [],
            r"store must be stored by the baseline tiny too, .*\(.*width.*\), got none of its stores; embed",
        ),
        (lambda folder, other: [store_in(folder / "few", other, range(29))], "few with other documents"),
        (
            lambda folder, other: [store_in(folder / "turned", other, [1, 0, *range(2, 30)])],
            "with other documents, or in another order",
        ),
        (
            lambda folder, other: [store_in(folder / "third", tiny_dual(seed=7))],
            "third of another encoder",
        ),
    ],
)
def test_a_baseline_without_its_documents_is_refused(
    tmp_path: Path,
    model: DualEncoder,
    other: DualEncoder,
    store: Store,
    stores: Callable[[Path, DualEncoder], list[Store]],
    says: str,
) -> None:
    with pytest.raises(StoreError, match=says):
        evaluated(
            model, other, [Dataset(store, questions(20), "target", baseline_stores=stores(tmp_path, other))]
        )


def test_a_store_of_no_use_is_refused(model: DualEncoder, store: Store, before: Store) -> None:
    with pytest.raises(StoreError, match="baseline_stores .*before must serve a data set"):
        evaluated(model, model, [Dataset(store, questions(20), "target", baseline_stores=[before])])


def test_ids_are_compared_in_their_order(here: Path, store: Store, before: Store) -> None:
    assert store.same_documents(before)
    swapped = store_in(here / "swapped", tiny_dual(seed=1), [*range(28), 29, 28])
    assert not store.same_documents(swapped)
