"""Static models: a table with one vector per token. A text is the mean of its tokens' vectors, so that their order counts for nothing.

The two parts fit into an `Encoder` with mean pooling, whatever is on top of it: token states are rows of the table. Behind the rows of
the tokens comes one of zeros, which fills batches and is all that a text without tokens holds: its vector is zero.

Reference:
    Model2Vec (Tulkens and van Dongen 2024); ``StaticEmbedding`` of sentence-transformers.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from jaxtyping import Float, Int
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.modeling_outputs import BaseModelOutput

from adiabat.models.long_texts import cut_texts


class StaticConfig(PretrainedConfig):  # type: ignore[no-untyped-call]
    """What other backbones are asked for too: the width of a token's state, and the family."""

    model_type = "static"
    vocab_size: int = 0
    hidden_size: int = 0


class StaticBackbone(PreTrainedModel):  # type: ignore[no-untyped-call]
    """Looks tokens up, each by itself."""

    config_class = StaticConfig

    def __init__(self, table: Float[Tensor, "v d"], *, unknown_id: int | None = None) -> None:
        """Make a backbone of a table.

        Args:
            table: One row per token id; copied, in float32.
        """
        rows, width = table.shape
        super().__init__(StaticConfig(vocab_size=rows, hidden_size=width))
        whole = torch.cat([table.float(), torch.zeros(1, width, device=table.device)])
        # As padding, the row of zeros has no gradient, and stays zero in training.
        self.token_embeddings = nn.Embedding(rows + 1, width, padding_idx=rows, _weight=whole)
        self.weightless_id = unknown_id if unknown_id is not None and not table[unknown_id].any() else None

    @property
    def table(self) -> Float[Tensor, "v d"]:
        """The rows of tokens, without the row of zeros behind them."""
        rows: Tensor = self.token_embeddings.weight.detach()[:-1]
        return rows

    def times(self, weights: Float[Tensor, "d e"]) -> "StaticBackbone":
        """A backbone whose token states are this one's times a matrix."""
        made = StaticBackbone(self.table @ weights, unknown_id=self.weightless_id)
        made.train(self.training)
        return made

    def forward(self, input_ids: Int[Tensor, "b l"], attention_mask: Int[Tensor, "b l"]) -> BaseModelOutput:
        """Token states of a batch."""
        zero = attention_mask == 0
        if self.weightless_id is not None:
            zero = zero | (input_ids == self.weightless_id)
        states = self.token_embeddings(input_ids.masked_fill(zero, self.config.vocab_size))
        return BaseModelOutput(last_hidden_state=states)

    def bag_means(self, token_ids: Sequence[Sequence[int]]) -> Float[Tensor, "b d"]:
        """Mean of each text's rows, without its token states."""
        lengths = np.fromiter(map(len, token_ids), dtype=np.int64, count=len(token_ids))
        flat = np.fromiter(chain.from_iterable(token_ids), dtype=np.int64, count=int(lengths.sum()))
        table = self.token_embeddings.weight
        rows, starts = (torch.from_numpy(one).to(table.device) for one in (flat, np.cumsum(lengths) - lengths))
        return functional.embedding_bag(rows, table, starts, mode="mean")


class StaticTokenizer(PreTrainedTokenizerFast):
    """A tokenizer that puts nothing around a text, and pads with the row of zeros behind the table.

    Attributes:
        rows: Of the table.
        unknown_id: A token that texts are rid of; None keeps all.
        letters_per_token: Where a limit in tokens cuts a text before it is split: after so many letters for each token; None: nowhere.
    """

    rows: int
    unknown_id: int | None
    letters_per_token: int | None

    def __init__(
        self, backend: Tokenizer, *, rows: int, side: str = "right", unknown_id: int | None = None, letters_per_token: int | None = None
    ) -> None:
        """Wrap a tokenizer."""
        backend.no_padding()
        backend.no_truncation()
        backend.post_processor = None
        super().__init__(tokenizer_object=backend, truncation_side=side)  # type: ignore[no-untyped-call]
        self.rows = rows
        self.unknown_id = unknown_id
        self.letters_per_token = letters_per_token

    @property
    def pad_token_id(self) -> int:
        """The row of zeros."""
        return self.rows

    @property
    def manner(self) -> str:
        """What decides a text's tokens beside the tokenizer's definition."""
        return f"{self.truncation_side} {self.unknown_id} {self.letters_per_token}"

    def token_ids(self, texts: Sequence[str], *, limit: int) -> list[list[int]]:
        """Token ids of texts.

        Returns:
            One list per text; empty where a text has no token.
        """
        if self.letters_per_token is not None:
            texts = [text[: limit * self.letters_per_token] for text in texts]
        else:
            texts = cut_texts(self, texts, limit)
        # Without offsets, which take as long as all the rest.
        found = [encoding.ids for encoding in self.backend_tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        cut = [ids[:limit] if self.truncation_side == "right" else ids[-limit:] for ids in found]
        return cut if self.unknown_id is None else [[one for one in ids if one != self.unknown_id] for ids in cut]
