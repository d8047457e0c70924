"""Tuning a small part of the query tower: its biases, or low-rank adapters that are merged when saved."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adiabat.adiabatic.tune import TuningRun
from adiabat.config.tuning import TuneSettings
from adiabat.core.progress import SILENT
from adiabat.models.adapters import train_biases_only
from adiabat.models.encoder import Encoder
from adiabat.models.loading import load
from adiabat.models.towers import trainable_copy
from tests.adiabatic.problem import Problem, run, settings_of
from tests.jobs import weights_of

TEXTS = ["about paper 4, 3", "about note 1, 9", ""]


def method(name: str, **tune: Any) -> TuneSettings:
    """A job of a method that keeps its last weights."""
    kind = {"kind": name} | ({"rank": 4} if name == "lora" else {})
    return settings_of(tune={"method": kind, "keep": "last", **tune})


def begun(problem: Problem, out: Path, settings: TuneSettings) -> TuningRun:
    """A run before its first step."""
    return TuningRun.begin(problem.context(), out, settings=settings, resume=False, watch=SILENT)


def embedded(tower: Encoder) -> np.ndarray:
    return tower.encode(TEXTS, side="query", precision="fp32")


@pytest.mark.parametrize("name", ["lora", "bias"])
def test_only_a_part_is_tuned_and_the_start_is_unchanged(problem: Problem, tmp_path: Path, name: str) -> None:
    tower = begun(problem, tmp_path / "job", method(name)).objective.encoder
    wanted = "lora_" if name == "lora" else "bias"
    trained = [key for key, weights in tower.named_parameters() if weights.requires_grad]
    assert trained
    assert all(wanted in key for key in trained)
    assert np.allclose(embedded(tower), embedded(problem.fresh().query), atol=1e-6)


@pytest.mark.parametrize("name", ["lora", "bias"])
def test_what_is_saved_is_a_plain_tower_that_embeds_as_the_tuned_one(
    problem: Problem, tmp_path: Path, name: str
) -> None:
    one = begun(problem, tmp_path / "job", method(name))
    one.carry_out().finish(command="")
    saved = load(tmp_path / "job" / "model").query
    assert not any("lora" in key for key, _ in saved.named_parameters())
    tuned = embedded(one.objective.encoder.to("cpu").eval())
    assert np.allclose(embedded(saved), tuned, atol=1e-5)
    assert not np.allclose(tuned, embedded(problem.fresh().query), atol=1e-4)


def test_adapters_move_the_dense_layers_and_biases_themselves(problem: Problem, tmp_path: Path) -> None:
    lora, bias = (run(problem, tmp_path / name, method(name)).training for name in ("lora", "bias"))
    assert {one.name.rpartition(".")[2] for one in lora.layers} == {"weight"}
    assert all(one.relative for one in lora.layers)
    assert not any("embeddings" in one.name or "LayerNorm" in one.name for one in (*lora.layers,))
    assert {one.name.rpartition(".")[2] for one in bias.layers} == {"bias"}
    tower = trainable_copy(problem.fresh().query).train(False)
    train_biases_only(tower.backbone)
    parts = dict(tower.backbone.named_parameters())
    trained = [one for key, one in parts.items() if one.requires_grad and not key.startswith("embeddings")]
    assert bias.trainable == sum(weights.numel() for weights in trained)


def test_adapters_follow_the_seed(problem: Problem, tmp_path: Path) -> None:
    other = settings_of(tune={"method": {"kind": "lora", "rank": 4}}, run={"seed": 1})
    jobs = {"first": method("lora"), "again": method("lora"), "other": other}
    drawn = {}
    for name, settings in jobs.items():
        tower = begun(problem, tmp_path / name, settings).objective.encoder
        drawn[name] = {key: one for key, one in weights_of(tower).items() if "lora_A" in key}
    assert drawn["first"] == drawn["again"] != drawn["other"]


def test_names_of_what_is_frozen_go_with_a_method(problem: Problem, tmp_path: Path) -> None:
    settings = method("lora", freeze=["embeddings", "blocks[0].attention"])
    tower = begun(problem, tmp_path / "job", settings).objective.encoder
    trained = [key for key, weights in tower.named_parameters() if weights.requires_grad]
    assert trained
    assert not any(".attention.self" in key or ".attention.output" in key for key in trained)
