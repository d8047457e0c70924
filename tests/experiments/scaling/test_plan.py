"""What a plan says of a budget: by runs whose laws are known and by what was published; which options it
chooses from; and what it refuses.
"""

import json
import math
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tomli_w

import adiabat
from adiabat.config.budgets import PlanSettings, ScalingSettings
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import TRAIN_TABLES, checked
from adiabat.core.errors import AdiabatError, ConfigError, DataError, InterruptionError, JobError
from adiabat.core.progress import Watch
from adiabat.experiments import machine_speed, plan_prior
from adiabat.experiments import plan as plan_module
from adiabat.experiments.plan import plan
from adiabat.experiments.plan_constraints import TOO_LARGE, TOO_LONG, TOO_SHORT, UNTIMED
from adiabat.experiments.plan_prior import FULL, published_rate
from adiabat.experiments.scaling_analysis import rows_in
from adiabat.models.loading import load as load_directory
from adiabat.report.scaling_headline import headline, reservations
from adiabat.report.scaling_page import run_toml
from adiabat.results.record import read_result
from adiabat.results.scaling_result import ScalingResult, ScalingRun
from adiabat.runs.output_dir import write_report
from adiabat.runs.run_config import without_none
from adiabat.scaling_laws.flops import PassedParameters, training_flops
from adiabat.training.flop_count import passed_parameters
from tests.experiments.scaling.world import (
    BUDGET,
    BUDGETS,
    SIZES,
    TRUTHS,
    advice_of,
    advised,
    asked,
    best_of,
    load,
    reason_of,
    row,
    rows_of,
    written,
)
from tests.models.static_models import write_static
from tests.tiny import save_tiny, tiny_dual


@pytest.fixture(scope="module")
def found(runs: Path) -> ScalingResult:
    """What a plan at four times the largest budget says of them."""
    return plan(load, asked(runs))


def true_loss(one: ScalingRun, tokens: float) -> float:
    truth = TRUTHS[one.way.method]
    return truth(one.option.size, tokens)


def test_the_best_option_of_known_laws_is_advised(found: ScalingResult) -> None:
    advice = advice_of(found)
    best, other = best_of(advice), advice.runner_up
    assert other is not None
    options = {row.way: row for row in found.runs}
    truths = {way: true_loss(one, BUDGET / one.option.flops_per_token) for way, one in options.items()}
    assert truths[best.way] <= 1.01 * min(truths.values())
    assert best.loss == pytest.approx(truths[best.way], rel=0.03)
    assert other.way.kind != best.way.kind
    assert best.law is not None
    assert best.run is not None
    assert best.run[0] < best.law[0] < best.law[1] < best.run[1]
    passed = best.parameters
    per_token = 2 * (passed.forward + passed.backward + passed.updated)
    assert best.tokens == pytest.approx(BUDGET / per_token)
    assert [one.loss for one in advice.candidates] == sorted(one.loss or 0 for one in advice.candidates)
    assert len(advice.candidates) == 2 * len(SIZES)
    assert advice.beyond == 4.0
    reasons = [one.what for one in advice.reasons if one.what != "rank"]
    assert reasons == ["method", "model", "tokens", "batch", "rate", "reach"]
    assert all(one.why and one.source for one in advice.reasons)


def test_of_bare_rows_the_run_is_told_but_for_what_runs_share(found: ScalingResult) -> None:
    advice = advice_of(found)
    best = best_of(advice)
    told = tomllib.loads(run_toml(advice))
    assert told["job"] == {"model": best.way.model}
    assert told["train"]["budget_flops"] == pytest.approx(BUDGET)
    assert told["train"]["learning_rate"] == 1e-3
    assert told["train"]["method"]["kind"] == best.way.method
    checked(TrainSettings, told)


def test_of_a_scaling_the_run_is_told_whole(tmp_path: Path) -> None:
    written(tmp_path, rows_of())
    (tmp_path / "config.toml").write_text(
        '[scaling]\ndata = "pairs.jsonl"\n[common.encoder]\nmax_tokens = '
        "48\n[common.train]\nweight_decay = 0.1\n"
        "[common.train.loss]\ntemperature = 0.025\n",
        encoding="utf-8",
    )
    found = advised(tmp_path)
    told = tomllib.loads(run_toml(found))
    assert told["job"]["data"] == "pairs.jsonl"
    assert told["encoder"] == {"max_tokens": 48}
    assert (told["train"]["loss"]["temperature"]["value"], told["train"]["weight_decay"]) == (0.025, 0.1)
    assert reason_of(found, "temperature").value == "0.025"
    checked(TrainSettings, told)


