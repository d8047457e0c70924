"""Static models in memory and on disk: a table of token vectors.

The embedding of a text is the mean of its tokens' vectors.

After the rows of the tokens comes a zero row, which pads batches and represents a text without tokens.
`Encoder` treats both classes like
those of a transformer: token states are rows of the table.

sentence-transformers and model2vec write the same files but embed texts differently, so each directory is
read as its own library reads it. A directory with a list of modules belongs to sentence-transformers, even if
model2vec wrote it: the tokenizer's file sets the token limit,
and unknown tokens count. A directory without that list belongs to model2vec: its configuration's
``max_length`` truncates texts, first by letters, and unknown tokens are excluded from the mean.

Reference:
    Model2Vec (Tulkens and van Dongen 2024); ``StaticEmbedding`` of sentence-transformers.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.modeling_outputs import BaseModelOutput

from adiabat.core.errors import ModelError
from adiabat.core.files import reading
from adiabat.core.ragged import Ragged
from adiabat.models.embedding_head import EncoderSettings, TokenTensor
from adiabat.models.json_files import exists, flag_of, read_json
from adiabat.models.st_files import UNLIMITED
from adiabat.models.tokens import cut_texts

if TYPE_CHECKING:
    from adiabat.models.encoder import Encoder

WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"
_REMEDY = "get the model again"

MODEL2VEC_MAX_TOKENS = 512
"""Token limit of model2vec if the configuration sets none."""


class StaticConfig(PretrainedConfig):  # type: ignore[no-untyped-call]
    """Width of a token state, and the family."""

    model_type = "static"
    vocab_size: int = 0
    hidden_size: int = 0


class StaticBackbone(PreTrainedModel):  # type: ignore[no-untyped-call]
    """Looks up the vectors of tokens.

    Attributes:
        token_embeddings: One row per token, then a row of zeros.
        weightless_id: The unknown token, if its row is zero: it must stay so in training.
    """

    config_class = StaticConfig

    def __init__(self, table: Float[Tensor, "v d"], *, unknown_id: int | None = None) -> None:
        """Copy a table of one row per token id, in float32."""
        rows, width = table.shape
        super().__init__(StaticConfig(vocab_size=rows, hidden_size=width))
        padded = torch.cat([table.float(), torch.zeros(1, width, device=table.device)])
        # As padding, the zero row has no gradient, and stays zero in training.
        self.token_embeddings = nn.Embedding(rows + 1, width, padding_idx=rows, _weight=padded)
        self.weightless_id = unknown_id if unknown_id is not None and not table[unknown_id].any() else None

    @property
    def table(self) -> Float[Tensor, "v d"]:
        """The rows of tokens, without the final zero row."""
        rows: Tensor = self.token_embeddings.weight.detach()[:-1]
        return rows

    def times(self, weights: Float[Tensor, "d e"]) -> "StaticBackbone":
        """A backbone whose token states are those of this one times a matrix.

        The mean of a text's rows is linear, so its embedding is multiplied by the matrix too.
        """
        product = StaticBackbone(self.table @ weights, unknown_id=self.weightless_id)
        product.train(self.training)
        return product

    def forward(self, input_ids: TokenTensor, attention_mask: TokenTensor) -> BaseModelOutput:
        """Token states of a batch."""
        zero = attention_mask == 0
        if self.weightless_id is not None:
            zero = zero | (input_ids == self.weightless_id)
        states = self.token_embeddings(input_ids.masked_fill(zero, self.config.vocab_size))
        return BaseModelOutput(last_hidden_state=states)

    def bag_means(self, tokens: Ragged) -> Float[Tensor, "b d"]:
        """Mean of each text's rows, without computing its token states."""
        table = self.token_embeddings.weight
        # Both in the same integers, as the kernel wants them.
        rows, starts = (
            torch.from_numpy(array.astype(np.int32)).to(table.device)
            for array in (tokens.values, tokens.offsets[:-1])
        )
        return functional.embedding_bag(rows, table, starts, mode="mean")


