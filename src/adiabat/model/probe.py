"""One short pass of a tower that was just loaded: whether its backbone embeds texts at all, and whatever they are padded with."""

import itertools
from pathlib import Path

import torch

from adiabat.errors import ModelError
from adiabat.model.backbone import reason
from adiabat.model.encoder import Encoder
from adiabat.model.vocabulary import table_rows

FIRST = 5
"""The first token of the texts, behind those that families may treat apart."""

LONG = 8
"""Tokens of the longer text; the shorter one has one token, and is padded to as many."""

TOLERANCE = 1e-3
"""Most that a number of a unit vector may differ. Rounding makes 1e-6; models that mix padding in (FNet, ConvBERT) 0.1 and more."""


@torch.no_grad()
def require_embeddings(encoder: Encoder, folder: Path) -> None:
    """Refuse a tower that cannot embed texts, or not in batches."""
    family = getattr(encoder.backbone.config, "model_type", None) or type(encoder.backbone).__name__
    wanted = f"{folder} must hold a model that turns token ids into token states, got one of type {family}"
    rows = table_rows(encoder.backbone)
    usable = (number for number in itertools.count(FIRST) if number != encoder.pad_token_id)
    long = [number if rows is None else number % rows for number in itertools.islice(usable, LONG)]
    try:
        width, alone = encoder.width, encoder(encoder.collate([long[:1]], side="document"))
        padded = encoder(encoder.collate([long[:1], long], side="document"))
    except Exception as fault:
        # Models of images, sounds and pairs of texts fail in any way.
        raise ModelError(f"{wanted} ({reason(fault)}); choose another model") from fault
    if alone.shape[1] != width:
        raise ModelError(f"{wanted}, whose vectors have {alone.shape[1]} numbers where its config.json says {width}; choose another model")
    one, other = torch.nn.functional.normalize(torch.cat([alone, padded[:1]]), dim=-1)
    # NaN passes: later checks of the weights name the tensor that holds it.
    if bool((one - other).abs().max() > TOLERANCE):
        raise ModelError(
            f"{folder} must give a text the same vector in every batch, got a model of type {family}, whose vectors change with padding; "
            "choose another model"
        )