@pytest.mark.parametrize(
    "train", [{"schedule": "constant"}, {"loss": {"kind": "triplet", "margin": 0.2}}, {"batch_size": 4}]
)
def test_a_scaling_of_any_regime_is_planned_with(tmp_path: Path, train: dict[str, Any]) -> None:
    settings = checked(
        ScalingSettings, {"train": train, "data": {"sources": [{"path": "a.jsonl"}, {"path": "b.jsonl"}]}}
    )
    written(tmp_path, rows_of())
    common = settings.model_dump(include=set(TRAIN_TABLES) - {"job"})
    (tmp_path / "config.toml").write_text(
        tomli_w.dumps(without_none({"scaling": {"name": "any"}, "common": common})), encoding="utf-8"
    )
    told = checked(TrainSettings, tomllib.loads(run_toml(advised(tmp_path))))
    assert told.train.schedule.model_dump() == settings.train.schedule.model_dump()
    assert told.train.loss.model_dump() == settings.train.loss.model_dump()
    assert [one.path for one in told.data.sources] == ["a.jsonl", "b.jsonl"]


def test_an_option_whose_runs_all_failed_is_none(tmp_path: Path) -> None:
    made = [row("full", 100_000_000, budget, 0.1) for budget in BUDGETS]
    nothing: dict[str, Any] = {"reason": "it diverged", "validation_loss": None, "memory": 0}
    failed = [replace(one, status="failed", **nothing) for one in made]
    advice = advised(written(tmp_path, [*rows_of(), *failed]), memory=10**9)
    assert "m100" not in {one.way.name for one in advice.candidates}


def test_runs_that_would_narrow_the_answer_are_affordable(found: ScalingResult) -> None:
    additions = advice_of(found).additions
    assert 1 <= len(additions) <= 3
    assert len({(one.run, one.budget) for one in additions}) == len(additions)
    made = {(one.way.title, one.budget) for one in found.runs}
    for one in additions:
        assert one.budget <= BUDGET / 4
        assert 0 < one.gain <= 1
        assert one.seed == int((one.run, one.budget) in made)


def test_runs_of_too_few_steps_are_not_proposed(tmp_path: Path) -> None:
    # A step has as many tokens in every run: of the least budgets only small models have steps enough, and
    # others are the cheapest.
    rows = [replace(one, steps=round(one.tokens / 1e4)) for one in rows_of()]
    short = {(one.way.title, one.budget) for one in rows if one.steps < 50}
    runs = written(tmp_path, rows)
    anywhere, found = (advised(runs, least_steps=steps).additions for steps in (1, 50))
    assert any((one.run, one.budget) in short for one in anywhere)
    assert found
    assert not any((one.run, one.budget) in short for one in found)


def test_few_tokens_are_told_and_leave_budget(runs: Path) -> None:
    advice = advised(runs, data_tokens=1e6)
    assert best_of(advice).tokens == 1e6
    assert best_of(advice).flops < BUDGET
    assert reason_of(advice, "tokens").value == "1e+06"


def test_time_in_place_of_a_budget_is_spent_at_the_speed_of_the_runs(tmp_path: Path) -> None:
    # Full training computes twice as fast as adapters, whatever the size; the smallest runs say nothing of
    # it.
    speeds = {"full": 2e12, "lora": 1e12}
    rows = [
        replace(one, seconds=one.flops / speeds[one.way.method] + (99 if one.budget == BUDGETS[0] else 0))
        for one in rows_of()
    ]
    runs = written(tmp_path, rows)
    advice = advised(runs, budget=None, budget_seconds=1280.0)
    spent = {(one.way.method, round(one.flops)) for one in advice.candidates}
    assert spent == {("full", 2_560_000_000_000_000), ("lora", 1_280_000_000_000_000)}
    assert advice.best == advised(runs, budget=2.56e15).best
    assert (advice.budget, advice.budget_seconds, advice.beyond) == pytest.approx((2.56e15, 1280.0, 4.0))
    assert advice.settings["train"]["budget_flops"] == pytest.approx(2.56e15)
    why = reason_of(advice, "budget").why
    assert why.startswith("the FLOPs of 21\u00a0min 20\u00a0s at 2e+12 FLOP per second")


