"""What a command left, without what differs between equal runs, and how it differs from what another one
left.
"""

import csv
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

VARYING = (
    "seconds",
    "created",
    "command",
    "checksum",
    "proof",
    "log",
    "step_seconds",
    "memory",
    "versions",
    "tuning",
)
"""Keys of records that differ between equal runs."""


def contents(folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """What a command left, without what differs between equal runs: times of day, seconds, and checksums of
    those.

    Args:
        folder: It worked in.
        names: Of what it left.

    Returns:
        Path to content.
    """
    files = [
        path
        for name in names
        for path in ([folder / name] if (folder / name).is_file() else sorted((folder / name).rglob("*")))
    ]
    kept = (
        path for path in files if path.is_file() and not PASSED_OVER.search(str(path.relative_to(folder)))
    )
    return {str(path.relative_to(folder)): _content(path) for path in kept}


PASSED_OVER = re.compile(r"\.checked\.json|\.call\.json|\breport\.html$|^cache/\.making-")
"""What is remembered of checks and calls, with temporary files, which the next one replaces; pages, which
show times; and what a killed run leaves in a cache that others share, which is removed once it is old."""


def _content(path: Path) -> Any:
    try:
        return _read(path)
    except (OSError, ValueError):
        # Damaged on purpose, and read by nobody.
        return path.read_bytes()


def _read(path: Path) -> Any:
    if path.suffix == ".parquet":
        rows = pq.ParquetFile(path).read().to_pylist()
        return [
            plain({**row, **({"record": json.loads(row["record"])} if "record" in row else {})})
            for row in rows
        ]
    if path.suffix == ".json" and path.name != "tokenizer.json":
        record = plain(json.loads(path.read_text(encoding="utf-8")))
        # Records have times of day; the files themselves are compared.
        dated = path.name == "checksums.json" and path.parent.name == "lessons"
        return sorted(record) if dated else record
    if path.name == "log.jsonl":
        return [plain(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    if path.suffix == ".csv":
        return [plain(row) for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())]
    if path.suffix in (".md", ".tex"):
        return re.sub(r"[0-9.]+ ?(ms|s|min|h)\b", "", path.read_text(encoding="utf-8"))
    return path.read_bytes()


def plain(value: Any) -> Any:
    """A record without what differs between equal runs.

    Args:
        value: JSON.

    Returns:
        The same without the keys in `VARYING`.
    """
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items() if key not in VARYING}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Files that are missing, more than wanted, or other ones.

    Args:
        found: From `contents`.
        wanted: Likewise.

    Returns:
        Their paths.
    """
    return sorted(
        path
        for path in {*found, *wanted}
        if found.get(path) != wanted.get(path) or (path in found) != (path in wanted)
    )
