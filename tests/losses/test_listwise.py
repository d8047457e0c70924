"""Losses that learn from a teacher's scores: by hand, by plain loops, and against sentence-transformers."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from sentence_transformers.sentence_transformer import losses as peer
from torch import Tensor, nn

from adiabat.losses.embedded_pairs import Pairs
from adiabat.losses.in_batch import listwise_divergence, margin_mse

ROWS, OWN, WIDTH = 5, 3, 8
T, TEACHER = 0.3, 2.0
LOSSES: dict[str, Callable[..., Tensor]] = {"kl": listwise_divergence, "margin_mse": margin_mse}


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def batch(**changed: Any) -> Pairs:
    given = {
        "query": random(ROWS, WIDTH, seed=1),
        "positive": random(ROWS, WIDTH, seed=2),
        "own": random(ROWS, OWN, WIDTH, seed=3),
        "scores": 4 * random(ROWS, 1 + OWN, seed=4),
    }
    return Pairs(**(given | changed))


def one_query(similarities: list[float], scores: list[float]) -> Pairs:
    """A query of length 1 along the first of two axes, whose dot products are these."""
    documents = torch.tensor([[[each, 0.0] for each in similarities]], dtype=torch.float64)
    query = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    return Pairs(
        query, documents[:, 0], own=documents[:, 1:], scores=torch.tensor([scores], dtype=query.dtype)
    )


def test_divergence_by_hand() -> None:
    # The student's softmax of (ln 3, 0) is (3/4, 1/4), and the teacher's of (0, 0) is even.
    pairs = one_query([0.5 * math.log(3), 0.0], [7.0, 7.0])
    expected = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    assert float(listwise_divergence(pairs, temperature=0.5)) == pytest.approx(expected, rel=1e-12)
    # At a teacher's temperature of 2, scores of (ln 9, 0) give (3/4, 1/4) too.
    equal = one_query([0.5 * math.log(3), 0.0], [math.log(9), 0.0])
    loss = listwise_divergence(equal, temperature=0.5, teacher_temperature=2.0)
    assert float(loss) == pytest.approx(0.0, abs=1e-15)


def test_margins_by_hand() -> None:
    # Margins of the student (0.3, 0.1) / 0.5, and of the teacher (4, 1) / 10.
    pairs = one_query([0.4, 0.1, 0.3], [5.0, 1.0, 4.0])
    expected = ((0.6 - 0.4) ** 2 + (0.2 - 0.1) ** 2) / 2
    loss = margin_mse(pairs, temperature=0.5, teacher_temperature=10.0)
    assert float(loss) == pytest.approx(expected, rel=1e-12)


def test_plain_loops_give_the_same() -> None:
    pairs = batch()
    assert pairs.own is not None
    assert pairs.scores is not None
    divergence, squares = 0.0, []
    for row in range(ROWS):
        documents = [pairs.positive[row], *pairs.own[row]]
        student = [float(pairs.query[row] @ document) / T for document in documents]
        teacher = [float(score) / TEACHER for score in pairs.scores[row]]
        totals = [math.log(math.fsum(map(math.exp, scores))) for scores in (student, teacher)]
        for mine, wanted in zip(student, teacher, strict=True):
            share = math.exp(wanted - totals[1])
            divergence += share * ((wanted - totals[1]) - (mine - totals[0])) / ROWS
        for mine, wanted in zip(student[1:], teacher[1:], strict=True):
            squares.append(((student[0] - mine) - (teacher[0] - wanted)) ** 2)
    given = {"temperature": T, "teacher_temperature": TEACHER}
    assert float(listwise_divergence(pairs, **given)) == pytest.approx(divergence, rel=1e-12)
    assert float(margin_mse(pairs, **given)) == pytest.approx(sum(squares) / len(squares), rel=1e-12)


def columns() -> list[Tensor]:
    pairs = batch()
    assert pairs.own is not None
    return [each.clone().requires_grad_() for each in (pairs.query, pairs.positive, *pairs.own.unbind(1))]


@pytest.mark.parametrize("name", LOSSES)
def test_value_and_gradient_equal_sentence_transformers(name: str) -> None:
    ours, theirs, scores = columns(), columns(), batch().scores
    pairs = Pairs(ours[0], ours[1], own=torch.stack(ours[2:], dim=1), scores=scores)
    if name == "kl":
        kl = peer.DistillKLDivLoss(nn.Identity(), student_temperature=T, teacher_temperature=TEACHER)
        # Theirs undoes what the student's temperature does to gradients.
        wanted = kl.compute_loss_from_embeddings(theirs, scores) / T**2
        loss = listwise_divergence(pairs, temperature=T, teacher_temperature=TEACHER)
    else:
        wanted = peer.MarginMSELoss(nn.Identity()).compute_loss_from_embeddings(theirs, scores)
        loss = margin_mse(pairs, temperature=1.0)
    torch.testing.assert_close(loss, wanted, rtol=1e-9, atol=0)
    loss.backward()
    wanted.backward()
    for mine, his in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, his.grad, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
@given(shifts=some.lists(some.floats(-50, 50), min_size=ROWS, max_size=ROWS))
def test_a_constant_added_to_the_scores_of_a_query_changes_nothing(name: str, shifts: list[float]) -> None:
    scores = batch().scores
    assert scores is not None
    shifted = batch(scores=scores + torch.tensor(shifts, dtype=torch.float64)[:, None])
    losses = [float(LOSSES[name](pairs, temperature=T)) for pairs in (batch(), shifted)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


@pytest.mark.parametrize("name", LOSSES)
def test_only_the_rows_of_this_process_count(name: str) -> None:
    whole, parts = batch(), [batch(rows=slice(0, 2)), batch(rows=slice(2, ROWS))]
    of_parts = [float(LOSSES[name](part, temperature=T)) for part in parts]
    expected = (2 * of_parts[0] + 3 * of_parts[1]) / ROWS
    assert float(LOSSES[name](whole, temperature=T)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_a_student_that_scores_as_its_teacher_gets_no_gradient(name: str) -> None:
    pairs = batch(query=random(ROWS, WIDTH, seed=1).requires_grad_())
    assert pairs.own is not None
    documents = torch.cat([pairs.positive[:, None], pairs.own], dim=1)
    scores = (pairs.query.detach()[:, None] * documents).sum(dim=-1)
    loss = LOSSES[name](
        batch(query=pairs.query, scores=scores * TEACHER), temperature=1, teacher_temperature=TEACHER
    )
    (slope,) = torch.autograd.grad(loss, pairs.query)
    torch.testing.assert_close(slope, torch.zeros_like(slope), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_what_cannot_be_learned_from_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="scores of a teacher"):
        LOSSES[name](batch(scores=None), temperature=T)
    for wrong in ({"temperature": 0.0}, {"temperature": T, "teacher_temperature": 0.0}):
        with pytest.raises(ValueError, match="temperature must be above 0"):
            LOSSES[name](batch(), **wrong)
    with pytest.raises(ValueError, match="scores must have a column for the positive and each of 3"):
        batch(scores=random(ROWS, OWN, seed=1))
    with pytest.raises(ValueError, match="scores must have 5 rows, got 4"):
        batch(scores=random(4, 1 + OWN, seed=1))
