"""The expected time of a whole tuning job."""

import json
import os
import re
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from adiabat.adiabatic import expected_time as module
from adiabat.adiabatic import tune as tune_module
from adiabat.adiabatic.expected_time import TIMED_QUERIES, ExpectedTime, expected_time
from adiabat.adiabatic.stored_loss import StoredDocuments
from adiabat.adiabatic.tune_checks import EPOCHS, RESERVE
from adiabat.config.reader import checked, read_settings
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import ConfigError, InterruptionError
from adiabat.results.evaluation_result import Result
from adiabat.results.record import read_result
from adiabat.runs.run_config import Job, read_description
from tests.adiabatic.problem import RANGE, Problem, quick, run, settings_of, tuned, write_problem
from tests.commands import listing, run_in_process, tune, write_world
from tests.jobs import everything


@pytest.fixture(autouse=True)
def known_pace() -> None:
    """It is measured here."""


class Clock:
    """A clock on which only steps and validation queries take time, `pace` times what they are said to."""

    def __init__(self, patch: pytest.MonkeyPatch, *, step: float, validation: float, stop: int = 0) -> None:
        """Ctrl-C is sent during the step `stop`."""
        self.now, self.pace, self.taken = 0.0, 1.0, 0
        loss, validate = StoredDocuments.loss, StoredDocuments.validate

        def timed_loss(objective: StoredDocuments, number: int) -> Any:
            self.now += step * self.pace
            self.taken += 1
            if self.taken == stop:
                os.kill(os.getpid(), signal.SIGINT)
            return loss(objective, number)

        def timed_validate(objective: StoredDocuments) -> Any:
            self.now += validation * len(objective.validation) * self.pace
            return validate(objective)

        patch.setattr(StoredDocuments, "loss", timed_loss)
        patch.setattr(StoredDocuments, "validate", timed_validate)
        patch.setattr(module.time, "monotonic", lambda: self.now)


def test_a_run_takes_its_steps_and_a_validation_before_the_first_and_after_each_epoch() -> None:
    # 10 idle epochs of 1,000 steps, and 11 validations; at most 1,000 epochs; and 50 s of searching before.
    expected = ExpectedTime(0.5, 3.0, 50.0, 1000, 10_000, 1_000_000, "CPU")
    assert expected.least_seconds == 50 + 10_000 * 0.5 + 11 * 3
    assert expected.most_seconds == 50 + 1_000_000 * 0.5 + 1001 * 3
    told = expected.summary()
    assert "at least 1 h 24 min" in told
    assert "at most 5 d 19 h" in told
    assert "0.5 s and a validation 3 s" in told
    assert "including about 50 s for the learning-rate search" in told


@pytest.mark.parametrize(
    ("guard", "may_stop"), [({"limit": 0.5}, True), ({"limit": 0.5, "action": "back"}, False), ({}, False)]
)
def test_the_least_time_is_no_bound_where_a_guard_may_stop(guard: dict[str, Any], may_stop: bool) -> None:
    settings = checked(TuneSettings, {"tune": {"learning_rate": 1e-6}, "guard": guard})
    told = module.time_at(module.Pace(0.5, 3.0, 1.0, "CPU"), settings).summary()
    assert ("if nothing improves, or less if the drift limit stops the run, at most" in told) == may_stop


@pytest.mark.parametrize(
    ("tune", "least", "most"),
    [
        ({"batches_per_epoch": 4, "max_epochs": 30, "idle_epochs": 10}, 40, 120),
        ({"batches_per_epoch": 4, "max_epochs": 3}, 12, 12),
        ({"batches_per_epoch": 5, "max_epochs": 30, "keep": "last"}, 150, 150),
    ],
)
def test_steps_follow_from_the_stop_rule(tmp_path: Path, tune: dict[str, Any], least: int, most: int) -> None:
    expected = expected_time(write_problem(tmp_path).context(), settings_of(tune=tune))
    assert (expected.least_steps, expected.most_steps) == (least, most)
    assert ("at least" in expected.summary()) == (least < most)


