"""What the settings of a training job come to: its length, its rates, its groups of weights; and its configuration as a run."""

import json
from pathlib import Path
from typing import Any

import pytest

from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked, read_settings
from adiabat.core.errors import ConfigError
from adiabat.core.progress import SILENT
from adiabat.dual_encoder.train import _loop, prepared, schedule_of
from adiabat.dual_encoder.train_checks import steps_of
from adiabat.runs.run_dir import Job
from adiabat.training.distributed import ALONE
from tests.dual_encoder.problem import Problem, from_memory, job_settings, run, write_rows
from tests.jobs import everything

# --- Length and schedule ---


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


def test_the_schedule_runs_over_the_whole_run_with_a_warm_up_that_is_a_share_of_it() -> None:
    train = {"schedule": {"kind": "cosine", "final_fraction": 0.1}, "warmup_fraction": 0.25}
    schedule = schedule_of(checked(TrainSettings, {"train": train}), total_steps=18, steps_per_pass=4)
    assert (schedule.total_steps, schedule.warmup_steps, schedule.final_fraction) == (18, 5, 0.1)
    steps = schedule_of(checked(TrainSettings, {"train": {"warmup_steps": 3}}), total_steps=18, steps_per_pass=4)
    assert [round(steps.factor(step), 4) for step in range(4)] == [0.3333, 0.6667, 1.0, 1.0]
    falling = checked(TrainSettings, {"train": {"schedule": {"kind": "exponential", "gamma": 0.5}, "warmup_fraction": 0.0}})
    assert schedule_of(falling, total_steps=18, steps_per_pass=4).factor(8) == 0.25


# --- The optimiser ---


def test_matrices_decay_and_biases_norms_and_a_learned_temperature_do_not(problem: Problem, tmp_path: Path) -> None:
    settings = job_settings(problem, tmp_path / "job", train={"loss": {"temperature": "learned"}, "weight_decay": 0.07})
    objective, _ = prepared(from_memory, settings, ALONE)
    loop = _loop(objective, Job(tmp_path / "job"), SILENT)
    decay = {id(weights): group["weight_decay"] for group in loop.optimizer.param_groups for weights in group["params"]}
    trained = {name: weights for name, weights in objective.module.named_parameters() if weights.requires_grad}
    assert {name: decay.pop(id(weights)) for name, weights in trained.items()} == {
        name: 0.07 if weights.dim() == 2 else 0.0 for name, weights in trained.items()
    }
    assert not decay
    assert trained["temperature.log_factor"].dim() == 0


# --- The configuration is a RUN.toml ---


def test_the_configuration_of_a_job_is_a_run_that_gives_the_same_again(problem: Problem, tmp_path: Path) -> None:
    run(job_settings(problem, tmp_path / "job", train={"freeze": ["embeddings"], "matryoshka": [4]}))
    settings = read_settings(TrainSettings, tmp_path / "job" / "config.toml", [f"job.out={tmp_path / 'again'}"])
    assert settings.digests.model is not None
    run(settings)
    assert everything(tmp_path / "again") == everything(tmp_path / "job")


@pytest.mark.parametrize("changed", ["examples", "model"])
def test_a_run_that_says_what_its_inputs_were_is_refused_when_they_are_others(problem: Problem, tmp_path: Path, changed: str) -> None:
    run(job_settings(problem, tmp_path / "job", train={"steps": 1}))
    rows = [json.loads(line) for line in problem.data.read_text().splitlines()]
    write_rows(tmp_path / "other.jsonl", rows[:-1])
    what = {"examples": "pairs differ from those", "model": "model differs from the one"}[changed]
    other = {"examples": f"job.data={tmp_path / 'other.jsonl'}", "model": "job.model=other"}[changed]
    settings = read_settings(TrainSettings, tmp_path / "job" / "config.toml", [f"job.out={tmp_path / 'again'}", other])
    with pytest.raises(
        ConfigError, match=f"digests.{changed} must be that of what is there, but the {what} the job began with; the inputs have changed"
    ):
        run(settings)
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("other", ["run.seed=7", "towers.projection_width=5", "train.method=lora", "train.method.rank=4"])
def test_what_the_inputs_were_does_not_depend_on_what_is_made_of_them(problem: Problem, tmp_path: Path, other: str) -> None:
    lora = {"method": {"kind": "lora", "rank": 3}} if other.startswith("train.method.rank") else {}
    run(job_settings(problem, tmp_path / "job", train={"steps": 1, **lora}))
    more = ["train.method.rank=4"] if other == "train.method=lora" else []
    settings = read_settings(TrainSettings, tmp_path / "job" / "config.toml", [f"job.out={tmp_path / 'again'}", other, *more])
    assert run(settings).training is not None
