"""What a tuning job says of the operations that it spent."""

from pathlib import Path

import pytest

from adiabat.adiabatic.tune_setup import prepared_tower
from adiabat.adiabatic.tuning_context import TuningContext
from adiabat.scaling_laws.flops import training_flops
from adiabat.training.flop_count import passed_parameters
from tests.adiabatic.problem import run, settings_of, write_problem
from tests.pages import without_pages


def test_a_job_says_what_it_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_pages(monkeypatch)
    problem = write_problem(tmp_path)
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
