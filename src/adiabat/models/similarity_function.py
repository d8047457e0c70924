"""What query and document vectors are compared by, and how models state it."""

from collections.abc import Mapping
from typing import Any, Literal

from adiabat.core.errors import ModelError

Similarity = Literal["cosine", "distance", "dot"]
"""``distance`` scores by minus the Euclidean distance, so that more is closer throughout."""

SimilarityName = Literal["cosine", "dot", "euclidean"]
"""As in sentence-transformers, and in our settings."""

STATED: Mapping[str, Similarity] = {"cosine": "cosine", "dot": "dot", "euclidean": "distance"}
NAMES: Mapping[Similarity, SimilarityName] = {"cosine": "cosine", "dot": "dot", "distance": "euclidean"}


def similarity_stated(root: Mapping[str, Any], *, name: str) -> Similarity:
    """The similarity that a model's root configuration states."""
    stated = root.get("similarity_fn_name") or "cosine"
    if not isinstance(stated, str) or stated not in STATED:
        raise ModelError(
            f"{name}: similarity_fn_name in config_sentence_transformers.json must be {', '.join(STATED)}, got {stated}; "
            "adiabat computes no other; set encoder.similarity to one of them"
        )
    return STATED[stated]
