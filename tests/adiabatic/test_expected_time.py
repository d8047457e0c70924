"""The expected time of a whole tuning job."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from adiabat.adiabatic import expected_time as module
from adiabat.adiabatic.expected_time import TIMED_QUERIES, ExpectedTime, expected_time
from adiabat.adiabatic.stored_loss import StoredDocuments
from adiabat.adiabatic.tuning_context import TuningContext
from adiabat.config.reader import checked, read_settings
from adiabat.config.tuning import TuneSettings
from tests.adiabatic.problem import Problem, run, settings_of, write_problem
from tests.commands import listing, run_in_process, tune, write_world
from tests.jobs import everything


@pytest.fixture(autouse=True)
def known_pace() -> None:
    """It is measured here."""


def context_of(problem: Problem) -> TuningContext:
    return TuningContext(problem.fresh, problem.store, str(problem.data), "tiny")


def slow(monkeypatch: pytest.MonkeyPatch, *, step: float, validation: float) -> None:
    """Make each step and each validation query take this long on the clock of the measurement, and nothing else."""
    now = [0.0]
    loss, validate = StoredDocuments.loss, StoredDocuments.validate

    def slow_loss(self: StoredDocuments, number: int) -> Any:
        now[0] += step
        return loss(self, number)

    def slow_validate(self: StoredDocuments) -> Any:
        now[0] += validation * len(self.validation)
        return validate(self)

    monkeypatch.setattr(StoredDocuments, "loss", slow_loss)
    monkeypatch.setattr(StoredDocuments, "validate", slow_validate)
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])


def test_a_run_takes_its_steps_and_a_validation_before_the_first_and_after_each_epoch() -> None:
    # 10 idle epochs of 1,000 steps, and 11 validations; at most 1,000 epochs; and 50 s of searching before.
    expected = ExpectedTime(0.5, 3.0, 50.0, 1000, 10_000, 1_000_000, "CPU")
    assert expected.least_seconds == 50 + 10_000 * 0.5 + 11 * 3
    assert expected.most_seconds == 50 + 1_000_000 * 0.5 + 1001 * 3
    for part in (
        "at least 1 h 24 min",
        "at most 5 d 19 h",
        "0.5 s and a validation 3 s",
        "including about 50 s for the learning-rate search",
    ):
        assert part in expected.summary()


@pytest.mark.parametrize(("guard", "may_stop"), [({"limit": 0.5}, True), ({"limit": 0.5, "action": "back"}, False), ({}, False)])
def test_the_least_time_is_no_bound_where_the_guard_may_stop_the_run(guard: dict[str, Any], may_stop: bool) -> None:
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
    expected = expected_time(context_of(write_problem(tmp_path)), settings_of(tune=tune))
    assert (expected.least_steps, expected.most_steps) == (least, most)
    assert ("at least" in expected.summary()) == (least < most)


def test_times_are_measured_on_a_sample_and_extrapolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_of(write_problem(tmp_path, queries=600, documents=700))
    settings = settings_of(tune={"batches_per_epoch": 100}, data={"validation_fraction": 0.5})
    validated = len(context.examples(settings.data)[1])
    assert validated > 2 * TIMED_QUERIES
    slow(monkeypatch, step=0.25, validation=0.01)
    expected = expected_time(context, settings)
    assert expected.step_seconds == pytest.approx(0.25)
    assert expected.validation_seconds == pytest.approx(0.01 * validated)
    assert expected.search_seconds == 0


def test_a_search_takes_the_runs_that_rates_a_factor_apart_are_worth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_of(write_problem(tmp_path))
    probes = tmp_path / "probes.txt"
    probes.write_text("".join(f"probe {number}\n" for number in range(20)))
    table = settings_of().model_dump(exclude_unset=True)
    table["tune"] |= {"learning_rate": "safe"}
    table |= {"guard": {"probes": str(probes), "depth": 5, "limit": 0.5}}
    table |= {"rate_search": {"low": 1e-6, "high": 1e-4, "count": 3, "steps": 40, "checks": 4, "seeds": 2}}
    slow(monkeypatch, step=0.25, validation=0.01)
    # Rates a factor of 10 apart: 10 / 9 runs of 40 steps for each of two seeds.
    assert expected_time(context, checked(TuneSettings, table)).search_seconds == pytest.approx(2 * 10 / 9 * 40 * 0.25)


def test_measuring_changes_neither_weights_nor_random_numbers_and_writes_nothing(tmp_path: Path) -> None:
    problem = write_problem(tmp_path / "problem")
    context, state = context_of(problem), torch.random.get_rng_state()
    before = {name: weights.clone() for name, weights in context.model.query.named_parameters()}
    files = listing(tmp_path)
    expected_time(context, settings_of(tune={"dropout": True, "batches_per_epoch": 50}))
    assert all(torch.equal(before[name], weights) for name, weights in context.model.query.named_parameters())
    assert torch.equal(state, torch.random.get_rng_state())
    assert listing(tmp_path) == files


def test_a_job_says_its_time_first_and_is_the_same_as_without_the_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, notes = write_problem(tmp_path / "problem"), list[str]()
    settings = settings_of(tune={"dropout": True, "negatives": "random"})
    run(problem, tmp_path / "with", settings, notes=notes)
    assert notes[0].startswith("expected time: ")
    monkeypatch.setattr("adiabat.adiabatic.tune.measured_pace", lambda *_, **__: module.Pace(1.0, 1.0, 0.0, "CPU"))
    run(problem, tmp_path / "without", settings)
    ends = [everything(tmp_path / name) for name in ("with", "without")]
    assert ends[0] == ends[1]


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
