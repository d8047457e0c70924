"""A setting that another one makes meaningless is refused by its name, in every settings class."""

import tomllib
from typing import Any

import pytest

from adiabat.config.budgets import PlanSettings
from adiabat.config.dataset_settings import MineSettings
from adiabat.config.distillation import (
    AblateSettings,
    DistillStaticSettings,
    FitSettings,
    MultilingualSettings,
)
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import assigned, checked, leaves, read_settings, with_values
from adiabat.config.section import Section, value_at
from adiabat.config.shared import EvaluateSettings
from adiabat.config.sweeps import TuneSweepSettings
from adiabat.config.tasks import SpaceSettings
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import ConfigError

VALUES: dict[str, Any] = dict(
    leaves(
        tomllib.loads("""
data = {validation_split = "dev", validation_fraction = 0.2, max_validation = 7, hold_out = "documents"}
measure = {depth = 7, drop_same_id = true}
tune = {idle_epochs = 3}
train = {idle_epochs = 3, warmup_fraction = 0.2, epochs = 2.0, steps = 5}
plan = {loss = "training", least_steps = 3, resamples = 7, measure = false}
judge = {store = "store", margin = 0.1}
static = {reduction.dims = 8, weighting.a = 1e-3, weighting.corpus = "corpus.jsonl"}
mixture = {rule.temperature = 3.0}
batches = {group.random_share = 0.3, group.curriculum_steps = 5}
rate_search = {checks = 3}
[towers]
document_model = "other"
frozen = "document"
store = "store"
targets = "store"
projection_width = 8
""")
    )
)
"""Settings with a value other than the default."""

IDLE: list[tuple[type[Section], dict[str, Any], tuple[str, ...]]] = [
    (kind, assigned(beside.split(), kind=kind), tuple(keys.split()))
    for kind, beside, keys in (
        (TrainSettings, "", "data.validation_split towers.document_model towers.frozen towers.store"),
        (TrainSettings, "", "mixture.rule.temperature batches.group.random_share train.idle_epochs"),
        (TrainSettings, "", "batches.group.curriculum_steps"),
        (TrainSettings, "data.validation=dev.jsonl", "data.validation_fraction data.max_validation"),
        (TrainSettings, "towers.kind=asymmetric", "towers.store towers.targets"),
        (TrainSettings, "towers.kind=asymmetric towers.frozen=query", "towers.store"),
        (TrainSettings, "towers.kind=shared_projection", "towers.frozen towers.store towers.targets"),
        (TrainSettings, "towers.projection_start=start.npy", "towers.projection_width"),
        (TrainSettings, "train.warmup_steps=3", "train.warmup_fraction"),
        (TrainSettings, "train.steps=9", "train.epochs"),
        (TrainSettings, "train.budget_flops=1e9", "train.epochs train.steps"),
        (TrainSettings, "train.budget_seconds=9.0", "train.epochs"),
        (TuneSettings, "", "data.validation_split"),
        (
            TuneSettings,
            "data.validation=dev.jsonl",
            "data.validation_fraction data.max_validation data.hold_out",
        ),
        (TuneSettings, "rate_search=range", "rate_search.checks"),
        (TuneSettings, "tune.keep=last", "tune.idle_epochs"),
        (EvaluateSettings, "measure.negatives=listed", "measure.depth measure.drop_same_id"),
        (PlanSettings, "", "plan.loss plan.least_steps plan.resamples plan.measure"),
        (MineSettings, "", "judge.store judge.margin"),
        (DistillStaticSettings, "static.reduction=none", "static.reduction.dims"),
        (DistillStaticSettings, "static.weighting=none", "static.weighting.a static.weighting.corpus"),
        (DistillStaticSettings, "static.weighting=zipf", "static.weighting.a"),
        (MultilingualSettings, "mixture.rule=equal", "mixture.rule.temperature"),
    )
]
"""Settings that have no effect beside those of a table, which may be empty."""


