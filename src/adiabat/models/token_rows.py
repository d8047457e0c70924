"""How a backbone and a tokenizer fit together: the width of token states, and tokens for which the embedding table has no row.

A tokenizer may have been given tokens, and the model not been resized.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from adiabat.core.errors import ModelError

EXCERPT = 60
"""Letters of a text in a message."""


def state_width(backbone: Any) -> int:
    """Numbers per token state."""
    return int(getattr(backbone.config, "word_embed_proj_dim", backbone.config.hidden_size))


def table_rows(backbone: Any) -> int | None:
    """Rows of the table of token embeddings.

    Returns:
        The number; None for a family without such a table (CANINE hashes characters).
    """
    try:
        return len(backbone.get_input_embeddings().weight)
    except (AttributeError, NotImplementedError):
        return None


def rowless_tokens(tokenizer: PreTrainedTokenizerBase, rows: int | None) -> dict[int, str]:
    """Tokens beyond the table. Some models have such tokens and never use them: the text models of Gemma 3 know one for images.

    Args:
        rows: Of the table; None for no limit.
    """
    return {} if rows is None else {number: token for token, number in tokenizer.get_vocab().items() if number >= rows}


def refuse_rowless(texts: Sequence[str], token_ids: Sequence[Sequence[int]], rowless: Mapping[int, str], *, rows: int | None) -> None:
    """Refuse texts that hold a token beyond the table.

    Args:
        token_ids: One list per text.
    """
    if not rowless:
        return
    for text, ids in zip(texts, token_ids, strict=True):
        if beyond := rowless.keys() & set(ids):
            number = min(beyond)
            raise ModelError(
                f"the tokenizer must know no token beyond the {rows} rows of the model's embedding table, got {rowless[number]!r} of id "
                f"{number} in the text {text[:EXCERPT]!r}; resize the table (resize_token_embeddings), or remove the token"
            )
