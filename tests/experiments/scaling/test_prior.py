"""What a plan says without runs, where tokens or the budget are scarce."""

from pathlib import Path

import pytest

from adiabat.core.errors import ConfigError
from adiabat.experiments.plan import plan
from tests.experiments.scaling.world import advice_of, asked, load
from tests.tiny import save_tiny


def test_scarce_tokens_are_those_that_full_training_reads_too(tmp_path: Path) -> None:
    save_tiny(tmp_path / "wide", width=512, layers=1)
    model = [str(tmp_path / "wide")]
    whole = advice_of(plan(load, asked(None, budget=1e17, models=model)))
    assert whole.best is not None
    assert whole.best.way.method == "lora"
    held = whole.best.memory
    by_full = 1e17 / (6 * whole.best.option.size)
    some = advice_of(plan(load, asked(None, budget=1e17, models=model, data_tokens=0.9 * by_full)))
    assert (some.scarce, [one.way.method for one in some.candidates]) == (True, ["full"])
    # LoRA reads these tokens, and full training would not.
    many = advice_of(plan(load, asked(None, budget=1e17, models=model, data_tokens=1.1 * by_full)))
    assert (many.scarce, [one.way.method for one in many.candidates]) == (False, ["lora"])
    # Memory suffices for LoRA alone.
    little = advice_of(plan(load, asked(None, budget=1e17, models=model, data_tokens=0.9 * by_full, memory=held)))
    assert (little.scarce, [one.way.method for one in little.candidates]) == (False, ["lora"])


def test_without_runs_a_budget_must_pay_for_a_step_of_the_batches_that_are_advised(tmp_path: Path) -> None:
    save_tiny(tmp_path / "small", width=16, layers=1)
    with pytest.raises(ConfigError, match=r"^plan.budget must pay for a step of 1,024 pairs of texts of up to 75 tokens, .* got 1e\+07"):
        plan(load, asked(None, budget=1e7, models=[str(tmp_path / "small")]))