def test_speeds_are_of_one_device_and_of_a_run_that_nothing_was_done_beside(tmp_path: Path) -> None:
    rows = [
        replace(one, seconds=one.flops / 1e12 * (9 if one.budget == BUDGETS[-1] else 1), device="CPU")
        for one in rows_of()
    ]
    other = replace(rows[-1], name="elsewhere", seed=1, seconds=1.0, device="GPU")
    found = plan(load, asked(written(tmp_path, [*rows, other]), budget=None, budget_seconds=1280.0))
    assert {round(one.flops) for one in advice_of(found).candidates} == {1_280_000_000_000_000}
    told = " ".join(reservations(found))
    assert "from its fastest run on CPU; runs on GPU do not count." in told
    slow, fast = (
        replace(found, advice=replace(advice_of(found), seconds=seconds, measured_memory=1))
        for seconds in (5120.0, 1300.0)
    )
    assert "Plan with a budget of 3.2e+14 FLOP" in " ".join(reservations(slow))
    assert "Plan with" not in " ".join(reservations(fast))


def test_where_memory_does_not_suffice_for_a_step_the_plan_stands(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault: Exception = RuntimeError("alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory")

    def stopped(*given: Any, **options: Any) -> Any:
        raise fault

    (tmp_path / "runs.parquet").write_bytes(runs.read_bytes())
    monkeypatch.setattr("adiabat.dual_encoder.train.estimate", stopped)
    monkeypatch.setattr("adiabat.experiments.plan.require_estimable", lambda settings: None)
    notes: list[str] = []
    section = {"budget": BUDGET, "runs": str(tmp_path), "resamples": 8}
    settings = checked(PlanSettings, {"plan": section, "run": {"device": "cpu"}})
    advice = advice_of(plan(load, settings, watch=Watch(note=notes.append)))
    assert advice.seconds is None
    assert "time and memory are not measured: the memory here is too small for a step" in notes
    fault = InterruptionError("stopped")
    with pytest.raises(InterruptionError):
        plan(load, settings)


def test_memory_takes_options_away(runs: Path) -> None:
    # Rows hold twenty bytes for each parameter.
    advice = advised(runs, memory=4_000_000 * 20 + 1)
    assert advice.best is not None
    assert {one.way.name for one in advice.candidates} == {"m1", "m4"}
    large = {f"m{size}, {method}" for size in (16, 64) for method in ("full", "lora 32")}
    assert set(advice.excluded[TOO_LARGE]) == large


def test_runs_without_a_loss_and_short_ones_are_counted_and_left_out(tmp_path: Path) -> None:
    rows = rows_of()
    odd = [
        replace(row("full", 2_000_000, budget, 0.5), validation_loss=loss)
        for budget, loss in ((1e12, None), (2e12, 0.0), (3e12, -1.0))
    ]
    odd.append(replace(row("full", 3_000_000, 1e12, 0.5), steps=9))
    failed = replace(row("full", 5_000_000, 1e12, 0.5), status="failed", reason="the loss is NaN")
    odd.append(replace(failed, validation_loss=None))
    result = plan(load, asked(written(tmp_path, [*rows, *odd])))
    assert list(result.left_out) == [one.name for one in odd]
    no_loss = ["its loss must be a number above 0"] * 3
    reasons = [why.split(",")[0] for why in result.left_out.values()]
    assert reasons == [*no_loss, "it has 9 steps", "it failed: the loss is NaN"]
    assert sum(one.runs for one in result.kinds) == len(rows)


def test_families_have_laws_of_their_own(tmp_path: Path) -> None:
    rows = rows_of()
    others = []
    for one in rows:
        way = replace(one.way, family="other", name=f"o{one.way.name}")
        loss = 2 * (one.validation_loss or 0)
        others.append(replace(one, name=f"other {one.name}", way=way, validation_loss=loss))
    result = plan(load, asked(written(tmp_path, [*rows, *others])))
    kinds = [str(one.kind) for one in result.kinds]
    assert kinds == ["full", "lora", "other, full", "other, lora"]
    laws = [one.law for one in result.kinds if one.law is not None]
    assert len(laws) == 4
    for law in laws:
        assert max(law.model_error or 1, law.budget_error or 1) < 0.05
    assert best_of(advice_of(result)).way.family == ""


def test_the_other_loss_may_decide(runs: Path, found: ScalingResult) -> None:
    own, other = best_of(advice_of(found)), best_of(advised(runs, loss="training"))
    # Rows have a training loss of 1.1 times the other.
    assert (other.loss or 0) / (own.loss or 1) == pytest.approx(1.1, rel=0.02)


def test_losses_go_with_scores(found: ScalingResult) -> None:
    by_task = {one.task: one for one in found.downstream}
    assert [one.family for one in found.downstream] == [None] * 3
    assert list(by_task) == ["mean of all", "sts", "search"]
    assert by_task["search"].value == pytest.approx(-1.0)
    assert by_task["sts"].interval is not None
    assert by_task["sts"].interval[1] < -0.9


def test_losses_go_with_scores_in_each_family_and_over_the_runs_that_have_them(
    runs: Path, tmp_path: Path
) -> None:
    rows = rows_in(runs)
    # In the second family a lower loss goes with a worse score, and one of the tasks was not asked.
    others = []
    for one in rows:
        way, scores = replace(one.way, family="other"), {"sts": one.validation_loss or 0.0}
        others.append(replace(one, name=f"other {one.name}", way=way, scores=scores))
    result = plan(load, asked(written(tmp_path, [*rows, *others])))
    by_name = {(one.task, one.family): one for one in result.downstream}
    assert [name for name in by_name if name[0] == "sts"] == [("sts", None), ("sts", ""), ("sts", "other")]
    assert by_name["sts", "other"].value == pytest.approx(1.0)
    assert by_name["search", "other"].runs == 0
    assert by_name["search", "other"].value is None
    assert by_name["search", None] == replace(by_name["search", ""], family=None)


def test_options_that_a_budget_gives_too_few_steps_are_none(runs: Path) -> None:
    # The larger a model, the fewer tokens a step of these rows has.
    named = {one.way.title for one in advised(runs, data_tokens=7e4).candidates}
    assert named == {"m64, full"}
    least = 10 * sum(one.tokens for one in rows_of() if one.way.title == "m64, full") / 400
    assert least < 7e4 < 10 * sum(one.tokens for one in rows_of() if one.way.title == "m64, lora 32") / 400


def test_the_settings_beside_a_file_of_rows_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, rows_of())
    (tmp_path / "config.toml").write_text('[scaling]\ndata = "pairs.jsonl"\n', encoding="utf-8")
    assert advised(path).settings["job"]["data"] == "pairs.jsonl"
    (tmp_path / "config.toml").write_text('[job]\ndata = "others.jsonl"\n', encoding="utf-8")
    assert "data" not in advised(path).settings["job"]


