"""Pairs of towers on disk: sentence-transformers gives our embeddings, and weights of both towers stay
shared, there and here.
"""

import ast
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer import modules as peers
from torch import nn

from adiabat.data.records import SIDES
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.loading import load
from adiabat.models.saving import QUERY_ARGUMENTS, model_card, save
from adiabat.models.towers import DualEncoder, TowerKind, build_towers
from tests.models.peer_directories import (
    TEXTS,
    assert_same_model,
    assert_same_vectors,
    dense,
    peer_of,
    router,
)
from tests.models.worlds import ROOT, ROUTER
from tests.tiny import Kind, files_of, tiny_dual, tiny_encoder

SETTINGS = EncoderSettings(max_tokens=64, query_prompt="query: ", document_prompt="passage: ")
TOWERS: tuple[TowerKind, ...] = get_args(TowerKind)


def trained(kind: TowerKind, family: Kind = "bert", *, width: int | None = 8) -> DualEncoder:
    """Towers as training would leave them: their weights have moved apart."""
    start = tiny_dual(family, settings=SETTINGS)
    model = build_towers(start, kind=kind, projection_width=width, seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weights in (*model.query.used_parameters().values(), *model.document.used_parameters().values()):
            weights.add_(torch.randn(weights.shape, generator=generator), alpha=0.05)
    return model


@pytest.mark.parametrize("family", ["bert", "t5", "llama"])
@pytest.mark.parametrize("kind", TOWERS)
def test_embeddings_survive_saving_and_are_the_peers(kind: TowerKind, family: Kind, tmp_path: Path) -> None:
    model = trained(kind, family)
    save(model, tmp_path)
    again = load(tmp_path)
    assert again.shared == (kind == "shared")
    assert_same_model(again, model)
    assert_same_vectors(again, tmp_path)
    if kind != "shared":
        queries, documents = (model.encode(TEXTS, side=side, precision="fp32") for side in SIDES)
        assert np.abs(queries - documents).max() > 0.01


def test_a_shared_projection_is_named_in_both_routes_and_stays_one_object(tmp_path: Path) -> None:
    save(trained("shared_projection"), tmp_path)
    structure = json.loads((tmp_path / ROUTER).read_text())["structure"]
    assert [name for name in structure["query"] if name in structure["document"]] == ["query_2_Dense"]
    model = load(tmp_path)
    assert model.query.projections[-1] is model.document.projections[-1]
    assert model.query.backbone is not model.document.backbone
    both = peer_of(tmp_path)[0]
    assert isinstance(both, peers.Router)
    routes: Any = both.sub_modules
    assert routes["query"][2] is routes["document"][2]
    assert routes["query"][0] is not routes["document"][0]


@pytest.mark.parametrize(("kind", "parts"), [("shared", 2), ("asymmetric", 4), ("shared_projection", 3)])
def test_every_part_is_saved_once_and_again_alike(kind: TowerKind, parts: int, tmp_path: Path) -> None:
    save(trained(kind), tmp_path / "one")
    assert len(list((tmp_path / "one").rglob("model.safetensors"))) == parts
    save(load(tmp_path / "one"), tmp_path / "two")
    save(load(tmp_path / "two"), tmp_path / "three")
    one, two, three = (files_of(tmp_path / name) for name in ("one", "two", "three"))
    assert two == three
    # There transformers notes that the tokenizer came from a directory.
    assert {name for name, content in one.items() if content != two[name]} <= {
        name for name in one if "tokenizer_config" in name
    }
    assert one.keys() == two.keys()


def test_towers_of_two_families_and_widths_are_saved_with_their_own_settings(tmp_path: Path) -> None:
    query = tiny_dual("bert", settings=EncoderSettings(pooling="cls", max_tokens=40, query_prompt="ask: "))
    document = tiny_dual(
        "llama", width=16, settings=EncoderSettings(pooling="last", max_tokens=50, document_prompt="text: ")
    )
    model = build_towers(query, kind="asymmetric", projection_width=8, document_start=document, seed=0)
    save(model, tmp_path)
    again = load(tmp_path)
    assert [
        (tower.settings.pooling, tower.settings.max_tokens) for tower in (again.query, again.document)
    ] == [("cls", 40), ("last", 50)]
    assert again.fingerprints() == model.fingerprints()
    assert_same_vectors(again, tmp_path)


@pytest.mark.parametrize("on_top", [False, True], ids=["in both routes", "after the router"])
def test_a_projection_that_sentence_transformers_shares_is_shared_here(on_top: bool, tmp_path: Path) -> None:
    router(tmp_path / "theirs", top=dense(7, nn.Identity(), bias=False), on_top=on_top)
    model = load(tmp_path / "theirs")
    assert model.width == 7
    assert model.query.projections[-1] is model.document.projections[-1]
    assert_same_vectors(model, tmp_path / "theirs")
    save(model, tmp_path / "ours")
    assert len(list((tmp_path / "ours").rglob("model.safetensors"))) == 3
    assert_same_vectors(model, tmp_path / "ours")


SENTENCES = ["a document about the sea", "another one", "what is salt?"]


@pytest.fixture(params=[EncoderSettings(max_tokens=64), SETTINGS], ids=["plain", "prompts"])
def towers(request: pytest.FixtureRequest) -> DualEncoder:
    """A tuned query tower beside the document tower, of a model whose default prompt was that of queries."""
    pair = (tiny_encoder(seed=seed, settings=request.param) for seed in (1, 0))
    return DualEncoder(*pair, "pair", {"default_prompt_name": "query"})


def test_plain_encode_gives_documents_and_the_query_task_queries(towers: DualEncoder, tmp_path: Path) -> None:
    save(towers, tmp_path / "model")
    assert_same_vectors(towers, tmp_path / "model", SENTENCES)
    queries, documents = (towers.encode(SENTENCES, side=side, precision="fp32") for side in SIDES)
    assert np.abs(documents - queries).max() > 0.1
    peer, asking = peer_of(tmp_path / "model"), ast.literal_eval(QUERY_ARGUMENTS)
    np.testing.assert_allclose(peer.encode(SENTENCES), documents, atol=1e-5)
    np.testing.assert_allclose(peer.encode(SENTENCES, **asking), queries, atol=1e-5)
    stated = json.loads((tmp_path / "model" / ROOT).read_text(encoding="utf-8"))
    assert stated["default_prompt_name"] == ("document" if towers.document.settings.document_prompt else None)


def test_the_card_names_prompts_similarity_and_lengths_that_a_caller_must_give(tmp_path: Path) -> None:
    loose = replace(SETTINGS, normalize=False)
    towers = DualEncoder(
        tiny_encoder(seed=1, settings=loose),
        tiny_encoder(settings=loose),
        "pair",
        {"similarity_fn_name": "dot"},
    )
    card = model_card(towers)
    assert "compared by dot product (`dot`)" in card
    assert (
        """TunedQueries("PATH", query_instruction='query: ', text_instruction='passage: ', normalize=False)"""
        in card
    )
    for block in re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL):
        compile(block, "card", "exec")
    save(tiny_dual(), tmp_path / "shared")
    assert not (tmp_path / "shared" / "README.md").exists()
