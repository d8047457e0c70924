"""Files as another version of adiabat might have written them: a key is gone, new or of another type, and
every checksum is right.
"""

import hashlib
import json
import random
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import tomli_w

from adiabat.core.files import CHECKSUM, sealed_json, write_parquet
from adiabat.core.provenance import line_of
from adiabat.core.version import WRITER

KINDS = ("drop", "add", "retype")
NEW_KEY = "a_key_of_another_version"
SUFFIXES = (".json", ".jsonl", ".toml", ".parquet")

Keys = tuple[str | int, ...]
"""Keys and positions that lead to a value."""


def keys_of(plain: Any, above: Keys = ()) -> Iterator[Keys]:
    """Where each value of nested data is; of a list, only its first entry is looked into, since others are
    like it.
    """
    if isinstance(plain, dict):
        for name, value in plain.items():
            yield (*above, name)
            yield from keys_of(value, (*above, name))
    elif isinstance(plain, list) and plain:
        yield from keys_of(plain[0], (*above, 0))


def changed(plain: Any, keys: Keys, kind: str) -> Any:
    """Nested data with one change of `KINDS` at a place; a key is added beside it."""
    copy = json.loads(json.dumps(plain))
    table = copy
    for key in keys[:-1]:
        table = table[key]
    if kind == "drop":
        del table[keys[-1]]
    elif kind == "add":
        table[NEW_KEY] = 0
    else:
        table[keys[-1]] = another_type(table[keys[-1]])
    return copy


def another_type(value: Any) -> Any:
    """A value that no reader can take for the former one."""
    return {"of": "another version"} if isinstance(value, str | list) else "of another version"


def plain_of(path: Path) -> tuple[list[Any], int] | None:
    """The records of a file, and the number of the one that is changed; None if the file has none."""
    try:
        if path.suffix == ".json":
            return [json.loads(path.read_text(encoding="utf-8"))], 0
        if path.suffix == ".jsonl":
            rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            # Rows of users have no checksum.
            return (rows, len(rows) - 1) if rows and CHECKSUM in rows[-1] else None
        if path.name == "config.toml":
            return [tomllib.loads(path.read_text(encoding="utf-8"))], 0
        if path.suffix == ".parquet":
            return _of_parquet(path), 0
    except (ValueError, UnicodeDecodeError):
        return None
    return None


def _of_parquet(path: Path) -> list[Any]:
    table = pq.read_table(path)
    if "record" in table.column_names:
        return [json.loads(record) for record in table["record"].to_pylist()]
    return [json.loads(table.schema.metadata[b"adiabat"])]


def write(path: Path, records: list[Any]) -> None:
    """Write the records of a file again, with the checksums that they have now."""
    if path.suffix == ".json":
        path.write_text(_resealed(records[0]), encoding="utf-8")
    elif path.suffix == ".jsonl":
        before, lines = "", []
        for row in records:
            line = line_of({key: value for key, value in row.items() if key != CHECKSUM}, after=before)
            before = line.checksum
            lines.append(str(line))
        path.write_text("".join(lines), encoding="utf-8")
    elif path.name == "config.toml":
        head = path.read_text(encoding="utf-8").partition("\n")[0]
        text = tomli_w.dumps(records[0])
        checksum = hashlib.sha256(text.encode()).hexdigest()
        path.write_text(f"{head[: -len(checksum)]}{checksum}\n{text}", encoding="utf-8")
    else:
        _write_parquet(path, records)


def _resealed(record: dict[str, Any]) -> str:
    # Files of other libraries in a model's folder have no checksum.
    if CHECKSUM not in record:
        return json.dumps(record)
    content = {key: value for key, value in record.items() if key not in (CHECKSUM, WRITER)}
    return sealed_json(content, writer=WRITER in record)


def _write_parquet(path: Path, records: list[Any]) -> None:
    table = pq.read_table(path)
    texts = [json.dumps(record) for record in records]
    if "record" in table.column_names:
        table = table.set_column(table.column_names.index("record"), "record", [texts])
    else:
        table = table.replace_schema_metadata({**table.schema.metadata, b"adiabat": texts[0].encode()})
    write_parquet(table, path)


def mutate(path: Path, kind: str, chance: random.Random) -> str:
    """Change one value of a file.

    Returns:
        The place that was changed; "" if the file has none.
    """
    found = plain_of(path)
    if found is None or not isinstance(found[0][found[1]], dict):
        return ""
    records, number = found
    places = [
        keys
        for keys in keys_of(records[number])
        if keys[-1] not in (CHECKSUM, WRITER) and isinstance(keys[-1], str)
    ]
    if not places:
        return ""
    keys = chance.choice(places)
    records[number] = changed(records[number], keys, kind)
    write(path, records)
    return ".".join(map(str, keys))