@pytest.mark.parametrize(
    ("kind", "table", "key"), [(kind, table, key) for kind, table, keys in IDLE for key in keys]
)
def test_a_setting_without_effect_is_refused_by_name(
    kind: type[Section], table: dict[str, Any], key: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        checked(kind, with_values(kind, table, [(key, VALUES[key])]))
    assert key.rpartition(".")[0] in str(caught.value)
    assert ("; leave it out, or " in str(caught.value)) == (kind is not MineSettings)
    checked(kind, table)


FROZEN, ASYMMETRIC = 'towers.frozen = "document"', 'towers.kind = "asymmetric"'
CORPUS = "static.weighting.corpus must be given"
LAST, KEPT = '.keep = "last"', '"best" or "both"'
MENDED: dict[type[Section], list[tuple[str, str, str]]] = {
    TrainSettings: [
        ("train.steps=3 train.budget_flops=1e9", "train.budget_flops", "leave out train.budget_flops"),
        ("train.epochs=3 train.budget_seconds=9", "train.budget_seconds", "leave out train.budget_seconds"),
        ("train.warmup_fraction=0.3 train.warmup_steps=1", "warmup_steps", "leave out train.warmup_steps"),
        ("train.idle_epochs=3", f"train{LAST}", f"set train.keep = {KEPT}"),
        ("towers.kind=asymmetric towers.frozen=query towers.store=s", 'frozen = "query"', f"set {FROZEN}"),
        ("towers.store=s", 'kind = "shared" and with towers.frozen', f"set {ASYMMETRIC} and set {FROZEN}"),
        (
            "train.loss.guide=self train.loss.guide.relative=true",
            "margin = 0.0",
            "change train.loss.guide.margin",
        ),
    ],
    FitSettings: [("train.idle_epochs=3 train.keep=last", f"train{LAST}", f"set train.keep = {KEPT}")],
    AblateSettings: [
        ("fit.idle_epochs=3 fit.keep=last", f"fit{LAST}", f"set fit.keep = {KEPT}"),
        ("static.weighting=zipf", 'static.weighting.kind must be "sif" in an ablation', "leave it out"),
    ],
    TuneSettings: [
        ("tune.idle_epochs=3 tune.keep=last", f"tune{LAST}", 'set tune.keep = "ranking" or "both" or "loss"'),
        ("rate_search=safe tune.learning_rate=1e-7", "with rate_search", "leave out rate_search"),
        ("guard.action=back", "without guard.limit", "set guard.limit"),
        ("data.validation_split=dev", "without data.validation", "set data.validation"),
    ],
    MineSettings: [
        ("mine.source=dense bm25.k1=1.2", 'source = "dense"', 'set mine.source = "bm25" or "fused"')
    ],
    PlanSettings: [
        ("plan.runs=r plan.measure=false run.device=cpu", "measure = false", "set plan.measure = true"),
    ],
    DistillStaticSettings: [
        (
            "static.weighting=zipf static.weighting.a=0.1",
            'kind = "zipf"',
            'set static.weighting.kind = "sif"',
        ),
        ("static.weighting=tfidf", CORPUS, "add corpus, or set static.weighting"),
    ],
}
"""Settings that refuse each other, the cause, and the change that mends it."""


@pytest.mark.parametrize(
    ("kind", "assignments", "cause", "remedy"),
    [(kind, *row) for kind, rows in MENDED.items() for row in rows],
)
def test_a_refusal_names_each_change_that_mends_it(
    kind: type[Section], assignments: str, cause: str, remedy: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings(kind, None, assignments.split())
    assert cause in str(caught.value).partition(";")[0]
    assert str(caught.value).endswith(remedy) or f"; {remedy}" in str(caught.value)


def test_every_setting_is_tried() -> None:
    assert {key for _, _, keys in IDLE for key in keys} == set(VALUES)


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (TuneSettings, "guard.use"),
        (TuneSettings, "rehearsal.use"),
        (TuneSweepSettings, "probes.use"),
        (TrainSettings, "data.window"),
        (SpaceSettings, "space.map_queries"),
        (SpaceSettings, "space.perplexity"),
    ],
)
def test_switches_inside_a_table_are_gone(kind: type[Section], key: str) -> None:
    section, _, name = key.partition(".")
    with pytest.raises(ConfigError, match=rf"unknown key {key}; |settings of adiabat 0.1: {key} is now "):
        checked(kind, {section: {name: 40}})


@pytest.mark.parametrize(
    ("kind", "section", "key"),
    [
        (TuneSettings, "guard", "depth"),
        (TuneSettings, "rehearsal", "weight"),
        (TuneSweepSettings, "probes", "depth"),
        (TrainSettings, "data.stream", "shard_size"),
        (SpaceSettings, "space.map", "queries"),
    ],
)
def test_a_setting_of_an_optional_table_switches_it_on(kind: type[Section], section: str, key: str) -> None:
    more = ["train.steps=3", "data.validation=dev.jsonl"] if kind is TrainSettings else []
    switched, given, off = (
        value_at(read_settings(kind, None, [*more, line]), section)
        for line in (f"{section}=true", f"{section}.{key}=200", f"{section}=false")
    )
    assert (getattr(switched, key) == 200, getattr(given, key), off) == (False, 200, None)


def test_a_table_that_is_switched_off_takes_no_key_beside_it() -> None:
    with pytest.raises(ConfigError, match=r"guard.limit has no effect with guard = false; leave one out"):
        read_settings(TuneSettings, None, ["guard=false", "guard.limit=0.1"])
    on = read_settings(TuneSettings, None, ["guard.limit=0.1", "guard=true"]).guard
    assert on is not None
    assert on.limit == 0.1
