"""Three streams killed at several moments, and resumed: the same sequence of examples, log and weights, bit for bit."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.dual_encoder.killed import JOBS, MOMENTS, SEQUENCE
from tests.jobs import everything

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each job without interruption, and killed at every moment."""
    here = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-m", "tests.dual_encoder.killed", str(here)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    (here / "statuses.jsonl").write_text(done.stdout)
    return here


def sequence(path: Path) -> dict[int, Any]:
    """What each step learned from; a step that was taken again must have learned from the same."""
    found: dict[int, Any] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        assert found.setdefault(row["step"], row) == row
    return found


def test_each_moment_came(folder: Path) -> None:
    statuses = [json.loads(line)["statuses"] for line in (folder / "statuses.jsonl").read_text().splitlines()]
    killed = [signal.SIGKILL] * len(MOMENTS)
    assert statuses == [[0, *killed, 0], [0, *killed[:-1], 0, 0]]


@pytest.mark.parametrize("number", range(len(JOBS)))
def test_the_sequence_of_examples_is_that_of_the_uninterrupted_run(folder: Path, number: int) -> None:
    whole, cut = (sequence(folder / f"{kind}-{number}{SEQUENCE}") for kind in ("whole", "cut"))
    assert list(whole) == list(range(24))
    assert cut == whole


@pytest.mark.parametrize("number", range(len(JOBS)))
def test_weights_log_and_checkpoint_are_those_of_the_uninterrupted_run(folder: Path, number: int) -> None:
    assert everything(folder / f"cut-{number}") == everything(folder / f"whole-{number}")


@pytest.mark.parametrize("number", range(len(JOBS)))
def test_windows_and_notes_are_those_of_the_uninterrupted_run(folder: Path, number: int) -> None:
    rows, notes = [], []
    for kind in ("whole", "cut"):
        job = folder / f"{kind}-{number}"
        rows.append((job / "stream" / "windows.jsonl").read_text())
        notes.append(json.loads((job / "result.json").read_text())["training"]["notes"])
        assert not list((job / "stream").glob(".*"))
    assert rows[0] == rows[1]
    assert len(rows[0].splitlines()) > 5
    assert notes[0] == notes[1]
