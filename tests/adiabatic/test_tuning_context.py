"""What runs share is made once, and is what each would have made for itself."""

from pathlib import Path
from typing import Any

import pytest

from adiabat.adiabatic import tuning_context as ground_module
from adiabat.adiabatic.tuning_context import TuningContext, prepared_tower
from adiabat.config.tuning import TuneSettings
from adiabat.models.towers import DualEncoder, trainable_copy
from adiabat.scaling_laws.flops import training_flops
from adiabat.training.flop_count import passed_parameters
from tests.adiabatic.problem import Problem, run, settings_of


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Any]:
    """Calls of a function of the module."""
    calls: list[Any] = []
    real = getattr(ground_module, name)

    def call(*given: Any, **named: Any) -> Any:
        calls.append(given)
        return real(*given, **named)

    monkeypatch.setattr(ground_module, name, call)
    return calls


def test_data_validation_and_tokens_are_made_once_for_runs_of_other_rates(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, mined = counted(monkeypatch, "read_data"), counted(monkeypatch, "with_negatives")
    loads: list[int] = []

    def load() -> DualEncoder:
        loads.append(1)
        return problem.fresh()

    context = TuningContext(load, problem.store, str(problem.data))
    every = [
        objective(context, settings_of(tune={"loss": {"margin": margin}, "learning_rate": rate}))
        for rate in (1e-6, 1e-5)
        for margin in (0.1, 0.3)
    ]
    assert (len(reads), len(mined), len(loads)) == (1, 1, 1)
    assert len({id(one.tokens) for one in every}) == len({id(one.validation_tokens) for one in every}) == 1


def test_what_settings_change_is_made_anew(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    mined = counted(monkeypatch, "with_negatives")
    context = TuningContext(problem.fresh, problem.store, str(problem.data))
    listed, hardest = (
        objective(context, settings_of(tune={"negatives": source})) for source in ("examples", "hardest")
    )
    smaller = objective(context, settings_of(data={"validation_fraction": 0.5}))
    assert len(mined) == 3
    assert listed.validation.negatives.lengths.tolist() != hardest.validation.negatives.lengths.tolist()
    assert len(smaller.train) < len(listed.train)


def test_a_run_finds_what_it_would_have_made_alone(problem: Problem) -> None:
    shared = TuningContext(problem.fresh, problem.store, str(problem.data))
    objective(shared, settings_of(tune={"negatives": "hardest"}))
    settings = settings_of(tune={"learning_rate": 1e-3})
    one, other = (
        objective(shared, settings),
        objective(TuningContext(problem.fresh, problem.store, str(problem.data)), settings),
    )
    assert one.loss(3).item() == other.loss(3).item()
    assert one.validate() == other.validate()


def test_data_can_be_read_before_any_model_is_loaded(problem: Problem, tmp_path: Path) -> None:
    def load() -> DualEncoder:
        raise AssertionError("loaded")

    train, _ = TuningContext(load, problem.store, str(problem.data)).examples(settings_of().data)
    assert len(train)


def objective(context: TuningContext, settings: TuneSettings) -> Any:
    """Of a fresh tower."""
    return context.objective(trainable_copy(context.model.query).train(False), settings)


def test_a_job_says_what_it_spent(problem: Problem, tmp_path: Path) -> None:
    record = run(problem, tmp_path / "job").training
    assert record is not None
    context = TuningContext(problem.fresh, problem.store, str(problem.data))
    objective = context.objective(prepared_tower(problem.fresh().query, settings_of())[0], settings_of())
    costs = [objective.cost(step) for step in range(record.steps)]
    assert record.flops == pytest.approx(sum(one.flops for one in costs))
    batches = [objective.sampler.rows(step) for step in range(12)]
    tokens = sum(int(objective.tokens.lengths[picked].sum()) for picked in batches)
    assert record.flops == pytest.approx(training_flops(passed_parameters(objective.encoder), float(tokens)))
    # The third epoch was the last that it may have.
    assert record.planned == pytest.approx(record.flops)
    assert record.operations > 0
