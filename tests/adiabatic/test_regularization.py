"""Drift is measured at each validation, and a tower that drifts too far is not the result."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adiabat.adiabatic.drift import MEASURES, OVERLAP_LOSS, TURN, Reading, drift_of
from adiabat.adiabatic.regularization import noise_of
from adiabat.config.reader import checked
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import ConfigError, DataError, InterruptionError, StoreError
from adiabat.models.loading import load
from adiabat.results.evaluation_result import Result
from adiabat.results.record import read_result
from adiabat.training.loop import Loop
from tests.adiabatic.problem import Problem, run, settings_of
from tests.jobs import log_of, weights_of
from tests.tiny import tiny_dual

SLOW = {"learning_rate": 3e-4, "keep": "last"}


def guarded(problem: Problem, *, tune: dict[str, Any] | None = None, **guard: Any) -> TuneSettings:
    """A job that drifts further in each of its three epochs, and keeps the last."""
    table = settings_of(tune=SLOW | (tune or {})).model_dump(exclude_defaults=True)
    probes = str(problem.data.with_name("probes.txt"))
    return checked(
        TuneSettings, {**table, "guard": {"probes": probes, "depth": 10, "measure": "turn", **guard}}
    )


def training(result: Result) -> Any:
    """The record of the run."""
    assert result.training is not None
    return result.training


def turns_of(out: Path) -> list[float]:
    """Drift after each epoch, by the log."""
    return [row[f"validation_{TURN}"] for row in log_of(out) if "validation_loss" in row]


@pytest.fixture(scope="module")
def watched(problem: Problem, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job whose drift is measured and not limited."""
    out = tmp_path_factory.mktemp("watched") / "job"
    run(problem, out, guarded(problem))
    return out


def test_drift_is_in_the_log_and_in_the_result(watched: Path) -> None:
    turns = turns_of(watched)
    assert turns[0] == 0
    assert turns == sorted(turns)
    assert len(set(turns)) == 4
    found = training(read_result(watched / "result.json")).measures
    assert set(found) == set(MEASURES)
    assert [value for _, value in found[TURN]] == turns


def test_a_guard_that_only_watches_changes_no_weight(problem: Problem, watched: Path, tmp_path: Path) -> None:
    run(problem, tmp_path / "job", settings_of(tune=SLOW))
    assert weights_of(load(tmp_path / "job" / "model").query) == weights_of(load(watched / "model").query)


def test_a_run_stops_where_drift_leaves_the_band_and_keeps_what_was_inside(
    problem: Problem, watched: Path, tmp_path: Path
) -> None:
    turns = turns_of(watched)
    result = run(problem, tmp_path / "job", guarded(problem, limit=(turns[1] + turns[2]) / 2))
    record = training(result)
    assert (record.epochs, record.best_epoch) == (2, 1)
    assert record.stop_reason.startswith("the drift of the probes (turn) is ")
    assert record.stop_reason.endswith("; the weights of epoch 1 are kept")
    run(problem, tmp_path / "short", settings_of(tune={**SLOW, "max_epochs": 1}))
    assert weights_of(load(tmp_path / "job" / "model").query) == weights_of(
        load(tmp_path / "short" / "model").query
    )


def test_the_best_weights_inside_the_band_are_kept_where_the_best_are_asked_for(
    problem: Problem, tmp_path: Path
) -> None:
    fast = {"keep": "both", "learning_rate": 3e-3, "idle_epochs": 9}
    improving = training(run(problem, tmp_path / "free", guarded(problem, tune=fast)))
    assert improving.best_epoch > 0
    most = dict(improving.measures[TURN])[improving.best_epoch] * 0.999
    found = training(run(problem, tmp_path / "job", guarded(problem, tune=fast, limit=most)))
    assert found.best_epoch < improving.best_epoch


