"""In-batch losses: worked by hand, again in plain loops, against sentence-transformers, and whatever must not
change them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
from sentence_transformers.sentence_transformer import losses as peer
from torch import Tensor, nn

from adiabat.losses.embedded_pairs import Guide, Pairs
from adiabat.losses.in_batch import in_batch_softmax, pair, samtone
from tests.refused import Facts, one_line

Loss = Callable[..., Tensor]

LOSSES: dict[str, Loss] = {
    "softmax": in_batch_softmax,
    "softmax both ways": partial(in_batch_softmax, symmetric=True),
    "softmax with a margin": partial(in_batch_softmax, symmetric=True, margin=0.3),
    "samtone query": samtone,
    "samtone query one way": partial(samtone, symmetric=False),
    "samtone document": partial(samtone, side="document"),
    "samtone both": partial(samtone, side="both", margin=0.1),
    "pair": pair,
    "pair printed": partial(pair, weight=0.3, printed=True, symmetric=True),
}


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


FORWARD_ONLY = ("softmax",)
"""Losses that compare queries with documents and nothing else: those that `Pairs.known` is for."""


def batch_for(name: str, *sizes: int) -> Pairs:
    """`batch`, with what is known where the loss takes it."""
    return batch(*sizes) if name in FORWARD_ONLY else replace(batch(*sizes), known=None)


def batch(
    pairs: int = 5, shared: int = 3, own: int = 2, width: int = 6, *, dtype: torch.dtype = torch.float64
) -> Pairs:
    """Unit rows with everything a batch can have: repeated queries and positives, negatives that are
    positives, a guide.
    """
    keys = torch.arange(pairs)
    sides = [random(pairs, width, seed=1, dtype=dtype), random(pairs, width, seed=2, dtype=dtype)]
    more = [random(shared, width, seed=3, dtype=dtype), random(pairs, own, width, seed=4, dtype=dtype)]
    return Pairs(
        *sides,
        shared=more[0],
        own=more[1],
        query_keys=keys.clone().index_fill_(0, torch.tensor([pairs - 1]), 0),
        positive_keys=(100 + keys).index_fill_(0, torch.tensor([2]), 101),
        shared_keys=200 + torch.arange(shared) - 99 * (torch.arange(shared) == 0),
        # The last pair asks what the first one asks, so its positive, as this own negative, answers the first
        # one too.
        own_keys=(300 + torch.arange(pairs * own))
        .view(pairs, own)
        .index_put((torch.tensor(0), torch.tensor(0)), torch.tensor(99 + pairs)),
        known=random(pairs, pairs + shared, seed=5) > 1.5,
        guide=Guide(
            random(pairs, 4, seed=6, dtype=dtype),
            random(pairs, 4, seed=7, dtype=dtype),
            random(shared, 4, seed=8, dtype=dtype),
            random(pairs, own, 4, seed=9, dtype=dtype),
            margin=-0.5,
        ),
    ).unit()


def dot(left: Tensor, right: Tensor) -> float:
    return sum(a * b for a, b in zip(left.tolist(), right.tolist(), strict=True))


def with_leaves(pairs: Pairs) -> tuple[Pairs, list[Tensor]]:
    """The same numbers, whose gradients can be asked for."""
    parts = (pairs.query, pairs.positive, pairs.shared, pairs.own)
    leaves = [part.detach().clone().requires_grad_() for part in parts]
    return replace(pairs, **dict(zip(("query", "positive", "shared", "own"), leaves, strict=True))), leaves


@dataclass
class Loops:
    """The formulas again, one number at a time."""

    pairs: Pairs
    temperature: float

    def asks_the_same(self, i: int, j: int) -> bool:
        queries = self.pairs.query_keys
        return i == j or (queries is not None and bool(queries[i] == queries[j]))

    def answers(self, i: int) -> set[int]:
        """Keys of the positives of everyone who asks what `i` asks."""
        keys = self.pairs.positive_keys
        every = range(len(self.pairs.query))
        return set() if keys is None else {int(keys[j]) for j in every if self.asks_the_same(i, j)}

    def same(self, i: int, j: int) -> bool:
        keys = self.pairs.positive_keys
        if keys is None or self.asks_the_same(i, j):
            return self.asks_the_same(i, j)
        return int(keys[j]) in self.answers(i) or int(keys[i]) in self.answers(j)

    def guided(self, i: int, left: str, right: str, place: int | tuple[int, int]) -> bool:
        """Whether the guide finds a candidate closer to `i` than the positive, less a margin."""
        guide = self.pairs.guide
        if guide is None:
            return False
        threshold = dot(guide.query[i], guide.positive[i]) - guide.margin
        return dot(getattr(guide, left)[i], getattr(guide, right)[place]) > threshold

    def exponential(self, left: Tensor, right: Tensor) -> float:
        return math.exp(dot(left, right) / self.temperature)

    def terms(self, i: int, of: str, against: str) -> list[float]:
        """exp(s_ij) of the candidates on one side of the other pairs."""
        known = self.pairs.known if (of, against) == ("query", "positive") else None
        mine, theirs = getattr(self.pairs, of)[i], getattr(self.pairs, against)
        found = []
        for j in range(len(self.pairs.query)):
            out = self.same(i, j) or (known is not None and bool(known[i, j]))
            if not (out or self.guided(i, of, against, j)):
                found.append(self.exponential(mine, theirs[j]))
        return found

    def further(self, i: int) -> list[float]:
        """exp(s_ij) of shared and own negatives of a query."""
        pairs, found = self.pairs, []
        for j in range(len(pairs.shared)):
            equal = pairs.shared_keys is not None and int(pairs.shared_keys[j]) in self.answers(i)
            known = pairs.known is not None and bool(pairs.known[i, len(pairs.query) + j])
            if not (equal or known or self.guided(i, "query", "shared", j)):
                found.append(self.exponential(pairs.query[i], pairs.shared[j]))
        for h in range(pairs.own.shape[1]):
            equal = pairs.own_keys is not None and int(pairs.own_keys[i, h]) in self.answers(i)
            if not (equal or self.guided(i, "query", "own", (i, h))):
                found.append(self.exponential(pairs.query[i], pairs.own[i, h]))
        return found

    def loss(
        self, *, margin: float = 0.0, symmetric: bool = False, same_tower: tuple[str, ...] = ()
    ) -> float:
        total = 0.0
        every = range(len(self.pairs.query))
        for i in every:
            own = math.exp((dot(self.pairs.query[i], self.pairs.positive[i]) - margin) / self.temperature)
            forward = [own, *self.terms(i, "query", "positive"), *self.further(i)]
            forward += self.terms(i, "query", "query") if "query" in same_tower else []
            back = [own, *self.terms(i, "positive", "query")]
            back += self.terms(i, "positive", "positive") if "positive" in same_tower else []
            ways = [forward, back] if symmetric else [forward]
            total -= sum(math.log(own / sum(way)) for way in ways) / len(ways)
        return total / len(every)

    def passages(self, *, printed: bool) -> float:
        total = 0.0
        for i in range(len(self.pairs.query)):
            own = self.exponential(self.pairs.query[i], self.pairs.positive[i])
            others = sum(self.terms(i, "positive", "positive"))
            total -= math.log(own / (others if printed else own + others))
        return total / len(self.pairs.query)


def expected(name: str, loops: Loops) -> float:
    return {
        "softmax": lambda: loops.loss(),
        "softmax both ways": lambda: loops.loss(symmetric=True),
        "softmax with a margin": lambda: loops.loss(symmetric=True, margin=0.3),
        "samtone query": lambda: loops.loss(symmetric=True, same_tower=("query",)),
        "samtone query one way": lambda: loops.loss(same_tower=("query",)),
        "samtone document": lambda: loops.loss(symmetric=True, same_tower=("positive",)),
        "samtone both": lambda: loops.loss(symmetric=True, margin=0.1, same_tower=("query", "positive")),
        "pair": lambda: 0.9 * loops.loss() + 0.1 * loops.passages(printed=False),
        "pair printed": lambda: 0.7 * loops.loss(symmetric=True) + 0.3 * loops.passages(printed=True),
    }[name]()


# By hand: q = p = the unit axes of a plane, T = 1/2, so s_ii = 2, s_ij = 0, and both other towers' scores are
# 0 too.
E2 = math.exp(2)
BY_HAND = {
    "softmax": math.log((E2 + 1) / E2),
    "softmax both ways": math.log((E2 + 1) / E2),
    "samtone query": (math.log((E2 + 2) / E2) + math.log((E2 + 1) / E2)) / 2,
    "samtone query one way": math.log((E2 + 2) / E2),
    "samtone document": (math.log((E2 + 2) / E2) + math.log((E2 + 1) / E2)) / 2,
    "pair": math.log((E2 + 1) / E2),
    "pair printed": 0.7 * math.log((E2 + 1) / E2) + 0.3 * (0 - 2),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_loss_is_what_one_works_out_by_hand(name: str) -> None:
    loss = LOSSES[name](Pairs(torch.eye(2), torch.eye(2)), temperature=0.5)
    assert loss.item() == pytest.approx(BY_HAND[name], rel=1e-6)


def test_a_margin_makes_the_positive_harder_by_hand() -> None:
    # s'_ii = (1 - 0.5) / 0.5 = 1.
    loss = in_batch_softmax(Pairs(torch.eye(2), torch.eye(2)), temperature=0.5, margin=0.5)
    assert loss.item() == pytest.approx(math.log((math.e + 1) / math.e))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("plain", [True, False])
def test_a_loss_agrees_with_plain_loops(name: str, plain: bool) -> None:
    pairs = batch_for(name)
    if plain:
        pairs = Pairs(pairs.query, pairs.positive, shared=pairs.shared, own=pairs.own)
    assert LOSSES[name](pairs, temperature=0.3).item() == pytest.approx(expected(name, Loops(pairs, 0.3)))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("tile", [1, 2, 3, 100])
def test_tiles_change_neither_value_nor_gradients(name: str, tile: int) -> None:
    results = []
    for size in (None, tile):
        trained, leaves = with_leaves(batch_for(name))
        temperature = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
        loss = LOSSES[name](trained, temperature=temperature, tile=size)
        loss.backward()
        results.append([loss.detach(), *(leaf.grad for leaf in leaves), temperature.grad])
    for whole, tiled in zip(*results, strict=True):
        torch.testing.assert_close(tiled, whole, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("size", "tile"), [(1000, 333), (2048, 1000)])
def test_tiles_agree_on_large_batches_in_float32(size: int, tile: int) -> None:
    results = []
    for choice in (None, tile):
        query, positive = (
            random(size, 16, seed=seed, dtype=torch.float32).requires_grad_() for seed in (1, 2)
        )
        loss = samtone(Pairs(query, positive).unit(), temperature=0.05, side="both", tile=choice)
        loss.backward()
        results.append((loss.detach(), query.grad, positive.grad))
    for whole, tiled in zip(*results, strict=True):
        assert (whole - tiled).norm() <= 1e-5 * whole.norm()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("tile", [None, 2])
def test_gradients_pass_torchs_numerical_check(name: str, tile: int | None) -> None:
    pairs = batch_for(name, 4, 2, 1, 3)

    def loss(query: Tensor, positive: Tensor, shared: Tensor, own: Tensor, temperature: Tensor) -> Tensor:
        changed = replace(pairs, query=query, positive=positive, shared=shared, own=own)
        return LOSSES[name](changed, temperature=temperature, tile=tile)

    _, leaves = with_leaves(pairs)
    # Along a random direction: loops, peers and tiles tell the rest, and every evaluation checks all shapes.
    assert torch.autograd.gradcheck(
        loss, (*leaves, torch.tensor(0.5, dtype=torch.float64, requires_grad=True)), fast_mode=True
    )


PEERS: dict[str, dict[str, object]] = {
    "softmax": {},
    "softmax both ways": {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"},
    "samtone query one way": {"directions": ("query_to_doc", "query_to_query")},
}


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("shared", [0, 4, 8])
def test_value_and_gradient_equal_sentence_transformers(name: str, shared: int) -> None:
    ours, theirs = (
        [random(4, 16, seed=seed).requires_grad_() for seed in range(2 + shared // 4)] for _ in range(2)
    )
    negatives = torch.cat(ours[2:]) if shared else None
    loss = LOSSES[name](Pairs(ours[0], ours[1], shared=negatives).unit(), temperature=1 / 20)
    other = peer.MultipleNegativesRankingLoss(model=nn.Identity(), scale=20.0, **PEERS[name])
    wanted = other.compute_loss_from_embeddings(theirs, torch.empty(0))
    torch.testing.assert_close(loss, wanted, rtol=1e-9, atol=0)
    loss.backward()
    wanted.backward()
    for mine, his in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, his.grad, rtol=1e-8, atol=1e-12)


class Named(nn.Module):
    """Gives embeddings that were prepared, as a peer's model would."""

    def __init__(self) -> None:
        super().__init__()
        self.tokenizer = None

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return features


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("anchors", [False, True])
def test_guided_masking_equals_the_peers(
    relative: bool, anchors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = [random(6, 16, seed=seed).requires_grad_() for seed in range(3)]
    guide = [random(6, 8, seed=seed) for seed in range(3, 6)]
    loss = peer.GISTEmbedLoss.__new__(peer.GISTEmbedLoss)
    nn.Module.__init__(loss)
    loss.model, loss.guide = Named(), Named()
    loss.temperature, loss.margin, loss.margin_strategy = 0.1, 0.05, "relative" if relative else "absolute"
    loss.contrast_anchors, loss.contrast_positives = anchors, False
    loss.gather_across_devices = loss.must_retokenize = False
    loss.similarity_fct, loss.cross_entropy_loss = nn.CosineSimilarity(dim=-1), nn.CrossEntropyLoss()
    embedded = iter([model, guide])
    monkeypatch.setattr(
        "sentence_transformers.sentence_transformer.losses.gist_embed.embed_columns",
        lambda *_: next(embedded),
    )
    wanted = loss([{}, {}, {}], torch.empty(0))
    theirs = torch.autograd.grad(wanted, model)
    unit = [nn.functional.normalize(part, dim=1) for part in guide]
    pairs = Pairs(
        model[0], model[1], shared=model[2], guide=Guide(*unit, margin=0.05, relative=relative)
    ).unit()
    mine = (
        samtone(pairs, temperature=0.1, symmetric=False)
        if anchors
        else in_batch_softmax(pairs, temperature=0.1)
    )
    torch.testing.assert_close(mine, wanted)
    for gradient, other in zip(torch.autograd.grad(mine, model), theirs, strict=True):
        torch.testing.assert_close(gradient, other)


@pytest.mark.parametrize("name", LOSSES)
def test_the_order_of_pairs_and_negatives_does_not_matter(name: str) -> None:
    pairs = batch_for(name)
    order, turned = torch.tensor([3, 0, 4, 1, 2]), torch.tensor([2, 0, 1])
    assert pairs.guide is not None
    guide = replace(
        pairs.guide,
        query=pairs.guide.query[order],
        positive=pairs.guide.positive[order],
        shared=pairs.guide.shared[turned],
        own=pairs.guide.own[order].flip(1),
    )
    other = Pairs(
        pairs.query[order],
        pairs.positive[order],
        shared=pairs.shared[turned],
        own=pairs.own[order].flip(1),
        query_keys=pairs.query_keys[order],
        positive_keys=pairs.positive_keys[order],
        shared_keys=pairs.shared_keys[turned],
        own_keys=pairs.own_keys[order].flip(1),
        known=None if pairs.known is None else pairs.known[order][:, torch.cat([order, 5 + turned])],
        guide=guide,
    )
    torch.testing.assert_close(LOSSES[name](other, temperature=0.2), LOSSES[name](pairs, temperature=0.2))


@pytest.mark.parametrize("name", LOSSES)
def test_under_cosine_lengths_do_not_matter(name: str) -> None:
    pairs = batch_for(name)
    longer = replace(
        pairs, query=7 * pairs.query, positive=pairs.positive / 3, shared=2 * pairs.shared, own=5 * pairs.own
    )
    torch.testing.assert_close(
        LOSSES[name](longer.unit(), temperature=0.2), LOSSES[name](pairs, temperature=0.2)
    )


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("tile", [None, 2])
def test_the_losses_of_two_halves_average_to_that_of_the_whole(name: str, tile: int | None) -> None:
    pairs = batch_for(name, 6)
    parts = [slice(0, 3), slice(3, 6)]
    halves = [
        LOSSES[name](
            replace(pairs, rows=rows, known=None if pairs.known is None else pairs.known[rows]),
            temperature=0.2,
            tile=tile,
        )
        for rows in parts
    ]
    torch.testing.assert_close(sum(halves) / 2, LOSSES[name](pairs, temperature=0.2))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("tile", [None, 2])
def test_pairs_that_are_all_the_same_learn_nothing_from_one_another(name: str, tile: int | None) -> None:
    query, positive = random(4, 6).requires_grad_(), random(4, 6, seed=1).requires_grad_()
    pairs = Pairs(query, positive, query_keys=torch.zeros(4, dtype=torch.int64)).unit()
    loss = LOSSES[name](pairs, temperature=0.1, tile=tile)
    loss.backward()
    assert loss.item() == 0.0
    assert torch.count_nonzero(query.grad) == torch.count_nonzero(positive.grad) == 0


@pytest.mark.parametrize("tile", [None, 2])
def test_small_temperatures_do_not_overflow(tile: int | None) -> None:
    rows = (100 * random(3, 6, dtype=torch.float32)).requires_grad_()
    loss = samtone(Pairs(rows, rows), temperature=1e-3, side="both", tile=tile)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(rows.grad).all()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_temperature_not_above_zero_is_refused(name: str, temperature: float) -> None:
    with one_line(ValueError, "temperature", "above 0", f"got {temperature}"):
        LOSSES[name](batch_for(name), temperature=temperature)


@pytest.mark.parametrize(
    ("loss", "options", "facts"),
    [
        *(
            (in_batch_softmax, {"margin": margin}, ("margin", ">= 0", f"got {margin}"))
            for margin in (-0.1, math.nan, math.inf)
        ),
        *(
            (pair, {"weight": weight}, ("weight", "between 0 and 1", f"got {weight}"))
            for weight in (-0.1, 1.1, math.nan)
        ),
        (samtone, {"side": "both", "symmetric": False}, ('side must be "query"', "symmetric", 'got "both"')),
        (in_batch_softmax, {"tile": 0}, ("tile", "at least 1 row", "got 0")),
    ],
)
def test_an_impossible_option_is_refused(loss: Loss, options: dict[str, Any], facts: Facts) -> None:
    with one_line(ValueError, *facts):
        loss(batch_for("pair"), temperature=0.1, **options)


@pytest.mark.parametrize("tile", [None, 2])
def test_an_outer_autocast_changes_nothing(tile: int | None) -> None:
    found = []
    for enabled in (False, True):
        sides = [random(6, 16, seed=seed, dtype=torch.float32).requires_grad_() for seed in (1, 2)]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            loss = samtone(Pairs(*sides), temperature=0.05, side="both", tile=tile)
        loss.backward()
        found.append((loss.detach(), *(side.grad for side in sides)))
    for plain, cast in zip(*found, strict=True):
        assert torch.equal(plain, cast)


ALPHA = 3.0


@pytest.mark.parametrize("tile", [None, 2])
@pytest.mark.parametrize("learned", [False, True])
def test_weights_of_hardness_are_constants_that_grow_with_similarity(tile: int | None, learned: bool) -> None:
    """Two queries: by hand, each other positive counts ``exp(a s)`` times, and its weight has no gradient."""
    query = random(2, 4, seed=1).requires_grad_()
    positive = random(2, 4, seed=2).requires_grad_()
    own = random(2, 1, 4, seed=3).requires_grad_()
    temperature: Any = torch.tensor(0.5, dtype=torch.float64, requires_grad=True) if learned else 0.5
    inputs = [query, positive, own, *([temperature] if learned else [])]
    pairs = Pairs(query, positive, own=own)
    loss = in_batch_softmax(pairs, temperature=temperature, hardness=ALPHA, tile=tile)
    wanted = torch.zeros((), dtype=torch.float64)
    for row in range(2):
        target = query[row] @ positive[row]
        others = [query[row] @ positive[1 - row], query[row] @ own[row, 0]]
        weights = [math.exp(ALPHA * float(other.detach())) for other in others]
        mass = sum(
            weight * torch.exp(other / temperature) for weight, other in zip(weights, others, strict=True)
        )
        wanted = wanted - (target / temperature - torch.log(torch.exp(target / temperature) + mass)) / 2
    torch.testing.assert_close(loss, wanted, rtol=1e-12, atol=0)
    gradients, expected = torch.autograd.grad(loss, inputs), torch.autograd.grad(wanted, inputs)
    for mine, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("negatives", [0, 4])
def test_hardness_equals_that_of_sentence_transformers(negatives: int) -> None:
    ours, theirs = (
        [random(4, 16, seed=seed).requires_grad_() for seed in range(2 + negatives // 4)] for _ in range(2)
    )
    shared = torch.cat(ours[2:]) if negatives else None
    pairs = Pairs(ours[0], ours[1], shared=shared).unit()
    loss = in_batch_softmax(pairs, temperature=1 / 20, hardness=9.0)
    other = peer.MultipleNegativesRankingLoss(
        model=nn.Identity(), scale=20.0, hardness_mode="in_batch_negatives", hardness_strength=9.0
    )
    if negatives:
        # Theirs leaves out the negative that stands beside a query's own positive; ours shares them all.
        other.hardness_mode = "all_negatives"
    wanted = other.compute_loss_from_embeddings(theirs, torch.empty(0))
    torch.testing.assert_close(loss, wanted, rtol=1e-9, atol=0)
    loss.backward()
    wanted.backward()
    for mine, his in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, his.grad, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("hardness", [-1.0, math.nan, math.inf])
def test_a_hardness_out_of_range_is_refused(hardness: float) -> None:
    with pytest.raises(ValueError, match="hardness must be a finite number >= 0"):
        in_batch_softmax(Pairs(random(2, 4, seed=1), random(2, 4, seed=2)), temperature=1, hardness=hardness)
