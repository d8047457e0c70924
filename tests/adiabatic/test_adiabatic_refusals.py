"""What a tuning job refuses before anything is written, and a disk that fills up at its end."""

from pathlib import Path
from typing import NoReturn

import pytest
from safetensors import SafetensorError

from adiabat.adiabatic.tune import begin
from adiabat.adiabatic.tuning_context import TuningContext
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import (
    ConfigError,
    DataError,
    JobError,
    MissingDependencyError,
    ModelError,
    StoreError,
)
from adiabat.models.towers import DualEncoder
from adiabat.training import run_record
from tests.adiabatic.problem import Problem, run, settings_of
from tests.jobs import everything
from tests.tiny import tiny_dual


def never_load() -> NoReturn:
    raise AssertionError("the model was loaded")


def refused(problem: Problem, out: Path, settings: TuneSettings, *, model: DualEncoder | None = None) -> None:
    """Run what fails; nothing is there afterwards."""
    try:
        run(problem, out, settings, model=model)
    finally:
        assert not out.exists()


def test_settings_and_directories_at_fault_are_refused_before_data_or_model_are_read(
    problem: Problem, tmp_path: Path
) -> None:
    def refuse(out: Path, settings: TuneSettings, *, resume: bool = False) -> None:
        context = TuningContext(never_load, tmp_path / "no store", "no data", "tiny")
        begin(context, out, settings=settings, resume=resume)

    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine")
    with pytest.raises(JobError, match="holds other files"):
        refuse(tmp_path / "taken", settings_of())
    with pytest.raises(ConfigError, match="run.device must be auto, cpu, cuda or cuda:N, got 'gpu'"):
        refuse(tmp_path / "job", settings_of(run={"device": "gpu"}))
    with pytest.raises(ConfigError, match=r"blocks\["):
        refuse(tmp_path / "job", settings_of(tune={"freeze": ["blocks[a]"]}))
    assert not (tmp_path / "job").exists()


def test_a_fault_in_the_data_is_said_before_the_model_is_loaded(problem: Problem, tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text('{"query": "a", "pos": ["gone"]}\n')
    context = TuningContext(never_load, problem.store, str(tmp_path / "data.jsonl"), "tiny")
    with pytest.raises(DataError, match="'gone'"):
        begin(context, tmp_path / "job", settings=settings_of())
    assert not (tmp_path / "job").exists()


def test_a_freezing_pattern_that_matches_nothing_fails_before_anything_is_written(
    problem: Problem, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match='freeze pattern "embeding" must match a parameter'):
        refused(problem, tmp_path / "job", settings_of(tune={"freeze": ["embeding"]}))
    with pytest.raises(ModelError, match="must leave something to train"):
        refused(problem, tmp_path / "job", settings_of(tune={"freeze": ["."]}))


def test_a_store_of_another_encoder_fails_before_anything_is_written(
    problem: Problem, tmp_path: Path
) -> None:
    with pytest.raises(StoreError, match="was built by another encoder"):
        refused(problem, tmp_path / "job", settings_of(), model=tiny_dual(width=16, seed=5))


@pytest.mark.parametrize("source", ["random", "hardest"])
def test_a_store_that_is_too_small_fails_before_anything_is_written(
    problem: Problem, tmp_path: Path, source: str
) -> None:
    with pytest.raises(DataError, match="must hold at least 51 documents"):
        refused(problem, tmp_path / "job", settings_of(tune={"negatives": {"kind": source, "per_query": 50}}))


def test_a_missing_package_fails_before_anything_is_written(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="run.tensorboard = true"):
        refused(problem, tmp_path / "job", settings_of(run={"tensorboard": True}))


FULL_DISKS = [
    OSError(28, "No space left on device"),
    SafetensorError("I/O error: No space left on device"),
    Exception("No space left on device (os error 28)"),
]


@pytest.mark.parametrize("fault", FULL_DISKS)
def test_a_full_disk_while_the_model_is_written_is_one_line_and_resuming_ends_the_job(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def full(model: DualEncoder, folder: Path) -> None:
        (folder / "half").write_bytes(b"half")
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(run_record, "save", full)
        with pytest.raises(
            JobError,
            match=r"model could not be written: .*No space left on device.*; free "
            r"some space and make the same call",
        ):
            run(problem, tmp_path / "job")
    assert not (tmp_path / "job" / "model").exists()
    assert not (tmp_path / "job" / ".model").exists()
    run(problem, tmp_path / "job", resume=True)
    run(problem, tmp_path / "whole")
    assert everything(tmp_path / "job") == everything(tmp_path / "whole")


def test_checkpoints_that_cannot_be_removed_are_one_line(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused_by_disk(folder: Path) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(run_record, "drop_older", refused_by_disk)
    with pytest.raises(JobError, match="Read-only file system"):
        run(problem, tmp_path / "job")
