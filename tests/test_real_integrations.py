"""Second tier: LangChain, LlamaIndex and Haystack put documents through the document tower, and queries
through the tuned one; and an export of that tower gives its vectors by their plain calls.
"""

import ast
import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adiabat
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.loading import load
from adiabat.models.saving import QUERY_ARGUMENTS, save
from adiabat.models.towers import DualEncoder
from tests.tiny import tiny_encoder

# Warnings of the libraries while they are imported.
pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore")]

DOCUMENTS = ["a document about the sea", "another one about salt"]
QUERY = "what is salt?"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, DualEncoder]:
    """A tuned query tower beside the document tower, as saved."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(sys.prefix) / "integrations")])
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    monkeypatch.setenv("LLAMA_INDEX_CACHE_DIR", str(tmp_path))
    settings = EncoderSettings(max_tokens=64)
    save(
        DualEncoder(tiny_encoder(seed=1, settings=settings), tiny_encoder(settings=settings), "pair"),
        tmp_path / "model",
    )
    return str(tmp_path / "model"), load(tmp_path / "model")


def library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as fault:
        pytest.skip(
            f"{name} cannot be imported ({fault}); make test-real installs it "
            "from requirements/integrations.txt"
        )


def require_towers(towers: DualEncoder, documents: Any, query: Any) -> None:
    """Documents are those of a store; the query is that of `adiabat search`, and not that of the document
    tower.
    """
    np.testing.assert_allclose(
        documents, towers.encode(DOCUMENTS, side="document", precision="fp32"), atol=1e-5
    )
    np.testing.assert_allclose([query], towers.encode([QUERY], side="query", precision="fp32"), atol=1e-5)
    assert np.abs(np.array([query]) - towers.encode([QUERY], side="document", precision="fp32")).max() > 0.05


def test_langchain(model: tuple[str, DualEncoder]) -> None:
    folder, towers = model
    kind = library("langchain_huggingface").HuggingFaceEmbeddings
    embeddings = kind(
        model_name=folder,
        model_kwargs={"device": "cpu"},
        query_encode_kwargs=ast.literal_eval(QUERY_ARGUMENTS),
    )
    require_towers(towers, embeddings.embed_documents(DOCUMENTS), embeddings.embed_query(QUERY))
    # Whoever does not ask for the query tower gets no better ranking, and harms no index.
    plain = kind(model_name=folder, model_kwargs={"device": "cpu"})
    np.testing.assert_allclose(
        [plain.embed_query(QUERY)], towers.encode([QUERY], side="document", precision="fp32"), atol=1e-5
    )


def test_llama_index(model: tuple[str, DualEncoder]) -> None:
    folder, towers = model
    kind = library("llama_index.embeddings.huggingface").HuggingFaceEmbedding

    class TunedQueries(kind):  # type: ignore[misc,valid-type]
        def _get_query_embedding(self, query: str) -> list[float]:
            return list(self._model.encode_query(query, normalize_embeddings=self.normalize).tolist())

    embedding = TunedQueries(folder, device="cpu")
    require_towers(
        towers, embedding.get_text_embedding_batch(DOCUMENTS), embedding.get_query_embedding(QUERY)
    )
    plain = kind(folder, device="cpu")
    np.testing.assert_allclose(
        [plain.get_query_embedding(QUERY)],
        towers.encode([QUERY], side="document", precision="fp32"),
        atol=1e-5,
    )


def test_haystack(model: tuple[str, DualEncoder]) -> None:
    folder, towers = model
    embedders = library("haystack_integrations.components.embedders.sentence_transformers")
    haystack = library("haystack")
    device = haystack.utils.ComponentDevice.from_str("cpu")
    documents = embedders.SentenceTransformersDocumentEmbedder(
        model=folder, device=device, progress_bar=False
    )
    queries = embedders.SentenceTransformersTextEmbedder(
        model=folder, device=device, progress_bar=False, encode_kwargs=ast.literal_eval(QUERY_ARGUMENTS)
    )
    for part in (documents, queries):
        part.warm_up()
    found = documents.run(documents=[haystack.Document(content=text) for text in DOCUMENTS])["documents"]
    require_towers(towers, [document.embedding for document in found], queries.run(text=QUERY)["embedding"])


@pytest.fixture
def tower(model: tuple[str, DualEncoder], tmp_path: Path) -> tuple[str, np.ndarray]:
    """The query tower alone, with a prompt, and what it makes of the question."""
    _, towers = model
    prompted = DualEncoder(
        towers.query.with_settings(EncoderSettings(max_tokens=64, query_prompt="query: ")),
        towers.document,
        "pair",
    )
    adiabat.export(prompted, tmp_path / "tower", to="sentence-transformers")
    return str(tmp_path / "tower"), prompted.encode([QUERY], side="query", precision="fp32")


def test_langchain_reads_an_export(tower: tuple[str, np.ndarray]) -> None:
    folder, expected = tower
    kind = library("langchain_huggingface").HuggingFaceEmbeddings
    embeddings = kind(model_name=folder, model_kwargs={"device": "cpu"})
    np.testing.assert_allclose([embeddings.embed_query(QUERY)], expected, atol=1e-5)


def test_llama_index_reads_an_export(tower: tuple[str, np.ndarray]) -> None:
    folder, expected = tower
    kind = library("llama_index.embeddings.huggingface").HuggingFaceEmbedding
    # Its own prompts replace those of the model, as the card of an export says.
    embedding = kind(folder, device="cpu", query_instruction="query: ")
    np.testing.assert_allclose([embedding.get_query_embedding(QUERY)], expected, atol=1e-5)


def test_haystack_reads_an_export(tower: tuple[str, np.ndarray]) -> None:
    folder, expected = tower
    embedders = library("haystack_integrations.components.embedders.sentence_transformers")
    device = library("haystack").utils.ComponentDevice.from_str("cpu")
    queries = embedders.SentenceTransformersTextEmbedder(model=folder, device=device, progress_bar=False)
    queries.warm_up()
    np.testing.assert_allclose([queries.run(text=QUERY)["embedding"]], expected, atol=1e-5)
