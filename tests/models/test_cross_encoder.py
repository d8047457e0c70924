"""Cross-encoders: scores against sentence-transformers, and directories that are none."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder as Peer

from adiabat.core.errors import AdiabatError, ConfigError, ModelError
from adiabat.models import cross_encoder
from adiabat.models.cross_encoder import CrossEncoder, load_cross_encoder
from tests.refused import refused
from tests.tiny import save_tiny, save_tiny_reranker

QUERIES = ["who?", "what is a graph?", "", "x" * 700, "who?"]
DOCUMENTS = ["she", "nodes and edges " * 50, "anything", "y" * 300, "it"]


def loaded(folder: Path, *, max_tokens: int | None = None) -> CrossEncoder:
    return load_cross_encoder(
        str(folder), device=torch.device("cpu"), max_tokens=max_tokens, named_by="reranker"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_reranker(tmp_path_factory.mktemp("models") / "reranker")


@pytest.mark.parametrize("max_tokens", [None, 40])
def test_scores_equal_those_of_sentence_transformers(folder: Path, max_tokens: int | None) -> None:
    peer = Peer(str(folder), device="cpu", max_length=max_tokens or 512)
    wanted = peer.predict(list(zip(QUERIES, DOCUMENTS, strict=True)), activation_fn=torch.nn.Identity())
    scores = loaded(folder, max_tokens=max_tokens).score(QUERIES, DOCUMENTS)
    np.testing.assert_allclose(scores, wanted, rtol=1e-4, atol=1e-5)
    assert len(set(scores.tolist())) == len(scores)


def test_passes_of_few_tokens_give_the_same_scores(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded(folder)
    together = model.score(QUERIES, DOCUMENTS)
    monkeypatch.setattr(cross_encoder, "BATCH_TOKENS", 1)
    np.testing.assert_allclose(model.score(QUERIES, DOCUMENTS), together, rtol=1e-4, atol=1e-5)


def test_a_digest_tells_weights_and_limits_apart(folder: Path, tmp_path: Path) -> None:
    other = save_tiny_reranker(tmp_path / "other", seed=1)
    digests = [loaded(folder), loaded(folder), loaded(folder, max_tokens=40), loaded(other)]
    first, again, *others = (each.digest() for each in digests)
    assert first == again
    assert len({first, *others}) == 3


def test_what_is_no_cross_encoder_is_refused(folder: Path, tmp_path: Path) -> None:
    save_tiny(tmp_path / "encoder")
    save_tiny_reranker(tmp_path / "three", labels=3)
    save_tiny_reranker(tmp_path / "wild")
    wild = loaded(tmp_path / "wild")
    torch.nn.init.constant_(wild.model.classifier.bias, float("nan"))
    faults: list[tuple[type[AdiabatError], str, tuple[str, ...]]] = [
        (ModelError, "encoder", ("reranker must be a cross-encoder", "lack classifier")),
        (ModelError, "three", ("one label", "with 3")),
    ]
    for error, name, facts in faults:
        with refused(error, *facts):
            loaded(tmp_path / name)
    with refused(ConfigError, "label.max_tokens must be at most 512", "got 513"):
        loaded(folder, max_tokens=513)
    with refused(ModelError, "finite scores"):
        wild.score(["a"], ["b"])
