"""Directories of models, built step by step: what writes one, and what changes its files."""

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.tiny import edit, write

LIMITS = "sentence_bert_config.json"
ROOT = "config_sentence_transformers.json"
POOLING, DENSE = "1_Pooling/config.json", "2_Dense/config.json"
ROUTER = "router_config.json"
TOKENIZER = "tokenizer_config.json"
INDEX = "model.safetensors.index.json"

Build = Callable[[Path], object]
"""Writes or changes the directory of a model."""


def after(*builds: Build) -> Build:
    """One step after the other."""

    def build(folder: Path) -> None:
        for step in builds:
            step(folder)

    return build


def written(name: str, content: object) -> Build:
    """Give a file another content."""
    return lambda folder: write(folder, name, content)


def edited(name: str, **changes: object) -> Build:
    """Change keys of a JSON file."""
    return lambda folder: edit(folder, name, **changes)


def removed(*names: str) -> Build:
    """Remove files, and folders with all that is in them."""

    def remove(folder: Path) -> None:
        for name in names:
            shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()

    return remove


def truncated(name: str) -> Build:
    """Keep the first 500 bytes of a file."""
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:500])


def renamed(name: str, other: str) -> Build:
    """Give a file another name."""
    return lambda folder: (folder / name).rename(folder / other)
