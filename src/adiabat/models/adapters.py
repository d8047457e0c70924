"""Training few weights of a backbone: only its biases, or low-rank adapters of its dense layers (Ziarko et
al. 2024).

Both disable all other gradients of the backbone; projections on top of it are trained as before. Freezing by
name (`adiabat.models.freezing`) can be applied before either, or preferably afterwards: its patterns then
match added biases and adapters.

Reference:
    Ziarko et al. 2024, section 3.4.
"""

import copy
import re
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from adiabat.config.training_choices import Method
from adiabat.core.errors import ConfigError, ModelError
from adiabat.models.freezing import trainable_weights

BIAS_SETTINGS = ("attention_bias", "mlp_bias", "norm_bias")
"""Settings that give biases to families without them, such as Llama and ModernBERT."""

_BIAS = re.compile(r"bias$")  # T5's `relative_attention_bias.weight` is a table, DeBERTa's `q_bias` a bias
_POOLER = "pooler."
_ADAPTER_NAME = re.compile(r"base_model\.model|lora_")


def train_part(backbone: PreTrainedModel, method: Method) -> None:
    """Disable the gradients of all weights that a method does not train."""
    if method.kind == "lora":
        add_lora(backbone, rank=method.rank, alpha=method.alpha)
    elif method.kind == "bias":
        train_biases_only(backbone)


def train_biases_only(backbone: PreTrainedModel) -> int:
    """Disable the gradients of all but the biases of dense layers and norms (BitFit); returns the number of
    trained weights.

    A backbone without biases gets zero biases if its configuration has a setting for them (`BIAS_SETTINGS`):
    its output is unchanged, and a saved model loads with them.
    """
    _require_layers(backbone)
    if not any(_BIAS.search(name) for name, _ in backbone.named_parameters()):
        _add_biases(backbone)
    for name, weights in backbone.named_parameters():
        if not _BIAS.search(name) or name.startswith(_POOLER):
            weights.requires_grad_(False)
    return trainable_weights(backbone)


def add_lora(backbone: PreTrainedModel, *, rank: int, alpha: float | None = None) -> int:
    """Add a low-rank adapter to every dense layer in place and disable all other gradients; returns the
    number of trained weights.

    ``y = W x + (alpha / rank) B A x``, with ``A`` (rank, in) initialised as torch initialises a dense layer,
    and ``B`` (out, rank) zero, so that the output is unchanged at first. A pooler head gets no adapter. The
    backbone keeps its class, and its dense layers their mode. Torch's global generator draws the adapters.

    Args:
        rank: Rank of ``B A``, >= 1 and at most the smaller width of every layer.
        alpha: > 0; None takes the rank, so that ``W + B A`` is computed, as in Ziarko et al. 2024. The update
            of one learning rate then grows with the rank; a fixed alpha compensates for that (Hu et al. 2022,
            section 4.1).
    """
    layers = _require_layers(backbone)
    shapes = {name: tuple(layer.weight.shape) for name, layer in layers.items()}
    narrowest = min(shapes, key=lambda name: min(shapes[name]))
    outer, inner = shapes[narrowest]
    smaller = min(outer, inner)
    if rank > smaller:
        raise ConfigError(
            f"rank must be <= {smaller}, the smaller width of {narrowest} ({outer} by {inner}), got {rank}; "
            "lower it"
        )
    from peft import LoraConfig, inject_adapter_in_model  # takes 0.4 s

    transposed = any(isinstance(layer, Conv1D) for layer in layers.values())
    # peft's type of alpha is int, though it only divides by the rank.
    scale: Any = rank if alpha is None else alpha
    settings = LoraConfig(r=rank, lora_alpha=scale, target_modules=list(layers), fan_in_fan_out=transposed)
    states = [(name, layer.weight.requires_grad, layer.training) for name, layer in layers.items()]
    inject_adapter_in_model(settings, backbone)
    for name, is_trained, is_training in states:
        adapted = backbone.get_submodule(name).train(is_training)
        if not is_trained:
            adapted.requires_grad_(False)
    return trainable_weights(backbone)


def merge_adapters(backbone: PreTrainedModel) -> PreTrainedModel:
    """A plain backbone equivalent to one with adapters: ``W + (alpha / rank) B A`` in each dense layer, in
    float32.

    Layers and tokens that were trained whole beside an adapter take the place of those in the backbone.
    """
    if not hasattr(backbone, "peft_config"):
        return backbone
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    merged = copy.deepcopy(backbone)
    replaced: list[str] = []
    with torch.no_grad(), torch.autocast(merged.device.type, enabled=False):
        for name, layer in list(merged.named_modules()):
            if any(name.startswith(f"{path}.") for path in replaced):
                continue
            if isinstance(layer, BaseTunerLayer):
                layer.merge()
                merged.set_submodule(name, layer.get_base_layer())
            elif isinstance(layer, AuxiliaryTrainingWrapper):
                plain = layer.unload_and_optionally_merge_module(
                    merge=True, safe_merge=False, adapter_names=None
                )
                merged.set_submodule(name, plain)
                replaced.append(name)
    del merged.peft_config
    # Attributes left by adapters that transformers loaded; with them it would save only adapters, or weights
    # under adapter names.
    merged._hf_peft_config_loaded = False
    conversions = getattr(merged, "_weight_conversions", None) or []
    merged.__dict__["_weight_conversions"] = [
        conversion for conversion in conversions if not _ADAPTER_NAME.search(str(conversion))
    ]
    return merged.requires_grad_(True)


def _add_biases(backbone: PreTrainedModel) -> None:
    """Add zero biases to the backbone and its configuration; ModelError if the configuration has no setting
    for them.
    """
    config = copy.deepcopy(backbone.config)
    switched = [setting for setting in BIAS_SETTINGS if getattr(config, setting, None) is False]
    for setting in switched:
        setattr(config, setting, True)
    with torch.device("meta"):
        # On the meta device, only for the names and shapes of the biases.
        names_and_biases = type(backbone)(config).named_parameters()
        shapes = {name: bias.shape for name, bias in names_and_biases if _BIAS.search(name)}
    if not shapes:
        raise ModelError(
            f"training biases alone needs a backbone with biases, got type {config.model_type}, "
            "which has none and no setting for them; use LoRA, or freeze blocks"
        )
    for name, shape in shapes.items():
        path, _, bias = name.rpartition(".")
        layer = backbone.get_submodule(path)
        weight = layer.get_parameter("weight")
        layer.register_parameter(
            bias, nn.Parameter(weight.new_zeros(shape), requires_grad=weight.requires_grad)
        )
    for setting in switched:
        setattr(backbone.config, setting, True)


def _require_layers(backbone: PreTrainedModel) -> dict[str, nn.Linear | Conv1D]:
    """Dense layers that an embedding depends on, by name; peft's own ``all-linear`` would include a pooler
    head. GPT-2 has its dense layers as `Conv1D`, whose weights are transposed.
    """
    layers = {
        name: layer
        for name, layer in backbone.named_modules()
        if isinstance(layer, (nn.Linear, Conv1D)) and not name.startswith(_POOLER)
    }
    if not layers:
        kind = backbone.config.model_type
        raise ModelError(
            "method must be full for a backbone without dense layers, got "
            f"one of type {kind}; train all of it"
        )
    return layers
