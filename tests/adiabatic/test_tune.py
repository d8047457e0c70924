"""Whole tuning jobs on a tiny model; what they refuse before anything is written; and full disks."""

import json
import re
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

from adiabat.adiabatic import tune as adiabatic
from adiabat.adiabatic.tune import begin
from adiabat.adiabatic.tuning_context import MINED_NEGATIVES, TuningContext
from adiabat.adiabatic.tuning_loop import learning_rate_of, schedule_of
from adiabat.core.errors import (
    AdiabatError,
    ConfigError,
    DataError,
    JobError,
    MissingDependencyError,
    ModelError,
    StoreError,
)
from adiabat.data.batch_sampler import text_order, validation_batches
from adiabat.models import model_names as loading
from adiabat.models.encoder import Encoder
from adiabat.models.loading import load
from adiabat.models.towers import DualEncoder, trainable_copy
from adiabat.results.evaluation_result import Result
from adiabat.results.record import read_result
from adiabat.store.vector_store import Store
from adiabat.training import run_record
from tests.adiabatic.problem import WIDTH, Problem, embedded_store, objective_in, run, settings_of
from tests.commands import lines
from tests.jobs import FILES, everything, log_of, weights_of
from tests.refused import require_facts
from tests.tiny import tiny_dual, tiny_encoder

# --- What a job does ---


