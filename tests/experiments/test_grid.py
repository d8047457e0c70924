"""From the settings of a sweep or a scaling experiment to its runs, and what they are called."""

from pathlib import Path
from typing import Any

import pytest

from adiabat.config.budgets import ScalingSettings
from adiabat.config.reader import checked, read_settings, read_table
from adiabat.config.sweeps import SweepSettings, TuneSweepSettings, sweep_kind
from adiabat.config.training_choices import Method, Schedule
from adiabat.core.errors import ConfigError
from adiabat.evaluation.score_files import run_folder_name
from adiabat.experiments.experiment_checks import lawless
from adiabat.experiments.grid import trials_of_scaling, trials_of_sweep, ways_of, without_freezing
from adiabat.experiments.sweep_trials import rows_at


def sweep_of(**tables: Any) -> TuneSweepSettings:
    """Settings, checked."""
    return checked(TuneSweepSettings, tables)


def names_of(**tables: Any) -> list[str]:
    """Names of the runs of a sweep."""
    return [run.name for run in trials_of_sweep(sweep_of(**tables))]


# --- Sweeps ---


GRID = {"tune": {"learning_rate": [1e-8, 5e-8], "batch_size": [7, 14]}}


def test_every_combination_is_run_seed_by_seed() -> None:
    runs = trials_of_sweep(sweep_of(grid=GRID, sweep={"seeds": [0, 3]}))
    assert [run.name for run in runs[:4]] == [
        "learning_rate=1e-08, batch_size=7, seed=0",
        "learning_rate=1e-08, batch_size=14, seed=0",
        "learning_rate=5e-08, batch_size=7, seed=0",
        "learning_rate=5e-08, batch_size=14, seed=0",
    ]
    assert [run.seed for run in runs] == [0] * 4 + [3] * 4
    assert [(run.settings.tune.learning_rate, run.settings.tune.batch_size) for run in runs[:3]] == [
        (1e-8, 7),
        (1e-8, 14),
        (5e-8, 7),
    ]


def test_without_grid_or_variants_there_is_one_run_for_each_seed() -> None:
    assert names_of(sweep={"seeds": [0, 1]}) == ["seed=0", "seed=1"]


def test_variants_are_laid_over_the_common_settings_and_the_grid_over_them() -> None:
    variants = [{"name": "sgd", "tune": {"optimizer": "sgd", "weight_decay": 0.0}}, {"name": "adamw"}]
    runs = trials_of_sweep(
        sweep_of(tune={"loss": {"margin": 0.2}}, variants=variants, grid={"tune": {"learning_rate": [1e-3]}})
    )
    found = [(run.variant, run.tuned.tune) for run in runs]
    assert [(variant, tune.optimizer, tune.loss.margin, tune.learning_rate) for variant, tune in found] == [
        ("sgd", "sgd", 0.2, 1e-3),
        ("adamw", "adamw", 0.2, 1e-3),
    ]
    assert runs[0].name == "sgd, learning_rate=0.001, seed=0"


def test_lists_are_named_by_what_they_hold() -> None:
    runs = trials_of_sweep(sweep_of(grid={"tune": {"freeze": [[], ["embeddings", "blocks[0]"]]}}))
    assert [run.name for run in runs] == ["freeze=none, seed=0", "freeze=embeddings+blocks[0], seed=0"]
    assert [run.varied["tune.freeze"] for run in runs] == [[], ["embeddings", "blocks[0]"]]


def test_an_optional_table_is_switched_alike_in_each_form() -> None:
    """Runs go by what is switched, however it is written: as true, as a table without keys, or as none."""
    variants = [{"name": "on", "rehearsal": {}}, {"name": "off", "guard": None}]
    settings = sweep_of(guard={"limit": 0.1}, variants=variants, grid={"tune": {"learning_rate": [1e-8]}})
    assert [variant.own for variant in settings.variants] == [{"rehearsal": True}, {"guard": False}]
    runs = [run.settings for run in trials_of_sweep(settings)]
    assert [(run.rehearsal is not None, run.guard and run.guard.limit) for run in runs] == [
        (True, 0.1),
        (False, None),
    ]
    for on in ({}, True):
        assert names_of(grid={"rehearsal": [on, False]}) == [
            "rehearsal=True, seed=0",
            "rehearsal=False, seed=0",
        ]
    guarded = trials_of_sweep(sweep_of(guard={"limit": 0.1}, grid={"guard": [True, False]}))
    assert [run.settings.guard and run.settings.guard.limit for run in guarded] == [0.1, None]


