"""Each setting means the loss that it says; several widths, guides and similarities against plain loops and
peers.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from sentence_transformers.sentence_transformer import losses as peer
from torch import Tensor, nn

from adiabat.dual_encoder.contrastive_objective import criterion_of
from adiabat.losses.embedded_pairs import Guide, Pairs
from adiabat.losses.in_batch import in_batch_softmax, pair, samtone, triplet_margin
from tests.dual_encoder.problem import section

PAIRS, SHARED, OWN, WIDTH = 6, 4, 2, 8
T = 0.2


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def batch(*, shared: bool = True, own: bool = True, keyed: bool = True) -> Pairs:
    """Vectors of unequal lengths; the last pair asks what the first one asks."""
    keys: dict[str, Any] = {
        "query_keys": torch.tensor([0, 1, 2, 3, 4, 0]),
        "positive_keys": torch.tensor([10, 11, 12, 11, 14, 15]),
        "shared_keys": torch.tensor([20, 12, 21, 22]) if shared else None,
        "own_keys": 30 + torch.arange(PAIRS * OWN).view(PAIRS, OWN) if own else None,
    }
    return Pairs(
        random(PAIRS, WIDTH, seed=1),
        random(PAIRS, WIDTH, seed=2) + 0.5 * random(PAIRS, WIDTH, seed=1),
        shared=random(SHARED, WIDTH, seed=3) if shared else None,
        own=random(PAIRS, OWN, WIDTH, seed=4) if own else None,
        **(keys if keyed else {}),
    )


def loss_of(pairs: Pairs, *, tile: int | None = None, temperature: float = T, **settings: Any) -> float:
    return float(criterion_of(section(**settings), tile=tile)(pairs, temperature))


OF_DOCUMENTS = {"kind": "samtone", "same_tower": "document"}
BOTH = {"kind": "samtone", "same_tower": "both", "margin": 0.1}
WHOLE_PAIR = {"kind": "pair", "weight": 0.4, "printed": True, "symmetric": False, "margin": 0.2}
IN_BATCH: dict[str, tuple[dict[str, Any], Callable[..., Tensor], dict[str, Any]]] = {
    "the default": ({}, in_batch_softmax, {"symmetric": True}),
    "one way": ({"loss": {"symmetric": False}}, in_batch_softmax, {"symmetric": False}),
    "a margin": ({"margin": 0.3}, in_batch_softmax, {"symmetric": True, "margin": 0.3}),
    "hard negatives weigh more": ({"hardness": 2.0}, in_batch_softmax, {"symmetric": True, "hardness": 2.0}),
    "samtone": ({"loss": "samtone"}, samtone, {"side": "query"}),
    "samtone of documents": ({"loss": OF_DOCUMENTS}, samtone, {"side": "document"}),
    "samtone of both": ({"loss": BOTH}, samtone, {"side": "both", "margin": 0.1}),
    "samtone one way": ({"loss": {"kind": "samtone", "symmetric": False}}, samtone, {"symmetric": False}),
    "pair": ({"loss": "pair"}, pair, {"symmetric": True, "weight": 0.1}),
    "pair with everything": (
        {"loss": WHOLE_PAIR},
        pair,
        {name: value for name, value in WHOLE_PAIR.items() if name != "kind"},
    ),
}


@pytest.mark.parametrize("name", IN_BATCH)
@pytest.mark.parametrize("tile", [None, 2])
def test_a_setting_is_the_loss_that_it_says(name: str, tile: int | None) -> None:
    settings, loss, options = IN_BATCH[name]
    expected = float(loss(batch().unit(), temperature=T, **options))
    assert loss_of(batch(), tile=tile, **settings) == pytest.approx(expected, rel=1e-12)
    assert loss_of(batch(), tile=tile, temperature=0.7, **settings) != pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_triplets_are_those_of_this_process_with_a_margin_of_a_tenth_by_default(
    distance: Any,
) -> None:
    pairs = replace(batch(shared=False), rows=slice(2, 5))
    assert pairs.own is not None
    near = (pairs.query[2:5], pairs.positive[2:5], pairs.own[2:5])
    for margin in (None, 0.0, 0.4):
        given: dict[str, Any] = {} if margin is None else {"margin": margin}
        expected = float(triplet_margin(*near, margin=0.1 if margin is None else margin, distance=distance))
        found = loss_of(pairs, loss="triplet", distance=distance, **given)
        assert found == pytest.approx(expected, rel=1e-12)


# --- Similarity ---


def test_the_cosine_takes_no_notice_of_lengths_and_the_product_does() -> None:
    longer = replace(batch(), query=3 * batch().query)
    assert loss_of(longer) == pytest.approx(loss_of(batch()), rel=1e-12)
    plain = float(in_batch_softmax(batch(), temperature=T, symmetric=True))
    assert loss_of(batch(), similarity="dot") == pytest.approx(plain, rel=1e-12)
    assert loss_of(longer, similarity="dot") != pytest.approx(loss_of(batch(), similarity="dot"), rel=1e-3)
    assert loss_of(batch().unit(), similarity="dot") == pytest.approx(loss_of(batch()), rel=1e-12)


# --- Several widths ---


MANY = [
    {},
    {"similarity": "dot"},
    {"loss": {"kind": "samtone", "same_tower": "both"}},
    {"loss": "pair"},
    {"loss": "triplet"},
]


@pytest.mark.parametrize("settings", [*MANY, {"loss": {"guide": "self"}}], ids=str)
def test_the_loss_over_widths_is_the_mean_over_first_numbers_and_the_whole(
    settings: dict[str, Any],
) -> None:
    pairs, losses = batch(), []
    for width in (2, 5, WIDTH):
        parts = {name: getattr(pairs, name)[..., :width] for name in ("query", "positive", "shared", "own")}
        losses.append(loss_of(replace(pairs, **parts), **settings))
    found = loss_of(pairs, matryoshka=(5, 2), **settings)
    assert found == pytest.approx(sum(losses) / 3, rel=1e-12)
    assert loss_of(pairs, matryoshka=(2, 5, WIDTH, 2), **settings) == pytest.approx(found, rel=1e-12)


class Given(nn.Module):
    """Stands for a sentence-transformers model: gives embeddings that are there already."""

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": features["vectors"], "attention_mask": torch.ones(1)}

    def get_embedding_dimension(self) -> int:
        return WIDTH


def test_the_loss_over_widths_equals_that_of_sentence_transformers_but_for_their_sum() -> None:
    pairs = batch(shared=False, own=False, keyed=False)
    model: Any = Given()
    inner = peer.MultipleNegativesRankingLoss(model, scale=1 / T)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loss = peer.MatryoshkaLoss(model, inner, [WIDTH, 5, 2])
    theirs = loss([{"vectors": pairs.query}, {"vectors": pairs.positive}], torch.empty(0))
    ours = loss_of(pairs, symmetric=False, matryoshka=(2, 5))
    assert 3 * ours == pytest.approx(float(theirs), rel=1e-6)


# --- Guides ---


def test_a_model_that_is_its_own_guide_takes_out_what_it_finds_as_good_as_the_positive() -> None:
    """By hand in two dimensions: a, b and c are the positives of the three queries."""
    query = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    positive = torch.tensor([[0.8, 0.6], [0.96, 0.28], [0.0, 1.0]], dtype=torch.float64)
    pairs = Pairs(3 * query, 2 * positive)
    # Cosines with a, b and c. First query: 0.8, 0.96, 0, so that b is out. Second: 0.6, 0.28, 1, so that a
    # and c are out. Third: -0.8,
    # -0.96, 0, so that nothing is.
    first = math.log(math.exp(0.8 / T) + math.exp(0.0)) - 0.8 / T
    third = math.log(math.exp(-0.8 / T) + math.exp(-0.96 / T) + math.exp(0.0))
    assert loss_of(pairs, symmetric=False, guide="self") == pytest.approx((first + third) / 3, rel=1e-9)
    # 0.85 below its positive, the first query and the second keep nothing, and the third b alone.
    third = math.log(math.exp(-0.96 / T) + math.exp(0.0))
    found = loss_of(pairs, symmetric=False, guide={"model": "self", "margin": 0.85})
    assert found == pytest.approx(third / 3, rel=1e-9)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize(("margin", "relative"), [(0.0, False), (0.2, False), (0.2, True)])
def test_its_own_opinion_follows_the_similarity(similarity: str, margin: float, relative: bool) -> None:
    pairs = batch().unit() if similarity == "cosine" else batch()
    parts = pairs.query, pairs.positive, pairs.shared, pairs.own
    judged = replace(pairs, guide=Guide(*parts, margin=margin, relative=relative))
    expected = float(in_batch_softmax(judged, temperature=T, symmetric=True))
    guide = {"model": "self", "margin": margin, "relative": relative}
    assert loss_of(batch(), guide=guide, similarity=similarity) == pytest.approx(expected, rel=1e-12)


def test_a_guide_that_comes_with_the_pairs_is_heeded_as_it_is() -> None:
    query, positive, shared = (
        random(count, 3, seed=seed) for count, seed in ((PAIRS, 5), (PAIRS, 6), (SHARED, 7))
    )
    opinion = Guide(query, positive, shared, random(PAIRS, OWN, 3, seed=8), margin=0.1)
    judged = replace(batch(), guide=opinion)
    expected = float(in_batch_softmax(judged.unit(), temperature=T, symmetric=True))
    assert loss_of(judged, guide={"model": "other", "margin": 0.1}) == pytest.approx(expected, rel=1e-12)
    assert expected != pytest.approx(loss_of(batch()), rel=1e-6)
