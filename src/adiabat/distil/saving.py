"""A static model on disk, as model2vec and sentence-transformers load it (mission E3)."""

import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from adiabat.config.distil import StaticSection
from adiabat.distil.static import Distilled
from adiabat.errors import JobError
from adiabat.model.layout import write_json
from adiabat.model.static_files import TOKENIZER, WEIGHTS, is_model2vec

LONGEST = 1_000_000
"""Tokens of a text; model2vec says so of models that have no limit."""


def save_static(found: Distilled, section: StaticSection, folder: Path, *, teacher: str) -> None:
    """Write a directory that both libraries load, and give the same embeddings with.

    Args:
        found: The model.
        section: How it was made.
        folder: An existing directory; the list of modules comes last, so that a directory with one is whole.
        teacher: Its name.

    Raises:
        JobError: If the disk is full or not writable.
    """
    partial = folder / ".partial"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        save_file(_tensors(found, section), partial / WEIGHTS)
        found.vocabulary.tokenizer.save(str(partial / TOKENIZER))
        write_json(partial / "config.json", _config(found, section, teacher))
        write_json(partial / "config_sentence_transformers.json", {"similarity_fn_name": "cosine", "prompts": {}})
        if section.normalize:
            (folder / "1_Normalize").mkdir(exist_ok=True)
        write_json(partial / "modules.json", _modules(section))
        for name in (WEIGHTS, TOKENIZER, "config.json", "config_sentence_transformers.json", "modules.json"):
            (partial / name).replace(folder / name)
    except OSError as fault:
        raise JobError(f"{folder} could not be written: {fault.strerror}; free some space and run the same command again") from fault
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _tensors(found: Distilled, section: StaticSection) -> dict[str, np.ndarray]:
    """Weights are multiplied into the rows; of whole numbers they stand beside them, with the scale of each row."""
    if section.dtype != "int8":
        return {"embeddings": np.ascontiguousarray(found.vectors * found.weights[:, None], dtype=section.dtype)}
    scales = np.abs(found.vectors).max(axis=1) / 127.0
    rows = np.rint(found.vectors / np.where(scales, scales, 1.0)[:, None]).astype(np.int8)
    return {"embeddings": rows, "weights": (scales * found.weights).astype(np.float32)}


def _config(found: Distilled, section: StaticSection, teacher: str) -> dict[str, object]:
    return {
        "model_type": "model2vec",
        "architectures": ["StaticModel"],
        "tokenizer_name": teacher,
        "apply_pca": None if section.reduction == "none" else found.vectors.shape[1],
        "sif_coefficient": section.sif if section.weighting == "sif" else None,
        "hidden_dim": found.vectors.shape[1],
        "seq_length": LONGEST,
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
    """Whether a directory holds a whole static model of model2vec's layout.

    Args:
        folder: Perhaps missing.

    Returns:
        True where it does.
    """
    return (folder / "modules.json").is_file() and is_model2vec(folder)
