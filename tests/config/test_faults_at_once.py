"""Wrong values and unknown keys are told at once; combinations of settings are told where no value of their
table is wrong.
"""

import random
import re
from typing import Any

import pytest

from adiabat.config.budgets import PlanSettings, ScalingSettings
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import assigned, checked, keys_of, leaves, with_values
from adiabat.config.section import Section
from adiabat.config.sweeps import TuneSweepSettings
from adiabat.config.tasks import SuiteSettings
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import ConfigError
from tests.config.test_ignored import IDLE, VALUES

TASK = 'kind="retrieval",data="d",corpus_split="dev",name="a"'


def table_of(kind: type[Section], assignments: str) -> dict[str, Any]:
    """Tables of settings as they are typed after ``--set``, with blanks between them."""
    return assigned(assignments.split(), {}, kind=kind)


def message(kind: type[Section], table: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        checked(kind, table)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "assignments", "faults"),
    [
        (TuneSettings, "tune.learning_rate=-1 tune.keep=no", ["tune.learning_rate must", "tune.keep must"]),
        (
            TrainSettings,
            "train.learning_rate=-1 train.idle_epochs=3 run.sede=1 memory.length_buckets=[3,2] "
            "towers.document_model=m",
            [
                "train.learning_rate must",
                "unknown key run.sede",
                "memory.length_buckets must ascend",
                "towers.document_model has no effect",
            ],
        ),
        (
            TrainSettings,
            "train.warmup_fraction=0.2 train.warmup_steps=3 train.epochs=2.0 train.steps=5",
            ["train.warmup_fraction has no effect", "train.epochs has no effect"],
        ),
        (
            TrainSettings,
            "towers.kind=bad towers.store=s train.epochs=2.0 train.steps=5",
            ["towers.kind must", "train.epochs has no effect"],
        ),
        (
            TrainSettings,
            "train.loss=triplet train.loss.symmetric=true train.method.rank=3",
            [
                "train.loss.symmetric belongs",
                'train.method.rank has no effect with train.method.kind = "full"',
            ],
        ),
        (
            SuiteSettings,
            f"tasks=[{{{TASK},blank=3}},{{{TASK}}}]",
            ["tasks.blank of number 1 (a) must", "tasks.corpus_split of number 2 (a) has no effect"],
        ),
        (
            TuneSweepSettings,
            "variants=[{},{}]",
            ["variants.name of number 1 must be given", "variants.name of number 2 must be given"],
        ),
    ],
)
def test_every_table_tells_its_faults_in_one_go(
    kind: type[Section], assignments: str, faults: list[str]
) -> None:
    told = message(kind, table_of(kind, assignments))
    assert told.startswith(f"{len(faults)} faults: ")
    assert [part for part in faults if part not in told] == []


@pytest.mark.parametrize(
    ("kind", "wrong", "first", "others", "then"),
    [
        (
            TuneSettings,
            "tune.learning_rate=-1",
            "tune.learning_rate must",
            "tune.keep=last tune.idle_epochs=3",
            "tune.idle_epochs has no effect",
        ),
        (
            ScalingSettings,
            "train.batch_size=0",
            "train.batch_size must",
            "train.learning_rate=3e-4",
            "train.learning_rate must be left out of a scaling experiment",
        ),
        (
            TrainSettings,
            "train=3",
            "train must be a table",
            "run.compile=true memory.checkpointing=true",
            "memory.checkpointing must be false",
        ),
    ],
)
def test_a_combination_is_told_once_the_values_of_its_table_are_right(
    kind: type[Section], wrong: str, first: str, others: str, then: str
) -> None:
    for phrase, assignments in ((first, f"{wrong} {others}"), (then, others)):
        told = message(kind, table_of(kind, assignments))
        assert told.startswith(phrase)
        assert " faults: " not in told


@pytest.mark.parametrize(
    ("kind", "assignments"),
    [
        (TrainSettings, "train.keep=bad train.idle_epochs=3"),
        (TrainSettings, "train.steps=-1 train.warmup_steps=10 batches.token_budget=7"),
        (TrainSettings, "train.loss=bad memory.loss_tile=7"),
        (TrainSettings, "train.loss=mse towers.kind=asymmetric towers.frozen=bad"),
        (TrainSettings, 'data.sources=[{path="a",columns={query=""}},{path="a"}]'),
        (TuneSettings, "guard.action=back guard.limit=-1"),
        (TuneSettings, "rate_search.low=-1"),
        (PlanSettings, "plan.runs=3 plan.resamples=7 plan.memory=9"),
    ],
)
def test_no_told_combination_rests_on_a_wrong_value(kind: type[Section], assignments: str) -> None:
    assert " faults: " not in message(kind, table_of(kind, assignments))


def are_apart(key: str, other: str) -> bool:
    return not f"{key}.".startswith(f"{other}.") and not f"{other}.".startswith(f"{key}.")


PAIRS = [
    (kind, table, idle, wrong)
    for kind, table, keys in IDLE
    for idle in keys
    for wrong in keys_of(kind)
    if all(are_apart(wrong, other) for other in (idle, *dict(leaves(table))))
]


def test_a_wrong_value_is_told_whatever_else_is_wrong_and_no_told_need_rests_on_it() -> None:
    both = 0
    for kind, table, idle, wrong in random.Random(0).sample(PAIRS, 300):
        alone = message(kind, with_values(kind, table, [(idle, VALUES[idle])]))
        cause = alone.rpartition("faults: ")[2].partition("; ")[0]
        if "has no effect" not in cause:
            continue
        told = message(kind, with_values(kind, table, [(idle, VALUES[idle]), (wrong, [[]])]))
        above = re.escape(wrong.rpartition(".")[0])
        place = rf"({re.escape(wrong.removesuffix('.kind'))}(\.\w+)?|{above}) (must be|belongs to) "
        assert re.search(place, told), (wrong, told)
        assert cause not in told or f" {wrong} " not in f"{cause} ", (told, cause)
        both += cause in told
    assert both > 0
