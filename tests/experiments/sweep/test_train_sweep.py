"""Sweeps over training runs: two data sets or two models with two seeds on two tasks; their results, how they
are resumed, the models that runs start from, notes, and the speed of encoding.
"""

import json
import tomllib
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from adiabat.config.reader import checked
from adiabat.config.shared import EncoderSection
from adiabat.config.sweeps import TrainSweepSettings
from adiabat.config.tasks import TaskSection
from adiabat.core.errors import ConfigError, DataError, JobError, ModelError
from adiabat.core.files import read_json
from adiabat.core.progress import Watch
from adiabat.data.records import Document
from adiabat.dual_encoder import train as training
from adiabat.evaluation.measured_models import Corpus
from adiabat.evaluation.score_files import read_scores, run_folder_name
from adiabat.experiments import train_sweep
from adiabat.experiments.grid import trials_of_sweep
from adiabat.experiments.sweep import sweep
from adiabat.experiments.sweep_trials import read_starts, rows_at, write_starts
from adiabat.experiments.train_sweep import TrainSweepRunner, _sample, drawn_texts, encoding_speeds
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.towers import DualEncoder
from adiabat.report import pages
from adiabat.report.sweep_headline import reservations
from adiabat.results.record import read_result
from adiabat.results.sweep_result import Speed, SweepResult
from adiabat.results.verdict import Reason
from adiabat.runs.run_config import Job, is_described, is_job
from tests.commands import lines
from tests.experiments.sweep.training_world import (
    brief,
    mixed,
    near,
    run,
    settings_in,
    settings_of,
    tiny,
    write_world,
)
from tests.pages import no_page as no_page
from tests.pages import without_pages
from tests.tiny import tiny_dual

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
    clock_and_folder = ("created", "seconds", "settings", "command", "inputs")
    return {key: value for key, value in plain.items() if key not in clock_and_folder}


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
    runs = [(model.name, len(model.runs)) for model in result.models]
    assert runs == [("near", 1), ("far", 1), ("untrained", 0)]
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
        tiny(str(job), trial.trained.encoder).encode(["about memo 7"], side="query")
        for job in (tmp_path / "job", job_of(folder, "near, seed=1").folder)
    )
    assert np.array_equal(one, other)


def test_a_grid_and_a_mixture_are_compared_too(here: Path) -> None:
    grid = {"train": {"loss": {"temperature": [0.05, 0.1]}}}
    variants = [near(here), mixed(here, "both, equally")]
    tables = {"train": {"steps": 2, "batch_size": 6}, "measure": {"report": ["RR"]}}
    result = run(brief(here, variants=variants, grid=grid, **tables))
    assert set(settings_in(result)) == {
        *("near, temperature=0.05", "near, temperature=0.1"),
        *("both, equally, temperature=0.05", "both, equally, temperature=0.1"),
    }
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
    facts = ("sweep.out must be given", "tasks must be given", "one process, got 2")
    assert [fact for fact in facts if fact not in said] == [], said


def test_errors_of_all_training_data_come_before_any_model(here: Path) -> None:
    lines(here / "near.jsonl", [{"query": "q", "pos": []}])
    said = refused(DataError, settings_of("data", here, train={"batch_size": 25}))
    assert "near: " in said
    assert "must name at least one document, got none" in said
    assert "far: far: train.batch_size must be at most the 22 pairs trained on, got 25; lower it" in said
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    ("tables", "fault"),
    [
        ({"train": {"loss": "triplet"}}, "negative"),
        ({"batches": {"group": "topic"}}, "several topics where batches.group is topic, got one"),
        ({"data": {"stream": True, "validation_fraction": 0.1}}, "data.stream must be left out"),
    ],
)
def test_data_that_do_not_suit_the_run_are_told_for_every_variant(
    tables: dict[str, Any], fault: str, here: Path
) -> None:
    if "data" in tables:
        tables = {"data": {**tables["data"], "validation": str(here / "near.jsonl")}}
    said = refused(DataError, settings_of("data", here, **tables))
    assert said.startswith("2 faults: near: ")
    assert "far: " in said
    assert said.count(fault) >= 2


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
    wild = near(here, "wild", train={"learning_rate": 1e30, "max_grad_norm": 0.0})
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
    rows = [{"query": row["query"].upper(), "positive": f"some {row['pos'][0]}"} for row in asked[:trained]]
    lines(here / "near.jsonl", [*(here / "near.jsonl").read_text().splitlines(), *rows])
    result = run(brief(here))
    named = [note for note in result.notes if "near was trained or validated on 4 of 9 queries" in note]
    assert any("too many for a verdict" in note for note in named) is not verdicts
    of_near = [pairing for pairing in result.pairings if "near" in (pairing.model, pairing.against)]
    assert of_near
    for change in (*(pairing.change for pairing in of_near), result.runs[0].tasks[0].main):
        assert (Reason.TRAINED_ON in change.reasons) is not verdicts
        assert verdicts or change.verdict == "undecided"


