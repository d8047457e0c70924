"""The pair of towers: shared, asymmetric, or under one projection; how they are built, and what gradients
do.
"""

import copy
from collections.abc import Iterable
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from adiabat.core.errors import AdiabatError, ConfigError, ModelError
from adiabat.data.records import Side
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.models.towers import DualEncoder, TowerKind, build_towers, freeze_tower, trainable_copy
from tests.refused import Facts, one_line
from tests.tiny import Kind, tiny_dual, tiny_encoder

TEXTS = ["Where does the river rise?", "река", "a"]
DOCUMENTS = ["It rises in the hills.", "в горах", "b"]
SIDES: tuple[Side, Side] = ("query", "document")
FAMILIES: tuple[Kind, ...] = ("bert", "t5", "llama")
TOWERS: tuple[TowerKind, ...] = get_args(TowerKind)


def vectors(encoder: Encoder, side: Side = "query") -> np.ndarray:
    return encoder.encode(TEXTS, side=side, precision="fp32")


def built(
    kind: TowerKind, start: DualEncoder | None = None, *, width: int | None = 8, seed: int = 0
) -> DualEncoder:
    return build_towers(start or tiny_dual(), kind=kind, projection_width=width, seed=seed)


def ids(weights: Iterable[Tensor]) -> set[int]:
    return {id(one) for one in weights}


def loss_of(model: DualEncoder) -> Tensor:
    """In-batch softmax over both towers."""
    query, document = (
        tower(tower.collate(tower.tokenize(texts, side=side), side=side))
        for tower, texts, side in zip((model.query, model.document), (TEXTS, DOCUMENTS), SIDES, strict=True)
    )
    return nn.functional.cross_entropy(query @ document.T / 0.2, torch.arange(len(TEXTS)))


def backward(model: DualEncoder) -> None:
    loss_of(model).backward()  # type: ignore[no-untyped-call]


def gradient(projection: nn.Module) -> Tensor:
    found = projection.get_parameter("linear.weight").grad
    assert found is not None
    return found


def shifted(encoder: Encoder, amount: float) -> None:
    with torch.no_grad():
        for weights in encoder.parameters():
            weights.add_(amount)


# What is shared and what is not.


@pytest.mark.parametrize("width", [None, 8])
def test_asymmetric_towers_have_no_weights_in_common_and_start_equal(width: int | None) -> None:
    model = built("asymmetric", tiny_dual(projection=20), width=width)
    assert not ids(model.query.parameters()) & ids(model.document.parameters())
    assert model.query.weights_digest() == model.document.weights_digest()
    np.testing.assert_array_equal(vectors(model.query), vectors(model.document))
    assert model.width == (width or 20)


@pytest.mark.parametrize("width", [None, 8])
def test_a_shared_projection_is_all_that_its_towers_have_in_common(width: int | None) -> None:
    model = built("shared_projection", width=width)
    common = ids(model.query.parameters()) & ids(model.document.parameters())
    assert model.query.projections[-1] is model.document.projections[-1]
    assert common == ids(model.query.projections[-1].parameters())
    assert not model.shared
    assert model.width == (width or 32)


def test_a_new_projection_stands_on_those_that_the_start_has_by_hand() -> None:
    start = tiny_dual(projection=20)
    model = built("asymmetric", start, width=3, seed=5)
    weights = model.query.projections[-1].get_parameter("linear.weight").detach().numpy()
    plain = start.query.with_settings(copy.copy(start.query.settings))
    pooled = plain.encode(TEXTS, side="query", precision="fp32")
    # The start's vectors have unit length already, which a linear map without bias passes over but for the
    # length.
    projected = np.array(
        [[sum(row[e] * vector[e] for e in range(20)) for row in weights] for vector in pooled]
    )
    np.testing.assert_allclose(
        vectors(model.query), projected / np.linalg.norm(projected, axis=1, keepdims=True), atol=1e-6
    )


def test_the_seed_decides_new_projections_and_nothing_else() -> None:
    one, same, other = (built("shared_projection", seed=seed).fingerprint() for seed in (0, 0, 1))
    assert one == same != other
    plain, again = (built("asymmetric", width=None, seed=seed).fingerprint() for seed in (0, 1))
    assert plain == again


def test_a_projection_that_both_towers_end_in_is_kept_as_the_shared_one() -> None:
    start = built("shared_projection", tiny_dual(shared=False))
    again = built("shared_projection", start, width=None, seed=1)
    assert len(again.query.projections) == len(again.document.projections) == 1
    assert again.query.projections[-1] is again.document.projections[-1] is not start.query.projections[-1]
    assert again.fingerprints() == start.fingerprints()
    assert len(built("shared_projection", start, seed=1).query.projections) == 2
    assert built("shared_projection", tiny_dual(projection=8), width=None).width == 8


def test_a_document_side_of_another_family_starts_from_its_own_model() -> None:
    start, other = tiny_dual("bert", width=32), tiny_dual("t5", width=16, shared=False)
    model = build_towers(start, kind="asymmetric", projection_width=8, document_start=other, seed=0)
    assert [tower.backbone.config.model_type for tower in (model.query, model.document)] == ["bert", "t5"]
    assert model.document.tokenizer is other.document.tokenizer
    assert model.width == 8
    plain = build_towers(start, kind="asymmetric", document_start=tiny_dual("llama", seed=3), seed=0)
    np.testing.assert_array_equal(
        vectors(plain.document, "document"), vectors(tiny_encoder("llama", seed=3), "document")
    )


