"""Readers of made data sets, shared by the tests of makers."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adiabat.config.reader import read_settings
from adiabat.config.section import Section
from adiabat.core.errors import ConfigError, DataError


def rows(path: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in gzip.decompress(path.read_bytes()).decode("utf-8").split("\n") if line
    ]


def made(out: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((out / "made.json").read_text(encoding="utf-8"))
    return record


def maker(make: Callable[..., object], kind: type[Section]) -> Callable[..., dict[str, Any]]:
    """A function that makes a data set of a source by assignments of settings, and returns its record."""

    def run(source: Path, out: Path, *settings: str) -> dict[str, Any]:
        make(source, out, read_settings(kind, None, settings))
        return made(out)

    return run


def fault(make: Callable[..., object], source: Path, out: Path, *settings: str) -> str:
    """The message of a maker that must fail and leave nothing."""
    with pytest.raises((ConfigError, DataError)) as caught:
        make(source, out, *settings)
    assert not out.exists()
    return str(caught.value)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def corpus(out: Path) -> dict[str, str]:
    """Id to title and text, as the readers join them."""
    return {
        row["_id"]: f"{row.get('title', '')} {row['text']}".strip() for row in rows(out / "corpus.jsonl.gz")
    }


def triplets(out: Path, stem: str) -> list[tuple[str, list[str], list[str]]]:
    """Query and the texts of its documents, looked up by their ids."""
    texts = corpus(out)
    return [
        (row["query"], [texts[name] for name in row["pos"]], [texts[name] for name in row["neg"]])
        for row in rows(out / f"{stem}.jsonl.gz")
    ]