def test_times_of_a_sample_are_extrapolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = write_problem(tmp_path, queries=600, documents=700).context()
    settings = settings_of(tune={"batches_per_epoch": 100}, data={"validation_fraction": 0.5})
    validated = len(context.examples(settings.data)[1])
    assert validated > 2 * TIMED_QUERIES
    Clock(monkeypatch, step=0.25, validation=0.01)
    expected = expected_time(context, settings)
    assert expected.step_seconds == pytest.approx(0.25)
    assert expected.validation_seconds == pytest.approx(0.01 * validated)
    assert expected.search_seconds == 0


def test_a_search_takes_the_runs_that_rates_a_factor_apart_are_worth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, probes = write_problem(tmp_path), tmp_path / "probes.txt"
    probes.write_text("".join(f"probe {number}\n" for number in range(20)))
    table = settings_of().model_dump(exclude_unset=True)
    del table["tune"]["learning_rate"]
    table["guard"] = {"probes": str(probes), "depth": 5, "limit": 0.5}
    table["rate_search"] = {"low": 1e-6, "high": 1e-4, "count": 3, "steps": 40, "checks": 4, "seeds": 2}
    Clock(monkeypatch, step=0.25, validation=0.01)
    expected = expected_time(problem.context(), checked(TuneSettings, table))
    # Rates a factor of 10 apart: 10 / 9 runs of 40 steps for each of two seeds.
    assert expected.search_seconds == pytest.approx(2 * 10 / 9 * 40 * 0.25)


def test_measuring_changes_neither_weights_nor_random_numbers_and_writes_nothing(tmp_path: Path) -> None:
    context, state = write_problem(tmp_path / "problem").context(), torch.random.get_rng_state()
    before = {name: weights.clone() for name, weights in context.model.query.named_parameters()}
    files = listing(tmp_path)
    expected_time(context, settings_of(tune={"dropout": True, "batches_per_epoch": 50}))
    assert all(torch.equal(before[name], weights) for name, weights in context.model.query.named_parameters())
    assert torch.equal(state, torch.random.get_rng_state())
    assert listing(tmp_path) == files


def test_a_job_says_its_time_first_and_is_the_same_as_without_the_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, notes = write_problem(tmp_path / "problem"), list[str]()
    settings = settings_of(tune={"dropout": True, "negatives": "random"})
    run(problem, tmp_path / "with", settings, notes=notes)
    assert notes[0].startswith("expected time: ")
    pace = module.Pace(1.0, 1.0, 0.0, "CPU")
    monkeypatch.setattr("adiabat.adiabatic.tune.measured_pace", lambda *_, **__: pace)
    run(problem, tmp_path / "without", settings)
    assert everything(tmp_path / "with") == everything(tmp_path / "without")


