"""Several groups of texts, and several towers, in one pass."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from adiabat.models.bulk import TokenTable
from adiabat.models.encoder import Encoder
from adiabat.training.gradient_cache import Chunking
from adiabat.training.passes import Group, Passes, side_passes
from tests.tiny import KINDS, Kind, tiny_encoder

QUERIES = ["a", "two words", "three short words", "", "again two"]
DOCUMENTS = ["the longest of all the texts in this batch", "one of middling length", "short", "b", "another one", "and one", "c"]
CHUNKINGS = [Chunking(), Chunking(12), Chunking(12, cached=True), Chunking(1000, cached=True), Chunking(24, buckets=(8, 24))]


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def scores(query: Tensor, document: Tensor) -> Tensor:
    return (query @ document.T).softmax(dim=1).square().sum()


def of_one_pass_each(query: Encoder, document: Encoder, groups: list[Group]) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Embeddings and gradients without any cutting; gradients by the tower and the name."""
    for tower in (query, document):
        tower.zero_grad()
    embeddings = [
        Passes(tower, precision="fp32").embed(group.table, group.rows) for tower, group in zip((query, document), groups, strict=True)
    ]
    scores(*embeddings).backward()
    return [one.detach() for one in embeddings], named_gradients(query, document)


def named_gradients(*towers: Encoder) -> dict[str, Tensor]:
    return {
        f"{number} {name}": weights.grad.clone()
        for number, tower in enumerate(towers)
        for name, weights in tower.named_parameters()
        if weights.grad is not None
    }


def groups_of(query: Encoder, document: Encoder, *, towers: tuple[int, int]) -> list[Group]:
    return [
        Group(TokenTable.of(query, QUERIES, side="query"), np.array([3, 0, 2, 1]), towers[0]),
        Group(TokenTable.of(document, DOCUMENTS, side="document"), np.array([0, 6, 2, 4, 1]), towers[1]),
    ]


def check(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6 * float(1 + gradient.abs().max()))


@pytest.mark.parametrize("chunking", CHUNKINGS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_two_groups_of_one_tower_give_what_two_passes_give(kind: Kind, chunking: Chunking):
    encoder = tiny_encoder(kind).eval()
    groups = groups_of(encoder, encoder, towers=(0, 0))
    embeddings, wanted = of_one_pass_each(encoder, encoder, groups)
    encoder.zero_grad()
    with side_passes(encoder, precision="fp32", chunking=chunking) as passes:
        together = passes.embed_all(groups)
        scores(*together).backward()
    torch.testing.assert_close([one.detach() for one in together], embeddings)
    check(named_gradients(encoder, encoder), wanted)


@pytest.mark.parametrize("chunking", CHUNKINGS, ids=str)
def test_two_towers_of_different_size_pass_together(chunking: Chunking):
    query, document = tiny_encoder("bert", layers=1, projection=32).eval(), tiny_encoder("t5", seed=1).eval()
    groups = groups_of(query, document, towers=(0, 1))
    embeddings, wanted = of_one_pass_each(query, document, groups)
    for tower in (query, document):
        tower.zero_grad()
    with side_passes(query, document, precision="fp32", chunking=chunking) as passes:
        together = passes.embed_all(groups)
        scores(*together).backward()
    torch.testing.assert_close([one.detach() for one in together], embeddings)
    check(named_gradients(query, document), wanted)


def test_a_tower_given_twice_adds_the_gradients_of_both_sides_up():
    encoder = tiny_encoder().eval()
    groups = groups_of(encoder, encoder, towers=(0, 1))
    _, wanted = of_one_pass_each(encoder, encoder, groups)
    encoder.zero_grad()
    with side_passes(encoder, encoder, precision="fp32", chunking=Chunking(12)) as passes:
        scores(*passes.embed_all(groups)).backward()
    check(named_gradients(encoder, encoder), wanted)


def test_embeddings_of_a_frozen_tower_have_no_graph_and_pass_once():
    query, document = tiny_encoder().eval(), tiny_encoder(seed=1).eval().requires_grad_(False)
    groups = groups_of(query, document, towers=(0, 1))
    _, wanted = of_one_pass_each(query, document, groups)
    query.zero_grad()
    passed: list[int] = []
    with side_passes(query, document, precision="fp32", chunking=Chunking(12, cached=True)) as passes:
        for _, copy in passes._copies:
            copy.register_forward_hook(lambda module, given, result: passed.append(len(result)))
        embeddings = passes.embed_all(groups)
        scores(*embeddings).backward()
    assert [one.requires_grad for one in embeddings] == [True, False]
    assert sum(passed) == len(groups[1].rows)
    check(named_gradients(query, document), wanted)


def test_a_group_that_the_loss_does_not_depend_on_is_not_passed_again():
    encoder = tiny_encoder().eval()
    passed: list[int] = []
    with side_passes(encoder, precision="fp32", chunking=Chunking(12, cached=True)) as passes:
        for (copy,) in passes._copies:
            copy.register_forward_hook(lambda module, given, result: passed.append(len(result)))
        embeddings = passes.embed_all(groups_of(encoder, encoder, towers=(0, 0)))
        embeddings[0].sum().backward()
    assert sum(passed) == 2 * 4 + 5


def test_all_groups_share_one_region_forward_and_one_backward():
    encoder = tiny_encoder().eval()
    with side_passes(encoder, precision="fp32", chunking=Chunking(12)) as passes:
        regions: list[int] = []
        run = passes._run

        def counted(jobs):
            jobs = list(jobs)
            regions.append(len(jobs))
            return run(jobs)

        passes._run = counted
        scores(*passes.embed_all(groups_of(encoder, encoder, towers=(0, 0)))).backward()
    assert regions == [2, 2]


@pytest.mark.parametrize("frozen", [False, True])
def test_a_text_of_a_larger_tower_or_of_a_trained_one_counts_for_several(frozen: bool):
    small, large = tiny_encoder(width=32 if frozen else 16).eval().requires_grad_(not frozen), tiny_encoder(width=32).eval()
    table = TokenTable.of(small, ["abcd"] * 3, side="query")
    with side_passes(small, large, precision="fp32", chunking=Chunking(6)) as passes:
        groups = [Group(table, np.arange(3), 0), Group(table, np.arange(1), 1)]
        shares = passes._shares(groups, [passes._manner(tower) for tower in (0, 1)])
    assert [[chunk.group for chunk in share] for share in shares] == [[1], [0, 0, 0]]


def test_groups_may_be_empty():
    encoder = tiny_encoder().eval()
    table = TokenTable.of(encoder, QUERIES, side="query")
    with side_passes(encoder, precision="fp32", chunking=Chunking(12, cached=True)) as passes:
        assert passes.embed_all([]) == []
        none, some = passes.embed_all([Group(table, np.arange(0)), Group(table, np.arange(2))])
        (none.sum() + some.square().sum()).backward()
    assert none.shape == (0, encoder.width)
    assert some.shape == (2, encoder.width)


def test_groups_are_differentiated_together_or_not_at_all():
    encoder = tiny_encoder().eval()
    with side_passes(encoder, precision="fp32") as passes:
        query, document = passes.embed_all(groups_of(encoder, encoder, towers=(0, 0)))
        query.sum().backward()
        with pytest.raises(RuntimeError, match="a batch must be differentiated once"):
            document.sum().backward()
