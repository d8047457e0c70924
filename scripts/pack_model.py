"""A sentence-transformers model as one small file, for a machine that can fetch nothing: weights in 8 bits,
and its other files.

    python scripts/pack_model.py pack MODEL FILE.npz  # a directory or `demo`; 21 MB for all-MiniLM-L6-v2
    python scripts/pack_model.py unpack FILE.npz FOLDER
    python scripts/pack_model.py unpack FILE.npz FOLDER --shape 1024 24 16 4096 [--seed 0]

A weight of a matrix is an integer of 8 bits times a 127th of the largest weight of its row; vectors stay in
float32. Cosines to vectors of
the original are about 0.9995: enough to compare devices with. `--shape` (hidden size, blocks, heads,
intermediate size) writes random
weights of another shape instead, with the same tokenizer: those of BERT-large above.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

WEIGHTS, FILES = "weights/", "files/"
LEFT_OUT = ("README.md", ".gitattributes", "data_config.json")
LARGEST = 64 << 20
"""Bytes that a file may have, to travel with a working tree."""


def pack(model: Path, file: Path) -> None:
    """Write the file."""
    arrays: dict[str, np.ndarray] = {}
    for path in sorted(model.rglob("*")):
        if path.is_file() and path.suffix != ".safetensors" and path.name not in LEFT_OUT:
            arrays[FILES + path.relative_to(model).as_posix()] = np.frombuffer(
                path.read_bytes(), dtype=np.uint8
            )
    for name, tensor in load_file(model / "model.safetensors").items():
        if tensor.ndim != 2:
            arrays[WEIGHTS + name] = tensor.numpy()
            continue
        scales = tensor.abs().amax(dim=1, keepdim=True).clamp_min(1e-30) / 127
        arrays[f"{WEIGHTS}{name}|rows"] = torch.round(tensor / scales).to(torch.int8).numpy()
        arrays[f"{WEIGHTS}{name}|scales"] = scales.numpy()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    size = file.stat().st_size
    print(f"{file}: {size / 1e6:.1f} MB")
    if size > LARGEST:
        raise SystemExit(
            f"{file} must have at most {LARGEST >> 20} MiB, got {size >> 20}; pack a smaller model"
        )


def unpack(file: Path, folder: Path) -> None:
    """Write the model's directory; a finished one is left alone."""
    if (folder / "model.safetensors").exists():
        return
    with np.load(file) as arrays:
        _write_files(arrays, folder)
        weights = {}
        for name in arrays.files:
            if name.startswith(WEIGHTS) and not name.endswith("|scales"):
                stem = name.removesuffix("|rows")
                values = (
                    arrays[name]
                    if stem == name
                    else arrays[name].astype(np.float32) * arrays[f"{stem}|scales"]
                )
                weights[stem.removeprefix(WEIGHTS)] = torch.from_numpy(np.ascontiguousarray(values))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def unpack_shape(file: Path, folder: Path, shape: Sequence[int], *, seed: int) -> None:
    """Write a directory with random weights of another shape."""
    from transformers import AutoConfig, AutoModel

    if (folder / "model.safetensors").exists():
        return
    with np.load(file) as arrays:
        _write_files(arrays, folder)
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    config = AutoConfig.from_pretrained(folder, **dict(zip(names, shape, strict=True)))
    torch.manual_seed(seed)
    AutoModel.from_config(config).save_pretrained(folder)  # type: ignore[no-untyped-call]
    pooling = folder / "1_Pooling" / "config.json"
    values = json.loads(pooling.read_text(encoding="utf-8"))
    pooling.write_text(
        json.dumps({**values, "word_embedding_dimension": config.hidden_size}), encoding="utf-8"
    )


def _write_files(arrays: "np.lib.npyio.NpzFile", folder: Path) -> None:
    for name in arrays.files:
        if name.startswith(FILES):
            path = folder / name.removeprefix(FILES)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(arrays[name].tobytes())


def main() -> None:
    """Pack or unpack."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["pack", "unpack"])
    parser.add_argument("source", help="MODEL to pack, or FILE to unpack")
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", type=int, nargs=4, metavar=("HIDDEN", "BLOCKS", "HEADS", "INTERMEDIATE"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.action == "pack":
        from adiabat.models.model_paths import demo_model_folder

        pack(demo_model_folder() if options.source == "demo" else Path(options.source), options.out)
    elif options.shape:
        unpack_shape(Path(options.source), options.out, options.shape, seed=options.seed)
    else:
        unpack(Path(options.source), options.out)


if __name__ == "__main__":
    main()
