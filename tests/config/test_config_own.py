"""Settings of scaling experiments, plans and distillation: every key of their own is reached, and what would have no effect is refused."""

from typing import Any

import pytest

from adiabat.config.budgets import TAKEN, ScalingSettings
from adiabat.config.distillation import DistillStaticSettings
from adiabat.config.reader import checked
from adiabat.core.errors import ConfigError

VALUES_TAKEN = {
    "encoder.blocks": 2,
    "towers.document_model": "other",
    "train.method": "bias",
    "train.freeze": ["embeddings"],
    "train.learning_rate": 1e-3,
    "train.epochs": 2.0,
    "train.steps": 5,
    "train.budget_flops": 1e9,
    "train.budget_seconds": 5.0,
}
COMPANY: dict[str, dict[str, Any]] = {"towers.document_model": {"kind": "asymmetric"}}


@pytest.mark.parametrize("key", VALUES_TAKEN)
def test_what_a_scaling_gives_each_run_is_refused(key: str) -> None:
    table, name = key.split(".")
    with pytest.raises(ConfigError, match=rf"{key} must be left out of a scaling experiment, which gives each run its own; leave it out"):
        checked(ScalingSettings, {table: {**COMPANY.get(key, {}), name: VALUES_TAKEN[key]}})


def test_everything_that_a_scaling_gives_is_tried() -> None:
    assert {f"{table}.{name}" for table, names in TAKEN.items() for name in names} == set(VALUES_TAKEN)


@pytest.mark.parametrize(("key", "value"), [("pooling", "cls"), ("normalize", True), ("max_tokens", 8), ("query_prompt", "ask: ")])
def test_what_a_teacher_of_a_static_model_does_not_go_by_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"encoder.{key} has no effect on a static model, whose tokens pass by themselves; leave it out"):
        checked(DistillStaticSettings, {"encoder": {key: value}})
