"""Tuning jobs that are cut short, and what resuming them gives."""

import signal
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from adiabat.core.errors import JobError
from adiabat.models.towers import DualEncoder
from adiabat.results.evaluation_result import Result
from adiabat.runs import output_dir
from adiabat.runs.output_dir import write_report
from adiabat.runs.run_config import Job
from tests.adiabatic.kills import MOMENTS
from tests.adiabatic.kills import run as kill
from tests.adiabatic.problem import Problem, killable_settings, run, settings_of
from tests.forks import exit_code
from tests.jobs import everything
from tests.runs.before import forget
from tests.tiny import tiny_dual


def test_jobs_killed_at_several_moments_are_resumed_bit_for_bit(problem: Problem, tmp_path: Path) -> None:
    for name in ("store", "triplets.jsonl"):
        (tmp_path / name).symlink_to(problem.store.parent / name)
    here = Problem(problem.model, tmp_path / "store", tmp_path / "triplets.jsonl")
    settings = killable_settings(checkpoint_seconds=0.001)
    run(here, tmp_path / "whole", settings)
    expected = everything(tmp_path / "whole")
    died = [exit_code(partial(kill, tmp_path, moment)) for moment in MOMENTS]
    assert died == [-signal.SIGKILL] * len(MOMENTS)
    for moment in MOMENTS:
        assert not (tmp_path / moment / "model").exists()
        run(here, tmp_path / moment, settings, resume=True)
        assert everything(tmp_path / moment) == expected


def test_a_job_of_before_settings_existed_ends_as_a_whole_one(problem: Problem, tmp_path: Path) -> None:
    run(problem, tmp_path / "whole", settings_of(tune={"max_epochs": 2}))
    run(problem, tmp_path / "old", settings_of(tune={"max_epochs": 1}))
    forget(Job(tmp_path / "old"), "tune.keep", "tune.schedule")
    run(problem, tmp_path / "old", settings_of(tune={"max_epochs": 2}), resume=True)
    assert everything(tmp_path / "old") == everything(tmp_path / "whole")


def test_a_job_of_before_weights_of_negatives_goes_on_without_them(problem: Problem, tmp_path: Path) -> None:
    half, whole = (settings_of(tune={"loss": "store_softmax", "max_epochs": epochs}) for epochs in (1, 2))
    run(problem, tmp_path / "job", half)
    forget(Job(tmp_path / "job"), "tune.loss.hardness")
    run(problem, tmp_path / "job", whole, resume=True)
    run(problem, tmp_path / "other", whole)
    assert everything(tmp_path / "job") == everything(tmp_path / "other")


@pytest.mark.parametrize("written", [False, True])
def test_a_job_that_has_a_model_has_its_result_and_one_cut_short_between_is_completed(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    def cut(result: Result, folder: Path, *, beside: Mapping[str, bytes]) -> NoReturn:
        if written:
            write_report(result, folder, beside=beside)
        raise KeyboardInterrupt

    job = tmp_path / "job"
    run(problem, job, settings_of(tune={"max_epochs": 1}))
    for out, resume in ((tmp_path / "new", False), (job, True)):
        with monkeypatch.context() as patch:
            patch.setattr(output_dir, "write_report", cut)
            with pytest.raises(KeyboardInterrupt):
                run(problem, out, settings_of(tune={"max_epochs": 2}), resume=resume)
        # Not even the model of the shorter job, which the result no longer describes.
        assert not [path.name for path in out.iterdir() if "model" in path.name]
        run(problem, out, settings_of(tune={"max_epochs": 2}), resume=True)
    assert everything(job) == everything(tmp_path / "new")


def test_resuming_with_another_setting_store_model_or_data_names_what_differs(
    problem: Problem, tmp_path: Path
) -> None:
    job, short = tmp_path / "job", settings_of(tune={"max_epochs": 1})
    run(problem, job, short)
    with pytest.raises(JobError, match=r"tune.loss.margin was 0.3, is 0.4; repeat the first command"):
        run(problem, job, settings_of(tune={"loss": {"margin": 0.4}, "max_epochs": 1}), resume=True)
    other = replace(problem, data=tmp_path / "other.jsonl")
    other.data.write_text("\n".join(problem.data.read_text().splitlines()[:-1]) + "\n")
    with pytest.raises(JobError, match="got a difference: the examples differ"):
        run(other, job, short, resume=True)
    strange = DualEncoder(tiny_dual(width=16, seed=5).query, problem.fresh().document, "tiny")
    with pytest.raises(JobError, match="got a difference: the query tower of the model differs"):
        run(problem, job, short, model=strange, resume=True)


def test_a_setting_left_out_when_resuming_is_named_before_the_data_are_read(
    problem: Problem, tmp_path: Path
) -> None:
    own = replace(problem, data=tmp_path / "data.jsonl")
    own.data.write_bytes(problem.data.read_bytes())
    run(own, tmp_path / "job", settings_of(tune={"loss": {"margin": 0.4}, "max_epochs": 1}))
    own.data.unlink()
    with pytest.raises(JobError, match=r"got a difference: tune.loss.margin was 0.4, is 0.3; repeat"):
        run(own, tmp_path / "job", settings_of(tune={"max_epochs": 1}), resume=True)


def test_a_job_goes_on_wherever_inputs_lie_and_with_no_other_prompt(problem: Problem, tmp_path: Path) -> None:
    run(problem, tmp_path / "job", settings_of(tune={"max_epochs": 1}))
    moved = replace(problem, data=tmp_path / problem.data.name)
    moved.data.write_bytes(problem.data.read_bytes())
    how = {"device": "cpu", "checkpoint_seconds": 5.0}
    run(moved, tmp_path / "job", settings_of(tune={"max_epochs": 2}, run=how), resume=True)
    twin = problem.fresh()
    asked = twin.query.with_settings(replace(twin.query.settings, query_prompt="another: "))
    other = replace(twin, query=asked)
    with pytest.raises(JobError, match="got a difference: the query tower of the model differs"):
        run(moved, tmp_path / "job", settings_of(tune={"max_epochs": 2}), model=other, resume=True)
