"""All faults of a file are told at once: a wrong value hides no combination of settings, and no told
combination rests on it.
"""

import random
import re
from typing import Any

import pytest

from adiabat.config.budgets import PlanSettings, ScalingSettings
from adiabat.config.distillation import AblateSettings
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked, keys_of, leaves, with_values
from adiabat.config.section import Section
from adiabat.config.shared import EvaluateSettings
from adiabat.config.sweeps import TrainSweepSettings, TuneSweepSettings
from adiabat.config.tasks import SuiteSettings
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import ConfigError
from tests.config.test_ignored import IDLE, VALUES

IDLE_WRONG = {"learning_rate": -1, "keep": "last", "idle_epochs": 3}
RATE, IDLE_EPOCHS = "train.learning_rate must", "train.idle_epochs has no effect"
OF_GUARD = {"most": 0.1, "action": "back", "depth": -1}
TASK = {"kind": "retrieval", "data": "d", "corpus_split": "dev", "name": "a"}


def message(kind: type[Section], table: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        checked(kind, table)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "table", "faults"),
    [
        (TuneSettings, {"tune": IDLE_WRONG}, ["tune.learning_rate must", "tune.idle_epochs has no effect"]),
        (
            TrainSettings,
            {
                "train": {"learning_rate": -1, "idle_epochs": 3},
                "run": {"sede": 1},
                "memory": {"length_buckets": [3, 2]},
                "towers": {"document_model": "m"},
            },
            [
                RATE,
                IDLE_EPOCHS,
                "unknown key run.sede",
                "memory.length_buckets must ascend",
                "towers.document_model has no effect",
            ],
        ),
        (
            TrainSettings,
            {
                "train": {
                    "batch_size": 0,
                    "warmup_fraction": 0.2,
                    "warmup_steps": 3,
                    "epochs": 2.0,
                    "steps": 5,
                }
            },
            ["train.batch_size must", "train.warmup_fraction has no effect", "train.epochs has no effect"],
        ),
        (
            TrainSettings,
            {"towers": {"kind": "bad", "store": "s"}, "train": {"epochs": 2.0, "steps": 5}},
            [
                "towers.kind must",
                "towers.store has no effect with towers.frozen",
                "train.epochs has no effect",
            ],
        ),
        (
            TrainSettings,
            {
                "train": {
                    "loss": {"kind": "triplet", "symmetric": True},
                    "method": {"rank": 3},
                    "idle_epochs": 3,
                }
            },
            ["train.loss.symmetric belongs", "train.method.rank belongs", IDLE_EPOCHS],
        ),
        (
            TrainSettings,
            {"train": {"loss": {"guide": {}}, "idle_epochs": 3}},
            ["train.loss.guide.model must be given", IDLE_EPOCHS],
        ),
        (
            TrainSettings,
            {"train": 3, "run": {"compile": True}, "memory": {"checkpointing": True}},
            ["train must be a table", "memory.checkpointing must be false"],
        ),
        (
            EvaluateSettings,
            {"measure": {"resamples": -1, "depth": 7, "negatives": "listed"}},
            ["measure.resamples must", "measure.depth has no effect"],
        ),
        (
            PlanSettings,
            {"plan": {"budget": -1, "loss": "training", "resamples": 7}},
            ["plan.budget must", "plan.loss has no effect", "plan.resamples has no effect"],
        ),
        (
            ScalingSettings,
            {"train": {"learning_rate": "fast"}, "data": {"stream": {"shard_size": 5}}},
            ["train.learning_rate must", "data.stream must be left out of a scaling experiment"],
        ),
        (
            ScalingSettings,
            {"train": {"learning_rate": 3e-4, "batch_size": 0}},
            ["train.batch_size must", "train.learning_rate must be left out of a scaling experiment"],
        ),
        (
            SuiteSettings,
            {"tasks": [{**TASK, "blank": 3}, TASK]},
            [
                "tasks.blank of number 1 (a) must",
                "tasks.corpus_split of number 1 (a) has no effect",
                "tasks.corpus_split of number 2 (a) has no effect",
                "tasks must have names of their own",
            ],
        ),
        (
            AblateSettings,
            {"static": {"weighting": "zipf", "pooling": "mean"}},
            ["weighting.kind must", "static.pooling must be left out"],
        ),
        # A sweep has other defaults than its runs; the fault of its table is told once.
        (
            TrainSweepSettings,
            {"sweep": {"verb": "train"}, "train": {"learning_rate": -1, "batch_size": 0, "idle_epochs": 3}},
            [RATE, "train.batch_size must", IDLE_EPOCHS],
        ),
        (
            TuneSweepSettings,
            {"tune": {"idle_epochs": 3}, "grid": {"tune": {"learning_rate": [-1], "keep": ["last"]}}},
            ["tune.learning_rate must", "tune.idle_epochs has no effect"],
        ),
        (
            TuneSweepSettings,
            {"variants": [{"name": "a", "tune": IDLE_WRONG}], "sweep": {"sample": -1}},
            ["tune.learning_rate must", "tune.idle_epochs has no effect", "sweep.sample must"],
        ),
        (
            TuneSweepSettings,
            {"variants": [{}, {}]},
            ["variants.name of number 1 must be given", "variants.name of number 2 must be given"],
        ),
        # The present name of guard.most is guard.limit, without which guard.action would have no effect.
        (
            TuneSettings,
            {"guard": OF_GUARD, "ladder": {}, "tune": {"idle_epochs": 3, "keep": "last", "unknown": 1}},
            [
                "ladder is now rate_search, guard.most is now guard.limit;",
                "unknown key tune.unknown",
                "guard.depth must",
                "tune.idle_epochs has no effect",
            ],
        ),
        (
            TuneSweepSettings,
            {
                "grid": {"tune": {"pull": [0.1]}},
                "variants": [{"name": "a", "guard": {"most": 0.1}}],
                "sweep": {"sample": -1},
            },
            ["guard.most is now guard.limit, tune.pull is now tune.l2_to_start;", "sweep.sample must"],
        ),
    ],
)
def test_all_faults_are_told_at_once(kind: type[Section], table: dict[str, Any], faults: list[str]) -> None:
    told = message(kind, table)
    assert told.startswith(f"{len(faults)} faults: ")
    assert [fault for fault in faults if fault not in told] == []


