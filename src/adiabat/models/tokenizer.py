"""Loading tokenizers from a folder: lower-casing made part of them, and a padding token for those that have none."""

from pathlib import Path

from tokenizers.normalizers import Lowercase, Normalizer
from tokenizers.normalizers import Sequence as Chain
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from adiabat.core.errors import ConfigError, ModelError
from adiabat.models.backbone import Trust, quietly, reason
from adiabat.models.encoder import Encoder
from adiabat.models.st_modules import TransformerSettings

TOKENIZER_FILES = ("tokenizer.json", "vocab.*", "*.model")
"""Files that may hold the vocabulary; without any, transformers would build a tokenizer that knows no word."""

LISTED_TOKENS = 8
"""Special tokens named in a message; some tokenizers have hundreds."""


def load_tokenizer(
    folder: Path, trust: Trust, *, pad_token: str | None = None, settings: TransformerSettings | None = None
) -> PreTrainedTokenizerBase:
    """Load a fast tokenizer."""
    settings = settings or TransformerSettings()
    if not any(path for pattern in TOKENIZER_FILES for path in folder.glob(pattern)):
        raise ModelError(f"{folder} must hold a tokenizer, got none of {', '.join(TOKENIZER_FILES)}")
    try:
        with quietly():
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
                folder, trust_remote_code=trust.remote_code is not None, **settings.tokenizer
            )
    except Exception as fault:
        raise ModelError(f"{folder} must hold a tokenizer: {reason(fault)}") from fault
    if not tokenizer.is_fast:
        raise ModelError(f"{folder} must hold a fast tokenizer (tokenizer.json); convert it with transformers first")
    if any(tokenizer("a").get("token_type_ids", ())):
        raise ModelError(f"{folder} must hold a tokenizer that gives texts token types of 0, got others, which adiabat does not pass on")
    # `save_pretrained` writes it, whichever file stated it.
    tokenizer.init_kwargs["truncation_side"] = tokenizer.truncation_side
    if settings.lower_case:
        _lower_case(tokenizer)
    if pad_token is not None:
        set_pad_token(tokenizer, pad_token)
    return tokenizer


def set_pad_token(tokenizer: PreTrainedTokenizerBase, token: str) -> None:
    """Make a tokenizer without a padding token pad with one of its special tokens. Padding is masked, so no vector changes.

    A tokenizer that has a padding token keeps it, because one setting may cover several models. Ordinary tokens are refused: saving would
    make them special, and texts that hold them would be split in another way.
    """
    if tokenizer.pad_token_id is not None:
        return
    known = special_tokens(tokenizer)
    if token not in known:
        names = ", ".join(map(repr, known[:LISTED_TOKENS])) or "it has none"
        raise ConfigError(f"encoder.pad_token must be one of the tokenizer's special tokens ({names}), got {token!r}; choose another")
    tokenizer.pad_token = token


def special_tokens(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Tokens that are never part of a word, by id."""
    added = tokenizer.added_tokens_decoder
    return [added[number].content for number in sorted(added) if added[number].special]


def require_pad_token(encoder: Encoder) -> None:
    """Refuse an encoder whose tokenizer cannot pad: adiabat does not need it, but sentence-transformers does."""
    tokenizer = encoder.tokenizer
    if tokenizer.pad_token_id is not None:
        return
    known = special_tokens(tokenizer)
    usual = tokenizer.eos_token if tokenizer.eos_token in known else next(iter(known), None)
    advice = f'set encoder.pad_token = "{usual}"' if usual else "give the tokenizer a special token to pad with"
    raise ModelError(
        f"the tokenizer must have a padding token, got none: sentence-transformers needs one to encode with what is saved; {advice}"
    )


def _lower_case(tokenizer: PreTrainedTokenizerBase) -> None:
    """Make lower-casing part of the tokenizer, unless it is; sentence-transformers keeps it beside the tokenizer."""
    normalizers = normalizers_of(tokenizer)
    if not any(isinstance(normalizer, Lowercase) or getattr(normalizer, "lowercase", False) for normalizer in normalizers):
        tokenizer.backend_tokenizer.normalizer = Chain([Lowercase(), *normalizers])


def normalizers_of(tokenizer: PreTrainedTokenizerBase) -> list[Normalizer]:
    """The normalizers of a tokenizer, which change a text before it is split."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    if normalizer is None:
        return []
    return [normalizer[i] for i in range(len(normalizer))] if isinstance(normalizer, Chain) else [normalizer]
