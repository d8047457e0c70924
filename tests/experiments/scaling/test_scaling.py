"""A scaling experiment from its settings to its rows: what runs are, how they go on, and what is told."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import adiabat
from adiabat.config.budgets import PlanSettings
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked
from adiabat.core.errors import ConfigError, DataError, InterruptionError, JobError, ModelError
from adiabat.core.progress import Watch
from adiabat.experiments import scaling as runner_module
from adiabat.experiments.plan import plan
from adiabat.experiments.scaling_analysis import rows_at, rows_in
from adiabat.models.embedding_head import EncoderSettings
from adiabat.results.scaling_result import ScalingResult
from adiabat.runs.run_config import Job, read_description
from adiabat.scaling_laws.laws import Kind
from tests.experiments.scaling.world import advice_of, load, run, settings_of, write_world
from tests.experiments.scaling.world import tiny as tiny_of
from tests.experiments.sweep.world import retrieval_task
from tests.tiny import save_tiny

Made = tuple[Path, ScalingResult]


SMALL: dict[str, Any] = {"scaling": {"budgets": [2e7]}}


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """What a scaling experiment reads."""
    write_world(tmp_path)
    return tmp_path


@pytest.fixture
def again(made: Made, tmp_path: Path) -> Path:
    """A copy of the scaling experiment that is made, to go on with."""
    shutil.copytree(made[0], tmp_path / "copy")
    return tmp_path / "copy"


def test_every_size_is_trained_to_every_budget(made: Made) -> None:
    folder, result = made
    assert [row.name for row in result.runs] == [
        f"tiny, {blocks}, full, {budget} FLOP, seed 0"
        for budget in ("2e+07", "4e+07", "8e+07")
        for blocks in ("1 block", "2 blocks", "4 blocks")
    ]
    for row in result.runs:
        assert row.status == "done"
        # To within a step, and never above.
        assert 0 < row.flops <= row.budget < row.flops * (1 + 1.6 / row.steps)
        assert row.tokens == pytest.approx(row.flops / (6 * row.parameters.forward))
        assert row.parameters.forward == row.parameters.backward == row.parameters.updated
        assert row.learning_rate == pytest.approx(3e-3)
        assert row.loss is not None
        assert row.validation_loss is not None
        assert row.validation["P@1"] <= 1
        assert row.memory > 0
        assert not (folder / "out" / "runs" / row.name).exists()
    sizes = [row.parameters.forward for row in result.runs[:3]]
    assert sizes[0] < sizes[1] < sizes[2]


def test_a_run_is_what_train_alone_makes(made: Made, tmp_path: Path) -> None:
    folder, result = made
    settings = settings_of(folder)
    model, data = str(folder / "model"), str(folder / "pairs.jsonl")
    job = {"model": model, "data": data, "out": str(tmp_path / "job")}
    table = {**settings.common(), "job": job, "encoder": {"blocks": 2}}
    table["train"] = {**table["train"], "learning_rate": 3e-3, "budget_flops": 4e7}
    table["run"] = {**table["run"], "log_every": 1}
    alone = adiabat.train(settings=checked(TrainSettings, table))
    assert alone is not None
    assert alone.training is not None
    row = result.runs[4]
    assert row.way.blocks == 2
    assert row.steps == alone.training.steps
    losses = [loss for _, loss in alone.training.loss]
    assert row.loss == pytest.approx(sum(losses[-20:]) / len(losses[-20:]), rel=1e-6)
    assert row.validation_loss == pytest.approx(alone.training.validation_loss[-1][1], rel=1e-6)


def test_what_the_rows_say_is_in_the_record(made: Made) -> None:
    folder, result = made
    (one,) = result.kinds
    assert one.kind == Kind("tiny", "full")
    assert one.law is not None
    assert [own.run for own in one.law.predicted] == [row.name for row in result.runs]
    assert [own.largest for own in one.law.predicted] == [False, False, True] * 3
    assert len(one.profiles) == 3
    assert one.frontier is not None
    assert one.frontier.values[0] == min(row.validation_loss or 9 for row in result.runs[:3])
    left = {path.name for path in (folder / "out").iterdir()}
    assert left >= {"report.html", "result.json", "runs.parquet", "config.toml"}
    table = pq.read_table(folder / "out" / "runs.parquet").to_pylist()
    assert [row["forward"] for row in table] == [row.parameters.forward for row in result.runs]
    assert rows_in(folder / "out") == rows_in(folder / "out" / "runs.parquet") == result.runs
    assert list((folder / "out" / "runs").glob("*/checkpoints")) == []
    assert list((folder / "out" / "runs").glob("*/model")) == []


def test_a_scaling_goes_on_with_more_methods(again: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = rows_in(again / "out")
    trained: list[str] = []
    real = runner_module.ScalingRunner.train

    def noted(self: Any, trial: Any, *given: Any, **named: Any) -> Any:
        trained.append(trial.name)
        return real(self, trial, *given, **named)

    monkeypatch.setattr(runner_module.ScalingRunner, "train", noted)
    found = run(settings_of(again, **SMALL, methods={"lora": [2], "bias": True}), resume=True)
    assert len(found.runs) == 9
    assert len(trained) == 6
    assert replace(found.runs[0], way=before[0].way) == before[0]
    lora = next(row for row in found.runs if row.way.method == "lora")
    assert (lora.way.rank, lora.learning_rate) == (2, 1e-3)
    assert lora.parameters.updated < lora.parameters.forward / 4
    # Rows of what is not asked now stay.
    assert len(rows_in(again / "out")) == 9 + 6


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"train": {"batch_size": 5, "validate_every": 100}}, "common.train.batch_size was 12, is 5"),
        ({"rates": {"full": 1e-4}}, "rates.tiny, 1 block, full was 0.003"),
        ({"scaling": {"last_steps": 5}}, "scaling.last_steps was 20, is 5"),
    ],
)
def test_another_scaling_is_not_gone_on_with(again: Path, tables: dict[str, Any], told: str) -> None:
    with pytest.raises(JobError, match=told):
        run(settings_of(again, **tables), resume=True)
    assert len(rows_in(again / "out")) == 9


def test_other_pairs_under_the_same_name_are_refused(again: Path) -> None:
    with (again / "pairs.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"query": "one more", "positive": "of them"}\n')
    with pytest.raises(JobError, match=r"start\.examples"):
        run(settings_of(again), resume=True)


def test_a_scaling_that_is_there_needs_resume(again: Path) -> None:
    with pytest.raises(JobError, match=r"holds a scaling experiment already; continue it with resume=True"):
        run(settings_of(again))


def test_what_was_cut_short_goes_on_where_it_was(
    world: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = runner_module.train, []

    def cut(*args: Any, **named: Any) -> Any:
        calls.append(named["resume"])
        if len(calls) == 2:
            raise InterruptionError("stopped")
        return real(*args, **named)

    settings = settings_of(world, **SMALL)
    monkeypatch.setattr(runner_module, "train", cut)
    with pytest.raises(InterruptionError):
        run(settings)
    assert len(rows_in(world / "out")) == 1
    found = run(settings, resume=True)
    assert len(calls) == 4
    own, other = (
        [(row.name, row.steps, row.loss, row.validation_loss) for row in some]
        for some in (found.runs, made[1].runs[:3])
    )
    assert own == other


def test_a_budget_below_one_step_is_a_failed_run_and_others_go_on(world: Path) -> None:
    notes: list[str] = []
    found = run(settings_of(world, scaling={"budgets": [6e6]}), notes=notes)
    assert [row.status for row in found.runs] == ["done", "failed", "failed"]
    assert found.runs[1].reason.startswith("train.budget_flops must pay for a step, which takes ")
    assert any("failed: train.budget_flops must pay" in note for note in notes)
    assert found.left_out == {row.name: f"it failed: {row.reason}" for row in found.runs[1:]}
    assert found.runs[1].loss is None


def test_a_run_that_diverges_is_a_failed_run_and_a_scaling_of_no_other_an_error(world: Path) -> None:
    wild = {"rates": {"full": 1e30}, "train": {"max_grad_norm": 0.0}}
    with pytest.raises(JobError, match=r"got 3 that failed, such as .*: the training loss must be "):
        run(settings_of(world, **SMALL, **wild))
    assert [row.status for row in rows_in(world / "out")] == ["failed"] * 3
    assert (world / "out" / "report.html").exists()


def test_trained_models_are_measured_on_tasks(world: Path) -> None:
    tables = {"tasks": [retrieval_task(world, "asked")], "measure": {"report": ["RR"]}}
    found = run(settings_of(world, scaling={"budgets": [2e7, 4e7]}, **tables))
    assert all(0 <= row.scores["asked"] <= 1 for row in found.runs)
    assert [one.task for one in found.downstream] == ["asked"]
    assert found.downstream[0].runs == 6
    assert not list((world / "out" / "runs").glob("*/stores"))


def test_tasks_may_come_and_go_while_a_scaling_goes_on(again: Path) -> None:
    task, more = retrieval_task(again, "asked"), {"budgets": [8e7, 1e8]}
    found = run(settings_of(again, scaling=more, tasks=[task]), resume=True)
    assert [sorted(row.scores) for row in found.runs] == [[]] * 3 + [["asked"]] * 3
    assert [(one.task, one.runs) for one in found.downstream] == [("asked", 3)]
    # Without tasks, nothing is made again; scores stay.
    assert [one.runs for one in run(settings_of(again, scaling=more), resume=True).downstream] == [3]
    lines = (again / "asked.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (again / "asked.jsonl").write_text("".join(lines[1:]), encoding="utf-8")
    with pytest.raises(JobError, match=r"tasks\.asked was "):
        run(settings_of(again, scaling=more, tasks=[task]), resume=True)


@pytest.mark.parametrize(
    ("tables", "kind", "told"),
    [
        ({"scaling": {"out": None}}, ConfigError, "scaling.out must be given"),
        ({"scaling": {"budgets": []}}, ConfigError, "scaling.budgets must be given"),
        ({"models": []}, ConfigError, "models must be given"),
        ({"job": {"data": None}}, ConfigError, "job.data must be given"),
        ({"job": {"data": "gone.jsonl"}}, DataError, "gone.jsonl"),
        ({"train": {"batch_size": 500}}, DataError, "train.batch_size must be at most the"),
        ({"models": [{"model": "gone", "pretraining_rate": 1e-3}]}, ModelError, "gone"),
        (
            {"models": [{"model": "model", "blocks": [1, 9], "pretraining_rate": 0.03}]},
            ConfigError,
            "must be at most 4, which it has, got 9",
        ),
        ({"methods": {"full": False, "freezing": [0.1]}}, ConfigError, "methods must leave a run"),
    ],
)
def test_what_is_wrong_comes_before_anything_is_written(
    world: Path, tables: dict[str, Any], kind: type[Exception], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world)
    with pytest.raises(kind, match=told):
        run(settings_of(world, **tables))
    assert not (world / "out").exists()


@pytest.mark.real
def test_runs_are_spread_over_ray(world: Path) -> None:
    pytest.importorskip("ray")
    settings = settings_of(world, scaling={"budgets": [2e7], "engine": "ray"})
    found = runner_module.scaling(load, settings)
    rows = rows_at(world / "out" / "runs.parquet").every
    assert {row.name for row in found.runs} == {row.name for row in rows}
    assert {row.status for row in found.runs} == {"done"}


def test_a_failed_run_is_made_again_when_the_scaling_goes_on(again: Path) -> None:
    rows = rows_at(again / "out" / "runs.parquet")
    first = rows.every[0]
    rows.add(replace(first, status="failed", reason="power cut", loss=None, validation_loss=None))
    found = run(settings_of(again), resume=True)
    assert found.runs[0].status == "done"
    assert found.runs[0].loss == first.loss
    assert found.left_out == {}


def scarce_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory does not suffice for what a function of the module does with four blocks."""
    real = getattr(runner_module, name)

    def scarce(*given: Any, **named: Any) -> Any:
        settings = next(one for one in given if isinstance(one, TrainSettings))
        if settings.encoder.blocks == 4:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return real(*given, **named)

    monkeypatch.setattr(runner_module, name, scarce)


