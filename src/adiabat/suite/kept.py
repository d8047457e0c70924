"""Scores on disk: one Parquet file for each model and task, with a row for each unit, which anyone's tools can read.

Columns are ``unit``, ``text``, and for each measure its value (``nDCG@10 by cosine``), where it has them with its reference
(``nDCG@10 by cosine: reference``) and groups (``...: group``), and for a language grid a list of one value for each cell. What is true of
all units stands in the file's metadata under ``adiabat``, as JSON.
"""

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float

from adiabat.errors import DataError
from adiabat.measure.samples import Cells, Sample, TaskScores

FORMAT = 1
METADATA = b"adiabat"
ENDING = ".parquet"
SCORES = "scores"
"""Folder of a result in which they lie, by model."""


def folder_names(names: Sequence[str]) -> list[str]:
    """Names of folders that can be told apart on any disk.

    Args:
        names: Of models or tasks, each once.

    Returns:
        One for each, in order.
    """
    plain = [re.sub(r"[^\w.+-]+", "-", name).strip("-.")[:80] or "unnamed" for name in names]
    seen: Counter[str] = Counter()
    found = []
    for name in plain:
        seen[name.casefold()] += 1
        again = seen[name.casefold()]
        found.append(name if again == 1 else f"{name}-{again}")
    return found


def write_scores(scores: TaskScores, path: Path, *, key: str, about: Mapping[str, Any]) -> None:
    """Write what one model scored on one task, whole or not at all.

    Args:
        scores: Of every unit.
        path: Where to; folders are made.
        key: SHA-256 of what the scores follow from, by which a later run knows them.
        about: Further plain data to keep with them, such as the model's name.

    Raises:
        DataError: If the file cannot be written.
    """
    columns: dict[str, Any] = {"unit": _strings(scores.units)}
    if scores.texts:
        columns["text"] = _strings(scores.texts)
    for sample in scores.samples:
        columns |= _columns_of(sample)
    for cells in scores.cells:
        columns[_name_of_cells(cells)] = _lists(cells)
    record = {"format": FORMAT, "key": key, "about": dict(about), **_described(scores)}
    table = pa.table(columns).replace_schema_metadata({METADATA: json.dumps(record, ensure_ascii=False).encode("utf-8", "replace")})
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, part, compression="zstd")
        part.replace(path)
    except OSError as fault:
        raise DataError(f"{path} must be writable, got {fault.strerror or fault}; free space there or name another folder") from fault
    finally:
        part.unlink(missing_ok=True)


def read_scores(path: Path) -> TaskScores:
    """Read what `write_scores` wrote.

    Args:
        path: The file.

    Returns:
        The scores, equal to those written.

    Raises:
        DataError: If it is missing, damaged, or no such file.
    """
    record = read_record(path)
    try:
        table = pq.read_table(path)
        samples = [_sample(table, one) for one in record["samples"]]
        cells = [_cells(table, one) for one in record["cells"]]
        texts = table["text"].to_pylist() if "text" in table.column_names else ()
        return TaskScores(
            task=record["task"],
            kind=record["kind"],
            unit=record["unit"],
            units=table["unit"].to_pylist(),
            samples=samples,
            texts=texts,
            documents=record["documents"],
            cells=cells,
            facts=record["facts"],
            notes=tuple(record["notes"]),
        )
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError) as fault:
        raise _damaged(path, fault) from fault


def read_record(path: Path) -> dict[str, Any]:
    """What stands in a file beside its rows.

    Args:
        path: The file.

    Returns:
        Its ``key``, ``about`` and what is true of all units.

    Raises:
        DataError: If it is missing, damaged, or no such file.
    """
    try:
        metadata = pq.read_schema(path).metadata or {}
        record = json.loads(metadata.get(METADATA, b"null"))
    except FileNotFoundError as fault:
        raise DataError(f"{path} must be a file of scores, got no such file; run adiabat evaluate first") from fault
    except (OSError, pa.ArrowException, ValueError) as fault:
        raise _damaged(path, fault) from fault
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        found = record.get("format") if isinstance(record, dict) else None
        raise DataError(f"{path}: format of scores must be {FORMAT}, got {found}; make it anew with adiabat evaluate")
    return record


