"""The dataset cache: pairs that were read and numbered once, so that later runs over the same files need not read them again.

Texts are stored in Arrow files and read by row; only numbers are in memory, about 50 bytes for each listed document.
"""

import hashlib
import json
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from adiabat.core.errors import DataError, StoreError
from adiabat.core.files import read_json, reading, user_cache, write_json
from adiabat.core.provenance import digest_of, require_seal, seal
from adiabat.core.ragged import Ragged
from adiabat.data.lines import HUB_PREFIX
from adiabat.data.pair_sets import EQUAL_TEXTS, PairBuilder, PairSet, TextList, Texts, text_numbers
from adiabat.store.corpus_files import ID_BATCH, TEXT_BATCH, StringColumn, StringColumnWriter

FORMAT = 4
"""Format of the folder, part of its name."""

MAKING = ".making-"
"""Prefix of an unfinished folder's name."""

ABANDONED_SECONDS = 24 * 3600
"""Age from which an unfinished folder is assumed to be left by a killed process."""

SAMPLES, SAMPLED_BYTES = 16, 1 << 16
"""Number of sampled blocks that identify a file beside its size and date; the first and last are among them."""

READABLE = "check its permissions"

COLUMNS = {"queries": TEXT_BATCH, "documents": TEXT_BATCH, "query_ids": ID_BATCH}
EACH = ("query", "positive", "sources", "topics", "tags")
Number = Callable[[PairBuilder], list[str]]
"""Numbers examples, and returns the names of their sets."""


def cache_folder(setting: str | None) -> Path:
    """Directory of the cache."""
    return user_cache() if setting is None else Path(setting)


def cache_key(description: dict[str, Any]) -> str:
    """Name of a folder of the cache."""
    return hashlib.sha256(json.dumps({"format": FORMAT, **description}, sort_keys=True).encode()).hexdigest()[:32]


def numbered_pairs(number: Number, folder: Path | None, *, advice: str) -> tuple[PairSet, ...]:
    """Open the pairs of a folder, or number them and store them there; without a folder they stay in memory."""
    if folder is None:
        columns = TextList(), TextList(), TextList()
        builder = PairBuilder(*columns)
        return builder.built(number(builder), Texts(*columns))
    if folder.is_dir():
        try:
            return _opened(folder)
        except (DataError, StoreError) as damage:
            warnings.warn(str(damage), stacklevel=2)
            shutil.rmtree(folder, ignore_errors=True)
    cache = folder.parent
    with _plain_faults(cache, advice):
        cache.mkdir(parents=True, exist_ok=True)
        _clear_abandoned(cache)
        making = Path(tempfile.mkdtemp(prefix=MAKING, dir=cache))
    try:
        with _plain_faults(cache, advice):
            _write(number, making)
            try:
                making.rename(folder)
            except OSError:
                # Another process may have been faster.
                if not folder.is_dir():
                    raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return _opened(folder)


def files_of(source: str) -> list[tuple[str, ...]]:
    """Identity of a source, without reading all of it."""
    return [_state(path) if path.is_file() else (str(path),) for path in _files(source)]


def contents_of(sources: Iterable[str]) -> dict[str, str]:
    """Path of each file to the SHA-256 of its bytes, so that a copy with another date is the same; a hub name maps to ""."""
    digests = dict[str, str]()
    for path in (path for source in sources for path in _files(source)):
        with reading(path, remedy=READABLE):
            digests[str(path)] = digest_of(path).sha256 if path.is_file() else ""
    return digests


def _files(source: str) -> list[Path]:
    """The files of a source; a hub name or a missing file is returned unchanged."""
    if source.startswith(HUB_PREFIX):
        return [Path(source)]
    path = Path(source).resolve()
    return sorted(child for child in path.rglob("*") if child.is_file()) if path.is_dir() else [path]


def _state(path: Path) -> tuple[str, ...]:
    digest = hashlib.sha256()
    with reading(path, remedy=READABLE), path.open("rb") as file:
        state = os.fstat(file.fileno())
        for start in np.linspace(0, max(0, state.st_size - SAMPLED_BYTES), SAMPLES, dtype=np.int64).tolist():
            file.seek(start)
            digest.update(file.read(SAMPLED_BYTES))
    return str(path), *map(str, (state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino)), digest.hexdigest()


@contextmanager
def _plain_faults(folder: Path, advice: str) -> Iterator[None]:
    try:
        yield
    except OSError as fault:
        raise DataError(f"{folder} must have room for the pairs, got: {fault.strerror or fault}; free some space, or {advice}") from fault


def _clear_abandoned(cache: Path) -> None:
    for folder in cache.glob(f"{MAKING}*"):
        if time.time() - folder.stat().st_mtime > ABANDONED_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def _write(number: Number, folder: Path) -> None:
    with ExitStack() as stack:
        sinks = [
            stack.enter_context(StringColumnWriter(folder / f"{name}.arrow", name=name, batch_rows=rows)) for name, rows in COLUMNS.items()
        ]
        builder = PairBuilder(*sinks)
        names = number(builder)
    texts = _texts(folder)
    sets = builder.built(names, texts)
    arrays = {f"{index}.{name}": getattr(pairs, name) for index, pairs in enumerate(sets) for name in EACH}
    for name in ("answers", "negatives"):
        lists: Ragged = getattr(sets[0], name)
        arrays |= {f"{name}.values": lists.values, f"{name}.offsets": lists.offsets}
    np.savez(folder / "numbers.npz", **arrays)
    queries, documents = text_numbers(replace(texts, folder=None))
    np.savez(folder / EQUAL_TEXTS, queries=queries, documents=documents)
    about = {"sha256": texts.digest().hex(), "sets": [{"name": pairs.name, "notes": pairs.notes} for pairs in sets]}
    write_json(about, folder / "about.json")
    seal(folder, sorted(path.name for path in folder.iterdir()))


def _texts(folder: Path, sha256: str = "") -> Texts:
    queries, documents, query_ids = (StringColumn(folder / f"{name}.arrow") for name in COLUMNS)
    return Texts(queries, documents, query_ids, folder, sha256)


def _opened(folder: Path) -> tuple[PairSet, ...]:
    remedy = "the pairs are read again"
    require_seal(folder, remedy=remedy)
    about = read_json(folder / "about.json", remedy=remedy)
    with reading(folder / "numbers.npz", remedy=remedy), np.load(folder / "numbers.npz") as numbers:
        arrays = {name: numbers[name] for name in numbers.files}
    texts = _texts(folder, about["sha256"])
    answers, negatives = (Ragged(arrays[f"{name}.values"], arrays[f"{name}.offsets"]) for name in ("answers", "negatives"))
    sets = []
    for number, each in enumerate(about["sets"]):
        columns = {name: arrays[f"{number}.{name}"] for name in EACH}
        sets.append(PairSet(each["name"], texts, answers=answers, negatives=negatives, notes=tuple(each["notes"]), **columns))
    return tuple(sets)
