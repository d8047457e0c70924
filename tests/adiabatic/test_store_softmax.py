"""The softmax over a whole store against the whole matrix of scores, by torch's own cross-entropy and by
hand.
"""

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from adiabat.adiabatic.stored_loss import Blocks, store_softmax
from adiabat.core.ragged import Ragged
from adiabat.losses.embedded_pairs import Pairs
from adiabat.losses.in_batch import in_batch_softmax

KNOWN = [[3], [0, 7], [5, 2, 9], [3]]


def drawn(*shape: int, seed: int = 0, length: float = 1.0) -> Tensor:
    return length * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def blocks_of(documents: Tensor, rows: int) -> Blocks:
    def blocks() -> Iterator[tuple[int, Tensor]]:
        yield from ((start, documents[start : start + rows]) for start in range(0, len(documents), rows))

    return blocks


def positives_of(documents: Tensor) -> Tensor:
    return documents[[rows[0] for rows in KNOWN]]


def whole(query: Tensor, documents: Tensor, temperature: float) -> Tensor:
    """Of the matrix of all scores, in 64 bits."""
    scores = (
        functional.normalize(query.double(), dim=1)
        @ functional.normalize(documents.double(), dim=1).T
        / temperature
    )
    for row, known in enumerate(KNOWN):
        scores[row, known[1:]] = -math.inf
    return functional.cross_entropy(scores, torch.tensor([known[0] for known in KNOWN]))


@pytest.mark.parametrize("rows", [1, 4, 10, 4096])
@pytest.mark.parametrize("temperature", [0.02, 1.0])
def test_loss_and_gradient_are_those_of_the_whole_matrix(rows: int, temperature: float) -> None:
    query, documents = drawn(4, 8, length=3.0).requires_grad_(), drawn(10, 8, seed=1, length=0.2)
    ours = store_softmax(
        query, positives_of(documents), Ragged.of(KNOWN), blocks_of(documents, rows), temperature=temperature
    )
    theirs = whole(query, documents, temperature)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)
    mine, other = (torch.autograd.grad(loss, query)[0] for loss in (ours, theirs))
    torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)


def test_by_hand() -> None:
    documents = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-1.0, 0.0]])
    query = torch.tensor([[3.0, 0.0]])
    found = store_softmax(query, documents[:1], Ragged.of([[0]]), blocks_of(documents, 2), temperature=0.5)
    assert found.item() == pytest.approx(math.log(1 + math.exp(-2) + math.exp(-4)), rel=1e-6)


def test_it_is_the_softmax_of_a_batch_whose_negatives_are_the_rest_of_the_store() -> None:
    query, documents = drawn(1, 8), drawn(10, 8, seed=1)
    pairs = Pairs(query, documents[3:4], shared=documents[[row for row in range(10) if row != 3]]).unit()
    found = store_softmax(query, documents[3:4], Ragged.of([[3]]), blocks_of(documents, 4), temperature=0.1)
    assert found.item() == pytest.approx(in_batch_softmax(pairs, temperature=0.1).item(), rel=1e-5)


def test_a_store_of_one_document_teaches_nothing() -> None:
    query, documents = drawn(2, 8).requires_grad_(), drawn(1, 8, seed=1)
    loss = store_softmax(
        query, documents.expand(2, 8), Ragged.of([[0], [0]]), blocks_of(documents, 4), temperature=0.05
    )
    assert loss.item() == 0.0
    assert torch.autograd.grad(loss, query)[0].abs().max() < 1e-6


def test_copies_of_the_answer_are_ties_and_a_vector_of_zeros_is_no_fault() -> None:
    documents = torch.tensor([[1.0, 1.0], [2.0, 2.0], [0.0, 0.0]])
    query = torch.tensor([[1.0, 1.0]], requires_grad=True)
    loss = store_softmax(query, documents[:1], Ragged.of([[0]]), blocks_of(documents, 3), temperature=1.0)
    assert loss.item() == pytest.approx(math.log(2 + math.exp(-1)), rel=1e-6)
    assert torch.isfinite(torch.autograd.grad(loss, query)[0]).all()


def test_the_smallest_temperatures_overflow_nothing() -> None:
    query, documents = drawn(4, 8).requires_grad_(), drawn(10, 8, seed=1)
    loss = store_softmax(
        query, positives_of(documents), Ragged.of(KNOWN), blocks_of(documents, 3), temperature=1e-6
    )
    assert loss.item() == pytest.approx(whole(query, documents, 1e-6).item(), rel=1e-5)
    assert torch.isfinite(torch.autograd.grad(loss, query)[0]).all()


def test_the_gradient_is_the_slope() -> None:
    query, documents = drawn(4, 8).double().requires_grad_(), drawn(10, 8, seed=1)

    def loss(asked: Tensor) -> Tensor:
        return whole(asked, documents, 0.3)

    assert torch.autograd.gradcheck(loss, (query,))
    ours = store_softmax(
        query.float(), positives_of(documents), Ragged.of(KNOWN), blocks_of(documents, 3), temperature=0.3
    )
    slope = torch.autograd.grad(loss(query), query)[0].float()
    torch.testing.assert_close(torch.autograd.grad(ours, query)[0].float(), slope, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_a_temperature_is_above_0(temperature: float) -> None:
    documents = drawn(3, 8)
    with pytest.raises(ValueError, match="temperature must be > 0"):
        store_softmax(
            drawn(1, 8), documents[:1], Ragged.of([[0]]), blocks_of(documents, 3), temperature=temperature
        )


def test_an_answer_that_is_named_twice_counts_once() -> None:
    documents, query = drawn(5, 8), drawn(1, 8, seed=1)
    one, twice = (
        store_softmax(query, documents[1:2], Ragged.of([rows]), blocks_of(documents, 2), temperature=0.1)
        for rows in ([1], [1, 1])
    )
    assert torch.equal(one, twice)
    assert np.isfinite(one.item())
