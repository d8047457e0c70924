"""Passes in chunks and side by side against one pass."""

import numpy as np
import pytest
import torch

from adiabat.losses.embedded_pairs import Pairs
from adiabat.models.bulk import TokenTable
from adiabat.models.device import Precision
from adiabat.training.gradient_cache import Chunking
from adiabat.training.passes import Passes, side_passes
from tests.losses.test_losses import LOSSES
from tests.tiny import KINDS, Kind, tiny_encoder

TEXTS = ["a", "two words", "three short words", "the longest of all the texts in this batch", "", "again two"]


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def gradients(encoder, passes, table, picked, target):
    encoder.zero_grad()
    embeddings = passes.embed(table, picked)
    (embeddings * target).sum().square().backward()
    found = {name: weights.grad.clone() for name, weights in encoder.named_parameters() if weights.grad is not None}
    return embeddings.detach(), found


def test_gradients_add_to_what_is_there():
    encoder = tiny_encoder().eval()
    table = TokenTable.of(encoder, TEXTS, side="query")
    weights = next(weights for name, weights in encoder.named_parameters() if name.endswith("intermediate.dense.weight"))
    with side_passes(encoder, precision="fp32") as passes:
        passes.embed(table, np.arange(4))[:, 0].sum().backward()
        once = weights.grad.clone()
        passes.embed(table, np.arange(4))[:, 0].sum().backward()
    torch.testing.assert_close(weights.grad, 2 * once)


def test_frozen_weights_get_no_gradient():
    encoder = tiny_encoder().eval()
    frozen = [weights for name, weights in encoder.named_parameters() if "embeddings" in name]
    for weights in frozen:
        weights.requires_grad_(False)
    table = TokenTable.of(encoder, TEXTS, side="query")
    with side_passes(encoder, precision="fp32") as passes:
        passes.embed(table, np.arange(4)).square().mean().backward()
    assert all(weights.grad is None for weights in frozen)


def test_a_batch_of_one_is_one_pass():
    encoder = tiny_encoder().eval()
    table = TokenTable.of(encoder, TEXTS, side="query")
    with side_passes(encoder, precision="fp32") as passes:
        assert passes.embed(table, np.array([2])).shape == (1, encoder.width)


@pytest.mark.parametrize(("kind", "threads"), [("bert", 2), ("xlm-roberta", 2), ("llama", 2), ("gpt-neox", 2), ("t5", 1)])
def test_with_dropout_on_random_numbers_come_in_an_order_of_their_own_or_from_one_thread(kind: Kind, threads: int):
    encoder = tiny_encoder(kind).train()
    found = []
    table = TokenTable.of(encoder, TEXTS, side="query")
    with side_passes(encoder, precision="fp32") as passes:
        assert len(passes._copies) == threads
        for seed in (0, 0, 1):
            torch.manual_seed(seed)
            encoder.zero_grad()
            embedded = passes.embed(table, np.arange(len(TEXTS)))
            embedded[:, 0].sum().backward()
            found.append([embedded.detach(), *(weights.grad.clone() for weights in encoder.parameters() if weights.grad is not None)])
    assert all(one.equal(other) for one, other in zip(found[0], found[1], strict=True))
    # The tiny decoders have no dropout.
    assert found[0][0].allclose(found[2][0]) == (kind in ("llama", "gpt-neox"))


def test_an_error_in_a_pass_reaches_the_caller():
    encoder = tiny_encoder().eval()
    table = TokenTable.of(encoder, TEXTS, side="query")
    table.ids[:] = 10**6
    with side_passes(encoder, precision="fp32") as passes, pytest.raises(IndexError):
        passes.embed(table, np.arange(4))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("tokens", [None, 1, 12, 1000])
