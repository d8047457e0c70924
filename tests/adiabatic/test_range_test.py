"""The range test of rates: the rate that it takes, and the run that goes on from the trial of that rate."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adiabat.adiabatic.drift import MEASURES
from adiabat.api.call import stage_of
from adiabat.config.reader import checked
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import InterruptionError, JobError
from adiabat.core.progress import Watch
from adiabat.core.text import NO_BREAK
from adiabat.experiments import range_test as range_test_module
from adiabat.experiments.range_test import hand_over, range_test
from adiabat.experiments.rate_trials import RateTrials
from adiabat.results.rate_search_result import RateTrial
from adiabat.runs.row_files import Rows
from adiabat.runs.run_config import Job, read_description
from adiabat.training.loop import Loop
from tests.adiabatic.problem import Problem, quick, run, tuned, write_problem
from tests.jobs import everything


def counted_steps(monkeypatch: pytest.MonkeyPatch, *, cut: int = 0) -> list[int]:
    """Count the steps of all loops from here on; Ctrl-C is sent during the step `cut`."""
    take, taken = Loop.step, [0]

    def counted(self: Loop) -> None:
        taken[0] += 1
        if taken[0] == cut:
            os.kill(os.getpid(), signal.SIGINT)
        take(self)

    monkeypatch.setattr(Loop, "step", counted)
    return taken


def take_trials(made: Callable[[RateTrials, float, int], RateTrial], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a function make the trials."""

    def run_them(search: RateTrials, prepared: list[tuple[float, int]]) -> None:
        for rate, seed in prepared:
            search.rows.add(made(search, rate, seed))

    monkeypatch.setattr(RateTrials, "_prepared", lambda search, rate, seed, stack, running: (rate, seed))
    monkeypatch.setattr(RateTrials, "_run", run_them)


def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    # Of the rates 1e-2, 1e-3 and 1e-4, the second has the lowest loss.
    return write_problem(tmp_path_factory.mktemp("problem"), queries=120)


def search_of(problem: Problem, folder: Path, notes: list[str]) -> RateTrials:
    """The search of the quick recipe."""
    return RateTrials(problem.context(), quick(folder), folder / "search", Watch(note=notes.append))


def trials_of(out: Path) -> list[RateTrial]:
    """Trials of the search of a job."""
    path = out / "rate-search/trials.parquet"
    return Rows(path, RateTrial, columns=lambda row: {}, of="a rate search").every


def test_a_range_test_takes_the_rate_with_the_lowest_validation_loss_within_the_limit(
    problem: Problem, tmp_path: Path
) -> None:
    notes: list[str] = []
    result = run(problem, tmp_path / "job", quick(tmp_path, limit=0.5), notes=notes)
    within = {row.rate: row.losses[: -1 if row.left_at else None] for row in trials_of(tmp_path / "job")}
    assert set(within) == {1e-4, 1e-3, 1e-2}
    best = min(within, key=lambda rate: min(within[rate], default=float("inf")))
    tune, told = result.training.settings["tune"], " ".join(result.training.notes)
    assert (tune["learning_rate"], tune["budget_seconds"]) == (best, 600)
    assert f"the learning rate {best:g} was the best within the drift limit" in told
    assert "tuned by the recipe quick, within 10" in told
    assert notes[0].startswith("expected time: ")
    assert "if nothing improves, or less if the drift limit stops the run, at most" in notes[0]
    assert any(note.startswith("range test: ") for note in notes)


@pytest.mark.parametrize(
    ("change", "steps"),
    [
        ({}, 3 * 8 + 4),
        ({"guard": {"action": "back"}}, 3 * 8 + 4),
        ({"guard": {"action": "soften"}}, 3 * 8 + 4),
        ({"guard": {"action": "soften"}, "tune": {"keep": "last", "idle_epochs": None}}, 3 * 8 + 4),
        ({"tune": {"keep": "last", "idle_epochs": None}}, 3 * 8 + 4),
        ({"rate_search": {"seeds": 2}}, 6 * 8 + 4),
        ({"rate_search": {"steps": 12}, "tune": {"idle_epochs": 3}}, 3 * 12),
        ({"rate_search": {"steps": 20}, "tune": {"idle_epochs": 3}}, 3 * 12),
        ({"rate_search": {"steps": 10}, "tune": {"idle_epochs": 3}}, 3 * 10 + 12),
    ],
)
def test_the_run_goes_on_from_the_trial_of_its_rate(
    problem: Problem,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, dict[str, Any]],
    steps: int,
) -> None:
    tables = quick(tmp_path).model_dump(exclude_unset=True)
    for name, table in change.items():
        tables[name] = {key: value for key, value in {**tables[name], **table}.items() if value is not None}
    taken = counted_steps(monkeypatch)
    record = run(problem, tmp_path / "job", checked(TuneSettings, tables)).training
    assert (taken[0], record.steps) == (steps, 12)
    # The same as a run at that rate, which no search preceded.
    rate = record.settings["tune"]["learning_rate"]
    plain = {**tables, "tune": {**tables["tune"], "learning_rate": rate}}
    del plain["rate_search"]
    run(problem, tmp_path / "plain", checked(TuneSettings, plain))
    assert everything(tmp_path / "job") == everything(tmp_path / "plain")
    assert not [*(tmp_path / "job/rate-search").rglob("step-*")]


