"""Passes in chunks and side by side, of one group of texts or several, against one pass for each."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses as peer
from torch import Tensor

from adiabat.losses.embedded_pairs import Pairs
from adiabat.losses.in_batch import in_batch_softmax, samtone
from adiabat.models.bulk import TokenTable
from adiabat.models.device import Precision
from adiabat.models.encoder import Encoder
from adiabat.models.packing import is_packed
from adiabat.models.saving import save
from adiabat.models.towers import DualEncoder
from adiabat.training.gradient_cache import Chunking, size_of, training_copies
from adiabat.training.passes import Group, Passes, side_passes
from tests.losses.test_losses import LOSSES
from tests.tiny import KINDS, Kind, tiny_encoder
from tests.training.worlds import PICKED, TEXTS, assert_alike, gradients_of, passed, table_of

DOCUMENTS = [
    "the longest of all the texts in this batch",
    "one of middling length",
    "short",
    "b",
    "another one",
    "and one",
    "c",
]
CHUNKINGS = [
    Chunking(),
    Chunking(12),
    Chunking(12, cached=True),
    Chunking(1000, cached=True),
    Chunking(24, buckets=(8, 24)),
]
CACHED = Chunking(12, cached=True)
pytestmark = pytest.mark.usefixtures("two_threads")


def counting(*copies: Encoder) -> list[int]:
    """How many texts each pass through some towers has, as they come."""
    counts: list[int] = []
    for copy in copies:
        copy.register_forward_hook(lambda module, given, result: counts.append(len(result)))
    return counts


# --- One group ---


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("tokens", [None, 1, 12, 1000])
def test_halves_and_chunks_give_what_one_pass_gives(kind: Kind, cached: bool, tokens: int):
    encoder, picked = tiny_encoder(kind).eval(), PICKED
    one, plain = passed(encoder, Passes(encoder, precision="fp32"), picked)
    with side_passes(encoder, precision="fp32", chunking=Chunking(tokens, cached)) as passes:
        chunked, found = passed(encoder, passes, picked)
        _, again = passed(encoder, passes, picked)
    torch.testing.assert_close(chunked, one)
    assert_alike(found, plain)
    assert all(torch.equal(gradient, again[name]) for name, gradient in found.items())


@pytest.mark.parametrize("loss", [*LOSSES])
@pytest.mark.parametrize("threads", [1, 2])
def test_cached_gradients_are_those_of_kept_graphs_under_every_loss_and_dropout(loss: str, threads: int):
    found = []
    torch.set_num_threads(threads)
    for cached in (False, True):
        encoder, temperature = tiny_encoder().train(), torch.tensor(0.2, requires_grad=True)
        torch.manual_seed(7)
        with side_passes(encoder, precision="fp32", chunking=Chunking(12, cached)) as passes:
            query, positive, shared = (
                passes.embed(table_of(encoder), np.array(rows)) for rows in ([3, 0, 5], [2, 1, 4], [0, 1])
            )
            value = LOSSES[loss](Pairs(query, positive, shared=shared), temperature=temperature)
            value.backward()
        found.append((value.detach(), {"temperature": temperature.grad, **gradients_of(encoder)}))
    (kept, wanted), (value, gradients) = found
    assert value == kept
    torch.testing.assert_close(gradients, wanted)


@pytest.mark.parametrize(
    ("kind", "threads"), [("bert", 2), ("xlm-roberta", 2), ("llama", 2), ("gpt-neox", 2), ("t5", 1)]
)
def test_dropout_draws_in_an_order_of_its_own_or_from_one_thread(kind: Kind, threads: int):
    encoder, found = tiny_encoder(kind).train(), []
    with side_passes(encoder, precision="fp32") as passes:
        assert passes._threads == threads
        for seed in (0, 0, 1):
            torch.manual_seed(seed)
            found.append(passed(encoder, passes, np.arange(len(TEXTS))))
    assert found[0][0].equal(found[1][0])
    assert all(gradient.equal(found[1][1][name]) for name, gradient in found[0][1].items())
    # The tiny decoders have no dropout.
    assert found[0][0].allclose(found[2][0]) == (kind in ("llama", "gpt-neox"))


def test_dropout_in_a_part_alone_is_replayed_and_leaves_the_random_numbers_as_they_were():
    found = []
    for cached in (False, True):
        encoder = tiny_encoder().eval()
        encoder.backbone.train()
        torch.manual_seed(7)
        with side_passes(encoder, precision="fp32", chunking=Chunking(12, cached)) as passes:
            embeddings = passes.embed(table_of(encoder), np.arange(5))
            state = torch.get_rng_state()
            embeddings[:, 0].sum().backward()
        assert torch.equal(torch.get_rng_state(), state)
        found.append(gradients_of(encoder))
    torch.testing.assert_close(found[1], found[0])


def test_gradients_add_to_what_is_there_and_weights_are_frozen_and_unfrozen_between_steps():
    encoder = tiny_encoder(layers=2).eval()
    _, plain = passed(encoder, Passes(encoder, precision="fp32"), np.arange(5))
    first, second = (
        name for name, _ in encoder.named_parameters() if name.endswith("intermediate.dense.weight")
    )
    encoder.get_parameter(first).requires_grad_(False)
    with side_passes(encoder, precision="fp32") as passes:
        encoder.get_parameter(first).requires_grad_(True)
        encoder.get_parameter(second).requires_grad_(False)
        _, found = passed(encoder, passes, np.arange(5))
        passes.embed(table_of(encoder), np.arange(5))[:, 0].sum().backward()
        added = gradients_of(encoder)
        encoder.zero_grad()
        passes.embed(table_of(encoder), np.arange(5))[:, 0].sum().backward()
    assert plain.keys() - found.keys() == {f"0 {second}"}
    assert_alike(found, {name: plain[name] for name in found})
    assert_alike(added, {name: found[name] + gradient for name, gradient in gradients_of(encoder).items()})


@pytest.mark.parametrize("trainable", [True, False])
def test_a_tower_without_trainable_weights_passes_once(trainable: bool):
    encoder = tiny_encoder().eval().requires_grad_(trainable)
    with side_passes(encoder, precision="fp32", chunking=CACHED) as passes:
        counts = counting(*passes._towers[0].copies)
        embeddings = passes.embed(table_of(encoder), np.arange(5))
        (embeddings * torch.ones(encoder.width, requires_grad=True)).sum().backward()
    assert sum(counts) == (10 if trainable else 5)
    assert embeddings.requires_grad is trainable


def test_a_pass_that_fails_reaches_the_caller_and_leaves_nothing_behind_for_the_next_step():
    encoder = tiny_encoder().eval()
    with side_passes(encoder, precision="fp32") as passes:
        _, wanted = passed(encoder, passes, np.arange(5))
        embeddings = passes.embed(table_of(encoder), np.arange(5))
        weights = next(
            weights
            for name, weights in passes._towers[0].copies[0].named_parameters()
            if name.endswith("intermediate.dense.weight")
        )
        hook = weights.register_hook(lambda gradient: (_ for _ in ()).throw(OSError("no")))
        with pytest.raises(OSError, match="no"):
            embeddings.sum().backward()
        hook.remove()
        assert all(twin.grad is None for _, twin in passes._twins())
        _, found = passed(encoder, passes, np.arange(5))
        table = table_of(encoder)
        table.ids[:] = 10**6
        with pytest.raises(IndexError):
            passes.embed(table, np.arange(4))
    assert all(torch.equal(found[name], gradient) for name, gradient in wanted.items())


@pytest.mark.parametrize("chunking", [Chunking(), Chunking(cached=True), Chunking(12), CACHED], ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_second_backward_is_refused(threads: int, chunking: Chunking):
    encoder = tiny_encoder().eval()
    torch.set_num_threads(threads)
    with side_passes(encoder, precision="fp32", chunking=chunking) as passes:
        loss = passes.embed(table_of(encoder), np.arange(5)).sum()
        loss.backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="a batch must be differentiated only once"):
            loss.backward()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("cached", [False, True])
def test_weights_and_gradients_are_float32_whatever_the_pass_computes_in(cached: bool, precision: Precision):
    encoder, computed = tiny_encoder(projection=8).eval(), []
    _, wanted = passed(encoder, Passes(encoder, precision="fp32"), np.arange(5))
    with side_passes(encoder, precision=precision, chunking=Chunking(12, cached)) as passes:
        for copy in passes._towers[0].copies:
            copy.projections[0].linear.register_forward_hook(
                lambda module, given, output: computed.append(output.dtype)
            )
        embeddings, found = passed(encoder, passes, np.arange(5))
        masters = {weights.dtype for copy in passes._towers[0].copies for weights in copy.parameters()}
    assert set(computed) == {torch.bfloat16 if precision == "bf16" else torch.float32}
    assert masters == {embeddings.dtype} == {gradient.dtype for gradient in found.values()} == {torch.float32}
    flat = (torch.cat([part.flatten() for part in each.values()]) for each in (found, wanted))
    direction = torch.cosine_similarity(*flat, dim=0)
    assert (1 - direction < 1e-5) == (precision == "fp32")
    assert direction > 0.99


# --- Several groups ---


def scores(query: Tensor, document: Tensor) -> Tensor:
    return (query @ document.T).softmax(dim=1).square().sum()


def groups_of(query: Encoder, document: Encoder, *, towers: tuple[int, int]) -> list[Group]:
    return [
        Group(table_of(query), np.array([3, 0, 2, 1]), towers[0]),
        Group(TokenTable.of(document, DOCUMENTS, side="document"), np.array([0, 6, 2, 4, 1]), towers[1]),
    ]


def check_together(
    query: Encoder, document: Encoder, chunking: Chunking, *, towers: tuple[int, int]
) -> list[Tensor]:
    """Groups that pass together give what a pass for each gives, without any cutting."""
    groups, distinct = groups_of(query, document, towers=towers), [query, document][: 1 + towers[1]]
    found = []
    for together in (False, True):
        query.zero_grad()
        document.zero_grad()
        if together:
            with side_passes(*distinct, precision="fp32", chunking=chunking) as passes:
                embeddings = passes.embed_all(groups)
                scores(*embeddings).backward()
        else:
            alone = (Passes(tower, precision="fp32") for tower in (query, document))
            embeddings = [one.embed(of.table, of.rows) for one, of in zip(alone, groups, strict=True)]
            scores(*embeddings).backward()
        found.append(([rows.detach() for rows in embeddings], gradients_of(query, document)))
    (wanted, plain), (joined, gradients) = found
    torch.testing.assert_close(joined, wanted)
    assert_alike(gradients, plain)
    return embeddings


@pytest.mark.parametrize("chunking", CHUNKINGS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_two_groups_of_one_tower_give_what_two_passes_give(kind: Kind, chunking: Chunking):
    encoder = tiny_encoder(kind).eval()
    check_together(encoder, encoder, chunking, towers=(0, 0))


@pytest.mark.parametrize("chunking", CHUNKINGS, ids=str)
def test_two_towers_of_different_size_and_a_tower_given_twice_pass_together(chunking: Chunking):
    query, document = tiny_encoder("bert", projection=32).eval(), tiny_encoder("t5", seed=1).eval()
    check_together(query, document, chunking, towers=(0, 1))
    check_together(query, query, chunking, towers=(0, 1))
    frozen = check_together(query, document.requires_grad_(False), chunking, towers=(0, 1))
    assert [rows.requires_grad for rows in frozen] == [True, False]


@pytest.mark.parametrize("frozen", [False, True])
def test_a_group_that_the_loss_does_not_depend_on_and_one_that_is_frozen_pass_once(frozen: bool):
    query, document = tiny_encoder().eval(), tiny_encoder(seed=1).eval().requires_grad_(not frozen)
    with side_passes(query, document, precision="fp32", chunking=CACHED) as passes:
        counts = [counting(*tower.copies) for tower in passes._towers]
        embeddings = passes.embed_all(groups_of(query, document, towers=(0, 1)))
        (scores(*embeddings) if frozen else embeddings[0].sum()).backward()
    assert [sum(each) for each in counts] == [2 * 4, 5]


def test_all_groups_share_one_region_forward_and_one_backward_and_are_differentiated_together():
    encoder, regions = tiny_encoder().eval(), []
    with side_passes(encoder, precision="fp32", chunking=Chunking(12)) as passes:
        run = passes._run

        def counted(jobs):
            jobs = list(jobs)
            regions.append(len(jobs))
            return run(jobs)

        passes._run = counted
        query, document = passes.embed_all(groups_of(encoder, encoder, towers=(0, 0)))
        query.sum().backward()
        assert regions == [2, 2]
        with pytest.raises(RuntimeError, match="a batch must be differentiated only once"):
            document.sum().backward()


@pytest.mark.parametrize("frozen", [False, True])
def test_a_text_of_a_larger_tower_or_of_a_trained_one_counts_for_several(frozen: bool):
    small = tiny_encoder(width=32 if frozen else 16).eval().requires_grad_(not frozen)
    large = tiny_encoder(width=32).eval()
    table = TokenTable.of(small, ["abcd"] * 3, side="query")
    with side_passes(small, large, precision="fp32", chunking=Chunking(6)) as passes:
        groups = [Group(table, np.arange(3), 0), Group(table, np.arange(1), 1)]
        shares = passes._shares(groups, [passes._manner(tower) for tower in passes._towers])
    assert [[chunk.group for chunk in share] for share in shares] == [[1], [0, 0, 0]]


def test_groups_may_be_empty():
    encoder = tiny_encoder().eval()
    with side_passes(encoder, precision="fp32", chunking=CACHED) as passes:
        assert passes.embed_all([]) == []
        none, some = passes.embed_all([Group(table_of(encoder), np.arange(count)) for count in (0, 2)])
        (none.sum() + some.square().sum()).backward()
    assert (none.shape, some.shape) == ((0, encoder.width), (2, encoder.width))
    assert Passes(encoder, precision="fp32").embed(table_of(encoder), np.arange(0)).shape == none.shape


# --- Copies of towers ---


@pytest.mark.parametrize("kind", KINDS)
def test_copies_share_the_memory_of_weights_and_pack_where_they_can(kind: Kind):
    encoder = tiny_encoder(kind)
    ((first, second),) = training_copies([encoder], 2, Chunking(), "fp32")
    for own, one, other in zip(encoder.parameters(), first.parameters(), second.parameters(), strict=True):
        assert one is own
        assert other is not own
        assert other.data_ptr() == own.data_ptr()
    ((fixed,),) = training_copies([encoder], 1, Chunking(64, buckets=(8, 16)), "fp32")
    # What has a fixed shape is not packed.
    assert [is_packed(copy) for copy in (first, fixed, encoder)] == [kind != "t5", False, False]


def test_tables_are_left_out_of_what_a_token_costs():
    encoder = tiny_encoder(projection=8)
    tables = sum(weights.numel() for name, weights in encoder.named_parameters() if "_embeddings." in name)
    assert size_of(encoder) == sum(weights.numel() for weights in encoder.parameters()) - tables


# --- A peer ---

COLUMNS = (
    ["what rises", "who fell and why", "a", "where does the long river end", "one two"],
    ["the tide", "rome, of many causes", "b", "in the sea, after a thousand miles and more", "three four"],
    ["a stone", "the wall", "c", "in a lake", "five"],
)
DIRECTIONS: dict[str, dict[str, Any]] = {
    "one way": {},
    "symmetric": {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"},
    "query_to_query": {"directions": ("query_to_doc", "query_to_query"), "partition_mode": "joint"},
}


@pytest.mark.parametrize("name", DIRECTIONS)
@pytest.mark.parametrize("tokens", [1, 40, 10_000])
def test_the_cached_loss_and_all_gradients_are_the_peers(name: str, tokens: int, tmp_path: Path) -> None:
    encoder = tiny_encoder().eval()
    save(DualEncoder(encoder, encoder), tmp_path / "model")
    model = SentenceTransformer(str(tmp_path / "model"), device="cpu").eval()
    loss_of = peer.CachedMultipleNegativesRankingLoss(model, scale=10, mini_batch_size=2, **DIRECTIONS[name])
    theirs = loss_of([dict(model.preprocess(texts)) for texts in COLUMNS], torch.empty(0))
    theirs.backward()
    groups = [Group(TokenTable.of(encoder, texts, side="query"), np.arange(5)) for texts in COLUMNS]
    with side_passes(encoder, precision="fp32", chunking=Chunking(tokens, cached=True)) as passes:
        pairs = Pairs(*passes.embed_all(groups)).unit()
        if name == "query_to_query":
            ours = samtone(pairs, temperature=0.1, symmetric=False)
        else:
            ours = in_batch_softmax(pairs, temperature=0.1, symmetric=name == "symmetric")
        ours.backward()
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-6)
    expected = dict(model[0].auto_model.named_parameters())
    for weight, own in encoder.backbone.named_parameters():
        if not weight.startswith("pooler."):
            wanted = expected[weight].grad
            torch.testing.assert_close(own.grad, wanted, rtol=1e-4, atol=1e-5 * float(1 + wanted.abs().max()))