# --- Resuming ---


class Killed(BaseException):
    """Nothing catches it."""


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
    first_variant, far = (variant.model_dump() for variant in brief(here).variants)
    third = {**far, "name": "third", "data": {**far["data"], "max_validation": 5}}
    grown = run(brief(here, variants=[first_variant, third]), resume=True)
    assert set(settings_in(grown)) == {"near", "third"}
    # A variant that was left out is still described: it comes back without a run, and only as it was.
    rows = (here / "out" / "runs.parquet").read_bytes()
    assert {row.name: row.tasks for row in run(brief(here), resume=True).runs} == first
    assert (here / "out" / "runs.parquet").read_bytes() == rows
    with pytest.raises(JobError, match="variants.far.data.max_validation was 'not set', is 5"):
        run(brief(here, variants=[first_variant, {**third, "name": "far"}]), resume=True)


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
    variants.append({"name": "other", "job": {"model": "other"}})
    result = run(settings_of("models", here, variants=variants, **tables), resume=True)
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


# --- Starts, and inputs that change on the disk ---


def start_file(folder: Path, name: str) -> Path:
    return folder / "out" / "scores" / run_folder_name(name) / "asked.parquet"


def untrained_in(result: SweepResult) -> list[Any]:
    """The untrained model with its scores."""
    return [
        *(model for model in result.models if model.name == "untrained"),
        result.main_score("asked", "untrained"),
    ]


def test_losses_of_other_similarities_have_starts_of_their_own_whichever_run_comes_first(here: Path) -> None:
    variants = []
    for similarity in ("cosine", "dot"):
        loss = {"kind": "in_batch_softmax", "similarity": similarity}
        variants.append(near(here, similarity, train={"loss": loss}))
    assert run(brief(here, variants=variants)).starts == ["cosine, untrained", "dot, untrained"]


def test_a_record_and_scores_of_another_start_are_made_again(here: Path) -> None:
    first = untrained_in(run(brief(here)))
    records, scores = read_starts(here / "out"), start_file(here, "untrained")
    write_starts({"untrained": replace(records["untrained"], parameters=1, key="other")}, here / "out")
    assert untrained_in(run(brief(here), resume=True)) == first
    assert read_starts(here / "out") == records
    scores.write_bytes(start_file(here, "near, seed=0").read_bytes())
    assert untrained_in(run(brief(here), resume=True)) == first
    scores.unlink()
    assert untrained_in(run(brief(here), resume=True)) == first


