"""Fewer numbers per token: beside model2vec, and what each way keeps."""

import numpy as np
import pytest
from jaxtyping import Float
from model2vec.distill.inference import apply_pca

from adiabat.core.errors import ConfigError, DataError
from adiabat.core.progress import Watch
from adiabat.distillation.token_embeddings import Reduction, reduced


@pytest.fixture(scope="module")
def table() -> Float[np.ndarray, "v e"]:
    """Vectors that differ far more in some directions than in others."""
    generator = np.random.default_rng(0)
    spread = generator.standard_normal((300, 12)) * 0.7 ** np.arange(12)
    return (spread @ np.linalg.qr(generator.standard_normal((12, 12)))[0] + 3).astype(np.float32)


@pytest.mark.parametrize("dims", [1, 5, 12])
def test_pca_is_model2vecs_with_its_signs(table: Float[np.ndarray, "v e"], dims: int) -> None:
    found, kept = reduced(table, dims)
    np.testing.assert_allclose(found, apply_pca(table, dims), atol=1e-4)
    centred = table - table.mean(axis=0)
    assert kept == pytest.approx(float((found**2).sum() / (centred**2).sum()), rel=1e-5)
    assert found.dtype == np.float32


def test_a_random_projection_finds_the_same_directions(table: Float[np.ndarray, "v e"]) -> None:
    exact, kept = reduced(table, 4)
    found, other = reduced(table, 4, how="randomized", seed=3)
    np.testing.assert_allclose(found, exact, atol=1e-3)
    assert other == pytest.approx(kept, rel=1e-5)
    again, _ = reduced(table, 4, how="randomized", seed=3)
    assert np.array_equal(found, again)


def test_independent_directions_span_the_same_as_uncorrelated_ones(table: Float[np.ndarray, "v e"]) -> None:
    found, kept = reduced(table, 4, how="ica")
    exact, as_much = reduced(table, 4)
    assert kept == pytest.approx(as_much, rel=1e-4)
    np.testing.assert_allclose(found.std(axis=0), 1, rtol=1e-3)
    solved, *_ = np.linalg.lstsq(found, exact, rcond=None)
    np.testing.assert_allclose(found @ solved, exact, atol=1e-3)


@pytest.mark.parametrize("how", ["pca", "ica"])
def test_the_largest_number_of_each_direction_is_positive(table: Float[np.ndarray, "v e"], how: Reduction) -> None:
    found, _ = reduced(table, 3, how=how)
    assert (found[np.abs(found).argmax(axis=0), np.arange(3)] > 0).all()


def test_too_many_directions_are_told(table: Float[np.ndarray, "v e"]) -> None:
    with pytest.raises(ConfigError, match=r"^static.dims must be at most the 12 numbers of a token's vector, got 13; lower it, or"):
        reduced(table, 13)
    with pytest.raises(ConfigError, match=r"^static.dims must be below the 5 tokens of the vocabulary, got 5; lower it$"):
        reduced(table[:5], 5)


def test_tokens_that_are_all_the_same_are_told() -> None:
    with pytest.raises(DataError, match=r"^the teacher must tell tokens apart, got the same vector for all; check its weights, or take"):
        reduced(np.ones((20, 3), dtype=np.float32), 2)


def test_directions_that_were_not_found_to_the_end_are_told(table: Float[np.ndarray, "v e"]) -> None:
    # What is normal in all directions has no independent ones.
    notes: list[str] = []
    reduced(table, 4, how="ica", watch=Watch(note=notes.append))
    assert len(notes) == 1
    assert notes[0].startswith("independent directions were not found to the end")
