import inspect
import math

import pytest
import torch
from sentence_transformers.sentence_transformer import losses as peer
from torch import Tensor, nn
from torch.nn import functional

from adiabat.train.losses import (
    cosine_similarity,
    euclidean_distance,
    in_batch_softmax,
    softmax_cross_entropy,
    triplet_distances,
    triplet_errors,
    triplet_margin,
)


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def plain_distance(left: list[float], right: list[float], distance: str) -> float:
    if distance == "euclidean":
        return math.sqrt(sum((x - y) ** 2 for x, y in zip(left, right, strict=True)))
    dot = sum(x * y for x, y in zip(left, right, strict=True))
    return 1 - dot / math.sqrt(sum(x * x for x in left)) / math.sqrt(sum(y * y for y in right))


def test_similarities_agree_with_plain_loops() -> None:
    left, right = random(3, 5), random(4, 5, seed=1)
    cosines, distances = cosine_similarity(left, right), euclidean_distance(left, right)
    for i in range(3):
        for j in range(4):
            assert cosines[i, j].item() == pytest.approx(1 - plain_distance(left[i].tolist(), right[j].tolist(), "cosine"))
            assert distances[i, j].item() == pytest.approx(plain_distance(left[i].tolist(), right[j].tolist(), "euclidean"))


def test_cosine_ignores_length_and_takes_zeros_as_unlike_everything() -> None:
    left, right = random(3, 5), random(4, 5, seed=1)
    torch.testing.assert_close(cosine_similarity(7 * left, right / 3), cosine_similarity(left, right))
    assert torch.equal(cosine_similarity(torch.zeros(1, 5), torch.ones(2, 5)), torch.zeros(1, 2))


def test_euclidean_distance_of_equal_rows_is_exactly_zero_even_among_many() -> None:
    rows = 100 + random(64, 8, dtype=torch.float32)
    assert torch.equal(euclidean_distance(rows, rows.clone()).diagonal(), torch.zeros(64))


def test_triplet_margin_worked_by_hand() -> None:
    # Cosine: d(q, p) = 1 - 0.6 = 0.4 and d(q, n) = 1 - 0.8 = 0.2, so 0.4 - 0.2 + 0.1 = 0.3; the second triplet is met: 0.
    query = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    positive = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    negative = torch.tensor([[4.0, 3.0], [1.0, 0.0]])
    assert triplet_margin(query, positive, negative, margin=0.1, distance="cosine").item() == pytest.approx(0.15)
    # Euclidean: |q - p| = sqrt(20), |q - n| = sqrt(18); then 1 - sqrt(5) + 0.1 < 0.
    expected = (math.sqrt(20) - math.sqrt(18) + 0.1) / 2
    assert triplet_margin(query, positive, negative, margin=0.1, distance="euclidean").item() == pytest.approx(expected)


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
    assert triplet_margin(query, positive, negative, margin=0.3, distance=distance).item() == pytest.approx(sum(terms) / 12)
    assert triplet_errors(query, positive, negative, distance=distance).item() == errors


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_one_negative_may_come_with_or_without_its_own_dimension(distance: str) -> None:
    query, positive, negative = random(4, 6), random(4, 6, seed=1), random(4, 6, seed=2)
    flat = triplet_margin(query, positive, negative, margin=0.1, distance=distance)
    assert torch.equal(flat, triplet_margin(query, positive, negative.unsqueeze(1), margin=0.1, distance=distance))


def test_triplet_margin_does_not_depend_on_the_order_of_triplets() -> None:
    query, positive, negative = random(5, 6), random(5, 6, seed=1), random(5, 2, 6, seed=2)
    order = torch.tensor([3, 0, 4, 1, 2])
    loss = triplet_margin(query, positive, negative, margin=0.1, distance="cosine")
    torch.testing.assert_close(triplet_margin(query[order], positive[order], negative[order].flip(1), margin=0.1, distance="cosine"), loss)


@pytest.mark.parametrize(
    ("distance", "metric"), [("cosine", peer.TripletDistanceMetric.COSINE), ("euclidean", peer.TripletDistanceMetric.EUCLIDEAN)]
)
def test_triplet_margin_equals_sentence_transformers(distance: str, metric: object) -> None:
    rows = [random(8, 16, seed=seed) for seed in range(3)]
    theirs = peer.TripletLoss(model=nn.Identity(), distance_metric=metric, triplet_margin=0.2)
    expected = theirs.compute_loss_from_embeddings(rows, torch.empty(0))
    # Their Euclidean distance adds 1e-6 to every difference.
    torch.testing.assert_close(triplet_margin(*rows, margin=0.2, distance=distance), expected, rtol=1e-5, atol=1e-6)


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
    triplet_margin(query, torch.tensor([[1.0, 0.0]]), torch.tensor([[1.5, 0.0]]), margin=1.0, distance="euclidean").backward()
    torch.testing.assert_close(query.grad, torch.tensor([[1.0, 0.0]]))  # -d|q - n|/dq = -(q - n)/|q - n|; descent moves away


def test_satisfied_triplets_have_neither_loss_nor_gradient() -> None:
    query = torch.tensor([[1.0, 0.0]], requires_grad=True)
    loss = triplet_margin(query, torch.tensor([[1.0, 0.1]]), torch.tensor([[-1.0, 0.0]]), margin=0.1, distance="cosine")
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


