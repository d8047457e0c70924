"""A saved pair of towers as other libraries call it: documents by plain `encode`, queries by `encode_query` or the task of a query."""

import ast
import json
import re
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.loading import load
from adiabat.models.saving import QUERY_ARGUMENTS, model_card, save
from adiabat.models.towers import DualEncoder
from tests.tiny import tiny_dual, tiny_encoder

TEXTS = ["a document about the sea", "another one", "what is salt?"]
PROMPTED = EncoderSettings(max_tokens=64, query_prompt="query: ", document_prompt="passage: ")


@pytest.fixture(params=[EncoderSettings(max_tokens=64), PROMPTED], ids=["plain", "prompts"])
def towers(request: pytest.FixtureRequest) -> DualEncoder:
    """A tuned query tower beside the document tower, of a model whose default prompt was that of queries."""
    pair = (tiny_encoder(seed=seed, settings=request.param) for seed in (1, 0))
    return DualEncoder(*pair, "pair", {"default_prompt_name": "query"})


def test_plain_encode_gives_documents_and_the_query_task_gives_queries(towers: DualEncoder, tmp_path: Path) -> None:
    save(towers, tmp_path / "model")
    peer = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    documents, queries = (towers.encode(TEXTS, side=side, precision="fp32") for side in ("document", "query"))
    assert np.abs(documents - queries).max() > 0.1
    np.testing.assert_allclose(peer.encode(TEXTS), documents, atol=1e-5)
    np.testing.assert_allclose(peer.encode_document(TEXTS), documents, atol=1e-5)
    np.testing.assert_allclose(peer.encode_query(TEXTS), queries, atol=1e-5)
    np.testing.assert_allclose(peer.encode(TEXTS, **ast.literal_eval(QUERY_ARGUMENTS)), queries, atol=1e-5)


def test_a_saved_pair_is_loaded_and_saved_again_alike(towers: DualEncoder, tmp_path: Path) -> None:
    save(towers, tmp_path / "one")
    save(load(tmp_path / "one"), tmp_path / "other")
    for name in ("router_config.json", "config_sentence_transformers.json", "README.md"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()
    stated = json.loads((tmp_path / "one" / "config_sentence_transformers.json").read_text(encoding="utf-8"))
    assert stated["default_prompt_name"] == ("document" if towers.document.settings.document_prompt else None)


def test_the_card_names_prompts_similarity_and_lengths_that_a_caller_must_give(tmp_path: Path) -> None:
    loose = EncoderSettings(max_tokens=64, normalize=False, query_prompt="query: ", document_prompt="passage: ")
    towers = DualEncoder(tiny_encoder(seed=1, settings=loose), tiny_encoder(settings=loose), "pair", {"similarity_fn_name": "dot"})
    card = model_card(towers)
    assert "compared by dot product (`dot`)" in card
    assert """TunedQueries("PATH", query_instruction='query: ', text_instruction='passage: ', normalize=False)""" in card
    for block in re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL):
        compile(block, "card", "exec")
    save(tiny_dual(), tmp_path / "shared")
    assert not (tmp_path / "shared" / "README.md").exists()