# What cannot be built.


TWO_STARTS = "start from different towers"
BAD: dict[str, tuple[type[AdiabatError], dict[str, Any], Facts]] = {
    "two towers as one": (
        ModelError,
        {"start": tiny_dual(shared=False), "kind": "shared"},
        ("towers.kind", "asymmetric or shared_projection", TWO_STARTS, "got shared; choose"),
    ),
    "a second start for one tower": (
        ModelError,
        {"kind": "shared", "document_start": tiny_dual(seed=4)},
        (TWO_STARTS, "got shared"),
    ),
    "one projection over two widths": (
        ModelError,
        {"kind": "shared_projection", "projection_width": 8, "document_start": tiny_dual(width=16)},
        ("got shared_projection over 32 and 16", "choose asymmetric", "towers.projection_width"),
    ),
    "two widths": (
        ModelError,
        {"kind": "asymmetric", "document_start": tiny_dual(width=16)},
        ("tiny: ", "one width", "got 32 and 16", "towers.projection_width"),
    ),
    "a layer on what is truncated": (
        ConfigError,
        {
            "start": tiny_dual(settings=EncoderSettings(truncate_dim=5)),
            "kind": "shared",
            "projection_width": 8,
        },
        ("towers.projection_width must be left out", "truncate_dim"),
    ),
    "no width": (
        ConfigError,
        {"kind": "shared", "projection_width": 0},
        ("towers.projection_width", "> 0", "got 0"),
    ),
}


@pytest.mark.parametrize(("error", "arguments", "facts"), BAD.values(), ids=BAD)
def test_what_cannot_be_built_is_told(
    error: type[AdiabatError], arguments: dict[str, Any], facts: Facts
) -> None:
    with one_line(error, *facts):
        build_towers(**{"start": tiny_dual(), "seed": 0, **arguments})


# What training does.


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_of_both_sides_add_up_in_a_shared_projection(family: Kind) -> None:
    joined = built("shared_projection", tiny_dual(family, shared=False))
    apart = DualEncoder(joined.query, trainable_copy(joined.document))
    backward(apart)
    parts = [gradient(tower.projections[-1]).clone() for tower in (apart.query, apart.document)]
    joined.query.zero_grad()
    backward(joined)
    assert min(part.abs().max() for part in parts) > 1e-3
    found = gradient(joined.query.projections[-1])
    torch.testing.assert_close(found, parts[0] + parts[1], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("kind", TOWERS)
def test_training_leaves_the_start_untouched(kind: TowerKind) -> None:
    start = tiny_dual(projection=20)
    start.query.backbone.requires_grad_(False)
    before = start.fingerprint()
    model = built(kind, start)
    for tower in (model.query, model.document):
        tower.train()
        shifted(tower, 0.1)
    assert start.fingerprint() == before
    assert not start.query.training
    assert len(start.query.projections) == 1
    assert not any(weights.requires_grad for weights in start.query.backbone.parameters())


@pytest.mark.parametrize("kind", TOWERS)
def test_all_that_an_embedding_depends_on_is_trainable_and_nothing_else(kind: TowerKind) -> None:
    model = built(kind)
    for tower in (model.query, model.document):
        assert not tower.training
        used = ids(tower.used_parameters().values())
        assert ids(weights for weights in tower.parameters() if weights.requires_grad) == used
        # BERT has a pooler head.
        assert len(used) < len(list(tower.parameters()))


def test_a_frozen_tower_freezes_the_projection_that_it_shares() -> None:
    model = built("shared_projection", tiny_dual(shared=False))
    before = model.fingerprint("document")
    freeze_tower(model.document)
    trained = [weights for weights in model.query.parameters() if weights.requires_grad]
    torch.optim.SGD(trained, lr=0.1).zero_grad()
    backward(model)
    torch.optim.SGD(trained, lr=0.1).step()
    assert model.fingerprint("document") == before


def test_equal_projections_of_two_towers_are_not_mistaken_for_one() -> None:
    start = built("asymmetric")
    assert len(built("shared_projection", start, width=None).query.projections) == 2


RIVERS = ["river", "Where does the river rise?", "гора"]


def test_each_side_goes_through_its_own_tower() -> None:
    model = tiny_dual(shared=False)
    assert model.tower("query") is model.query
    assert model.tower("document") is model.document
    queries, documents = (model.encode(RIVERS, side=side, precision="fp32") for side in ("query", "document"))
    np.testing.assert_array_equal(queries, model.query.encode(RIVERS, side="query", precision="fp32"))
    np.testing.assert_array_equal(documents, model.document.encode(RIVERS, side="document", precision="fp32"))
    assert np.abs(queries - documents).max() > 0.01


def test_parameters_that_towers_share_count_once() -> None:
    one = tiny_dual()
    assert one.parameters == sum(weight.numel() for weight in one.query.parameters())
    assert tiny_dual(shared=False).parameters == 2 * one.parameters


@pytest.mark.parametrize("shared", [True, False])
def test_both_towers_move(shared: bool) -> None:
    model = tiny_dual(shared=shared)
    assert model.to("meta") is model
    assert (model.query.device, model.document.device) == (torch.device("meta"), torch.device("meta"))
