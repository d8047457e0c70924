"""Model directories that lost a file: without it they would be read as another model, with other vectors and
no error.

A directory is refused only if no version of the libraries can have written it so. A plain model of
transformers has none of the files of sentence-transformers, and versions before 2.0 wrote no root
configuration. Folders that nothing reads, such as ``onnx``, are not checked.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from adiabat.core.errors import ModelError
from adiabat.core.files import (
    LARGEST_VOCABULARY,
    require_content,
    require_no_zero_bytes,
    require_regular,
    require_small,
)
from adiabat.models.json_files import ROOT_FILE, exists, read_json, read_typed

HUB_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")
"""Configuration, tokenizer and weights; pickles and code only where they are trusted."""

LARGEST_POINTER = 1024
"""Bytes that the specification of Git LFS allows a pointer, one fewer than these."""

VOCABULARIES = ("vocab.txt", "merges.txt")
"""Lists of words: without a line, or with two in one, every later word has another number."""

MODULE_FOLDER = re.compile(r"(\w+_)?\d+_(Transformer|Pooling|Dense|Normalize|StaticEmbedding|Router|Asym)")
"""Folders that sentence-transformers writes for modules, such as ``1_Pooling`` and
``query_0_Transformer``."""

NEW_TYPES = re.compile(r"sentence_transformers\.(?!models\.)\w+\.modules\.")
"""Types of modules as versions from 5.4 on write them."""

REMEDY = "get the model again"


def require_nothing_lost(folder: Path) -> None:
    """Refuse a directory without the list of modules or the root configuration that it had."""
    if not exists(folder / "modules.json"):
        lost, signs = "modules.json, which lists its modules", _signs_of_modules(folder)
    elif not exists(folder / ROOT_FILE):
        lost, signs = f"{ROOT_FILE}, which has its prompts and similarity", _signs_of_a_root(folder)
    else:
        return
    if sign := next(signs, None):
        raise ModelError(f"{folder} must hold {lost}: it has {sign}; {REMEDY}")


def require_files(folder: Path) -> None:
    """Refuse a folder with pipes, devices, endless files, lost links and blocks, or files that stand in place
    of their content.
    """
    for path in sorted(folder.iterdir()):
        require_regular(path, error=ModelError)
        if not (any(map(path.match, HUB_FILES)) and exists(path) and path.is_file()):
            continue
        size = path.stat().st_size
        if size <= LARGEST_POINTER:
            require_content(path, error=ModelError)
        if path.suffix in (".json", ".txt"):
            require_small(path, size, LARGEST_VOCABULARY, error=ModelError)
        if path.name in VOCABULARIES:
            require_no_zero_bytes(path, error=ModelError)


def is_stamped(folder: Path) -> bool:
    """Whether sentence-transformers wrote a directory, from version 2.0 on."""
    return "__version__" in read_json(folder / ROOT_FILE)


def require_settings_of_tokens(folder: Path, limits: tuple[str, ...]) -> None:
    """Refuse the folder of a backbone, in a stamped directory, without the settings of its tokens.

    Args:
        limits: Names that the file with the token limit may have.
    """
    lost = []
    if not any([exists(folder / name) for name in limits]):
        lost.append(limits[0])
    settings = "tokenizer_config.json"
    if exists(folder / "tokenizer.json") and not exists(folder / settings):
        lost.append(settings)
    if lost:
        raise ModelError(
            f"{folder} must hold {' and '.join(lost)}: every version of sentence-transformers "
            f"that writes __version__ to {ROOT_FILE} "
            f"writes that too; {REMEDY}, or remove __version__ if the model never had it"
        )


def require_shards(folder: Path, names: set[str]) -> None:
    """Refuse a directory without all weight files of its index."""
    lost = sorted(name for name in names if not exists(folder / name))
    if lost and not exists(folder / "model.safetensors"):
        listed = ", ".join(lost[:3]) + (f" and {len(lost) - 3} more" if len(lost) > 3 else "")
        raise ModelError(
            f"{folder} must hold the weights that model.safetensors.index.json "
            f"lists, got no {listed}; {REMEDY}"
        )


def _signs_of_modules(folder: Path) -> Iterator[str]:
    """Traces of modules in a directory that lists none."""
    yield from (
        f"a folder {child.name}"
        for child in sorted(folder.iterdir())
        if MODULE_FOLDER.fullmatch(child.name) and child.is_dir()
    )
    if exists(folder / "router_config.json"):
        yield "router_config.json"
    if is_stamped(folder):
        yield f"a __version__ in {ROOT_FILE}"


def _signs_of_a_root(folder: Path) -> Iterator[str]:
    """Traces of a version that writes a root configuration."""
    if exists(folder / "router_config.json"):
        yield "router_config.json"
    for entry in read_typed(folder / "modules.json", list):
        if isinstance(entry, dict) and NEW_TYPES.match(str(entry.get("type"))):
            yield f"a module of type {entry['type']}"
