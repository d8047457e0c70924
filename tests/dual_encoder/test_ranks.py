"""Ranks of answers by hand, and against plain loops."""

import math

import numpy as np
import pytest
import torch

from adiabat.dual_encoder import contrastive_objective as ranks
from adiabat.dual_encoder.contrastive_objective import ranks_of_answers


def rows(*lists: list[int]) -> list[np.ndarray]:
    return [np.array(one, dtype=np.int64) for one in lists]


def ranked(
    query: torch.Tensor, documents: torch.Tensor, answers: list[np.ndarray], *, distance: bool = False
) -> list[int]:
    found: list[int] = ranks_of_answers(query, documents, answers, distance=distance).tolist()
    return found


def by_loops(
    query: torch.Tensor, documents: torch.Tensor, answers: list[np.ndarray], *, distance: bool
) -> list[int]:
    found = []
    for vector, own in zip(query.double().tolist(), answers, strict=True):
        scores = [
            -math.dist(vector, other) if distance else sum(x * y for x, y in zip(vector, other, strict=True))
            for other in documents.double().tolist()
        ]
        best = max(scores[row] for row in own)
        found.append(1 + sum(score >= best for row, score in enumerate(scores) if row not in own))
    return found


def test_by_hand() -> None:
    documents = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.9, 0.1]])
    query = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    # Products with the first query: 1, 0, 2, 0.9; with the second 0, 1, 0, 0.1; with the third 1, 1, 2, 1.
    assert ranked(query, documents, rows([0], [3], [3])) == [2, 2, 4]
    assert ranked(query, documents, rows([0, 3], [0, 3], [2, 0])) == [2, 2, 1]
    # Distances from the first query: 0, 1.41, 1, 0.14; the second: 1.41, 0, 2.24, 1.27; the third: 1, 1,
    # 1.41, 0.91.
    assert ranked(query, documents, rows([2], [3], [0]), distance=True) == [3, 2, 3]


def test_a_tie_counts_against_the_answer_and_answers_do_not_count_against_each_other() -> None:
    same = torch.ones(5, 3)
    for distance in (False, True):
        assert ranked(torch.ones(3, 3), same, rows([0], [4], [0, 1, 2]), distance=distance) == [5, 5, 3]


@pytest.mark.parametrize("distance", [False, True])
@pytest.mark.parametrize("at_a_time", [512, 4, 1])
def test_ranks_equal_loops_over_all_candidates(
    distance: bool, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "QUERIES_AT_A_TIME", at_a_time)
    generator = np.random.default_rng(3)
    query, documents = (
        torch.from_numpy(generator.standard_normal((count, 4)).astype(np.float32)) for count in (9, 40)
    )
    answers = [np.sort(generator.choice(40, size=1 + number % 3, replace=False)) for number in range(9)]
    found = ranked(query, documents, answers, distance=distance)
    assert found == by_loops(query, documents, answers, distance=distance)
    assert len(set(found)) > 4


def test_distances_of_near_texts_are_told_apart() -> None:
    """Far from the origin, as vectors without unit length are, rounding swallows what lies between near
    ones.
    """
    generator = np.random.default_rng(1)
    centre = 20 * np.ones(16)
    documents = torch.from_numpy((centre + 1e-3 * generator.standard_normal((200, 16))).astype(np.float32))
    query = torch.from_numpy((centre + 1e-3 * generator.standard_normal((60, 16))).astype(np.float32))
    answers = rows(*([number] for number in range(60)))
    assert ranked(query, documents, answers, distance=True) == by_loops(
        query, documents, answers, distance=True
    )


def test_what_is_no_number_is_never_first() -> None:
    documents = torch.tensor([[1.0, 0.0], [0.0, 1.0], [math.nan, 1.0]])
    assert ranked(torch.tensor([[1.0, 0.0], [math.nan, 0.0]]), documents, rows([0], [0])) == [2, 3]
