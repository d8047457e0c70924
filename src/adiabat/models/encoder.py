"""One tower: backbone, pooling, projections, normalisation, and the encoding of texts in bulk."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from adiabat.data.records import Side
from adiabat.models.bulk import Progress, TokenSource, default_budget, embed_bags, embed_blocks, once_each
from adiabat.models.device import Precision, settled_precision
from adiabat.models.embedding_head import EncoderSettings as EncoderSettings
from adiabat.models.embedding_head import Projection, pool
from adiabat.models.fingerprint import Fingerprint
from adiabat.models.long_texts import cut_texts
from adiabat.models.static import StaticBackbone, StaticTokenizer
from adiabat.models.token_rows import refuse_rowless, rowless_tokens, state_width, table_rows
from adiabat.models.tokens import TokenBatch, pad


@dataclass
class _Precisions:
    """The precision `auto` settled on, per device; found out once because finding out costs two forward passes."""

    found: dict[str, Precision] = field(default_factory=dict)


class Encoder(nn.Module):
    """A text encoder: backbone -> pooling -> projections -> normalisation -> truncation."""

    def __init__(
        self,
        backbone: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        settings: EncoderSettings,
        projections: Sequence[Projection] = (),
    ) -> None:
        """Put the parts together."""
        super().__init__()
        # A decoder would keep keys and values of every block for a next token that never comes.
        backbone.config.use_cache = False
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.settings = settings
        self.projections = nn.ModuleList(projections)
        self._precisions = _Precisions()

    @property
    def width(self) -> int:
        """Numbers per embedding (E)."""
        return min(self.full_width, self.settings.truncate_dim or self.full_width)

    @property
    def full_width(self) -> int:
        """Numbers per embedding before truncation."""
        if len(self.projections):
            return int(self.projections[-1].get_submodule("linear").out_features)  # type: ignore[arg-type]
        return state_width(self.backbone)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def with_settings(self, settings: EncoderSettings, *, tokenizer: PreTrainedTokenizerBase | None = None) -> "Encoder":
        """The same weights under other settings.

        Args:
            tokenizer: Another one of the same vocabulary; None keeps this one's.
        """
        projections = [one for one in self.projections if isinstance(one, Projection)]
        return Encoder(self.backbone, self.tokenizer if tokenizer is None else tokenizer, settings, projections)

    def forward(self, batch: TokenBatch) -> Float[Tensor, "b e"]:
        """Embed one padded batch.

        Returns:
            Embeddings, float32, of unit length where the settings say so.
        """
        hidden = self.backbone(input_ids=batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state
        return self.head(pool(hidden, batch.pooling_mask, pooling=self.settings.pooling))

    def head(self, pooled: Float[Tensor, "b d"]) -> Float[Tensor, "b e"]:
        """What follows pooling.

        Returns:
            Embeddings, float32, of unit length where the settings say so, then truncated.
        """
        for projection in self.projections:
            pooled = projection(pooled)
        pooled = pooled.float()
        embeddings = nn.functional.normalize(pooled, dim=-1) if self.settings.normalize else pooled
        return embeddings[:, : self.settings.truncate_dim]

    def tokenize(self, texts: Sequence[str], *, side: Side) -> list[list[int]]:
        """Token ids of each text with prompt and special tokens, cut at `EncoderSettings.limit`.

        Returns:
            One list of ids per text, never empty.
        """
        if isinstance(texts, str):
            raise TypeError(f"texts must be a list of texts, got one text; write [{texts[:20]!r}]")
        if not len(texts):
            return []
        prompt = self.settings.prompt(side)
        encoded = self._token_ids([prompt + text for text in texts] if prompt else list(texts), self.settings.limit(side))
        # A tokenizer without special tokens gives nothing for an empty text; one token keeps the row alive.
        return [ids or [self._blank_token_id] for ids in encoded]

    def _token_ids(self, texts: list[str], limit: int) -> list[list[int]]:
        if isinstance(self.tokenizer, StaticTokenizer):
            return self.tokenizer.token_ids(texts, limit=limit)
        options = {"padding": False, "return_attention_mask": False, "return_token_type_ids": False}
        texts = cut_texts(self.tokenizer, texts, limit)
        ids: list[list[int]] = self.tokenizer(texts, truncation=True, max_length=limit, **options)["input_ids"]
        refuse_rowless(texts, ids, self._rowless, rows=table_rows(self.backbone))
        return ids

    @cached_property
    def _rowless(self) -> dict[int, str]:
        return rowless_tokens(self.tokenizer, table_rows(self.backbone))

    @property
    def _blank_token_id(self) -> int:
        """What an empty text becomes: not the padding token, which a setting may choose, and so would change a vector."""
        return self.tokenizer.pad_token_id if isinstance(self.tokenizer, StaticTokenizer) else 0

    @property
    def pad_token_id(self) -> int:
        """Id that fills rows; masked, so any id of the vocabulary would do."""
        own = self.tokenizer.pad_token_id
        return 0 if own is None or own in self._rowless else own

    def collate(self, token_ids: Sequence[Sequence[int]], *, side: Side) -> TokenBatch:
        """Pad token ids to one batch on the encoder's device."""
        return pad(token_ids, pad_token_id=self.pad_token_id, skipped=self._unpooled_tokens(side)).to(self.device)

    def _unpooled_tokens(self, side: Side) -> int:
        prompt = self.settings.prompt(side)
        if self.settings.pool_prompt or not prompt:
            return 0
        with_special = self.tokenizer(prompt)["input_ids"]
        # The prompt alone ends in the closing special token, which is not part of it.
        return len(with_special) - (1 if with_special and with_special[-1] in self.tokenizer.all_special_ids else 0)

    @torch.inference_mode()
    def encode(
        self,
        texts: Sequence[str],
        *,
        side: Side,
        precision: Precision = "auto",
        token_budget: int | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Float[np.ndarray, "n e"]:
        """Embed texts, in their order, without gradients and with dropout off.

        Each distinct text is embedded once, since the last bits of a vector depend on what passes beside it; texts are sorted by length and
        packed into batches of about `token_budget` tokens, padding counted: nearly nothing is padding.

        Args:
            token_budget: Tokens per forward pass; None chooses by device.
        """
        distinct, places = once_each(texts)
        return self._embedded(self._source(distinct, side), precision, token_budget, on_progress)[places]

    @torch.inference_mode()
    def encode_tokens(
        self,
        token_ids: Sequence[Sequence[int]],
        *,
        skipped: int = 0,
        closing: int = 0,
        precision: Precision = "auto",
    ) -> Float[np.ndarray, "n e"]:
        """Embed texts that are tokens already, as they are: no prompt and no special token is put around them, and none is cut.

        Args:
            token_ids: One non-empty list per text.
        """
        fill = partial(pad, pad_token_id=self.pad_token_id, skipped=skipped, closing=closing)
        limit = self.settings.max_tokens
        source = TokenSource(lambda start, end: token_ids[start:end], fill, len(token_ids), not (skipped or closing), limit)
        return self._embedded(source, precision)

    def _source(self, texts: Sequence[str], side: Side) -> TokenSource:
        skipped = self._unpooled_tokens(side)
        fill = partial(pad, pad_token_id=self.pad_token_id, skipped=skipped)
        limit = self.settings.limit(side)
        return TokenSource(lambda start, end: self.tokenize(texts[start:end], side=side), fill, len(texts), not skipped, limit)

    def _embedded(
        self,
        source: TokenSource,
        precision: Precision,
        token_budget: int | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Float[np.ndarray, "n e"]:
        settled, budget = self.settle(precision), token_budget or default_budget(self.device)
        with self._evaluating():
            if settled == "fp32" and source.whole and self.settings.pooling == "mean" and isinstance(self.backbone, StaticBackbone):
                return embed_bags(self, self.backbone, source, on_progress=on_progress)
            return embed_blocks(self, source, precision=settled, budget=budget, on_progress=on_progress)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Dropout off; then each module gets its own mode back: a tower may train with dropout off in a part of it."""
        training = [module for module in self.modules() if module.training]
        self.eval()
        try:
            yield
        finally:
            for module in training:
                module.training = True

    @torch.inference_mode()
    def settle(self, precision: Precision) -> Precision:
        """Turn ``auto`` into what this encoder runs in on its device."""
        if precision != "auto":
            return precision
        if isinstance(self.backbone, StaticBackbone):
            return "fp32"  # nothing to be gained: rows are looked up and added
        key = str(self.device)
        if key not in self._precisions.found:
            self._precisions.found[key] = settled_precision(
                lambda texts, one: self._embedded(self._source(texts, "document"), one), self.device
            )
        return self._precisions.found[key]

    def fingerprint(self, side: Side = "document") -> Fingerprint:
        """What decides the vectors of one side."""
        settings = self.settings
        options = "".join(f", {key} = {value}" for key, value in sorted(getattr(self.backbone, "config_options", {}).items()))
        return Fingerprint(
            backbone=self.backbone.config.model_type + options,
            weights=self.weights_digest(),
            tokenizer=self.tokenizer_digest(),
            pooling=settings.pooling if settings.pool_prompt else f"{settings.pooling} without prompt",
            normalize=settings.normalize,
            prompt=settings.prompt(side),
            max_tokens=settings.limit(side),
            width=self.width,
        )

    def tokenizer_digest(self) -> str:
        """SHA-256 of what decides a text's tokens but the limit: the tokenizer, a left side of cutting, and a static one's manner.

        Padding counts for nothing, because it is masked; it and the limit are set anew at every call.
        """
        backend = type(self.tokenizer.backend_tokenizer).from_str(self.tokenizer.backend_tokenizer.to_str())
        backend.no_padding()
        backend.no_truncation()
        cut_on_the_left = "left" if self.tokenizer.truncation_side == "left" else ""
        manner = self.tokenizer.manner if isinstance(self.tokenizer, StaticTokenizer) else cut_on_the_left
        return hashlib.sha256((backend.to_str() + manner).encode()).hexdigest()

    def used_parameters(self) -> dict[str, nn.Parameter]:
        """Parameters that the embedding depends on, by name: all but a pooler head, which the pooled vector never passes through."""
        used = {name: weights for name, weights in self.backbone.named_parameters() if not name.startswith("pooler.")}
        return used | {f"projections.{name}": weights for name, weights in self.projections.named_parameters()}

    def weights_digest(self) -> str:
        """SHA-256 over names, shapes and float32 bytes of `used_parameters`, in name order, and the kinds of the projections' parts."""
        digest = hashlib.sha256()
        for name, weights in sorted(self.used_parameters().items()):
            digest.update(f"{name} {tuple(weights.shape)}".encode())
            digest.update(weights.detach().float().contiguous().cpu().numpy().data)
        for projection in self.projections:
            digest.update(type(projection.get_submodule("activation")).__name__.encode())
            if projection.residual is not None:
                digest.update(b" with residual")
        return digest.hexdigest()
