"""Plans that cannot be made: what is missing, damaged or impossible is told in one line."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import adiabat
from adiabat.config.budgets import PlanSettings
from adiabat.config.reader import checked
from adiabat.core.errors import AdiabatError, ConfigError, DataError, JobError
from adiabat.core.progress import Watch
from adiabat.experiments import plan as plan_module
from adiabat.experiments.plan import plan
from adiabat.scaling_laws.flops import PassedParameters
from tests.experiments.scaling.world import asked, load, rows_of, written
from tests.tiny import save_tiny


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (
            lambda: rows_of()[:3],
            "runs must suffice for the law of a method, got none: full lacks at least 6 runs, got 3",
        ),
        (lambda: [one for one in rows_of() if one.parameters.forward < 1e7], "lacks at least 3 sizes, got 2"),
        (
            lambda: [replace(one, validation_loss=None) for one in rows_of()[:3]],
            "plan.runs must hold a run that a law can be fitted to, got 3 faults: "
            "m1, full, 1e+13 FLOP, seed 0: its loss",
        ),
        (
            lambda: [replace(one, steps=3) for one in rows_of()],
            "got 32 faults: m1, full, 1e+13 FLOP, seed 0: it has 3 steps, fewer than 10",
        ),
        (
            lambda: [replace(one, batch_size=64) if one.way.method == "full" else one for one in rows_of()],
            "plan.runs must hold runs of one batch size, got 32 and 64, whose losses "
            "are not comparable; use those of one experiment",
        ),
    ],
)
def test_tables_that_do_not_suffice_say_what_is_missing_before_any_law_is_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: Any, told: str
) -> None:
    monkeypatch.setattr(plan_module, "fitted", lambda *_, **__: pytest.fail("a law was fitted"))
    with pytest.raises(DataError) as caught:
        plan(load, asked(written(tmp_path, rows())))
    assert told in str(caught.value)


def test_a_method_of_too_few_runs_is_told_before_the_laws_of_others_are_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = [one for one in rows_of() if one.way.method == "full"]
    few = [one for one in rows_of() if one.way.method == "lora"][:5]
    monkeypatch.setattr(plan_module, "fitted", lambda *_, **__: pytest.fail("a law was fitted"))
    told: list[str] = []
    with pytest.raises(pytest.fail.Exception):
        plan(load, asked(written(tmp_path, [*full, *few])), watch=Watch(note=told.append))
    assert told[0].startswith("lora is no candidate: it has no law, which needs at least 6 runs, got 5")
    assert len(told) == 1


def test_runs_that_are_none_are_told(tmp_path: Path) -> None:
    with pytest.raises(
        DataError,
        match=r"^plan.runs must be the directory of a scaling experiment, or its runs.parquet, got ",
    ):
        plan(load, asked(tmp_path))
    (tmp_path / "runs.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(JobError, match=r"runs\.parquet must be undamaged, got "):
        plan(load, asked(tmp_path))


def test_a_row_that_is_none_is_told_by_its_number_and_field(tmp_path: Path) -> None:
    path = written(tmp_path, rows_of())
    table = pq.read_table(path).to_pylist()
    table[2]["record"] = table[2]["record"].replace('"method": "full"', '"method": "prefix"')
    pq.write_table(pa.Table.from_pylist(table), path)
    with pytest.raises(
        JobError, match=r"got: row 3: way.method must be 'full', .* got '?prefix'?; repair it, or resume"
    ):
        plan(load, asked(path))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"budget": 0.0}, "budget = 0.0"),
        ({"budget": -1e13}, "budget = -10000000000000.0"),
        ({"tokens": 0.0}, "tokens = 0.0"),
        ({"flops": -1.0}, "flops = -1.0"),
        ({"steps": 0}, "steps = 0"),
        ({"batch_size": 0}, "batch_size = 0"),
        ({"seconds": -5.0}, "seconds = -5.0"),
        ({"memory": -5}, "memory = -5"),
        ({"parameters": PassedParameters(1, 0, 0)}, "parameters.updated = 0"),
        (
            {"parameters": PassedParameters(10, 20, 10)},
            "PassedParameters(forward=10, backward=20, updated=10)",
        ),
    ],
)
def test_numbers_that_no_run_has_are_told(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    first, *rest = rows_of()
    path = written(tmp_path, [*rest, replace(first, **changes)])
    with pytest.raises(JobError) as caught:
        plan(load, asked(path))
    assert (
        "runs.parquet must be the rows of a scaling experiment, got: m1, full, 1e+13 "
        f"FLOP, seed 0 has {told}; repair it, or resume" in str(caught.value)
    )


@pytest.mark.parametrize(
    ("section", "told"),
    [
        (
            {"data_tokens": 5.0},
            r"^plan.data_tokens must make plan.least_steps = 10 steps, \S+ "
            r"tokens in the runs, got 5; raise it$",
        ),
        (
            {"budget": None, "budget_seconds": 1e-6},
            r"^plan.budget_seconds must pay for plan.least_steps = 10 steps, which take 2.12e",
        ),
        (
            {"budget": 1e9},
            r"^plan.budget must pay for plan.least_steps = 10 steps, which take "
            r"2.12e\+13 FLOP at least in the runs, got ",
        ),
    ],
)
def test_fewer_tokens_than_runs_need_are_told(runs: Path, section: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        plan(load, asked(runs, **section))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[scaling", "config.toml must be undamaged, got TOMLDecodeError"),
        ("scaling = 5", "config.toml must describe a scaling experiment, got other tables"),
        (
            "[scaling]\n[common]\ntrain = 3",
            "config.toml must describe a scaling experiment, got other tables",
        ),
        ("[scaling]\n[common.train.loss]\ntemperature = 'low'", "config.toml: train.loss.temperature"),
        ("[scaling]\ndata = 5", "config.toml: job.data must be"),
    ],
)
def test_a_damaged_description_is_told(tmp_path: Path, text: str, told: str) -> None:
    written(tmp_path, rows_of())
    (tmp_path / "config.toml").write_text(text, encoding="utf-8")
    with pytest.raises(AdiabatError) as caught:
        plan(load, asked(tmp_path))
    assert told in str(caught.value)


def test_runs_that_do_not_say_how_long_they_took_have_no_speed(tmp_path: Path) -> None:
    path = written(tmp_path, [replace(one, seconds=0.0) for one in rows_of()])
    with pytest.raises(
        DataError, match=r"^budget_seconds needs runs that recorded their duration, got none; give"
    ):
        plan(load, asked(path, budget=None, budget_seconds=60.0))


def test_a_budget_of_no_token_is_told() -> None:
    with pytest.raises(
        ConfigError,
        match=r"^plan.budget must pay for a step .*, got 4.94066e-324 FLOP; raise it",
    ):
        plan(load, asked(None, budget=5e-324))


def test_a_budget_is_needed() -> None:
    with pytest.raises(
        ConfigError,
        match=r"^plan.budget must be given, got none; add budget, such as budget=1e17, or budget_seconds",
    ):
        plan(load, checked(PlanSettings, {}))


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (
            {"memory": "lots"},
            'plan.memory must be an amount with a unit, such as "24GiB" or "80GB", got \'lots\'',
        ),
        ({"memory": 0}, "plan.memory must be > 0, got 0"),
        ({"memory": f"{'9' * 310}GiB"}, "plan.memory must be an amount with a unit"),
        ({"memory": f"{'9' * 300}TiB"}, "plan.memory must be an amount with a unit"),
        ({"runs": "a", "resamples": 1}, "plan.resamples must be >= 2, got 1"),
        ({"budget": -1.0}, "plan.budget must be > 0"),
        (
            {"budget": 1e17, "budget_seconds": 3600.0, "runs": "a"},
            "plan.budget must be left out with plan.budget_seconds",
        ),
        ({"memory": "24GiB"}, "plan.memory has no effect without plan.runs or plan.models"),
        ({"runs": "a", "models": ["demo"]}, "plan.models must be left out with plan.runs"),
    ],
)
def test_settings_that_make_no_plan_are_told(table: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checked(PlanSettings, {"plan": table})
    assert told in str(caught.value)


def test_a_device_that_nothing_is_measured_on_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"run.device has no effect without plan.runs, which measuring needs; leave it out"
    ):
        checked(PlanSettings, {"plan": {"budget": 1e15}, "run": {"device": "cpu"}})


def test_a_seed_that_nothing_is_drawn_with_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"run.seed has no effect without plan.runs, which it resamples; leave it out"
    ):
        checked(PlanSettings, {"plan": {"budget": 1e15}, "run": {"seed": 3}})


def test_a_model_too_narrow_for_the_rank_that_serves_best_is_told(tmp_path: Path) -> None:
    save_tiny(tmp_path / "narrow")
    settings = checked(PlanSettings, {"plan": {"budget": 1e18, "models": [str(tmp_path / "narrow")]}})
    told = (
        r"plan.models must take adapters of rank \d+, .*narrow does not: rank must be "
        r"<= 32, .*; name a wider model, or a smaller budget"
    )
    with pytest.raises(ConfigError, match=told):
        plan(lambda name, section: adiabat.load(name, settings=section), settings)


def test_a_plan_goes_into_no_job_and_no_model(tmp_path: Path) -> None:
    save_tiny(tmp_path / "model")
    settings = asked(written(tmp_path, rows_of()), out=str(tmp_path / "model" / "plan"))
    with pytest.raises(
        JobError,
        match=r"out must be a directory of its own, .*model/plan lies in the job, model or store .*model",
    ):
        adiabat.plan(settings=settings)
    assert not (tmp_path / "model" / "plan").exists()