def test_where_nothing_may_drift_the_start_is_the_result(problem: Problem, tmp_path: Path) -> None:
    record = training(run(problem, tmp_path / "job", guarded(problem, limit=1e-12)))
    assert (record.epochs, record.best_epoch) == (1, 0)
    assert weights_of(load(tmp_path / "job" / "model").query) == weights_of(problem.fresh().query)


def test_a_run_goes_back_and_on_at_half_the_rate(problem: Problem, watched: Path, tmp_path: Path) -> None:
    turns = turns_of(watched)
    notes: list[str] = []
    run(
        problem,
        tmp_path / "job",
        guarded(problem, limit=(turns[1] + turns[2]) / 2, action="back"),
        notes=notes,
    )
    said = [
        note
        for note in notes
        if ": restored the weights of epoch 1; continuing at 0.5 of the learning rate" in note
    ]
    assert len(said) == 1
    rows = log_of(tmp_path / "job")
    rates = {row["epoch"]: row["learning_rate"] for row in rows if "learning_rate" in row}
    assert rates[2] == pytest.approx(rates[1] / 2)
    # From the weights of epoch 1 it has gone less far than two epochs at the full rate.
    assert turns_of(tmp_path / "job")[3] < turns[3]


def test_a_run_that_went_back_resumes_exactly(
    problem: Problem, watched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = turns_of(watched)
    settings = guarded(problem, limit=(turns[1] + turns[2]) / 2, action="back")
    run(problem, tmp_path / "whole", settings)
    real = Loop._rest

    def rest(self: Loop, *, stopping: bool) -> None:
        real(self, stopping=stopping or self.position.step == 9)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_rest", rest)
        with pytest.raises(InterruptionError):
            run(problem, tmp_path / "cut", settings)
    run(problem, tmp_path / "cut", settings, resume=True)
    assert weights_of(load(tmp_path / "cut" / "model").query) == weights_of(
        load(tmp_path / "whole" / "model").query
    )
    assert log_of(tmp_path / "cut") == log_of(tmp_path / "whole")


def test_what_a_guard_needs_is_told_before_any_step(problem: Problem, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere.txt must exist, got no such file"):
        run(problem, tmp_path / "job", guarded(problem, probes=str(tmp_path / "nowhere.txt")))
    with pytest.raises(StoreError, match="store"):
        run(problem, tmp_path / "job", guarded(problem), model=replace(tiny_dual(width=16), name="other"))
    assert not (tmp_path / "job").exists()


def test_going_back_wants_a_limit() -> None:
    with pytest.raises(
        ConfigError, match=r"guard.action has no effect without guard.limit; leave it out, or set guard.limit"
    ):
        checked(TuneSettings, {"guard": {"action": "back"}})


def turned(angles: list[float], rows: list[list[int]], *, length: float = 1.0) -> Reading:
    vectors = length * np.array([[np.cos(angle), np.sin(angle)] for angle in angles], dtype=np.float32)
    return Reading(
        vectors, np.array(rows), np.array([[0.9, 0.8 - angle] for angle in angles], dtype=np.float32)
    )


def test_noise_is_the_drift_of_the_probes_that_move() -> None:
    start, otherwise = turned([0.0, 0.5], [[1, 2], [3, 4]]), turned([0.1, 0.5], [[2, 1], [3, 4]])
    found = noise_of(start, otherwise)
    assert found[TURN] == pytest.approx(0.1, rel=1e-5)
    # Half of what both probes have: the second one's vector stays.
    assert found[OVERLAP_LOSS] == pytest.approx(2 * drift_of(start, otherwise).means[OVERLAP_LOSS])


def test_the_length_of_a_vector_and_its_rounding_do_not_move_a_probe() -> None:
    start, otherwise = (
        turned([0.2, 0.4], [[1, 2], [3, 4]]),
        turned([0.2, 0.4 + 1e-6], [[1, 2], [3, 4]], length=1e3),
    )
    assert noise_of(start, otherwise) == dict.fromkeys(MEASURES, 0.0)
