"""Tuning a small part of the query tower: its biases, or low-rank adapters that are merged when saved."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adiabat.adiabatic.tune import TuningRun
from adiabat.adiabatic.tuning_context import TuningContext
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import ConfigError, ModelError
from adiabat.core.progress import SILENT
from adiabat.models.adapters import train_biases_only
from adiabat.models.loading import load
from adiabat.models.towers import trainable_copy
from adiabat.results.training_record import TrainingRecord
from tests.adiabatic.problem import WIDTH, Problem, run, settings_of

TEXTS = ["about paper 4, 3", "about note 1, 9", ""]


def method(name: str, rank: int = 4, **tune: Any) -> TuneSettings:
    """A job of a method that keeps its last weights."""
    return settings_of(
        tune={"method": {"kind": name} | ({"rank": rank} if name == "lora" else {}), "keep": "last", **tune}
    )


def begun(problem: Problem, out: Path, settings: TuneSettings) -> TuningRun:
    """A run before its first step."""
    context = TuningContext(problem.fresh, problem.store, str(problem.data))
    return TuningRun.begin(context, out, settings=settings, resume=False, watch=SILENT)


def record(problem: Problem, out: Path, settings: TuneSettings) -> TrainingRecord:
    """Of a whole run."""
    found = run(problem, out, settings).training
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["lora", "bias"])
def test_only_the_part_is_tuned_and_the_start_embeds_as_before(
    problem: Problem, tmp_path: Path, name: str
) -> None:
    tower = begun(problem, tmp_path / "job", method(name)).objective.encoder
    wanted = "lora_" if name == "lora" else "bias"
    trained = [key for key, weights in tower.named_parameters() if weights.requires_grad]
    assert trained
    assert all(wanted in key for key in trained)
    start = problem.fresh().query.encode(TEXTS, side="query", precision="fp32")
    assert np.allclose(tower.encode(TEXTS, side="query", precision="fp32"), start, atol=1e-6)


@pytest.mark.parametrize("name", ["lora", "bias"])
def test_what_is_saved_is_a_plain_tower_that_embeds_as_the_tuned_one(
    problem: Problem, tmp_path: Path, name: str
) -> None:
    one = begun(problem, tmp_path / "job", method(name))
    one.carry_out().finish(command="")
    saved = load(tmp_path / "job" / "model").query
    assert not any("lora" in key for key, _ in saved.named_parameters())
    tuned = one.objective.encoder.to("cpu").eval().encode(TEXTS, side="query", precision="fp32")
    assert np.allclose(saved.encode(TEXTS, side="query", precision="fp32"), tuned, atol=1e-5)
    assert not np.allclose(
        tuned, problem.fresh().query.encode(TEXTS, side="query", precision="fp32"), atol=1e-4
    )


def test_adapters_move_the_dense_layers_and_biases_themselves(problem: Problem, tmp_path: Path) -> None:
    lora, bias = (record(problem, tmp_path / name, method(name)) for name in ("lora", "bias"))
    assert {one.name.rpartition(".")[2] for one in lora.layers} == {"weight"}
    assert all(one.relative for one in lora.layers)
    assert not any("embeddings" in one.name or "LayerNorm" in one.name for one in (*lora.layers,))
    assert {one.name.rpartition(".")[2] for one in bias.layers} == {"bias"}
    tower = trainable_copy(problem.fresh().query).train(False)
    train_biases_only(tower.backbone)
    outside = [
        weights
        for key, weights in tower.backbone.named_parameters()
        if weights.requires_grad and not key.startswith("embeddings")
    ]
    assert bias.trainable == sum(weights.numel() for weights in outside)


def test_adapters_follow_the_seed(problem: Problem, tmp_path: Path) -> None:
    first, again = (
        begun(problem, tmp_path / str(number), method("lora")).objective.encoder for number in range(2)
    )
    other = settings_of(tune={"method": {"kind": "lora", "rank": 4}}, run={"seed": 1})
    drawn = [
        [weights.detach().numpy().copy() for key, weights in tower.named_parameters() if "lora_A" in key]
        for tower in (first, again, begun(problem, tmp_path / "other", other).objective.encoder)
    ]
    assert all(np.array_equal(one, two) for one, two in zip(drawn[0], drawn[1], strict=True))
    assert not all(np.array_equal(one, two) for one, two in zip(drawn[0], drawn[2], strict=True))


def test_a_rank_that_no_layer_has_room_for_is_refused_before_anything_is_written(
    problem: Problem, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="rank must be <= 16"):
        run(problem, tmp_path / "job", method("lora", rank=WIDTH + 1))
    assert not (tmp_path / "job").exists()


def test_names_of_what_is_frozen_go_with_a_method(problem: Problem, tmp_path: Path) -> None:
    tower = begun(
        problem, tmp_path / "job", method("lora", freeze=["embeddings", "blocks[0].attention"])
    ).objective.encoder
    trained = [key for key, weights in tower.named_parameters() if weights.requires_grad]
    assert trained
    assert not any(".attention.self" in key or ".attention.output" in key for key in trained)
    with pytest.raises((ConfigError, ModelError)):
        begun(problem, tmp_path / "other", method("bias", freeze=["bias$"]))