def test_a_dry_run_prints_the_settings_and_the_time_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_world(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = listing(tmp_path)
    command = [word for word in tune() if word not in ("--out", "new")]
    said = run_in_process(capsys, monkeypatch, [*command, "--dry-run", "--set", "tune.batch_size=3"])
    assert said.code == 0
    assert "# expected time: " in said.out
    (tmp_path / "said.toml").write_text(said.out)
    assert read_settings(TuneSettings, tmp_path / "said.toml").tune.batch_size == 3
    (tmp_path / "said.toml").unlink()
    as_json = json.loads(run_in_process(capsys, monkeypatch, [*tune(), "--dry-run", "--json"]).out)
    assert as_json["most_seconds"] >= as_json["least_seconds"] > as_json["step_seconds"] > 0
    assert listing(tmp_path) == before
    refused = run_in_process(capsys, monkeypatch, command)
    assert (refused.code, "--out" in refused.err) == (2, True)
    assert run_in_process(capsys, monkeypatch, [*command, "--dry-run", "--resume"]).code == 2


LOADING, WRITING_THE_PAGE = 4.0, 1.5
"""Seconds of loading before a job, and of its model and page after the last step, on the clock of these
tests."""


def seconds_of_a_job(
    problem: Problem,
    out: Path,
    settings: TuneSettings,
    monkeypatch: pytest.MonkeyPatch,
    *,
    slower: float = 1.0,
    stop: int = 0,
) -> float:
    """Tune on a clock where steps of 0.5 s, validations, loading and the end take time, `slower` once it was
    measured; returns the seconds from the start of the process to the written page.
    """
    open_job, finish_run = tune_module.open_job, tune_module.finish_run
    with monkeypatch.context() as patched:
        clock = Clock(patched, step=0.5, validation=0.02, stop=stop)

        def measured(*args: Any, **options: Any) -> Any:
            clock.pace = slower
            return open_job(*args, **options)

        def finish(*args: Any, **options: Any) -> Any:
            clock.now += WRITING_THE_PAGE * clock.pace
            return finish_run(*args, **options)

        patched.setattr(tune_module, "open_job", measured)
        patched.setattr(tune_module, "finish_run", finish)
        with suppress(InterruptionError):
            tuned(problem.context(), out, settings=settings, resume=out.exists(), started=-LOADING)
    return LOADING + clock.now


def within_a_limit(folder: Path, seconds: float) -> TuneSettings:
    """The quick recipe without any other bound than a time limit."""
    settings = quick(folder, budget_seconds=seconds, max_epochs=1000, idle_epochs=1000)
    table = settings.model_dump(exclude_unset=True)
    table["rate_search"]["steps"] = 1000
    return checked(TuneSettings, table)


@pytest.mark.parametrize("slower", [1.0, 1.6])
def test_a_time_limit_holds_from_the_start_of_the_process_to_the_written_page(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slower: float
) -> None:
    settings = within_a_limit(tmp_path, 60.0)
    seconds = seconds_of_a_job(problem, tmp_path / "job", settings, monkeypatch, slower=slower)
    assert 45 < seconds <= 1.05 * 60
    assert (tmp_path / "job/result.json").is_file()


def test_a_resumed_job_counts_the_seconds_of_all_its_sessions(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, settings = tmp_path / "job", within_a_limit(tmp_path, 60.0)
    sessions = [seconds_of_a_job(problem, job, settings, monkeypatch, stop=stop) for stop in (60, 20, 0)]
    assert 45 < sum(sessions) <= 1.05 * 60 + 2 * LOADING
    steps, description = read_result(job / "result.json", Result).training.steps, read_description(Job(job))
    assert steps == description["job"][EPOCHS] * settings.tune.batches_per_epoch
    assert description["job"][RESERVE] > WRITING_THE_PAGE


def test_what_a_time_limit_holds_beside_steps_and_validations() -> None:
    pace = module.Pace(0.5, 4.0, 3.0, "CPU", setup_seconds=2.0, saving_seconds=1.0, ending_seconds=20.0)
    run_alone = {"learning_rate": 1e-6, "batches_per_epoch": 100, "budget_seconds": 190}
    alone = checked(TuneSettings, {"tune": run_alone})
    # 190 - 20 - 4 s hold three epochs of 100 steps, a validation and a checkpoint: 55 s each.
    assert module.fitted(alone, pace).tune.max_epochs == 3
    assert module.fitted(alone, pace, spent=1.1).tune.max_epochs == 2
    assert module.least_budget(alone, pace) == 50 + 2 * 4 + 1 + 20
    # Half of 640 - 20 s is 103 s for each of three trials: 150 steps in three epochs take 2 + 75 + 4 + 3 (4 +
    # 1) = 96 s.
    quickly = {"recipe": "quick", "budget_seconds": 640}
    searched = checked(TuneSettings, {"tune": quickly, "rate_search": {**RANGE, "steps": 1000}})
    assert module.fitted(searched, pace).rate_search.steps == 150


def test_a_time_limit_that_holds_no_steps_is_refused_before_anything_is_embedded(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("reading_of", "at_start"):
        monkeypatch.setattr(
            f"adiabat.adiabatic.regularization.{name}", lambda *_, **__: pytest.fail("texts were embedded")
        )
    told = r"^tune.budget_seconds must be at least \d+ .* got 9; give budget_seconds=\"\d+s\""
    with pytest.raises(ConfigError, match=told) as caught:
        seconds_of_a_job(problem, tmp_path / "job", within_a_limit(tmp_path, 9.0), monkeypatch)
    assert not (tmp_path / "job").exists()
    monkeypatch.undo()
    # The limit that it names, from a guess of what validations take, suffices.
    advised = float(re.findall(r"budget_seconds=\"(\d+)s", str(caught.value))[0])
    settings = within_a_limit(tmp_path, advised)
    assert seconds_of_a_job(problem, tmp_path / "job", settings, monkeypatch) <= 1.05 * advised