@pytest.mark.parametrize(("budget", "method"), [(1e16, "full"), (9.06e16, "lora"), (1e18, "lora")])
def test_without_runs_the_published_switch_decides_the_method_and_nothing_the_model(
    budget: float, method: str
) -> None:
    result = plan(load, asked(None, budget=budget))
    advice = advice_of(result)
    assert {one.way.method for one in advice.candidates} == {method}
    assert advice.best is None
    assert advice.settings == {}
    assert (advice.sure, advice.beyond) == (None, None)
    assert any("meet at 2.8e23 FLOP" in note for note in result.notes)
    assert any("without runs, the choice" in note for note in result.notes)
    assert advice.candidates[0].tokens == pytest.approx(budget / ((6 if method == "full" else 4) * 1_189_888))


def test_without_runs_scarce_tokens_are_for_the_largest_model_whatever_the_budget() -> None:
    result = plan(load, asked(None, budget=1e18, data_tokens=1e6))
    advice = advice_of(result)
    assert advice.best is None
    assert {one.way.method for one in advice.candidates} == {"full"}
    assert headline(result).startswith(
        "Published results favour full training of the largest model that memory allows"
    )
    assert "loss" not in {one.what for one in advice.reasons}


@pytest.mark.parametrize(
    ("name", "rate"), [("EleutherAI/pythia-70m", 1e-3), ("models/pythia-1.4b", 2e-4), ("pythia-7m", None)]
)
def test_rates_of_published_models_are_known_by_name(name: str, rate: float | None) -> None:
    assert published_rate(name) == rate


