"""From the settings of a scaling experiment to its runs."""

from typing import Any

import pytest

from adiabat.config.budgets import ScalingSettings
from adiabat.config.reader import checked
from adiabat.config.training_choices import Method, Schedule
from adiabat.core.errors import ConfigError
from adiabat.experiments.experiment_checks import lawless
from adiabat.experiments.grid import trials_of_scaling, ways_of, without_freezing

BLOCKS = {"small": 4, "large": 12}


def settings(**tables: Any) -> ScalingSettings:
    """A scaling experiment of two models with every method."""
    plain: dict[str, Any] = {
        "scaling": {"budgets": [4e12, 1e12], "seeds": [0, 1]},
        "models": [
            {"model": "small", "pretraining_rate": 1e-3},
            {"model": "large", "blocks": [2, 8], "pretraining_rate": 6e-4},
        ],
        "methods": {"freezing": [0.25, 0.5], "bias": True, "lora": [8, 32]},
        "job": {"data": "pairs.jsonl"},
    }
    return checked(ScalingSettings, {**plain, **tables})


def test_every_model_is_trained_by_every_method() -> None:
    titles = [way.way.title for way in ways_of(settings(), BLOCKS.__getitem__)]
    assert titles == [
        "small, full",
        "small, freezing 1",
        "small, freezing 2",
        "small, bias",
        "small, lora 8",
        "small, lora 32",
        "large, 2 blocks, full",
        # A quarter of two blocks is none, so that half of them is the only share.
        "large, 2 blocks, freezing 1",
        "large, 2 blocks, bias",
        "large, 2 blocks, lora 8",
        "large, 2 blocks, lora 32",
        "large, 8 blocks, full",
        "large, 8 blocks, freezing 2",
        "large, 8 blocks, freezing 4",
        "large, 8 blocks, bias",
        "large, 8 blocks, lora 8",
        "large, 8 blocks, lora 32",
    ]


def test_rates_follow_the_rules_of_the_source() -> None:
    rates = {way.way.title: way.learning_rate for way in ways_of(settings(), BLOCKS.__getitem__)}
    assert rates["small, full"] == rates["small, freezing 2"] == pytest.approx(1e-4)
    assert rates["large, 8 blocks, full"] == pytest.approx(6e-5)
    assert rates["small, lora 8"] == 1e-3
    assert rates["small, bias"] == 1e-2
    own = ways_of(settings(rates={"full": 5e-5, "lora": 2e-3}), BLOCKS.__getitem__)
    assert {way.learning_rate for way in own if way.way.method in ("full", "freezing")} == {5e-5}
    assert {way.learning_rate for way in own if way.way.method == "lora"} == {2e-3}


def test_runs_are_what_train_would_be_told_small_budgets_first() -> None:
    scaling = settings(train={"batch_size": 32}, encoder={"pooling": "mean", "max_tokens": 75})
    runs = trials_of_scaling(scaling, ways_of(scaling, BLOCKS.__getitem__))
    assert len(runs) == 17 * 2 * 2
    assert len({run.name for run in runs}) == len(runs)
    assert [run.budget for run in runs] == [1e12] * 34 + [4e12] * 34
    assert [run.seed for run in runs[:34]] == [0] * 17 + [1] * 17
    frozen = next(run for run in runs if run.name == "large, 8 blocks, freezing 4, 4e+12 FLOP, seed 1")
    train = frozen.settings.train
    assert (
        frozen.settings.job.model,
        frozen.settings.encoder.blocks,
        frozen.settings.encoder.max_tokens,
    ) == ("large", 8, 75)
    assert (train.method.kind, train.freeze) == ("full", ("embeddings", "blocks[0:4]"))
    assert (
        train.budget_flops,
        train.batch_size,
        frozen.settings.run.seed,
        frozen.settings.run.log_every,
    ) == (4e12, 32, 1, 1)
    adapted = next(run for run in runs if "lora 32" in run.name).settings.train
    assert (adapted.method, adapted.freeze) == (Method(kind="lora", rank=32), ())


def test_the_regime_is_the_sources_unless_something_else_is_said() -> None:
    def train(**section: Any) -> Any:
        scaling = settings(train=section)
        return trials_of_scaling(scaling, ways_of(scaling, BLOCKS.__getitem__))[0].settings.train

    usual = train()
    assert (usual.loss.temperature.value, usual.weight_decay, usual.schedule) == (
        1 / 40,
        0.1,
        Schedule(kind="cosine", final_fraction=0.1),
    )
    assert (usual.warmup_fraction, usual.loss.symmetric, usual.optimizer) == (0.1, True, "adamw")
    assert train(schedule="constant").schedule.kind == "constant"
    assert train(loss={"temperature": 0.05}).loss.temperature.value == 0.05


