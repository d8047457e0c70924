"""The rows of a job."""

import importlib.util
import json
from pathlib import Path
from typing import IO, Any

import pytest

from adiabat.core.errors import JobError, MissingDependencyError
from adiabat.runs import run_log as log_module
from adiabat.runs.run_log import JobLog, read_log


def add(log: JobLog, *steps: int) -> None:
    for step in steps:
        log.row(step=step, epoch=step // 10, values={"loss": 1 / step}, seconds=step / 7)


def steps_of(path: Path) -> list[int]:
    return [row["step"] for row in read_log(path)]


def test_a_row_is_one_json_line_with_exact_numbers(tmp_path: Path) -> None:
    log = JobLog(tmp_path / "log.jsonl")
    log.row(step=12, epoch=1, values={"loss": 0.1 + 0.2, "learning_rate": 5e-8}, seconds=1.23456)
    log.row(step=12, epoch=2, values={"validation_errors": 3}, seconds=2.0)
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert all(len(row.pop("checksum")) == 16 for row in rows)
    assert rows == list(read_log(tmp_path / "log.jsonl"))
    assert next(read_log(tmp_path / "log.jsonl")) == {
        "step": 12,
        "epoch": 1,
        "loss": 0.30000000000000004,
        "learning_rate": 5e-08,
        "seconds": 1.235,
    }
    log.close()


def test_setting_up_writes_nothing(tmp_path: Path) -> None:
    JobLog(tmp_path / "log.jsonl", tensorboard=tmp_path / "board").close()
    assert list(tmp_path.iterdir()) == []


def test_rows_can_be_read_while_the_log_is_open(tmp_path: Path) -> None:
    log = JobLog(tmp_path / "log.jsonl")
    add(log, 1, 2)
    assert steps_of(log.path) == [1, 2]
    log.close()


def test_truncating_drops_the_rows_after_a_step_and_the_log_goes_on(tmp_path: Path) -> None:
    log = JobLog(tmp_path / "log.jsonl")
    add(log, 10, 20, 20, 30)
    before = log.path.read_text()
    log.truncate(step=20)
    assert steps_of(log.path) == [10, 20, 20]
    add(log, 30)
    log.close()
    assert log.path.read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]


def test_truncating_to_minus_one_empties_and_a_missing_log_is_an_empty_one(tmp_path: Path) -> None:
    log = JobLog(tmp_path / "log.jsonl")
    log.truncate(step=5)
    assert steps_of(log.path) == []
    add(log, 1)
    log.truncate(step=-1)
    assert steps_of(log.path) == []


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_half_written_last_line_is_left_out_and_then_removed(tmp_path: Path, cut: int) -> None:
    log = JobLog(tmp_path / "log.jsonl")
    add(log, 10, 20)
    log.close()
    text = log.path.read_text()
    log.path.write_text(text[:-cut])
    kept = [10, 20] if cut == 1 else [10]
    assert steps_of(log.path) == kept
    log.truncate(step=20)
    add(log, 30)
    log.close()
    assert steps_of(log.path) == [*kept, 30]


def test_rows_that_are_gone_though_a_checkpoint_counts_on_them_are_refused(tmp_path: Path) -> None:
    log = JobLog(tmp_path / "log.jsonl")
    add(log, 10, 20)
    log.close()
    checksum, text = log.checksum, log.path.read_text()
    log.path.write_text(text.splitlines(keepends=True)[0])
    with pytest.raises(JobError, match=r"log\.jsonl must hold every row up to step 20, got others or too few; start anew"):
        log.truncate(step=20, checksum=checksum)
    log.path.write_text(text)
    log.truncate(step=20, checksum=checksum)
    assert log.path.read_text() == text


def test_a_run_killed_while_truncating_loses_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = JobLog(tmp_path / "log.jsonl")
    add(log, 10, 20)
    log.close()

    def killed(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        log.truncate(step=10)
    assert steps_of(log.path) == [10, 20]


def test_a_full_disk_is_one_line_that_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, text: str) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            pass

    log = JobLog(tmp_path / "log.jsonl")
    monkeypatch.setattr(log, "_opened", Full)
    with pytest.raises(JobError, match=r"log\.jsonl could not be written: .*No space left on device; free some space and run the same"):
        add(log, 1)


def test_a_full_disk_while_truncating_leaves_the_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = JobLog(tmp_path / "log.jsonl")
    add(log, 10, 20)

    def full(self: Path, *arguments: Any, **named: Any) -> IO[str]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(JobError, match="No space left on device"):
        log.truncate(step=10)
    assert steps_of(log.path) == [10, 20]


def test_tensorboard_that_is_not_installed_is_named_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"run.tensorboard = true needs the package tensorboard; .*adiabat\[tensorboard\]"):
        JobLog(tmp_path / "log.jsonl", tensorboard=tmp_path / "board")
    assert list(tmp_path.iterdir()) == []


class Board:
    """Stands in for TensorBoard's writer."""

    def __init__(self, folder: Path, kept_step: int) -> None:
        self.kept_step = kept_step
        self.scalars: list[tuple[str, float, int]] = []
        self.closed = False

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.append((name, value, step))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def test_tensorboard_gets_the_same_numbers_and_forgets_what_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boards: list[Board] = []

    def board(folder: Path, kept_step: int) -> Board:
        boards.append(Board(folder, kept_step))
        return boards[-1]

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(log_module, "_summary_writer", board)
    log = JobLog(tmp_path / "log.jsonl", tensorboard=tmp_path / "board")
    log.truncate(step=20)
    add(log, 25)
    log.row(step=30, epoch=3, values={"validation_loss": 0.5, "validation_errors": 4}, seconds=1.0)
    log.flush()
    log.close()
    assert [one.kept_step for one in boards] == [20]
    assert boards[0].scalars == [("loss", 0.04, 25), ("validation_loss", 0.5, 30), ("validation_errors", 4, 30)]
    assert boards[0].closed
