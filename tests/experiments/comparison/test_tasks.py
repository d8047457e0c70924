"""Tasks: read once and found sound, and measured by a model as adiabat embed and adiabat evaluate would."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adiabat
from adiabat.config.comparison_settings import TaskSection
from adiabat.config.reader import checked
from adiabat.config.shared import EncoderSection, EvaluateSettings, MeasureSection
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.progress import SILENT, Watch
from adiabat.data.records import Document
from adiabat.evaluation.retrieval_data import RetrievalTaskData, read_retrieval_tasks
from adiabat.experiments.comparison_runs import _sample, drawn_texts, measure_on
from adiabat.models.towers import DualEncoder
from adiabat.stats.samples import Sample, TaskScores
from adiabat.store.build import build_store
from tests.experiments.comparison.world import lines, tiny, write_world

MEASURE = MeasureSection(measures=("nDCG@10", "RR"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    write_world(folder)
    return folder


@pytest.fixture(scope="module")
def model() -> DualEncoder:
    return tiny("tiny", EncoderSection())


def asked(folder: Path, **more: Any) -> TaskSection:
    return checked(TaskSection, {"name": "asked", "data": str(folder / "asked.jsonl"), "corpus": str(folder / "corpus.jsonl"), **more})


def listed(folder: Path, **more: Any) -> TaskSection:
    return checked(TaskSection, {"data": str(folder / "listed.jsonl"), **more})


def read(*sections: TaskSection) -> list[RetrievalTaskData]:
    return read_retrieval_tasks(sections, SILENT)


def samples_of(one: TaskScores, other: TaskScores) -> Iterator[tuple[Sample, Sample]]:
    assert one.samples
    return zip(one.samples, other.samples, strict=True)


def test_a_task_has_the_name_of_its_data_unless_it_is_given_one(world: Path) -> None:
    assert [task.name for task in read(asked(world), listed(world))] == ["asked", "listed"]


def test_digests_tell_what_files_hold_and_not_where_they_lie(world: Path, tmp_path: Path) -> None:
    write_world(tmp_path)
    (here,), (there,) = read(asked(world)), read(asked(tmp_path))
    assert (here.examples_sha256, here.corpus_sha256) == (there.examples_sha256, there.corpus_sha256)
    for name, kept in (("asked.jsonl", "corpus_sha256"), ("corpus.jsonl", "examples_sha256")):
        write_world(tmp_path)
        text = (tmp_path / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("memo 5", "memo six", 1), encoding="utf-8")
        (changed,) = read(asked(tmp_path))
        differing = {key for key in ("examples_sha256", "corpus_sha256") if getattr(changed, key) != getattr(here, key)}
        assert differing == {"examples_sha256", "corpus_sha256"} - {kept}


def test_what_is_wrong_with_every_task_is_told_at_once_in_its_own_words(world: Path, tmp_path: Path) -> None:
    lines(tmp_path / "blank.jsonl", [{"_id": "d0", "text": " "}, {"_id": "d1", "text": "x"}])
    lines(tmp_path / "ids.jsonl", [{"query": "q", "pos": ["d1", "d9"]}, {"query": "r", "pos": ["d7"], "neg": ["d9"]}])
    lines(tmp_path / "short.jsonl", [{"_id": "d1", "text": "x"}])
    with pytest.raises(DataError) as caught:
        read(
            asked(world, data="nowhere.jsonl", name="gone"),
            checked(TaskSection, {"name": "blank", "data": str(tmp_path / "ids.jsonl"), "corpus": str(tmp_path / "blank.jsonl")}),
            checked(TaskSection, {"name": "lacking", "data": str(tmp_path / "ids.jsonl"), "corpus": str(tmp_path / "short.jsonl")}),
        )
    said = str(caught.value)
    assert said.startswith("3 faults: task gone: nowhere.jsonl")
    assert "set tasks.blank = drop" in said
    assert (
        f"task lacking: every document must be in the corpus {tmp_path / 'short.jsonl'}, it lacks 2 documents: "
        f'{tmp_path / "ids.jsonl"}:1: "d9"; {tmp_path / "ids.jsonl"}:2: "d7"; '
        "name the corpus that holds them (tasks.corpus), or set tasks.missing = drop"
    ) in said


def test_documents_may_be_named_by_id_by_text_or_by_the_id_of_a_text(world: Path, tmp_path: Path) -> None:
    texts = [{"query": "by text", "pos": ["paper 1"]}, {"query": "by id", "pos": ["d1"]}]
    lines(tmp_path / "mixed.jsonl", texts)
    assert len(read(asked(world, data=str(tmp_path / "mixed.jsonl")))) == 1
    # The corpus is that of the triplets, whose documents are known by the hash of their text.
    assert len(read(asked(world, data=str(world / "listed.jsonl"), corpus=str(world / "listed.jsonl")))) == 1


def test_missing_documents_may_be_left_out(world: Path, tmp_path: Path, model: DualEncoder) -> None:
    lines(tmp_path / "ids.jsonl", [{"query": "q", "pos": ["d1", "d99"]}, {"query": "r", "pos": ["d98"]}])
    tasks = read(asked(world, data=str(tmp_path / "ids.jsonl"), missing="drop"))
    found = measure_on(tasks, model, tmp_path / "stores", measure=MEASURE, watch=SILENT)["asked"]
    assert len(found.units) == 1
    assert "2 documents not in the store left out" in found.notes[0]


def test_tasks_of_one_name_and_language_grids_are_refused(world: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tasks must have names of their own, got listed more than once; give them tasks.name"):
        read(listed(world), listed(world))
    lines(tmp_path / "grid.jsonl", [{"premise": {"en": "a"}, "hypothesis": {"en": "b"}, "label": "neutral"}])
    with pytest.raises(DataError, match=r"task .*grid.jsonl: .* must hold queries with positives, got a language grid"):
        read(checked(TaskSection, {"data": str(tmp_path / "grid.jsonl")}))


def test_scores_are_those_of_embed_and_evaluate(world: Path, tmp_path: Path, model: DualEncoder) -> None:
    found = measure_on(read(asked(world), listed(world)), model, tmp_path / "stores", measure=MEASURE, watch=SILENT)
    for name, corpus in (("asked", "corpus.jsonl"), ("listed", "listed.jsonl")):
        adiabat.embed(model, world / corpus, tmp_path / name)
        settings = checked(EvaluateSettings, {"measure": MEASURE.model_dump()})
        result = adiabat.evaluate(model, tmp_path / name, world / f"{name}.jsonl", settings=settings).datasets[0]
        values = {change.measure: change.after for change in result.changes if change.measure in MEASURE.measures}
        means = {one.measure: one.values.mean() for one in found[name].samples if one.measure in values}
        assert means == pytest.approx(values)
        assert {one.similarity for one in found[name].samples} == {"cosine"}
        assert found[name].kind == {"ranking": "retrieval", "pairs": "triplets"}[result.kind]
        assert set(found[name].notes) <= set(result.notes)
    assert [scores.samples[0].measure for scores in found.values()] == ["nDCG@10", "PND"]


def test_stores_are_gone_afterwards_and_shared_by_tasks_of_one_corpus(world: Path, tmp_path: Path, model: DualEncoder) -> None:
    seen = []
    watch = Watch(progress=lambda label, done, total: seen.append((label, done)))
    again = asked(world, name="again")
    found = measure_on(read(asked(world), again), model, tmp_path / "stores", measure=MEASURE, watch=watch)
    assert seen.count((f"embedding {world / 'corpus.jsonl'}", 0)) == 1
    assert all(np.array_equal(one.values, other.values) for one, other in samples_of(found["asked"], found["again"]))
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_was_begun_is_gone_on_with(world: Path, tmp_path: Path, model: DualEncoder) -> None:
    tasks = read(asked(world))
    whole = measure_on(tasks, model, tmp_path / "one", measure=MEASURE, watch=SILENT)
    build_store(model, tasks[0].corpus.documents, tmp_path / "two" / "corpus-0", source="s", encoder_name="e")
    again = measure_on(tasks, model, tmp_path / "two", measure=MEASURE, watch=SILENT)
    assert all(np.array_equal(one.values, other.values) for one, other in samples_of(whole["asked"], again["asked"]))


def test_texts_for_timing_are_drawn_from_every_corpus_and_are_the_same_each_time(world: Path) -> None:
    tasks = read(asked(world), listed(world), asked(world, name="again"))
    corpora = [[document.text for document in task.corpus.documents()] for task in tasks[:2]]
    drawn = drawn_texts(tasks, 7)
    assert drawn == drawn_texts(tasks, 7)
    assert [sum(text in corpus for text in drawn) >= 3 for corpus in corpora] == [True, True]
    assert (len(drawn), len(set(drawn_texts(tasks[:1], 7)))) == (7, 7)
    assert sorted(drawn_texts(tasks, 1000)) == sorted(corpora[0] + corpora[1])


def test_every_document_is_drawn_as_often_as_another() -> None:
    counts = dict.fromkeys("abcde", 0)
    for shift in range(5):
        # The draw depends on places alone: over all turns of five documents each stands once in each place.
        turned = "abcde"[shift:] + "abcde"[:shift]
        for text in _sample((Document(letter, letter) for letter in turned), 2):
            counts[text] += 1
    assert set(counts.values()) == {2}


def test_what_a_reader_leaves_out_is_said_when_tasks_are_read_and_not_for_every_model(
    world: Path, tmp_path: Path, model: DualEncoder
) -> None:
    lines(tmp_path / "corpus.jsonl", [{"_id": "d0", "text": "x"}, {"_id": "d1", "text": ""}, {"_id": "d2", "text": "y"}])
    lines(tmp_path / "asked.jsonl", [{"query": "q", "pos": ["d0"]}])
    with pytest.warns(UserWarning, match="blank documents"):
        tasks = read(asked(tmp_path, blank="drop"))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        measure_on(tasks, model, tmp_path / "stores", measure=MEASURE, watch=SILENT)
    assert warned == []


def test_a_corpus_of_nothing_but_positives_is_refused(tmp_path: Path, model: DualEncoder) -> None:
    lines(tmp_path / "asked.jsonl", [{"query": "q", "pos": ["only"]}])
    tasks = read(checked(TaskSection, {"data": str(tmp_path / "asked.jsonl")}))
    with pytest.raises(DataError, match="the corpus must hold documents beside the positives of a query, got 1 in all"):
        measure_on(tasks, model, tmp_path / "stores", measure=MEASURE, watch=SILENT)
