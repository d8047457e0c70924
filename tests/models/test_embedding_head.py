"""Pooling and projections against values worked by hand, plain loops, and sentence-transformers."""

import pytest
import torch
from sentence_transformers.sentence_transformer.modules import Pooling as PeerPooling
from torch import Tensor, nn

from adiabat.models.embedding_head import POOLINGS, Pooling, new_projection, pool
from adiabat.models.st_files import NAMES_OF_POOLING

PEER_NAMES = {ours: theirs for theirs, ours in NAMES_OF_POOLING.items()}

HAND_HIDDEN = torch.tensor([[[1.0, 8.0], [3.0, 2.0], [99.0, -99.0]]])
HAND_MASK = torch.tensor([[1, 1, 0]])
# mean ((1 + 3) / 2, (8 + 2) / 2); weights 1 and 2: ((1 + 2 * 3) / 3, (8 + 2 * 2) / 3).
BY_HAND: dict[Pooling, list[float]] = {
    "mean": [2.0, 5.0],
    "cls": [1.0, 8.0],
    "last": [3.0, 2.0],
    "max": [3.0, 8.0],
    "weighted_mean": [7 / 3, 4.0],
}


def right_padded(lengths: list[int], *, width: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(len(lengths), max(lengths), width, generator=generator)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return hidden, mask


def pooled_in_plain_loops(hidden: Tensor, mask: Tensor, pooling: Pooling) -> Tensor:
    rows = []
    for states, flags in zip(hidden.tolist(), mask.tolist(), strict=True):
        weights = [place for place, flag in enumerate(flags, start=1) if flag]
        kept = [states[place - 1] for place in weights]
        columns = list(zip(*kept, strict=True))
        if pooling == "cls":
            rows.append(kept[0])
        elif pooling == "last":
            rows.append(kept[-1])
        elif pooling == "max":
            rows.append([max(column) for column in columns])
        elif pooling == "mean":
            rows.append([sum(column) / len(kept) for column in columns])
        else:
            sums = [sum(w * x for w, x in zip(weights, column, strict=True)) for column in columns]
            rows.append([total / sum(weights) for total in sums])
    return torch.tensor(rows)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooled_vector_is_the_one_worked_by_hand(pooling: Pooling) -> None:
    assert pool(HAND_HIDDEN, HAND_MASK, pooling=pooling)[0].tolist() == pytest.approx(BY_HAND[pooling])


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize(
    "lengths", [[4, 1, 7, 2], [6], [1], [3, 3]], ids=["ragged", "batch of one", "one token", "no padding"]
)
def test_pooling_equals_plain_loops(pooling: Pooling, lengths: list[int]) -> None:
    hidden, mask = right_padded(lengths)
    torch.testing.assert_close(
        pool(hidden, mask, pooling=pooling), pooled_in_plain_loops(hidden, mask, pooling)
    )


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize(("lengths", "skipped"), [([4, 1, 7, 2], 0), ([6], 0), ([1], 0), ([5, 4, 7], 2)])
def test_pooling_with_the_prompt_and_without_is_the_peers(
    pooling: Pooling, lengths: list[int], skipped: int
) -> None:
    hidden, mask = right_padded(lengths, seed=1)
    peer = PeerPooling(hidden.shape[2], pooling_mode=PEER_NAMES[pooling], include_prompt=not skipped)
    expected = peer({"token_embeddings": hidden, "attention_mask": mask.clone(), "prompt_length": skipped})[
        "sentence_embedding"
    ]
    mask[:, :skipped] = 0
    torch.testing.assert_close(pool(hidden, mask, pooling=pooling), expected)


def test_bfloat16_states_are_summed_in_float32() -> None:
    # Summed in bfloat16, 4,096 ones would stop growing at 256.
    pooled = pool(
        torch.ones(1, 4096, 2, dtype=torch.bfloat16), torch.ones(1, 4096, dtype=torch.long), pooling="mean"
    )
    assert pooled.dtype == torch.float32
    assert pooled.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("pooling", POOLINGS)
def test_one_token_amid_padding_is_the_vector(pooling: Pooling) -> None:
    hidden, _ = right_padded([6])
    mask = torch.tensor([[0, 0, 0, 1, 0, 0]])
    torch.testing.assert_close(pool(hidden, mask, pooling=pooling), hidden[:, 3])


@pytest.mark.parametrize("pooling", POOLINGS)
def test_gradient_reaches_only_tokens_that_count(pooling: Pooling) -> None:
    hidden, mask = right_padded([2, 4])
    hidden.requires_grad_()
    (gradient,) = torch.autograd.grad(pool(hidden, mask, pooling=pooling).sum(), hidden)
    assert torch.isfinite(gradient).all()
    assert not gradient[mask == 0].any()
    assert gradient[mask == 1].any()


def test_a_projection_by_hand() -> None:
    projection = new_projection(2, 3, seed=0)
    with torch.no_grad():
        projection.linear.weight.copy_(torch.tensor([[1.0, 0.0], [1.0, 1.0], [-2.0, 0.5]]))
    assert projection(torch.tensor([[2.0, 4.0]])).tolist() == [[2.0, 6.0, -2.0]]


def test_the_seed_alone_decides_the_weights_and_the_global_random_state_is_left_alone() -> None:
    state = torch.get_rng_state()
    first = new_projection(8, 4, seed=3).linear.weight
    assert torch.equal(torch.get_rng_state(), state)
    torch.randn(1)
    assert torch.equal(new_projection(8, 4, seed=3).linear.weight, first)
    assert not torch.equal(new_projection(8, 4, seed=4).linear.weight, first)


@pytest.mark.parametrize("out", [384, 96])
def test_a_new_projection_keeps_angles_nearly(out: int) -> None:
    torch.manual_seed(0)
    vectors = torch.randn(40, 256)
    projected = new_projection(256, out, seed=1)(vectors)
    # Each coordinate of the result has the variance of the mean squared coordinate of the vector: lengths
    # grow with sqrt(out / width).
    lengths = projected.norm(dim=1) / vectors.norm(dim=1)
    torch.testing.assert_close(lengths.mean().item(), (out / 256) ** 0.5, rtol=0.03, atol=0)
    cosines = [
        nn.functional.normalize(rows, dim=1) @ nn.functional.normalize(rows, dim=1).T
        for rows in (vectors, projected)
    ]
    assert (cosines[0] - cosines[1]).abs().mean() < out**-0.5
