"""PEFT: low-rank adapters over the base model, in a directory that sentence-transformers loads too."""

from pathlib import Path

from peft import LoraConfig
from safetensors.torch import save_file
from transformers.pytorch_utils import Conv1D

from adiabat.core.errors import ModelError
from adiabat.exporting.differences import differences, factors
from adiabat.models.deltas import Weights
from adiabat.models.encoder import Encoder
from adiabat.models.towers import DualEncoder


def write_adapter(
    one: DualEncoder, base: Encoder, base_name: str, rank: int, folder: Path, *, half: bool
) -> None:
    """Replace the backbone of a saved one-tower model by the adapters that make it of its base.

    Args:
        one: The saved model.
        base: Tower of the base model.
        base_name: Directory or hub name of the base model, for other programs.
        rank: Rank of the adapters.
        folder: Holds the saved model.
        half: Write float16.
    """
    changes = differences(one.query, base)
    tensors: Weights = {}
    targets = list[str]()
    transposed = False
    for name, difference in changes.items():
        path = name.removesuffix(".weight")
        layer = base.backbone.get_submodule(path) if name.endswith(".weight") else None
        is_transposed = isinstance(layer, Conv1D)
        pair = factors(difference.T if is_transposed else difference, rank) if difference.ndim == 2 else None
        if pair is None:
            raise ModelError(
                f"export.to must be delta or sentence-transformers where {name} changed by more than rank "
                f"{rank}, got peft, which holds low-rank changes of dense layers; choose one of them"
            )
        transposed |= is_transposed
        targets.append(path)
        outer, inner = (part.half() if half else part for part in pair)
        tensors |= {
            f"base_model.model.{path}.lora_A.weight": inner.contiguous(),
            f"base_model.model.{path}.lora_B.weight": outer.contiguous(),
        }
    settings = LoraConfig(
        r=rank,
        lora_alpha=rank,
        target_modules=targets,
        fan_in_fan_out=transposed,
        task_type="FEATURE_EXTRACTION",
        base_model_name_or_path=base_name,
        inference_mode=True,
    )
    settings.save_pretrained(str(folder))
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
