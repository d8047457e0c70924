"""Imported vectors beside the encoder's own: what they are told to be, and how close they must come."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adiabat
from adiabat.core.errors import ConfigError, StoreError
from adiabat.core.wording import typed
from adiabat.store.vector_store import Store
from tests.fake_encoder import FakeEncoder
from tests.imported import import_vectors
from tests.refused import refused
from tests.store.worlds import numbered, vectors_of
from tests.tiny import save_tiny

DOCUMENTS = numbered(20)


def at_cosine(cosine: float, count: int = 20) -> np.ndarray:
    """The encoder's vectors, of which the first `count` are turned until they have this cosine to what they
    were.
    """
    exact = vectors_of(DOCUMENTS).astype(np.float64)
    noise = np.random.default_rng(0).normal(size=exact.shape)
    noise -= (noise * exact).sum(axis=1, keepdims=True) * exact
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    turned = cosine * exact + np.sqrt(1 - cosine**2) * noise
    return np.concatenate([turned[:count], exact[count:]])


def imported(folder: Path, vectors: np.ndarray, **options: Any) -> Store:
    np.save(folder / "v.npy", vectors)
    ids = [document.doc_id for document in DOCUMENTS]
    named = {"ids": ids, "documents": DOCUMENTS, "encoder": FakeEncoder(), "dtype": "float32", **options}
    return import_vectors(folder / "v.npy", folder / "s", **named)


@pytest.mark.parametrize(
    ("cosine", "accepted"), [(0.997, "0.99"), (0.985, "0.98"), (0.935, "0.93"), (0.905, "0.9")]
)
def test_an_engine_of_lower_precision_is_named_first_with_the_way_to_accept_it(
    tmp_path: Path, cosine: float, accepted: str
) -> None:
    with refused(
        StoreError, f"got {cosine:.4f}", "lower precision", f"min_cosine={accepted}; ", "document_prompt"
    ):
        imported(tmp_path, at_cosine(cosine))
    with typed("adiabat embed"), refused(StoreError, f"--min-cosine {accepted};"):
        imported(tmp_path, at_cosine(cosine))
    with pytest.warns(UserWarning, match=rf"cosine of {cosine:.4f} or more"):
        store = imported(tmp_path, at_cosine(cosine), min_cosine=float(accepted))
    assert store.fingerprint == FakeEncoder().fingerprint("document")


def test_another_model_or_order_and_a_few_other_texts_are_told_from_an_engine(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"got 0\.6000.*document_prompt.*order of the vectors") as fault:
        imported(tmp_path, at_cosine(0.6))
    assert "engine" not in str(fault.value)
    with refused(StoreError, "15 of 20 agree", "texts or ids"):
        imported(tmp_path, at_cosine(0.95, count=5), sample=20)
    # An engine's vectors deviate evenly, though a few of these agree.
    vectors = np.concatenate([at_cosine(0.99895)[:8], at_cosine(0.9992)[8:]])
    with refused(StoreError, "got 0.998950 for ", "lower precision", "min_cosine=0.99;"):
        imported(tmp_path, vectors, sample=20)


def test_vectors_that_agree_give_no_warning_and_a_higher_bar_can_be_set(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cosine >= 0\.9999, got 0\.9995"):
        imported(tmp_path, at_cosine(0.9995), min_cosine=0.9999)
    assert imported(tmp_path, at_cosine(0.9995)).fingerprint is not None


def test_the_setting_reaches_an_import_and_has_no_effect_elsewhere(tmp_path: Path) -> None:
    save_tiny(tmp_path / "model")
    texts = [f"text {number}" for number in range(8)]
    exact = adiabat.load(tmp_path / "model").encode(texts, side="document", precision="fp32")
    vectors = exact + 0.01 * np.random.default_rng(0).normal(size=exact.shape)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    named: dict[str, Any] = {"ids": list("abcdefgh"), "texts": texts, "model": tmp_path / "model"}
    with pytest.raises(StoreError, match="engine of lower precision"):
        adiabat.import_vectors(vectors, tmp_path / "s", **named)
    with pytest.warns(UserWarning, match="as from an engine of lower precision"):
        assert adiabat.import_vectors(vectors, tmp_path / "s", min_cosine=0.9, **named).count == 8
    with refused(ConfigError, "store.min_cosine must be left out of an encoding", "got 0.9"):
        adiabat.embed(tmp_path / "model", texts, tmp_path / "new", min_cosine=0.9)
    with refused(ConfigError, "store.min_cosine must be left out of an import", "model and texts"):
        adiabat.import_vectors(vectors, tmp_path / "new", ids=named["ids"], min_cosine=0.9)
    with refused(ConfigError, "min_cosine must be > 0, got 0"):
        adiabat.import_vectors(vectors, tmp_path / "new", min_cosine=0, **named)
