"""Trials of a range test that take turns, as on a GPU, against trials one after the other."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from adiabat.adiabatic.fixed_steps import FixedSteps
from adiabat.core.errors import InterruptionError
from adiabat.experiments.rate_trials import RateTrials
from adiabat.training.loop import Loop
from tests.adiabatic.problem import Problem, quick, run
from tests.adiabatic.test_range_test import counted_steps, trials_of
from tests.adiabatic.test_range_test import problem as problem
from tests.jobs import everything
from tests.training.emulated_graphs import recording


@pytest.fixture(autouse=True)
def recorded_steps() -> Iterator[None]:
    with recording():
        yield


def found_by(out: Path) -> dict[float, tuple[list[int], list[float], int | None]]:
    """Checks, losses and the step that left the limit, by rate."""
    return {row.rate: (row.steps, row.losses, row.left_at) for row in trials_of(out)}


@pytest.fixture(scope="module")
def one_by_one(problem: Problem, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one by one")
    with recording(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(RateTrials, "make_at_once", lambda search, wanted: None)
        run(problem, folder / "job", quick(folder, limit=0.5))
    return folder / "job"


@pytest.mark.parametrize(("at_once", "first"), [(8, [1e-2, 1e-3, 1e-4]), (2, [1e-2, 1e-3])])
def test_trials_that_take_turns_are_those_that_run_alone_bit_for_bit(
    problem: Problem,
    one_by_one: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at_once: int,
    first: list[float],
) -> None:
    monkeypatch.setattr("adiabat.experiments.rate_trials.AT_ONCE", at_once)
    order: list[float] = []
    step = Loop.step

    def noted(self: Loop) -> None:
        order.append(self.learning_rate)
        step(self)

    monkeypatch.setattr(Loop, "step", noted)
    run(problem, tmp_path / "job", quick(tmp_path, limit=0.5))
    assert order[: 2 * len(first)] == first * 2
    assert found_by(tmp_path / "job") == found_by(one_by_one)
    assert everything(tmp_path / "job") == everything(one_by_one)


def test_an_interruption_saves_all_of_them_and_the_job_goes_on_as_if_there_were_none(
    problem: Problem, one_by_one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        counted_steps(patch, cut=8)
        with pytest.raises(InterruptionError, match="stopped at steps 3 and 3 and 3"):
            run(problem, tmp_path / "job", quick(tmp_path, limit=0.5))
    again = counted_steps(monkeypatch)
    run(problem, tmp_path / "job", quick(tmp_path, limit=0.5), resume=True)
    # The highest rate may leave the limit before its eighth step.
    assert again[0] <= 3 * 5 + 4
    assert found_by(tmp_path / "job") == found_by(one_by_one)
    assert everything(tmp_path / "job") == everything(one_by_one)


def test_a_trial_that_diverges_leaves_the_others_alone(
    problem: Problem, one_by_one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = FixedSteps.inputs

    def spoilt(self: FixedSteps, step: int) -> dict[str, np.ndarray]:
        made = inputs(self, step)
        if step == 2 and self._objective.settings.learning_rate == 1e-2:
            made["attended"] = np.zeros_like(made["attended"])
        return made

    monkeypatch.setattr(FixedSteps, "inputs", spoilt)
    run(problem, tmp_path / "job", quick(tmp_path, limit=0.5))
    found, expected = found_by(tmp_path / "job"), found_by(one_by_one)
    assert found.pop(1e-2)[2] is not None
    del expected[1e-2]
    assert found == expected
