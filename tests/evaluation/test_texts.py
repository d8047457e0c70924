import numpy as np
import pytest

from adiabat.core.errors import DataError
from adiabat.core.progress import SILENT, Watch
from adiabat.store.text_vectors import embed_texts, require_directions, zero_rows
from tests.evaluation.given_vectors import give
from tests.tiny import tiny_dual


def test_each_text_goes_through_the_model_once_and_in_full_precision(monkeypatch):
    asked = give(monkeypatch, {"x": [1, 0], "y": [0, 2]})
    told: list[tuple[str, int, int]] = []
    watch = Watch(progress=lambda *state: told.append(state))
    vectors = embed_texts(tiny_dual(), ["y", "x", "y", "y"], side="document", name="task", watch=watch)
    assert vectors.tolist() == [[0, 2], [1, 0], [0, 2], [0, 2]]
    assert asked == [("document", "fp32", ["y", "x"])]
    assert told == [("encoding task", 2, 2)]


def test_vectors_are_those_of_the_model_and_of_the_side_asked_for():
    model = tiny_dual(shared=False)
    texts = ["one", "another", "one"]
    for side in ("query", "document"):
        vectors = embed_texts(model, texts, side=side, name="task", watch=SILENT)
        np.testing.assert_allclose(vectors, model.encode(texts, side=side, precision="fp32"), atol=1e-6)
        np.testing.assert_array_equal(vectors[0], vectors[2])
    assert not np.allclose(
        vectors, embed_texts(model, texts, side="query", name="task", watch=SILENT), atol=1e-3
    )


def test_a_vector_that_is_not_finite_is_refused_with_its_text(monkeypatch):
    give(monkeypatch, {"x": [1, 0], "nan": [0, np.nan], "w" * 99: [np.inf, 0]})
    with pytest.raises(DataError) as caught:
        embed_texts(tiny_dual(), ["x", "nan", "nan", "w" * 99], side="query", name="task", watch=SILENT)
    assert str(caught.value) == (
        "task: vectors must be finite, got NaN or infinity for 2 texts: 'nan'; "
        f"'{'w' * 59}…'; the model's weights are damaged"
    )


def test_zero_vectors_are_found_and_refused_with_their_texts():
    vectors = np.array([[0, 0], [0, -1e-30], [0, 0]])
    assert zero_rows(vectors).tolist() == [True, False, True]
    require_directions(vectors[1:2], ["b"], name="task")
    with pytest.raises(
        DataError, match="task: vectors must not be zero, which have no cosine, got one for 'a'; leave"
    ):
        require_directions(vectors, ["a", "b", "a"], name="task")
