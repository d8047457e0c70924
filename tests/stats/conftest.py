"""Stores for the tests of the measure room."""

from collections.abc import Callable, Sequence

import pytest

from adiabat.data.records import Document
from adiabat.models.towers import DualEncoder
from adiabat.store.build import build_store
from adiabat.store.vector_store import Store


@pytest.fixture(scope="module")
def make_store(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Store]:
    def make(model: DualEncoder, texts: Sequence[str], ids: Sequence[str] | None = None) -> Store:
        documents = [
            Document(doc_id, text)
            for doc_id, text in zip(ids or [f"d{i}" for i in range(len(texts))], texts, strict=True)
        ]
        out = tmp_path_factory.mktemp("stores") / "store"
        return build_store(
            model, lambda: iter(documents), out, dtype="float32", source="corpus", encoder_name="tiny"
        ).store

    return make
