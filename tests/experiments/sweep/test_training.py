"""Sweeps over training runs: two data sets or two models with two seeds on two tasks; their results, and how
they are resumed.
"""

import json
import tomllib
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from adiabat.config.sweeps import TrainSweepSettings
from adiabat.core.errors import ConfigError, DataError, JobError, ModelError
from adiabat.core.files import read_json
from adiabat.core.progress import Watch
from adiabat.dual_encoder import train as training
from adiabat.evaluation.score_files import read_scores, run_folder_name
from adiabat.experiments import train_sweep
from adiabat.experiments.grid import trials_of_sweep
from adiabat.experiments.sweep import sweep
from adiabat.experiments.sweep_trials import rows_at
from adiabat.experiments.train_sweep import encoding_speeds
from adiabat.results.record import read_result
from adiabat.results.sweep_result import SweepResult
from adiabat.results.verdict import Reason
from adiabat.runs.run_config import Job, is_described, is_job
from tests.experiments.sweep.training_world import (
    brief,
    lines,
    run,
    settings_in,
    settings_of,
    tiny,
    write_world,
)
from tests.pages import EVERY, without_pages


class Killed(BaseException):
    """Nothing catches it."""


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        without_pages(patch, EVERY)
        yield


Done = tuple[Path, SweepResult]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("data")
    write_world(folder)
    return folder, run(settings_of("data", folder, sweep={"keep_models": True}))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("models")
    write_world(folder)
    return folder, run(settings_of("models", folder))


@pytest.fixture
def here(tmp_path: Path) -> Path:
    write_world(tmp_path)
    return tmp_path


def job_of(folder: Path, name: str) -> Job:
    return Job(folder / "out" / "runs" / run_folder_name(name))


def values_of(folder: Path, name: str, task: str) -> list[float]:
    """Scores by the main measure, as the files of scores have them."""
    scores = read_scores(folder / "out" / "scores" / run_folder_name(name) / f"{task}.parquet")
    return scores.samples[0].values.tolist()  # type: ignore[no-any-return]


def untimed(result: SweepResult) -> Any:
    """All that depends neither on the clock nor on the folder."""
    plain = result.to_json()
    for one in plain["models"]:
        one["model"] = Path(one["model"]).name
    for one in plain["runs"]:
        one["step_seconds"], one["seconds"] = None, None
    return {
        key: value
        for key, value in plain.items()
        if key not in ("created", "seconds", "settings", "command", "inputs")
    }


def value_of(result: SweepResult, task: str, model: str) -> float:
    """Of the main measure."""
    score = result.main_score(task, model)
    assert score is not None
    return score.value


# --- Results ---


def test_every_run_is_a_job_of_its_own_with_its_seed(data: Done, models: Done) -> None:
    for name in ("near", "far"):
        for seed in (0, 1):
            job = job_of(data[0], f"{name}, seed={seed}")
            result = read_result(job.result)
            assert (result.seed, is_job(job.folder)) == (seed, True)
            assert (job.model.is_dir(), job.checkpoints.exists()) == (True, False)
    assert not job_of(models[0], "small, seed=0").model.exists()
    assert is_described(data[0] / "out", "sweep")
    assert not is_job(data[0] / "out")


def test_scores_are_means_over_queries_and_seeds_of_the_files_of_scores(data: Done) -> None:
    folder, result = data
    for task in ("asked", "listed"):
        for name in ("near", "far"):
            of_runs = [fmean(values_of(folder, f"{name}, seed={seed}", task)) for seed in (0, 1)]
            assert value_of(result, task, name) == pytest.approx(fmean(of_runs))
        assert value_of(result, task, "untrained") == pytest.approx(
            fmean(values_of(folder, "untrained", task))
        )


def test_settings_and_their_start_are_compared_as_models_of_a_suite_with_the_best_of_each_task(
    data: Done,
) -> None:
    result = data[1]
    assert [(model.name, len(model.runs)) for model in result.models] == [
        ("near", 1),
        ("far", 1),
        ("untrained", 0),
    ]
    assert (result.baseline, result.resamples, [task.units for task in result.tasks]) == (None, 200, [9, 8])
    for ranking in result.analysis.tasks:
        values = {model.name: value_of(result, ranking.task, model.name) for model in result.models}
        # Of listed candidates, discrepancies are counted.
        assert values[ranking.best[0]] == (min if ranking.task == "listed" else max)(values.values())
        others = [pairing for pairing in result.pairings if pairing.task == ranking.task]
        assert {pairing.model for pairing in others} == values.keys() - {ranking.against}
        for pairing in others:
            assert pairing.change.difference == pytest.approx(values[pairing.model] - values[pairing.against])


