"""Gradient caching against sentence-transformers' cached losses: the same value, and the same gradient of every weight."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses as peer

from adiabat.losses.embedded_pairs import Pairs
from adiabat.losses.in_batch import in_batch_softmax, samtone
from adiabat.models.bulk import TokenTable
from adiabat.models.saving import save
from adiabat.models.towers import DualEncoder
from adiabat.training.gradient_cache import Chunking
from adiabat.training.passes import Group, side_passes
from tests.tiny import tiny_encoder

QUERIES = ["what rises", "who fell and why", "a", "where does the long river end", "one two"]
DOCUMENTS = ["the tide", "rome, of many causes", "b", "in the sea, after a thousand miles and more", "three four"]
NEGATIVES = ["a stone", "the wall", "c", "in a lake", "five"]
TEMPERATURE = 0.1


def features(model: SentenceTransformer) -> list[dict[str, Any]]:
    return [dict(model.preprocess(texts)) for texts in (QUERIES, DOCUMENTS, NEGATIVES)]


def loss_named(name: str, pairs: Pairs) -> torch.Tensor:
    whole = pairs.unit()
    if name == "query_to_query":
        return samtone(whole, temperature=TEMPERATURE, symmetric=False)
    return in_batch_softmax(whole, temperature=TEMPERATURE, symmetric=name == "symmetric")


DIRECTIONS: dict[str, dict[str, Any]] = {
    "one way": {},
    "symmetric": {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"},
    "query_to_query": {"directions": ("query_to_doc", "query_to_query"), "partition_mode": "joint"},
}


@pytest.mark.parametrize("name", DIRECTIONS)
@pytest.mark.parametrize("tokens", [1, 40, 10_000])
def test_the_cached_loss_and_all_gradients_are_the_peers(name: str, tokens: int, tmp_path: Path) -> None:
    encoder = tiny_encoder().eval()
    save(DualEncoder(encoder, encoder), tmp_path / "model")
    model = SentenceTransformer(str(tmp_path / "model"), device="cpu").eval()
    loss_of = peer.CachedMultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE, mini_batch_size=2, **DIRECTIONS[name])
    theirs = loss_of(features(model), torch.empty(0))
    theirs.backward()

    tables = [TokenTable.of(encoder, texts, side="query") for texts in (QUERIES, DOCUMENTS, NEGATIVES)]
    rows = np.arange(len(QUERIES))
    with side_passes(encoder, precision="fp32", chunking=Chunking(tokens, cached=True)) as passes:
        query, positive, negative = passes.embed_all([Group(table, rows) for table in tables])
        ours = loss_named(name, Pairs(query, positive, negative))
        ours.backward()

    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-6)
    backbone: Any = model[0]
    expected = dict(backbone.auto_model.named_parameters())
    for weight, own in encoder.backbone.named_parameters():
        if weight.startswith("pooler."):
            continue
        wanted = expected[weight].grad
        torch.testing.assert_close(own.grad, wanted, rtol=1e-4, atol=1e-5 * float(1 + wanted.abs().max()))
