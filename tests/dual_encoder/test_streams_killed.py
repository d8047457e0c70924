"""Three streams killed at several moments, and resumed: the same sequence of examples, log and weights, bit for bit."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.dual_encoder.killed import JOBS, SEQUENCE
from tests.jobs import everything

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each job without interruption, and killed at every moment."""
    here = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-m", "tests.dual_encoder.killed", str(here)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    killed = [[0, *[signal.SIGKILL] * len(moments), 0] for _, moments in JOBS.values()]
    assert [json.loads(line) for line in done.stdout.splitlines()] == killed, done.stderr
    return here


def sequence(path: Path) -> dict[int, Any]:
    """What each step learned from; a step that was taken again must have learned from the same."""
    found: dict[int, Any] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        assert found.setdefault(row["step"], row) == row
    return found


@pytest.mark.parametrize("number", range(len(JOBS)))
def test_examples_windows_notes_and_all_that_a_job_leaves_are_those_of_the_uninterrupted_run(folder: Path, number: int) -> None:
    whole, cut = (folder / f"{kind}-{number}" for kind in ("whole", "cut"))
    steps = sequence(Path(f"{whole}{SEQUENCE}"))
    assert list(steps) == list(range(24))
    assert sequence(Path(f"{cut}{SEQUENCE}")) == steps
    assert everything(cut) == everything(whole)
    rows, notes = [], []
    for job in (whole, cut):
        rows.append((job / "stream" / "windows.jsonl").read_text())
        notes.append(json.loads((job / "result.json").read_text())["training"]["notes"])
        assert not list((job / "stream").glob(".*"))
    assert rows[0] == rows[1]
    assert len(rows[0].splitlines()) > 5
    assert notes[0] == notes[1]