def test_costs_stand_beside_scores(data: Done, models: Done) -> None:
    near = data[1].runs[0]
    assert (near.steps, near.pairs, near.passes, data[1].speed) == (3, 24, 18 / 24, {})
    assert near.step_seconds is not None
    assert near.trainable < near.parameters
    small, large = models[1].models[:2]
    assert small.parameters is not None
    assert large.parameters is not None
    assert small.parameters < large.parameters
    assert list(models[1].speed) == models[1].starts
    for speed in models[1].speed.values():
        assert (speed.texts, speed.rounds) == (8, 3)
        assert 0 < speed.slowest <= speed.texts_per_second <= speed.fastest


def test_models_have_starts_of_their_own_and_data_sets_share_one(data: Done, models: Done) -> None:
    by_setting = [[(run.case, run.start) for run in one.runs[:2]] for one in (data[1], models[1])]
    assert by_setting == [
        [("near", "untrained"), ("far", "untrained")],
        [("small", "small, untrained"), ("large", "large, untrained")],
    ]
    # The tiny model is a start of both sweeps, and is measured alike in both.
    assert value_of(data[1], "asked", "untrained") == value_of(models[1], "asked", "large, untrained")


def test_the_files_hold_what_was_returned(data: Done) -> None:
    folder, result = data
    written = read_json(folder / "out" / "result.json", remedy="")
    assert written == json.loads(json.dumps(result.to_json()))
    assert rows_at(folder / "out" / "runs.parquet").every == result.runs
    config = tomllib.loads((folder / "out" / "config.toml").read_text(encoding="utf-8"))
    assert config["variants"]["far"]["data"]["columns"] == {"query": "question", "positive": "answer"}
    assert config["common"]["train"]["steps"] == 3


def test_a_run_is_what_train_makes_of_the_same_settings(data: Done, tmp_path: Path) -> None:
    folder, _ = data
    trial = next(one for one in trials_of_sweep(settings_of("data", folder)) if one.name == "near, seed=1")
    section = trial.trained.job.model_copy(update={"out": str(tmp_path / "job")})
    training.train(tiny, trial.trained.model_copy(update={"job": section}))
    one, other = (
        tiny(str(job), trial.trained.encoder)
        for job in (tmp_path / "job", job_of(folder, "near, seed=1").folder)
    )
    assert np.array_equal(
        one.encode(["about memo 7"], side="query"), other.encode(["about memo 7"], side="query")
    )


def test_a_grid_and_a_mixture_are_compared_too(here: Path) -> None:
    far = {"path": str(here / "far.jsonl"), "columns": {"query": "question", "positive": "answer"}}
    mixed = {
        "name": "both, equally",
        "data": {"sources": [{"path": str(here / "near.jsonl")}, far]},
        "mixture": {"rule": "equal"},
    }
    near = {"name": "near", "job": {"data": str(here / "near.jsonl")}}
    tables: dict[str, Any] = {
        "train": {"steps": 2, "batch_size": 6},
        "grid": {"train": {"loss": {"temperature": [0.05, 0.1]}}},
    }
    result = run(brief(here, variants=[near, mixed], measure={"report": ["RR"]}, **tables))
    names = {
        f"{variant}, temperature={value}"
        for variant in ("near", "both, equally")
        for value in ("0.05", "0.1")
    }
    assert set(settings_in(result)) == names
    assert result.tasks[0].measure == "RR"


# --- Refused before anything is trained ---


def refused(kind: type[Exception], settings: TrainSweepSettings) -> str:
    def never(*_: Any) -> Any:
        raise AssertionError("a model was loaded")

    with pytest.raises(kind) as caught:
        sweep(never, settings)
    return str(caught.value)


def test_missing_settings_are_told_at_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    settings = settings_of("data", here, tasks=[])
    settings = settings.model_copy(update={"sweep": settings.sweep.model_copy(update={"out": None})})
    said = refused(ConfigError, settings)
    for part in (
        "sweep.out must be given, got none",
        "tasks must be given, got none",
        "must run in one process, got 2",
    ):
        assert part in said, said


