"""Equal texts of one store have equal vectors, wherever they stand and whenever they came, so that duplicates
tie.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

from adiabat.core.ragged import Ragged
from adiabat.data.records import Document, Side
from adiabat.data.text_hashes import hash_texts
from adiabat.models.embedding_head import Similarity
from adiabat.store import corpus_files as texts_module
from adiabat.store.append import add_documents
from adiabat.store.build import build_store
from adiabat.store.corpus_files import duplicate_texts, first_rows
from adiabat.store.manifest import StoreDtype
from adiabat.store.scoring import SIMILARITIES
from adiabat.store.search import count_at_least, score_rows
from adiabat.store.vector_store import Store
from tests.fake_encoder import FakeEncoder, fake_store
from tests.store.worlds import all_scores
from tests.tiny import tiny_dual

TEXTS = ["a", "b", "a", "c", "b", "a", "d", "d", "e", "a", "f", "c", "c", "c", "c", "c", "g"]


class Restless(FakeEncoder):
    """No two calls, and no two places in one, give a text the same vector."""

    def encode(self, texts: Sequence[str], *, side: Side) -> Float[np.ndarray, "n e"]:
        vectors = super().encode(texts, side=side)
        places = np.arange(len(texts), dtype=np.float32)[:, None]
        return vectors + np.float32(1e-2) * (len(self.calls) + places / 7)


def documents_of(texts: Sequence[str], prefix: str = "d") -> list[Document]:
    return [Document(f"{prefix}{number}", text) for number, text in enumerate(texts)]


def build(out: Path, encoder: FakeEncoder, texts: Sequence[str] = TEXTS, **options: Any) -> Store:
    return fake_store(out, documents_of(texts), encoder, **options).store


def append(out: Path, encoder: FakeEncoder, documents: Sequence[Document]) -> Store:
    return add_documents(encoder, lambda: iter(documents), out, chunk_size=4, source="more").store


def require_equal(store: Store, texts: Sequence[str]) -> None:
    vectors = store.gather(range(store.count))
    for row, text in enumerate(texts):
        assert np.array_equal(vectors[row], vectors[texts.index(text)])
    assert len(np.unique(vectors, axis=0)) == len(set(texts))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_each_distinct_text_is_encoded_once_in_whatever_chunk_it_stands(
    tmp_path: Path, dtype: StoreDtype
) -> None:
    encoder = Restless()
    store = build(tmp_path / "s", encoder, dtype=dtype)
    require_equal(store, TEXTS)
    # Chunks of four: a b a c | b a d d | e a f c | c c c c | g; the fourth has nothing new.
    assert encoder.calls == [3, 1, 2, 1]
    store.verify()


@pytest.mark.parametrize("stop_at", [1, 2, 3])
def test_a_build_that_was_cut_short_ends_the_same(tmp_path: Path, stop_at: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "s", FakeEncoder(stop_at=stop_at))
    encoder = FakeEncoder()
    require_equal(build(tmp_path / "s", encoder), TEXTS)
    assert encoder.calls == [3, 1, 2, 1][stop_at:]


@pytest.mark.parametrize("keep_texts", [True, False])
def test_texts_that_come_later_get_the_vectors_of_those_that_are_there(
    tmp_path: Path, keep_texts: bool
) -> None:
    build(tmp_path / "s", Restless(), keep_texts=keep_texts)
    every = list(TEXTS)
    for number, new in enumerate((["x", "c", "x", "a", "y", "x", "g"], ["y", "z", "b", "x"])):
        encoder = Restless(calls=[0] * 10 * (number + 1))
        store = append(tmp_path / "s", encoder, documents_of(new, f"n{number}-"))
        every += new
        require_equal(store, every)
        assert sum(encoder.calls) == len(set(new) - set(every[: -len(new)]))
    assert store.rows_of_texts(["x", "a", "nowhere", "g"]) == {"x": 17, "a": 0, "g": 16}


@pytest.mark.parametrize("at_once", [1, 2, 5, 100])
def test_first_rows_are_those_of_a_list(
    tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts_module, "HASHES_PER_BLOCK", at_once)
    (tmp_path / "hashes").write_bytes(hash_texts(TEXTS).tobytes())
    asked = ["c", "nowhere", "a", "a", "g"]
    with (tmp_path / "hashes").open("rb") as file:
        assert first_rows(file, hash_texts(asked)).tolist() == [
            TEXTS.index(text) if text in TEXTS else -1 for text in asked
        ]
        assert first_rows(file, hash_texts([])).tolist() == []
    rows, originals = duplicate_texts(tmp_path / "hashes", after=None, offset=100)
    again = [row for row, text in enumerate(TEXTS) if TEXTS.index(text) < row]
    assert rows.tolist() == [100 + row for row in again]
    assert originals.tolist() == [100 + TEXTS.index(TEXTS[row]) for row in again]


def test_texts_whose_hashes_share_a_half_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "hashes").write_bytes(
        b"".join(half * 8 + other * 8 for half, other in ((b"x", b"1"), (b"x", b"2"), (b"x", b"1")))
    )
    rows, originals = duplicate_texts(tmp_path / "hashes", after=None, offset=0)
    assert (rows.tolist(), originals.tolist()) == ([2], [0])


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_planted_duplicates_are_all_counted_as_ties(
    tmp_path: Path, dtype: StoreDtype, similarity: Similarity
) -> None:
    model, rng = tiny_dual(), np.random.default_rng(0)
    words = ["river", "stone", "and", "paper", "seven", "of", "light", "x"]
    once = list(dict.fromkeys(" ".join(rng.choice(words, size=rng.integers(1, 60))) for _ in range(90)))
    texts = [*once, *(once[row] for row in rng.permutation(len(once)))]
    documents = documents_of(texts)
    named = {"dtype": dtype, "chunk_size": 32, "source": "x", "encoder_name": "x"}
    store = build_store(model, lambda: iter(documents), tmp_path / "s", **named).store
    later = documents_of(once, "later")
    appended = add_documents(model, lambda: iter(later), tmp_path / "s", chunk_size=32, source="y").store
    queries = model.encode(once[:40], side="query", precision="fp32")
    positives = np.arange(40)[:, None]
    excluded = Ragged.of(positives.tolist())
    for there, copies in ((store, 1), (appended, 2)):
        levels = score_rows(there, queries, positives, similarity=similarity)
        errors, _ = count_at_least(there, queries, levels, similarity=similarity, excluded=excluded)
        scores = all_scores(there, queries, similarity)
        every = [*texts, *once][: there.count]
        ties = np.array([[other == text for other in every] for text in once[:40]])
        assert (ties.sum(axis=1) == copies + 1).all()
        assert (scores[ties].reshape(40, -1) == levels).all()
        assert (errors[:, 0] == (scores >= levels).sum(axis=1) - 1).all()


def test_the_encoder_gives_equal_texts_of_one_call_equal_vectors_in_their_order() -> None:
    encoder, rng = tiny_dual().document, np.random.default_rng(1)
    once = [" ".join(rng.choice(["a", "b", "river"], size=size)) for size in rng.integers(1, 60, 50)]
    texts = [*once, *once[::-1], "a"]
    vectors = encoder.encode(texts, side="document", precision="fp32")
    assert np.array_equal(vectors[:50], vectors[50:100][::-1])
    assert np.allclose(vectors[:50], encoder.encode(once, side="document", precision="fp32"), atol=1e-6)