@pytest.fixture(scope="module")
def finished(problem: Problem, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A job and its result, that tests look at and leave as they are."""
    job = tmp_path_factory.mktemp("finished") / "job"
    return job, run(problem, job)


def test_a_job_learns_and_leaves_all_its_files(finished: tuple[Path, Result]) -> None:
    job, result = finished
    record = result.training
    assert (record.steps, record.epochs, record.stop_reason) == (12, 3, "the limit of 3 epochs was reached")
    errors, losses = dict(record.validation_errors), dict(record.validation_loss)
    assert record.best_epoch > 0
    assert errors[record.best_epoch] < errors[0]
    assert losses[record.best_epoch] < losses[0]
    assert [step for step, _ in record.loss] == [3, 4, 6, 8, 9, 12]
    assert read_result(job / "result.json") == result
    assert {path.name for path in job.iterdir()} == FILES


def test_a_finished_job_keeps_the_newest_checkpoint_alone_unless_more_are_asked_for(
    problem: Problem, finished: tuple[Path, Result], tmp_path: Path
) -> None:
    run(problem, tmp_path / "job", settings_of(run={"keep_checkpoints": 2}))
    for job, count in ((finished[0], 1), (tmp_path / "job", 2)):
        names = sorted(path.name for path in (job / "checkpoints").iterdir())
        assert (len(names), names[-1]) == (count, "step-000000012")


def test_a_model_that_was_changed_in_its_job_is_not_loaded_and_a_copy_of_it_is(
    finished: tuple[Path, Result], tmp_path: Path
) -> None:
    job = Path(shutil.copytree(finished[0], tmp_path / "job"))
    loading.load(job)
    path = next((job / "model").rglob("*.safetensors"))
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    for name in (job, job / "model"):
        with pytest.raises(ModelError, match=rf"{path.name} must be undamaged, .* name a copy of .*model"):
            loading.load(name)
    shutil.copytree(job / "model", tmp_path / "copy")
    loading.load(tmp_path / "copy")


def test_frozen_weights_the_document_tower_and_the_model_given_stay_as_they_were_bit_for_bit(
    problem: Problem, tmp_path: Path
) -> None:
    model = problem.fresh()
    before = weights_of(model.query)
    settings = settings_of(tune={"freeze": ["embeddings", "blocks[0].attention"], "keep": "last"})
    run(problem, tmp_path / "job", settings, model=model)
    tuned = load(tmp_path / "job" / "model")
    assert weights_of(model.query) == before
    assert model.query is model.document
    assert weights_of(tuned.document) == before
    after = weights_of(tuned.query)
    places = (".embeddings.", ".layer.0.attention.", "pooler")
    frozen = {name for name in before if any(place in name for place in places)}
    assert {name for name in before if after[name] == before[name]} == frozen
    assert len(frozen) > 8


def test_the_tuned_pair_fits_the_same_store(problem: Problem, finished: tuple[Path, Result]) -> None:
    tuned, store = load(finished[0] / "model"), Store.open(problem.store)
    store.require_encoder(tuned.fingerprint("document"))
    assert store.fingerprint == tuned.fingerprint("document")
    assert tuned.fingerprint("query") != problem.model.fingerprint("query")
    texts = ["about paper 4", "anything"]
    ours, theirs = (model.encode(texts, side="document") for model in (tuned, problem.model))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("loss", "negatives"),
    [
        *product(("triplet", "in_batch_softmax"), ("examples", "random", "hardest")),
        ("store_softmax", "examples"),
    ],
)
def test_documents_are_never_encoded_while_training(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str, negatives: str
) -> None:
    def forward(*arguments: object, **named: object) -> NoReturn:
        raise AssertionError("a document was encoded")

    model = problem.fresh()
    model.document.backbone.forward = forward
    twin = problem.fresh()
    # With the document tower apart from the query tower, only the former is out of order.
    apart = DualEncoder(twin.query, model.document, "tiny")
    tokenize = Encoder.tokenize
    sides: set[str] = set()

    def noting(self: Encoder, texts: list[str], *, side: Any) -> list[list[int]]:
        sides.add(side)
        return tokenize(self, texts, side=side)

    monkeypatch.setattr(Encoder, "tokenize", noting)
    settings = settings_of(tune={"loss": loss, "negatives": negatives, "max_epochs": 1})
    assert run(problem, tmp_path / "job", settings, model=apart).training.steps == 4
    assert sides == {"query"}


def test_a_job_repeats_itself_and_another_seed_gives_another_result(problem: Problem, tmp_path: Path) -> None:
    for name in ("one", "two"):
        torch.manual_seed(len(name))
        run(problem, tmp_path / name, settings_of(tune={"dropout": True}))
        torch.rand(3)
    run(problem, tmp_path / "other", settings_of(tune={"dropout": True}, run={"seed": 1}))
    assert everything(tmp_path / "one") == everything(tmp_path / "two")
    assert everything(tmp_path / "one")["query"] != everything(tmp_path / "other")["query"]


def test_dropout_and_bf16_change_the_steps_but_hardly_the_losses(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adiabat.models.device.native_bf16", lambda device: False)
    tables: dict[str, Any] = {
        "plain": {},
        "bf16": {"run": {"precision": "bf16"}},
        "dropout": {"tune": {"dropout": True}},
    }
    losses, notes = {}, dict[str, list[str]](plain=[], bf16=[], dropout=[])
    for name, table in tables.items():
        run(problem, tmp_path / name, settings_of(**table), notes=notes[name])
        losses[name] = [row["loss"] for row in log_of(tmp_path / name) if "loss" in row]
    assert [name for name, told in notes.items() if any("only emulated" in note for note in told)] == ["bf16"]
    assert losses["plain"] not in (losses["bf16"], losses["dropout"])
    assert losses["bf16"] == pytest.approx(losses["plain"], rel=0.1)


def test_the_learning_rate_is_scaled_by_the_batch_size(problem: Problem, tmp_path: Path) -> None:
    tune = {"batch_size": 18, "learning_rate": 1e-4, "max_epochs": 1, "schedule": "linear"}
    scaled = {
        rule: settings_of(tune={**tune, "batch_scaling": rule, "reference_batch_size": 2})
        for rule in ("linear", "sqrt")
    }
    rates = [learning_rate_of(settings.tune) for settings in (settings_of(tune=tune), *scaled.values())]
    assert rates == pytest.approx([1e-4, 9e-4, 3e-4])
    run(problem, tmp_path / "job", scaled["sqrt"])
    rates = [row["learning_rate"] for row in log_of(tmp_path / "job") if "learning_rate" in row]
    assert rates == pytest.approx([3e-4 * (1 - 2 / 4), 3e-4 * (1 - 3 / 4)])


def test_the_schedule_runs_over_the_longest_the_job_may_last() -> None:
    cosine = {"schedule": {"kind": "cosine", "final_fraction": 0.1}, "warmup_steps": 2}
    schedule = schedule_of(settings_of(tune=cosine))
    assert (schedule.total_steps, schedule.steps_per_epoch) == (12, 4)
    assert (schedule.warmup_steps, schedule.final_fraction) == (2, 0.1)
    halving = settings_of(tune={"schedule": {"kind": "exponential", "gamma": 0.5}})
    assert schedule_of(halving).factor(8) == 0.25


def test_a_start_without_errors_is_the_result_and_the_user_is_told(problem: Problem, tmp_path: Path) -> None:
    """Every query is a document's own text, and the two encode alike, so the positive is nearest from the
    start.
    """
    model, texts = tiny_dual(width=16), [f"note {number}" for number in range(20)]
    embedded_store(model, texts, tmp_path / "store")
    rows = [{"query": text, "pos": [f"d{n}"], "neg": [f"d{(n + 1) % 20}"]} for n, text in enumerate(texts)]
    lines(tmp_path / "data.jsonl", rows)
    own, notes = Problem(model, tmp_path / "store", tmp_path / "data.jsonl"), list[str]()
    record = run(own, tmp_path / "job", model=model, notes=notes).training
    assert (record.best_epoch, record.steps) == (0, 0)
    assert any("the initial model makes no error" in note and "nothing is trained" in note for note in notes)
    assert weights_of(load(tmp_path / "job" / "model").query) == weights_of(model.query)


def test_the_user_is_told_what_is_tuned_and_what_was_left_out(problem: Problem, tmp_path: Path) -> None:
    added = [
        {"query": "lost", "pos": ["gone"], "neg": ["d1"]},
        {"query": "long " * 200, "pos": ["d1"], "neg": ["d2"]},
    ]
    own = replace(problem, data=tmp_path / "data.jsonl")
    lines(own.data, [*problem.data.read_text().splitlines(), *added])
    notes: list[str] = []
    run(own, tmp_path / "job", settings_of(tune={"max_epochs": 1}, data={"missing": "drop"}), notes=notes)
    assert notes[0].startswith("expected time: ")
    assert notes[1] == "data: 1 document missing from the store left out, and 1 query without a positive"
    assert notes[2].startswith("tuning ")
    assert notes[2].endswith(" queries of data")
    assert re.fullmatch(r"1 of \d+ queries reach the limit of \d+ tokens: longer ones are cut", notes[3])
    assert notes[4].startswith("validating on ")
    assert len(notes) == 5


def test_a_reader_of_the_result_learns_what_the_user_was_told(problem: Problem, tmp_path: Path) -> None:
    own = {"query": "own", "pos": ["d1", "gone"], "neg": ["d2"]}
    lines(tmp_path / "dev.jsonl", [*problem.data.read_text().splitlines()[:2], own])
    notes: list[str] = []
    settings = settings_of(
        tune={"negatives": {"per_query": 4}, "max_epochs": 1, "weight_decay": 0.02, "learning_rate": 1e-6},
        data={"validation": str(tmp_path / "dev.jsonl"), "missing": "drop"},
    )
    record = run(problem, tmp_path / "job", settings, notes=notes).training
    facts = (
        (f"{tmp_path.name}/dev: 1 document missing", "0 queries without a positive"),
        ("2 of 3 validation queries are also trained on",),
        ("60 of 60 queries", "tune.negatives.per_query = 4", "tune.negatives.difficulty = 1"),
        ("tune.weight_decay = 0.02 has no effect", "1e-06"),
    )
    for note, told in zip(record.notes, facts, strict=True):
        require_facts(note, *told)
    assert notes[1:5] == list(record.notes)
    validated = f"validated on 3 queries, 2 of them trained on too, from {tmp_path.name}/dev"
    assert record.trained_on == f"triplets: 60 queries, {validated}"


@pytest.mark.parametrize(
    ("tune", "told"),
    [
        ({"weight_decay": 0.02, "learning_rate": 1e-6}, True),
        ({"weight_decay": 0.02, "learning_rate": 2e-6}, False),
        ({"weight_decay": 0.02, "learning_rate": 1e-6, "optimizer": "adamax"}, False),
        ({"weight_decay": 0.01, "learning_rate": 1e-6}, False),
        ({"weight_decay": 0.0, "learning_rate": 1e-6}, False),
    ],
)
def test_a_chosen_decay_that_is_rounded_away_is_told(tune: dict[str, Any], told: bool) -> None:
    assert (adiabatic._decay_note(settings_of(tune=tune).tune) is not None) == told


def test_the_softmax_of_queries_without_negatives_is_validated_as_it_is_trained(
    problem: Problem, tmp_path: Path
) -> None:
    rows = [json.loads(line) for line in problem.data.read_text().splitlines()]
    own = replace(problem, data=tmp_path / "data.jsonl")
    lines(own.data, [{"query": row["query"], "pos": row["pos"]} for row in rows])
    tune = {"loss": "in_batch_softmax", "batch_size": 5}
    objective = objective_in(own.context(), settings_of(tune=tune, data={"validation": str(own.data)}))
    train = objective.train
    batches = [rows for rows, _ in validation_batches(text_order(train.queries), 5, full=True)]
    with torch.no_grad():
        query = torch.from_numpy(objective.encoder.encode(train.queries, side="query", precision="fp32"))
        losses = [
            float(objective._loss(query[rows], train, rows, objective.choose(rows, 0, query[rows])))
            for rows in batches
        ]
    found = objective.validate()
    assert found.loss == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert found.pairs == len(train) * MINED_NEGATIVES


def test_a_batch_of_one_is_validated_on_mined_negatives_where_none_are_listed(
    problem: Problem, tmp_path: Path
) -> None:
    lines(tmp_path / "dev.jsonl", [{"query": "bare", "pos": ["d3"]}])
    tune, data = {"loss": "in_batch_softmax", "batch_size": 1}, {"validation": str(tmp_path / "dev.jsonl")}
    assert objective_in(problem.context(), settings_of(tune=tune, data=data)).validate().loss > 0.01


def test_the_twin_of_a_tower_shares_nothing_and_trains_no_pooler_head() -> None:
    tower = tiny_encoder(width=16, projection=8)
    for dropout in (False, True):
        twin = trainable_copy(tower).train(dropout)
        shared = {id(weights) for weights in twin.parameters()} & {id(own) for own in tower.parameters()}
        assert not shared
        assert weights_of(twin) == weights_of(tower)
        assert {module.training for module in twin.modules()} == {dropout}
        trained = {name for name, weights in twin.named_parameters() if weights.requires_grad}
        assert not any(".pooler." in name for name in trained)
        assert all(weights.requires_grad for weights in twin.used_parameters().values())
    assert not any(module.training for module in tower.modules())
    tower.requires_grad_(False)
    thawed = trainable_copy(tower).train(False).used_parameters()
    assert all(weights.requires_grad for weights in thawed.values())


def test_the_objective_alone_is_that_of_a_job(problem: Problem, tmp_path: Path) -> None:
    run(problem, tmp_path / "job", settings_of(run={"log_every": 1}))
    objective = objective_in(problem.context(), settings_of())
    start, first = log_of(tmp_path / "job")[:2]
    validation = objective.validate()
    assert (start["validation_loss"], start["validation_errors"]) == (validation.loss, validation.errors)
    assert first["loss"] == float(objective.loss(0).detach())


# --- What is refused before anything is written ---


def never_load() -> NoReturn:
    raise AssertionError("the model was loaded")


@pytest.mark.parametrize(
    ("tables", "error", "message"),
    [
        ({}, JobError, "job holds other files"),
        ({"run": {"device": "gpu"}}, ConfigError, "run.device must be auto, cpu, cuda or cuda:N, got 'gpu'"),
        ({"tune": {"freeze": ["blocks[a]"]}}, ConfigError, r"blocks\["),
    ],
)
def test_settings_and_directories_at_fault_are_refused_before_data_or_model_are_read(
    tmp_path: Path, tables: dict[str, Any], error: type[AdiabatError], message: str
) -> None:
    context, out = TuningContext(never_load, tmp_path / "no store", "no data", "tiny"), tmp_path / "job"
    if error is JobError:
        out.mkdir()
        (out / "notes.txt").write_text("mine")
    with pytest.raises(error, match=message):
        begin(context, out, settings=settings_of(**tables), resume=False)
    assert out.exists() == (error is JobError)


def test_a_fault_in_the_data_is_said_before_the_model_is_loaded(problem: Problem, tmp_path: Path) -> None:
    lines(tmp_path / "data.jsonl", [{"query": "a", "pos": ["gone"]}])
    context = TuningContext(never_load, problem.store, str(tmp_path / "data.jsonl"), "tiny")
    with pytest.raises(DataError, match="'gone'"):
        begin(context, tmp_path / "job", settings=settings_of())
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize(
    ("tune", "error", "message"),
    [
        ({"freeze": ["embeding"]}, ModelError, 'freeze pattern "embeding" must match a parameter'),
        ({"freeze": ["."]}, ModelError, "must leave something to train"),
        ({"method": {"kind": "lora", "rank": WIDTH + 1}}, ConfigError, "rank must be <= 16"),
        ({"method": "bias", "freeze": ["bias$"]}, ModelError, r"bias\$"),
        ({"negatives": {"kind": "random", "per_query": 50}}, DataError, "hold at least 51 documents"),
        ({"negatives": {"kind": "hardest", "per_query": 50}}, DataError, "hold at least 51 documents"),
    ],
)
def test_settings_that_model_or_store_have_no_room_for_fail_before_anything_is_written(
    problem: Problem, tmp_path: Path, tune: dict[str, Any], error: type[AdiabatError], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(problem, tmp_path / "job", settings_of(tune=tune))
    assert not (tmp_path / "job").exists()


def test_a_store_of_another_encoder_and_a_missing_package_fail_before_anything_is_written(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match="was built by another encoder"):
        run(problem, tmp_path / "job", model=tiny_dual(width=16, seed=5))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="run.tensorboard = true"):
        run(problem, tmp_path / "job", settings_of(run={"tensorboard": True}))
    assert not (tmp_path / "job").exists()


FULL_DISKS = [
    OSError(28, "No space left on device"),
    SafetensorError("I/O error: No space left on device"),
    Exception("No space left on device (os error 28)"),
]


@pytest.mark.parametrize("fault", FULL_DISKS)
def test_a_full_disk_while_the_model_is_written_is_one_line_and_resuming_ends_the_job(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def full(model: DualEncoder, folder: Path) -> None:
        (folder / "half").write_bytes(b"half")
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(run_record, "save", full)
        with pytest.raises(JobError, match=r"model could not be written: .*No space left on device.*; free"):
            run(problem, tmp_path / "job")
    assert not (tmp_path / "job" / "model").exists()
    assert not (tmp_path / "job" / ".model").exists()
    run(problem, tmp_path / "job", resume=True)
    run(problem, tmp_path / "whole")
    assert everything(tmp_path / "job") == everything(tmp_path / "whole")


def test_checkpoints_that_cannot_be_removed_are_one_line(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused_by_disk(folder: Path) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(run_record, "drop_older", refused_by_disk)
    with pytest.raises(JobError, match="Read-only file system"):
        run(problem, tmp_path / "job")
