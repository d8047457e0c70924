"""Training a query tower of any loss against the stored vectors of a frozen document tower."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import adiabat
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked
from adiabat.config.shared import EmbedSettings
from adiabat.core.errors import DataError, JobError, StoreError
from adiabat.dual_encoder.train import prepared
from adiabat.models.encoder import Encoder
from adiabat.models.saving import save
from adiabat.training.distributed import ALONE
from tests.tiny import tiny_dual

DOCUMENTS = {f"d{number}": f"paper {number} of {number * number} pages" for number in range(12)}
ROWS = [{"query": f"question {number}", "positive": f"d{number}", "negative": f"d{(number + 5) % 12}"} for number in range(12)]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps({"id": key, "text": text}) + "\n" for key, text in DOCUMENTS.items()))
    texts = [{"query": row["query"], "positive": DOCUMENTS[row["positive"]], "negative": DOCUMENTS[row["negative"]]} for row in ROWS]
    for name, rows in (("ids", ROWS), ("texts", texts)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    save(tiny_dual(), tmp_path / "model")
    settings = checked(EmbedSettings, {"store": {"dtype": "float32", "precision": "fp32"}})
    adiabat.embed(tmp_path / "model", tmp_path / "corpus.jsonl", tmp_path / "store", settings=settings)
    return tmp_path


def settings_in(here: Path, data: str, **tables: Any) -> TrainSettings:
    towers = {"kind": "asymmetric", "frozen": "document", "store": str(here / "store")}
    base: dict[str, Any] = {
        "job": {"model": str(here / "model"), "data": str(here / f"{data}.jsonl"), "out": str(here / "job")},
        "towers": towers,
        "train": {"batch_size": 4, "steps": 4, "dropout": False, "learning_rate": 1e-3},
        "data": {"validation_fraction": 0.3},
    }
    return checked(TrainSettings, {name: {**base.get(name, {}), **tables.get(name, {})} for name in {*base, *tables}})


def loss_of(settings: TrainSettings) -> torch.Tensor:
    objective, _ = prepared(lambda name, section: adiabat.load(name, settings=section), settings, ALONE)
    return objective.loss(0)


@pytest.mark.parametrize("data", ["ids", "texts"])
@pytest.mark.parametrize("loss", ["in_batch_softmax", "samtone", "pair", "triplet"])
def test_a_loss_against_stored_vectors_is_that_against_the_frozen_tower(here: Path, data: str, loss: str) -> None:
    train = {"loss": {"kind": loss, "negatives_per_query": 1}, "batch_size": 4}
    stored = loss_of(settings_in(here, data, train=train))
    frozen = loss_of(settings_in(here, "texts", train=train, towers={"kind": "asymmetric", "frozen": "document", "store": None}))
    torch.testing.assert_close(stored, frozen, atol=1e-5, rtol=1e-5)


def test_no_document_is_embedded_and_the_job_is_whole(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    encode = Encoder.encode

    def noted(self: Encoder, texts: list[str], *, side: str, **options: Any) -> Any:
        seen.append(side)
        return encode(self, texts, side=side, **options)

    monkeypatch.setattr(Encoder, "encode", noted)
    result = adiabat.train(settings=settings_in(here, "ids"))
    assert set(seen) == {"query"}
    assert result.training is not None
    assert result.training.steps == 4
    # The document tower that is saved is the one of the store, which serves the job from here on.
    hits = adiabat.search(here / "store", "question 3", model=here / "job", k=2)
    assert len(hits) == 2


def test_a_store_of_another_model_is_refused(here: Path) -> None:
    with pytest.raises(StoreError, match="store was built by another encoder: prompt"):
        loss_of(settings_in(here, "ids", encoder={"document_prompt": "passage: "}))


def test_documents_that_the_store_lacks_are_named(here: Path) -> None:
    with (here / "ids.jsonl").open("a") as stream:
        stream.write(json.dumps({"query": "another", "positive": "d77"}) + "\n")
    with pytest.raises(DataError, match=r'every document must be in the store .*store, it lacks "d77"; embed them'):
        loss_of(settings_in(here, "ids"))


def test_another_store_under_the_same_job_is_not_gone_on_with(here: Path) -> None:
    adiabat.train(settings=settings_in(here, "ids"))
    settings = checked(EmbedSettings, {"store": {"dtype": "float16", "precision": "fp32"}})
    adiabat.embed(here / "model", here / "corpus.jsonl", here / "other", settings=settings)
    towers = {"kind": "asymmetric", "frozen": "document", "store": str(here / "other")}
    with pytest.raises(JobError, match=r"the pairs differ from those the job began with"):
        adiabat.train(settings=settings_in(here, "ids", towers=towers), resume=True)
