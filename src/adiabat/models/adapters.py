"""Training a small part of a backbone in place of all of it: its biases, or low-rank adapters of its dense layers (Ziarko et al. 2024).

Both switch off every other gradient of the backbone; projections on top of it stay as they are. Freezing by name
(`adiabat.models.freezing`) goes with either, afterwards: its patterns then see biases and adapters that were added, and it can tell where
nothing is left to train. What was frozen before stays frozen all the same.

Reference:
    Ziarko et al. 2024, section 3.4.
"""

import copy
import math
import re
from collections.abc import Mapping

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from adiabat.config.training_choices import BiasTraining, LoRA, Method
from adiabat.core.errors import ConfigError, ModelError

BIAS_SETTINGS = ("attention_bias", "mlp_bias", "norm_bias")
"""Settings by which families without biases, such as Llama and ModernBERT, can be given some."""

_BIAS = re.compile(r"bias$")  # T5's `relative_attention_bias.weight` is a table, DeBERTa's `q_bias` a bias
_POOLER = "pooler."
_ADAPTER_NAME = re.compile(r"base_model\.model|lora_")


def train_part(backbone: PreTrainedModel, method: Method) -> None:
    """Switch on what a method trains, and everything else off."""
    if isinstance(method, LoRA):
        add_lora(backbone, rank=method.rank, alpha=method.alpha)
    elif isinstance(method, BiasTraining):
        train_biases_only(backbone)


def train_biases_only(backbone: PreTrainedModel) -> int:
    """Switch off the gradient of all but the biases, those of dense layers and of norms (BitFit).

    A backbone without any is given biases of zero where its configuration knows such (`BIAS_SETTINGS`), which leaves what it computes as
    it was: where they are is what transformers builds from that configuration, so what is saved loads with them.
    """
    _require_layers(backbone)
    if not any(_BIAS.search(name) for name, _ in backbone.named_parameters()):
        _add_biases(backbone)
    for name, weights in backbone.named_parameters():
        if not _BIAS.search(name) or name.startswith(_POOLER):
            weights.requires_grad_(False)
    return _trainable(backbone)


def add_lora(backbone: PreTrainedModel, *, rank: int, alpha: float | None = None) -> int:
    """Put a low-rank adapter beside every dense layer, in place, and switch off every other gradient.

    ``y = W x + (alpha / rank) B A x``, with ``A`` (rank, in) drawn as torch draws a dense layer, and ``B`` (out, rank) zero: at first
    the backbone computes what it did. A pooler head gets none: no embedding depends on it. The backbone keeps its class, and its
    dense layers their mode. Adapters are drawn from torch's global random numbers.

    Args:
        rank: Of ``B A``, >= 1; at most the smaller width of every layer, for no matrix of that shape has a higher one.
        alpha: > 0; None takes the rank, so that ``W + B A`` is computed, as Ziarko et al. 2024 writes it. The step that one learning
            rate makes then grows with the rank; a fixed alpha evens that out (Hu et al. 2022, section 4.1).
    """
    if hasattr(backbone, "peft_config"):
        raise ModelError("backbone must be without adapters, got one that has some; merge them first")
    layers = _require_layers(backbone)
    _check_lora(rank, alpha, layers)
    from peft import LoraConfig, inject_adapter_in_model  # 0.4 s that only LoRA should cost

    settings = LoraConfig(
        r=rank,
        lora_alpha=rank if alpha is None else alpha,  # type: ignore[arg-type]  # it is only ever divided by the rank
        target_modules=list(layers),
        fan_in_fan_out=any(isinstance(layer, Conv1D) for layer in layers.values()),
    )
    states = {name: (layer.weight.requires_grad, layer.training) for name, layer in layers.items()}
    inject_adapter_in_model(settings, backbone)
    for name, (trained, training) in states.items():
        adapted = backbone.get_submodule(name).train(training)
        if not trained:
            adapted.requires_grad_(False)
    return _trainable(backbone)


