"""One tower: backbone, pooling, projections, normalisation, and the encoding of many texts."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from adiabat.core.arrays import VectorArray
from adiabat.core.errors import ModelError
from adiabat.core.ragged import Ragged
from adiabat.data.records import Fingerprint, Side
from adiabat.models.bulk import (
    Progress,
    Runtime,
    TokenSource,
    default_budget,
    distinct_texts,
    embed_bags,
    embed_blocks,
)
from adiabat.models.device import Precision, settled_precision
from adiabat.models.embedding_head import EncoderSettings, Projection, pool
from adiabat.models.packing import PackedBackbone, without_plans
from adiabat.models.static import StaticBackbone, StaticTokenizer
from adiabat.models.tokens import TokenBatch, cut_texts, pad, token_lists


def state_width(backbone: Any) -> int:
    """Width of a token state."""
    return int(getattr(backbone.config, "word_embed_proj_dim", backbone.config.hidden_size))


def table_rows(backbone: Any) -> int | None:
    """Rows of the token embedding table; None for a family without one (CANINE hashes characters)."""
    try:
        return len(backbone.get_input_embeddings().weight)
    except (AttributeError, NotImplementedError):
        return None


class Encoder(nn.Module):
    """A text encoder: backbone -> pooling -> projections -> normalisation -> truncation.

    Attributes:
        backbone: Gives a state for each token.
        tokenizer: Splits a text, prompt included, into tokens.
        settings: Settings of all steps but the projections.
        projections: Layers on the pooled state, in order; towers may share one.
        runtimes: What embeds the texts of a side in place of torch, made of the weights as they are
            (`with_runtime`).
    """

    def __init__(
        self,
        backbone: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        settings: EncoderSettings,
        projections: Sequence[Projection] = (),
    ) -> None:
        """Assemble the modules."""
        super().__init__()
        # A decoder would cache keys and values of every block for a next token that never comes.
        backbone.config.use_cache = False
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.settings = settings
        self.projections = nn.ModuleList(projections)
        self.runtimes: Mapping[Side, Runtime] = {}
        # Resolved `auto` precision per device, cached because it costs two forward passes.
        self._auto_precisions: dict[str, Precision] = {}

    @property
    def width(self) -> int:
        """Width of an embedding (E)."""
        return min(self.full_width, self.settings.truncate_dim or self.full_width)

    @property
    def full_width(self) -> int:
        """Width of an embedding before truncation."""
        if len(self.projections):
            return int(self.projections[-1].get_submodule("linear").out_features)  # type: ignore[arg-type]
        return state_width(self.backbone)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.parameters()).device

    def with_settings(
        self, settings: EncoderSettings, *, tokenizer: PreTrainedTokenizerBase | None = None
    ) -> "Encoder":
        """An encoder with the same weights and other settings, and optionally another tokenizer with the same
        vocabulary.
        """
        tokenizer = self.tokenizer if tokenizer is None else tokenizer
        return Encoder(self.backbone, tokenizer, settings, self.projection_list())

    def with_runtime(self, runtime: Runtime, side: Side) -> "Encoder":
        """An encoder with the same weights, whose texts of one side are embedded by a runtime of them."""
        twin = self.with_settings(self.settings)
        twin.runtimes = {**self.runtimes, side: runtime}
        return twin

    def projection_list(self) -> list[Projection]:
        """The projections, in order."""
        return [projection for projection in self.projections if isinstance(projection, Projection)]

    def forward(self, batch: TokenBatch) -> Float[Tensor, "b e"]:
        """Embed one padded batch, in float32."""
        with without_plans(self.device):
            if isinstance(self.backbone, PackedBackbone):
                hidden = self.backbone(batch)
            else:
                hidden = self.backbone(
                    input_ids=batch.input_ids, attention_mask=batch.attention_mask
                ).last_hidden_state
        return self.head(pool(hidden, batch.pooling_mask, pooling=self.settings.pooling))

    def head(self, pooled: Float[Tensor, "b d"]) -> Float[Tensor, "b e"]:
        """Project pooled states, normalise if the settings say so, then truncate; float32."""
        for projection in self.projections:
            pooled = projection(pooled)
        pooled = pooled.float()
        embeddings = nn.functional.normalize(pooled, dim=-1) if self.settings.normalize else pooled
        return embeddings[:, : self.settings.truncate_dim]

    def tokenize(self, texts: Sequence[str], *, side: Side) -> Ragged:
        """Token ids of each text with prompt and special tokens, cut at `EncoderSettings.limit`, in 32 bits;
        no list is empty.
        """
        if isinstance(texts, str):
            raise TypeError(f"texts must be a list of texts, got one text; write [{texts[:20]!r}]")
        prompt = self.settings.prompt(side)
        tokens = self._token_ids([prompt + text for text in texts], self.settings.limit(side))
        if tokens.lengths.all():
            return tokens
        # A tokenizer without special tokens gives nothing for an empty text; one token keeps the row alive.
        # It is not the padding token, because a setting that chooses that must change no vector.
        blank = self.tokenizer.pad_token_id if isinstance(self.tokenizer, StaticTokenizer) else 0
        return tokens.filled(blank)

    def _token_ids(self, texts: list[str], limit: int) -> Ragged:
        """Token ids with special tokens, refused if the embedding table has no row for one of them."""
        if not texts:
            return Ragged.joined([], dtype=np.int32)
        if isinstance(self.tokenizer, StaticTokenizer):
            return self.tokenizer.token_ids(texts, limit=limit)
        texts = cut_texts(self.tokenizer, texts, limit)
        tokens = Ragged.joined(token_lists(self.tokenizer, texts, limit), dtype=np.int32)
        rows = table_rows(self.backbone)
        if self._rowless and rows is not None and tokens.values.max(initial=0) >= rows:
            at = int(np.argmax(tokens.values >= rows))
            number, text = int(tokens.values[at]), texts[tokens.list_of(at)]
            raise ModelError(
                f"the tokenizer must know no token beyond the {rows} rows of the model's embedding table, "
                f"got {self._rowless[number]!r} of id {number} in the text {text[:60]!r}; resize the table "
                "(resize_token_embeddings), or remove the token"
            )
        return tokens

    @cached_property
    def _rowless(self) -> dict[int, str]:
        """Ids of tokens beyond the embedding table; some models have such unused tokens, such as the image
        token of Gemma 3 text models.
        """
        rows = table_rows(self.backbone)
        if rows is None:
            return {}
        return {number: token for token, number in self.tokenizer.get_vocab().items() if number >= rows}

    @property
    def pad_token_id(self) -> int:
        """Id used for padding; it is masked, so any id of the vocabulary would do."""
        token_id = self.tokenizer.pad_token_id
        return 0 if token_id is None or token_id in self._rowless else token_id

    def collate(self, tokens: Ragged, *, side: Side, shape: tuple[int, int] | None = None) -> TokenBatch:
        """Pad token ids to one batch on the encoder's device.

        A `shape` of rows and tokens is filled up with texts of one padding token each. Some attention kernels
        give NaN for a row without any token to attend to, and the gradient would spread it.
        """
        rows, length = shape or (len(tokens), None)
        filled = tokens.extended(rows, self.pad_token_id)
        skipped = self.unpooled_tokens(side)
        return pad(filled, pad_token_id=self.pad_token_id, length=length, skipped=skipped).to(self.device)

    def unpooled_tokens(self, side: Side) -> int:
        """Tokens at the start of each text that are not pooled: those of a prompt."""
        prompt = self.settings.prompt(side)
        if self.settings.pool_prompt or not prompt:
            return 0
        with_special = self.tokenizer(prompt)["input_ids"]
        # The prompt alone ends in the closing special token, which is not part of it.
        if with_special and with_special[-1] in self.tokenizer.all_special_ids:
            return len(with_special) - 1
        return len(with_special)

    @torch.inference_mode()
    def encode(
        self,
        texts: Sequence[str],
        *,
        side: Side,
        precision: Precision = "auto",
        token_budget: int | None = None,
        compiled: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> VectorArray:
        """Embed texts, in order, without gradients or dropout.

        Each distinct text is embedded once, because the last bits of a vector depend on its batch. Texts are
        sorted by length to minimise padding in batches.

        Args:
            side: Decides prompt and token limit.
            token_budget: Tokens of a batch, padding included; None chooses them for the device.
            compiled: Compile the blocks of the backbone first.
            on_progress: Called after each batch.
        """
        distinct, rows = distinct_texts(texts)
        return self._embedded(self._source(distinct, side), precision, token_budget, compiled, on_progress)[
            rows
        ]

    @torch.inference_mode()
    def encode_tokens(
        self,
        token_ids: Sequence[Sequence[int]],
        *,
        skipped: int = 0,
        closing: int = 0,
        precision: Precision = "auto",
    ) -> VectorArray:
        """Embed non-empty token lists directly, without prompt, special tokens or limit; see `pad` for
        `skipped` and `closing`.
        """
        fill = partial(pad, pad_token_id=self.pad_token_id, skipped=skipped, closing=closing)
        whole = not (skipped or closing)

        def block(rows: slice) -> Ragged:
            return Ragged.joined(token_ids[rows], dtype=np.int32)

        return self._embedded(
            TokenSource(block, fill, len(token_ids), whole, self.settings.max_tokens), precision
        )

    def _source(self, texts: Sequence[str], side: Side) -> TokenSource:
        """Texts with the prompt and the limit of their side."""
        skipped = self.unpooled_tokens(side)
        fill = partial(pad, pad_token_id=self.pad_token_id, skipped=skipped)
        return TokenSource(
            lambda rows: self.tokenize(texts[rows], side=side),
            fill,
            len(texts),
            not skipped,
            self.settings.limit(side),
            self.runtimes.get(side),
        )

    def _embedded(
        self,
        source: TokenSource,
        precision: Precision,
        token_budget: int | None = None,
        compiled: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> VectorArray:
        """Embed tokens without dropout, as bags of rows where a static model allows it, or by a runtime,
        whose precision is its own.
        """
        if source.runtime is not None:
            budget = token_budget or source.runtime.budget
            return embed_blocks(self, source, precision="fp32", budget=budget, on_progress=on_progress)
        settled, budget = self.settle(precision), token_budget or default_budget(self.device)
        with self._evaluating():
            if (
                settled == "fp32"
                and source.whole
                and self.settings.pooling == "mean"
                and isinstance(self.backbone, StaticBackbone)
            ):
                return embed_bags(self, self.backbone, source, on_progress=on_progress)
            return embed_blocks(
                self, source, precision=settled, budget=budget, compiled=compiled, on_progress=on_progress
            )

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Disable dropout, and afterwards restore each module's mode, which may differ from that of the
        tower.
        """
        training = [module for module in self.modules() if module.training]
        self.eval()
        try:
            yield
        finally:
            for module in training:
                module.training = True

    @torch.inference_mode()
    def settle(self, precision: Precision) -> Precision:
        """Resolve ``auto`` to the precision of this encoder on its device."""
        if precision != "auto":
            return precision
        if isinstance(self.backbone, StaticBackbone):
            return "fp32"  # Rows are looked up and added, which bf16 does not speed up.
        device = str(self.device)
        if device not in self._auto_precisions:

            def by_torch(texts: Sequence[str], candidate: Precision) -> VectorArray:
                return self._embedded(replace(self._source(texts, "document"), runtime=None), candidate)

            self._auto_precisions[device] = settled_precision(by_torch, self.device)
        return self._auto_precisions[device]

    def fingerprint(self, side: Side = "document") -> Fingerprint:
        """Fingerprint of everything that decides the vectors of one side."""
        settings = self.settings
        options = "".join(
            f", {key} = {value}"
            for key, value in sorted(getattr(self.backbone, "config_options", {}).items())
        )
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
        """SHA-256 of everything that decides a text's tokens except the limit: tokenizer, truncation side,
        options of a static tokenizer.

        Padding is masked, so it does not count.
        """
        backend = type(self.tokenizer.backend_tokenizer).from_str(self.tokenizer.backend_tokenizer.to_str())
        backend.no_padding()
        backend.no_truncation()
        cut_on_the_left = "left" if self.tokenizer.truncation_side == "left" else ""
        manner = self.tokenizer.manner if isinstance(self.tokenizer, StaticTokenizer) else cut_on_the_left
        return hashlib.sha256((backend.to_str() + manner).encode()).hexdigest()

    def used_parameters(self) -> dict[str, nn.Parameter]:
        """Parameters that embeddings depend on, by name: all but a pooler head."""
        used = {
            name: weights
            for name, weights in self.backbone.named_parameters()
            if not name.startswith("pooler.")
        }
        return used | {
            f"projections.{name}": weights for name, weights in self.projections.named_parameters()
        }

    def weights_digest(self) -> str:
        """SHA-256 over names, shapes and float32 bytes of `used_parameters`, in name order, and the classes
        of the activations.
        """
        digest = hashlib.sha256()
        for name, weights in sorted(self.used_parameters().items()):
            digest.update(f"{name} {tuple(weights.shape)}".encode())
            digest.update(weights.detach().float().contiguous().cpu().numpy().data)
        for projection in self.projections:
            digest.update(type(projection.get_submodule("activation")).__name__.encode())
            if projection.residual is not None:
                digest.update(b" with residual")
        return digest.hexdigest()