def test_a_run_that_memory_does_not_suffice_for_is_a_failed_run(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scarce_for("train", monkeypatch)
    found = run(settings_of(world, **SMALL))
    assert [row.status for row in found.runs] == ["done", "done", "failed"]
    assert found.runs[2].reason.startswith("out of memory; lower memory.chunk_tokens")


def test_a_model_that_memory_does_not_suffice_for_is_told_before_the_first_run(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scarce_for("build", monkeypatch)
    with pytest.raises(JobError, match=r"^tiny, 4 blocks, full does not fit into memory"):
        run(settings_of(world, **SMALL))
    assert not (world / "out" / "runs.parquet").exists()


def test_a_row_that_another_process_added_meanwhile_is_not_lost(
    again: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = again / "out" / "runs.parquet"
    whole, real = path.read_bytes(), runner_module._set_up_once
    *rest, last = rows_at(path).every
    path.unlink()
    fewer = rows_at(path)
    for one in rest:
        fewer.add(one)

    def meanwhile(worker: Any, runs: Any) -> None:
        real(worker, runs)
        assert [one.name for one in runs] == [last.name]
        path.write_bytes(whole)

    monkeypatch.setattr(runner_module, "_set_up_once", meanwhile)
    monkeypatch.setattr(runner_module, "train", lambda *_, **__: pytest.fail("it is there"))
    found = run(settings_of(again), resume=True)
    assert [one.loss for one in found.runs] == [one.loss for one in (*rest, last)]


def test_models_that_were_kept_stay(world: Path) -> None:
    run(settings_of(world, scaling={**SMALL["scaling"], "keep_models": True}))
    kept = sorted((world / "out" / "runs").glob("*/model"))
    assert len(kept) == 3
    # What a process left that was killed before it could tidy up.
    (kept[0].parent / "checkpoints").mkdir()
    run(settings_of(world, **SMALL), resume=True)
    assert sorted((world / "out" / "runs").glob("*/model")) == kept[1:]
    assert not list((world / "out" / "runs").glob("*/checkpoints"))


def test_a_model_under_two_names_is_described_under_both(world: Path) -> None:
    one, two = (tiny_of(world, name, [1]) for name in ("one", "two"))
    run(settings_of(world, **SMALL, models=[one, two]))
    start = read_description(Job(world / "out"))["start"]
    assert start["models"]["one"] == start["models"]["two"]
    save_tiny(world / "model", width=16, layers=4, seed=1, settings=EncoderSettings(max_tokens=48))
    for model in (one, two):
        with pytest.raises(JobError, match=r"start\.models\."):
            run(settings_of(world, **SMALL, models=[model]), resume=True)


@pytest.mark.parametrize("frozen", ["query", "document"])
def test_the_tower_that_is_trained_is_counted(world: Path, frozen: str) -> None:
    found = run(settings_of(world, **SMALL, towers={"kind": "asymmetric", "frozen": frozen}))
    for row in found.runs:
        assert row.parameters.forward == row.parameters.backward == row.parameters.updated
        assert row.tokens == pytest.approx(row.flops / (6 * row.parameters.forward))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[scaling]\nstart = 5", r"scaling\.start was 5, is 'not set'"),
        ("scaling = 5", r"config\.toml must describe a scaling experiment"),
        ("[scaling]\n[start]\nmodels = 1", r"config\.toml must describe a scaling experiment"),
        ("[scaling]", r"start\.examples was 'not set'"),
    ],
)
def test_a_damaged_description_is_told(again: Path, text: str, told: str) -> None:
    (again / "out" / "config.toml").write_text(text, encoding="utf-8")
    with pytest.raises(JobError, match=told):
        run(settings_of(again), resume=True)


def test_a_row_of_another_run_under_the_same_name_is_told(again: Path) -> None:
    rows = rows_at(again / "out" / "runs.parquet")
    rows.add(replace(rows.every[0], budget=2.00000001e7))
    told = r"the row tiny, 1 block, full, 2e\+07 FLOP, seed 0 must be of budget = 20000000.0, got 20000000.1"
    with pytest.raises(JobError, match=told):
        run(settings_of(again), resume=True)


def test_a_model_that_moved_or_changed_its_family_takes_its_rows_along(again: Path) -> None:
    moved = (again / "model").rename(again / "elsewhere")
    model = tiny_of(again, family="other") | {"model": str(moved)}
    found = run(settings_of(again, models=[model]), resume=True)
    assert {row.way.model for row in rows_in(again / "out")} == {str(moved)}
    assert [one.kind for one in found.kinds] == [Kind("other", "full")]


# --- Plans by a scaling experiment ---


def test_time_and_memory_are_measured_where_model_and_data_are_there(made: Made) -> None:
    folder, _ = made
    section = {"budget": 3e8, "runs": str(folder / "out"), "least_steps": 1, "resamples": 8}
    settings = checked(PlanSettings, {"plan": section, "run": {"device": "cpu"}})
    advice = advice_of(plan(load, settings))
    assert advice.seconds is not None
    assert advice.seconds > 0
    assert (advice.measured_memory or 0) > 1e6
    assert advice.settings["job"]["data"] == str(folder / "pairs.jsonl")


def test_where_the_data_are_gone_the_plan_stands_without_them(made: Made, tmp_path: Path) -> None:
    folder, _ = made
    (tmp_path / "runs.parquet").write_bytes((folder / "out" / "runs.parquet").read_bytes())
    _, _, described = (folder / "out" / "config.toml").read_text(encoding="utf-8").partition("\n")
    (tmp_path / "config.toml").write_text(described.replace("pairs.jsonl", "gone.jsonl"), encoding="utf-8")
    notes: list[str] = []
    section = {"budget": 3e8, "runs": str(tmp_path), "least_steps": 1, "resamples": 8}
    settings = checked(PlanSettings, {"plan": section})
    advice = advice_of(plan(load, settings, watch=Watch(note=notes.append)))
    assert advice.seconds is None
    assert any(note.startswith("time and memory are not measured: ") for note in notes)
