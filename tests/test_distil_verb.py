"""The verb ``adiabat distil static``: a model that other verbs take, and mistakes told in one line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Said, run_in_process
from tests.tiny import save_tiny

Verb = Callable[..., Said]


@pytest.fixture
def verb(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Verb:
    """A verb in the test's directory, where a teacher lies."""
    monkeypatch.chdir(tmp_path)
    save_tiny(tmp_path / "teacher", width=24)
    return lambda *words: run_in_process(capsys, monkeypatch, list(words))


def test_a_static_model_is_a_model_for_other_verbs(verb: Verb) -> None:
    said = verb("distil", "static", "teacher", "--out", "student", "--dims", "8")
    assert (said.code, said.out) == (0, "student\n"), said.err
    assert "258 tokens of 8 numbers, " in said.err
    Path("corpus.jsonl").write_text('{"_id": "a", "text": "one text"}\n{"_id": "b", "text": "another"}\n', encoding="utf-8")
    assert verb("embed", "student", "corpus.jsonl", "--out", "store").code == 0
    found = verb("search", "store", "one text", "--model", "student", "--json")
    assert found.code == 0, found.err
    assert json.loads(found.out)["student"][0]["doc_id"] == "a", found.out


def test_settings_reach_the_record(verb: Verb) -> None:
    words = ("--pooling", "last", "--weighting", "zipf", "--set", "static.dtype=int8", "--seed", "5", "--device", "cpu", "--json")
    said = verb("distil", "static", "teacher", "--out", "student", "--dims", "4", *words)
    assert said.code == 0, said.err
    record = json.loads(said.out)
    assert record == json.loads(Path("student/result.json").read_text(encoding="utf-8"))
    assert record["settings"]["static"] == {
        **{"dims": 4, "reduction": "pca", "pooling": "last", "weighting": "zipf", "sif": 1e-4},
        **{"without": r"\[unused\d+\]", "normalize": True, "dtype": "int8"},
    }
    assert record["seed"] == 5
    assert record["command"].startswith("adiabat distil static teacher --out student")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("gone", "--out", "student"), "gone"),
        (("teacher", "--out", "teacher"), "--out must be a new or empty directory, teacher holds other files"),
        (("teacher", "--out", "student", "--dims", "99"), "static.dims must be at most the 24 numbers of a token's vector, got 99"),
        (("teacher", "--out", "student", "--dims", "few"), "static.dims must be a whole number"),
        (("teacher", "--out", "student", "--sif", "2"), "static.sif must be < 1, got 2"),
        (("teacher", "--out", "student", "--vocabulary", "gone.txt"), "static.vocabulary must be a readable file, got gone.txt"),
        (("teacher", "--out", "student", "--corpus", "gone.jsonl"), "gone.jsonl"),
    ],
)
def test_mistakes_are_told_in_one_line(verb: Verb, words: tuple[str, ...], told: str) -> None:
    said = verb("distil", "static", *words)
    assert (said.code, said.err.count("\n")) == (2, 1), said.err
    assert told in said.err
    assert not Path("student/modules.json").exists()