def test_without_runs_one_model_is_planned_for_and_several_are_not(tmp_path: Path) -> None:
    small = str(save_tiny(tmp_path / "small", layers=1))
    large = str(save_tiny(tmp_path / "large", layers=3))
    alone = advised(None, models=[small])
    assert best_of(alone).tokens == pytest.approx(BUDGET / (6 * best_of(alone).parameters.forward))
    told = checked(TrainSettings, tomllib.loads(run_toml(alone)))
    train = told.train
    assert (told.job.model, train.method.kind, train.learning_rate) == (small, "full", 3e-5)
    assert train.loss.temperature.value == 1 / 40
    assert (told.train.batch_size, told.encoder.max_tokens, told.memory.cached) == (1024, 75, True)
    assert [one.what for one in alone.reasons][:2] == ["method", "loss"]
    assert reason_of(alone, "loss").value == f"{FULL.at(BUDGET):.2f}"
    # Where tokens are scarce, the largest is best, and no line says what loss it reaches.
    few = advised(None, models=[small, large], data_tokens=1e6)
    best = best_of(few)
    assert (best.way.model, best.way.method, best.tokens) == (large, "full", 1e6)
    assert best.flops < BUDGET
    assert [one.what for one in few.reasons][:3] == ["method", "model", "tokens"]
    assert all("appendix D" in one.source for one in few.reasons[:2])
    both = advised(None, models=[small, large])
    assert both.best is None
    assert len(both.candidates) == 2
    least = min(one.memory or 0 for one in both.candidates)
    fits = advised(None, models=[small, large], memory=least)
    assert len(fits.candidates) == 1
    assert fits.excluded == {TOO_LARGE: ["large, full"]}
    with pytest.raises(ConfigError, match=r"^plan.memory must be enough for the smallest model"):
        advised(None, models=[large], memory=1)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        *(("24GiB", 24 * 2**30), ("1.5 GB", 1_500_000_000), ("512MiB", 2**29)),
        *((".5TiB", 2**39), ("1.1GiB", 1_181_116_006)),
    ],
)
def test_memory_is_told_with_its_unit(text: str, amount: int) -> None:
    assert checked(PlanSettings, {"plan": {"memory": text, "models": ["demo"]}}).plan.memory == amount


def test_a_time_without_runs_is_converted_at_the_measured_speed_of_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine_speed, "measured_speed", lambda encoder, **_: 2e12)
    monkeypatch.setattr(plan_prior, "_measured_model", lambda section: "model")
    notes: list[str] = []
    settings = checked(PlanSettings, {"plan": {"budget_seconds": "10h"}})
    made = plan(lambda *_: tiny_dual(), settings, watch=Watch(note=notes.append))
    advice = advice_of(made)
    assert (advice.budget, advice.budget_seconds) == (pytest.approx(7.2e16), 36_000.0)
    assert advice.reasons[0].value == "7.2e+16 FLOP"
    assert "2e+12 FLOP per second, measured on a few passes of model on this machine" in advice.reasons[0].why
    assert notes == ["this machine computes 2e+12 FLOP per second, measured on 3 passes of model"]
    assert headline(made)
    assert reservations(made)
    with pytest.raises(ConfigError, match=r"plan.budget_seconds must pay for a step .* got 2e\+11 FLOP"):
        plan(lambda *_: tiny_dual(), checked(PlanSettings, {"plan": {"budget_seconds": 0.1}}))


def test_the_speed_is_the_operations_of_a_pass_by_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = tiny_dual().query
    clock = iter(range(100))
    monkeypatch.setattr("adiabat.training.time_limit.time.monotonic", lambda: float(next(clock)))
    # Each pass takes one tick.
    assert machine_speed.measured_speed(encoder, device="cpu", tokens=5) == training_flops(
        passed_parameters(encoder), 32 * 5.0
    )
    assert all(weights.grad is None for weights in encoder.parameters())