@pytest.mark.parametrize(
    ("kind", "table"),
    [
        (TrainSettings, {"train": {"keep": "bad", "idle_epochs": 3}}),
        (TrainSettings, {"train": {"steps": -1, "warmup_steps": 10}, "batches": {"token_budget": 7}}),
        (TrainSettings, {"train": {"loss": "bad"}, "memory": {"loss_tile": 7}}),
        (TrainSettings, {"train": {"loss": "mse"}, "towers": {"kind": "asymmetric", "frozen": "bad"}}),
        (TrainSettings, {"data": {"sources": [{"path": "a", "columns": {"query": ""}}, {"path": "a"}]}}),
        (TuneSettings, {"guard": {"action": "back", "limit": -1}}),
        (TuneSettings, {"guard": {"most": 0.1, "action": "back"}}),
        (TuneSettings, {"rate_search": {"low": -1}}),
        (PlanSettings, {"plan": {"runs": 3, "resamples": 7, "memory": 9}}),
        (TuneSweepSettings, {"tune": {"idle_epochs": 3}, "grid": {"tune": {"keep": ["bad"]}}}),
    ],
)
def test_no_told_combination_rests_on_a_wrong_value(kind: type[Section], table: dict[str, Any]) -> None:
    assert " faults: " not in message(kind, table)


def are_apart(key: str, other: str) -> bool:
    return not f"{key}.".startswith(f"{other}.") and not f"{other}.".startswith(f"{key}.")


PAIRS = [
    (kind, table, idle, wrong)
    for kind, table, keys in IDLE
    for idle in keys
    for wrong in keys_of(kind)
    if all(are_apart(wrong, other) for other in (idle, *dict(leaves(table))))
]


def test_a_wrong_value_and_an_unmet_need_are_both_told_unless_the_need_rests_on_the_value() -> None:
    rests = 0
    for kind, table, idle, wrong in random.Random(0).sample(PAIRS, 300):
        alone = message(kind, with_values(kind, table, [(idle, VALUES[idle])]))
        cause = alone.rpartition("faults: ")[2].partition("; ")[0]
        if "has no effect" not in cause:
            continue
        told = message(kind, with_values(kind, table, [(idle, VALUES[idle]), (wrong, [[]])]))
        assert re.search(rf"{re.escape(wrong.removesuffix('.kind'))}(\.\w+)? (must be|belongs to) ", told), (
            wrong,
            told,
        )
        assert (cause in told) == (f" {wrong} " not in f"{cause} "), (told, cause)
        rests += cause not in told
    assert rests > 0
