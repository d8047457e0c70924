"""``adiabat inspect`` as a command: what goes where, and how it ends."""

import json
from pathlib import Path

import pytest

from tests.commands import Run, run_in_process
from tests.profiling.files import write

GOOD = [{"query": f"question {number}", "pos": [f"an answer {number}"], "tag": "same"} for number in range(5)]
TWICE = [{"query_id": "q", **row} for row in GOOD[:2]]


@pytest.fixture
def inspecting(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return lambda *words: run_in_process(capsys, monkeypatch, ["inspect", *words])


def test_the_page_is_the_answer_and_nothing_else_is_said(inspecting: Run, tmp_path: Path) -> None:
    done = inspecting(str(write(tmp_path / "pairs.jsonl", *GOOD)))
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("pairs: 5\N{NO-BREAK SPACE}rows (examples), inspected in ")
    assert 'warning: pairs must be of several tags to be trained with batches.group = "tag", got "same"' in " ".join(done.out.split())


def test_a_fault_is_told_once_on_the_page_and_ends_the_verb(inspecting: Run, tmp_path: Path) -> None:
    path = str(write(tmp_path / "pairs.jsonl", *TWICE, {"query": " ", "pos": ["p p"]}))
    done = inspecting(path)
    assert done.code == 2
    assert " ".join(done.out.split()).count("query ids must be unique") == 1
    assert done.out.count("must not be empty") == 1
    assert done.err == (f"adiabat: {path} has 2 kinds of fault, listed above; other verbs need it without; mend it\n")


def test_programs_get_the_faults_in_the_json(inspecting: Run, tmp_path: Path) -> None:
    done = inspecting(str(write(tmp_path / "pairs.jsonl", *TWICE)), "--json")
    assert done.code == 2
    plain = json.loads(done.out)
    assert [one["kind"] for one in plain["findings"] if one["severity"] == "fault"] == ["repeated ids"]
    assert [(one["kind"], one["names"]) for one in plain["groups"]] == [("tag", 1)]
    assert "unique" not in done.err


def test_a_topic_is_named_as_it_is_for_training(inspecting: Run, tmp_path: Path) -> None:
    path = str(write(tmp_path / "pairs.jsonl", *({**row, "forum": number % 2} for number, row in enumerate(GOOD))))
    done = inspecting(path, "--json", "--set", "data.columns.topic=forum")
    assert [(one["kind"], one["groups"], one["largest"][0]["name"]) for one in json.loads(done.out)["groups"]] == [
        ("topic", 2, "0"),
        ("tag", 2, "same"),
    ]


def test_what_cannot_be_read_at_all_has_no_page(inspecting: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("query,positive\n")
    for path in (write(tmp_path / "empty.jsonl"), write(tmp_path / "empty.jsonl.gz"), tmp_path / "empty.csv"):
        done = inspecting(str(path))
        assert (done.code, done.out) == (2, "")
        assert "must hold at least one row, got none" in done.err
