"""Vectors, ids and texts that `import_vectors` is given, as files."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from adiabat.api.arguments import (
    Data,
    data_of,
    is_dataset,
    is_frame,
    is_pandas,
    is_polars,
    path_of,
    texts_with_ids,
    wrong_type,
)
from adiabat.core.disk import new_file
from adiabat.core.wording import remember_rows
from adiabat.data.sources import Source, with_columns
from adiabat.store.arrow_tables import TABLE_SUFFIXES
from adiabat.store.vector_sources import CODES, VECTOR_NAMES, open_vectors


class Imported(NamedTuple):
    """The file of vectors, the file or list of ids, and the corpus, of an import; None for those that are not
    given.
    """

    vectors: str
    ids: Any
    corpus: str | None


def imported(
    vectors: Any, ids: Any, texts: Data | None, columns: Mapping[str, str], folder: Path
) -> Imported:
    """What is imported, as files; rows in memory are written to new ones."""
    if ids is None and is_pandas(vectors) and not _has_vectors(vectors, columns):
        ids = vectors.index
    # A file of ids is read later, by the reader of stores.
    is_file = isinstance(ids, str | os.PathLike)
    names = ids if ids is None or is_file else [str(name) for name in ids]
    listed, texts = _listed(texts)
    if listed is not None and is_file:
        raise wrong_type("ids", "a list where texts is a list", ids)
    ids_column, of_texts = some_of(columns, "doc_id"), some_of(columns, "text", "title")
    file = _vector_file(vectors, folder, columns)
    # An array has no ids of its own: their column is then that of the texts.
    is_table = Source.of(file).path.endswith(TABLE_SUFFIXES)
    file = with_columns(file, {**(ids_column if is_table else {}), **some_of(columns, "vector")})
    if listed is not None:
        rows = texts_with_ids(listed, _ids_in(file) if names is None else names)
        return Imported(file, [row["_id"] for row in rows], data_of(rows, "texts"))
    if texts is not None:
        return Imported(file, names, with_columns(data_of(texts, "texts"), of_texts))
    if "text" in columns:
        return Imported(file, names, str(replace(Source.of(file), columns={**ids_column, **of_texts})))
    return Imported(file, names, None)


def _listed(texts: Any) -> tuple[list[str] | None, Any]:
    """Texts in the order of the vectors, as a list; or a path, a table or rows, as they are."""
    is_whole = isinstance(texts, str | os.PathLike | Mapping | bytes) or is_frame(texts) or is_dataset(texts)
    if is_whole or not isinstance(texts, Iterable):
        return None, texts
    # Looked at through its first entry: an iterator can be read once.
    rest = iter(texts)
    first = list(islice(rest, 1))
    if not first or not isinstance(first[0], str):
        return None, chain(first, rest)
    entries = [*first, *rest]
    return (entries, None) if all(isinstance(entry, str) for entry in entries) else (None, entries)


def source_of(texts: object, vectors: object) -> str:
    """The name of the corpus for the manifest."""
    files = [os.fspath(argument) for argument in (texts, vectors) if isinstance(argument, str | os.PathLike)]
    return files[0] if files else "an array"


def digested(ids: Any) -> Any:
    """A list of ids by its digest, as the record of a call has files; a file of them as it is."""
    if not isinstance(ids, list):
        return ids
    return {
        "name": f"{len(ids):,} ids",
        "content": hashlib.sha256("\0".join(ids).encode("utf-8", "surrogatepass")).hexdigest(),
    }


def some_of(columns: Mapping[str, str], *names: str) -> dict[str, str]:
    """The given ones of some columns."""
    return {name: columns[name] for name in names if name in columns}


def _ids_in(vector_file: str) -> list[str] | None:
    """The ids in a file of vectors; None if it has none."""
    ids: list[str] = []
    for block, _ in open_vectors(vector_file, block_rows=4_096).blocks:
        if block is None:
            return None
        ids += block
    return ids


def _has_vectors(frame: Any, columns: Mapping[str, str]) -> bool:
    """Whether a DataFrame has a column of vectors, and not a column for each number."""
    return "vector" in columns or not set(VECTOR_NAMES).isdisjoint(frame.columns)


def _vector_file(vectors: Any, folder: Path, columns: Mapping[str, str]) -> str:
    """The file of vectors; vectors in memory are written to one."""
    if isinstance(vectors, str | os.PathLike):
        return path_of(vectors, "vectors")
    # A lazy frame is computed here, once.
    vectors = vectors.lazy().collect() if is_polars(vectors) else vectors
    if is_dataset(vectors) or (is_frame(vectors) and _has_vectors(vectors, columns)):
        table = str(folder / "vectors.parquet")
        if is_polars(vectors):
            vectors.write_parquet(table)
        else:
            vectors.to_parquet(table)
        remember_rows(table, "vectors")
        return table
    allowed = "a path, an array [n, width] of floats, a DataFrame or a datasets.Dataset"
    try:
        array = np.asarray(vectors)
    except (ValueError, TypeError):
        raise wrong_type("vectors", allowed, vectors) from None
    if array.dtype.kind != "f" or array.ndim != 2:
        raise TypeError(f"{wrong_type('vectors', allowed, vectors)}; {CODES}")
    path = folder / "vectors.npy"
    with new_file(path) as file:
        np.save(file, array)
    remember_rows(str(path), "vectors")
    return str(path)