@pytest.mark.parametrize("action", ["stop", "soften"])
def test_the_limit_ends_a_trial_whatever_the_action(problem: Problem, tmp_path: Path, action: str) -> None:
    # Drift after 4 and 8 steps: 0.2445 and 0.4421 at 1e-2, 0.1971 and 0.1082 at 1e-3, 0.0277 and 0.0236 at
    # 1e-4. 1e-3 has the lowest loss.
    tables = quick(tmp_path, limit=0.15).model_dump(exclude_unset=True)
    tables["guard"]["action"] = action
    record = run(problem, tmp_path / "job", checked(TuneSettings, tables)).training
    assert record.settings["tune"]["learning_rate"] == 1e-4
    assert record.settings["guard"]["action"] == action
    found = {row.rate: (row.steps, row.left_at) for row in trials_of(tmp_path / "job")}
    assert found == {1e-2: ([4], 4), 1e-3: ([4], 4), 1e-4: ([4, 8], None)}


def test_a_rate_whose_trial_diverged_is_not_taken(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Losses by epochs of four steps. One trial diverged within its third epoch, one exceeded the limit with
    # its second.
    trials = {1e-2: ([0.2, 0.1], 10), 1e-3: ([0.4, 0.3], 8), 1e-4: ([0.5, 0.45], None)}

    def made(search: RateTrials, rate: float, seed: int) -> RateTrial:
        losses, left = trials[rate]
        drift = {name: [0.5, 0.5] for name in MEASURES}
        return RateTrial(rate, seed, [4, 8], drift, left, "", 1.0, "CPU", losses)

    take_trials(made, monkeypatch)
    assert range_test(search_of(problem, tmp_path, [])).tune.learning_rate == 1e-3


@pytest.mark.parametrize("within", [3e-5, 1e-9])
def test_a_range_test_goes_on_to_lower_rates_until_one_stays_within_the_limit(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, within: float
) -> None:
    def made(search: RateTrials, rate: float, seed: int) -> RateTrial:
        drift = {name: [0.5] for name in MEASURES}
        left, reason = (None, "") if rate < within else (4, "outside")
        return RateTrial(rate, seed, [4], drift, left, reason, 1.0, "CPU", [1.0])

    take_trials(made, monkeypatch)
    notes: list[str] = []
    search = search_of(problem, tmp_path, notes)
    if within < 1e-7:
        with pytest.raises(JobError, match="stay within the guard's limit .* got none down to 1e-07; lower"):
            range_test(search)
        return
    assert range_test(search).tune.learning_rate == pytest.approx(1e-5)
    assert [row.rate for row in search.rows.every] == pytest.approx([1e-2, 1e-3, 1e-4, 1e-5])
    assert "0.0001: none, 1e-05: 1.0000; tuning at 1e-05" in notes[-1]


def test_the_progress_of_a_range_test_is_that_of_all_its_rates(problem: Problem, tmp_path: Path) -> None:
    shown: list[tuple[str, int, int]] = []
    watch = Watch(progress=lambda *position: shown.append(position))
    tuned(problem.context(), tmp_path / "job", settings=quick(tmp_path), watch=watch)
    of_test = [(done, total) for label, done, total in shown if stage_of(label) == "range test"]
    assert {total for _, total in of_test} == {3 * 8}
    assert of_test == sorted(of_test)
    assert of_test[-1] == (24, 24)


def test_the_progress_of_a_run_names_the_best_epoch_and_how_long_none_was_better(
    problem: Problem, tmp_path: Path
) -> None:
    shown: list[str] = []
    watch = Watch(progress=lambda label, *_: shown.append(label))
    # A rate that changes nothing: no epoch is better than the start.
    tune = {"batch_size": 5, "batches_per_epoch": 1, "max_epochs": 5, "idle_epochs": 2}
    settings = checked(TuneSettings, {"tune": {**tune, "learning_rate": 1e-30}})
    tuned(problem.context(), tmp_path / "job", settings=settings, watch=watch)
    labels = [label.replace(NO_BREAK, " ") for label in dict.fromkeys(shown) if label.startswith("epoch")]
    first = re.compile(r"epoch 1 of at most 5 \(kept: epoch 0, \d+ errors?; 0 of")
    assert any(map(first.match, labels)), labels
    assert labels[-1].endswith("; 2 of at most 2 epochs without a better one)")


@pytest.fixture(scope="module")
def whole(problem: Problem, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a quick job leaves that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    run(problem, folder / "job", quick(folder))
    return everything(folder / "job")


@pytest.mark.parametrize("step", [12, 20, 24, 26])
def test_a_quick_job_goes_on_as_if_it_had_not_been_interrupted(
    problem: Problem, whole: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    settings, taken = quick(tmp_path), counted_steps(monkeypatch, cut=step)
    with pytest.raises(InterruptionError):
        run(problem, tmp_path / "cut", settings)
    # Neither the speed nor the lengths are measured again.
    monkeypatch.setattr(
        "adiabat.adiabatic.tune.measured_pace", lambda *_, **__: pytest.fail("measured again")
    )
    run(problem, tmp_path / "cut", settings, resume=True)
    assert everything(tmp_path / "cut") == whole
    # No step is taken twice.
    assert taken[0] == 3 * 8 + 4
    lengths = read_description(Job(tmp_path / "cut"))["job"]
    assert (lengths["steps_of_search_within_budget"], lengths["epochs_within_budget"]) == (8, 3)


def test_a_job_killed_while_it_takes_over_a_trial_goes_on(
    problem: Problem, whole: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace

    def killed(self: Path, target: Path) -> Path:
        if self.name == "checkpoints":
            raise KeyboardInterrupt
        return replace(self, target)

    settings = quick(tmp_path)
    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        run(problem, tmp_path / "cut", settings)
    assert (tmp_path / "cut/log.jsonl").exists()
    monkeypatch.setattr(Path, "replace", replace)
    taken = counted_steps(monkeypatch)
    run(problem, tmp_path / "cut", settings, resume=True)
    assert everything(tmp_path / "cut") == whole
    assert taken[0] == 4


@pytest.mark.parametrize("lost", ["checkpoints", "log.jsonl", ""])
def test_a_trial_that_the_run_does_not_go_on_from_counts_against_the_time(
    problem: Problem, whole: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    at, counted = RateTrials.at, []

    def seen(self: RateTrials, rate: float, limit: float | None, seconds: float) -> TuneSettings:
        every = self.rows.every
        own = 0 if lost else next(trial.seconds for trial in every if trial.rate == rate)
        counted.append(seconds == pytest.approx(sum(trial.seconds for trial in every) - own))
        return at(self, rate, limit, seconds)

    def removed(self: RateTrials, rate: float) -> RateTrial | None:
        path = self.job_of(rate, 0).folder / lost
        if lost and path.exists():
            path.rename(tmp_path / "lost")
        return hand_over(self, rate)

    monkeypatch.setattr(RateTrials, "at", seen)
    monkeypatch.setattr(range_test_module, "hand_over", removed)
    settings, taken = quick(tmp_path), counted_steps(monkeypatch, cut=26)
    with pytest.raises(InterruptionError):
        run(problem, tmp_path / "job", settings)
    run(problem, tmp_path / "job", settings, resume=True)
    assert counted == [True, True]
    assert (everything(tmp_path / "job"), taken[0]) == (whole, 3 * 8 + (12 if lost else 4))


def test_a_range_test_that_has_used_its_time_ends_after_a_rate_within_the_limit(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(search: RateTrials, rate: float, seed: int) -> RateTrial:
        left = 4 if rate > 5e-3 else None
        return RateTrial(rate, seed, [4], {name: [0.5] for name in MEASURES}, left, "", 200.0, "CPU", [0.4])

    take_trials(made, monkeypatch)
    notes: list[str] = []
    search = search_of(problem, tmp_path, notes)
    assert range_test(search).tune.learning_rate == 1e-3
    # 200 of 600 seconds leave time for a second trial, 400 for no third.
    assert [row.rate for row in search.rows.every] == [1e-2, 1e-3]
    assert "0.01: none, 0.001: 0.4000; tuning at 0.001" in notes[-1]


def test_the_search_leaves_the_run_what_remains_of_the_time(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, left = RateTrials.at, []

    def spent(self: RateTrials, rate: float, limit: float | None, seconds: float) -> TuneSettings:
        settings = at(self, rate, limit, 599.9999)
        # The clock of the run counts the trial that it goes on from.
        assert seconds == sum(trial.seconds for trial in self.rows.every if trial.rate != rate)
        left.append(settings.tune.budget_seconds)
        return settings

    monkeypatch.setattr(RateTrials, "at", spent)
    record = run(problem, tmp_path / "job", quick(tmp_path)).training
    assert left == [pytest.approx(1e-3)]
    # The trial that the run goes on from alone took longer.
    assert (record.steps, record.stop_reason.partition(";")[0]) == (8, "the time limit was reached")
