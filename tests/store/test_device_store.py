"""Documents that stay on a device: their scores, and the nearest ones, are those of a search."""

from pathlib import Path

import numpy as np
import pytest
import torch
from jaxtyping import Float32

from adiabat.core.ragged import Ragged
from adiabat.models.embedding_head import Similarity
from adiabat.store.device_store import DeviceStore, without_answers
from adiabat.store.scoring import SIMILARITIES, Block, FixedPoint, exact_pairs, exact_table
from adiabat.store.search import search
from tests.adiabatic.problem import random_vectors, store_of


def on_device(vectors: Float32[np.ndarray, "n e"]) -> DeviceStore:
    lengths = np.linalg.norm(vectors, axis=1)
    return DeviceStore(Block(0, torch.from_numpy(vectors), torch.from_numpy(lengths)))


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_the_hardest_documents_on_a_device_are_those_of_a_search(
    tmp_path: Path, similarity: Similarity
) -> None:
    vectors = random_vectors(90)
    # Each document occurs up to three times, and some in other lengths: of equal scores the first row counts.
    vectors[30:60] = vectors[:30]
    vectors[60:70] = 3 * vectors[:10]
    known = [[int(row), int(row) + 3] for row in range(0, 60, 6)]
    queries = random_vectors(len(known), seed=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("adiabat.store.device_store.ROWS_SCORED", 32)
        found = on_device(vectors).hardest(torch.from_numpy(queries), torch.tensor(known), 7, similarity)
    expected = search(
        store_of(tmp_path, vectors), queries, 7, similarity=similarity, excluded=Ragged.of(known)
    ).rows
    assert np.array_equal(found.numpy(), expected)


def test_a_store_of_few_documents_gives_all_that_are_no_answers() -> None:
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, 0.0]], dtype=np.float32)
    found = on_device(vectors).hardest(torch.tensor([[1.0, 0.1]]), torch.tensor([[0, 0]]), 3, "cosine")
    assert found.tolist() == [[2, 1, 3]]


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("width", [1, 7, 384])
def test_scores_of_tensors_are_those_of_arrays_bit_for_bit(similarity: Similarity, width: int) -> None:
    queries, documents = random_vectors(5, width=width), random_vectors(40, seed=1, width=width)
    documents *= np.logspace(-15, 15, 40, dtype=np.float32)[:, None]
    documents[3] = 0
    asked = FixedPoint.of(torch.from_numpy(queries).unsqueeze(1))
    found = exact_pairs(asked, FixedPoint.of(documents), similarity)
    assert (
        found.numpy().tobytes()
        == exact_table(FixedPoint.of(queries), FixedPoint.of(documents), similarity).tobytes()
    )


def test_known_answers_have_no_score_in_the_block_that_holds_them() -> None:
    known = torch.tensor([[1, 4, 4], [6, 6, 6]])
    assert without_answers(known, torch.zeros(2, 3), 3).tolist() == [[0, -torch.inf, 0], [0, 0, 0]]
    assert without_answers(known, torch.zeros(2, 3), 6).tolist() == [[0, 0, 0], [-torch.inf, 0, 0]]
