"""Which runs a sweep consists of, and what they are called."""

from pathlib import Path
from typing import Any

import pytest

from adiabat.config.budgets import ScalingSettings
from adiabat.config.reader import checked, read_settings, read_table
from adiabat.config.sweeps import SweepSettings, TuneSweepSettings, sweep_kind
from adiabat.core.errors import ConfigError
from adiabat.evaluation.score_files import run_folder_name
from adiabat.experiments.grid import trials_of_sweep
from adiabat.experiments.sweep_trials import rows_at


def sweep_of(**tables: Any) -> TuneSweepSettings:
    """Settings, checked."""
    return checked(TuneSweepSettings, tables)


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
    assert [run.name for run in trials_of_sweep(sweep_of(sweep={"seeds": [0, 1]}))] == ["seed=0", "seed=1"]


def test_variants_are_laid_over_the_common_settings_and_the_grid_over_them() -> None:
    variants = [{"name": "sgd", "tune": {"optimizer": "sgd", "weight_decay": 0.0}}, {"name": "adamw"}]
    runs = trials_of_sweep(
        sweep_of(tune={"loss": {"margin": 0.2}}, variants=variants, grid={"tune": {"learning_rate": [1e-3]}})
    )
    found = [
        (
            run.variant,
            run.settings.tune.optimizer,
            run.settings.tune.loss.margin,
            run.settings.tune.learning_rate,
        )
        for run in runs
    ]
    assert found == [("sgd", "sgd", 0.2, 1e-3), ("adamw", "adamw", 0.2, 1e-3)]
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
    assert [
        [run.name for run in trials_of_sweep(sweep_of(grid={"rehearsal": [on, False]}))] for on in ({}, True)
    ] == [["rehearsal=True, seed=0", "rehearsal=False, seed=0"]] * 2
    guarded = trials_of_sweep(sweep_of(guard={"limit": 0.1}, grid={"guard": [True, False]}))
    assert [run.settings.guard and run.settings.guard.limit for run in guarded] == [0.1, None]


def test_probes_that_are_off_are_off_in_the_settings_of_a_result() -> None:
    recorded = sweep_of(probes=False).recorded()
    assert recorded["probes"] is False
    assert checked(TuneSweepSettings, recorded).probes is None
    assert "guard" not in recorded


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        (
            {"variants": [{"name": "a", "rehearsal": True}, {"name": "b", "rehearsal": {}}]},
            "variants must differ, got 'a' and 'b'",
        ),
        ({"grid": {"rehearsal": [True, {}]}}, "grid.rehearsal must name each value once"),
        (
            {"grid": {"rehearsal": {"weight": [1.0, 2.0]}}, "rehearsal": False},
            "grid.rehearsal.weight has no effect with rehearsal = false",
        ),
        (
            {
                "grid": {"rehearsal": {"weight": [1.0, 2.0]}},
                "variants": [{"name": "a", "rehearsal": False}, {"name": "b"}],
            },
            "grid.rehearsal.weight has no effect with rehearsal = false",
        ),
    ],
)
def test_a_table_that_is_off_or_switched_twice_alike_is_refused(tables: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        sweep_of(**tables)


def test_a_sample_is_drawn_by_the_seed_and_keeps_the_order_of_the_grid() -> None:
    every = [run.name for run in trials_of_sweep(sweep_of(grid=GRID))]
    drawn = [run.name for run in trials_of_sweep(sweep_of(grid=GRID, sweep={"sample": 2}))]
    assert len(drawn) == 2
    assert drawn == [name for name in every if name in drawn]
    assert drawn == [run.name for run in trials_of_sweep(sweep_of(grid=GRID, sweep={"sample": 2}))]
    assert [run.name for run in trials_of_sweep(sweep_of(grid=GRID, sweep={"sample": 9}))] == every


def test_a_sample_of_a_grid_that_no_memory_holds_is_drawn_and_the_whole_of_it_refused() -> None:
    wide = {"low": 1e-9, "high": 1e-1, "count": 1000}
    grid = {
        "tune": {
            "loss": {"margin": {**wide, "low": 1e-8}},
            "learning_rate": wide,
            "weight_decay": {**wide, "low": 1e-7},
        }
    }
    assert (
        len({run.name for run in trials_of_sweep(sweep_of(grid=grid, sweep={"sample": 3, "seeds": [0, 1]}))})
        == 6
    )
    with pytest.raises(
        ConfigError, match=r"at most 100,000 runs, got 1,000,000,000; take fewer values, or set sweep.sample"
    ):
        trials_of_sweep(sweep_of(grid=grid))


def test_values_that_differ_in_their_last_digits_are_runs_of_their_own() -> None:
    runs = trials_of_sweep(sweep_of(grid={"tune": {"learning_rate": [1e-4, 1.0000001e-4, 1.0000002e-4]}}))
    names = [run.name for run in runs]
    assert names == [
        "learning_rate=0.0001, seed=0",
        "learning_rate=0.00010000001, seed=0",
        "learning_rate=0.00010000002, seed=0",
    ]


def test_runs_of_one_name_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"names of their own, got several: freeze=blocks\.0\+embeddings, seed=0; rename"
    ):
        trials_of_sweep(
            sweep_of(grid={"tune": {"freeze": [["blocks.0+embeddings"], ["blocks.0", "embeddings"]]}})
        )


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
    assert (
        run_folder_name("learning_rate=1e-08, batch_size=7, seed=0")
        == "learning_rate-1e-08-batch_size-7-seed-0"
    )


def test_a_combination_that_makes_no_run_is_named() -> None:
    # Each value is sound beside the first of the others, so that only the whole grid shows it.
    grid = {"tune": {"max_epochs": [10, 1], "warmup_steps": [0, 5000]}}
    with pytest.raises(
        ConfigError, match="max_epochs=1, warmup_steps=5000, seed=0: tune.warmup_steps must be at most"
    ):
        trials_of_sweep(sweep_of(grid=grid))


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


BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.mark.parametrize("path", sorted((BENCHMARKS / "sweeps").glob("*.toml")), ids=lambda path: path.stem)
def test_the_specs_of_published_sweeps_load_and_their_rows_are_read(path: Path) -> None:
    kind = sweep_kind(read_table(path, SweepSettings))
    assert trials_of_sweep(read_settings(kind, path))
    assert rows_at(path.with_suffix("") / "runs.parquet").every


@pytest.mark.parametrize("path", sorted((BENCHMARKS / "scaling").glob("*.toml")), ids=lambda path: path.stem)
def test_the_specs_of_published_scaling_experiments_load(path: Path) -> None:
    assert read_settings(ScalingSettings, path).scaling.budgets
