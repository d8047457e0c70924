"""``adiabat inspect`` as a command: what goes where, and how it ends."""

import json
import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from adiabat.core.text import NO_BREAK
from adiabat.profiling.profile import inspect
from adiabat.profiling.profile_record import Inspection
from adiabat.profiling.profile_view import inspection_panel
from adiabat.profiling.text_lengths import percent, share_of
from tests.commands import Run, run_in_process
from tests.data.files import write
from tests.profiling.files import Letters, inspected


def printed(found: Inspection, width: int = 100) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(inspection_panel(found))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_everything_that_was_found_is_on_the_page(tmp_path):
    rows = [
        {"query": f"question {number}", "pos": ["the [bold]same[/bold] answer"], "kind": number % 2}
        for number in range(8)
    ]
    page = printed(inspected(write(tmp_path / "pairs.jsonl", *rows, {"query": 3, "pos": ["x"]})))
    figures = ("8 rows", "12.5 %", "0 50.0 %, 1 50.0 %", "note: 12.5 %")
    for words in (*figures, "the [bold]same[/bold] answer", "fault: "):
        assert words in page.replace(NO_BREAK, " "), words
    assert page.index("fault: ") < page.index("note: ")


def test_bars_beyond_the_limit_are_marked(tmp_path):
    rows = [{"query": "q q", "pos": ["x" * size]} for size in (10, 20, 40, 100)]
    page = printed(inspect(str(write(tmp_path / "pairs.jsonl", *rows)), tokens=Letters()))
    assert "truncation by letters" in page
    lines = [line for line in page.splitlines() if "beyond 32" in line]
    assert [line.split()[0] for line in lines] == ["33–64", "65–128"]
    assert "2 of 4" in page


def test_a_page_fits_eighty_columns(tmp_path):
    rows = [{"_id": f"d{number}", "title": "T", "text": "words " * (number + 1)} for number in range(200)]
    page = printed(inspected(write(tmp_path / "corpus.jsonl", *rows)), width=80)
    assert max(map(len, page.splitlines())) <= 80
    assert "…" not in "".join(line for line in page.splitlines() if "documents, words" in line)


def test_what_is_not_all_or_nothing_is_shown_as_neither():
    shown = [percent(share) for share in (0.0, 0.0004, 0.17, 0.9996, 1.0)]
    assert shown == ["0.0 %", "< 0.1 %", "17.0 %", "> 99.9 %", "100.0 %"]
    assert (share_of(1, 3), share_of(0, 0)) == ("33.3 %", "0.0 %")


GOOD = [{"query": f"question {number}", "pos": [f"an answer {number}"], "tag": "same"} for number in range(5)]
TWICE = [{"query_id": "q", **row} for row in GOOD[:2]]


@pytest.fixture
def inspecting(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return lambda *words: run_in_process(capsys, monkeypatch, ["inspect", *words])


def test_the_page_is_the_answer_and_nothing_else_is_said(inspecting: Run, tmp_path: Path) -> None:
    done = inspecting(str(write(tmp_path / "pairs.jsonl", *GOOD)))
    assert (done.code, done.err) == (0, "")
    told = " ".join(done.out.split()).replace(NO_BREAK, " ")
    assert told.startswith("pairs: 5 rows (examples), inspected in ")
    assert re.search('warning: pairs must be of several tags .* batches.group = "tag", got "same"', told)


def test_a_fault_is_told_once_on_the_page_and_ends_the_verb(inspecting: Run, tmp_path: Path) -> None:
    path = str(write(tmp_path / "pairs.jsonl", *TWICE, {"query": " ", "pos": ["p p"]}))
    done = inspecting(path)
    assert done.code == 2
    assert " ".join(done.out.split()).count("query ids must be unique") == 1
    assert done.out.count("must not be empty") == 1
    assert f"{path} has 2 kinds of fault, listed above" in done.err
    assert len(done.err.splitlines()) == 1


def test_programs_get_the_faults_in_the_json(inspecting: Run, tmp_path: Path) -> None:
    done = inspecting(str(write(tmp_path / "pairs.jsonl", *TWICE)), "--json")
    assert done.code == 2
    plain = json.loads(done.out)
    assert [one["kind"] for one in plain["findings"] if one["severity"] == "fault"] == ["repeated ids"]
    assert [(one["kind"], one["names"]) for one in plain["groups"]] == [("tag", 1)]
    assert "unique" not in done.err


def test_a_topic_is_named_as_it_is_for_training(inspecting: Run, tmp_path: Path) -> None:
    rows = ({**row, "forum": number % 2} for number, row in enumerate(GOOD))
    path = str(write(tmp_path / "pairs.jsonl", *rows))
    done = inspecting(path, "--json", "--set", "data.columns.topic=forum")
    groups = json.loads(done.out)["groups"]
    named = [(one["kind"], one["groups"], one["largest"][0]["name"]) for one in groups]
    assert named == [("topic", 2, "0"), ("tag", 2, "same")]


def test_what_cannot_be_read_at_all_has_no_page(inspecting: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("query,positive\n")
    for path in (write(tmp_path / "empty.jsonl"), write(tmp_path / "empty.jsonl.gz"), tmp_path / "empty.csv"):
        done = inspecting(str(path))
        assert (done.code, done.out) == (2, "")
        assert "must hold at least one row, got none" in done.err
