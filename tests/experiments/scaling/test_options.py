"""Which models and methods a plan chooses from, with runs and without, and what is said of the others."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adiabat.core.errors import ConfigError, DataError
from adiabat.experiments.plan import plan
from adiabat.experiments.plan_constraints import TOO_LONG, TOO_SHORT, UNTIMED
from adiabat.report.scaling_headline import reservations
from adiabat.results.record import read_result
from adiabat.results.scaling_result import ScalingResult
from adiabat.runs.output_dir import write_report
from tests.experiments.scaling.world import BUDGET, BUDGETS, SIZES, advice_of, asked, load, rows_of, written
from tests.tiny import save_tiny


def test_what_is_no_candidate_is_named_with_the_reason(tmp_path: Path) -> None:
    rows = rows_of()
    slow = [replace(one, device="other", seconds=1.0) if one.way.method == "lora" else one for one in rows]
    path = written(tmp_path, [*slow, replace(rows[0], name="one more", seed=1)])
    timed = plan(load, asked(path, budget=None, budget_seconds=BUDGET / 2e12, resamples=2))
    assert advice_of(timed).excluded[UNTIMED] == [f"m{size}, lora 32" for size in (1, 4, 16, 64)]
    assert any(one.startswith(f"Excluded because {UNTIMED}: m1, lora 32; ") for one in reservations(timed))
    short = advice_of(plan(load, asked(path, data_tokens=7e4, resamples=2)))
    assert len(short.excluded[TOO_SHORT]) == 2 * len(SIZES) - len(short.candidates) > 0


def test_no_option_has_more_steps_than_a_run_may_have(tmp_path: Path) -> None:
    # A step takes a hundredth of the mean budget of the runs, and of the smallest models half of that.
    rows = [replace(one, steps=2 * one.steps) if one.way.name == "m1" else one for one in rows_of()]
    path, step = written(tmp_path, rows), sum(BUDGETS) / 400
    found = advice_of(plan(load, asked(path, budget=0.99 * 1e6 * step, resamples=2)))
    assert found.excluded == {TOO_LONG: ["m1, full", "m1, lora 32"]}
    with pytest.raises(
        ConfigError, match=r"^plan.budget must be at most the cost of 1,000,000 steps, .*, got 2.15e\+18 FLOP"
    ):
        plan(load, asked(path, budget=1.01 * 1e6 * step, resamples=2))


def test_memory_that_no_run_tells_of_limits_nothing_and_that_is_said(tmp_path: Path) -> None:
    rows = rows_of()
    with pytest.raises(DataError, match=r"^plan.memory needs runs that recorded their memory, got none"):
        plan(load, asked(written(tmp_path, [replace(one, memory=0) for one in rows]), memory="1GiB"))
    (tmp_path / "some").mkdir()
    # Where 16 M are known to be too large, 64 M are too.
    some = [replace(one, memory=0) if one.option.size in (1_000_000, 64_000_000) else one for one in rows]
    found = plan(load, asked(written(tmp_path / "some", some), memory="80MB"))
    assert {one.way.title for one in advice_of(found).candidates} == {
        f"m{size}, {method}" for size in (1, 4) for method in ("full", "lora 32")
    }
    assert any("whether they fit is unknown: m1, " in one for one in reservations(found))


def test_reach_is_that_of_the_tokens_there_are(runs: Path) -> None:
    advice = advice_of(plan(load, asked(runs, budget=1e18, data_tokens=1e6)))
    assert advice.best is not None
    assert advice.beyond == pytest.approx(advice.best.flops / BUDGETS[-1])
    assert advice.beyond < 1
    assert "reach" not in {one.what for one in advice.reasons}


def test_a_loss_that_is_no_number_is_left_out_and_no_part_of_the_record(tmp_path: Path) -> None:
    path = written(tmp_path, rows_of())
    kept = pq.read_table(path).to_pylist()
    first = json.loads(kept[0]["record"])
    kept[0]["record"] = json.dumps(
        {**first, "validation_loss": math.nan, "scores": {"sts": math.inf, "search": 0.5}}
    )
    pq.write_table(pa.Table.from_pylist(kept), path)
    result = plan(load, asked(path))
    assert result.left_out == {first["name"]: "its loss must be a number above 0, got nan"}
    (tmp_path / "out").mkdir()
    write_report(result, tmp_path / "out")
    assert read_result(tmp_path / "out" / "result.json", ScalingResult).runs[0].validation_loss is None
    assert read_result(tmp_path / "out" / "result.json", ScalingResult).runs[0].scores == {"search": 0.5}


def test_scarce_tokens_are_those_that_full_training_reads_too(tmp_path: Path) -> None:
    save_tiny(tmp_path / "wide", width=512)
    model = [str(tmp_path / "wide")]
    whole = advice_of(plan(load, asked(None, budget=1e17, models=model)))
    assert whole.best is not None
    assert whole.best.way.method == "lora"
    held = whole.best.memory
    by_full = 1e17 / (6 * whole.best.option.size)
    some = advice_of(plan(load, asked(None, budget=1e17, models=model, data_tokens=0.9 * by_full)))
    assert (some.scarce, [one.way.method for one in some.candidates]) == (True, ["full"])
    # LoRA reads these tokens, and full training would not.
    many = advice_of(plan(load, asked(None, budget=1e17, models=model, data_tokens=1.1 * by_full)))
    assert (many.scarce, [one.way.method for one in many.candidates]) == (False, ["lora"])
    # Memory suffices for LoRA alone.
    little = advice_of(
        plan(load, asked(None, budget=1e17, models=model, data_tokens=0.9 * by_full, memory=held))
    )
    assert (little.scarce, [one.way.method for one in little.candidates]) == (False, ["lora"])


def test_without_runs_a_budget_must_pay_for_a_step_of_the_batches_that_are_advised(tmp_path: Path) -> None:
    save_tiny(tmp_path / "small", width=16)
    with pytest.raises(
        ConfigError,
        match=r"^plan.budget must pay for a step of 1,024 pairs of texts of up to 75 tokens, .* got 1e\+07",
    ):
        plan(load, asked(None, budget=1e7, models=[str(tmp_path / "small")]))
