"""Triplet losses by hand, in plain loops, and against torch and sentence-transformers."""

import inspect
import math
from functools import partial

import pytest
import torch
from sentence_transformers.sentence_transformer import losses as peer
from torch import nn
from torch.nn import functional

from adiabat.losses.in_batch import triplet_distances, triplet_errors, triplet_margin
from tests.losses.test_losses import random
from tests.refused import one_line


def plain_distance(left: list[float], right: list[float], distance: str) -> float:
    if distance == "euclidean":
        return math.sqrt(sum((x - y) ** 2 for x, y in zip(left, right, strict=True)))
    dot = sum(x * y for x, y in zip(left, right, strict=True))
    return 1 - dot / math.sqrt(sum(x * x for x in left)) / math.sqrt(sum(y * y for y in right))


def test_triplet_margin_worked_by_hand() -> None:
    # Cosine: d(q, p) = 1 - 0.6 = 0.4 and d(q, n) = 1 - 0.8 = 0.2, so 0.4 - 0.2 + 0.1 = 0.3; the second
    # triplet is met: 0.
    query = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    positive = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    negative = torch.tensor([[4.0, 3.0], [1.0, 0.0]])
    assert triplet_margin(query, positive, negative, margin=0.1, distance="cosine").item() == pytest.approx(
        0.15
    )
    # Euclidean: |q - p| = sqrt(20), |q - n| = sqrt(18); then 1 - sqrt(5) + 0.1 < 0.
    expected = (math.sqrt(20) - math.sqrt(18) + 0.1) / 2
    assert triplet_margin(
        query, positive, negative, margin=0.1, distance="euclidean"
    ).item() == pytest.approx(expected)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_triplet_margin_agrees_with_plain_loops_over_several_negatives(distance: str) -> None:
    query, positive, negative = random(4, 6), random(4, 6, seed=1), random(4, 3, 6, seed=2)
    terms, errors = [], 0
    for i in range(4):
        near = plain_distance(query[i].tolist(), positive[i].tolist(), distance)
        for h in range(3):
            far = plain_distance(query[i].tolist(), negative[i, h].tolist(), distance)
            terms.append(max(0.0, near - far + 0.3))
            errors += near >= far
    assert triplet_margin(query, positive, negative, margin=0.3, distance=distance).item() == pytest.approx(
        sum(terms) / 12
    )
    assert triplet_errors(query, positive, negative, distance=distance).item() == errors


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_neither_the_order_of_triplets_matters_nor_a_dimension_for_one_negative(distance: str) -> None:
    query, positive, negative = random(5, 6), random(5, 6, seed=1), random(5, 2, 6, seed=2)
    order, loss = torch.tensor([3, 0, 4, 1, 2]), partial(triplet_margin, margin=0.1, distance=distance)
    torch.testing.assert_close(
        loss(query[order], positive[order], negative[order].flip(1)), loss(query, positive, negative)
    )
    assert torch.equal(loss(query, positive, negative[:, 0]), loss(query, positive, negative[:, :1]))


@pytest.mark.parametrize(
    ("distance", "metric"),
    [("cosine", peer.TripletDistanceMetric.COSINE), ("euclidean", peer.TripletDistanceMetric.EUCLIDEAN)],
)
def test_triplet_margin_equals_sentence_transformers(distance: str, metric: object) -> None:
    rows = [random(8, 16, seed=seed) for seed in range(3)]
    theirs = peer.TripletLoss(model=nn.Identity(), distance_metric=metric, triplet_margin=0.2)
    expected = theirs.compute_loss_from_embeddings(rows, torch.empty(0))
    # Their Euclidean distance adds 1e-6 to every difference.
    torch.testing.assert_close(
        triplet_margin(*rows, margin=0.2, distance=distance), expected, rtol=1e-5, atol=1e-6
    )


def test_euclidean_triplet_margin_and_its_gradient_equal_torchs() -> None:
    ours, theirs = ([random(8, 16, seed=seed).requires_grad_() for seed in range(3)] for _ in range(2))
    loss = triplet_margin(*ours, margin=0.5, distance="euclidean")
    expected = functional.triplet_margin_loss(*theirs, margin=0.5, eps=0.0)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    expected.backward()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_gradient_is_finite_where_query_positive_and_negative_are_equal(distance: str) -> None:
    query = random(3, 6).requires_grad_()
    positive, negative = query.detach().clone(), query.detach().clone()
    triplet_margin(query, positive, negative, margin=0.1, distance=distance).backward()
    assert query.grad is not None
    assert torch.isfinite(query.grad).all()


def test_under_euclidean_an_equal_positive_does_not_pull_but_the_negative_pushes() -> None:
    query = torch.tensor([[1.0, 0.0]], requires_grad=True)
    triplet_margin(
        query, torch.tensor([[1.0, 0.0]]), torch.tensor([[1.5, 0.0]]), margin=1.0, distance="euclidean"
    ).backward()
    torch.testing.assert_close(
        query.grad, torch.tensor([[1.0, 0.0]])
    )  # -d|q - n|/dq = -(q - n)/|q - n|; descent moves away


def test_satisfied_triplets_have_neither_loss_nor_gradient() -> None:
    query = torch.tensor([[1.0, 0.0]], requires_grad=True)
    loss = triplet_margin(
        query, torch.tensor([[1.0, 0.1]]), torch.tensor([[-1.0, 0.0]]), margin=0.1, distance="cosine"
    )
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(query.grad, torch.zeros(1, 2))


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("width", [3, 384, 1000])
def test_ties_count_as_errors(distance: str, width: int) -> None:
    query, positive = random(14, width, dtype=torch.float32), random(14, width, seed=1, dtype=torch.float32)
    negative = positive.unsqueeze(1).repeat(1, 5, 1)
    near, far = triplet_distances(query, positive, negative, distance=distance)
    assert torch.equal(near.expand(14, 5), far)
    assert triplet_errors(query, positive, negative, distance=distance).item() == 70
    # So do distances that are no numbers.
    assert triplet_errors(query * math.nan, positive, -positive, distance=distance).item() == 14


@pytest.mark.parametrize("margin", [-0.1, math.nan, math.inf])
def test_an_impossible_margin_is_refused(margin: float) -> None:
    rows = random(3, 2, 4)
    with one_line(ValueError, "margin must be", ">= 0", f"got {margin}"):
        triplet_margin(*rows, margin=margin, distance="cosine")


def test_an_unknown_distance_is_refused() -> None:
    # Unwrapped, because the run-time type check of the test run would speak first.
    with one_line(ValueError, "distance", '"cosine", "euclidean" or "dot"', 'got "manhattan"'):
        inspect.unwrap(triplet_distances)(*random(3, 2, 4), distance="manhattan")
