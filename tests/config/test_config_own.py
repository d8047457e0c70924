"""Settings of scaling experiments, plans and distillation: every key of their own is reached, and what would have no effect is refused."""

from pathlib import Path
from typing import Any

import pytest

from adiabat.config.budgets import TAKEN, FamilySection, PlanSettings, ScalingSettings
from adiabat.config.distillation import DistillStaticSettings, FitSettings, MultilingualSettings
from adiabat.config.reader import checked, keys_of
from adiabat.config.section import Section
from adiabat.core.errors import ConfigError
from tests.config.test_config import require_reached
from tests.config_values import VALUES

ENCODER: dict[str, tuple[Any, dict[str, Any]]] = {
    name: VALUES[f"encoder.{name}"] for name in (key.removeprefix("encoder.") for key in VALUES if key.startswith("encoder."))
}
RUNS = {"plan.runs": "swept"}
TAUGHT: dict[str, tuple[Any, dict[str, Any]]] = {
    "distill.teachers": (("one", "other"), {}),
    "distill.student": ("small", {}),
    "distill.out": ("taught", {}),
    "distill.side": ("document", {}),
    "distill.width": ("projection", {}),
    "lessons.validation_fraction": (0.25, {}),
    "lessons.max_validation": (99, {}),
    **{f"teacher.{name}": value for name, value in ENCODER.items() if name != "similarity"},
}
OWN: dict[type[Section], dict[str, tuple[Any, dict[str, Any]]]] = {
    ScalingSettings: {
        "scaling.out": ("swept", {}),
        "scaling.name": ("mine", {}),
        "scaling.budgets": ((1e12, 4e12), {}),
        "scaling.seeds": ((3, 4), {}),
        "scaling.last_steps": (5, {}),
        "scaling.keep_models": (True, {}),
        "scaling.engine": ("ray", {}),
        "scaling.loss": ("training", {}),
        "scaling.least_steps": (3, {}),
        "scaling.resamples": (100, {}),
        "models": ((FamilySection(model="demo", blocks=(1, 2), pretraining_rate=1e-3),), {}),
        "methods.full": (False, {"methods.bias": True}),
        "methods.freezing": ((0.25, 0.5), {}),
        "methods.bias": (True, {}),
        "methods.lora": ((8, 32), {}),
        "rates.full": (1e-4, {}),
        "rates.lora": (2e-3, {}),
        "rates.bias": (2e-2, {}),
        "job.data": ("pairs.jsonl", {}),
    },
    PlanSettings: {
        "plan.budget": (1e17, {}),
        "plan.budget_seconds": (60.0, RUNS),
        "plan.runs": ("swept", {}),
        "plan.models": (("demo",), {}),
        "plan.data_tokens": (1e6, {}),
        "plan.memory": (2**30, {"plan.models": ["demo"]}),
        "plan.measure": (False, RUNS),
        "plan.out": ("planned", {}),
        "plan.loss": ("training", RUNS),
        "plan.least_steps": (3, RUNS),
        "plan.resamples": (100, RUNS),
        "run.seed": (7, RUNS),
        "run.device": ("cpu", RUNS),
        "encoder.pooling": ("cls", {"plan.models": ["demo"]}),
    },
    DistillStaticSettings: {
        "static.dims": (64, {}),
        "static.reduction": ("ica", {}),
        "static.pooling": ("last", {}),
        "static.weighting": ("zipf", {}),
        "static.sif": (1e-3, {}),
        "static.corpus": ("corpus.jsonl", {}),
        "static.vocabulary": ("words.txt", {}),
        "static.without": ("##", {}),
        "static.normalize": (False, {}),
        "static.dtype": ("int8", {}),
        "run.seed": (7, {}),
        "run.device": ("cpu", {}),
        "encoder.blocks": (2, {}),
        "encoder.allow_pickles": (True, {}),
    },
    FitSettings: {**TAUGHT, "lessons.texts": (("corpus.jsonl",), {}), "lessons.queries": (("pairs.jsonl",), {})},
    MultilingualSettings: {
        **TAUGHT,
        "lessons.parallel": (("texts.jsonl",), {}),
        "lessons.source": ("de", {}),
        "lessons.languages": (("de", "fr"), {}),
        "lessons.passages": (2, {}),
    },
}
EVERY_KEY = [(kind, key) for kind, values in OWN.items() for key in values]
TRAINED = ("encoder", "mixture", "batches", "train", "memory", "run")
SHARED = {
    ScalingSettings: ("encoder", "data", "towers", "mixture", "batches", "train", "memory", "run", "tasks", "measure"),
    PlanSettings: ("encoder",),
    DistillStaticSettings: ("encoder",),
    FitSettings: TRAINED,
    MultilingualSettings: TRAINED,
}


@pytest.mark.parametrize("kind", OWN)
def test_the_tables_name_every_key_that_other_verbs_do_not_have(kind: type[Section]) -> None:
    own = {key for key in keys_of(kind) if key.split(".")[0] not in SHARED[kind]}
    assert own == {key for key in OWN[kind] if key.split(".")[0] not in SHARED[kind]}


@pytest.mark.parametrize(("kind", "key"), EVERY_KEY, ids=[f"{kind.__name__}-{key}" for kind, key in EVERY_KEY])
def test_every_key_is_reached_by_set_and_by_toml_alike(kind: type[Section], key: str, tmp_path: Path) -> None:
    require_reached(kind, key, *OWN[kind][key], tmp_path)


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
