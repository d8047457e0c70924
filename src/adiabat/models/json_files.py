"""Small JSON files of model directories, read and written without torch."""

import json
from pathlib import Path
from typing import Any

from adiabat.core.disk import new_file
from adiabat.core.errors import ModelError
from adiabat.core.files import LARGEST_CONFIGURATION, is_there, read_plain, reading

ROOT_FILE = "config_sentence_transformers.json"


def read_json(path: Path) -> dict[str, Any]:
    """The object in a small JSON file; empty if the file is missing."""
    content: dict[str, Any] = read_typed(path, dict) if is_there(path, error=ModelError) else {}
    return content


def read_typed(path: Path, kind: type[dict[str, Any]] | type[list[Any]]) -> Any:
    """The object or list in a small JSON file."""
    with reading(path, remedy="get the model again", error=ModelError):
        content = json.loads(read_plain(path, limit=LARGEST_CONFIGURATION, error=ModelError).decode("utf-8"))
    if not isinstance(content, kind):
        raise ModelError(f"{path} must hold a JSON {'object' if kind is dict else 'list'}, got {type(content).__name__}")
    return content


def write_json(path: Path, content: object) -> None:
    """Write one small JSON file."""
    with new_file(path) as file:
        file.write(json_text(content).encode())


def json_text(content: object) -> str:
    """The text of a small JSON file."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
