"""Training a tower against vectors that stay: those of a frozen tower, or of a store that anybody may have
made.
"""

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
from adiabat.core.errors import ConfigError, DataError, JobError, StoreError
from adiabat.dual_encoder.train import prepared
from adiabat.losses.embedded_pairs import unit_rows
from adiabat.losses.in_batch import cosine_distance, mean_squared_error
from adiabat.models.encoder import Encoder
from adiabat.models.saving import save
from adiabat.store.vector_store import Store
from adiabat.training.distributed import ALONE
from tests.dual_encoder.problem import FROZEN, write_rows
from tests.jobs import log_of
from tests.settings_by_name import by_name
from tests.tiny import tiny_dual

DOCUMENTS = {f"d{number}": f"paper {number} of {number * number} pages" for number in range(14)}
ROWS = [
    {"query": f"paper {number} again", "positive": f"d{number}", "negative": f"d{(number + 5) % 14}"}
    for number in range(14)
]
REGRESSIONS = [("mse", mean_squared_error), ("cosine_distance", cosine_distance)]


def embed(here: Path, name: str, dtype: str) -> None:
    settings = checked(EmbedSettings, {"store": {"dtype": dtype, "precision": "fp32"}})
    adiabat.embed(here / "model", here / "corpus.jsonl", here / name, settings=settings)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A model, its store, and pairs whose documents are ids or texts."""
    write_rows(tmp_path / "corpus.jsonl", [{"id": key, "text": text} for key, text in DOCUMENTS.items()])
    write_rows(tmp_path / "ids.jsonl", ROWS)
    named = [{name: DOCUMENTS[row[name]] for name in ("positive", "negative")} for row in ROWS]
    write_rows(tmp_path / "texts.jsonl", [row | texts for row, texts in zip(ROWS, named, strict=True)])
    save(tiny_dual(), tmp_path / "model")
    embed(tmp_path, "store", "float32")
    return tmp_path


def settings_in(
    here: Path, data: str = "ids", *, towers: dict[str, Any] | None = None, **tables: Any
) -> TrainSettings:
    """Of a run on stored vectors; `towers` takes the place of the store, and `train` is by the last names of
    its settings.
    """
    usual = {"batch_size": 4, "steps": 4, "dropout": False, "learning_rate": 1e-2, **tables.pop("train", {})}
    stored = {
        "job": {"model": str(here / "model"), "data": str(here / f"{data}.jsonl"), "out": str(here / "job")},
        "towers": {**FROZEN, "store": str(here / "store")} if towers is None else towers,
        "data": {"validation_fraction": 0.3},
    }
    return checked(TrainSettings, {**stored, **by_name(TrainSettings, "train", usual), **tables})


def targets(here: Path, **more: Any) -> dict[str, Any]:
    return {"targets": str(here / "store"), **more}


def objective_of(settings: TrainSettings) -> Any:
    return prepared(lambda name, section: adiabat.load(name, settings=section), settings, ALONE)[0]


# --- A frozen document tower ---


@pytest.mark.parametrize("data", ["ids", "texts"])
@pytest.mark.parametrize("loss", ["in_batch_softmax", "samtone", "pair", "triplet", "mse", "cosine_distance"])
def test_a_loss_against_stored_vectors_is_that_against_a_tower(here: Path, data: str, loss: str) -> None:
    train = {"loss": {"kind": loss}}
    stored = objective_of(settings_in(here, data, train=train)).loss(0)
    frozen = objective_of(settings_in(here, "texts", train=train, towers=FROZEN)).loss(0)
    torch.testing.assert_close(stored, frozen, atol=1e-5, rtol=1e-5)


def test_no_document_is_embedded_and_the_job_is_whole(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    encode = Encoder.encode

    def noted(self: Encoder, texts: list[str], *, side: str, **options: Any) -> Any:
        seen.append(side)
        return encode(self, texts, side=side, **options)

    monkeypatch.setattr(Encoder, "encode", noted)
    assert adiabat.train(settings=settings_in(here)).training.steps == 4
    assert set(seen) == {"query"}
    # The document tower that is saved is the one of the store, which serves the job from here on.
    assert len(adiabat.search(here / "store", "paper 3", model=here / "job", k=2)) == 2


def test_other_models_and_documents_than_those_of_the_store_are_refused(here: Path) -> None:
    with pytest.raises(StoreError, match="store was built by another encoder: prompt"):
        objective_of(settings_in(here, encoder={"document_prompt": "passage: "}))
    write_rows(here / "ids.jsonl", [*ROWS, {"query": "another", "positive": "d77"}])
    with pytest.raises(DataError, match=r'must be in the store .*store, it lacks "d77"; embed them'):
        objective_of(settings_in(here))


def test_another_store_under_the_same_job_is_not_gone_on_with(here: Path) -> None:
    adiabat.train(settings=settings_in(here))
    embed(here, "other", "float16")
    other = settings_in(here, towers={**FROZEN, "store": str(here / "other")})
    with pytest.raises(JobError, match="the pairs differ"):
        adiabat.train(settings=other, resume=True)


# --- Targets of a student (Reimers 2021) ---


@pytest.mark.parametrize(("loss", "apart"), REGRESSIONS)
def test_the_loss_is_that_of_each_query_and_its_target(here: Path, loss: str, apart: Any) -> None:
    objective = objective_of(settings_in(here, towers=targets(here), train={"loss": loss}))
    rows, texts = objective.rows(0), objective.train.texts
    store = Store.open(here / "store")
    documents = texts.documents.take(objective.train.positive[rows])
    wanted = torch.from_numpy(store.gather(store.rows(documents)).astype(np.float32))
    queries = texts.queries.take(objective.train.query[rows])
    embedded = torch.from_numpy(adiabat.load(here / "model").encode(queries, side="query", precision="fp32"))
    torch.testing.assert_close(objective.loss(0).detach(), apart(embedded, wanted), atol=1e-5, rtol=1e-5)


def test_losses_are_those_of_sentence_transformers_and_of_unit_vectors_shares_of_one_another() -> None:
    generator = torch.Generator().manual_seed(1)
    one, other = torch.randn(2, 5, 8, generator=generator, dtype=torch.float64).unbind()
    for metric, apart in (("mse", mean_squared_error), ("cosine", cosine_distance)):
        peer = EmbedDistillLoss(torch.nn.Identity(), distance_metric=metric)
        torch.testing.assert_close(apart(one, other), peer.compute_loss_from_embeddings([one], [other]))
    squared = mean_squared_error(unit_rows(one), unit_rows(other))
    torch.testing.assert_close(squared, cosine_distance(one, other) * 2 / 8)


def test_a_student_comes_close_to_its_targets_and_is_one_plain_model(here: Path) -> None:
    train = {"loss": "cosine_distance", "steps": 30}
    adiabat.train(settings=settings_in(here, towers=targets(here), train=train))
    validated = [row["validation_loss"] for row in log_of(here / "job") if "validation_loss" in row]
    assert validated[-1] < 0.5 * validated[0]
    assert adiabat.load(here / "job").shared
    assert not (here / "job" / "model" / "router_config.json").exists()


def test_a_regression_takes_a_batch_of_one(here: Path) -> None:
    one = settings_in(here, towers=targets(here), train={"loss": "mse", "batch_size": 1})
    assert objective_of(one).loss(0).isfinite()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"negatives_per_query": 3}, ConfigError, "train.loss.negatives_per_query .*; kind is mse"),
        ({"kind": "asymmetric"}, ConfigError, "train.loss = mse must have fixed document vectors"),
        ({"projection_width": 8}, StoreError, "embeddings, 8, got 32; set towers.projection_width = 32"),
    ],
)
def test_what_a_regression_cannot_do_is_refused(
    here: Path, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    train, towers = {"loss": "mse"}, None
    match given:
        case {"negatives_per_query": _}:
            train |= given
        case {"kind": _}:
            towers = given
        case _:
            towers = targets(here, **given)
    with pytest.raises(error, match=message):
        objective_of(settings_in(here, train=train, towers=towers))