@pytest.mark.parametrize("asked_for", [{"budget": 1e17}, {"budget_seconds": "10h"}], ids=repr)
def test_a_static_model_has_no_flops_to_plan_with(asked_for: dict[str, object], tmp_path: Path) -> None:
    static = load_directory(write_static(tmp_path))
    with pytest.raises(ConfigError, match=r"plan.models must be transformers, .* got given, a static model"):
        plan(lambda *_: static, checked(PlanSettings, {"plan": {"models": ["given"], **asked_for}}))


# --- Options that a plan chooses from ---


def test_what_is_no_candidate_is_named_with_the_reason(tmp_path: Path) -> None:
    rows = rows_of()
    slow = [replace(one, device="other", seconds=1.0) if one.way.method == "lora" else one for one in rows]
    path = written(tmp_path, [*slow, replace(rows[0], name="one more", seed=1)])
    timed = plan(load, asked(path, budget=None, budget_seconds=BUDGET / 2e12, resamples=2))
    assert advice_of(timed).excluded[UNTIMED] == [f"m{size}, lora 32" for size in (1, 4, 16, 64)]
    assert any(one.startswith(f"Excluded because {UNTIMED}: m1, lora 32; ") for one in reservations(timed))
    short = advised(path, data_tokens=7e4, resamples=2)
    assert len(short.excluded[TOO_SHORT]) == 2 * len(SIZES) - len(short.candidates) > 0


def test_no_option_has_more_steps_than_a_run_may_have(tmp_path: Path) -> None:
    # A step takes a hundredth of the mean budget of the runs, and of the smallest models half of that.
    rows = [replace(one, steps=2 * one.steps) if one.way.name == "m1" else one for one in rows_of()]
    path, step = written(tmp_path, rows), sum(BUDGETS) / 400
    found = advised(path, budget=0.99 * 1e6 * step, resamples=2)
    assert found.excluded == {TOO_LONG: ["m1, full", "m1, lora 32"]}
    with pytest.raises(ConfigError, match=r"^plan.budget .* cost of 1,000,000 steps, .*, got 2.15e\+18 FLOP"):
        advised(path, budget=1.01 * 1e6 * step, resamples=2)


def test_options_of_unknown_memory_stay_unless_a_smaller_one_is_too_large(tmp_path: Path) -> None:
    # Where 16 M are known to be too large, 64 M are too.
    rows = [replace(one, memory=0) if one.option.size in (SIZES[0], SIZES[-1]) else one for one in rows_of()]
    found = plan(load, asked(written(tmp_path, rows), memory="80MB"))
    fitting = {f"m{size}, {method}" for size in (1, 4) for method in ("full", "lora 32")}
    assert {one.way.title for one in advice_of(found).candidates} == fitting
    assert any("whether they fit is unknown: m1, " in one for one in reservations(found))


def test_reach_is_that_of_the_tokens_there_are(runs: Path) -> None:
    advice = advised(runs, budget=1e18, data_tokens=1e6)
    assert advice.beyond == pytest.approx(best_of(advice).flops / BUDGETS[-1])
    assert advice.beyond < 1
    assert "reach" not in {one.what for one in advice.reasons}


def test_a_loss_that_is_no_number_is_left_out_and_no_part_of_the_record(tmp_path: Path) -> None:
    path = written(tmp_path, rows_of())
    kept = pq.read_table(path).to_pylist()
    first = json.loads(kept[0]["record"])
    odd = {"validation_loss": math.nan, "scores": {"sts": math.inf, "search": 0.5}}
    kept[0]["record"] = json.dumps({**first, **odd})
    pq.write_table(pa.Table.from_pylist(kept), path)
    result = plan(load, asked(path))
    assert result.left_out == {first["name"]: "its loss must be a number above 0, got nan"}
    (tmp_path / "out").mkdir()
    write_report(result, tmp_path / "out")
    recorded = read_result(tmp_path / "out" / "result.json", ScalingResult).runs[0]
    assert (recorded.validation_loss, recorded.scores) == (None, {"search": 0.5})


