"""Tasks and models of a suite, read from its settings."""

import builtins
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from adiabat.config.reader import checked
from adiabat.config.shared import EncoderSection
from adiabat.config.tasks import ModelSection, SuiteSettings
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.progress import SILENT
from adiabat.data.labelled import LabelledTexts
from adiabat.evaluation import task_kinds as prepared
from adiabat.evaluation.measured_models import resolve_models
from adiabat.models.towers import DualEncoder
from tests.evaluation.world import LABELS, lines, tables, write_world


def read(*tasks: dict[str, Any]) -> list[prepared.LoadedTask]:
    return prepared.load_tasks(checked(SuiteSettings, {"tasks": list(tasks)}), SILENT)


def asked(folder: Path, **more: Any) -> dict[str, Any]:
    return {**tables(folder)[0], **more}


def test_digests_follow_queries_and_corpus(tmp_path: Path) -> None:
    write_world(tmp_path)
    (here,), (again,) = read(asked(tmp_path)), read(asked(tmp_path))
    assert (here.name, here.sha256) == ("asked", again.sha256)
    for name in ("asked.jsonl", "corpus.jsonl"):
        write_world(tmp_path)
        text = (tmp_path / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("river 5", "river five", 1), encoding="utf-8")
        assert read(asked(tmp_path))[0].sha256 != here.sha256


def test_faults_of_every_task_are_told_at_once_in_the_names_of_its_settings(
    world: Path, tmp_path: Path
) -> None:
    lines(tmp_path / "blank.jsonl", [{"_id": "d0", "text": " "}, {"_id": "d1", "text": "x"}])
    rows = [{"query": "q", "pos": ["d1", "d9"]}, {"query": "r", "pos": ["d7"], "neg": ["d9"]}]
    lines(tmp_path / "ids.jsonl", rows)
    lines(tmp_path / "short.jsonl", [{"_id": "d1", "text": "x"}])
    lines(tmp_path / "grid.jsonl", [{"premise": {"en": "a"}, "hypothesis": {"en": "b"}, "label": "neutral"}])
    ids = {"kind": "retrieval", "data": str(tmp_path / "ids.jsonl")}
    with pytest.raises(DataError) as caught:
        read(
            asked(world, data="nowhere.jsonl", name="gone"),
            {**ids, "name": "blank", "corpus": str(tmp_path / "blank.jsonl")},
            {**ids, "name": "lacking", "corpus": str(tmp_path / "short.jsonl")},
            asked(world, data=str(tmp_path / "grid.jsonl"), name="grid"),
        )
    message = str(caught.value)
    assert message.startswith("4 faults: task gone: nowhere.jsonl")
    for fact in (
        "must hold queries with positives, got a language grid",
        "set tasks.blank = drop",
        f"lacking: every document must be in the corpus {tmp_path / 'short.jsonl'}, it lacks 2 documents",
        f'{tmp_path / "ids.jsonl"}:1: "d9"; {tmp_path / "ids.jsonl"}:2: "d7"; ',
        "(tasks.corpus), or set tasks.missing = drop",
    ):
        assert fact in message