def test_errors_of_all_training_data_come_before_any_model(here: Path) -> None:
    lines(here / "near.jsonl", [{"query": "q", "pos": []}])
    said = refused(DataError, settings_of("data", here, train={"batch_size": 25}))
    assert "near: " in said
    assert "must name at least one document, got none" in said
    assert "far: far: train.batch_size must be at most the 22 pairs trained on, got 25; lower it" in said
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"train": {"loss": "triplet"}}, "negative"),
        (
            {"batches": {"group": "topic"}},
            "pairs must be of several topics where batches.group is topic, got one",
        ),
        ({"data": {"stream": True, "validation_fraction": 0.1}}, "data.stream must be left out"),
    ],
)
def test_data_that_do_not_suit_the_run_are_told_for_every_variant(
    tables: dict[str, Any], said: str, here: Path
) -> None:
    if "data" in tables:
        tables = {"data": {**tables["data"], "validation": str(here / "near.jsonl")}}
    told = refused(DataError, settings_of("data", here, **tables))
    assert told.startswith("2 faults: near: ")
    assert "far: " in told
    assert told.count(said) >= 2


def test_a_model_that_cannot_be_loaded_or_trained_is_found_before_the_first_run(here: Path) -> None:
    def load(name: str, section: Any) -> Any:
        if name in ("nowhere", "lost"):
            raise ModelError(f"{name} must be a model")
        return tiny(name, section)

    variants = [{"name": "small", "job": {"model": "small"}}, {"name": "gone", "job": {"model": "nowhere"}}]
    lost = {"name": "astray", "job": {"model": "lost"}}
    with pytest.raises(
        ModelError, match=r"^2 faults: gone: nowhere must be a model; astray: lost must be a model$"
    ):
        sweep(load, settings_of("models", here, variants=[*variants, lost]))
    frozen = [variants[0], {"name": "odd", "job": {"model": "tiny"}, "train": {"freeze": ["blocks[7]"]}}]
    with pytest.raises(ModelError, match="blocks"):
        sweep(load, settings_of("models", here, variants=frozen))
    assert not (here / "out" / "runs").exists()


def test_a_directory_of_something_else_is_left_alone(here: Path) -> None:
    (here / "out").mkdir()
    (here / "out" / "notes.txt").write_text("mine")
    assert "must be a new or empty directory" in refused(JobError, settings_of("data", here))
    assert [path.name for path in (here / "out").iterdir()] == ["notes.txt"]


# --- Runs that fail, and queries that were trained on ---


def test_a_variant_of_which_a_run_fails_is_not_compared(here: Path) -> None:
    wild = {
        "name": "wild",
        "job": {"data": str(here / "near.jsonl")},
        "train": {"learning_rate": 1e30, "max_grad_norm": 0.0},
    }
    variants = [one.model_dump() for one in brief(here).variants]
    result = run(brief(here, variants=[*variants, wild]))
    assert [one.status for one in result.runs] == ["done", "done", "failed"]
    assert "finite" in result.runs[-1].reason
    assert set(settings_in(result)) == {"near", "far"}
    assert any("wild, seed=0" in note for note in result.notes)


@pytest.mark.parametrize(("trained", "verdicts"), [(0, True), (4, False)])
def test_a_variant_that_was_trained_on_queries_of_a_task_is_named_and_undecided(
    here: Path, trained: int, verdicts: bool
) -> None:
    asked = [json.loads(line) for line in (here / "asked.jsonl").read_text().splitlines()]
    with (here / "near.jsonl").open("a") as file:
        rows = [
            {"query": row["query"].upper(), "positive": f"some {row['pos'][0]}"} for row in asked[:trained]
        ]
        file.writelines(json.dumps(row) + "\n" for row in rows)
    result = run(brief(here))
    told = [
        note
        for note in result.notes
        if "near was trained or validated on 4 of 9 queries" in note and "too many for a verdict" in note
    ]
    assert bool(told) is not verdicts
    of_near = [pairing for pairing in result.pairings if "near" in (pairing.model, pairing.against)]
    assert of_near
    for change in (*(pairing.change for pairing in of_near), result.runs[0].tasks[0].main):
        assert (Reason.TRAINED_ON in change.reasons) is not verdicts
        assert verdicts or change.verdict == "undecided"


