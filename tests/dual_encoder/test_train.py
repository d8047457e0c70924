"""Whole training jobs on a tiny model."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from adiabat.config.shared import EncoderSection
from adiabat.core.errors import AdiabatError, DataError, JobError
from adiabat.dual_encoder.contrastive_objective import PairContrast
from adiabat.dual_encoder.pair_data import read_pairs
from adiabat.dual_encoder.train import prepared
from adiabat.dual_encoder.train import train as run_training
from adiabat.models.loading import load
from adiabat.models.towers import DualEncoder
from adiabat.results.record import read_result
from adiabat.training.distributed import ALONE
from tests.dual_encoder.problem import (
    FROZEN,
    Problem,
    job_settings,
    model,
    numbered_rows,
    prepared_objective,
    run,
    write_problem,
    write_rows,
)
from tests.jobs import FILES, everything, log_of, weights_of

TEXTS = ["about paper 4", "anything", "a text that is rather longer than the others"]
CONSTANT: dict[str, Any] = {"schedule": "constant", "warmup_fraction": 0.0}


def never(name: str, section: EncoderSection) -> DualEncoder:
    raise AssertionError("a model was loaded")


# --- What a job does ---


def test_a_job_learns_and_leaves_all_its_files(problem: Problem, tmp_path: Path) -> None:
    result = run(job_settings(problem, tmp_path / "job", train={"steps": 20, "validate_every": 8}))
    record = result.training
    assert (record.steps, record.epochs, record.stop_reason) == (20, 3, "the limit of 20 steps was reached")
    losses = dict(record.validation_loss)
    assert list(losses) == [0, 1, 2, 3]
    assert losses[3] < losses[0]
    assert record.measures["RR"][-1][1] > record.measures["RR"][0][1]
    assert [row["step"] for row in log_of(tmp_path / "job") if "validation_loss" in row] == [0, 8, 16, 20]
    assert read_result(tmp_path / "job" / "result.json") == result
    assert {path.name for path in (tmp_path / "job").iterdir()} == FILES


WAYS: dict[str, dict[str, Any]] = {
    "shared towers": {},
    "towers apart": {"towers": {"kind": "asymmetric"}},
    "a shared projection": {"towers": {"kind": "shared_projection", "projection_width": 6}},
    "adapters": {"train": {"method": {"kind": "lora", "rank": 4}}},
    "adapters in towers apart": {
        "train": {"method": {"kind": "lora", "rank": 4}},
        "towers": {"kind": "asymmetric", "projection_width": 6},
    },
    "biases": {"train": {"loss": {"kind": "samtone", "same_tower": "both"}, "method": "bias"}},
    "frozen documents": {
        "towers": FROZEN,
        "train": {"loss": {"kind": "triplet", "margin": 0.3}},
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_trained_models_load_in_sentence_transformers_too(problem: Problem, tmp_path: Path, way: str) -> None:
    tables = {**WAYS[way], "train": {"steps": 4, **WAYS[way].get("train", {})}}
    run(job_settings(problem, tmp_path / "job", **tables))
    found = load(tmp_path / "job" / "model")
    peer = SentenceTransformer(str(tmp_path / "job" / "model"), device="cpu")
    theirs = {"query": peer.encode_query(TEXTS), "document": peer.encode_document(TEXTS)}
    start = model()
    for side, vectors in theirs.items():
        ours = found.encode(TEXTS, side=side, precision="fp32")
        np.testing.assert_allclose(ours, np.asarray(vectors), atol=1e-5)
        before = start.encode(TEXTS, side=side, precision="fp32")
        same = ours.shape == before.shape and np.allclose(ours, before)
        assert same == (way == "frozen documents" and side == "document")
    assert found.shared == ("towers" not in WAYS[way])
    assert peer.similarity_fn_name == "cosine"
    assert not any("lora" in name for name, _ in found.query.named_parameters())


def test_frozen_weights_stay_as_they_were_bit_for_bit(problem: Problem, tmp_path: Path) -> None:
    run(job_settings(problem, tmp_path / "job", train={"freeze": ["embeddings", "blocks[0].attention"]}))
    before, after = weights_of(model().query), weights_of(load(tmp_path / "job" / "model").query)
    places = (".embeddings.", ".layer.0.attention.", "pooler")
    frozen = {name for name in before if any(place in name for place in places)}
    assert {name for name in before if after[name] == before[name]} == frozen
    assert len(frozen) > 8


def test_a_job_repeats_itself_and_another_seed_gives_another_result(problem: Problem, tmp_path: Path) -> None:
    for name in ("one", "two"):
        torch.manual_seed(len(name))
        run(job_settings(problem, tmp_path / name))
        torch.rand(3)
    run(job_settings(problem, tmp_path / "other", run={"seed": 1}))
    assert everything(tmp_path / "one") == everything(tmp_path / "two")
    assert everything(tmp_path / "one")["query"] != everything(tmp_path / "other")["query"]


@pytest.mark.usefixtures("two_blocks")
def test_the_best_weights_are_those_of_the_lowest_validation_loss(problem: Problem, tmp_path: Path) -> None:
    settings = {"learning_rate": 0.015, "steps": 12, "validate_every": 2, **CONSTANT}
    kept = job_settings(problem, tmp_path / "best", train={**settings, "keep": "best"})
    run(kept)
    run(job_settings(problem, tmp_path / "last", train={**settings, "keep": "last"}))
    assert log_of(tmp_path / "best") == log_of(tmp_path / "last")
    rows = [row for row in log_of(tmp_path / "best") if "validation_loss" in row]
    losses = {row["epoch"]: row["validation_loss"] for row in rows}
    best = min(losses, key=lambda epoch: losses[epoch])
    assert 0 < best < 6, "a rate at which the last weights are not the best"
    found = {keep: everything(tmp_path / keep) for keep in ("best", "last")}
    assert (found["best"]["best"], found["last"]["best"]) == (best, 6)
    _, tensors = found["best"]["checkpoint"]
    for keep, prefix in (("best", "best/"), ("last", "weights/")):
        saved = {name: weights for name, weights in found[keep]["query"].items() if "pooler" not in name}
        assert saved == {name: tensors[f"{prefix}query.{name}"] for name in saved}
    again = PairContrast(load(tmp_path / "best" / "model"), *read_pairs(str(problem.data), kept.data), kept)
    assert again.validate().loss == pytest.approx(losses[best], rel=1e-5)


@pytest.mark.parametrize(
    "train",
    [
        {"optimizer": "adafactor", "learning_rate": 1e-2},
        {"loss": {"kind": "samtone", "temperature": "learned"}},
        {"loss": {"temperature": {"kind": "scheduled", "steps": 5}}},
        {"loss": {"negatives_shared": False, "guide": {"model": "other", "margin": 0.05}}},
        {"matryoshka": [4, 8], "max_grad_norm": 0.1, "weight_decay": 0.0},
    ],
    ids=str,
)
def test_ways_to_train_run_to_their_end(problem: Problem, tmp_path: Path, train: dict[str, Any]) -> None:
    run(job_settings(problem, tmp_path / "job", train={"steps": 6, **train}))
    rows = log_of(tmp_path / "job")
    assert all(math.isfinite(row["loss"]) for row in rows if "loss" in row)
    assert weights_of(load(tmp_path / "job" / "model").query) != weights_of(model().query)
    learned = [row["temperature"] for row in rows if "temperature" in row]
    assert (len(set(learned)) > 1) == (train.get("loss", {}).get("temperature") == "learned")


def test_bf16_changes_the_steps_but_hardly_the_losses(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adiabat.models.device.native_bf16", lambda device: False)
    losses, notes = {}, dict[str, list[str]](fp32=[], bf16=[])
    for precision in ("fp32", "bf16"):
        tables: Any = {"train": {"dropout": False}, "run": {"precision": precision}}
        run(job_settings(problem, tmp_path / precision, **tables), notes=notes[precision])
        losses[precision] = [row["loss"] for row in log_of(tmp_path / precision) if "loss" in row]
    assert losses["bf16"] != losses["fp32"]
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.1)
    assert [sum("only emulated" in note for note in told) for told in notes.values()] == [0, 1]


# --- Odd sizes ---


def test_a_batch_of_one_learns_from_the_negatives_of_its_query(problem: Problem, tmp_path: Path) -> None:
    train = {"batch_size": 1, "steps": 60, "validate_every": 60}
    run(job_settings(problem, tmp_path / "job", train=train, run={"log_every": 20}))
    losses = [row["loss"] for row in log_of(tmp_path / "job") if "loss" in row]
    assert 0 < losses[-1] < losses[0]


def test_a_batch_of_all_pairs_is_the_largest_there_can_be(problem: Problem, tmp_path: Path) -> None:
    pairs = len(read_pairs(str(problem.data), job_settings(problem, tmp_path).data)[0])
    run(job_settings(problem, tmp_path / "job", train={"batch_size": pairs, "steps": 1}))
    told = f"pairs: train.batch_size must be at most the {pairs} pairs .*, got {pairs + 1}"
    with pytest.raises(DataError, match=told):
        run(job_settings(problem, tmp_path / "new", train={"batch_size": pairs + 1}))


# --- Numbers that are none ---


def test_a_loss_that_is_no_number_names_step_and_queries_and_leaves_the_weights_of_before(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: PairContrast, step: int) -> Tensor:
        return loss(self, step) * (math.nan if step == 5 else 1.0)

    loss = PairContrast.loss
    monkeypatch.setattr(PairContrast, "loss", broken)
    settings = job_settings(problem, tmp_path / "job")
    with pytest.raises(JobError) as fault:
        run(settings)
    said = str(fault.value)
    assert "got nan at step 5 (6 queries: row-" in said
    assert all(name in said for name in prepared_objective(settings).batch_ids(5)[:5])
    assert sorted(path.name for path in (tmp_path / "job" / "checkpoints").iterdir())[-1] == "step-000000005"
    assert not (tmp_path / "job" / "model").exists()


def test_a_rate_that_is_far_too_high_ends_in_one_line(problem: Problem, tmp_path: Path) -> None:
    train = {"learning_rate": 1e30, "optimizer": "sgd", "max_grad_norm": 0, "warmup_fraction": 0.0}
    train["loss"] = {"similarity": "dot"}
    with pytest.raises(JobError, match="must be a finite number, got (nan|inf)"):
        run(job_settings(problem, tmp_path / "job", train=train))


# --- What is refused before anything long begins ---


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"job": {"data": None, "out": None}}, "2 faults: job.data must be given, .*; job.out must be given"),
        ({"train": {"freeze": ["blocks[a]"]}}, r"freeze must use blocks\[i\]"),
        ({"train": {"batch_size": 999}}, "train.batch_size must be at most the"),
    ],
)
def test_what_is_wrong_is_told_before_a_model_is_loaded_and_leaves_nothing(
    problem: Problem, tmp_path: Path, tables: dict[str, Any], said: str
) -> None:
    with pytest.raises(AdiabatError, match=said):
        run_training(never, job_settings(problem, tmp_path / "new", **tables))
    assert not (tmp_path / "new").exists()


def test_data_that_does_not_fit_the_loss_is_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    write_problem(tmp_path)
    write_rows(tmp_path / "dev.jsonl", [{"query": "a new one", "positive": "its answer"}])
    write_rows(tmp_path / "bare.jsonl", numbered_rows(20))
    dev = {"validation": str(tmp_path / "dev.jsonl")}
    for data, validation, train, message in (
        ("bare", {}, {"loss": "triplet"}, "bare: every query must list a negative if train.loss is triplet"),
        ("bare", {}, {"error_unit": "pairs"}, 'bare: .* negatives where train.error_unit is "pairs"'),
        ("pairs", dev, {"loss": "triplet"}, "dev: every query must list a negative"),
        ("pairs", dev, {"keep": "best"}, 'dev: .* two documents .* train.keep is "best", got one'),
    ):
        job = {"data": str(tmp_path / f"{data}.jsonl")}
        tables: Any = {"job": job, "train": train, "data": validation}
        settings = job_settings(Problem(tmp_path), tmp_path / "new", **tables)
        with pytest.raises(DataError, match=message):
            prepared(never, settings, ALONE)
