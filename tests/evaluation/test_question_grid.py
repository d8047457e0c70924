import numpy as np
import pytest

from adiabat.core.errors import DataError
from adiabat.evaluation.language_grid_tasks import measure_question_grid
from tests.stats.brute_force import pair_score

ANSWERS = np.array([0, 0, 2, 1, 3])


def world(seed: int, *, width: int = 6) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Five questions in two languages, paragraphs in two others; one paragraph comes twice under different numbers."""
    generator = np.random.default_rng(seed)
    questions = {language: generator.standard_normal((5, width)).astype(np.float32) for language in ("de", "en")}
    paragraphs = {language: 2 * generator.standard_normal((size, width)).astype(np.float32) for language, size in (("fr", 4), ("zh", 6))}
    paragraphs["zh"][5] = paragraphs["zh"][0]
    return questions, paragraphs, {"fr": ANSWERS, "zh": ANSWERS + 1 - (ANSWERS == 0)}


def lost_by_loops(query: np.ndarray, documents: np.ndarray, answer: int, similarity: str) -> int:
    scores = [pair_score(query.astype(np.float64), document.astype(np.float64), similarity) for document in documents]
    return sum(1 for row, score in enumerate(scores) if row != answer and np.float32(score) >= np.float32(scores[answer]))


def test_a_case_worked_by_hand():
    # The first question is nearest to its paragraph; the second has it in second place of three.
    questions = {"en": np.array([[1.0, 0.0], [1.0, 0.2]], dtype=np.float32)}
    paragraphs = {"de": np.array([[2.0, 0.1], [0.0, 1.0], [1.0, 3.0]], dtype=np.float32)}
    samples, cells = measure_question_grid(questions, paragraphs, {"de": np.array([0, 2])}, similarities=["cosine"])
    assert [(one.measure, one.similarity, one.lower_is_better, one.values.tolist()) for one in samples] == [
        ("P@1", "cosine", False, [1.0, 0.0]),
        ("RR", "cosine", False, [1.0, 0.5]),
        ("PND", "cosine", True, [0.0, 0.5]),
    ]
    assert [(one.comparison, one.rows, one.columns, one.lower_is_better, one.values.tolist()) for one in cells] == [
        ("P@1", ("en",), ("de",), False, [[[1.0, 0.0]]]),
        ("PND", ("en",), ("de",), True, [[[0.0, 0.5]]]),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_every_question_in_every_cell_agrees_with_plain_loops(seed):
    questions, paragraphs, answers = world(seed)
    samples, cells = measure_question_grid(questions, paragraphs, answers, similarities=["cosine", "distance"])
    found = {(one.comparison, one.similarity): one.values for one in cells}
    for similarity in ("cosine", "distance"):
        lost = np.array(
            [
                [
                    [lost_by_loops(query[i], document[language], answers[language][i], similarity) for i in range(5)]
                    for language in paragraphs
                ]
                for document in [paragraphs]
                for query in questions.values()
            ]
        )
        np.testing.assert_array_equal(found["P@1", similarity], (lost == 0).astype(np.float32))
        np.testing.assert_allclose(found["PND", similarity], lost / np.array([3, 5])[:, None], atol=1e-7)
        by_name = {one.measure: one.values for one in samples if one.similarity == similarity}
        np.testing.assert_allclose(by_name["P@1"], (lost == 0).mean(axis=(0, 1)))
        np.testing.assert_allclose(by_name["RR"], (1 / (1 + lost)).mean(axis=(0, 1)))
        np.testing.assert_allclose(by_name["PND"], (lost / np.array([3, 5])[:, None]).mean(axis=(0, 1)))
    assert [one.key for one in samples][::3] == [("P@1", "cosine"), ("P@1", "distance")]


def test_an_equal_vector_is_a_tie_and_a_tie_is_lost():
    vector = np.array([0.3, 0.7, -0.2], dtype=np.float32)
    paragraphs = {"en": np.stack([vector, vector, -vector])}
    samples, _ = measure_question_grid({"en": vector[None]}, paragraphs, {"en": np.array([0])}, similarities=["cosine"])
    assert [one.values.tolist() for one in samples] == [[0.0], [0.5], [0.5]]


def test_constant_vectors_lose_everything():
    questions, paragraphs, answers = world(3)
    same = {language: np.ones_like(vectors) for language, vectors in paragraphs.items()}
    samples, _ = measure_question_grid(questions, same, answers, similarities=["cosine", "distance"])
    for one in samples:
        if one.measure != "RR":
            assert set(one.values.tolist()) == {1.0 if one.lower_is_better else 0.0}


def test_neither_the_order_of_questions_nor_of_paragraphs_matters():
    questions, paragraphs, answers = world(4)
    order, places = np.array([3, 0, 4, 1, 2]), np.array([2, 0, 3, 1])
    samples, _ = measure_question_grid(questions, paragraphs, answers, similarities=["cosine"])
    moved = {**paragraphs, "fr": paragraphs["fr"][places]}
    told = {"fr": np.argsort(places)[answers["fr"]][order], "zh": answers["zh"][order]}
    shuffled, _ = measure_question_grid(
        {language: vectors[order] for language, vectors in questions.items()}, moved, told, similarities=["cosine"]
    )
    for one, other in zip(samples, shuffled, strict=True):
        np.testing.assert_allclose(other.values, one.values[order], atol=1e-15)


def test_vectors_of_unit_length_rank_alike_by_both_similarities():
    questions, paragraphs, answers = world(5)
    unit = [
        {language: vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for language, vectors in side.items()}
        for side in (questions, paragraphs)
    ]
    del unit[1]["zh"]  # Its two equal paragraphs may come out a rounding apart.
    _, (cosine, _, distance, _) = measure_question_grid(*unit, {"fr": answers["fr"]}, similarities=["cosine", "distance"])
    np.testing.assert_array_equal(cosine.values, distance.values)


def test_broken_vectors_are_all_reported_at_once():
    questions, paragraphs, answers = world(6)
    questions["en"][3, 0], paragraphs["zh"][1, 1] = np.nan, np.inf
    with pytest.raises(DataError, match=r"2 faults: question vector 3 in en must be finite, .*; paragraph vector 1 in zh"):
        measure_question_grid(questions, paragraphs, answers, similarities=["cosine"])


def test_a_single_paragraph_is_no_choice():
    questions, paragraphs, answers = world(7)
    with pytest.raises(ValueError, match="at least two in every language, got fewer in fr"):
        measure_question_grid(questions, {**paragraphs, "fr": paragraphs["fr"][:1]}, answers, similarities=["cosine"])