# --- Resuming ---


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    """Never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    write_world(folder)
    return run(brief(folder))


def killed_at(label: str, settings: TrainSweepSettings) -> None:
    """Make a sweep until something of that label is shown, and die there."""

    def progress(shown: str, done: int, total: int) -> None:
        if label in shown and done:
            raise Killed

    with pytest.raises(Killed):
        sweep(tiny, settings, watch=Watch(progress=progress))


@pytest.mark.parametrize("label", ["tiny: embedding", "near, seed=0: training", "ranking asked"])
def test_a_killed_sweep_ends_as_one_that_was_not(label: str, here: Path, whole: SweepResult) -> None:
    killed_at(label, brief(here))
    assert untimed(run(brief(here), resume=True)) == untimed(whole)


def test_finished_runs_are_not_made_again(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = brief(here)
    killed_at("far, seed=0: training", settings)
    trained: list[tuple[str, int]] = []

    def noted(load: Any, own: Any, **more: Any) -> Any:
        trained.append((Path(own.job.data).stem, own.run.seed))
        return training.train(load, own, **more)

    monkeypatch.setattr(train_sweep, "train", noted)
    run(settings, resume=True)
    assert trained == [("far", 0)]
    before = (here / "out" / "runs.parquet").read_bytes()
    run(settings, resume=True)
    assert len(trained) == 1
    assert (here / "out" / "runs.parquet").read_bytes() == before


def test_seeds_and_variants_may_be_added_and_left_out(here: Path, whole: SweepResult) -> None:
    first = {row.name: row.tasks for row in whole.runs}
    run(brief(here))
    both = run(brief(here, sweep={"seeds": [0, 1]}), resume=True)
    assert {row.name: row.tasks for row in both.runs if row.seed == 0} == first
    near, far = (variant.model_dump() for variant in brief(here).variants)
    third = {**far, "name": "third", "data": {**far["data"], "max_validation": 5}}
    grown = run(brief(here, variants=[near, third]), resume=True)
    assert set(settings_in(grown)) == {"near", "third"}
    # A variant that was left out is still described: it comes back without a run, and only as it was.
    rows = (here / "out" / "runs.parquet").read_bytes()
    assert {row.name: row.tasks for row in run(brief(here), resume=True).runs} == first
    assert (here / "out" / "runs.parquet").read_bytes() == rows
    with pytest.raises(JobError, match="variants.far.data.max_validation was 'not set', is 5"):
        run(brief(here, variants=[near, {**third, "name": "far"}]), resume=True)


def test_models_are_timed_together_and_again_when_one_is_added(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[list[str]] = []

    def noted(models: Any, texts: Any, **more: Any) -> Any:
        timed.append(sorted(models))
        return encoding_speeds(models, texts, **more)

    monkeypatch.setattr(train_sweep, "encoding_speeds", noted)
    tables: dict[str, Any] = {"sweep": {"seeds": [0]}, "tasks": brief(here).model_dump()["tasks"]}
    two = settings_of("models", here, **tables)
    run(two)
    run(two, resume=True)
    variants = [variant.model_dump() for variant in two.variants]
    result = run(
        settings_of(
            "models", here, variants=[*variants, {"name": "other", "job": {"model": "other"}}], **tables
        ),
        resume=True,
    )
    names = ["large, untrained", "small, untrained"]
    assert timed == [names, ["large, untrained", "other, untrained", "small, untrained"]]
    assert len(result.speed) == 3


def test_another_sweep_is_refused_with_what_differs(here: Path) -> None:
    settings = brief(here)
    run(settings)
    with pytest.raises(JobError, match="holds a sweep already"):
        run(settings)
    with pytest.raises(JobError, match=r"common.train.steps was 3, is 4"):
        run(brief(here, train={"steps": 4}), resume=True)
    lines(here / "asked.jsonl", [{"query": "other", "pos": ["d1"]}])
    with pytest.raises(JobError, match="tasks.asked.sha256 was"):
        run(settings, resume=True)


def test_settings_that_change_no_number_may_change(here: Path) -> None:
    first = run(brief(here))
    again = run(brief(here, memory={"chunk_tokens": 999}, sweep={"seeds": [0], "name": "other"}), resume=True)
    assert (again.scores, again.pairings) == (first.scores, first.pairings)
