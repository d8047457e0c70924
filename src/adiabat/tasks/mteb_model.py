"""A model of two towers as mteb's evaluator calls it.

It does not inherit from mteb's classes: their protocols ask for methods alone, and importing mteb takes seconds.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float32

from adiabat.data.records import Side
from adiabat.errors import ConfigError
from adiabat.model.towers import DualEncoder
from adiabat.store.scoring import Similarity
from adiabat.tasks.texts import embed_texts
from adiabat.watch import SILENT, Watch

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models.model_meta import ModelMeta, ScoringFunction
    from mteb.types import PromptType

READING = {"batch_size": 1024, "show_progress_bar": False}
"""How mteb hands over texts; what is computed at once is the encoder's own choice."""


class MtebEncoder:
    """Any model for any task of mteb: queries go through the query tower, documents through the document tower, each with its prompt."""

    def __init__(self, model: DualEncoder, *, side: Side = "query", similarity: Similarity | None = None, watch: Watch = SILENT) -> None:
        """Wrap a model.

        Args:
            similarity: What compares vectors; None takes what the model states, or cosine where it states nothing.
        """
        self.model = model
        self.side = side
        self.compared_by = similarity or model.similarity
        self.watch = watch

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: "TaskMetadata",
        hf_split: str,
        hf_subset: str,
        prompt_type: "PromptType | None" = None,
        **kwargs: Any,
    ) -> Float32[np.ndarray, "n e"]:
        """Embed texts in float32, each distinct one once.

        Args:
            prompt_type: Query or document; None for neither.

        Returns:
            One row per text.
        """
        if others := sorted(set(kwargs) - set(READING)):
            raise ConfigError(f"encode_kwargs must hold {' and '.join(READING)} alone, got {', '.join(others)}; leave those out")
        texts = [text for batch in inputs for text in batch["text"]]
        side: Side = self.side if prompt_type is None else prompt_type.value
        return embed_texts(self.model, texts, side=side, name=task_metadata.name, watch=self.watch)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Scores of every vector with every other.

        Args:
            embeddings1: Arrays or tensors, one row per text.
        """
        from mteb.similarity_functions import select_similarity

        return select_similarity(embeddings1, embeddings2, self._scoring())

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Scores of each vector with its counterpart.

        Args:
            embeddings1: Arrays or tensors, one row per text.

        Returns:
            A tensor with one score per pair, more is closer.
        """
        from mteb.similarity_functions import select_pairwise_similarity

        return select_pairwise_similarity(embeddings1, embeddings2, self._scoring())

    def _scoring(self) -> "ScoringFunction":
        from mteb.models.model_meta import ScoringFunction

        names = {"cosine": ScoringFunction.COSINE, "dot": ScoringFunction.DOT_PRODUCT, "distance": ScoringFunction.EUCLIDEAN}
        return names[self.compared_by]

    @cached_property
    def mteb_model_meta(self) -> "ModelMeta":
        """What mteb's files say of the model; its revision tells apart all that could score otherwise."""
        from mteb.models.model_meta import ModelMeta

        plain = re.sub(r"[^\w.-]+", "-", self.model.name).strip("-.") or "unnamed"
        about = {
            "name": f"adiabat/{plain}",
            "revision": hashlib.sha256(json.dumps(self._made_of(), sort_keys=True).encode()).hexdigest()[:16],
            "n_parameters": self.model.parameters,
            "embed_dim": self.model.width,
            "max_tokens": float(self.model.query.settings.max_tokens),
            "framework": ["PyTorch"],
            "similarity_fn_name": self._scoring(),
            "use_instructions": bool(self.model.query.settings.query_prompt or self.model.document.settings.document_prompt),
        }
        return ModelMeta.create_empty(about)

    def _made_of(self) -> list[Any]:
        """Whatever decides a score, as plain data."""
        return [self.model.fingerprint("query").to_json(), self.model.fingerprint("document").to_json(), self.side, self.compared_by]