def test_scarce_tokens_are_those_that_full_training_reads_too(tmp_path: Path) -> None:
    model: dict[str, Any] = {"budget": 1e17, "models": [str(save_tiny(tmp_path / "wide", width=512))]}
    whole = best_of(advised(None, **model))
    assert whole.way.method == "lora"
    by_full = 1e17 / (6 * whole.option.size)
    some = advised(None, **model, data_tokens=0.9 * by_full)
    assert (some.scarce, [one.way.method for one in some.candidates]) == (True, ["full"])
    # LoRA reads these tokens, and full training would not; then memory suffices for LoRA alone.
    for limits in ({"data_tokens": 1.1 * by_full}, {"data_tokens": 0.9 * by_full, "memory": whole.memory}):
        other = advised(None, **model, **limits)
        assert (other.scarce, [one.way.method for one in other.candidates]) == (False, ["lora"])


# --- Refusals ---

ROWS = rows_of()
RANKS = [
    row("lora", 4_000_000, budget, 0.5 + 1e5 / rank / budget**0.4, rank=rank)
    for budget in BUDGETS
    for rank in (8, 32, 128)
]


def changed(**changes: Any) -> list[ScalingRun]:
    """Every row with these changes."""
    return [replace(one, **changes) for one in ROWS]


Refused = Callable[..., str]


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Refused:
    """What is said of rows that are refused before any law is fitted."""

    def message(kind: type[AdiabatError], rows: list[ScalingRun], **section: Any) -> str:
        monkeypatch.setattr(plan_module, "fitted", lambda *_, **__: pytest.fail("a law was fitted"))
        with pytest.raises(kind) as caught:
            advised(written(tmp_path, rows), **section)
        return str(caught.value)

    return message


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (ROWS[:3], "runs must suffice for the law of a method, got none: full lacks at least 6 runs, got 3"),
        ([one for one in ROWS if one.parameters.forward < 1e7], "lacks at least 3 sizes, got 2"),
        pytest.param(RANKS, "lora lacks at least 3 sizes, got 1", id="ranks are no sizes"),
        (changed(validation_loss=None)[:3], f"to, got 3 faults: {ROWS[0].name}: its loss"),
        (changed(steps=3), f"got 32 faults: {ROWS[0].name}: it has 3 steps, fewer than 10"),
        (
            [replace(one, batch_size=64) if one.way.method == "full" else one for one in ROWS],
            "plan.runs must hold runs of one batch size, got 32 and 64",
        ),
    ],
)
def test_rows_that_do_not_suffice_say_what_is_missing(
    refused: Refused, rows: list[ScalingRun], told: str
) -> None:
    assert told in refused(DataError, rows)


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
def test_numbers_that_no_run_has_are_told(refused: Refused, changes: dict[str, Any], told: str) -> None:
    said = refused(JobError, [*ROWS[1:], replace(ROWS[0], **changes)])
    assert f"runs.parquet must be the rows of a scaling experiment, got: {ROWS[0].name} has {told}; " in said


NONE: dict[str, Any] = {"budget": None}


@pytest.mark.parametrize(
    ("kind", "rows", "section", "facts"),
    [
        (ConfigError, ROWS, {"memory": 1}, ["plan.memory", "held 19.1 MiB, got 1"]),
        (
            DataError,
            changed(memory=0),
            {"memory": "1GiB"},
            ["plan.memory", "recorded their memory"],
        ),
        (
            DataError,
            changed(seconds=0.0),
            {**NONE, "budget_seconds": 60.0},
            ["budget_seconds needs runs that recorded their duration, got none; give budget"],
        ),
        (
            ConfigError,
            ROWS,
            {"data_tokens": 5.0},
            ["plan.data_tokens", "plan.least_steps = 10 ", "got 5;"],
        ),
        (
            ConfigError,
            ROWS,
            {**NONE, "budget_seconds": 1e-6},
            ["plan.budget_seconds must pay for plan.least_steps = 10 steps", "2.12e+13 FLOP"],
        ),
        (
            ConfigError,
            ROWS,
            {"budget": 1e9},
            ["plan.budget must pay for plan.least_steps = 10 steps", "2.12e+13 FLOP", "got 1e+09 FLOP"],
        ),
    ],
)
def test_limits_that_no_run_meets_are_told(
    refused: Refused,
    kind: type[AdiabatError],
    rows: list[ScalingRun],
    section: dict[str, Any],
    facts: list[str],
) -> None:
    said = refused(kind, rows, **section)
    assert [fact for fact in facts if fact not in said] == [], said


