"""The pair of towers."""

import numpy as np
import pytest
import torch

from adiabat.core.errors import ModelError
from adiabat.models.bulk import Progress
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.towers import DualEncoder
from tests.tiny import tiny_dual, tiny_encoder

TEXTS = ["river", "Where does the river rise?", "гора"]


def test_one_encoder_on_both_sides_is_shared() -> None:
    assert tiny_dual().shared
    assert not tiny_dual(shared=False).shared


def test_equal_weights_in_two_objects_are_not_shared() -> None:
    assert not DualEncoder(tiny_encoder(), tiny_encoder()).shared


def test_each_side_goes_through_its_own_tower() -> None:
    model = tiny_dual(shared=False)
    assert model.tower("query") is model.query
    assert model.tower("document") is model.document
    queries, documents = (model.encode(TEXTS, side=side, precision="fp32") for side in ("query", "document"))
    np.testing.assert_array_equal(queries, model.query.encode(TEXTS, side="query", precision="fp32"))
    np.testing.assert_array_equal(documents, model.document.encode(TEXTS, side="document", precision="fp32"))
    assert np.abs(queries - documents).max() > 0.01


def test_shared_towers_still_tell_the_prompts_apart() -> None:
    model = tiny_dual(settings=EncoderSettings(max_tokens=64, query_prompt="query: "))
    plain = tiny_dual(settings=EncoderSettings(max_tokens=64))
    np.testing.assert_array_equal(
        model.encode(TEXTS, side="document", precision="fp32"), plain.encode(TEXTS, side="document", precision="fp32")
    )
    assert np.abs(model.encode(TEXTS, side="query", precision="fp32") - plain.encode(TEXTS, side="query", precision="fp32")).max() > 1e-3


def test_towers_of_different_width_are_refused() -> None:
    with pytest.raises(ModelError, match="pair: both towers must have one width, got 16 and 32"):
        DualEncoder(tiny_encoder(width=16), tiny_encoder(width=32), "pair")


def test_a_projection_makes_widths_equal() -> None:
    assert DualEncoder(tiny_encoder(width=16, projection=8), tiny_encoder(width=32, projection=8)).width == 8


def test_parameters_that_towers_share_count_once() -> None:
    one = tiny_dual()
    assert one.parameters == sum(weight.numel() for weight in one.query.parameters())
    assert tiny_dual(shared=False).parameters == 2 * one.parameters


def test_fingerprints_follow_the_side() -> None:
    model = tiny_dual(shared=False)
    assert model.fingerprint() == model.document.fingerprint("document")
    assert model.fingerprint("query") == model.query.fingerprint("query")
    assert model.fingerprint("query") != model.fingerprint("document")


def test_progress_is_passed_on() -> None:
    seen: list[Progress] = []
    tiny_dual().encode(TEXTS, side="query", precision="fp32", on_progress=seen.append)
    assert seen[-1].done == len(TEXTS)


@pytest.mark.parametrize("shared", [True, False])
def test_both_towers_move(shared: bool) -> None:
    model = tiny_dual(shared=shared)
    assert model.to("meta") is model
    assert (model.query.device, model.document.device) == (torch.device("meta"), torch.device("meta"))
