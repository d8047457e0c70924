"""Small JSON files of model directories, read and written without torch."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from adiabat.core.disk import new_file
from adiabat.core.errors import ModelError
from adiabat.core.files import LARGEST_CONFIGURATION, is_there, read_plain, reading

ROOT_FILE = "config_sentence_transformers.json"


def exists(path: Path) -> bool:
    """`is_there` for the files of a model."""
    return is_there(path, error=ModelError)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a small JSON file; empty if the file is missing."""
    content: dict[str, Any] = read_typed(path, dict) if exists(path) else {}
    return content


def read_typed(path: Path, kind: type[dict[str, Any]] | type[list[Any]]) -> Any:
    """The object or list in a small JSON file."""
    with reading(path, remedy="get the model again", error=ModelError):
        text = read_plain(path, limit=LARGEST_CONFIGURATION, error=ModelError).decode("utf-8")
        content = json.loads(text, object_pairs_hook=partial(_without_nan, path))
    if not isinstance(content, kind):
        raise ModelError(
            f"{path} must hold a JSON {'object' if kind is dict else 'list'}, got {type(content).__name__}"
        )
    return content


def _without_nan(path: Path, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a JSON file without NaN, which Python reads, but no setting means; it may have Infinity,
    as those of transformers do.
    """
    for name, value in pairs:
        if isinstance(value, float) and math.isnan(value):
            raise ModelError(f"{path}: {name} must have a value, got NaN; correct it, or get the model again")
    return dict(pairs)


def flag_of(record: Mapping[str, Any], name: str, *, path: Path, default: bool = False) -> bool:
    """A switch in a model's file: true or false, or what other readers take for these, namely 1, 0 and
    null.
    """
    value = record.get(name, default)
    if value is None or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise ModelError(f"{path}: {name} must be true or false, got {value!r:.60}; correct it")


def require_switches(record: Mapping[str, Any], names: Iterable[str], *, path: Path) -> None:
    """`flag_of` for switches that another library reads."""
    for name in names:
        flag_of(record, name, path=path)


def size_of(record: Mapping[str, Any], name: str, *, path: Path) -> int:
    """A width or a number of rows in a model's file."""
    value = record.get(name)
    if type(value) is not int or value < 1:
        raise ModelError(f"{path}: {name} must be a whole number above 0, got {value!r:.60}; correct it")
    return value


def table_in(record: Mapping[str, Any], name: str, *, path: Path) -> dict[str, Any]:
    """A table in a model's file, such as its prompts; empty if it is missing or null."""
    value = record.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ModelError(f"{path}: {name} must map names to values, got {value!r:.60}; correct it")
    return value


def write_json(path: Path, content: object) -> None:
    """Write one small JSON file."""
    with new_file(path) as file:
        file.write(json_text(content).encode())


def json_text(content: object) -> str:
    """The text of a small JSON file."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