def test_halves_and_chunks_give_the_embeddings_and_gradients_of_one_pass(kind: Kind, cached: bool, tokens: int):
    encoder = tiny_encoder(kind).eval()
    table = TokenTable.of(encoder, TEXTS, side="query")
    picked = np.array([3, 0, 5, 2, 1])
    target = torch.randn(5, encoder.width, generator=torch.Generator().manual_seed(0))
    one, plain = gradients(encoder, Passes(encoder, precision="fp32"), table, picked, target)
    with side_passes(encoder, precision="fp32", chunking=Chunking(tokens, cached)) as passes:
        chunked, found = gradients(encoder, passes, table, picked, target)
        _, again = gradients(encoder, passes, table, picked, target)
    torch.testing.assert_close(chunked, one)
    assert found.keys() == plain.keys()
    for name, gradient in plain.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6 * float(1 + gradient.abs().max()))
        assert torch.equal(found[name], again[name])


@pytest.mark.parametrize("loss", [*LOSSES])
@pytest.mark.parametrize("threads", [1, 2])
def test_cached_gradients_equal_those_of_kept_graphs_under_every_loss_with_dropout_on(loss: str, threads: int):
    found = []
    torch.set_num_threads(threads)
    for cached in (False, True):
        encoder = tiny_encoder().train()
        table = TokenTable.of(encoder, TEXTS, side="query")
        temperature = torch.tensor(0.2, requires_grad=True)
        torch.manual_seed(7)
        with side_passes(encoder, precision="fp32", chunking=Chunking(12, cached)) as passes:
            query, positive, shared = (passes.embed(table, np.array(rows)) for rows in ([3, 0, 5], [2, 1, 4], [0, 1]))
            value = LOSSES[loss](Pairs(query, positive, shared=shared), temperature=temperature)
            value.backward()
        found.append({"loss": value.detach(), "temperature": temperature.grad} | {n: w.grad for n, w in encoder.named_parameters()})
    assert found[0]["loss"] == found[1]["loss"]
    for name, gradient in found[0].items():
        assert (gradient is None) == (found[1][name] is None)
        if gradient is not None:
            torch.testing.assert_close(found[1][name], gradient)


def test_a_cached_chunk_leaves_the_random_numbers_as_they_were():
    encoder = tiny_encoder().train()
    table = TokenTable.of(encoder, TEXTS, side="query")
    with side_passes(encoder, precision="fp32", chunking=Chunking(12, cached=True)) as passes:
        embeddings = passes.embed(table, np.arange(5))
        state = torch.get_rng_state()
        embeddings.sum().backward()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("trainable", [True, False])
def test_a_tower_without_trainable_weights_passes_once(trainable: bool):
    encoder = tiny_encoder().eval().requires_grad_(trainable)
    table = TokenTable.of(encoder, TEXTS, side="query")
    passed = []
    with side_passes(encoder, precision="fp32", chunking=Chunking(12, cached=True)) as passes:
        for (copy,) in passes._copies:
            copy.register_forward_hook(lambda module, given, result: passed.append(len(result)))
        embeddings = passes.embed(table, np.arange(5))
        (embeddings * torch.ones(encoder.width, requires_grad=True)).sum().backward()
    assert sum(passed) == (10 if trainable else 5)
    assert embeddings.requires_grad is trainable


def test_a_backward_that_fails_leaves_nothing_behind_for_the_next_step():
    encoder = tiny_encoder().eval()
    table = TokenTable.of(encoder, TEXTS, side="query")
    target = torch.randn(5, encoder.width, generator=torch.Generator().manual_seed(0))
    with side_passes(encoder, precision="fp32") as passes:
        _, wanted = gradients(encoder, passes, table, np.arange(5), target)
        embeddings = passes.embed(table, np.arange(5))
        weights = next(weights for name, weights in passes._copies[0][0].named_parameters() if name.endswith("intermediate.dense.weight"))
        hook = weights.register_hook(lambda gradient: (_ for _ in ()).throw(OSError("no")))
        with pytest.raises(OSError, match="no"):
            embeddings.sum().backward()
        hook.remove()
        assert all(twin.grad is None for _, twin in passes._twins())
        _, found = gradients(encoder, passes, table, np.arange(5), target)
    assert all(torch.equal(found[name], gradient) for name, gradient in wanted.items())


