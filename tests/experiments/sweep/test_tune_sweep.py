"""Runs of a sweep that tune both towers: jobs of train under the regime of tune."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from adiabat.adiabatic.tuning_context import TuningContext
from adiabat.config.dual_training import TrainSettings
from adiabat.core.errors import ConfigError
from adiabat.dual_encoder.train import train
from adiabat.experiments.grid import trials_of_sweep
from adiabat.experiments.tune_sweep import train_settings
from adiabat.results.record import read_result
from adiabat.results.training_record import TrainingRecord
from adiabat.runs.run_config import Job
from tests.adiabatic.problem import problem_model
from tests.experiments.sweep.world import load, run, settings_of
from tests.jobs import weights_of

TOWERS: list[dict[str, Any]] = [{"name": "query"}, {"name": "both", "towers": "both"}]
ALL = {"negatives": {"per_query": 3}}
"""As many as are listed: of more, tune validates the loss on the first, and train on those of the lowest
hash."""
GRID = {"tune": {"learning_rate": [3e-3]}}


def record_at(folder: Path) -> TrainingRecord:
    record = read_result(folder / "result.json").training
    assert record is not None
    return record


def test_both_towers_are_measured_beside_the_query_tower_alone(world: Path) -> None:
    settings = settings_of(world, variants=TOWERS, grid=GRID, tune=ALL, sweep={"keep_models": True})
    result = run(settings)
    one, both = result.runs
    assert (one.variant, both.variant, both.status) == ("query", "both", "done")
    assert one.drift is not None
    assert both.drift is None
    assert [task.main.before for task in one.tasks] == [task.main.before for task in both.tasks]
    assert one.tasks[0].main.after != both.tasks[0].main.after
    # The same queries, pairs and untuned towers are validated; the second by vectors that are not stored.
    assert one.validation_pairs == both.validation_pairs
    assert one.validation_errors[0] == both.validation_errors[0]
    assert one.validation_loss[0][1] == pytest.approx(both.validation_loss[0][1], abs=1e-3)
    assert both.trainable == 2 * one.trainable
    (folder,) = (path for path in (world / "out" / "runs").iterdir() if path.name.startswith("both"))
    job = Job(folder)
    told = tomllib.loads(job.config.read_text(encoding="utf-8"))
    kinds = (told["towers"]["kind"], told["train"]["keep"], told["train"]["loss"]["kind"])
    assert kinds == ("asymmetric", "last", "triplet")
    tuned, start = load(str(job.folder), settings.encoder), problem_model()
    assert weights_of(tuned.document) != weights_of(start.document)
    assert weights_of(tuned.document) != weights_of(tuned.query)
    assert not job.prepared.exists()
    # Vectors of the untuned document tower stay, those of the other do not.
    assert {len(list(place.iterdir())) for place in (world / "out" / "stores").iterdir()} == {1}
    assert run(settings, resume=True).runs == result.runs


def test_train_with_a_document_tower_that_stays_is_tune(world: Path) -> None:
    tune = {"learning_rate": 3e-3, "optimizer": "sgd", "weight_decay": 0.0, "keep": "both", **ALL}
    settings = settings_of(world, variants=TOWERS, grid={"tune": {"batch_size": [5]}}, tune=tune)
    found = run(settings).runs[0]
    (planned,) = (one for one in trials_of_sweep(settings) if one.both)
    context = TuningContext(problem_model, world / "store", str(world / "triplets.jsonl"), "tiny")
    wanted = train_settings(planned, context, Job(world / "frozen"))
    frozen = wanted.model_copy(update={"towers": wanted.towers.model_copy(update={"frozen": "document"})})
    assert isinstance(frozen, TrainSettings)
    train(load, frozen)
    record = record_at(world / "frozen")
    assert record.validation_errors == found.validation_errors
    assert record.best_epoch == found.best_epoch
    assert [loss for _, loss in record.validation_loss] == pytest.approx(
        [loss for _, loss in found.validation_loss], rel=1e-3
    )


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"tune": {"loss": "in_batch_softmax"}}, 'tune.loss must be "triplet", got "in_batch_softmax"'),
        ({"tune": {"negatives": "hardest"}}, 'tune.negatives must be "examples", got "hardest"'),
        ({"tune": {"l2_to_start": 0.1}}, "tune.l2_to_start must be 0.0, got 0.1"),
        ({"tune": {"keep": "ranking"}}, 'tune.keep must be "both", "loss" or "last", got "ranking"'),
        ({"tune": {"schedule": "exponential"}}, 'tune.schedule must go by steps, got "exponential"'),
        ({"guard": True}, "guard must be left out"),
        ({"rehearsal": True}, "rehearsal must be left out"),
    ],
)
def test_what_needs_documents_that_stay_is_refused_before_anything_is_written(
    world: Path, tables: dict[str, Any], told: str
) -> None:
    tables = {**tables, "variants": [TOWERS[1]], "grid": GRID}
    with pytest.raises(ConfigError) as caught:
        run(settings_of(world, **tables))
    assert told in str(caught.value)
    assert not (world / "out").exists()


def test_runs_are_compared_by_the_similarity_of_the_untuned_model_whatever_they_were_tuned_by(
    world: Path,
) -> None:
    result = run(
        settings_of(world, variants=TOWERS, grid=GRID, tune={"loss": {"distance": "euclidean"}, **ALL})
    )
    assert [task.main.similarity for one in result.runs for task in one.tasks] == ["cosine"] * 4
    assert all(task.main.before is not None for one in result.runs for task in one.tasks)
