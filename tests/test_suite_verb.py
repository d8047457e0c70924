"""``adiabat evaluate --suite`` and ``adiabat compare`` as they are typed."""

import json
import tomllib
from pathlib import Path

import pytest
import tomli_w

import adiabat
from adiabat.core.files import sole_writer
from adiabat.results.record import read_result
from adiabat.results.suite_result import SuiteResult
from tests.commands import Said, run_in_process
from tests.evaluation.world import tables, write_world
from tests.tiny import save_tiny


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    write_world(folder)
    for seed, name in enumerate(("one", "two")):
        save_tiny(folder / name, seed=seed, width=16)
    ranked = [task for task in tables(folder) if task["kind"] in ("retrieval", "sts", "question_grid")]
    (folder / "suite.toml").write_text(
        tomli_w.dumps({"measure": {"resamples": 100}, "tasks": ranked}), encoding="utf-8"
    )
    return folder


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, place: Path):
    monkeypatch.chdir(place)
    return lambda *words: run_in_process(capsys, monkeypatch, words)


def evaluated(said, *more: str) -> Said:
    return said("evaluate", "one", "two", "bm25", "--suite", "suite.toml", "--out", "out", *more)


def test_a_suite_ends_with_a_table_and_a_page(said, place: Path) -> None:
    done = evaluated(said)
    assert (done.code, done.out) == (0, "out/report.html\n")
    for word in ("asked", "sts en", "bm25"):
        assert word in done.err
    result = json.loads((place / "out" / "result.json").read_text(encoding="utf-8"))
    assert [model["name"] for model in result["models"]] == ["one", "two", "bm25"]
    assert {path.name for path in (place / "out").iterdir()} >= {
        "report.html",
        "table.csv",
        "table.md",
        "table.tex",
        "scores",
        "stores",
    }


def test_two_models_are_compared_from_what_was_kept(said, place: Path) -> None:
    evaluated(said)
    done = said("compare out/scores/one out/scores/two --out pair --set measure.resamples=100")
    assert (done.code, done.out) == (0, "pair/report.html\n")
    assert said("compare", "out/scores/one", "out/scores/two", "--set", "measure.resamples=100").out == ""
    table = said("compare", "out/scores/one", "out/scores/two", "--json", "--set", "measure.resamples=100")
    assert [one["model"] for one in json.loads(table.out)["pairings"]] == ["two"] * 3


def test_faults_of_all_tasks_come_before_any_model_is_loaded(said, place: Path) -> None:
    wrong = tomllib.loads((place / "suite.toml").read_text(encoding="utf-8"))
    wrong["tasks"] = [
        {"kind": "sts", "data": "pairs.jsonl", "where": {"lang": "fr"}},
        {"kind": "retrieval", "data": "missing.jsonl"},
        {
            "kind": "question_grid",
            "data": "questions.jsonl",
            "corpus": "paragraphs.jsonl",
            "languages": ["en", "xx"],
        },
    ]
    (place / "wrong.toml").write_text(tomli_w.dumps(wrong), encoding="utf-8")
    done = said("evaluate", "nowhere", "--suite", "wrong.toml", "--out", "fresh")
    assert done.code == 2
    assert "nowhere" not in done.err
    # Paths are checked before anything is read.
    assert "missing.jsonl must exist" in done.err
    (place / "missing.jsonl").write_text('{"query": 7}\n')
    done = said("evaluate", "one", "--suite", "wrong.toml", "--out", "fresh")
    assert done.code == 2
    for phrase in ("fr", "missing.jsonl:1", "xx"):
        assert phrase in done.err


def test_from_python_a_suite_is_named_by_its_file(said, place: Path) -> None:
    found = adiabat.evaluate_suite(["one", "two"], place / "suite.toml", out=place / "python")
    assert found.pairings == read_result(place / "python" / "result.json", SuiteResult).pairings
    assert [model.name for model in found.models] == ["one", "two"]


def test_a_comparison_does_not_take_the_place_of_an_evaluation(said, place: Path) -> None:
    evaluated(said)
    former = (place / "out" / "result.json").read_bytes()
    done = said("compare", "out/scores/one", "out/scores/two", "--out", "out")
    assert done.code == 2
    assert "--out must be a separate folder, out holds an evaluation" in done.err
    assert (place / "out" / "result.json").read_bytes() == former


def test_two_processes_do_not_write_into_one_folder(said, place: Path) -> None:
    (place / "taken").mkdir(exist_ok=True)
    with sole_writer(place / "taken"):
        done = said("evaluate", "one", "--suite", "suite.toml", "--out", "taken")
    assert done.code == 2
    assert "taken must have one writer at a time" in done.err
