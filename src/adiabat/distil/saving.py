"""A static model on disk, as model2vec and sentence-transformers load it (mission E3)."""

from pathlib import Path

import numpy as np
from safetensors.numpy import save

from adiabat.config.distil import StaticSection
from adiabat.distil.static import Distilled
from adiabat.errors import DataError
from adiabat.files import make_folder, write_text, write_together
from adiabat.model.layout import json_text
from adiabat.model.static_files import TOKENIZER, WEIGHTS, is_model2vec

LONGEST = 1_000_000
"""Tokens of a text; model2vec says so of models that have no limit."""


def save_static(found: Distilled, section: StaticSection, folder: Path, *, teacher: str) -> None:
    """Write the files of a model that both libraries load, and give the same embeddings with; it is none yet without `list_modules`."""
    write_together(
        {
            folder / WEIGHTS: save(_tensors(found, section)),
            folder / TOKENIZER: found.vocabulary.tokenizer.to_str(pretty=True),
            folder / "config.json": json_text(_config(found, section, teacher)),
            folder / "config_sentence_transformers.json": json_text({"similarity_fn_name": "cosine", "prompts": {}}),
        }
    )


def list_modules(section: StaticSection, folder: Path) -> None:
    """Write what makes a directory a model, after all that belongs to it."""
    if section.normalize:
        make_folder(folder / "1_Normalize")
    write_text(json_text(_modules(section)), folder / "modules.json")


def _tensors(found: Distilled, section: StaticSection) -> dict[str, np.ndarray]:
    """Weights are multiplied into the rows; of whole numbers they stand beside them, with the scale of each row."""
    if section.dtype != "int8":
        return {"embeddings": _narrowed(found.vectors * found.weights[:, None], section.dtype)}
    scales = np.abs(found.vectors).max(axis=1) / 127.0
    rows = np.rint(found.vectors / np.where(scales, scales, 1.0)[:, None]).astype(np.int8)
    return {"embeddings": rows, "weights": (scales * found.weights).astype(np.float32)}


def _narrowed(exact: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(exact, dtype=dtype)
    if not np.isfinite(rows).all():
        raise DataError(f"static.dtype must hold numbers up to {np.abs(exact).max():.3g}, got {dtype}; take float32")
    return rows


def _config(found: Distilled, section: StaticSection, teacher: str) -> dict[str, object]:
    return {
        "model_type": "model2vec",
        "architectures": ["StaticModel"],
        "tokenizer_name": teacher,
        "apply_pca": None if section.reduction == "none" else found.vectors.shape[1],
        "sif_coefficient": section.sif if section.weighting == "sif" else None,
        "hidden_dim": found.vectors.shape[1],
        "seq_length": LONGEST,
        # Without it, model2vec alone would cut texts, at 512 tokens.
        "max_length": None,
        "normalize": section.normalize,
        "pooling": section.pooling,
        "embedding_dtype": section.dtype,
    }


def _modules(section: StaticSection) -> list[dict[str, object]]:
    listed: list[dict[str, object]] = [{"idx": 0, "name": "0", "path": ".", "type": "sentence_transformers.models.StaticEmbedding"}]
    if section.normalize:
        listed.append({"idx": 1, "name": "1", "path": "1_Normalize", "type": "sentence_transformers.models.Normalize"})
    return listed


def is_distilled(folder: Path) -> bool:
    """Whether a directory holds a whole static model of model2vec's layout."""
    return (folder / "modules.json").is_file() and is_model2vec(folder)
