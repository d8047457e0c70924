"""The data of retrieval tasks, read once: digests, missing documents, and errors told at once."""

from pathlib import Path
from typing import Any

import pytest

from adiabat.config.reader import checked
from adiabat.config.tasks import TaskSection
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.progress import SILENT
from adiabat.evaluation.retrieval_data import RetrievalTaskData, read_retrieval_tasks
from tests.experiments.sweep.training_world import lines, write_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    write_world(folder)
    return folder


def asked(folder: Path, **more: Any) -> TaskSection:
    return checked(TaskSection, {"name": "asked", "data": str(folder / "asked.jsonl"), "corpus": str(folder / "corpus.jsonl"), **more})


def listed(folder: Path, **more: Any) -> TaskSection:
    return checked(TaskSection, {"data": str(folder / "listed.jsonl"), **more})


def read(*sections: TaskSection) -> list[RetrievalTaskData]:
    return read_retrieval_tasks(sections, SILENT)


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


def test_tasks_of_one_name_and_language_grids_are_refused(world: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tasks must have names of their own, got listed more than once; give them tasks.name"):
        read(listed(world), listed(world))
    lines(tmp_path / "grid.jsonl", [{"premise": {"en": "a"}, "hypothesis": {"en": "b"}, "label": "neutral"}])
    with pytest.raises(DataError, match=r"task .*grid.jsonl: .* must hold queries with positives, got a language grid"):
        read(checked(TaskSection, {"data": str(tmp_path / "grid.jsonl")}))
