"""Cross-encoders: models that read a query and a document together and give the pair one score."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from adiabat.core.errors import ConfigError, ModelError
from adiabat.models.backbone import Trust, as_model_error, load_tokenizer, require_files_inside
from adiabat.models.loading import FALLBACK_MAX_TOKENS, local_folder
from adiabat.models.model_paths import directory_of
from adiabat.models.st_files import UNLIMITED, position_rows
from adiabat.models.tokens import token_budget_batches

BATCH_TOKENS = 4_096
"""Tokens of a pass, padding included."""


@dataclass(frozen=True)
class CrossEncoder:
    """A model with one output, and its tokenizer.

    Attributes:
        max_tokens: Maximum tokens of a pair; of the longer text more is cut.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    max_tokens: int

    @torch.inference_mode()
    def score(self, queries: Sequence[str], documents: Sequence[str]) -> Float32[np.ndarray, " n"]:
        """Raw output of each pair of a query and the document beside it, higher for a better answer.

        The last bits of a score depend on the other pairs of the call, which share passes.
        """
        if not queries:
            return np.empty(0, dtype=np.float32)
        encoded = self.tokenizer(
            list(queries), list(documents), truncation="longest_first", max_length=self.max_tokens
        )
        scores = np.empty(len(queries), dtype=np.float32)
        lengths = np.array([len(ids) for ids in encoded["input_ids"]], dtype=np.int64)
        for rows in token_budget_batches(lengths, BATCH_TOKENS):
            chosen = {name: [values[row] for row in rows.tolist()] for name, values in encoded.items()}
            batch = self.tokenizer.pad(chosen, return_tensors="pt").to(self.model.device)
            scores[rows] = self.model(**batch).logits[:, 0].float().cpu().numpy()
        if not np.isfinite(scores).all():
            raise ModelError(f"{self.name} must give finite scores, got NaN or infinity; choose another")
        return scores

    def digest(self) -> str:
        """SHA-256 over all that decides the scores: weights, tokenizer and token limit."""
        digest = hashlib.sha256(f"{self.max_tokens} {self.tokenizer.backend_tokenizer.to_str()}".encode())
        for name, weights in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(weights.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()


def load_cross_encoder(
    name: str, *, device: torch.device, max_tokens: int | None = None, named_by: str
) -> CrossEncoder:
    """Load a model for sequence classification with one label, float32; `named_by` is the option that names
    it.

    Args:
        max_tokens: Maximum tokens of a pair; None takes the model's limit.
    """
    folder, trust = local_folder(directory_of(name)), Trust()
    require_files_inside(folder, trust)
    with as_model_error(folder, trust):
        config = AutoConfig.from_pretrained(folder)
        model, report = AutoModelForSequenceClassification.from_pretrained(
            folder,
            config=config,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    absent = sorted([*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])])
    need = f"{named_by} must be a cross-encoder, a model for sequence classification with one label"
    # Without its head, transformers would give random scores.
    if absent:
        raise ModelError(f"{need}, got {name}, whose files lack {absent[0]}; name another model")
    if config.num_labels != 1:
        raise ModelError(f"{need}, got {name} with {config.num_labels}; name another model")
    tokenizer = load_tokenizer(folder, trust)
    positions = position_rows(model) or UNLIMITED
    most = int(min(tokenizer.model_max_length, positions, UNLIMITED))
    limit = FALLBACK_MAX_TOKENS if most == UNLIMITED else most
    if max_tokens is not None and max_tokens > most:
        raise ConfigError(f"label.max_tokens must be at most {most}, the limit of {name}, got {max_tokens}")
    return CrossEncoder(name, model.eval().to(device), tokenizer, max_tokens or limit)