def test_distances_that_are_not_numbers_count_as_errors() -> None:
    query = torch.tensor([[math.nan, 0.0]])
    assert triplet_errors(query, torch.ones(1, 2), -torch.ones(1, 2), distance="cosine").item() == 1


@pytest.mark.parametrize("margin", [-0.1, math.nan, math.inf])
def test_an_impossible_margin_is_refused(margin: float) -> None:
    rows = random(3, 2, 4)
    with pytest.raises(ValueError, match="margin must be a finite number >= 0"):
        triplet_margin(*rows, margin=margin, distance="cosine")


def test_an_unknown_distance_is_refused() -> None:
    # Unwrapped, because the run-time type check of the test run would speak first.
    with pytest.raises(ValueError, match='distance must be "cosine" or "euclidean", got "manhattan"'):
        inspect.unwrap(triplet_distances)(*random(3, 2, 4), distance="manhattan")


def test_in_batch_softmax_worked_by_hand() -> None:
    # s = [[1, 0], [0, 1]], T = 0.5: each row is -ln(e^2 / (e^2 + 1)).
    rows = torch.eye(2)
    assert in_batch_softmax(rows, rows, temperature=0.5).item() == pytest.approx(math.log(1 + math.exp(-2)))


def test_in_batch_softmax_agrees_with_plain_loops_under_exclusion() -> None:
    query, document = random(4, 6), random(7, 6, seed=1)
    excluded = random(4, 7, seed=2) > 0.5
    excluded[:, :4].fill_diagonal_(True)  # the positive stays in whatever the mask says
    total = 0.0
    for i in range(4):
        scores = [sum(a * b for a, b in zip(query[i].tolist(), row, strict=True)) / 0.7 for row in document.tolist()]
        kept = [score for j, score in enumerate(scores) if j == i or not excluded[i, j]]
        total -= math.log(math.exp(scores[i]) / sum(math.exp(score) for score in kept))
    assert in_batch_softmax(query, document, temperature=0.7, excluded=excluded).item() == pytest.approx(total / 4)


@pytest.mark.parametrize("hard", [0, 1, 2])
def test_in_batch_softmax_on_unit_rows_equals_sentence_transformers(hard: int) -> None:
    sides = [random(6, 16, seed=seed) for seed in range(2 + hard)]
    theirs = peer.MultipleNegativesRankingLoss(model=nn.Identity(), scale=20.0)
    expected = theirs.compute_loss_from_embeddings(sides, torch.empty(0))
    query, document = functional.normalize(sides[0], dim=1), functional.normalize(torch.cat(sides[1:]), dim=1)
    torch.testing.assert_close(in_batch_softmax(query, document, temperature=1 / 20), expected)


def test_excluding_a_document_is_leaving_it_out() -> None:
    query, document = random(3, 6), random(5, 6, seed=1)
    excluded = torch.zeros(3, 5, dtype=torch.bool)
    excluded[:, 3] = True
    shorter = in_batch_softmax(query, document[[0, 1, 2, 4]], temperature=0.1)
    torch.testing.assert_close(in_batch_softmax(query, document, temperature=0.1, excluded=excluded), shorter)


def test_a_row_without_negatives_has_loss_and_gradient_zero() -> None:
    query, document = random(3, 6).requires_grad_(), random(5, 6, seed=1)
    excluded = torch.zeros(3, 5, dtype=torch.bool)
    excluded[1] = True
    rows = softmax_cross_entropy(query @ document.T, temperature=0.05, excluded=excluded)
    rows.sum().backward()
    assert rows[1].item() == 0.0
    assert torch.equal(query.grad[1], torch.zeros(6, dtype=torch.float64))
    assert torch.isfinite(query.grad).all()
    assert query.grad[0].abs().sum() > 0


def test_in_batch_softmax_does_not_depend_on_the_order_of_pairs_and_negatives() -> None:
    query, document = random(4, 6), random(7, 6, seed=1)
    order = [2, 0, 3, 1]
    turned = in_batch_softmax(query[order], document[[*order, 6, 4, 5]], temperature=0.2)
    torch.testing.assert_close(turned, in_batch_softmax(query, document, temperature=0.2))


def test_small_temperatures_do_not_overflow() -> None:
    rows = 100 * random(3, 6, dtype=torch.float32)
    assert torch.isfinite(in_batch_softmax(rows, rows, temperature=1e-3))


def test_the_gradient_of_the_softmax_passes_torchs_numerical_check() -> None:
    query, document = random(3, 4).requires_grad_(), random(5, 4, seed=1).requires_grad_()
    excluded = random(3, 5, seed=2) > 0.8
    assert torch.autograd.gradcheck(lambda q, d: in_batch_softmax(q, d, temperature=0.5, excluded=excluded), (query, document))


def test_fewer_documents_than_queries_are_refused() -> None:
    with pytest.raises(ValueError, match="documents must be at least as many as queries, got 2 for 3"):
        in_batch_softmax(random(3, 4), random(2, 4), temperature=0.1)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_temperature_not_above_zero_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature must be above 0"):
        in_batch_softmax(random(2, 4), random(2, 4), temperature=temperature)


def test_a_mask_of_another_shape_is_refused_instead_of_broadcast() -> None:
    with pytest.raises(ValueError, match="excluded must have one entry per score, 3 x 5, got 5"):
        inspect.unwrap(softmax_cross_entropy)(random(3, 5), temperature=1.0, excluded=torch.zeros(5, dtype=torch.bool))
