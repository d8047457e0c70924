"""Recipes of tuning: their settings and the time limit."""

import re
from pathlib import Path
from typing import Any

import pytest

from adiabat.adiabatic import tune as tune_module
from adiabat.adiabatic.expected_time import Pace, fitted, time_at
from adiabat.api.arguments import settings_of
from adiabat.config import tuning
from adiabat.config.reader import checked, read_settings
from adiabat.config.sweeps import TuneSweepSettings
from adiabat.config.tuning import RECIPES, TuneSettings
from adiabat.core.errors import ConfigError, JobError
from adiabat.experiments.grid import trials_of_sweep
from adiabat.runs.run_config import Job, read_description
from adiabat.training.checkpoint import Limits
from tests.adiabatic.problem import RANGE, Problem, quick, recipe, run, write_problem


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    return write_problem(tmp_path_factory.mktemp("problem"), queries=60)


def test_paper_is_the_defaults_and_needs_no_name() -> None:
    assert recipe("paper").model_dump() == TuneSettings().model_dump()
    assert TuneSettings().tune.learning_rate == 5e-8


def test_stated_settings_go_before_those_of_the_recipe() -> None:
    settings = recipe(
        "quick", tune={"loss": {"temperature": 0.1}, "batches_per_epoch": 7}, guard={"limit": 0.3}
    )
    tune, data = settings.tune, settings.data
    assert (tune.loss.kind, tune.loss.temperature) == ("store_softmax", 0.1)
    assert (tune.batches_per_epoch, tune.keep, data.hold_out) == (7, "ranking", "documents")
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
    settings = recipe("quick", **table)
    assert settings.tune.recipe == "quick"
    # A recipe without tables of its own takes the same settings, except words that only another one gives a
    # meaning.
    paper = {**table, "tune": {"recipe": "paper", **table.get("tune", {})}}
    assert checked(TuneSettings, paper).tune.recipe == "paper"


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        ("tune.negatives=hardest", "tune.negatives has no effect with tune.loss"),
        ("rate_search=range guard=false", "guard must be on"),
        ("tune.recipe=fast", "tune.recipe must be 'quick', 'safe' or 'paper'"),
        ("tune.budget_seconds=0", "tune.budget_seconds must be"),
    ],
)
def test_what_does_not_fit_a_recipe_is_refused(assignment: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_settings(TuneSettings, None, ["tune.recipe=quick", *assignment.split()])


def test_the_usual_recipe_is_taken_where_no_setting_is_of_a_regime(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
def test_keywords_go_before_the_recipe_of_settings(stated: dict[str, Any], options: dict[str, Any]) -> None:
    base = {"tune": {"recipe": "quick", **stated}}
    forms = (checked(TuneSettings, base), base)
    of_object, of_tables = (
        settings_of(TuneSettings, form, options, section="tune", function="tune") for form in forms
    )
    assert of_object == of_tables
    assert of_object.overlay() == of_tables.overlay()


def test_a_sweep_drops_the_limit_and_evidence_of_a_recipe_and_refuses_stated_ones() -> None:
    sweep = {"tune": {"recipe": "quick"}, "grid": {"tune": {"learning_rate": [1e-6, 2e-6]}}}
    runs = [trial.settings for trial in trials_of_sweep(checked(TuneSweepSettings, sweep))]
    for one, rate in zip(runs, (1e-6, 2e-6), strict=True):
        assert (one.tune.learning_rate, one.tune.loss.kind) == (rate, "store_softmax")
        assert (one.tune.budget_seconds, one.tune.evidence) == (None, "off")
    limited = {**sweep, "tune": {"recipe": "quick", "budget_seconds": 60}}
    with pytest.raises(ConfigError, match="tune.budget_seconds must be left out in a sweep"):
        trials_of_sweep(checked(TuneSweepSettings, limited))
    told = {**sweep, "tune": {"recipe": "quick", "evidence": "told"}}
    with pytest.raises(ConfigError, match="tune.evidence must be off in a sweep, .* got told"):
        trials_of_sweep(checked(TuneSweepSettings, told))
    searched = {"tune": {"recipe": "safe"}, "grid": {"tune": {"batch_size": [3, 4]}}}
    for table in (searched, {"grid": {"tune": {"recipe": ["paper", "safe"]}}}):
        with pytest.raises(ConfigError, match="seed=0: rate_search must be off in a sweep"):
            trials_of_sweep(checked(TuneSweepSettings, table))
    with pytest.raises(ConfigError, match="grid.rate_search.kind must be a setting that may vary"):
        checked(TuneSweepSettings, {"grid": {"rate_search": {"kind": ["safe", "range"]}}})


def test_a_time_limit_is_split_between_search_and_run() -> None:
    # Half of 600 s is 100 s for each of three rates: a validation of 4 s, and one whole epoch of 100 steps of
    # 0.5 s and a validation.
    pace, long = Pace(0.5, 4.0, 3.0, "CPU"), {"budget_seconds": 600, "batches_per_epoch": 100}
    settings = recipe("quick", tune=long, rate_search={**RANGE, "steps": 1000})
    within = fitted(settings, pace)
    assert within.rate_search.steps == 100
    # The run begins with one of the three trials: beside two of 58 s and a validation, 480 s hold eight
    # epochs of 54 s.
    assert within.tune.max_epochs == 8
    assert time_at(pace, within).most_seconds == 2 * 58 + 4 + 8 * 54 <= 600
    # Where not even an epoch fits, a trial has the steps that do, and the run begins anew: (10 - 2 * 4) / 0.1
    # = 20 of them.
    fast = Pace(0.1, 4.0, 3.0, "CPU")
    little = fitted(recipe("quick", tune={**long, "budget_seconds": 60}, rate_search=RANGE), fast)
    assert (little.rate_search.steps, little.continues_trial) == (20, False)
    assert time_at(fast, little).search_seconds == pytest.approx(3 * 10)
    # Both are upper bounds.
    short = fitted(recipe("quick", tune={"max_epochs": 2}, rate_search={**RANGE, "steps": 20}), pace)
    assert (short.rate_search.steps, short.tune.max_epochs) == (20, 2)
    assert fitted(recipe("quick", rate_search={**RANGE, "steps": 5}), pace).rate_search.steps == 5
    with pytest.raises(ConfigError, match=r"tune.budget_seconds must be at least \d+ \(.*\) .* got 600"):
        fitted(settings, Pace(50.0, 4.0, 3.0, "CPU"))
    assert fitted(recipe("paper"), pace) == recipe("paper")


def test_a_time_limit_counts_what_was_read_and_measured_before() -> None:
    def within(seconds: int, *, spent: float = 0.0) -> TuneSettings:
        tune = {"budget_seconds": seconds, "batches_per_epoch": 100}
        return fitted(recipe("quick", tune=tune, rate_search=RANGE), pace, spent=spent)

    pace = Pace(0.5, 4.0, 3.0, "CPU")
    whole, later = within(600), within(660, spent=60.0)
    assert later.rate_search.steps == whole.rate_search.steps
    assert later.tune.max_epochs == whole.tune.max_epochs
    assert 60 + time_at(pace, later).most_seconds <= 660
    for spent in (650.0, 700.0):
        with pytest.raises(ConfigError, match="got 660") as caught:
            within(660, spent=spent)
        least = int(re.findall(r"at least (\d+)", str(caught.value))[0])
        assert least > spent
        assert within(least, spent=spent).tune.max_epochs >= 1


LIMITED = {"budget_seconds": 600, "batch_size": 5, "batches_per_epoch": 4, "learning_rate": 1e-3}


def test_the_clock_of_a_job_runs_from_its_start(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adiabat.adiabatic.tune.seconds_since", lambda _: 50.0)
    left: list[float | None] = []
    limits_of = tune_module.limits_of

    def seen(settings: TuneSettings) -> Limits:
        left.append(settings.tune.budget_seconds)
        return limits_of(settings)

    monkeypatch.setattr(tune_module, "limits_of", seen)
    settings = checked(TuneSettings, {"tune": {**LIMITED, "max_epochs": 1}})
    record = run(problem, tmp_path / "job", settings).training
    assert left == [550.0]
    # The record has the limit as it was stated.
    assert record.settings["tune"]["budget_seconds"] == 600.0
    assert read_description(Job(tmp_path / "job"))["tune"]["budget_seconds"] == 600.0


def test_lengths_within_a_time_limit_are_checked_like_stated_ones(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Half of 8 s is 1.33 s for each rate, of 150 steps: a validation of 0.1 s, and two epochs of 0.6 s.
    stated = recipe("quick", tune={"budget_seconds": 8, "warmup_steps": 140}, rate_search=RANGE)
    with pytest.raises(ConfigError, match="tune.warmup_steps must be below rate_search.steps = 100, got 140"):
        fitted(stated, Pace(0.01, 0.1, 0.05, "CPU"))
    monkeypatch.setattr("adiabat.adiabatic.tune.measured_pace", lambda *_, **__: Pace(0.01, 0.7, 0.05, "CPU"))
    # The search takes 10 / 9 (12 * 0.01 + 2 * 0.05) s and a validation 0.7 s: 9 epochs of a step and a
    # validation, of 0.71 s each.
    short = quick(tmp_path, budget_seconds=8, max_epochs=40).model_dump(exclude_unset=True)
    short["rate_search"] |= {"kind": "safe", "steps": 12, "checks": 1}
    short["tune"] |= {"batches_per_epoch": 1, "warmup_steps": 11}
    told = r"= 8 .* 9 steps, where tune.warmup_steps must be at most .* = 9, got 11; .* tune.budget_seconds"
    with pytest.raises(ConfigError, match=told):
        run(problem, tmp_path / "job", checked(TuneSettings, short))
    assert not (tmp_path / "job").exists()


def test_the_epochs_of_a_job_with_a_time_limit_do_not_change(problem: Problem, tmp_path: Path) -> None:
    limited = {**LIMITED, "idle_epochs": 1}
    jobs = [checked(TuneSettings, {"tune": {**limited, "max_epochs": epochs}}) for epochs in (1, 2)]
    run(problem, tmp_path / "job", jobs[0])
    with pytest.raises(JobError, match=r"tune.max_epochs was 1, is 2 \(tune.budget_seconds fixed the epochs"):
        run(problem, tmp_path / "job", jobs[1], resume=True)
    assert read_description(Job(tmp_path / "job"))["tune"]["max_epochs"] == 1


@pytest.mark.parametrize("name", ["quick", "safe"])
@pytest.mark.parametrize("pace", [(50.0, 4.0, 3.0), (0.01, 400.0, 300.0), (5.0, 900.0, 1.0)])
def test_the_least_budget_that_is_named_suffices(name: str, pace: tuple[float, float, float]) -> None:
    machine = Pace(*pace, "CPU")
    with pytest.raises(ConfigError) as caught:
        fitted(recipe(name, tune={"budget_seconds": 1.0}), machine)
    named = re.search(r"at least (\d+) .* give budget_seconds=\"(\d+)s\"", str(caught.value))
    assert int(named[2]) >= 1.25 * int(named[1]) - 2
    for seconds in named.groups():
        enough = recipe(name, tune={"budget_seconds": float(seconds)})
        assert fitted(enough, machine).tune.max_epochs >= 1
