"""Where runs are made changes none of them: one after another, in lanes of one step, or spread over a Ray cluster."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from adiabat.config import EncoderSection
from adiabat.errors import MissingDependencyError, ModelError
from adiabat.jobs import engines
from adiabat.measure.study_results import StudyResult
from adiabat.model.towers import DualEncoder
from adiabat.study import study as study_module
from adiabat.train.stacked import StackedTowers
from tests.study.world import load as world_load
from tests.study.world import run, settings_of, write_world

GRID = {"tune": {"learning_rate": [1e-3, 3e-3], "margin": [0.2, 0.3]}}


@pytest.fixture(autouse=True)
def _no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_module, "write_study", lambda result, folder: None)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """What a study reads."""
    write_world(tmp_path)
    return tmp_path


def with_engine(world: Path, name: str, **tables: Any) -> StudyResult:
    """A study of four runs in a directory of its own."""
    notes = tables.pop("notes", None)
    settings = settings_of(world, study={"out": str(world / name), **tables.pop("study", {})}, grid=GRID, **tables)
    return run(settings, notes=notes)


def numbers(result: StudyResult) -> list[tuple[Any, ...]]:
    """What runs found, without times."""
    return [(one.name, one.status, one.steps, one.validation_errors, [asdict(task.main) for task in one.tasks]) for one in result.runs]


def test_lanes_of_one_step_give_what_separate_runs_give(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stacked: list[int] = []
    real = StackedTowers.__init__

    def made(self: StackedTowers, towers: Any, **named: Any) -> None:
        stacked.append(len(towers))
        real(self, towers, **named)

    monkeypatch.setattr(StackedTowers, "__init__", made)
    apart, together = (with_engine(world, f"lanes{lanes}", study={"lanes": lanes}) for lanes in (1, 4))
    assert stacked == [4]
    for one, other in zip(apart.runs, together.runs, strict=True):
        assert (one.name, one.steps, one.validation_errors) == (other.name, other.steps, other.validation_errors)
        assert [loss for _, loss in one.validation_loss] == pytest.approx([loss for _, loss in other.validation_loss], rel=1e-4)
        assert one.drift is not None
        assert other.drift is not None
        assert one.drift.means["turn"] == pytest.approx(other.drift.means["turn"], rel=1e-3)


def test_a_model_that_cannot_be_stacked_is_run_one_after_another(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apart = with_engine(world, "apart", study={"lanes": 1})

    def refuse(self: StackedTowers) -> None:
        raise ModelError("no such stack")

    monkeypatch.setattr(StackedTowers, "_require_sound_passes", refuse)
    notes: list[str] = []
    together = with_engine(world, "together", study={"lanes": 4}, notes=notes)
    assert numbers(together) == numbers(apart)
    assert notes.count("one run after another: no such stack") == 1


def test_a_lane_that_diverges_is_kept_as_failed_and_the_others_go_on(world: Path) -> None:
    grid = {"tune": {"learning_rate": [1e30, 3e-3]}}
    found = run(settings_of(world, study={"lanes": 2}, grid=grid))
    assert [one.status for one in found.runs] == ["failed", "done"]
    assert "must be" in found.runs[0].reason
    # The folder of its checkpoints is gone.
    assert str(world) not in found.runs[0].reason


@pytest.mark.real  # A cluster of two processes takes longer to start than all other studies to run.
def test_ray_gives_the_same_rows(world: Path) -> None:
    pytest.importorskip("ray")
    grid = {"tune": {"learning_rate": [1e-3, 3e-3]}}
    here, there = (run(settings_of(world, study={"out": str(world / one), "engine": one}, grid=grid)) for one in ("process", "ray"))
    assert numbers(here) == numbers(there)


@pytest.mark.real
def test_what_goes_wrong_in_a_process_of_ray_is_told_as_it_was_said_there(world: Path) -> None:
    pytest.importorskip("ray")
    here = os.getpid()

    def load(name: str, encoder: EncoderSection) -> DualEncoder:
        if os.getpid() != here:
            raise ModelError("gone.json: must be there")
        return world_load(name, encoder)

    settings = settings_of(world, study={"engine": "ray"}, grid={"tune": {"learning_rate": [1e-3]}})
    with pytest.raises(ModelError, match=r"^gone.json: must be there$"):
        study_module.study(load, settings)


def test_a_missing_ray_is_told_with_the_line_that_installs_it(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(
        MissingDependencyError, match=r"study.engine = ray needs the package ray; install it with: pip install 'adiabat\[ray\]'"
    ):
        engines._ray("study.engine")
