"""The training data of a sweep: checked against every run, and known by their contents when the sweep is resumed."""

from pathlib import Path
from typing import Any

import pytest

from adiabat.core.errors import DataError, JobError
from adiabat.experiments.sweep_trials import rows_at
from tests.experiments.sweep.training_world import brief, run, write_world


@pytest.fixture
def here(tmp_path: Path) -> Path:
    write_world(tmp_path)
    return tmp_path


def variants_at(path: Path) -> list[dict[str, Any]]:
    return [{"name": "near", "job": {"data": str(path)}}]


@pytest.mark.parametrize("varied", [False, True])
def test_moved_data_are_resumed_and_other_data_are_refused(varied: bool, here: Path) -> None:
    def at(path: Path) -> Any:
        return brief(here, variants=variants_at(path)) if varied else brief(here, variants=[], job={"data": str(path)})

    run(at(here / "near.jsonl"))
    rows = (here / "out" / "runs.parquet").read_bytes()
    moved = (here / "near.jsonl").rename(here / "moved.jsonl")
    run(at(moved), resume=True)
    assert (here / "out" / "runs.parquet").read_bytes() == rows
    whole = moved.read_text(encoding="utf-8").splitlines(keepends=True)
    (here / "other.jsonl").write_text("".join(whole[:-1]), encoding="utf-8")
    with pytest.raises(JobError, match=r"start.examples.\w+ was"):
        run(at(here / "other.jsonl"), resume=True)
    assert len(rows_at(here / "out" / "runs.parquet").every) == 1


def test_data_are_checked_against_every_run_before_the_first(here: Path) -> None:
    near = variants_at(here / "near.jsonl")
    with pytest.raises(DataError, match="^listed: .*negative where train.loss is triplet"):
        run(brief(here, variants=[*near, {**near[0], "name": "listed", "train": {"loss": "triplet"}}]))
    assert not (here / "out").exists()
