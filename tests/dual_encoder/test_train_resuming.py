"""Training jobs that are cut short, or go on: what resuming them gives, and with what they may not go on."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from adiabat.config.dual_training import TrainSettings
from adiabat.config.shared import EncoderSection
from adiabat.core.errors import JobError
from adiabat.dual_encoder.train import train
from adiabat.dual_encoder.train_checks import FIXED_LENGTH
from adiabat.models.towers import DualEncoder
from adiabat.results.evaluation_result import Result
from adiabat.runs.output_dir import open_job
from adiabat.training import loop
from tests.dual_encoder.problem import (
    Problem,
    from_memory,
    job_settings,
    model,
    run,
    write_problem,
    write_rows,
)
from tests.jobs import log_of
from tests.refused import refused

CONSTANT: dict[str, Any] = {"schedule": "constant", "warmup_fraction": 0.0}


# --- A later end ---


COOLING = {"loss": {"temperature": "scheduled"}}


@pytest.mark.parametrize(
    "train",
    [{}, {"schedule": "constant"}, {"warmup_fraction": 0.0}, {"warmup_steps": 2}, {**CONSTANT, **COOLING}],
    ids=str,
)
def test_a_job_whose_steps_depend_on_its_end_does_not_and_is_told_why(
    problem: Problem, tmp_path: Path, train: dict[str, Any]
) -> None:
    begun = job_settings(problem, tmp_path / "job", train={**train, "steps": 4})
    open_job(tmp_path / "job", {**begun.model_dump(), "digests": {}}, resume=False)
    with refused(JobError, f"train.steps was 4, is 8{FIXED_LENGTH}"):
        run(job_settings(problem, tmp_path / "job", train={**train, "steps": 8}), resume=True)


def test_an_end_that_the_run_has_passed_is_refused_in_steps_and_in_passes(
    problem: Problem, tmp_path: Path
) -> None:
    def constant(name: str, **length: float) -> TrainSettings:
        return job_settings(problem, tmp_path / name, train={**CONSTANT, **length})

    run(constant("job", steps=8))
    with pytest.raises(JobError, match="train.steps must give at least 8 steps, .* got 6; raise it"):
        run(constant("job", steps=6), resume=True)
    run(constant("passes", epochs=2.0))
    taken = log_of(tmp_path / "passes")[-1]["step"]
    told = f"train.epochs must give at least {taken} steps, .* got {(taken + 1) // 2}"
    with pytest.raises(JobError, match=told):
        run(constant("passes", epochs=1.0), resume=True)
    run(constant("passes", epochs=2.5), resume=True)
    assert log_of(tmp_path / "passes")[-1]["step"] > taken


# --- What must be the same ---


def guided(folder: Path, here: Path | None = None, **tables: Any) -> TrainSettings:
    """A job with a guide and a validation file; its data lie `here`."""
    usual = {
        "train": {"loss": {"guide": "other"}, "steps": 2},
        "data": {"validation": str((here or folder) / "dev.jsonl")},
    }
    return job_settings(Problem(here or folder), folder / "job", **{**usual, **tables})


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """The folder of that job, which is over."""
    write_problem(tmp_path)
    rows = [{"query": f"new {n}", "positive": f"paper {n * n}", "negative": "memo 4"} for n in range(3)]
    write_rows(tmp_path / "dev.jsonl", rows)
    run(guided(tmp_path))
    return tmp_path


def test_other_settings_and_inputs_are_refused_by_name_and_others_may_lie_and_run_elsewhere(
    finished: Path,
) -> None:
    other = {"loss": {"guide": "other", "temperature": 0.1}, "steps": 2, "method": "bias"}
    temperature = "train.loss.temperature.value was 0.05, is 0.1"
    differences = ("run.seed was 0, is 4", temperature, "train.method.kind was 'full', is 'bias'")
    with refused(JobError, "got 3 differences", *differences):
        run(guided(finished, job={"data": "nowhere"}, train=other, run={"seed": 4}), resume=True)
    for changed in ("tiny", "other"):

        def load(name: str, section: EncoderSection, changed: str = changed) -> DualEncoder:
            return model(seed=5) if name == changed else from_memory(name, section)

        with pytest.raises(JobError, match="got a difference: the model differs"):
            train(load, guided(finished), resume=True)
    for name in ("pairs.jsonl", "dev.jsonl"):
        before = (finished / name).read_text()
        rows = [json.loads(line) for line in before.splitlines()]
        write_rows(finished / name, [{**rows[0], "positive": "another"}, *rows[1:]])
        with pytest.raises(JobError, match="got a difference: the pairs differ"):
            run(guided(finished), resume=True)
        (finished / "moved").mkdir(exist_ok=True)
        (finished / "moved" / name).write_text(before)
    how = {"device": "cpu", "checkpoint_seconds": 5.0, "keep_checkpoints": 3}
    memory = {"cached": True, "chunk_tokens": 16, "loss_tile": 2}
    run(guided(finished, finished / "moved", run=how, memory=memory), resume=True)
    assert str(finished / "moved") in (finished / "job" / "config.toml").read_text()


def test_a_job_of_several_sources_goes_on_wherever_they_lie_and_not_with_others(tmp_path: Path) -> None:
    problem = write_problem(tmp_path)
    rows = [{"query": f"new {n}", "positive": f"paper {n * n}"} for n in range(8)]
    write_rows(tmp_path / "more.jsonl", rows)

    def settings(*names: str, weight: float = 1.0) -> TrainSettings:
        sources = [{"path": str(tmp_path / name), "weight": weight} for name in names]
        tables = {"job": {"data": None}, "data": {"sources": sources}, "mixture": {"rule": "weights"}}
        return job_settings(problem, tmp_path / "job", train={"steps": 2}, **tables)

    run(settings("pairs.jsonl", "more.jsonl"))
    (tmp_path / "more.jsonl").rename(tmp_path / "moved.jsonl")
    run(settings("pairs.jsonl", "moved.jsonl"), resume=True)
    assert "moved.jsonl" in (tmp_path / "job" / "config.toml").read_text()
    with pytest.raises(JobError, match=r"data\.sources was .*'weight': 1\.0.*, is .*'weight': 2\.0"):
        run(settings("pairs.jsonl", "moved.jsonl", weight=2.0), resume=True)
    write_rows(tmp_path / "moved.jsonl", rows[1:])
    with pytest.raises(JobError, match="the pairs differ from those the job began with"):
        run(settings("pairs.jsonl", "moved.jsonl"), resume=True)


# --- What is the same after a kill ---


class KilledError(Exception):
    """The process ended there."""


def frozen(side: str) -> dict[str, str]:
    return {"kind": "asymmetric", "frozen": side}


def numbers_of(result: Result) -> dict[str, Any]:
    """All of a result but times, and the folder of its job."""
    record = result.training
    record = asdict(result.training)
    apart = {"seconds": 0.0, "settings": {**record["settings"], "job": {}}}
    return {**record, **apart, "versions": result.versions}


@pytest.mark.parametrize(
    "tables",
    [
        {"towers": frozen("document"), "train": {"method": {"kind": "lora", "rank": 2}}},
        {"towers": frozen("query")},
        {"train": {"loss": {"guide": "other"}}},
        {"memory": {"cached": True, "chunk_tokens": 32}},
    ],
    ids=["lora beside a frozen tower", "frozen query tower", "guide", "gradient cache"],
)
def test_a_run_killed_between_its_vectors_and_its_checkpoint_ends_with_the_same_result(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables: dict[str, Any]
) -> None:
    train = {"steps": 6, "validate_every": 3, **tables.get("train", {})}
    tables = {**tables, "train": train, "run": {"checkpoint_seconds": 1e-6}}
    whole = run(job_settings(problem, tmp_path / "whole", **tables))
    settings, write = job_settings(problem, tmp_path / "killed", **tables), loop.write_checkpoint

    def killed_at(folder: Path, step: int, *given: Any, **options: Any) -> None:
        if step == 2:
            raise KilledError
        write(folder, step, *given, **options)

    monkeypatch.setattr(loop, "write_checkpoint", killed_at)
    with pytest.raises(KilledError):
        run(settings)
    monkeypatch.setattr(loop, "write_checkpoint", write)
    assert numbers_of(run(settings, resume=True)) == numbers_of(whole)


# --- Two signals ---


REGIME: dict[str, Any] = {
    "loss": {"kind": "triplet", "margin": 0.3},
    "keep": "both",
    "error_unit": "pairs",
    "validate_every": 2,
    "steps": 40,
    "dropout": False,
}


def test_towers_apart_stop_after_idle_validations_of_two_signals_and_keep_the_best(
    problem: Problem, tmp_path: Path
) -> None:
    """A rate at which validation soon gets no better: the run ends before its steps, with the weights of the
    best validation.
    """
    train = {**REGIME, **CONSTANT, "learning_rate": 0.03, "idle_epochs": 2}
    record = run(job_settings(problem, tmp_path / "job", train=train, towers={"kind": "asymmetric"})).training
    assert record.stop_reason in (
        "2 epochs in a row without both validation loss and errors falling",
        "validation found no errors, so nothing could improve",
    )
    assert record.steps < 40
    # Every query of the problem lists two negatives.
    assert record.unit == "pairs"
    assert record.validation_pairs % 2 == 0
    losses, errors = dict(record.validation_loss), dict(record.validation_errors)
    best = 0
    for epoch in range(1, record.epochs + 1):
        if losses[epoch] < losses[best] and errors[epoch] < errors[best]:
            best = epoch
    assert record.best_epoch == best


def test_an_idle_limit_may_change_when_a_job_goes_on_but_not_to_one_that_it_has_passed(
    problem: Problem, tmp_path: Path
) -> None:
    def idle(name: str, epochs: int) -> TrainSettings:
        train = {**REGIME, **CONSTANT, "learning_rate": 1e-9, "steps": 12, "idle_epochs": epochs}
        return job_settings(problem, tmp_path / name, train=train)

    run(idle("whole", 5))
    run(idle("longer", 3))
    run(idle("longer", 5), resume=True)
    assert log_of(tmp_path / "longer") == log_of(tmp_path / "whole")
    with pytest.raises(JobError, match=r"train\.idle_epochs must be at least \d, .* got 1"):
        run(idle("longer", 1), resume=True)
