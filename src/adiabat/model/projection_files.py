"""Projections as files: the Dense modules of sentence-transformers."""

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import nn

from adiabat.errors import ModelError
from adiabat.files import reading
from adiabat.model.backbone import first_line
from adiabat.model.layout import IN_AND_OUT, checked_keys, needed, read_json, write_json
from adiabat.model.projection import Projection

ACTIVATIONS: Mapping[str, type[nn.Module]] = {
    "torch.nn.modules.linear.Identity": nn.Identity,
    "torch.nn.modules.activation.Tanh": nn.Tanh,
    "torch.nn.modules.activation.ReLU": nn.ReLU,
    "torch.nn.modules.activation.GELU": nn.GELU,
    "torch.nn.modules.activation.Sigmoid": nn.Sigmoid,
}
"""Activations of a projection that are built by name; nothing else named in a file is ever imported."""

KNOWN = frozenset({"in_features", "out_features", "bias", "activation_function", "use_residual"})


def load_projection(folder: Path) -> Projection:
    """Read the folder of a Dense module."""
    config = read_json(folder / "config.json")
    checked_keys(folder / "config.json", config, known=KNOWN, fixed=IN_AND_OUT)
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    if activation not in ACTIVATIONS:
        raise ModelError(f"{folder}/config.json: activation_function must be one of {', '.join(ACTIVATIONS)}, got {activation}")
    inner, outer = needed(config, "in_features", "out_features", where=folder / "config.json")
    residual = (nn.Identity() if inner == outer else nn.Linear(inner, outer, bias=False)) if config.get("use_residual") else None
    projection = Projection(nn.Linear(inner, outer, bias=config.get("bias", True)), ACTIVATIONS[activation](), residual)
    if not (folder / "model.safetensors").is_file():
        raise ModelError(f"{folder} must hold model.safetensors; save the model anew with sentence-transformers")
    with reading(folder / "model.safetensors", remedy="get the model again", error=ModelError):
        tensors = load_file(folder / "model.safetensors")
    try:
        projection.load_state_dict(tensors)
    except RuntimeError as fault:
        raise ModelError(f"{folder}/model.safetensors must hold a linear layer of {inner} to {outer}: {first_line(fault)}") from fault
    return projection


def save_projection(projection: Projection, folder: Path) -> None:
    """Write the folder of a Dense module."""
    linear = projection.linear
    activation = type(projection.activation)
    write_json(
        folder / "config.json",
        {
            "in_features": linear.in_features,
            "out_features": linear.out_features,
            "bias": linear.bias is not None,
            "activation_function": f"{activation.__module__}.{activation.__name__}",
            # Versions before 5.7 refuse the key, so it is written only where it says something.
            **({} if projection.residual is None else {"use_residual": True}),
        },
    )
    save_file({name: weights.contiguous() for name, weights in projection.state_dict().items()}, folder / "model.safetensors")
