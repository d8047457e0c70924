"""Rows of a sweep: whole or not at all, equal when read back, and of use to anyone's tools; and records of
the models that its runs start from.
"""

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from adiabat.core.errors import DataError, JobError
from adiabat.experiments.sweep_trials import StartRecord, read_starts, rows_at, step_seconds, write_starts
from adiabat.results.evaluation_result import Change, GridComparison
from adiabat.results.rate_search_result import Drift
from adiabat.results.sweep_result import Speed, SweepRun, TaskOutcome
from adiabat.results.training_record import LayerChange

CHANGE = Change(
    "PND", "cosine", True, 0.2, (0.1, 0.3), before=0.25, improvement=20.0,
    difference=-0.05, difference_interval=(-0.07, -0.03), improvement_interval=(12.0, 28.0), p=0.01,
    verdict="better", reasons=[],
)  # fmt: skip
GRID = GridComparison("entailment-neutral", "cosine", [[0.1]], [[0.2]], [[50.0]], [["better"]], 1, 0, 1, 0)
FAILED = SweepRun(
    "rate=1",
    "",
    {"tune.learning_rate": 1.0, "tune.freeze": ["embeddings"]},
    0,
    1.0,
    14,
    "failed",
    "the loss must be finite",
)
DONE = replace(
    FAILED,
    name="rate=2",
    status="done",
    steps=30,
    validation_loss=[(0, 0.5), (1, 0.25)],
    validation_errors=[(0, 5), (1, 4)],
    tasks=[TaskOutcome("xnli", "nli_grid", "premise", 3, [CHANGE], ["en"], [GRID], ["a note"])],
    layers=[LayerChange("w", 0.1, 1.0, 1.1, 0.05)],
    drift=Drift(2, {"turn": 0.1}, {"turn": 0.01}, {"en": {"turn": 0.1}}),
)


def test_rows_come_back_equal_and_in_order(tmp_path: Path) -> None:
    rows = rows_at(tmp_path / "runs.parquet")
    rows.add(FAILED)
    rows.add(DONE)
    again = rows_at(tmp_path / "runs.parquet")
    assert "rate=2" in again
    assert "rate=3" not in again
    assert again["rate=2"] == DONE
    assert rows_at(tmp_path / "runs.parquet").every == [FAILED, DONE]


def test_columns_are_there_to_look_at_even_where_the_first_run_failed(tmp_path: Path) -> None:
    rows = rows_at(tmp_path / "runs.parquet")
    rows.add(FAILED)
    rows.add(DONE)
    table = pq.read_table(tmp_path / "runs.parquet").to_pydict()
    assert table["tune.learning_rate"] == [1.0, 1.0]
    assert table["tune.freeze"] == ['["embeddings"]'] * 2
    assert table["xnli: PND, improvement %"] == [None, 20.0]
    assert table["xnli: PND, verdict"] == [None, "better"]
    assert table["xnli: entailment-neutral by cosine, improved"] == [None, 1]
    assert table["drift: turn"] == [None, 0.1]


def test_a_run_that_is_made_again_takes_its_own_place(tmp_path: Path) -> None:
    rows = rows_at(tmp_path / "runs.parquet")
    rows.add(FAILED)
    rows.add(DONE)
    rows.add(replace(FAILED, status="done", reason="the limit was reached"))
    assert [run.name for run in rows_at(tmp_path / "runs.parquet").every] == ["rate=1", "rate=2"]
    assert rows["rate=1"].status == "done"


@pytest.mark.parametrize("content", [b"", b"no parquet", b"PAR1" * 3])
def test_a_damaged_file_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "runs.parquet").write_bytes(content)
    with pytest.raises(JobError, match="runs.parquet must be undamaged"):
        rows_at(tmp_path / "runs.parquet")


def test_a_folder_that_cannot_be_written_keeps_the_rows_that_were_there(tmp_path: Path) -> None:
    rows = rows_at(tmp_path / "gone" / "runs.parquet")
    with pytest.raises(DataError, match="must be writable"):
        rows.add(DONE)
    assert "rate=2" not in rows


def test_records_come_back_as_they_were_and_a_damaged_file_holds_none(tmp_path: Path) -> None:
    records = {
        "small, untrained": StartRecord("small", 10, Speed(3.0, 2.0, 4.0, 8, 3)),
        "untrained": StartRecord("tiny", 20),
    }
    write_starts(records, tmp_path)
    assert read_starts(tmp_path) == records
    (tmp_path / "starts.json").write_text('{"untrained": {"model": 3}}', encoding="utf-8")
    assert read_starts(tmp_path) == {}
    assert read_starts(tmp_path / "nowhere") == {}


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
