"""How long a run is: what a budget pays for, to within a step."""

from pathlib import Path

import pytest

from adiabat.config import TrainSettings, checked
from adiabat.contrastive.length import steps_within
from adiabat.contrastive.training import prepared
from adiabat.errors import ConfigError
from adiabat.plan.flops import training_flops
from adiabat.train.counts import passed_parameters
from adiabat.train.distributed import ALONE
from tests.contrastive.problem import Problem, from_memory, job_settings, run, write_problem


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """Pairs and a tiny model."""
    return write_problem(tmp_path_factory.mktemp("problem"))


@pytest.mark.parametrize(("budget", "steps"), [(1.0, 1), (2.9, 1), (3.0, 2), (5.9, 2), (6.0, 3), (100.0, 13)])
def test_a_budget_pays_for_the_steps_that_fit_into_it(budget: float, steps: int) -> None:
    assert steps_within(budget, lambda step: float(step + 1)) == steps


def test_a_budget_below_one_step_and_one_without_end_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^train.budget_flops must pay for a step, which takes 20 FLOP, got 19; raise it, or lower "):
        steps_within(19.0, lambda step: 20.0)
    with pytest.raises(ConfigError, match=r"must pay for about 1,000,000 steps of 20 FLOP at the most, got 1e\+12; lower it$"):
        steps_within(1e12, lambda step: 20.0)


def test_a_run_spends_its_budget_to_within_a_step_and_says_so(problem: Problem, tmp_path: Path) -> None:
    objective, _ = prepared(from_memory, job_settings(problem, tmp_path / "none"), ALONE)
    costs = [objective.flops_of(step) for step in range(8)]
    budget = sum(costs[:6]) + costs[6] / 2
    result = run(job_settings(problem, tmp_path / "job", train={"budget_flops": budget, "epochs": 1.0, "schedule": "cosine"}))
    record = result.training
    assert record is not None
    assert record.steps == 6
    assert record.stop_reason == "the limit of 6 steps was reached"
    assert record.flops == pytest.approx(sum(costs[:6]))


def test_a_step_costs_what_its_tokens_do(problem: Problem, tmp_path: Path) -> None:
    objective, _ = prepared(from_memory, job_settings(problem, tmp_path / "none"), ALONE)
    parameters = passed_parameters(objective.towers.query)
    tokens = sum(objective.tokens_of(0).values())
    assert objective.flops_of(0) == pytest.approx(training_flops(parameters, float(tokens)))
    assert objective.flops_of(0) == pytest.approx(6 * parameters.forward * tokens)


def test_a_resumed_run_has_spent_what_one_that_never_stopped_has(problem: Problem, tmp_path: Path) -> None:
    whole = run(job_settings(problem, tmp_path / "whole", train={"steps": 8, "schedule": "constant", "warmup_fraction": 0.0}))
    constant = {"schedule": "constant", "warmup_fraction": 0.0}
    run(job_settings(problem, tmp_path / "job", train={"steps": 3, **constant}))
    resumed = run(job_settings(problem, tmp_path / "job", train={"steps": 8, **constant}), resume=True)
    assert whole.training is not None
    assert resumed.training is not None
    assert resumed.training.flops == pytest.approx(whole.training.flops)
    assert whole.training.flops > 0


def test_a_budget_of_a_stream_or_beside_steps_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train.steps has no effect with train.budget_flops = 1000000000000.0; leave it out, or "):
        checked(TrainSettings, {"train": {"steps": 3, "budget_flops": 1e12}})
    with pytest.raises(ConfigError, match=r"train.epochs has no effect with train.budget_flops = 1000000000000.0; leave it out, or "):
        checked(TrainSettings, {"train": {"epochs": 3.0, "budget_flops": 1e12}})
    with pytest.raises(ConfigError, match=r"train.budget_flops must be left out where data.stream is true, since tokens yet to be "):
        checked(TrainSettings, {"data": {"stream": True, "validation": "dev.jsonl"}, "train": {"budget_flops": 1e12}})
