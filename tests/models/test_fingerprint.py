"""What makes encoders interchangeable, and how a difference is told."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from adiabat.core.errors import StoreError
from adiabat.core.formats import rebuilt
from adiabat.data.records import Fingerprint
from adiabat.models.embedding_head import EncoderSettings, Projection
from adiabat.models.encoder import Encoder
from adiabat.models.towers import DualEncoder
from tests.refused import one_line
from tests.tiny import tiny_encoder

SETTINGS = EncoderSettings(max_tokens=64)
PRINT = Fingerprint("bert", "a" * 64, "b" * 64, "mean", True, "passage: ", 512, 384)


def changed_weight(encoder: Encoder) -> Encoder:
    with torch.no_grad():
        next(iter(encoder.used_parameters().values())).view(-1)[3] += 1e-4
    return encoder


def with_projection(
    encoder: Encoder, *, activation: nn.Module | None = None, residual: bool = False
) -> Encoder:
    """The same linear layer under another function, or with a residual that has no weight to be known by."""
    projection = encoder.projections[0]
    assert isinstance(projection, Projection)
    changed = Projection(
        projection.linear, activation or projection.activation, nn.Identity() if residual else None
    )
    return Encoder(encoder.backbone, encoder.tokenizer, encoder.settings, [changed])


def other_tokenizer(encoder: Encoder) -> Encoder:
    encoder.tokenizer.add_tokens(["river"])
    return encoder


def set_to(changes: dict[str, Any]) -> Callable[[Encoder], Encoder]:
    return lambda encoder: encoder.with_settings(replace(encoder.settings, **changes))


def test_encoding_does_not_change_the_fingerprint() -> None:
    # Truncation and padding are state of the tokenizer's backend; they must not leak into the definition.
    encoder = tiny_encoder()
    before = encoder.fingerprint()
    encoder.encode(["a text that is long enough to be cut " * 9, "b"], side="query")
    assert encoder.fingerprint() == before
    encoder.tokenizer(["a", "bb"], padding=True)
    assert encoder.fingerprint() == before


def test_the_side_on_which_long_texts_are_cut_counts_and_the_side_of_padding_does_not() -> None:
    encoder = tiny_encoder(settings=EncoderSettings(max_tokens=8))
    text = "a text that is long enough to be cut on either side"
    before, vector = encoder.fingerprint(), encoder.encode([text], side="query", precision="fp32")
    encoder.tokenizer.padding_side = "left"
    assert encoder.fingerprint() == before
    np.testing.assert_array_equal(encoder.encode([text, "b"], side="query", precision="fp32")[:1], vector)
    encoder.tokenizer.truncation_side = "left"
    (phrase,) = before.differences(encoder.fingerprint())
    assert phrase.startswith("tokenizer ")
    assert np.abs(encoder.encode([text], side="query", precision="fp32") - vector).max() > 1e-3


CHANGES: dict[str, tuple[Callable[[Encoder], Encoder], str]] = {
    "weight": (changed_weight, "weights"),
    "activation": (partial(with_projection, activation=nn.ReLU()), "weights"),
    "residual": (partial(with_projection, residual=True), "weights"),
    "tokenizer": (other_tokenizer, "tokenizer"),
    "pooling": (set_to({"pooling": "cls"}), "pooling"),
    "unpooled prompt": (set_to({"pool_prompt": False}), "pooling"),
    "normalize": (set_to({"normalize": False}), "normalize"),
    "prompt": (set_to({"document_prompt": "passage: "}), "prompt"),
    "max_tokens": (set_to({"max_tokens": 32}), "max_tokens"),
    "side limit": (set_to({"document_max_tokens": 32}), "max_tokens"),
    "truncated": (set_to({"truncate_dim": 5}), "width"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_is_named_alone(name: str) -> None:
    change, part = CHANGES[name]
    before = tiny_encoder(settings=SETTINGS, projection=8).fingerprint()
    after = change(tiny_encoder(settings=SETTINGS, projection=8)).fingerprint()
    (phrase,) = before.differences(after)
    assert phrase.startswith(f"{part} ")


def test_the_query_prompt_counts_for_queries_alone() -> None:
    plain, prompted = (
        tiny_encoder(settings=replace(SETTINGS, query_prompt=prompt)) for prompt in ("", "query: ")
    )
    assert prompted.fingerprint("document") == plain.fingerprint("document")
    assert plain.fingerprint("query").differences(prompted.fingerprint("query")) == [
        'prompt "" in the store, "query: " in the encoder'
    ]


def test_both_sides_have_fingerprints_and_shared_weights_are_hashed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoder = tiny_encoder(
        settings=replace(SETTINGS, query_prompt="query: ", document_prompt="passage: ", query_max_tokens=8)
    )
    shared, apart = DualEncoder(encoder, encoder), DualEncoder(encoder, tiny_encoder())
    for model in (shared, apart):
        assert model.fingerprints() == (model.fingerprint("query"), model.fingerprint("document"))
    digest, hashed = Encoder.weights_digest, list[Encoder]()
    monkeypatch.setattr(Encoder, "weights_digest", lambda self: hashed.append(self) or digest(self))
    shared.fingerprints()
    assert hashed == [encoder]


def test_differences_show_both_values_and_cut_hashes() -> None:
    other = replace(PRINT, weights="c" * 64, prompt="", max_tokens=256, normalize=False)
    assert PRINT.differences(other) == [
        'weights "aaaaaaaaaaaa..." in the store, "cccccccccccc..." in the encoder',
        "normalize True in the store, False in the encoder",
        'prompt "passage: " in the store, "" in the encoder',
        "max_tokens 512 in the store, 256 in the encoder",
    ]


@pytest.mark.parametrize(("part", "value"), [("prompt", None), ("colour", "red")], ids=["missing", "unknown"])
def test_a_record_with_other_parts_is_refused(part: str, value: str | None, tmp_path: Path) -> None:
    record = {**PRINT.to_json(), part: value}
    if value is None:
        del record[part]
    with one_line(StoreError, "manifest.json", "expects other content", part, "rebuild the store"):
        rebuilt(Fingerprint, record, tmp_path / "manifest.json", remedy="rebuild the store", error=StoreError)


def test_a_model_in_half_precision_has_the_digest_of_its_rounded_weights() -> None:
    encoder = tiny_encoder()
    half = tiny_encoder()
    half.backbone.bfloat16()
    rounded = tiny_encoder()
    with torch.no_grad():
        for weights in rounded.parameters():
            weights.copy_(weights.bfloat16())
    assert half.weights_digest() == rounded.weights_digest() != encoder.weights_digest()