def test_what_is_frozen_and_unfrozen_between_steps_is_heeded():
    encoder = tiny_encoder().eval()
    table = TokenTable.of(encoder, TEXTS, side="query")
    target = torch.randn(5, encoder.width, generator=torch.Generator().manual_seed(0))
    _, plain = gradients(encoder, Passes(encoder, precision="fp32"), table, np.arange(5), target)
    named = dict(encoder.named_parameters())
    first, second = (name for name in named if name.endswith("intermediate.dense.weight"))
    named[first].requires_grad_(False)
    with side_passes(encoder, precision="fp32") as passes:
        named[first].requires_grad_(True)
        named[second].requires_grad_(False)
        _, found = gradients(encoder, passes, table, np.arange(5), target)
    assert second not in found
    torch.testing.assert_close(found[first], plain[first], rtol=1e-4, atol=1e-6)


def test_dropout_in_a_part_alone_is_replayed():
    found = []
    for cached in (False, True):
        encoder = tiny_encoder().eval()
        encoder.backbone.train()
        table = TokenTable.of(encoder, TEXTS, side="query")
        torch.manual_seed(7)
        with side_passes(encoder, precision="fp32", chunking=Chunking(12, cached)) as passes:
            passes.embed(table, np.arange(5))[:, 0].sum().backward()
        found.append({name: weights.grad for name, weights in encoder.named_parameters() if weights.grad is not None})
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient)


def test_no_texts_give_no_embeddings():
    encoder = tiny_encoder().eval()
    table = TokenTable.of(encoder, TEXTS, side="query")
    assert Passes(encoder, precision="fp32").embed(table, np.arange(0)).shape == (0, encoder.width)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("tokens", [None, 12])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_second_backward_is_refused(threads: int, tokens: int | None, cached: bool):
    encoder = tiny_encoder().eval()
    table = TokenTable.of(encoder, TEXTS, side="query")
    torch.set_num_threads(threads)
    with side_passes(encoder, precision="fp32", chunking=Chunking(tokens, cached)) as passes:
        loss = passes.embed(table, np.arange(5)).sum()
        loss.backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="a batch must be differentiated once"):
            loss.backward()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("cached", [False, True])
def test_weights_and_gradients_are_float32_whatever_the_pass_computes_in(cached: bool, precision: Precision):
    encoder = tiny_encoder(projection=8).eval()
    table = TokenTable.of(encoder, TEXTS, side="query")
    computed = []
    with side_passes(encoder, precision=precision, chunking=Chunking(12, cached)) as passes:
        for (copy,) in passes._copies:
            copy.projections[0].linear.register_forward_hook(lambda module, given, output: computed.append(output.dtype))
        embeddings = passes.embed(table, np.arange(5))
        embeddings.square().sum().backward()
        masters = {weights.dtype for (copy,) in passes._copies for weights in copy.parameters()}
    assert set(computed) == {torch.bfloat16 if precision == "bf16" else torch.float32}
    assert masters == {embeddings.dtype} == {torch.float32}
    assert {weights.grad.dtype for weights in encoder.parameters() if weights.grad is not None} == {torch.float32}


def test_bf16_gradients_point_where_those_of_float32_do():
    encoder = tiny_encoder().eval()
    table = TokenTable.of(encoder, TEXTS, side="query")
    target = torch.randn(5, encoder.width, generator=torch.Generator().manual_seed(0))
    found = []
    for precision in ("fp32", "bf16"):
        with side_passes(encoder, precision=precision, chunking=Chunking(12, cached=True)) as passes:
            _, named = gradients(encoder, passes, table, np.arange(5), target)
        found.append(torch.cat([gradient.flatten() for gradient in named.values()]))
    assert 0.99 < torch.cosine_similarity(*found, dim=0) < 1