def merge_adapters(backbone: PreTrainedModel) -> PreTrainedModel:
    """A plain backbone that computes what one with adapters does: ``W + (alpha / rank) B A`` in each dense layer, in float32."""
    if not hasattr(backbone, "peft_config"):
        return backbone
    from peft.tuners.tuners_utils import BaseTunerLayer

    merged = copy.deepcopy(backbone)
    with torch.no_grad(), torch.autocast(merged.device.type, enabled=False):
        for name, layer in list(merged.named_modules()):
            if isinstance(layer, BaseTunerLayer):
                layer.merge()
                merged.set_submodule(name, layer.get_base_layer())
    del merged.peft_config
    # Left where transformers loaded the adapters itself: it would save nothing but adapters, or the weights under an adapter's names.
    merged._hf_peft_config_loaded = False
    conversions = getattr(merged, "_weight_conversions", None) or []
    merged.__dict__["_weight_conversions"] = [one for one in conversions if not _ADAPTER_NAME.search(str(one))]
    return merged.requires_grad_(True)


def _trainable(backbone: nn.Module) -> int:
    return sum(weights.numel() for weights in backbone.parameters() if weights.requires_grad)


def _add_biases(backbone: PreTrainedModel) -> None:
    """Give the backbone, and its configuration, the biases that the configuration knows; ModelError where it knows none."""
    config = copy.deepcopy(backbone.config)
    switched = [setting for setting in BIAS_SETTINGS if getattr(config, setting, None) is False]
    for setting in switched:
        setattr(config, setting, True)
    with torch.device("meta"):
        # Never computed with: it only tells where transformers expects biases.
        shapes = {name: bias.shape for name, bias in type(backbone)(config).named_parameters() if _BIAS.search(name)}
    if not shapes:
        raise ModelError(
            f"a backbone must have biases where they alone are trained, got one of type {config.model_type}, "
            "which has none, nor a setting for any; use LoRA, or freeze blocks"
        )
    for name, shape in shapes.items():
        path, _, bias = name.rpartition(".")
        layer = backbone.get_submodule(path)
        weight = layer.get_parameter("weight")
        layer.register_parameter(bias, nn.Parameter(weight.new_zeros(shape), requires_grad=weight.requires_grad))
    for setting in switched:
        setattr(backbone.config, setting, True)


def _dense_layers(backbone: PreTrainedModel) -> dict[str, nn.Linear | Conv1D]:
    """Dense layers that an embedding passes through, by name; peft's own ``all-linear`` would also take a pooler head."""
    found = {name: layer for name, layer in backbone.named_modules() if isinstance(layer, (nn.Linear, Conv1D))}
    return {name: layer for name, layer in found.items() if not name.startswith(_POOLER)}


def _require_layers(backbone: PreTrainedModel) -> dict[str, nn.Linear | Conv1D]:
    layers = _dense_layers(backbone)
    if not layers:
        kind = backbone.config.model_type
        raise ModelError(f"method must be full for a backbone without dense layers, got one of type {kind}; train the whole of it")
    return layers


def _check_lora(rank: int, alpha: float | None, layers: Mapping[str, nn.Linear | Conv1D]) -> None:
    if rank < 1:
        raise ConfigError(f"rank must be >= 1, got {rank}; 32 to 128 is right nearly everywhere")
    if alpha is not None and not 0 < alpha < math.inf:
        raise ConfigError(f"alpha must be > 0, got {alpha}; leave it out for one that equals the rank")
    narrowest = min(layers, key=lambda name: min(layers[name].weight.shape))
    widths = tuple(layers[narrowest].weight.shape)
    if rank > min(widths):
        raise ConfigError(
            f"rank must be <= {min(widths)}, the smaller width of {narrowest} ({widths[0]} by {widths[1]}), got {rank}; lower it"
        )
