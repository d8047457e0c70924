"""The rows of a job."""

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adiabat.core.errors import JobError, MissingDependencyError
from adiabat.runs.run_log import IDLE, JobLog, Validation, idle_counts, read_log
from tests.refused import one_line


def add(log: JobLog, *steps: int) -> None:
    for step in steps:
        log.row(step=step, epoch=step // 10, values={"loss": 1 / step}, seconds=step / 7)


def steps_of(log: JobLog) -> list[int]:
    return [row["step"] for row in read_log(log.path)]


@pytest.fixture
def log(tmp_path: Path) -> JobLog:
    """A log of steps 10 and 20."""
    log = JobLog(tmp_path / "log.jsonl")
    add(log, 10, 20)
    log.close()
    return log


def test_a_row_is_one_json_line_with_exact_numbers_and_can_be_read_at_once(tmp_path: Path) -> None:
    JobLog(tmp_path / "log.jsonl", tensorboard=tmp_path / "board").close()
    assert list(tmp_path.iterdir()) == []
    log = JobLog(tmp_path / "log.jsonl")
    log.row(step=12, epoch=1, values={"loss": 0.1 + 0.2, "learning_rate": 5e-8}, seconds=1.23456)
    log.row(step=12, epoch=2, values={"validation_errors": 3}, seconds=2.0)
    rows = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert all(len(row.pop("checksum")) == 16 for row in rows)
    assert rows == list(read_log(log.path))
    assert rows[0] == {
        "step": 12,
        "epoch": 1,
        "loss": 0.30000000000000004,
        "learning_rate": 5e-08,
        "seconds": 1.235,
    }
    log.close()


def test_truncating_drops_the_rows_after_a_step_and_the_log_goes_on(log: JobLog) -> None:
    add(log, 20, 30)
    before = log.path.read_text()
    log.truncate(step=20)
    assert steps_of(log) == [10, 20, 20]
    add(log, 30)
    log.close()
    assert log.path.read_text() == before
    assert [path.name for path in log.path.parent.iterdir()] == ["log.jsonl"]
    log.truncate(step=-1)
    assert steps_of(log) == []


def test_a_missing_log_is_an_empty_one(tmp_path: Path) -> None:
    log = JobLog(tmp_path / "log.jsonl")
    log.truncate(step=5)
    assert steps_of(log) == []


@pytest.mark.parametrize("cut", [1, 2, 11])
def test_a_half_written_last_line_is_left_out_and_then_removed(log: JobLog, cut: int) -> None:
    log.path.write_text(log.path.read_text()[:-cut])
    whole = [10, 20] if cut == 1 else [10]
    assert steps_of(log) == whole
    log.truncate(step=20)
    add(log, 30)
    log.close()
    assert steps_of(log) == [*whole, 30]


def test_rows_that_are_gone_though_a_checkpoint_counts_on_them_are_refused(log: JobLog) -> None:
    checksum, text = log.checksum, log.path.read_text()
    log.path.write_text(text.splitlines(keepends=True)[0])
    with one_line(JobError, "log.jsonl must hold every row up to step 20", "missing or changed"):
        log.truncate(step=20, checksum=checksum)
    log.path.write_text(text)
    log.truncate(step=20, checksum=checksum)
    assert log.path.read_text() == text


def killed(*arguments: Any, **named: Any) -> None:
    raise KeyboardInterrupt


def full(*arguments: Any, **named: Any) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(("fails", "error"), [(killed, KeyboardInterrupt), (full, JobError)])
def test_truncating_that_fails_loses_no_row(
    log: JobLog, monkeypatch: pytest.MonkeyPatch, fails: Any, error: type[BaseException]
) -> None:
    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(error):
        log.truncate(step=10)
    assert steps_of(log) == [10, 20]


def test_a_full_disk_is_one_line_that_says_what_to_do(log: JobLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_stream", type("Full", (), {"write": full})())
    with one_line(JobError, "log.jsonl could not be written", "No space left on device", "free some space"):
        add(log, 1)


def test_tensorboard_that_is_missing_is_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with one_line(MissingDependencyError, "run.tensorboard = true", "adiabat[tensorboard]"):
        JobLog(tmp_path / "log.jsonl", tensorboard=tmp_path / "board")
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_gets_the_same_numbers_once(log: JobLog, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []

    class Board:
        """Stands in for TensorBoard's writer."""

        def __init__(self, folder: str, purge_step: int) -> None:
            calls.append(("open", purge_step))

        def __getattr__(self, name: str) -> Any:
            return lambda *arguments: calls.append((name, *arguments))

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Board))
    log = JobLog(log.path, tensorboard=log.path.parent / "board")
    log.truncate(step=20)
    add(log, 25)
    log.row(step=30, epoch=3, values={"validation_loss": 0.5, "validation_errors": 4}, seconds=1.0)
    log.flush()
    log.close()
    scalars = [
        ("add_scalar", "loss", 0.04, 25),
        ("add_scalar", "validation_loss", 0.5, 30),
        ("add_scalar", "validation_errors", 4, 30),
    ]
    assert calls == [("open", 21), *scalars, ("flush",), ("close",)]


def test_a_ranking_improves_where_its_queries_gain_beyond_their_spread() -> None:
    def ranked(*scores: float) -> Validation:
        return Validation(1.0, 0, 1, scores=scores)

    best = ranked(0.5, 0.5, 0.5, 0.5)
    # The loss is the same: rankings alone decide. One-sided t at 80 % with 3 degrees of freedom is 0.978.
    assert ranked(0.6, 0.5, 0.6, 0.5).improves_on(best, keep="ranking")
    assert not ranked(0.9, 0.3, 0.6, 0.3).improves_on(best, keep="ranking")
    assert not best.improves_on(best, keep="ranking")
    assert not Validation(0.1, 0, 1, scores=(0.9,) * 4, outside="drift").improves_on(best, keep="ranking")


def test_idle_epochs_of_a_run_that_keeps_by_ranking_stand_in_its_log() -> None:
    rows = [{"validation_loss": 1.0, IDLE: idle} for idle in (0, 0, 1, 2, 0)]
    assert idle_counts([{"loss": 2.0}, *rows], keep="ranking") == [0, 0, 1, 2, 0]