def test_probes_that_are_off_are_off_in_the_settings_of_a_result() -> None:
    recorded = sweep_of(probes=False).recorded()
    assert recorded["probes"] is False
    assert checked(TuneSweepSettings, recorded).probes is None
    assert "guard" not in recorded


def test_a_sample_is_drawn_by_the_seed_and_keeps_the_order_of_the_grid() -> None:
    every, drawn = names_of(grid=GRID), names_of(grid=GRID, sweep={"sample": 2})
    assert len(drawn) == 2
    assert drawn == [name for name in every if name in drawn]
    assert drawn == names_of(grid=GRID, sweep={"sample": 2})
    assert names_of(grid=GRID, sweep={"sample": 9}) == every


WIDE = {"low": 1e-9, "high": 1e-1, "count": 1000}
ENDLESS = {
    "tune": {
        "loss": {"margin": {**WIDE, "low": 1e-8}},
        "learning_rate": WIDE,
        "weight_decay": {**WIDE, "low": 1e-7},
    }
}
"""A grid of more combinations than memory holds."""


def test_a_sample_of_an_endless_grid_is_drawn() -> None:
    assert len(set(names_of(grid=ENDLESS, sweep={"sample": 3, "seeds": [0, 1]}))) == 6


def test_values_that_differ_in_their_last_digits_are_runs_of_their_own() -> None:
    names = names_of(grid={"tune": {"learning_rate": [1e-4, 1.0000001e-4, 1.0000002e-4]}})
    assert names == [f"learning_rate={rate}, seed=0" for rate in ("0.0001", "0.00010000001", "0.00010000002")]


WEIGHTS = {"rehearsal": {"weight": [1.0, 2.0]}}


