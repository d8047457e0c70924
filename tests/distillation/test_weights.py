"""Weights of tokens, worked by hand and beside model2vec and scikit-learn."""

import numpy as np
import pytest
from model2vec.distill.inference import compute_weights
from sklearn.feature_extraction.text import TfidfVectorizer

from adiabat.distillation.static_model import by_count, by_rank, counted, inverse_documents, sif, zipf


def test_zipf_and_sif_by_hand() -> None:
    whole = 1 / 2 + 1 / 3 + 1 / 4
    assert zipf(3) == pytest.approx([1 / 2 / whole, 1 / 3 / whole, 1 / 4 / whole])
    assert sif(np.array([0.5, 0.0]), 0.1) == pytest.approx([0.1 / 0.6, 1.0])
    assert by_rank(3) == pytest.approx([0.0, np.log(2), np.log(3)])
    assert by_count(np.array([2, 7, 2])) == pytest.approx([np.log(2), 0.0, np.log(3)])


@pytest.mark.parametrize("rows", [1, 7, 30_000])
def test_sif_by_rank_is_model2vecs(rows: int) -> None:
    np.testing.assert_allclose(sif(zipf(rows), 1e-4), compute_weights(rows, 1e-4), rtol=1e-12)


def test_counts_are_shares_and_none_is_nothing() -> None:
    assert counted(np.array([0, 1, 5])) == pytest.approx([1 / 9, 2 / 9, 6 / 9])


def test_inverse_document_frequency_is_scikit_learns() -> None:
    documents = ["a b", "a c", "a b c", "a"]
    peer = TfidfVectorizer(token_pattern=r"\w").fit(documents)
    containing = np.array([4, 2, 2])
    np.testing.assert_allclose(inverse_documents(containing, 4), peer.idf_)
