"""What a plan says of a budget, by runs whose laws are known, and by what was published."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from adiabat.config.budgets import PlanSettings, ScalingSettings
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import TRAIN_TABLES, checked
from adiabat.core.errors import ConfigError, DataError, InterruptionError
from adiabat.core.progress import Watch
from adiabat.experiments import machine_speed, plan_prior
from adiabat.experiments.plan import plan
from adiabat.experiments.plan_constraints import TOO_LARGE
from adiabat.experiments.plan_prior import FULL, published_rate
from adiabat.experiments.scaling_analysis import rows_in
from adiabat.models.loading import load as load_directory
from adiabat.report.scaling_headline import headline, reservations
from adiabat.report.scaling_page import run_toml
from adiabat.results.scaling_result import ScalingResult, ScalingRun
from adiabat.runs.run_config import without_none
from adiabat.scaling_laws.flops import training_flops
from adiabat.scaling_laws.laws import Kind
from adiabat.training.flop_count import passed_parameters
from tests.experiments.scaling.world import (
    BUDGET,
    BUDGETS,
    SIZES,
    TRUTHS,
    advice_of,
    asked,
    load,
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
    best, other = advice.best, advice.runner_up
    assert best is not None
    assert other is not None
    options = {row.way: row for row in found.runs}
    truths = {way: true_loss(one, BUDGET / one.option.flops_per_token) for way, one in options.items()}
    assert truths[best.way] <= 1.01 * min(truths.values())
    assert best.loss == pytest.approx(truths[best.way], rel=0.03)
    assert other.way.kind != best.way.kind
    assert best.law is not None
    assert best.run is not None
    assert best.run[0] < best.law[0] < best.law[1] < best.run[1]
    assert best.tokens == pytest.approx(
        BUDGET / (2 * sum([best.parameters.forward, best.parameters.backward, best.parameters.updated]))
    )
    assert [one.loss for one in advice.candidates] == sorted(one.loss or 0 for one in advice.candidates)
    assert len(advice.candidates) == 2 * len(SIZES)
    assert advice.beyond == 4.0
    assert [one.what for one in advice.reasons if one.what != "rank"] == [
        "method",
        "model",
        "tokens",
        "batch",
        "rate",
        "reach",
    ]
    assert all(one.why and one.source for one in advice.reasons)


def test_of_bare_rows_the_run_is_told_but_for_what_runs_share(found: ScalingResult) -> None:
    advice = advice_of(found)
    best = advice.best
    assert best is not None
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
    found = advice_of(plan(load, asked(tmp_path)))
    told = tomllib.loads(run_toml(found))
    assert told["job"]["data"] == "pairs.jsonl"
    assert told["encoder"] == {"max_tokens": 48}
    assert (told["train"]["loss"]["temperature"]["value"], told["train"]["weight_decay"]) == (0.025, 0.1)
    assert next(one for one in found.reasons if one.what == "temperature").value == "0.025"
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
    told = checked(TrainSettings, tomllib.loads(run_toml(advice_of(plan(load, asked(tmp_path))))))
    assert told.train.schedule.model_dump() == settings.train.schedule.model_dump()
    assert told.train.loss.model_dump() == settings.train.loss.model_dump()
    assert [one.path for one in told.data.sources] == ["a.jsonl", "b.jsonl"]


def test_ranks_are_no_sizes(tmp_path: Path) -> None:
    rows = [
        row("lora", 4_000_000, budget, 0.5 + 1e5 / rank / budget**0.4, rank=rank)
        for budget in BUDGETS
        for rank in (8, 32, 128)
    ]
    with pytest.raises(DataError, match=r"lora lacks at least 3 sizes, got 1"):
        plan(load, asked(written(tmp_path, rows)))
    assert {one.option.size for one in rows} == {4_000_000}


def test_an_option_whose_runs_all_failed_is_none(tmp_path: Path) -> None:
    failed = [
        replace(
            row("full", 100_000_000, budget, 0.1),
            status="failed",
            reason="it diverged",
            validation_loss=None,
            memory=0,
        )
        for budget in BUDGETS
    ]
    advice = advice_of(plan(load, asked(written(tmp_path, [*rows_of(), *failed]), memory=10**9)))
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
    anywhere, found = (advice_of(plan(load, asked(runs, least_steps=steps))).additions for steps in (1, 50))
    assert any((one.run, one.budget) in short for one in anywhere)
    assert found
    assert not any((one.run, one.budget) in short for one in found)


def test_few_tokens_are_told_and_leave_budget(runs: Path) -> None:
    advice = advice_of(plan(load, asked(runs, data_tokens=1e6)))
    assert advice.best is not None
    assert advice.best.tokens == 1e6
    assert advice.best.flops < BUDGET
    assert next(one for one in advice.reasons if one.what == "tokens").value == "1e+06"


def test_time_in_place_of_a_budget_is_spent_at_the_speed_of_the_runs(tmp_path: Path) -> None:
    # Full training computes twice as fast as adapters, whatever the size; the smallest runs say nothing of
    # it.
    speeds = {"full": 2e12, "lora": 1e12}
    rows = [
        replace(one, seconds=one.flops / speeds[one.way.method] + (99 if one.budget == BUDGETS[0] else 0))
        for one in rows_of()
    ]
    runs = written(tmp_path, rows)
    advice = advice_of(plan(load, asked(runs, budget=None, budget_seconds=1280.0)))
    spent = {(one.way.method, round(one.flops)) for one in advice.candidates}
    assert spent == {("full", 2_560_000_000_000_000), ("lora", 1_280_000_000_000_000)}
    assert advice.best == advice_of(plan(load, asked(runs, budget=2.56e15))).best
    assert (advice.budget, advice.budget_seconds, advice.beyond) == (
        pytest.approx(2.56e15),
        1280.0,
        pytest.approx(4.0),
    )
    assert advice.settings["train"]["budget_flops"] == pytest.approx(2.56e15)
    why = next(one for one in advice.reasons if one.what == "budget").why
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
    slow = replace(found, advice=replace(advice_of(found), seconds=5120.0, measured_memory=1))
    assert "Plan with a budget of 3.2e+14 FLOP, which this machine computes in that time." in " ".join(
        reservations(slow)
    )
    assert "Plan with" not in " ".join(
        reservations(replace(found, advice=replace(advice_of(found), seconds=1300.0, measured_memory=1)))
    )


def test_where_memory_does_not_suffice_for_a_step_the_plan_stands(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any, **options: Any) -> Any:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory")

    (tmp_path / "runs.parquet").write_bytes(runs.read_bytes())
    monkeypatch.setattr("adiabat.dual_encoder.train.estimate", full)
    monkeypatch.setattr("adiabat.experiments.plan.require_estimable", lambda settings: None)
    notes: list[str] = []
    settings = checked(
        PlanSettings,
        {"plan": {"budget": BUDGET, "runs": str(tmp_path), "resamples": 8}, "run": {"device": "cpu"}},
    )
    advice = advice_of(plan(load, settings, watch=Watch(note=notes.append)))
    assert advice.seconds is None
    assert "time and memory are not measured: the memory here is too small for a step" in notes
    monkeypatch.setattr(
        "adiabat.dual_encoder.train.estimate",
        lambda *given, **options: (_ for _ in ()).throw(InterruptionError("stopped")),
    )
    with pytest.raises(InterruptionError):
        plan(load, settings)


def test_memory_takes_options_away(runs: Path) -> None:
    # Rows hold twenty bytes for each parameter.
    advice = advice_of(plan(load, asked(runs, memory=4_000_000 * 20 + 1)))
    assert advice.best is not None
    assert {one.way.name for one in advice.candidates} == {"m1", "m4"}
    assert set(advice.excluded[TOO_LARGE]) == {
        f"m{size}, {method}" for size in (16, 64) for method in ("full", "lora 32")
    }
    with pytest.raises(
        ConfigError,
        match=r"^plan.memory must be enough for the smallest model, which held 19.1 MiB, got 1.byte;",
    ):
        plan(load, asked(runs, memory=1))


def test_runs_without_a_loss_and_short_ones_are_counted_and_left_out(tmp_path: Path) -> None:
    rows = rows_of()
    odd = [
        replace(row("full", 2_000_000, budget, 0.5), validation_loss=loss)
        for budget, loss in ((1e12, None), (2e12, 0.0), (3e12, -1.0))
    ]
    odd += [replace(row("full", 3_000_000, 1e12, 0.5), steps=9)]
    odd += [
        replace(
            row("full", 5_000_000, 1e12, 0.5), status="failed", reason="the loss is NaN", validation_loss=None
        )
    ]
    result = plan(load, asked(written(tmp_path, [*rows, *odd])))
    assert list(result.left_out) == [one.name for one in odd]
    assert [why.split(",")[0] for why in result.left_out.values()] == [
        "its loss must be a number above 0",
        "its loss must be a number above 0",
        "its loss must be a number above 0",
        "it has 9 steps",
        "it failed: the loss is NaN",
    ]
    assert sum(one.runs for one in result.kinds) == len(rows)


def test_families_have_laws_of_their_own(tmp_path: Path) -> None:
    rows = rows_of()
    others = [
        replace(
            one,
            name=f"other {one.name}",
            way=replace(one.way, family="other", name=f"o{one.way.name}"),
            validation_loss=2 * (one.validation_loss or 0),
        )
        for one in rows
    ]
    result = plan(load, asked(written(tmp_path, [*rows, *others])))
    assert [one.kind for one in result.kinds] == [
        Kind("", "full"),
        Kind("", "lora"),
        Kind("other", "full"),
        Kind("other", "lora"),
    ]
    laws = [one.law for one in result.kinds if one.law is not None]
    assert len(laws) == 4
    assert all(
        error is not None and error < 0.05 for law in laws for error in (law.model_error, law.budget_error)
    )
    best = advice_of(result).best
    assert best is not None
    assert best.way.family == ""


def test_the_other_loss_may_decide(runs: Path, found: ScalingResult) -> None:
    own, other = (advice_of(one).best for one in (found, plan(load, asked(runs, loss="training"))))
    assert own is not None
    assert other is not None
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
    others = [
        replace(
            one,
            name=f"other {one.name}",
            way=replace(one.way, family="other"),
            scores={"sts": one.validation_loss or 0.0},
        )
        for one in rows
    ]
    result = plan(load, asked(written(tmp_path, [*rows, *others])))
    by_name = {(one.task, one.family): one for one in result.downstream}
    assert [name for name in by_name if name[0] == "sts"] == [("sts", None), ("sts", ""), ("sts", "other")]
    assert by_name["sts", "other"].value == pytest.approx(1.0)
    assert by_name["search", "other"].runs == 0
    assert by_name["search", "other"].value is None
    assert by_name["search", None] == replace(by_name["search", ""], family=None)


def test_options_that_a_budget_gives_too_few_steps_are_none(runs: Path) -> None:
    # The larger a model, the fewer tokens a step of these rows has.
    named = {one.way.title for one in advice_of(plan(load, asked(runs, data_tokens=7e4))).candidates}
    assert named == {"m64, full"}
    least = 10 * sum(one.tokens for one in rows_of() if one.way.title == "m64, full") / 400
    assert least < 7e4 < 10 * sum(one.tokens for one in rows_of() if one.way.title == "m64, lora 32") / 400


def test_the_settings_beside_a_file_of_rows_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, rows_of())
    (tmp_path / "config.toml").write_text('[scaling]\ndata = "pairs.jsonl"\n', encoding="utf-8")
    assert advice_of(plan(load, asked(path))).settings["job"]["data"] == "pairs.jsonl"
    (tmp_path / "config.toml").write_text('[job]\ndata = "others.jsonl"\n', encoding="utf-8")
    assert "data" not in advice_of(plan(load, asked(path))).settings["job"]


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

    small, large = (
        str(save_tiny(tmp_path / name, layers=layers)) for name, layers in (("small", 1), ("large", 3))
    )
    alone = advice_of(plan(load, asked(None, models=[small])))
    assert alone.best is not None
    assert alone.best.tokens == pytest.approx(BUDGET / (6 * alone.best.parameters.forward))
    told = checked(TrainSettings, tomllib.loads(run_toml(alone)))
    assert (
        told.job.model,
        told.train.method.kind,
        told.train.learning_rate,
        told.train.loss.temperature.value,
    ) == (
        small,
        "full",
        3e-5,
        1 / 40,
    )
    assert (told.train.batch_size, told.encoder.max_tokens, told.memory.cached) == (1024, 75, True)
    assert [one.what for one in alone.reasons][:2] == ["method", "loss"]
    said = next(one for one in alone.reasons if one.what == "loss")
    assert said.value == f"{FULL.at(BUDGET):.2f}"
    # Where tokens are scarce, the largest is best, and no line says what loss it reaches.
    few = advice_of(plan(load, asked(None, models=[small, large], data_tokens=1e6)))
    assert few.best is not None
    assert (few.best.way.model, few.best.way.method, few.best.tokens) == (large, "full", 1e6)
    assert few.best.flops < BUDGET
    assert [one.what for one in few.reasons][:3] == ["method", "model", "tokens"]
    assert all("appendix D" in one.source for one in few.reasons[:2])
    both = advice_of(plan(load, asked(None, models=[small, large])))
    assert both.best is None
    assert len(both.candidates) == 2
    least = min(one.memory or 0 for one in both.candidates)
    fits = advice_of(plan(load, asked(None, models=[small, large], memory=least)))
    assert len(fits.candidates) == 1
    assert fits.excluded == {TOO_LARGE: ["large, full"]}
    with pytest.raises(ConfigError, match=r"^plan.memory must be enough for the smallest model"):
        plan(load, asked(None, models=[large], memory=1))


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("24GiB", 24 * 2**30),
        ("1.5 GB", 1_500_000_000),
        ("512MiB", 2**29),
        (".5TiB", 2**39),
        ("1.1GiB", 1_181_116_006),
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
    made = plan(
        lambda *_: tiny_dual(),
        checked(PlanSettings, {"plan": {"budget_seconds": "10h"}}),
        watch=Watch(note=notes.append),
    )
    advice = advice_of(made)
    assert (advice.budget, advice.budget_seconds) == (pytest.approx(7.2e16), 36_000.0)
    assert advice.reasons[0].value == "7.2e+16 FLOP"
    assert "2e+12 FLOP per second, measured on a few passes of model on this machine" in advice.reasons[0].why
    assert notes == ["this machine computes 2e+12 FLOP per second, measured on 3 passes of model"]
    assert headline(made)
    assert reservations(made)
    with pytest.raises(
        ConfigError,
        match=r"plan.budget_seconds must pay for a step .* FLOP, got 2e\+11 FLOP; raise it",
    ):
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