def test_budgets_that_print_alike_have_runs_of_their_own() -> None:
    close = settings(scaling={"budgets": [1.2345678e12, 1.2345679e12, 2e12]}, methods={})
    names = [run.name for run in trials_of_scaling(close, ways_of(close, BLOCKS.__getitem__)[:1])]
    assert names == [
        f"small, full, {budget} FLOP, seed 0" for budget in ("1234567800000.0", "1234567900000.0", "2e+12")
    ]


def test_names_that_make_the_same_runs_are_told() -> None:
    models = [{"model": "small", "name": "s", "blocks": [2]}, {"model": "large", "name": "s, 2 blocks"}]
    alike = settings(models=models, rates={"full": 1e-3})
    with pytest.raises(
        ConfigError,
        match=r"^models must have names that tell their runs apart, got s, 2 blocks, full twice; give one",
    ):
        ways_of(alike, BLOCKS.__getitem__)


def test_shares_that_make_no_run_are_told_with_the_models() -> None:
    models = [
        {"model": "small", "blocks": [1, 3], "pretraining_rate": 1e-3},
        {"model": "large", "pretraining_rate": 1e-3},
    ]
    scaling = settings(models=models, methods={"freezing": [0.5, 0.25]})
    assert without_freezing(scaling, BLOCKS.__getitem__) == [
        "methods.freezing = 0.5 makes no run of small of 1 blocks: the share rounds to none or all of them",
        "methods.freezing = 0.25 makes no run of small of 1 blocks: the share rounds to none or all of them",
    ]
    frozen = [
        one.way.frozen
        for one in ways_of(scaling, BLOCKS.__getitem__)
        if one.way.method == "freezing" and one.way.blocks == 3
    ]
    # Halves go up.
    assert frozen == [2, 1]


def test_too_many_blocks_are_told() -> None:
    scaling = settings(models=[{"model": "small", "blocks": [2, 5], "pretraining_rate": 1e-3}])
    with pytest.raises(
        ConfigError, match=r"^models.blocks of small must be at most 4, which it has, got 5; leave it out$"
    ):
        ways_of(scaling, BLOCKS.__getitem__)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            {"train": {"learning_rate": 1e-3}},
            "train.learning_rate must be left out of a scaling experiment, which "
            "gives each run its own; leave it out",
        ),
        (
            {"train": {"steps": 3}},
            "train.steps must be left out of a scaling experiment, which "
            "gives each run its own; leave it out",
        ),
        (
            {"train": {"freeze": ["embeddings"]}},
            "train.freeze must be left out of a scaling experiment, which "
            "gives each run its own; leave it out",
        ),
        (
            {"encoder": {"blocks": 3}},
            "encoder.blocks must be left out of a scaling experiment, which "
            "gives each run its own; leave it out",
        ),
        (
            {"methods": {"full": False}},
            "methods must name at least one, got none; set methods.full = true, or list ranks",
        ),
        ({"methods": {"freezing": [1.0]}}, "methods.freezing must be < 1, got 1.0"),
        ({"methods": {"lora": [8, 8]}}, "methods.lora must be a list that names each rank once, got [8, 8]"),
        (
            {"scaling": {"budgets": [1e12, 1e12]}},
            "scaling.budgets must be a list that names each budget once, got ",
        ),
        ({"scaling": {"resamples": 1}}, "scaling.resamples must be >= 2, got 1"),
        (
            {"tasks": [{"kind": "retrieval", "name": "mean of all", "data": "a.jsonl", "corpus": "b.jsonl"}]},
            "tasks must have names of their own, got 'mean of all' more than once",
        ),
        ({"scaling": {"budgets": [-1.0]}}, "scaling.budgets must be > 0, got -1"),
        (
            {"models": [{"model": "small"}]},
            "models.pretraining_rate of small must be given without rates.full, got none; full training and ",
        ),
    ],
)
def test_what_makes_no_scaling_is_told(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(**tables)
    assert message in str(caught.value)


def test_runs_that_can_give_no_law_are_told_beforehand() -> None:
    models = [{"model": "a", "pretraining_rate": 1e-3, "blocks": [1, 2]}]
    few = checked(
        ScalingSettings,
        {"models": models, "scaling": {"budgets": [1e9, 2e9]}, "methods": {"full": True, "lora": []}},
    )
    told = [*lawless(few)]
    assert len(told) == 1
    assert (
        "full: these runs will give no law, which needs at least 6 runs, got 4 and at least 3 sizes, got 2"
        in told[0]
    )
    enough = {
        "models": [{**models[0], "blocks": [1, 2, 3]}],
        "scaling": {"budgets": [1e9, 2e9]},
        "methods": {"full": True, "lora": []},
    }
    assert [*lawless(checked(ScalingSettings, enough))] == []
    one = {**enough, "scaling": {"budgets": [1e9], "seeds": [0, 1]}}
    assert ["several budgets, got 1" in note for note in lawless(checked(ScalingSettings, one))] == [True]
