"""Tasks as a suite reads them from its settings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from adiabat.config.reader import checked
from adiabat.config.tasks import SuiteSettings
from adiabat.core.errors import DataError
from adiabat.core.progress import SILENT
from adiabat.data.labelled import LabelledTexts
from adiabat.evaluation import task_kinds as prepared
from tests.evaluation.world import LABELS, lines


def read(task: dict[str, Any]) -> list[prepared.LoadedTask]:
    return prepared.load_tasks(checked(SuiteSettings, {"tasks": [task]}), SILENT)


def test_a_classifier_learns_from_rows_and_is_tried_on_others_of_the_same_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"text": f"{lang} {split} {number}", "label": number % 2, "lang": lang, "split": split}
        for lang in ("en", "de")
        for split in ("train", "test")
        for number in range(4)
    ]
    lines(tmp_path / "all.jsonl", rows)
    seen: list[Sequence[str]] = []

    def note(training: LabelledTexts, test: LabelledTexts | None = None) -> None:
        seen.extend([training.texts, () if test is None else test.texts])

    monkeypatch.setattr(prepared, "require_separable", note)
    data = str(tmp_path / "all.jsonl")
    where = {"lang": "en", "split": "train"}
    task = {"kind": "classification", "data": data, "test": data, "where": where, "test_where": {"lang": "en", "split": "test"}}
    (english,) = read(task)
    assert [list(texts) for texts in seen] == [[f"en {split} {number}" for number in range(4)] for split in ("train", "test")]
    (german,) = read({**task, "test_where": {"lang": "de", "split": "test"}})
    assert german.sha256 != english.sha256


def test_queries_are_no_grid_of_sentence_pairs(tmp_path: Path) -> None:
    lines(tmp_path / "asked.jsonl", [{"query": "q", "positive": "p"}])
    with pytest.raises(DataError, match=r'got queries; name such pairs, or write kind = "retrieval"$'):
        read({"kind": "nli_grid", "data": str(tmp_path / "asked.jsonl")})


def test_a_grid_without_a_label_is_refused_before_any_model_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "grid.jsonl"
    lines(path, [{"label": label, "premise": {"en": "p"}, "hypothesis": {"en": "h"}} for label in ("entailment", "neutral")])
    with pytest.raises(DataError, match=f"^task mine: {path} must have sentence pairs of every label .*, got none of contradiction; add"):
        read({"kind": "nli_grid", "name": "mine", "data": str(path)})


def test_a_language_that_a_row_of_a_grid_lacks_is_refused_by_that_row(tmp_path: Path) -> None:
    path = tmp_path / "grid.jsonl"
    rows = [{"label": label, "premise": {"en": "p", "ar": "q"}, "hypothesis": {"en": "h", "ar": "i"}} for label in LABELS]
    del rows[1]["premise"]["ar"]
    lines(path, rows)
    (task,) = read({"kind": "nli_grid", "data": str(path), "languages": ["en"]})
    assert task.name == "grid"
    with pytest.raises(DataError, match=rf"\(en\), got ar \(missing in {path}:2\); complete these rows, name others"):
        read({"kind": "nli_grid", "data": str(path), "languages": ["ar", "en"]})
