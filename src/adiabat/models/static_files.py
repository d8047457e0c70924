"""Static models on disk: sentence-transformers' ``StaticEmbedding``, and model2vec's directory.

Both hold the same files and differ in what they do with a text, so each is read as its own library reads it. A directory that lists its
modules is sentence-transformers', even where model2vec wrote it: texts are cut where the tokenizer's own file says so, and unknown tokens
count. One without a list of modules is model2vec's: texts are cut at its configuration's ``max_length``, first by letters, and
unknown tokens are left out of the mean.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from adiabat.core.errors import ModelError
from adiabat.core.files import reading
from adiabat.models.encoder import Encoder
from adiabat.models.st_files import UNLIMITED, read_json
from adiabat.models.static import StaticBackbone, StaticTokenizer

WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"

_ANEW = "get the model anew"

MODEL2VEC_MAX_TOKENS = 512
"""Where model2vec cuts texts if the configuration does not say."""


@dataclass(frozen=True, slots=True)
class Static:
    """A static model as it was read.

    Attributes:
        backbone: Its table.
        tokenizer: Its tokenizer.
        max_tokens: Where texts are cut; `UNLIMITED` for nowhere.
        normalize: Whether its own configuration asks for unit length; sentence-transformers says so elsewhere.
    """

    backbone: StaticBackbone
    tokenizer: StaticTokenizer
    max_tokens: int
    normalize: bool = False


def is_model2vec(folder: Path) -> bool:
    """Whether a directory without a list of modules is model2vec's."""
    return read_json(folder / "config.json").get("model_type") == "model2vec"


def load_static_embedding(folder: Path) -> Static:
    """Read the folder of a StaticEmbedding module, as sentence-transformers does."""
    table, backend = _read(folder)
    cut = backend.truncation or {"max_length": UNLIMITED, "direction": "right"}
    tokenizer = StaticTokenizer(backend, rows=len(table), side=cut["direction"])
    backbone = StaticBackbone(table, unknown_id=unknown_id(backend))
    return Static(backbone, tokenizer, min(cut["max_length"], UNLIMITED))


def load_model2vec(folder: Path) -> Static:
    """Read a directory of model2vec, as model2vec does."""
    config = read_json(folder / "config.json")
    limit = config.get("max_length", MODEL2VEC_MAX_TOKENS)
    if limit is not None and type(limit) is not int:
        raise ModelError(f"{folder}/config.json: max_length must be a whole number, or null for none, got {limit!r}; correct it")
    table, backend = _read(folder)
    letters = int(np.median([len(token) for token in backend.get_vocab()]))
    tokenizer = StaticTokenizer(backend, rows=len(table), unknown_id=unknown_id(backend), letters_per_token=letters)
    return Static(StaticBackbone(table), tokenizer, UNLIMITED if limit is None else limit, bool(config.get("normalize", False)))


def save_static_embedding(encoder: Encoder, folder: Path) -> None:
    """Write the folder of a StaticEmbedding module; `require_writable` says whether it can be one."""
    assert isinstance(encoder.backbone, StaticBackbone)
    save_file({"embedding.weight": encoder.backbone.table.cpu().contiguous()}, folder / WEIGHTS)
    backend = Tokenizer.from_str(encoder.tokenizer.backend_tokenizer.to_str())
    if encoder.settings.max_tokens < UNLIMITED:
        # The only place where sentence-transformers looks for a limit of a static model.
        backend.enable_truncation(encoder.settings.max_tokens, direction=encoder.tokenizer.truncation_side)
    backend.save(str(folder / TOKENIZER))


def require_writable(encoder: Encoder) -> None:
    """Refuse a static model that sentence-transformers would embed texts with in another way than model2vec."""
    tokenizer = encoder.tokenizer
    if isinstance(tokenizer, StaticTokenizer) and tokenizer.letters_per_token is not None:
        raise ModelError(
            "a static model that is trained or saved must be sentence-transformers', got a directory of model2vec, which leaves unknown "
            "tokens out; convert it with sentence_transformers' StaticEmbedding.from_model2vec, and save that"
        )


def _read(folder: Path) -> tuple[Float[Tensor, "v d"], Tokenizer]:
    """Table and tokenizer of either layout."""
    missing = [name for name in (WEIGHTS, TOKENIZER) if not (folder / name).is_file()]
    if missing:
        raise ModelError(f"{folder} must hold {WEIGHTS} and {TOKENIZER}, got no {' and no '.join(missing)}; {_ANEW}")
    table = _table(folder / WEIGHTS)
    with reading(folder / TOKENIZER, remedy=_ANEW, error=ModelError):
        backend = Tokenizer.from_file(str(folder / TOKENIZER))
    highest = max(backend.get_vocab().values(), default=-1)
    if highest >= len(table):
        raise ModelError(
            f"{folder / TOKENIZER} must know no token beyond the {len(table)} rows of {WEIGHTS}, got one of id {highest}; "
            "they belong to different models, get both anew"
        )
    return table, backend


def _table(path: Path) -> Float[Tensor, "v d"]:
    """One row per token id: what a smaller table, a mapping of tokens to its rows, and weights of tokens come to."""
    with reading(path, remedy=_ANEW, error=ModelError):
        tensors = load_file(path)
    name = next((name for name in ("embedding.weight", "embeddings") if name in tensors), None)
    if name is None:
        raise ModelError(f"{path} must hold embedding.weight or embeddings, got {', '.join(sorted(tensors)) or 'nothing'}; {_ANEW}")
    table = tensors[name]
    if table.ndim != 2 or not table.numel():
        raise ModelError(f"{path}: {name} must have one row per token, got shape {tuple(table.shape)}; {_ANEW}")
    return table.float() if name == "embedding.weight" else _unfolded(path, table, tensors)


def _unfolded(path: Path, table: Tensor, tensors: Mapping[str, Tensor]) -> Float[Tensor, "v d"]:
    """``row[t] = weights[t] embeddings[mapping[t]]``, with neither where the file has none."""
    mapping, weights = tensors.get("mapping"), tensors.get("weights")
    if mapping is not None:
        _require_rows(path, mapping, len(table))
        table = table[mapping.long()]
    if weights is None:
        return table.float()
    if weights.shape != table.shape[:1]:
        raise ModelError(f"{path}: weights must hold one number per token ({len(table)}), got shape {tuple(weights.shape)}; {_ANEW}")
    return (table.float() * weights[:, None]).float()


def _require_rows(path: Path, mapping: Tensor, rows: int) -> None:
    if mapping.ndim != 1 or not mapping.numel() or mapping.is_floating_point() or mapping.is_complex():
        got = f"{mapping.dtype} of shape {tuple(mapping.shape)}"
        raise ModelError(f"{path}: mapping must hold one row number per token, got {got}; {_ANEW}")
    low, high = (int(bound) for bound in torch.aminmax(mapping.long()))
    if low < 0 or high >= rows:
        raise ModelError(f"{path}: mapping must hold rows from 0 to {rows - 1}, got {low if low < 0 else high}; {_ANEW}")


def unknown_id(backend: Tokenizer) -> int | None:
    """The token of what a vocabulary does not cover.

    Returns:
        Its row; None where there is none.
    """
    model = backend.model
    if hasattr(model, "unk_token"):
        return None if model.unk_token is None else backend.token_to_id(model.unk_token)
    # A unigram model names it by its id alone, in its file.
    found: int | None = json.loads(backend.to_str())["model"].get("unk_id")
    return found
