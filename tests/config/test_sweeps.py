"""Settings of sweeps, scaling experiments and distillation: every mistake is told at once, before anything is
read.
"""

from typing import Any

import pytest

from adiabat.config.budgets import TAKEN, ScalingSettings
from adiabat.config.distillation import DistillStaticSettings
from adiabat.config.reader import assigned, checked
from adiabat.config.section import RangeValues
from adiabat.config.sweeps import TuneSweepSettings
from adiabat.config.tuning import GuardSection, RehearsalSection
from adiabat.core.errors import ConfigError
from adiabat.experiments.grid import trials_of_sweep


def sweep_of(**tables: Any) -> TuneSweepSettings:
    return checked(TuneSweepSettings, tables)


def fault(**tables: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        trials_of_sweep(sweep_of(**tables))
    return str(caught.value)


def test_a_range_is_evenly_spaced_in_the_logarithm_with_both_ends() -> None:
    assert RangeValues(low=1e-8, high=1e-5, count=4).values() == (1e-8, 1e-7, 1e-6, 1e-5)
    assert RangeValues(low=0.1, high=0.3, count=3, scale="linear").values() == (0.1, 0.2, 0.3)


def test_a_grid_says_values_by_dotted_key_and_lists_inside_lists_are_one_value() -> None:
    grid = {
        "tune": {"learning_rate": {"low": 1e-8, "high": 1e-6, "count": 3}, "freeze": [["embeddings"], []]}
    }
    assert sweep_of(grid=grid).values() == {
        "tune.learning_rate": (1e-8, 1e-7, 1e-6),
        "tune.freeze": (("embeddings",), ()),
    }


DECAY = "grid.tune.weight_decay"
BOTH = "tune.weight_decay must be set by grid or by variants, got both"


@pytest.mark.parametrize(
    ("assignments", "told"),
    [
        (
            "grid.tune.learning_rat=[1.0]",
            "learning_rat=1, seed=0: unknown key tune.learning_rat; did you mean",
        ),
        ("grid.encoder.max_tokens=[8]", "grid.encoder.max_tokens must be a setting that may vary"),
        (f"{DECAY}=0.1", f"{DECAY} must be a list of values, or a table with low and high, got 0.1"),
        (f"{DECAY}=[0.1,0.2,0.1]", f"{DECAY} must name each value once, got 0.1"),
        (f"{DECAY}=[-1.0,0.1]", "weight_decay=-1, seed=0: tune.weight_decay must"),
        (f"{DECAY}={{low=0.3,high=0.1}}", f"{DECAY}: low must be below high, got 0.3 and 0.1"),
        (f"{DECAY}={{low=0.3,high=0.5,steps=2}}", f"{DECAY}: unknown key steps"),
        (
            f"{DECAY}={{low=0.3,high=0.301,count=5}}",
            f"{DECAY}: count must give values that differ in three digits, got 5",
        ),
        (f"{DECAY}={{}}", f"{DECAY}: low must be given, got none; high must be given, got none"),
        (f"{DECAY}=[0.1] tune.weight_decay=0.2", f"tune.weight_decay has no effect where {DECAY} varies it"),
        (
            'grid.tune.loss=["triplet","in_batch_softmax"] tune.loss.margin=0.2',
            "tune.loss.margin would be lost where grid.tune.loss takes another kind",
        ),
        (
            'grid.tune.loss={kind=["triplet","in_batch_softmax"],margin=[0.3]}',
            "tune.loss.margin belongs to triplet; kind is",
        ),
        (
            'variants=[{name="a",tune.weight_decai=0.1}]',
            "a, seed=0: unknown key tune.weight_decai; did you mean",
        ),
        ('variants=[{name="a"},{name="a"}]', "variants must have names of their own, got 'a'"),
        ('variants=[{name="a"},{name="b"}]', "variants must differ, got 'a' and 'b', with the same settings"),
        (f'variants=[{{name="a",tune.weight_decay=0.1}}] {DECAY}=[0.2]', BOTH),
        (f'variants=[{{name="a",{DECAY}=[0.1]}}] {DECAY}=[0.2]', BOTH),
        (f'variants=[{{name="a",{DECAY}=[0.1,-0.1]}}]', "tune.weight_decay must be >= 0, got -0.1"),
        (
            f'variants=[{{name="a",tune.weight_decay=0.1,{DECAY}=[0.2]}}]',
            f"variants.{DECAY} varies variants.tune.weight_decay, which is also set",
        ),
        (
            f'tune.weight_decay=0.3 variants=[{{name="a",tune.weight_decay=0.1}},{{name="b",{DECAY}=[0.2]}}]',
            "tune.weight_decay has no effect where every variant sets it",
        ),
        ("sweep.seeds=[1,1]", "sweep.seeds must be a list that names each seed once"),
        (
            'tasks=[{kind="retrieval",name="a",data="x"},{kind="nli_grid",name="a",data="y"}]',
            "tasks must have names of their own, got 'a'",
        ),
    ],
)
def test_what_is_wrong_is_told(assignments: str, told: str) -> None:
    assert told in fault(**assigned(assignments.split(), kind=TuneSweepSettings))


@pytest.mark.parametrize("name", ["a/b", "a\\b", "a\nb", "a\u2028b", "a\x07", "x" * 61])
def test_a_name_that_makes_no_folder_is_refused_in_one_line(name: str) -> None:
    said = fault(
        variants=[{"name": name, "tune": {"batch_size": 3}}, {"name": "b", "tune": {"batch_size": 0}}]
    )
    assert (
        "variants.name must have at most 60 characters, and no slashes, line ends or control characters, got "
        in said
    )
    assert len(said.splitlines()) == 1
    wrong = fault(variants=[{"name": name, "grid": 5}])
    assert len(wrong.splitlines()) == 1


def test_names_that_differ_in_case_alone_are_refused_and_other_names_are_kept() -> None:
    said = fault(
        variants=[
            {"name": name, "tune": {"batch_size": size}}
            for size, name in enumerate(("Near", "far", "near"), 3)
        ]
    )
    assert (
        said == "variants must have names that differ in more than upper and lower "
        "case, got 'Near', 'near'; rename them"
    )
    names = ["x" * 60, 'both "towers"', "emb,B0a", ".rate (1e-8)"]
    settings = sweep_of(
        variants=[{"name": name, "tune": {"batch_size": size}} for size, name in enumerate(names, 3)]
    )
    assert [variant.name for variant in settings.variants] == names


def test_the_faults_of_each_run_are_told_once_with_its_name() -> None:
    grid = {"tune": {"weight_decay": [-1.0, -2.0], "batch_size": [0, 5]}}
    said = fault(grid=grid, sweep={"seeds": [0, 1]})
    wrong = "tune.weight_decay must be >= 0, got"
    assert said.startswith(
        "3 faults: weight_decay=-1, batch_size=0, seed=0: tune.batch_size must be > 0, got 0"
    )
    assert f"; weight_decay=-2, batch_size=0, seed=0: {wrong} -2" in said
    assert "seed=1" not in said


def test_an_optional_table_may_be_switched_by_the_sweep_a_variant_or_the_grid() -> None:
    variants = [{"name": "off", "rehearsal": False}, {"name": "own", "rehearsal": {"weight": 2.0}}]
    settings = sweep_of(rehearsal=True, variants=variants, grid={"guard": [False, True]})
    assert [run.tuned.rehearsal for run in trials_of_sweep(settings)] == [
        None,
        None,
        *[RehearsalSection(weight=2.0)] * 2,
    ]
    assert [run.tuned.guard for run in trials_of_sweep(settings)] == [None, GuardSection()] * 2
    assert [run.varied["guard"] for run in trials_of_sweep(settings)][:2] == [None, "on"]


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
    assert set(TAKEN) == set(VALUES_TAKEN)
    table, name = key.split(".")
    with pytest.raises(ConfigError, match=rf"{key} must be left out of a scaling experiment"):
        checked(ScalingSettings, {table: {**COMPANY.get(key, {}), name: VALUES_TAKEN[key]}})


@pytest.mark.parametrize(
    ("key", "value"), [("pooling", "cls"), ("normalize", True), ("max_tokens", 8), ("query_prompt", "ask: ")]
)
def test_what_a_teacher_of_a_static_model_does_not_go_by_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"encoder.{key} has no effect on a static model"):
        checked(DistillStaticSettings, {"encoder": {key: value}})