@contextmanager
def scores_kept(kept: Sequence[tuple[str, TaskScores]], folder: Path, *, models: Mapping[str, str]) -> Iterator[None]:
    """Keep the scores of an evaluation beside its result: both take the place of what stood there, or neither.

    Args:
        kept: A side, ``model`` or ``baseline``, with its scores of one data set.
        folder: Of the result.
        models: Side to the name of its model.

    Yields:
        Nothing, once they are on disk; within, the result is written.

    Raises:
        DataError: If a file cannot be written.
    """
    part = folder / f".{SCORES}.{os.getpid()}"
    try:
        for side, model in models.items():
            own = [scores for one, scores in kept if one == side]
            for scores, name in zip(own, folder_names([one.task for one in own]), strict=True):
                write_scores(scores, part / side / f"{name}{ENDING}", key="", about={"model": model})
        yield
        shutil.rmtree(folder / SCORES, ignore_errors=True)
        part.rename(folder / SCORES)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def scores_in(folder: Path) -> Iterator[Path]:
    """Every file of scores below a folder.

    Args:
        folder: Of a result, or of its scores.

    Yields:
        Paths, sorted.
    """
    yield from sorted(path for path in folder.rglob(f"*{ENDING}") if not path.name.startswith("."))


def _strings(texts: Sequence[str]) -> pa.Array:
    """Texts as Arrow holds them: JSON may hold half a character, UTF-8 may not."""
    return pa.array([text.encode("utf-8", "replace").decode() for text in texts], pa.string())


def _damaged(path: Path, fault: Exception) -> DataError:
    return DataError(f"{path} must be a whole file of scores, got: {str(fault).splitlines()[0]}; make it anew with adiabat evaluate")


def _name_of(sample: Sample) -> str:
    return f"{sample.measure} by {sample.similarity}" if sample.similarity else sample.measure


def _name_of_cells(cells: Cells) -> str:
    return f"cells: {cells.comparison} by {cells.similarity}"


def _columns_of(sample: Sample) -> dict[str, Any]:
    name = _name_of(sample)
    columns = {name: pa.array(sample.values)}
    if sample.reference is not None:
        columns[f"{name}: reference"] = pa.array(sample.reference)
    if sample.groups is not None:
        columns[f"{name}: group"] = pa.array(sample.groups)
    return columns


def _lists(cells: Cells) -> pa.Array:
    """One list for each unit, rows of the grid one after the other."""
    flat = np.ascontiguousarray(cells.values.reshape(-1, cells.values.shape[-1]).T)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), flat.shape[1])


def _described(scores: TaskScores) -> dict[str, Any]:
    samples = [
        {"measure": one.measure, "similarity": one.similarity, "statistic": one.statistic, "proportion": one.proportion}
        | {"lower_is_better": one.lower_is_better}
        for one in scores.samples
    ]
    cells = [
        {"comparison": one.comparison, "similarity": one.similarity, "rows": one.rows, "columns": one.columns}
        | {"lower_is_better": one.lower_is_better, "total": one.total}
        | {"errors": None if one.errors is None else one.errors.tolist()}
        for one in scores.cells
    ]
    plain = {"task": scores.task, "kind": scores.kind, "unit": scores.unit, "documents": scores.documents}
    return {**plain, "facts": dict(scores.facts), "notes": list(scores.notes), "samples": samples, "cells": cells}


def _sample(table: pa.Table, record: Mapping[str, Any]) -> Sample:
    bare = Sample(values=np.empty(0), **record)
    name = _name_of(bare)
    reference, groups = f"{name}: reference", f"{name}: group"
    return replace(
        bare,
        values=_numbers(table, name),
        reference=_numbers(table, reference) if reference in table.column_names else None,
        groups=table[groups].to_numpy() if groups in table.column_names else None,
    )


def _numbers(table: pa.Table, name: str) -> Float[np.ndarray, " n"]:
    return np.asarray(table[name].to_numpy(), dtype=np.float64)


def _cells(table: pa.Table, record: Mapping[str, Any]) -> Cells:
    rows, columns = tuple(record["rows"]), tuple(record["columns"])
    errors = None if record["errors"] is None else np.array(record["errors"], dtype=np.int64)
    bare = Cells(
        **{**record, "rows": rows, "columns": columns, "errors": errors}, values=np.empty((len(rows), len(columns), 0), dtype=np.float32)
    )
    lists = table[_name_of_cells(bare)].combine_chunks()
    flat = lists.flatten().to_numpy().reshape(-1, len(rows) * len(columns))
    return replace(bare, values=np.ascontiguousarray(flat.T).reshape(len(rows), len(columns), -1))
