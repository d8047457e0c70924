"""Projections as files, and new ones from a seed."""

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from adiabat.errors import ModelError
from adiabat.model.backbone import first_line
from adiabat.model.encoder import Projection
from adiabat.model.layout import needed, read_json, write_json

ACTIVATIONS: Mapping[str, type[nn.Module]] = {
    "torch.nn.modules.linear.Identity": nn.Identity,
    "torch.nn.modules.activation.Tanh": nn.Tanh,
    "torch.nn.modules.activation.ReLU": nn.ReLU,
    "torch.nn.modules.activation.GELU": nn.GELU,
    "torch.nn.modules.activation.Sigmoid": nn.Sigmoid,
}
"""Activations of a projection that are built by name; nothing else named in a file is ever imported."""

FAULTS = (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError, SafetensorError, pickle.UnpicklingError)
"""What reading a damaged file of weights raises in safetensors and torch."""


def new_projection(width: int, out: int, *, seed: int) -> Projection:
    """A linear map without bias or activation, the same for the same seed.

    Its weights are normal with variance ``1 / width``, which keeps lengths and angles on average: at the start, texts are about as near to
    each other as they were without it. The global random state is left alone.

    Args:
        width: Numbers per pooled vector (D).
        out: Numbers per embedding (E).
        seed: Decides the weights.

    Returns:
        The projection, on the CPU.

    Reference:
        Ni et al. 2022 (Sentence-T5, GTR), whose projection has no bias and no activation; source 002, section 3; mission C1.
    """
    return projection_of(torch.empty(out, width).normal_(std=width**-0.5, generator=torch.Generator().manual_seed(seed)).T)


def projection_of(weights: Float[Tensor, "d e"]) -> Projection:
    """A linear map without bias or activation, by its weights.

    Args:
        weights: A row for each number of a pooled vector, a column for each of an embedding; copied.

    Returns:
        The projection, on the device of the weights.
    """
    linear = nn.utils.skip_init(nn.Linear, *weights.shape, bias=False)  # type: ignore[no-untyped-call]
    linear.weight = nn.Parameter(weights.T.clone(memory_format=torch.contiguous_format))
    return Projection(linear, nn.Identity())


def load_projection(folder: Path) -> Projection:
    """Read the folder of a Dense module.

    Args:
        folder: Holds ``config.json`` and ``model.safetensors``.

    Returns:
        The projection.

    Raises:
        ModelError: If a file is missing or damaged, or the activation is unknown.
    """
    config = read_json(folder / "config.json")
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    if activation not in ACTIVATIONS:
        raise ModelError(f"{folder}: activation_function must be one of {', '.join(ACTIVATIONS)}, got {activation}")
    inner, outer = needed(config, "in_features", "out_features", where=folder / "config.json")
    linear = nn.Linear(inner, outer, bias=config.get("bias", True))
    if not (folder / "model.safetensors").is_file():
        raise ModelError(f"{folder} must hold model.safetensors; save the model anew with sentence-transformers")
    try:
        linear.load_state_dict({name.removeprefix("linear."): weights for name, weights in load_file(folder / "model.safetensors").items()})
    except FAULTS as fault:
        raise ModelError(f"{folder}/model.safetensors must hold a linear layer of {inner} to {outer}: {first_line(fault)}") from fault
    return Projection(linear, ACTIVATIONS[activation]())


def save_projection(projection: Projection, folder: Path) -> None:
    """Write the folder of a Dense module.

    Args:
        projection: What to write.
        folder: Exists.
    """
    linear = projection.linear
    activation = type(projection.activation)
    write_json(
        folder / "config.json",
        {
            "in_features": linear.in_features,
            "out_features": linear.out_features,
            "bias": linear.bias is not None,
            "activation_function": f"{activation.__module__}.{activation.__name__}",
        },
    )
    save_file({f"linear.{name}": weights.contiguous() for name, weights in linear.state_dict().items()}, folder / "model.safetensors")
