"""Rows of finished runs on the disk, and times read off a log."""

from functools import partial
from pathlib import Path

import pytest

from adiabat.config.shared import EncoderSection
from adiabat.core.errors import JobError
from adiabat.experiments.comparison_rows import Row, TaskRow, digests_of, rows_at
from adiabat.experiments.comparison_runs import encoding_speeds, step_seconds
from adiabat.models.towers import DualEncoder
from adiabat.results.comparison_result import Speed
from tests.experiments.comparison.world import tiny


def row(candidate: str = "a", seed: int | None = 0, value: float = 0.1 + 0.2) -> Row:
    task = TaskRow("ranking", 5, [value, 1.0], {"RR": value}, ("a note",))
    return Row(candidate, seed, {"מטלה": task}, 10, 1.5, "CPU", 8, 24, 3, 0.5, None, Speed(3.0, 2.0, 4.0, 8, 3), {"model": "00ff"})


def test_rows_come_back_as_they_were_to_the_last_bit(tmp_path: Path) -> None:
    rows = rows_at(tmp_path / "runs.jsonl")
    for one in (row(), row(seed=None), row("b")):
        rows.add(one)
    again = rows_at(tmp_path / "runs.jsonl")
    assert [again[key] for key in (("a", 0), ("a", None), ("b", 0))] == [row(), row(seed=None), row("b")]
    assert ("b", 1) not in again
    assert digests_of(again, "b") == {"model": "00ff"}
    assert digests_of(again, "c") == {}


def test_a_start_tells_nothing_of_what_runs_began_with(tmp_path: Path) -> None:
    rows = rows_at(tmp_path / "runs.jsonl")
    rows.add(row(seed=None))
    assert digests_of(rows, "a") == {}


def test_a_row_that_is_none_is_named_with_its_line(tmp_path: Path) -> None:
    rows = rows_at(tmp_path / "runs.jsonl")
    rows.add(row())
    text = rows.path.read_text(encoding="utf-8")
    rows.path.write_text(text + text[: len(text) // 2], encoding="utf-8")
    assert len(rows_at(rows.path).every) == 1
    rows.path.write_text(text + text.replace('"a"', '"b"', 1), encoding="utf-8")
    with pytest.raises(JobError, match=r"runs.jsonl:2 must be undamaged, got .*; remove the line, and the run is made again"):
        rows_at(rows.path)


def test_nothing_is_kept_of_a_row_that_cannot_be_written(tmp_path: Path) -> None:
    rows = rows_at(tmp_path / "gone" / "runs.jsonl")
    with pytest.raises(ValueError, match="must be writable"):
        rows.add(row())
    assert ("a", 0) not in rows
    rows = rows_at(tmp_path / "runs.jsonl")
    with pytest.raises(ValueError, match="JSON compliant"):
        rows.add(row(value=float("nan")))
    assert list(tmp_path.iterdir()) == []


def test_the_time_of_a_step_is_the_median_without_validations() -> None:
    log = [
        {"step": 0, "seconds": 9.0, "validation_loss": 1.0},
        {"step": 2, "seconds": 10.0, "loss": 1.0},
        {"step": 4, "seconds": 12.0, "loss": 1.0},
        {"step": 4, "seconds": 90.0, "validation_loss": 1.0},
        {"step": 6, "seconds": 93.0, "loss": 1.0},
    ]
    assert step_seconds(log) == 1.0
    assert step_seconds(log[:2]) == 0.5
    assert step_seconds(log[1:2]) is None
    assert step_seconds([]) is None


def test_models_take_turns_and_the_median_of_their_rounds_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    # Begin and end of each round, of one model and the other in turns: 2 and 1 s, 8 and 1 s, 4 and 1 s.
    clock = iter([0.0, 2.0, 0.0, 1.0, 0.0, 8.0, 0.0, 1.0, 0.0, 4.0, 0.0, 1.0])
    monkeypatch.setattr("adiabat.experiments.comparison_runs.perf_counter", lambda: next(clock))
    turns: list[str] = []

    def model(name: str) -> DualEncoder:
        turns.append(name)
        return tiny(name, EncoderSection())

    seen: list[tuple[int, int]] = []
    models = {name: partial(model, name) for name in ("tiny", "small")}
    found = encoding_speeds(models, ["a", "b", "", "ג"] * 4, rounds=3, on_progress=lambda done, total: seen.append((done, total)))
    assert found == {"tiny": Speed(4.0, 2.0, 8.0, 16, 3), "small": Speed(16.0, 16.0, 16.0, 16, 3)}
    assert turns == ["tiny", "small"] * 3
    assert seen == [(done, 6) for done in range(7)]