@pytest.mark.parametrize(
    ("tables", "facts"),
    [
        (
            {"variants": [{"name": "a", "rehearsal": True}, {"name": "b", "rehearsal": {}}]},
            ["variants must differ, got 'a' and 'b'"],
        ),
        ({"grid": {"rehearsal": [True, {}]}}, ["grid.rehearsal must name each value once"]),
        (
            {"grid": WEIGHTS, "rehearsal": False},
            ["grid.rehearsal.weight has no effect with rehearsal = false"],
        ),
        (
            {"grid": WEIGHTS, "variants": [{"name": "a", "rehearsal": False}, {"name": "b"}]},
            ["grid.rehearsal.weight has no effect with rehearsal = false"],
        ),
        ({"grid": ENDLESS}, ["at most 100,000 runs, got 1,000,000,000", "sweep.sample"]),
        pytest.param(
            {"grid": {"tune": {"freeze": [["blocks.0+embeddings"], ["blocks.0", "embeddings"]]}}},
            ["names of their own, got several: freeze=blocks.0+embeddings, seed=0; rename"],
            id="two runs of one name",
        ),
        # Each value is sound beside the first of the others, so that only the whole grid shows it.
        pytest.param(
            {"grid": {"tune": {"max_epochs": [10, 1], "warmup_steps": [0, 5000]}}},
            ["max_epochs=1, warmup_steps=5000, seed=0: tune.warmup_steps must be at most"],
            id="a combination that makes no run",
        ),
    ],
)
def test_sweeps_that_make_no_runs_are_refused(tables: dict[str, Any], facts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        trials_of_sweep(sweep_of(**tables))
    assert [fact for fact in facts if fact not in str(caught.value)] == [], caught.value


@pytest.mark.parametrize(
    "names",
    [
        ["a/b, seed=0", "a b, seed=0"],
        ["→, seed=0", "←, seed=0"],
        ["A, seed=0", "a, seed=0"],
        ["x" * 200 + ", seed=0", "x" * 200 + ", seed=1"],
        [f"{'learning_rate=1e-08, ' * 9}seed={seed}" for seed in (0, 1)],
        ["a, x=1, seed=0", "a-x-1, seed=0"],
        ["freeze=blocks[0], seed=0", "freeze=blocks(0), seed=0"],
        ["untuned", "untuned, seed=0"],
    ],
)
def test_every_run_has_a_folder_of_its_own(names: list[str]) -> None:
    folders = [run_folder_name(name) for name in names]
    assert len({folder.casefold() for folder in folders}) == 2
    assert all(len(folder.encode()) < 150 and "/" not in folder for folder in folders)


def test_a_run_of_plain_values_has_a_folder_that_says_so() -> None:
    folder = run_folder_name("learning_rate=1e-08, batch_size=7, seed=0")
    assert folder == "learning_rate-1e-08-batch_size-7-seed-0"


def test_a_variant_has_a_grid_of_its_own_and_every_run_says_what_it_took_of_what_any_varies() -> None:
    variants = [
        {"name": "full", "grid": {"tune": {"learning_rate": [1e-7, 1e-6]}}},
        {"name": "pulled", "tune": {"learning_rate": 1e-6}, "grid": {"tune": {"l2_to_start": [0.1, 1.0]}}},
    ]
    runs = trials_of_sweep(sweep_of(variants=variants, grid={"tune": {"loss": {"margin": [0.2]}}}))
    assert [run.name for run in runs] == [
        "full, margin=0.2, learning_rate=1e-07, seed=0",
        "full, margin=0.2, learning_rate=1e-06, seed=0",
        "pulled, margin=0.2, l2_to_start=0.1, seed=0",
        "pulled, margin=0.2, l2_to_start=1, seed=0",
    ]
    assert [run.varied for run in runs[1:3]] == [
        {"tune.loss.margin": 0.2, "tune.learning_rate": 1e-6, "tune.l2_to_start": 0.0},
        {"tune.loss.margin": 0.2, "tune.learning_rate": 1e-6, "tune.l2_to_start": 0.1},
    ]


def test_what_has_no_effect_on_a_run_is_no_value_of_it() -> None:
    taught = {"rehearsal": {"texts": "a.txt"}, "grid": {"rehearsal": {"weight": [1.0]}}}
    runs = trials_of_sweep(sweep_of(variants=[{"name": "plain"}, {"name": "taught", **taught}]))
    assert [run.varied["rehearsal.weight"] for run in runs] == [None, 1.0]


BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("path", sorted((BENCHMARKS / "sweeps").glob("*.toml")), ids=lambda path: path.stem)
def test_the_specs_of_published_sweeps_load_and_their_rows_are_read(path: Path) -> None:
    kind = sweep_kind(read_table(path, SweepSettings))
    assert trials_of_sweep(read_settings(kind, path))
    assert rows_at(path.with_suffix("") / "runs.parquet").every


@pytest.mark.parametrize("path", sorted((BENCHMARKS / "scaling").glob("*.toml")), ids=lambda path: path.stem)
def test_the_specs_of_published_scaling_experiments_load(path: Path) -> None:
    assert read_settings(ScalingSettings, path).scaling.budgets


# --- Scaling experiments ---


BLOCKS = {"small": 4, "large": 12}


def scaling_of(**tables: Any) -> ScalingSettings:
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
    titles = [way.way.title for way in ways_of(scaling_of(), BLOCKS.__getitem__)]
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
    rates = {way.way.title: way.learning_rate for way in ways_of(scaling_of(), BLOCKS.__getitem__)}
    assert rates["small, full"] == rates["small, freezing 2"] == pytest.approx(1e-4)
    assert rates["large, 8 blocks, full"] == pytest.approx(6e-5)
    assert rates["small, lora 8"] == 1e-3
    assert rates["small, bias"] == 1e-2
    own = ways_of(scaling_of(rates={"full": 5e-5, "lora": 2e-3}), BLOCKS.__getitem__)
    assert {way.learning_rate for way in own if way.way.method in ("full", "freezing")} == {5e-5}
    assert {way.learning_rate for way in own if way.way.method == "lora"} == {2e-3}


def test_runs_are_what_train_would_be_told_small_budgets_first() -> None:
    scaling = scaling_of(train={"batch_size": 32}, encoder={"pooling": "mean", "max_tokens": 75})
    runs = trials_of_scaling(scaling, ways_of(scaling, BLOCKS.__getitem__))
    assert len(runs) == 17 * 2 * 2
    assert len({run.name for run in runs}) == len(runs)
    assert [run.budget for run in runs] == [1e12] * 34 + [4e12] * 34
    assert [run.seed for run in runs[:34]] == [0] * 17 + [1] * 17
    frozen = next(run for run in runs if run.name == "large, 8 blocks, freezing 4, 4e+12 FLOP, seed 1")
    train = frozen.settings.train
    encoder, own = frozen.settings.encoder, frozen.settings.run
    assert (frozen.settings.job.model, encoder.blocks, encoder.max_tokens) == ("large", 8, 75)
    assert (train.method.kind, train.freeze) == ("full", ("embeddings", "blocks[0:4]"))
    assert (train.budget_flops, train.batch_size, own.seed, own.log_every) == (4e12, 32, 1, 1)
    adapted = next(run for run in runs if "lora 32" in run.name).settings.train
    assert (adapted.method, adapted.freeze) == (Method(kind="lora", rank=32), ())


def test_the_regime_is_the_sources_unless_something_else_is_said() -> None:
    def train(**section: Any) -> Any:
        scaling = scaling_of(train=section)
        return trials_of_scaling(scaling, ways_of(scaling, BLOCKS.__getitem__))[0].settings.train

    usual = train()
    assert (usual.loss.temperature.value, usual.weight_decay) == (1 / 40, 0.1)
    assert usual.schedule == Schedule(kind="cosine", final_fraction=0.1)
    assert (usual.warmup_fraction, usual.loss.symmetric, usual.optimizer) == (0.1, True, "adamw")
    assert train(schedule="constant").schedule.kind == "constant"
    assert train(loss={"temperature": 0.05}).loss.temperature.value == 0.05


def test_budgets_that_print_alike_have_runs_of_their_own() -> None:
    close = scaling_of(scaling={"budgets": [1.2345678e12, 1.2345679e12, 2e12]}, methods={})
    names = [run.name for run in trials_of_scaling(close, ways_of(close, BLOCKS.__getitem__)[:1])]
    assert names == [
        f"small, full, {budget} FLOP, seed 0" for budget in ("1234567800000.0", "1234567900000.0", "2e+12")
    ]


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        pytest.param(
            {
                "models": [
                    {"model": "small", "name": "s", "blocks": [2]},
                    {"model": "large", "name": "s, 2 blocks"},
                ],
                "rates": {"full": 1e-3},
            },
            "models must have names that tell their runs apart, got s, 2 blocks, full twice",
            id="two names of the same runs",
        ),
        pytest.param(
            {"models": [{"model": "small", "blocks": [2, 5], "pretraining_rate": 1e-3}]},
            "models.blocks of small must be at most 4, which it has, got 5",
            id="too many blocks",
        ),
        pytest.param(
            {"methods": {"full": False, "freezing": [0.01]}},
            "methods must leave a run, got only shares of frozen blocks",
            id="shares that freeze nothing",
        ),
    ],
)
def test_models_that_do_not_suit_are_refused(tables: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ways_of(scaling_of(**tables), BLOCKS.__getitem__)
    assert str(caught.value).startswith(told)


def test_shares_that_make_no_run_are_told_with_the_models() -> None:
    models = [
        {"model": "small", "blocks": [1, 3], "pretraining_rate": 1e-3},
        {"model": "large", "pretraining_rate": 1e-3},
    ]
    scaling = scaling_of(models=models, methods={"freezing": [0.5, 0.25]})
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


OWN = "must be left out of a scaling experiment, which gives each run its own"


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"train": {"learning_rate": 1e-3}}, f"train.learning_rate {OWN}"),
        ({"train": {"steps": 3}}, f"train.steps {OWN}"),
        ({"train": {"freeze": ["embeddings"]}}, f"train.freeze {OWN}"),
        ({"encoder": {"blocks": 3}}, f"encoder.blocks {OWN}"),
        ({"methods": {"full": False}}, "methods must name at least one, got none; set methods.full = true"),
        ({"methods": {"freezing": [1.0]}}, "methods.freezing must be < 1, got 1.0"),
        ({"methods": {"lora": [8, 8]}}, "methods.lora must be a list that names each rank once, got [8, 8]"),
        (
            {"scaling": {"budgets": [1e12, 1e12]}},
            "scaling.budgets must be a list that names each budget once",
        ),
        ({"scaling": {"resamples": 1}}, "scaling.resamples must be >= 2, got 1"),
        (
            {"tasks": [{"kind": "retrieval", "name": "mean of all", "data": "a.jsonl", "corpus": "b.jsonl"}]},
            "tasks must have names of their own, got 'mean of all' more than once",
        ),
        ({"scaling": {"budgets": [-1.0]}}, "scaling.budgets must be > 0, got -1"),
        (
            {"models": [{"model": "small"}]},
            "models.pretraining_rate of small must be given without rates.full, got none",
        ),
    ],
)
def test_what_makes_no_scaling_is_told(tables: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        scaling_of(**tables)
    assert told in str(caught.value)


def test_runs_that_can_give_no_law_are_told_beforehand() -> None:
    def notes(blocks: list[int], **scaling: list[float]) -> list[str]:
        models = [{"model": "a", "pretraining_rate": 1e-3, "blocks": blocks}]
        return list(lawless(checked(ScalingSettings, {"models": models, "scaling": scaling})))

    (few,) = notes([1, 2], budgets=[1e9, 2e9])
    assert few.startswith("a, full: these runs will give no law")
    assert "at least 6 runs, got 4 and at least 3 sizes, got 2" in few
    assert notes([1, 2, 3], budgets=[1e9, 2e9]) == []
    (one,) = notes([1, 2, 3], budgets=[1e9], seeds=[0, 1])
    assert "several budgets, got 1" in one
