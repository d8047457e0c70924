"""Texts of which a static model knows no token: their vector is zero, and says nothing of what they are near to."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool

from adiabat.data.records import Side
from adiabat.models.encoder import Encoder
from adiabat.models.static import StaticBackbone

HEAD = 64
"""Letters that are looked at first: tokens are most of what a static model takes time for, and nearly every text begins with known ones."""


def tokens_with_weight(encoder: Encoder) -> Bool[np.ndarray, " v"] | None:
    """Which tokens a static model gives weight to.

    Returns:
        True for each token whose row is not zero; None for a transformer, which knows every text.
    """
    if not isinstance(encoder.backbone, StaticBackbone):
        return None
    # The row of padding, of which a text without tokens consists, is zero too.
    return np.asarray(encoder.backbone.token_embeddings.weight.detach().any(dim=1).cpu())


def wordless(
    encoder: Encoder, texts: Sequence[str], *, side: Side, with_weight: Bool[np.ndarray, " v"] | None = None
) -> Bool[np.ndarray, " n"]:
    """Which texts have no token that a static model gives weight to.

    Args:
        with_weight: From `tokens_with_weight`, for a caller with many blocks of texts: it reads the whole table. None reads it here.
    """
    weighs = tokens_with_weight(encoder) if with_weight is None else with_weight
    if weighs is None:
        return np.zeros(len(texts), dtype=np.bool_)
    unknown = np.ones(len(texts), dtype=np.bool_)
    whole = encoder.tokenizer.truncation_side == "left"
    for part in ([] if whole else [[_head(text) for text in texts]]) + [texts]:
        rows = np.flatnonzero(unknown).tolist()
        found = encoder.tokenize([part[row] for row in rows], side=side)
        unknown[rows] = [not weighs[ids].any() for ids in found]
    return unknown


def _head(text: str) -> str:
    """The first whole words, whose tokens are the text's own first ones."""
    return text if len(text) <= HEAD else text[:HEAD].rpartition(" ")[0]