def test_a_method_of_too_few_runs_is_told_before_the_laws_of_others_are_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = [one for one in ROWS if one.way.method == "full"]
    few = [one for one in ROWS if one.way.method == "lora"][:5]
    monkeypatch.setattr(plan_module, "fitted", lambda *_, **__: pytest.fail("a law was fitted"))
    told: list[str] = []
    with pytest.raises(pytest.fail.Exception):
        plan(load, asked(written(tmp_path, [*full, *few])), watch=Watch(note=told.append))
    assert told[0].startswith("lora is no candidate: it has no law, which needs at least 6 runs, got 5")
    assert len(told) == 1


def test_runs_that_are_none_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^plan.runs must be the directory .* or its runs.parquet, got "):
        advised(tmp_path)
    (tmp_path / "runs.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(JobError, match=r"runs\.parquet must be undamaged, got "):
        advised(tmp_path)


def test_a_row_that_is_none_is_told_by_its_number_and_field(tmp_path: Path) -> None:
    path = written(tmp_path, rows_of())
    table = pq.read_table(path).to_pylist()
    table[2]["record"] = table[2]["record"].replace('"method": "full"', '"method": "prefix"')
    pq.write_table(pa.Table.from_pylist(table), path)
    with pytest.raises(
        JobError, match=r"got: row 3: way.method must be 'full', .* got '?prefix'?; repair it, or resume"
    ):
        advised(path)


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
        advised(tmp_path)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("budget", "width", "facts"),
    [
        (5e-324, None, ["plan.budget must pay for a step ", "got 4.94066e-324 FLOP; raise it"]),
        (1e7, 16, ["step of 1,024 pairs of texts of up to 75 tokens", "got 1e+07 FLOP; raise it"]),
        (1e18, 32, ["plan.models must take adapters of rank 64", "model does not: rank must be <= 32"]),
    ],
)
def test_budgets_that_do_not_suit_the_models_are_told_without_runs(
    tmp_path: Path, budget: float, width: int | None, facts: list[str]
) -> None:
    models = {} if width is None else {"models": [str(save_tiny(tmp_path / "model", width=width))]}
    with pytest.raises(ConfigError) as caught:
        advised(None, budget=budget, **models)
    assert [fact for fact in facts if fact not in str(caught.value)] == [], caught.value


def test_a_budget_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"^plan.budget must be given, got none; .* or budget_seconds$"):
        plan(load, checked(PlanSettings, {}))


UNIT = "plan.memory must be an amount with a unit, such as "


@pytest.mark.parametrize(
    ("table", "run", "told"),
    [
        ({"memory": "lots"}, {}, f'{UNIT}"24GiB" or "80GB", got \'lots\''),
        ({"memory": 0}, {}, "plan.memory must be > 0, got 0"),
        ({"memory": f"{'9' * 310}GiB"}, {}, UNIT),
        ({"memory": f"{'9' * 300}TiB"}, {}, UNIT),
        ({"runs": "a", "resamples": 1}, {}, "plan.resamples must be >= 2, got 1"),
        ({"budget": -1.0}, {}, "plan.budget must be > 0"),
        (
            {"budget": 1e17, "budget_seconds": 3600.0, "runs": "a"},
            {},
            "plan.budget must be left out with plan.budget_seconds",
        ),
        ({"memory": "24GiB"}, {}, "plan.memory has no effect without plan.runs or plan.models"),
        ({"runs": "a", "models": ["demo"]}, {}, "plan.models must be left out with plan.runs"),
        ({"budget": 1e15}, {"device": "cpu"}, "run.device has no effect without plan.runs"),
        ({"budget": 1e15}, {"seed": 3}, "run.seed has no effect without plan.runs"),
    ],
)
def test_settings_that_make_no_plan_are_told(table: dict[str, Any], run: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checked(PlanSettings, {"plan": table, "run": run})
    assert told in str(caught.value)


def test_a_plan_goes_into_no_job_and_no_model(tmp_path: Path) -> None:
    save_tiny(tmp_path / "model")
    settings = asked(written(tmp_path, rows_of()), out=str(tmp_path / "model" / "plan"))
    with pytest.raises(JobError, match=r"out must .*model/plan lies in the job, model or store .*model"):
        adiabat.plan(settings=settings)
    assert not (tmp_path / "model" / "plan").exists()
