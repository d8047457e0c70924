"""Settings of a training job: what does not fit is refused in one line each; lengths, rates and weight groups
that they come to.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked, read_settings
from adiabat.core.errors import ConfigError
from adiabat.core.progress import SILENT
from adiabat.dual_encoder.train import _loop, schedule_of
from adiabat.dual_encoder.train_checks import steps_of
from adiabat.runs.run_config import Job
from tests.dual_encoder.problem import Problem, job_settings, prepared_objective, run, write_rows
from tests.jobs import everything

TWO = [{"path": "a"}, {"path": "b"}]
STREAM = {"stream": True, "validation": "held.jsonl"}
WHERE = "with data.stream"
STORED = {"kind": "asymmetric", "frozen": "document", "store": "stored"}
FLOPS = {"budget_flops": 1e12}


def loss(**settings: Any) -> dict[str, Any]:
    """``[train.loss]`` with these settings."""
    return {"train": {"loss": settings}}


def sources(*given: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"data": {**more, "sources": list(given)}}


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        # Without effect, or without sense.
        (loss(kind="triplet") | {"memory": {"loss_tile": 8}}, 'memory.loss_tile .* train.loss = "triplet"'),
        (loss(negatives_shared=False, negatives_per_query=0), "train.loss.negatives_shared has no effect"),
        (loss(guide={"model": "self", "relative": True}), "guide.relative .* train.loss.guide.margin = 0"),
        ({"run": {"compile": True}, "memory": {"checkpointing": True}}, "memory.checkpointing must be false"),
        ({"memory": {"length_buckets": [64, 64]}}, r"memory.length_buckets must ascend, got \[64, 64\]"),
        # Several sources.
        ({"job": {"data": "a"}, **sources(TWO[0])}, "data.sources must be left out with job.data"),
        ({"mixture": {"rule": "equal"}}, "mixture.rule has no effect with one source"),
        ({"mixture": {"exhausted": "cycle"}}, "mixture.exhausted has no effect with one source"),
        (
            {"mixture": {"rule": "equal", "one_source_per_batch": True}},
            "2 faults: mixture.rule .*; mixture.one_source_per_batch has no",
        ),
        (
            sources({"path": "a", "weight": 2.0}, TWO[1]),
            r"weight of number 1 \(a\) has no effect with mixture.rule = .proportional.; .* = .weights.",
        ),
        (sources({"path": "a", "weight": 0.0}), r"sources.weight of number 1 \(a\) must be > 0, got 0"),
        (sources({"path": "a", "wieght": 1.0}), "data.sources.wieght; did you mean data.sources.weight?"),
        (sources({"weight": 1.0}), "data.sources.path of number 1 must be given"),
        # How long a run is.
        ({"batches": {"token_budget": 10}}, "train.steps must be given with batches.token_budget"),
        ({"batches": {"random_share": 0.3}}, "batches.random_share; .* mean batches.group.random_share?"),
        ({"train": {"steps": 3, **FLOPS}}, "train.steps has no effect with train.budget_flops"),
        ({"train": {"epochs": 3.0, **FLOPS}}, "train.epochs has no effect with train.budget_flops"),
        ({"train": {"epochs": 2.0, "budget_seconds": 1.0}}, "train.epochs .* with train.budget_seconds"),
        # Streams.
        ({"data": {"stream": True}}, f"train.steps .* {WHERE}, got none"),
        ({"data": {"stream": True}}, f"data.validation must be given {WHERE}, got none"),
        ({"data": {**STREAM, "corpus": "c"}}, f"data.corpus must be left out {WHERE}: examples must hold"),
        (
            sources(TWO[0], {"path": "b", "corpus": "c"}, **STREAM),
            "sources.corpus of number 2 must be left out",
        ),
        ({"data": STREAM, "towers": STORED}, f"towers.store must be left out {WHERE}: examples must hold"),
        (sources(*TWO, **STREAM), f'mixture.rule must be equal or weights {WHERE}, .* got "proportional"'),
        (
            {**sources(*TWO, **STREAM), "mixture": {"rule": "temperature"}},
            'mixture.rule must be .*, got "temperature"',
        ),
        ({"data": STREAM, "mixture": {"cap": 10}}, f"mixture.cap must be left out {WHERE}, .* got 10"),
        (
            {"data": STREAM, "train": {"steps": 9, "schedule": "exponential"}},
            f'train.schedule must follow steps {WHERE}, got "exponential"',
        ),
        ({"data": STREAM, "train": FLOPS}, f"train.budget_flops must be left out {WHERE}"),
        (
            {"data": {**STREAM, "stream": {"shard_size": 50}}},
            "data.stream.shard_size must be at least train.batch_size = 64, got 50",
        ),
        ({"data": STREAM, "train": {"steps": 10, "epochs": 2.0}}, "train.epochs .* with train.steps; leave"),
        ({"data": {**STREAM, "max_validation": 5}}, "data.max_validation .* with data.validation; leave"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        checked(TrainSettings, tables)


@pytest.mark.parametrize("exhausted", ["drop", "cycle", "stop"])
@pytest.mark.parametrize("rule", ["equal", "weights"])
def test_a_stream_takes_mixtures_that_need_no_sizes(rule: str, exhausted: str) -> None:
    mixture = {"rule": rule, "exhausted": exhausted}
    settings = checked(TrainSettings, {**sources(*TWO, **STREAM), "mixture": mixture, "train": {"steps": 10}})
    assert (settings.mixture.rule.kind, settings.data.stream.shard_size) == (rule, 131_072)


# --- Length, schedule and optimiser ---


@pytest.mark.parametrize(
    ("train", "pairs", "steps"),
    [
        ({"epochs": 1.0, "batch_size": 10}, 100, 10),
        ({"epochs": 1.0, "batch_size": 10}, 101, 11),
        ({"epochs": 0.3, "batch_size": 10}, 100, 3),
        ({"epochs": 2.5, "batch_size": 64}, 1000, 40),
        ({"epochs": 0.001, "batch_size": 10}, 100, 1),
        ({"steps": 7, "batch_size": 10}, 100, 7),
    ],
)
def test_a_run_is_as_long_as_its_passes_or_its_steps(train: dict[str, Any], pairs: int, steps: int) -> None:
    assert steps_of(checked(TrainSettings, {"train": train}).train, pairs) == steps


@pytest.mark.parametrize(
    ("train", "factors"),
    [
        # Four and a half steps of 18, rounded up.
        (
            {"schedule": {"kind": "cosine", "final_fraction": 0.1}, "warmup_fraction": 0.25},
            {3: 0.8, 4: 1.0, 5: 1.0, 18: 0.1},
        ),
        ({"warmup_steps": 3}, {0: 1 / 3, 1: 2 / 3, 2: 1.0, 3: 1.0, 18: 0.0}),
        ({"schedule": {"kind": "exponential", "gamma": 0.5}, "warmup_fraction": 0.0}, {8: 0.25}),
    ],
)
def test_the_schedule_runs_over_the_whole_run_with_its_warm_up(
    train: dict[str, Any], factors: dict[int, float]
) -> None:
    schedule = schedule_of(checked(TrainSettings, {"train": train}), total_steps=18, steps_per_pass=4)
    assert {step: schedule.factor(step) for step in factors} == pytest.approx(factors)


def test_matrices_alone_decay_not_biases_norms_or_a_temperature(problem: Problem, tmp_path: Path) -> None:
    train = {"loss": {"temperature": "learned"}, "weight_decay": 0.07}
    objective = prepared_objective(job_settings(problem, tmp_path / "job", train=train))
    groups = _loop(objective, Job(tmp_path / "job"), SILENT, seconds=None).optimizer.param_groups
    decay = {id(weights): group["weight_decay"] for group in groups for weights in group["params"]}
    trained = {name: one for name, one in objective.module.named_parameters() if one.requires_grad}
    found = {name: decay.pop(id(weights)) for name, weights in trained.items()}
    assert found == {name: 0.07 if weights.dim() == 2 else 0.0 for name, weights in trained.items()}
    assert not decay
    assert trained["temperature.log_factor"].dim() == 0


# --- The configuration of a job is a RUN.toml ---


def again(folder: Path, *changes: str) -> TrainSettings:
    """The settings of a job as another one."""
    changed = [f"job.out={folder / 'again'}", *changes]
    return read_settings(TrainSettings, folder / "job" / "config.toml", changed)


def test_the_configuration_of_a_job_is_a_run_that_gives_the_same(problem: Problem, tmp_path: Path) -> None:
    run(job_settings(problem, tmp_path / "job", train={"freeze": ["embeddings"], "matryoshka": [4]}))
    run(again(tmp_path))
    assert everything(tmp_path / "again") == everything(tmp_path / "job")


def test_a_run_that_says_what_its_inputs_were_is_refused_when_they_are_others(
    problem: Problem, tmp_path: Path
) -> None:
    run(job_settings(problem, tmp_path / "job", train={"steps": 1}))
    rows = [json.loads(line) for line in problem.data.read_text().splitlines()]
    write_rows(tmp_path / "other.jsonl", rows[:-1])
    others = {
        f"job.data={tmp_path / 'other.jsonl'}": "examples must .* the pairs",
        "job.model=other": "model must .* the model",
    }
    for changed, what in others.items():
        with pytest.raises(ConfigError, match=f"digests.{what} differs? from .* restore the inputs"):
            run(again(tmp_path, changed))
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    "changes", [["run.seed=7"], ["towers.projection_width=5"], ["train.method=lora", "train.method.rank=4"]]
)
def test_what_the_inputs_were_does_not_depend_on_what_is_made_of_them(
    problem: Problem, tmp_path: Path, changes: list[str]
) -> None:
    run(job_settings(problem, tmp_path / "job", train={"steps": 1}))
    assert run(again(tmp_path, *changes)).training.steps == 1
