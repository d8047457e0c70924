"""Recipes of tuning: their settings, the range test of rates, and the time limit."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from adiabat.adiabatic.drift import MEASURES
from adiabat.adiabatic.expected_time import Pace, fitted, time_at
from adiabat.adiabatic.tune import tune
from adiabat.adiabatic.tuning_context import TuningContext
from adiabat.api.arguments import settings_of
from adiabat.api.call import stage_of
from adiabat.config import tuning
from adiabat.config.reader import checked, read_settings
from adiabat.config.sweeps import TuneSweepSettings
from adiabat.config.tuning import RECIPES, TuneSettings
from adiabat.core.errors import ConfigError, InterruptionError, JobError
from adiabat.core.progress import Watch
from adiabat.experiments.grid import trials_of_sweep
from adiabat.experiments.rate_search import RateSearch, rate_for_run
from adiabat.results.rate_search_result import RateTrial
from adiabat.runs.row_files import Rows
from adiabat.runs.run_config import Job, read_description
from adiabat.training.loop import Loop
from tests.adiabatic.problem import Problem, run, write_problem
from tests.jobs import everything


def recipe(name: str, **tables: Any) -> TuneSettings:
    return checked(TuneSettings, {"tune": {"recipe": name, **tables.pop("tune", {})}, **tables})


def quick(folder: Path, *, limit: float = 0.9, **tune: Any) -> TuneSettings:
    """The quick recipe on a tiny problem."""
    for name in ("probe", "text"):
        (folder / f"{name}s.txt").write_text("".join(f"{name} {number}\n" for number in range(20)))
    return recipe(
        "quick",
        tune={"batch_size": 5, "batches_per_epoch": 4, "max_epochs": 3, "idle_epochs": 2, **tune},
        data={"validation_fraction": 0.3},
        guard={"probes": str(folder / "probes.txt"), "depth": 10, "limit": limit},
        rehearsal={"texts": str(folder / "texts.txt")},
        rate_search={"low": 1e-4, "high": 1e-2, "steps": 8},
        run={"log_every": 2},
    )


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    return write_problem(tmp_path_factory.mktemp("problem"), queries=60)


def test_paper_is_the_defaults_and_needs_no_name() -> None:
    assert recipe("paper").model_dump() == TuneSettings().model_dump()
    assert TuneSettings().tune.learning_rate == 5e-8


def test_stated_settings_go_before_those_of_the_recipe() -> None:
    settings = recipe("quick", tune={"loss": {"temperature": 0.1}, "batches_per_epoch": 7}, guard={"limit": 0.3})
    assert (settings.tune.loss.kind, settings.tune.loss.temperature) == ("store_softmax", 0.1)  # type: ignore[union-attr]
    assert (settings.tune.batches_per_epoch, settings.tune.keep, settings.data.hold_out) == (7, "loss", "documents")
    assert settings.watched is not None
    assert settings.watched.limit == 0.3
    assert recipe("quick", tune={"budget_seconds": "90s"}).tune.budget_seconds == 90
    again = checked(TuneSettings, settings.model_dump(exclude_unset=True))
    assert again == settings


@pytest.mark.parametrize(
    "table",
    [
        {"tune": {"learning_rate": 1e-6}},
        {"data": {"validation": "dev.jsonl"}},
        {"tune": {"keep": "last"}},
        {"tune": {"loss": "triplet", "negatives": "hardest"}},
        {"rehearsal": False},
        {"tune": {"learning_rate": 1e-6}, "guard": False},
    ],
)
def test_what_stated_settings_leave_without_effect_is_left_out_of_the_recipe(table: dict[str, Any]) -> None:
    settings = recipe("quick", **{name: dict(value) if isinstance(value, dict) else value for name, value in table.items()})
    assert settings.tune.recipe == "quick"
    # A recipe without tables of its own takes the same settings, except words that only another one gives a meaning.
    assert checked(TuneSettings, {**table, "tune": {"recipe": "paper", **table.get("tune", {})}}).tune.recipe == "paper"


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        ("tune.negatives=hardest", "tune.negatives has no effect with tune.loss"),
        ("guard=false", "guard must be on"),
        ("tune.recipe=fast", "tune.recipe must be 'quick', 'safe' or 'paper'"),
        ("tune.budget_seconds=0", "tune.budget_seconds must be"),
    ],
)
def test_what_does_not_fit_a_recipe_is_refused(assignment: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_settings(TuneSettings, None, ["tune.recipe=quick", assignment])


def test_the_usual_recipe_is_taken_where_nothing_stated_chooses_a_regime(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in RECIPES:
        monkeypatch.setattr(tuning, "DEFAULT_RECIPE", name)
        assert checked(TuneSettings, {"run": {"seed": 3}}).with_usual_recipe().tune.recipe == name
        for stated in ({"learning_rate": 1e-6}, {"negatives": "hardest"}, {"loss": "triplet"}):
            assert checked(TuneSettings, {"tune": stated}).with_usual_recipe().tune.recipe == "paper"
        assert recipe("safe").with_usual_recipe() == recipe("safe")


@pytest.mark.parametrize(
    ("stated", "options"),
    [
        ({}, {"recipe": "paper"}),
        ({"batch_size": 7}, {"recipe": "safe"}),
        ({}, {"learning_rate": 1e-6}),
        ({}, {"keep": "last"}),
        ({}, {"loss": "triplet", "negatives": "hardest"}),
        ({"loss": {"kind": "store_softmax", "temperature": 0.1}}, {"max_epochs": 3}),
        ({"max_epochs": 5, "learning_rate": 2e-6}, {"seed": 3}),
    ],
)
def test_keywords_go_before_the_recipe_of_a_settings_object(stated: dict[str, Any], options: dict[str, Any]) -> None:
    base = {"tune": {"recipe": "quick", **stated}}
    forms = (checked(TuneSettings, base), base)
    of_object, of_tables = (settings_of(TuneSettings, form, options, section="tune", function="tune") for form in forms)
    assert of_object == of_tables
    assert of_object.overlay() == of_tables.overlay()


def test_a_sweep_drops_the_time_limit_of_a_recipe_and_refuses_a_stated_one() -> None:
    sweep = {"tune": {"recipe": "quick"}, "grid": {"tune": {"learning_rate": [1e-6, 2e-6]}}}
    runs = [trial.settings for trial in trials_of_sweep(checked(TuneSweepSettings, sweep))]
    assert [(run.tune.learning_rate, run.tune.budget_seconds, run.tune.loss.kind) for run in runs] == [
        (1e-6, None, "store_softmax"),
        (2e-6, None, "store_softmax"),
    ]
    with pytest.raises(ConfigError, match="tune.budget_seconds must be left out in a sweep"):
        checked(TuneSweepSettings, {**sweep, "tune": {"recipe": "quick", "budget_seconds": 60}})
    with pytest.raises(ConfigError, match="tune.learning_rate must be a number in a sweep, got range"):
        checked(TuneSweepSettings, {"tune": {"recipe": "quick"}, "grid": {"tune": {"batch_size": [3, 4]}}})


def test_a_time_limit_is_split_between_search_and_run() -> None:
    # Half of 600 s is 100 s for each of three rates: a validation of 4 s, and one whole epoch of 100 steps of 0.5 s and a validation.
    settings = recipe("quick", tune={"budget_seconds": 600, "batches_per_epoch": 100}, rate_search={"steps": 1000})
    within = fitted(settings, Pace(0.5, 4.0, 3.0, "CPU"))
    assert within.rate_search.steps == 100
    # The run begins with one of the three trials: beside two of 58 s and a validation, 480 s hold eight epochs of 54 s.
    assert within.tune.max_epochs == 8
    assert time_at(Pace(0.5, 4.0, 3.0, "CPU"), within).most_seconds == 2 * 58 + 4 + 8 * 54 <= 600
    # Where not even an epoch fits, a trial has the steps that do, and the run begins anew: (10 - 2 * 4) / 0.1 = 20 of them.
    little = fitted(recipe("quick", tune={"budget_seconds": 60, "batches_per_epoch": 100}), Pace(0.1, 4.0, 3.0, "CPU"))
    assert (little.rate_search.steps, little.continues_trial) == (20, False)
    assert time_at(Pace(0.1, 4.0, 3.0, "CPU"), little).search_seconds == pytest.approx(3 * 10)
    # Both are upper bounds.
    short = fitted(recipe("quick", tune={"max_epochs": 2}, rate_search={"steps": 20}), Pace(0.5, 4.0, 3.0, "CPU"))
    assert (short.rate_search.steps, short.tune.max_epochs) == (20, 2)
    assert fitted(recipe("quick", rate_search={"steps": 5}), Pace(0.5, 4.0, 3.0, "CPU")).rate_search.steps == 5
    with pytest.raises(ConfigError, match=r"tune.budget_seconds must be at least \d+ at the speed of this machine, got 600"):
        fitted(settings, Pace(50.0, 4.0, 3.0, "CPU"))
    assert fitted(recipe("paper"), Pace(0.5, 4.0, 3.0, "CPU")) == recipe("paper")


def test_lengths_within_a_time_limit_are_checked_like_stated_ones(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Half of 8 s is 1.33 s for each rate, of 150 steps: a validation of 0.1 s, and two epochs of 0.6 s.
    stated = recipe("quick", tune={"budget_seconds": 8, "warmup_steps": 140})
    with pytest.raises(ConfigError, match=r"where tune.warmup_steps must be below rate_search.steps = 100, got 140"):
        fitted(stated, Pace(0.01, 0.1, 0.05, "CPU"))
    monkeypatch.setattr("adiabat.adiabatic.tune.measured_pace", lambda *_, **__: Pace(0.01, 0.7, 0.05, "CPU"))
    # The search takes 10 / 9 (12 * 0.01 + 2 * 0.05) s and a validation 0.7 s: 9 epochs of a step and a validation, of 0.71 s each.
    short = quick(tmp_path, learning_rate="safe", budget_seconds=8, max_epochs=40).model_dump(exclude_unset=True)
    short["rate_search"] |= {"steps": 12, "checks": 1}
    short["tune"] |= {"batches_per_epoch": 1, "warmup_steps": 11}
    told = r"= 8 this machine takes 9 steps, where tune.warmup_steps must be at most .* = 9, got 11; lower it, or raise tune.budget_seconds"
    with pytest.raises(ConfigError, match=told):
        run(problem, tmp_path / "job", checked(TuneSettings, short))
    assert not (tmp_path / "job").exists()


def test_the_epochs_of_a_job_with_a_time_limit_do_not_change(problem: Problem, tmp_path: Path) -> None:
    settings = {"budget_seconds": 600, "batch_size": 5, "batches_per_epoch": 4, "idle_epochs": 1, "learning_rate": 1e-3}
    jobs = [checked(TuneSettings, {"tune": {**settings, "max_epochs": epochs}}) for epochs in (1, 2)]
    run(problem, tmp_path / "job", jobs[0])
    with pytest.raises(JobError, match=r"tune.max_epochs was 1, is 2 \(tune.budget_seconds fixed the epochs at the first start\)"):
        run(problem, tmp_path / "job", jobs[1], resume=True)
    assert read_description(Job(tmp_path / "job"))["tune"]["max_epochs"] == 1


def test_a_range_test_takes_the_rate_with_the_lowest_validation_loss_within_the_limit(problem: Problem, tmp_path: Path) -> None:
    notes: list[str] = []
    result = run(problem, tmp_path / "job", quick(tmp_path, limit=0.5), notes=notes)
    rows = Rows(tmp_path / "job/rate-search/trials.parquet", RateTrial, columns=lambda row: {}, of="a rate search", fault=lambda row: "")
    within = {row.rate: row.losses[: -1 if row.left_at else None] for row in rows.every}
    assert set(within) == {1e-4, 1e-3, 1e-2}
    best = min(within, key=lambda rate: min(within[rate], default=float("inf")))
    assert result.training is not None
    assert result.training.settings["tune"]["learning_rate"] == best
    assert result.training.settings["tune"]["budget_seconds"] == 600
    told = " ".join(result.training.notes)
    assert f"the learning rate {best:g} had the lowest validation loss" in told
    assert "tuned by the recipe quick, within 10" in told
    assert notes[0].startswith("expected time: ")
    assert "without an improvement unless the drift limit stops it, at most" in notes[0]
    assert any(note.startswith("range test: ") for note in notes)


@pytest.mark.parametrize(
    ("change", "steps"),
    [
        ({}, 3 * 8 + 4),
        ({"guard": {"action": "back"}}, 3 * 8 + 4),
        ({"guard": {"action": "soften"}}, 3 * 8 + 4),
        ({"tune": {"keep": "last", "idle_epochs": None}}, 3 * 8 + 4),
        ({"rate_search": {"seeds": 2}}, 6 * 8 + 4),
        ({"rate_search": {"steps": 12}, "tune": {"idle_epochs": 3}}, 3 * 12),
        ({"rate_search": {"steps": 20}, "tune": {"idle_epochs": 3}}, 3 * 12),
        ({"rate_search": {"steps": 10}, "tune": {"idle_epochs": 3}}, 3 * 10 + 12),
    ],
)
def test_the_run_goes_on_from_the_trial_of_its_rate(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, dict[str, Any]], steps: int
) -> None:
    tables = quick(tmp_path).model_dump(exclude_unset=True)
    for name, table in change.items():
        tables[name] = {key: value for key, value in {**tables[name], **table}.items() if value is not None}
    take, taken = Loop.step, [0]

    def counted(self: Loop) -> None:
        taken[0] += 1
        take(self)

    monkeypatch.setattr(Loop, "step", counted)
    record = run(problem, tmp_path / "job", checked(TuneSettings, tables)).training
    assert (taken[0], record.steps if record else None) == (steps, 12)
    # The same as a run at that rate, which no search preceded.
    rate = record.settings["tune"]["learning_rate"] if record else None
    plain = {**tables, "tune": {**tables["tune"], "learning_rate": rate}, "rate_search": {}}
    run(problem, tmp_path / "plain", checked(TuneSettings, {name: table for name, table in plain.items() if table}))
    assert everything(tmp_path / "job") == everything(tmp_path / "plain")
    assert not [*(tmp_path / "job/rate-search").rglob("step-*")]


@pytest.mark.parametrize("within", [3e-5, 1e-9])
def test_a_range_test_goes_on_to_lower_rates_until_one_stays_within_the_limit(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, within: float
) -> None:
    def made(search: RateSearch, rate: float, seed: int) -> RateTrial:
        drift = {name: [0.5] for name in MEASURES}
        left, reason = (None, "") if rate < within else (4, "outside")
        return RateTrial(rate, seed, [4], drift, left, reason, 1.0, "CPU", [1.0])

    monkeypatch.setattr(RateSearch, "_make", made)
    context = TuningContext(problem.fresh, problem.store, str(problem.data), "tiny")
    notes: list[str] = []
    search = RateSearch(context, quick(tmp_path), tmp_path / "search", Watch(note=notes.append))
    if within < 1e-7:
        with pytest.raises(JobError, match="must stay within the guard's limit until its first validation, got none down to 1e-07; lower"):
            search.tested()
        return
    assert search.tested().tune.learning_rate == pytest.approx(1e-5)
    assert [row.rate for row in search.rows.every] == pytest.approx([1e-2, 1e-3, 1e-4, 1e-5])
    assert "0.0001: outside, 1e-05: 1.0000; tuning at 1e-05" in notes[-1]


def test_the_progress_of_a_range_test_is_that_of_all_its_rates(problem: Problem, tmp_path: Path) -> None:
    shown: list[tuple[str, int, int]] = []
    context = TuningContext(problem.fresh, problem.store, str(problem.data), "tiny")
    watch = Watch(progress=lambda *position: shown.append(position))
    tune(context, tmp_path / "job", settings=quick(tmp_path), find_rate=rate_for_run, watch=watch)
    of_test = [(done, total) for label, done, total in shown if stage_of(label) == "range test"]
    assert {total for _, total in of_test} == {3 * 8}
    assert of_test == sorted(of_test)
    assert of_test[-1] == (24, 24)


@pytest.fixture(scope="module")
def whole(problem: Problem, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a quick job leaves that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    run(problem, folder / "job", quick(folder))
    return everything(folder / "job")


@pytest.mark.parametrize("step", [5, 20, 26])
def test_a_quick_job_goes_on_as_if_it_had_not_been_interrupted(
    problem: Problem, whole: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    settings = quick(tmp_path)
    take, taken = Loop.step, [0]

    def interrupted(self: Loop) -> None:
        taken[0] += 1
        if taken[0] == step:
            os.kill(os.getpid(), signal.SIGINT)
        take(self)

    monkeypatch.setattr(Loop, "step", interrupted)
    with pytest.raises(InterruptionError):
        run(problem, tmp_path / "cut", settings)
    monkeypatch.setattr(Loop, "step", take)
    # Neither the speed nor the lengths are measured again.
    monkeypatch.setattr("adiabat.adiabatic.tune.measured_pace", lambda *_, **__: pytest.fail("measured again"))
    run(problem, tmp_path / "cut", settings, resume=True)
    assert everything(tmp_path / "cut") == whole
    lengths = read_description(Job(tmp_path / "cut"))["job"]
    assert (lengths["steps_of_search_within_budget"], lengths["epochs_within_budget"]) == (8, 3)


def test_a_job_killed_while_it_takes_over_a_trial_goes_on(
    problem: Problem, whole: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def killed(self: Path, target: Path) -> Path:
        if self.name == "checkpoints":
            raise KeyboardInterrupt
        return rename(self, target)

    settings = quick(tmp_path)
    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        run(problem, tmp_path / "cut", settings)
    assert (tmp_path / "cut/log.jsonl").exists()
    monkeypatch.setattr(Path, "rename", rename)
    run(problem, tmp_path / "cut", settings, resume=True)
    assert everything(tmp_path / "cut") == whole


def test_the_search_leaves_the_run_what_remains_of_the_time(problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at, left = RateSearch.at, []

    def spent(self: RateSearch, rate: float, limit: float | None, seconds: float) -> TuneSettings:
        settings = at(self, rate, limit, 599.9999)
        # The clock of the run counts the trial that it goes on from.
        assert seconds == sum(trial.seconds for trial in self.rows.every if trial.rate != rate)
        left.append(settings.tune.budget_seconds)
        return settings

    monkeypatch.setattr(RateSearch, "at", spent)
    record = run(problem, tmp_path / "job", quick(tmp_path)).training
    assert left == [pytest.approx(1e-3)]
    assert record is not None
    # The trial that the run goes on from alone took longer.
    assert (record.steps, record.stop_reason) == (8, "the limit of 0.001 seconds was reached")