class StaticTokenizer(PreTrainedTokenizerFast):
    """A tokenizer that adds no tokens to a text, and pads with the zero row after the table.

    Attributes:
        rows: Rows of the table.
        unknown_id: Token that is removed from texts; None keeps all.
        letters_per_token: Letters of a text tokenised per token of the limit; None tokenises the whole text.
    """

    rows: int
    unknown_id: int | None
    letters_per_token: int | None

    def __init__(
        self,
        backend: Tokenizer,
        *,
        rows: int,
        side: str = "right",
        unknown_id: int | None = None,
        letters_per_token: int | None = None,
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
        """Number of the zero row."""
        return self.rows

    @property
    def manner(self) -> str:
        """Options, beside the tokenizer's definition, that decide a text's tokens."""
        return f"{self.truncation_side} {self.unknown_id} {self.letters_per_token}"

    def token_ids(self, texts: Sequence[str], *, limit: int) -> Ragged:
        """Token ids of each text; none for a text without tokens."""
        if self.letters_per_token is not None:
            texts = [text[: limit * self.letters_per_token] for text in texts]
        else:
            texts = cut_texts(self, texts, limit)
        # Without offsets, which would take as long as everything else.
        encoded = [
            encoding.ids
            for encoding in self.backend_tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        ]
        kept = slice(limit) if self.truncation_side == "right" else slice(-limit, None)
        tokens = Ragged.joined([ids[kept] for ids in encoded], dtype=np.int32)
        return tokens if self.unknown_id is None else tokens.where(tokens.values != self.unknown_id)


def is_model2vec(folder: Path) -> bool:
    """Whether a directory without a list of modules is from model2vec."""
    return read_json(folder / "config.json").get("model_type") == "model2vec"


def load_static_embedding(folder: Path) -> tuple[StaticBackbone, StaticTokenizer, EncoderSettings]:
    """Read the folder of a StaticEmbedding module as sentence-transformers does; normalisation is configured
    elsewhere.
    """
    table, backend = _read(folder)
    cut = backend.truncation or {"max_length": UNLIMITED, "direction": "right"}
    tokenizer = StaticTokenizer(backend, rows=len(table), side=cut["direction"])
    settings = EncoderSettings(normalize=False, max_tokens=min(cut["max_length"], UNLIMITED))
    return StaticBackbone(table, unknown_id=unknown_id(backend)), tokenizer, settings


def load_model2vec(folder: Path) -> tuple[StaticBackbone, StaticTokenizer, EncoderSettings]:
    """Read a directory of model2vec, as model2vec does."""
    config = read_json(folder / "config.json")
    limit = config.get("max_length", MODEL2VEC_MAX_TOKENS)
    if limit is not None and type(limit) is not int:
        raise ModelError(
            f"{folder}/config.json: max_length must be a whole number, or null "
            f"for none, got {limit!r}; correct it"
        )
    table, backend = _read(folder)
    letters = int(np.median([len(token) for token in backend.get_vocab()]))
    tokenizer = StaticTokenizer(
        backend, rows=len(table), unknown_id=unknown_id(backend), letters_per_token=letters
    )
    unit = flag_of(config, "normalize", path=folder / "config.json")
    settings = EncoderSettings(normalize=unit, max_tokens=UNLIMITED if limit is None else limit)
    return StaticBackbone(table), tokenizer, settings


def save_static_embedding(encoder: "Encoder", folder: Path) -> None:
    """Write the folder of a StaticEmbedding module of an encoder that `require_saveable` accepts."""
    assert isinstance(encoder.backbone, StaticBackbone)
    save_file({"embedding.weight": encoder.backbone.table.cpu().contiguous()}, folder / WEIGHTS)
    backend = Tokenizer.from_str(encoder.tokenizer.backend_tokenizer.to_str())
    if encoder.settings.max_tokens < UNLIMITED:
        # The only place where sentence-transformers looks for a static model's limit.
        backend.enable_truncation(encoder.settings.max_tokens, direction=encoder.tokenizer.truncation_side)
    backend.save(str(folder / TOKENIZER))


def require_saveable(encoder: "Encoder") -> None:
    """Refuse a static model that sentence-transformers and model2vec would use differently."""
    tokenizer = encoder.tokenizer
    if isinstance(tokenizer, StaticTokenizer) and tokenizer.letters_per_token is not None:
        raise ModelError(
            "a static model that is trained or saved must be sentence-transformers', got "
            "a directory of model2vec, which leaves unknown "
            "tokens out; convert it with sentence_transformers' StaticEmbedding.from_model2vec, and save that"
        )


def _read(folder: Path) -> tuple[Float[Tensor, "v d"], Tokenizer]:
    """Table and tokenizer in either layout."""
    missing = [name for name in (WEIGHTS, TOKENIZER) if not exists(folder / name)]
    if missing:
        raise ModelError(
            f"{folder} must hold {WEIGHTS} and {TOKENIZER}, got no {' and no '.join(missing)}; {_REMEDY}"
        )
    table = _read_table(folder / WEIGHTS)
    with reading(folder / TOKENIZER, remedy=_REMEDY, error=ModelError):
        backend = Tokenizer.from_file(str(folder / TOKENIZER))
    highest = max(backend.get_vocab().values(), default=-1)
    if highest >= len(table):
        raise ModelError(
            f"{folder / TOKENIZER} must know no token beyond the {len(table)} rows of {WEIGHTS}, got one of "
            f"id {highest}; they belong to different models, get both again"
        )
    return table, backend


def _read_table(path: Path) -> Float[Tensor, "v d"]:
    """One row per token id: ``row[t] = weights[t] embeddings[mapping[t]]`` in model2vec files that have
    both.
    """
    with reading(path, remedy=_REMEDY, error=ModelError):
        tensors = load_file(path)
    name = next((name for name in ("embedding.weight", "embeddings") if name in tensors), None)
    if name is None:
        raise ModelError(
            f"{path} must hold embedding.weight or embeddings, got "
            f"{', '.join(sorted(tensors)) or 'nothing'}; {_REMEDY}"
        )
    table = tensors[name]
    if table.ndim != 2 or not table.numel():
        raise ModelError(
            f"{path}: {name} must have one row per token, got shape {tuple(table.shape)}; {_REMEDY}"
        )
    mapping, weights = (tensors.get(key) if name == "embeddings" else None for key in ("mapping", "weights"))
    if mapping is not None:
        if mapping.ndim != 1 or not mapping.numel() or mapping.is_floating_point() or mapping.is_complex():
            kind = f"{mapping.dtype} of shape {tuple(mapping.shape)}"
            raise ModelError(f"{path}: mapping must hold one row number per token, got {kind}; {_REMEDY}")
        low, high = (int(bound) for bound in torch.aminmax(mapping.long()))
        if low < 0 or high >= len(table):
            raise ModelError(
                f"{path}: mapping must hold rows from 0 to {len(table) - 1}, got "
                f"{low if low < 0 else high}; {_REMEDY}"
            )
        table = table[mapping.long()]
    if weights is None:
        return table.float()
    if weights.shape != table.shape[:1]:
        raise ModelError(
            f"{path}: weights must hold one number per token ({len(table)}), got "
            f"shape {tuple(weights.shape)}; {_REMEDY}"
        )
    return (table.float() * weights[:, None]).float()


def unknown_id(backend: Tokenizer) -> int | None:
    """The token for everything outside the vocabulary; None if there is none."""
    model = backend.model
    if hasattr(model, "unk_token"):
        return None if model.unk_token is None else backend.token_to_id(model.unk_token)
    # A unigram model stores only its id, in its file.
    number: int | None = json.loads(backend.to_str())["model"].get("unk_id")
    return number