def test_documents_may_be_named_by_id_by_text_or_by_the_id_of_a_text(world: Path, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed.jsonl"
    lines(mixed, [{"query": "by text", "pos": ["stone 1 and river"]}, {"query": "by id", "pos": ["d1"]}])
    # The second corpus is that of the triplets, whose documents are known by the hash of their text.
    listed = str(world / "listed.jsonl")
    assert len(read(asked(world, data=str(mixed)), asked(world, data=listed, corpus=listed))) == 2


def test_tasks_of_one_name_are_refused(world: Path) -> None:
    told = "tasks must have names of their own, got asked more than once; give them tasks.name"
    with pytest.raises(ConfigError, match=told):
        read(asked(world), asked(world))


def test_a_classifier_learns_from_rows_and_is_tried_on_others_of_the_same_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = []
    for lang, split, number in product(("en", "de"), ("train", "test"), range(4)):
        text = f"{lang} {split} {number}"
        rows.append({"text": text, "label": number % 2, "lang": lang, "split": split})
    lines(tmp_path / "all.jsonl", rows)
    seen: list[Sequence[str]] = []

    def note(training: LabelledTexts, test: LabelledTexts | None = None) -> None:
        seen.extend([training.texts, () if test is None else test.texts])

    monkeypatch.setattr(prepared, "require_separable", note)
    data = str(tmp_path / "all.jsonl")
    task = {"kind": "classification", "data": data, "test": data, "where": {"lang": "en", "split": "train"}}
    (english,) = read({**task, "test_where": {"lang": "en", "split": "test"}})
    wanted = [[f"en {split} {number}" for number in range(4)] for split in ("train", "test")]
    assert [list(texts) for texts in seen] == wanted
    (german,) = read({**task, "test_where": {"lang": "de", "split": "test"}})
    assert german.sha256 != english.sha256


def test_one_table_under_two_addresses_is_no_test_of_itself(tmp_path: Path) -> None:
    rows = [{"text": f"text {number}", "label": number % 2, "topic": 3} for number in range(4)]
    lines(tmp_path / "all.jsonl", rows)
    data = str(tmp_path / "all.jsonl")
    told = "test must hold other rows than the training data .*, got .*label=topic; name another table"
    with pytest.raises(DataError, match=told):
        read({"kind": "classification", "data": data, "test": f"{data}?label=topic"})


def test_a_grid_without_a_label_is_refused_before_any_model_is_loaded(tmp_path: Path) -> None:
    path, sides = tmp_path / "grid.jsonl", {"premise": {"en": "p"}, "hypothesis": {"en": "h"}}
    lines(path, [{"label": label, **sides} for label in ("entailment", "neutral")])
    told = f"^task mine: {path} must have sentence pairs of every label .*, got none of contradiction; add"
    with pytest.raises(DataError, match=told):
        read({"kind": "nli_grid", "name": "mine", "data": str(path)})


def test_a_language_that_a_row_of_a_grid_lacks_is_refused_by_that_row(tmp_path: Path) -> None:
    path = tmp_path / "grid.jsonl"
    sides = {"premise": {"en": "p", "ar": "q"}, "hypothesis": {"en": "h", "ar": "i"}}
    rows = [{"label": label, **sides} for label in LABELS]
    rows[1]["premise"] = {"en": "p"}
    lines(path, rows)
    (task,) = read({"kind": "nli_grid", "data": str(path), "languages": ["en"]})
    assert task.name == "grid"
    with pytest.raises(DataError, match=rf"\(en\), got ar \(missing in {path}:2\)"):
        read({"kind": "nli_grid", "data": str(path), "languages": ["ar", "en"]})


def never(name: str, section: EncoderSection) -> DualEncoder:
    raise AssertionError(f"{name} was loaded")


def told(*names: str, sections: tuple[ModelSection, ...] = ()) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve_models(sections, names, EncoderSection(), never)
    return str(caught.value)


def test_every_fault_is_told_at_once() -> None:
    twice = ModelSection(name="a", model="m1", runs=("m2", "m2", "m3"))
    message = told("bm25:klingon", "bm25:englsh", sections=(twice,))
    stems = "the language of stems must be one that Snowball knows, got"
    for fact in (
        "models.runs of a must differ, got m2 2 times; name each once: counted twice, it narrows the",
        f"bm25:klingon: {stems} klingon; choose one of",
        f"bm25:englsh: {stems} englsh; did you mean english?",
    ):
        assert fact in message


def test_a_run_that_is_the_model_itself_is_counted_twice_too() -> None:
    section = ModelSection(name="a", model="m1", runs=("m1",))
    assert "models.runs of a must differ, got m1 2 times" in told(sections=(section,))


def test_stems_without_their_library_are_told_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "Stemmer", raising=False)
    usual = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name == "Stemmer":
            raise ImportError(name)
        return usual(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    assert "install it with: pip install 'adiabat[stemming]'" in told("bm25:english")
    # Words as they stand need none.
    assert len(resolve_models((), ("bm25",), EncoderSection(), never)) == 1


def test_models_that_differ_are_kept_in_order_with_their_runs() -> None:
    sections = (ModelSection(name="a", model="m1", runs=("m2",)), ModelSection(name="b", model="m1"))
    found = resolve_models(sections, ("bm25:english", "m1"), EncoderSection(), never)
    first, *others = [[(one.name, one.model) for one in runs] for runs in found]
    assert first == [("a", "m1"), ("a", "m2")]
    assert others == [[("b", "m1")], [("bm25:english", "bm25:english")], [("m1", "m1")]]
