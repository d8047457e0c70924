"""Where runs are made changes none of them: one after another, or spread over a Ray cluster."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from adiabat.config.shared import EncoderSection
from adiabat.core.errors import MissingDependencyError, ModelError
from adiabat.experiments import sweep as sweep_module
from adiabat.experiments import trials as engines
from adiabat.models.towers import DualEncoder
from adiabat.results.sweep_result import SweepResult
from tests.experiments.sweep.world import load as world_load
from tests.experiments.sweep.world import run, settings_of


@pytest.fixture(autouse=True)
def _no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_module, "write_report", lambda result, folder: None)


def numbers(result: SweepResult) -> list[tuple[Any, ...]]:
    """What runs found, without times."""
    return [
        (one.name, one.status, one.steps, one.validation_errors, [asdict(task.main) for task in one.tasks])
        for one in result.runs
    ]


@pytest.mark.real  # A cluster of two processes takes longer to start than all other sweeps to run.
def test_ray_gives_the_same_rows(world: Path) -> None:
    pytest.importorskip("ray")
    grid = {"tune": {"learning_rate": [1e-3, 3e-3]}}
    here, there = (
        run(settings_of(world, sweep={"out": str(world / one), "engine": one}, grid=grid))
        for one in ("process", "ray")
    )
    assert numbers(here) == numbers(there)


@pytest.mark.real
def test_what_goes_wrong_in_a_process_of_ray_is_told_as_it_was_said_there(world: Path) -> None:
    pytest.importorskip("ray")
    here = os.getpid()

    def load(name: str, encoder: EncoderSection) -> DualEncoder:
        if os.getpid() != here:
            raise ModelError("gone.json: must be there")
        return world_load(name, encoder)

    settings = settings_of(world, sweep={"engine": "ray"}, grid={"tune": {"learning_rate": [1e-3]}})
    with pytest.raises(ModelError, match=r"^gone.json: must be there$"):
        sweep_module.sweep(load, settings)


def test_a_missing_ray_is_told_with_the_line_that_installs_it(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"sweep.engine = ray .*pip install 'adiabat\[ray\]'"):
        engines._ray("sweep.engine")