def test_the_other_settings_are_compared_where_scores_of_one_run_are_lost_and_it_is_said_everywhere(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing or damaged; the setting keeps its row in the other tables."""
    without_pages(monkeypatch)
    decays = (0.1, 0.2, 0.3)
    variants = [near(here, f"decay {decay}", train={"weight_decay": decay}) for decay in decays]
    whole = run(brief(here, variants=variants))
    lost = start_file(here, "decay 0.2, seed=0")
    assert lost.exists()
    for content in (None, b"damaged"):
        lost.unlink()
        if content is not None:
            lost.write_bytes(content)
        result = run(brief(here, variants=variants), resume=True)
        assert settings_in(result) == ["decay 0.1", "decay 0.3"]
        assert result.variation == whole.variation
        assert "failed" not in " ".join(result.notes)
        page = (here / "out" / "report.html").read_text(encoding="utf-8")
        for said in (" ".join(result.notes), pages.summary(result), page):
            assert f"lacks decay 0.2, seed=0, whose scores {lost} are missing or damaged" in said
        lost.write_bytes(b"")


def change_rows(folder: Path) -> None:
    rows = (folder / "near.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "near.jsonl").write_text("".join(rows[:-1]), encoding="utf-8")


def test_inputs_that_change_between_two_runs_of_a_case_are_noticed(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed_after(load: Any, own: Any, **more: Any) -> Any:
        result = training.train(load, own, **more)
        change_rows(here)
        return result

    monkeypatch.setattr(train_sweep, "train", changed_after)
    with pytest.raises(ConfigError, match=r"digests.examples must match the inputs, but the pairs differ"):
        run(brief(here, variants=[near(here)], sweep={"seeds": [0, 1]}))
    assert [row.seed for row in rows_at(here / "out" / "runs.parquet").every] == [0]


def test_every_model_that_runs_are_built_from_is_compared_when_a_sweep_is_resumed(here: Path) -> None:
    """Two variants of one model with other encoders, one of them with a document tower and a projection of
    its own.
    """
    seeds = {"tiny": 0, "other": 1}
    start = here / "projection.npy"
    np.save(start, np.eye(16, dtype=np.float32))
    towers = {"kind": "shared_projection", "document_model": "other", "projection_start": str(start)}
    variants = [near(here, "short", encoder={"max_tokens": 20}), near(here, "long", towers=towers)]

    def load(name: str, section: EncoderSection) -> DualEncoder:
        if name not in seeds:
            return tiny(name, section)
        settings = EncoderSettings(max_tokens=section.max_tokens or 48)
        return tiny_dual(width=16, seed=seeds[name], settings=settings)

    def resumed() -> SweepResult:
        return sweep(load, brief(here, variants=variants, sweep={"seeds": [0]}), resume=True)

    resumed()
    models = tomllib.loads((here / "out" / "config.toml").read_text(encoding="utf-8"))["start"]["models"]
    assert len(set(models.values())) == 2
    for name in seeds:
        seeds[name] += 5
        with pytest.raises(JobError, match=r"start.models.\w+ was"):
            resumed()
        seeds[name] -= 5
    np.save(start, 2 * np.eye(16, dtype=np.float32))
    with pytest.raises(JobError, match=r"start.models.\w+ was"):
        resumed()


def test_files_may_lie_elsewhere_and_others_are_refused_by_their_content(here: Path) -> None:
    first = run(brief(here, variants=[mixed(here, "both")]))
    moved = here / "moved"
    moved.mkdir()
    for name in ("near.jsonl", "far.jsonl"):
        (moved / name).write_bytes((here / name).read_bytes())
        (here / name).unlink()
    settings = brief(here, variants=[mixed(moved, "both")])
    assert run(settings, resume=True).runs == first.runs
    change_rows(moved)
    with pytest.raises(JobError, match=r"start.examples.\w+ was"):
        run(settings, resume=True)


@pytest.mark.parametrize("varied", [False, True])
def test_moved_data_are_resumed_and_other_data_are_refused(varied: bool, here: Path) -> None:
    def at(path: Path) -> TrainSweepSettings:
        if varied:
            return brief(here, variants=[{"name": "near", "job": {"data": str(path)}}])
        return brief(here, variants=[], job={"data": str(path)})

    run(at(here / "near.jsonl"))
    rows = (here / "out" / "runs.parquet").read_bytes()
    moved = (here / "near.jsonl").rename(here / "moved.jsonl")
    run(at(moved), resume=True)
    assert (here / "out" / "runs.parquet").read_bytes() == rows
    # The same path with a row less.
    moved.rename(here / "near.jsonl")
    change_rows(here)
    with pytest.raises(JobError, match=r"start.examples.\w+ was"):
        run(at(here / "near.jsonl"), resume=True)
    assert len(rows_at(here / "out" / "runs.parquet").every) == 1


def test_data_are_checked_against_every_run_before_the_first(here: Path) -> None:
    variants = [near(here), near(here, "listed", train={"loss": "triplet"})]
    with pytest.raises(DataError, match="^listed: .*negative if train.loss is triplet"):
        run(brief(here, variants=variants))
    assert not (here / "out").exists()


# --- Notes ---


@pytest.mark.parametrize(
    ("train", "named"),
    [
        ({"steps": 2}, "train.steps"),
        ({"steps": 2, "batch_size": 4}, "train.steps and train.batch_size"),
        ({"weight_decay": 0.3}, None),
    ],
)
def test_a_comparison_of_runs_of_unequal_length_says_so(
    here: Path, train: dict[str, Any], named: str | None
) -> None:
    result = run(brief(here, variants=[near(here, "one"), near(here, "two", train=train)]))
    expected = [] if named is None else [f"runs differ in {named}, so recipes of unequal cost are compared"]
    for notes in (result.notes, reservations(result), pages.notes(result)):
        assert [note for note in notes if "unequal cost" in note] == expected


def test_notes_of_runs_name_their_case_and_are_told_once_for_all_its_seeds(here: Path) -> None:
    notes: list[str] = []
    run(brief(here, sweep={"seeds": [0, 1]}), notes=notes)
    for case, queries in (("near", 6), ("far", 8)):
        assert [note for note in notes if note.startswith(f"{case}: validating on ")] == [
            f"{case}: validating on {queries} queries"
        ]
        assert len([note for note in notes if note.startswith(f"{case}: training ")]) == 1
    assert not [note for note in notes if note.startswith(("training ", "validating "))]


@pytest.mark.parametrize(
    ("tables", "why"),
    [
        ({"variants": [], "job": {"model": "tiny", "data": "near.jsonl"}}, None),
        ({"grid": {"train.weight_decay": [number / 100 for number in range(21)]}}, "only up to 40 settings"),
        ({}, None),
    ],
)
def test_a_sweep_of_too_many_settings_to_compare_says_so_before_data_are_read(
    here: Path, monkeypatch: pytest.MonkeyPatch, tables: dict[str, Any], why: str | None
) -> None:
    monkeypatch.chdir(here)
    monkeypatch.setattr(TrainSweepRunner, "tasks", property(lambda _: pytest.fail("data were read")))
    notes: list[str] = []
    with pytest.raises(pytest.fail.Exception):
        run(brief(here, **tables), notes=notes)
    told = [note for note in notes if "compared" in note]
    assert len(told) == (why is not None)
    assert all(note.startswith(str(why)) and note.endswith("got 42") for note in told)


# --- Speed ---


def test_texts_for_timing_are_drawn_from_every_corpus_and_are_the_same_each_time(here: Path) -> None:
    corpus = {"data": str(here / "asked.jsonl"), "corpus": str(here / "corpus.jsonl")}
    tables = (corpus, {"data": str(here / "listed.jsonl")}, {**corpus, "name": "again"})
    tasks = [checked(TaskSection, table) for table in tables]
    corpora = [[document.text for document in Corpus.of(task).documents()] for task in tasks[:2]]
    drawn = drawn_texts(tasks, 7)
    assert drawn == drawn_texts(tasks, 7)
    assert [sum(text in corpus for text in drawn) >= 3 for corpus in corpora] == [True, True]
    assert (len(drawn), len(set(drawn_texts(tasks[:1], 7)))) == (7, 7)
    assert sorted(drawn_texts(tasks, 1000)) == sorted(corpora[0] + corpora[1])


def test_every_document_is_drawn_as_often_as_another() -> None:
    counts = dict.fromkeys("abcde", 0)
    for shift in range(5):
        # The draw depends on places alone: over all turns of five documents each stands once in each place.
        turned = "abcde"[shift:] + "abcde"[:shift]
        for text in _sample((Document(letter, letter) for letter in turned), 2):
            counts[text] += 1
    assert set(counts.values()) == {2}


def test_models_take_turns_and_the_median_of_their_rounds_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    # Begin and end of each round, of one model and the other in turns: 2 and 1 s, 8 and 1 s, 4 and 1 s.
    clock = iter([0.0, 2.0, 0.0, 1.0, 0.0, 8.0, 0.0, 1.0, 0.0, 4.0, 0.0, 1.0])
    monkeypatch.setattr("adiabat.experiments.train_sweep.perf_counter", lambda: next(clock))
    turns: list[str] = []

    def model(name: str) -> DualEncoder:
        turns.append(name)
        return tiny(name, EncoderSection())

    seen: list[tuple[int, int]] = []
    models = {name: partial(model, name) for name in ("tiny", "small")}
    found = encoding_speeds(
        models, ["a", "b", "", "ג"] * 4, rounds=3, on_progress=lambda done, total: seen.append((done, total))
    )
    assert found == {"tiny": Speed(4.0, 2.0, 8.0, 16, 3), "small": Speed(16.0, 16.0, 16.0, 16, 3)}
    assert turns == ["tiny", "small"] * 3
    assert seen == [(done, 6) for done in range(7)]
