"""The small files of a sentence-transformers directory, in their old and new forms.

Every key that sentence-transformers reads is either applied or refused by name, because a partly read model
gives different vectors.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel

from adiabat.core.errors import ModelError, first_line, reraise_unrelated
from adiabat.core.files import reading
from adiabat.models.embedding_head import Pooling, Projection
from adiabat.models.json_files import ROOT_FILE, flag_of, read_json, size_of, table_in, write_json

NAMES_OF_POOLING: Mapping[str, Pooling] = {
    "mean": "mean",
    "cls": "cls",
    "lasttoken": "last",
    "max": "max",
    "weightedmean": "weighted_mean",
}
"""Names in ``1_Pooling/config.json``, mapped to ours."""

OLD_POOLING_FLAGS: Mapping[str, Pooling] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_weightedmean_tokens": "weighted_mean",
    "pooling_mode_lasttoken": "last",
}

POOLING_KEYS = frozenset(
    (
        "embedding_dimension",
        "word_embedding_dimension",
        "pooling_mode",
        "include_prompt",
        "pooling_mode_mean_sqrt_len_tokens",
        *OLD_POOLING_FLAGS,
    )
)

IN_AND_OUT: Mapping[str, tuple[str | None, ...]] = {
    "module_input_name": ("sentence_embedding",),
    "module_output_name": ("sentence_embedding", None),
}
"""Inputs and outputs of a module after the pooling."""

ACTIVATIONS: Mapping[str, type[nn.Module]] = {
    "torch.nn.modules.linear.Identity": nn.Identity,
    "torch.nn.modules.activation.Tanh": nn.Tanh,
    "torch.nn.modules.activation.ReLU": nn.ReLU,
    "torch.nn.modules.activation.GELU": nn.GELU,
    "torch.nn.modules.activation.Sigmoid": nn.Sigmoid,
}
"""Activations of a projection that can be built by name; other names in a file are never imported."""

DENSE_KEYS = frozenset({"in_features", "out_features", "bias", "activation_function", "use_residual"})

PICKLES = "if its weights are in a pickle (pytorch_model.bin), set encoder.allow_pickles = true"
"""Advice where there are no safetensors; from the hub, pickles are not even fetched unless they are
allowed."""

UNLIMITED = 1_000_000
"""Numbers from here on mean no limit: transformers writes about 1e30 for a tokenizer without one."""


def checked_keys(
    path: Path,
    record: Mapping[str, Any],
    *,
    known: Collection[str] = (),
    fixed: Mapping[str, Collection[object]] = MappingProxyType({}),
) -> None:
    """Refuse unknown keys, and keys of `fixed` with values other than those listed."""
    if unknown := [key for key in record if key not in known and key not in fixed]:
        raise ModelError(
            f"{path} must hold only keys that adiabat knows, got {', '.join(unknown)}; "
            "update adiabat, or choose another model"
        )
    for key, values in fixed.items():
        if key in record and record[key] not in values:
            usual = next(iter(values))
            raise ModelError(
                f"{path}: {key} must be {'null' if usual is None else usual}, got {record[key]!r:.60}, which "
                "adiabat does not have; choose another model"
            )


def required(record: Mapping[str, Any], *keys: str, path: Path) -> tuple[Any, ...]:
    """The values of keys that a file must have."""
    if missing := [key for key in keys if key not in record]:
        raise ModelError(f"{path} must hold {', '.join(missing)}, got {', '.join(record) or 'nothing'}")
    return tuple(record[key] for key in keys)


def pooling_of(folder: Path) -> tuple[Pooling, bool]:
    """The pooling of a directory and whether it includes the prompt."""
    path = folder / "config.json"
    config = read_json(path)
    checked_keys(path, config, known=POOLING_KEYS)
    flags = [flag for flag in config if flag.startswith("pooling_mode_") and flag_of(config, flag, path=path)]
    stated = config.get("pooling_mode", flags or (["pooling_mode_mean_tokens"] if config else []))
    modes = list(map(str, stated if isinstance(stated, list) else [stated]))
    names = NAMES_OF_POOLING if "pooling_mode" in config else OLD_POOLING_FLAGS
    poolings = [names.get(mode) for mode in modes]
    if len(poolings) != 1 or poolings[0] is None:
        raise ModelError(
            f"{path} must name one pooling of {', '.join(NAMES_OF_POOLING)}, got {', '.join(modes) or 'none'}"
        )
    return poolings[0], flag_of(config, "include_prompt", path=path, default=True)


def load_projection(folder: Path, *, pickles: bool = False) -> Projection:
    """Read the folder of a Dense module, ``f(W x + b)``, with a residual ``f(W x + b) + R x``.

    ``f`` is the hyperbolic tangent unless the file states another activation. ``R`` is the identity where
    both widths are equal. `pickles` allows weights in a pickle.
    """
    path, weights = folder / "config.json", folder / "model.safetensors"
    config = read_json(path)
    checked_keys(path, config, known=DENSE_KEYS, fixed=IN_AND_OUT)
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    if activation not in ACTIVATIONS:
        raise ModelError(
            f"{path}: activation_function must be one of {', '.join(ACTIVATIONS)}, got {activation}"
        )
    required(config, "in_features", "out_features", path=path)
    inner, outer = size_of(config, "in_features", path=path), size_of(config, "out_features", path=path)
    residual = None
    if flag_of(config, "use_residual", path=path):
        residual = nn.Identity() if inner == outer else nn.Linear(inner, outer, bias=False)
    linear = nn.Linear(inner, outer, bias=flag_of(config, "bias", path=path, default=True))
    projection = Projection(linear, ACTIVATIONS[activation](), residual)
    if not weights.is_file():
        weights = _pickle_in(folder, allowed=pickles)
    with reading(weights, remedy="get the model again", error=ModelError):
        if weights.suffix == ".bin":
            tensors = torch.load(weights, map_location="cpu", weights_only=True)
        else:
            tensors = load_file(weights)
    try:
        projection.load_state_dict(tensors)
    except RuntimeError as fault:
        reraise_unrelated(fault)
        raise ModelError(
            f"{weights} must hold a linear layer of {inner} to {outer}: {first_line(fault)}"
        ) from fault
    return projection


def _pickle_in(folder: Path, *, allowed: bool) -> Path:
    """The weights of a module without safetensors."""
    pickle = folder / "pytorch_model.bin"
    if not allowed:
        raise ModelError(f"{folder} must hold model.safetensors; {PICKLES}")
    if not pickle.is_file():
        raise ModelError(f"{folder} must hold model.safetensors or pytorch_model.bin; get the model again")
    return pickle


def save_projection(projection: Projection, folder: Path) -> None:
    """Write the folder of a Dense module."""
    linear, activation = projection.linear, type(projection.activation)
    config = {
        "in_features": linear.in_features,
        "out_features": linear.out_features,
        "bias": linear.bias is not None,
        "activation_function": f"{activation.__module__}.{activation.__name__}",
    }
    # Versions before 5.7 refuse the key, so it is written only if it is not the default.
    if projection.residual is not None:
        config["use_residual"] = True
    write_json(folder / "config.json", config)
    tensors = {name: weights.contiguous() for name, weights in projection.state_dict().items()}
    save_file(tensors, folder / "model.safetensors")


def prompts_of(folder: Path) -> tuple[str, str]:
    """Prompts for query and document, "" for none.

    Without a document prompt, a prompt for passages is used for documents: the model was trained with it,
    although ``encode_document`` of sentence-transformers 6.2 would use none.
    """
    path = folder / ROOT_FILE
    root = read_json(path)
    prompts = table_in(root, "prompts", path=path)
    if not all(isinstance(text, str | None) for text in prompts.values()):
        raise ModelError(f"{path}: prompts must map names to texts, got {prompts!r:.80}")
    default = root.get("default_prompt_name")
    if default is not None and default not in (*prompts, "query", "document"):
        raise ModelError(
            f"{path}: default_prompt_name must be one of the prompts "
            f"({', '.join(prompts) or 'none'}), got {default!r}; correct it"
        )
    stated = [prompts.get(name) for name in ("document", "passage", "corpus")]
    document = next((prompt for prompt in stated if prompt is not None), "")
    return prompts.get("query") or "", document


def truncate_dim_of(folder: Path) -> int | None:
    """Number of leading dimensions to keep; None keeps all."""
    stated: int | None = read_json(folder / ROOT_FILE).get("truncate_dim")
    if stated is not None and (type(stated) is not int or stated < 1):
        raise ModelError(
            f"{folder / ROOT_FILE}: truncate_dim must be a whole number above 0, or "
            f"null for none, got {stated!r}; correct it"
        )
    return stated


def position_rows(backbone: PreTrainedModel) -> int | None:
    """Usable rows of a backbone's position table; None for relative or rotary positions, which are
    unbounded.
    """
    for name, module in backbone.named_modules():
        if isinstance(module, nn.Embedding) and name.rsplit(".", 1)[-1] in (
            "position_embeddings",
            "wpe",
            "embed_positions",
        ):
            # RoBERTa and its relatives count positions from after the padding id, OPT from 2: earlier rows
            # are not used by text.
            unused = 0 if module.padding_idx is None else module.padding_idx + 1
            return module.num_embeddings - int(getattr(module, "offset", unused))
    # GPT-J keeps a table of angles in every block.
    angles = (buffer for name, buffer in backbone.named_buffers() if name.endswith(".embed_positions"))
    return next((len(table) for table in angles), None)
