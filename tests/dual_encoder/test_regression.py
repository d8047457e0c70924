"""Training a tower to come close to vectors that stay: those of a frozen tower, or of a store that anybody may have made."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer.losses import EmbedDistillLoss

import adiabat
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked
from adiabat.config.shared import EmbedSettings
from adiabat.core.errors import ConfigError, StoreError
from adiabat.dual_encoder.train import prepared
from adiabat.losses.embedded_pairs import unit_rows
from adiabat.losses.in_batch import cosine_distance, mean_squared_error
from adiabat.models.saving import save
from adiabat.store.vector_store import Store
from adiabat.training.distributed import ALONE
from tests.settings_by_name import by_name
from tests.tiny import tiny_dual

TEXTS = {f"d{number}": f"the answer {number} of colour {number * 7}" for number in range(16)}
ROWS = [{"query": f"answer {number} again", "positive": f"d{number}"} for number in range(16)]
PAIRED = [{**row, "positive": TEXTS[row["positive"]]} for row in ROWS]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps({"id": key, "text": text}) + "\n" for key, text in TEXTS.items()))
    for name, rows in (("ids", ROWS), ("texts", PAIRED)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    save(tiny_dual(), tmp_path / "model")
    settings = checked(EmbedSettings, {"store": {"dtype": "float32", "precision": "fp32"}})
    adiabat.embed(tmp_path / "model", tmp_path / "corpus.jsonl", tmp_path / "store", settings=settings)
    return tmp_path


def settings_in(here: Path, *, data: str = "ids", towers: dict[str, Any] | None = None, **train: Any) -> TrainSettings:
    usual = {"loss": "cosine_distance", "batch_size": 4, "steps": 30, "dropout": False, "learning_rate": 1e-2}
    return checked(
        TrainSettings,
        {
            "job": {"model": str(here / "model"), "data": str(here / f"{data}.jsonl"), "out": str(here / "job")},
            "towers": {"targets": str(here / "store")} if towers is None else towers,
            **by_name(TrainSettings, "train", {**usual, **train}),
            "data": {"validation_fraction": 0.3},
        },
    )


def objective_in(here: Path, **options: Any) -> Any:
    return prepared(lambda name, section: adiabat.load(name, settings=section), settings_in(here, **options), ALONE)[0]


@pytest.mark.parametrize(("loss", "apart"), [("mse", mean_squared_error), ("cosine_distance", cosine_distance)])
def test_the_loss_is_that_of_each_query_and_its_target(here: Path, loss: str, apart: Any) -> None:
    objective = objective_in(here, loss=loss)
    rows = objective.rows(0)
    queries = objective.train.texts.queries.take(objective.train.query[rows])
    ids = objective.train.texts.documents.take(objective.train.positive[rows])
    store = Store.open(here / "store")
    wanted = torch.from_numpy(store.gather(store.rows(ids)).astype(np.float32))
    embedded = torch.from_numpy(adiabat.load(here / "model").encode(queries, side="query", precision="fp32"))
    torch.testing.assert_close(objective.loss(0).detach(), apart(embedded, wanted), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("metric", "apart"), [("mse", mean_squared_error), ("cosine", cosine_distance)])
def test_losses_are_those_of_sentence_transformers(metric: Any, apart: Any) -> None:
    one, other = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64).unbind()
    wanted = EmbedDistillLoss(torch.nn.Identity(), distance_metric=metric).compute_loss_from_embeddings([one], [other])
    torch.testing.assert_close(apart(one, other), wanted)


def test_of_unit_vectors_the_squared_error_is_a_share_of_the_cosine_distance() -> None:
    one, other = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64).unbind()
    torch.testing.assert_close(mean_squared_error(unit_rows(one), unit_rows(other)), cosine_distance(one, other) * 2 / 8)


@pytest.mark.parametrize("loss", ["mse", "cosine_distance"])
def test_a_frozen_tower_gives_the_same_targets_as_its_store(here: Path, loss: str) -> None:
    frozen = objective_in(here, data="texts", towers={"kind": "asymmetric", "frozen": "document"}, loss=loss)
    torch.testing.assert_close(objective_in(here, loss=loss).loss(0), frozen.loss(0), atol=1e-5, rtol=1e-5)


def test_a_student_comes_close_to_its_targets_and_is_one_plain_model(here: Path) -> None:
    result = adiabat.train(settings=settings_in(here))
    assert result is not None
    assert result.training is not None
    rows = [json.loads(line) for line in (here / "job" / "log.jsonl").read_text().splitlines()]
    validated = [row["validation_loss"] for row in rows if "validation_loss" in row]
    assert validated[-1] < 0.5 * validated[0]
    student = adiabat.load(here / "job")
    assert student.shared
    assert not (here / "job" / "model" / "router_config.json").exists()


def test_a_regression_takes_a_batch_of_one_and_no_negatives(here: Path) -> None:
    assert objective_in(here, batch_size=1).loss(0).isfinite()
    with pytest.raises(ConfigError, match="train.loss.negatives_per_query belongs to .*; kind is mse"):
        settings_in(here, loss="mse", negatives_per_query=3)


def test_both_towers_in_training_would_come_to_one_point(here: Path) -> None:
    with pytest.raises(ConfigError, match="train.loss = mse must have documents that stay, or all texts would come to one point"):
        settings_in(here, loss="mse", towers={"kind": "asymmetric"})


def test_targets_of_another_width_are_told_with_the_setting_that_reaches_them(here: Path) -> None:
    with pytest.raises(
        StoreError, match=r"targets must be as wide as the student's embeddings, 8, got 32; set towers.projection_width = 32"
    ):
        objective_in(here, towers={"targets": str(here / "store"), "projection_width": 8})
