"""Scores on disk: one Parquet file for each model and task, with a row for each unit, which anyone's tools can read.

Columns are ``unit``, ``text``, and for each measure its value (``nDCG@10 by cosine``), where it has them with its reference
(``nDCG@10 by cosine: reference``) and groups (``...: group``), for a language grid a list of one value for each cell, and for the model
of a job what it was trained on (`TRAINED`). What is true of all units stands in the file's metadata under ``adiabat``, as JSON.
"""

import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from jaxtyping import Float
from pydantic import BaseModel

from adiabat.core.errors import DataError, JobError
from adiabat.core.files import open_parquet, reading, write_parquet, writing_to
from adiabat.results.suite_result import Kind
from adiabat.stats.samples import Cells, Sample, Statistic, TaskScores, Trained

FORMAT = 1
METADATA = b"adiabat"
ENDING = ".parquet"
AGAIN = "make it anew with adiabat evaluate"
"""What to do about a damaged file."""

SCORES = "scores"
"""Folder of a result in which they lie, by model."""

TRAINED = ("query trained on", "relevant documents", "relevant documents trained on")
"""Columns of `Trained`."""

LONGEST_NAME = 150
"""Bytes of the name of a folder or file."""

SIDES = ("model", "baseline")
"""Folders of scores of an evaluation of one model."""


TAME = re.compile(r"[a-z]+|(?:[a-z_]+=[a-z0-9.+_-]+, )*seed=[0-9]+")
"""Names of runs that stay apart when folders are named by them."""

LONGEST_TAME = 100
"""Characters of a folder's name before digits are added."""


def folder_names(names: Sequence[str]) -> list[str]:
    """Names of folders that can be told apart on any disk, each the same in whatever order they come."""
    plain = [_cut(re.sub(r"[^\w.+-]+", "-", name).strip("-.")) or "unnamed" for name in names]
    alike = Counter(name.casefold() for name in plain)
    shown = [
        short if alike[short.casefold()] == 1 else f"{short}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"
        for short, name in zip(plain, names, strict=True)
    ]
    seen: Counter[str] = Counter()
    for place, name in enumerate(shown):
        seen[name] += 1
        if seen[name] > 1:
            shown[place] = f"{name}-{seen[name]}"
    return shown


def _cut(name: str) -> str:
    """As much as file systems take, with room for an ending; they count bytes."""
    return name.encode("utf-8", "replace")[:LONGEST_NAME].decode("utf-8", "ignore")


def folder_of(name: str) -> str:
    """Folder of what belongs to a run: another one for every run, on any disk."""
    plain = folder_names([name])[0]
    if TAME.fullmatch(name) and len(name) <= LONGEST_TAME:
        return plain
    return f"{plain[:LONGEST_TAME]}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def write_scores(scores: TaskScores, path: Path, *, key: str, about: Mapping[str, Any]) -> None:
    """Write what one model scored on one task, whole or not at all."""
    columns: dict[str, Any] = {"unit": _strings(scores.units)}
    if scores.texts:
        columns["text"] = _strings(scores.texts)
    for sample in scores.samples:
        columns |= _columns_of(sample)
    for cells in scores.cells:
        columns[_name_of_cells(cells)] = _lists(cells)
    if scores.trained is not None:
        columns |= {name: pa.array(values) for name, values in _trained_columns(scores.trained).items() if values is not None}
    record = {"format": FORMAT, "key": key, "about": dict(about), **_described(scores)}
    table = pa.table(columns).replace_schema_metadata({METADATA: json.dumps(record, ensure_ascii=False).encode("utf-8", "replace")})
    with writing_to(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_parquet(table, path)


def read_scores(path: Path, record: Mapping[str, Any] | None = None) -> TaskScores:
    """Read what `write_scores` wrote.

    Args:
        record: What `read_record` gave of it; None reads that too.
    """
    record = read_record(path) if record is None else record
    with reading(path, remedy=AGAIN):
        table = open_parquet(path, remedy=AGAIN).read()
        if len(table) != record["units"] or not record["samples"]:
            raise ValueError(f"{len(table):,} rows and {len(record['samples'])} measures, of {record['units']:,} units")
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
            trained=_trained(table, record.get("trained_unknown")),
        )


def read_record(path: Path) -> dict[str, Any]:
    """What stands in a file beside its rows."""
    if not path.exists():
        raise DataError(f"{path} must be a file of scores, got no such file; run adiabat evaluate first")
    with reading(path, remedy=AGAIN):
        metadata = open_parquet(path, remedy=AGAIN).schema_arrow.metadata or {}
        record = json.loads(metadata.get(METADATA, b"null"))
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        found = record.get("format") if isinstance(record, dict) else None
        raise DataError(f"{path}: format of scores must be {FORMAT}, got {found}; {AGAIN}")
    with reading(path, remedy=AGAIN):
        _Record.model_validate(record)
    return record


class _Record(BaseModel):
    """What must stand in a file beside its rows."""

    key: str
    about: dict[str, Any]
    task: str
    kind: Kind
    unit: str
    units: int
    documents: int
    facts: dict[str, float]
    notes: list[str]
    samples: list[dict[str, Any]]
    cells: list[dict[str, Any]]


@contextmanager
def scores_kept(kept: Sequence[tuple[str, TaskScores]], folder: Path, *, models: Mapping[str, str]) -> Iterator[None]:
    """Keep the scores of an evaluation beside its result: both take the place of what stood there, or neither."""
    scores, part, former = (folder / name for name in (SCORES, f".{SCORES}", f".former-{SCORES}"))
    try:
        shutil.rmtree(part, ignore_errors=True)
        if former.exists() and not scores.exists():
            # A process was killed between the two moves.
            former.rename(scores)
        for side, model in models.items():
            own = [scored for of, scored in kept if of == side]
            for one, name in zip(own, folder_names([one.task for one in own]), strict=True):
                write_scores(one, part / side / f"{name}{ENDING}", key="", about={"model": model})
        with _in_place_of(scores, part, former):
            yield
    except OSError as fault:
        raise DataError(f"{scores} must be writable, got {fault.strerror or fault}; free space there or name another folder") from fault
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def _in_place_of(folder: Path, part: Path, former: Path) -> Iterator[None]:
    """Put a folder in the place of another; where what comes next fails, the other one is back."""
    shutil.rmtree(former, ignore_errors=True)
    if folder.exists():
        folder.rename(former)
    try:
        part.rename(folder)
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        if former.exists():
            former.rename(folder)
        raise
    shutil.rmtree(former, ignore_errors=True)


def require_no_others(folder: Path) -> None:
    """Refuse a folder in which something else keeps its scores: those of an evaluation would take their place."""
    ended = (folder / "result.json").exists()
    own = {folder / SCORES / side for side in SIDES} if ended else set()
    found = next((path for path in sorted((folder / SCORES).rglob("*")) if path.is_file() and path.parent not in own), None)
    if found:
        raise JobError(f"--out must hold no scores but those of an evaluation before, got {found}; choose another directory")


def scores_in(folder: Path) -> Iterator[Path]:
    """Every file of scores below a folder.

    Yields:
        Paths, sorted.
    """
    yield from sorted(path for path in folder.rglob(f"*{ENDING}") if not path.name.startswith("."))


def _strings(texts: Sequence[str]) -> pa.Array:
    """Texts as Arrow holds them: JSON may hold half a character, UTF-8 may not."""
    return pa.array([text.encode("utf-8", "replace").decode() for text in texts], pa.string())


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
        | {"lower_is_better": one.lower_is_better, "bounds": one.bounds, "pseudo_values": one.pseudo_values}
        for one in scores.samples
    ]
    cells = [
        {"comparison": one.comparison, "similarity": one.similarity, "rows": one.rows, "columns": one.columns}
        | {"lower_is_better": one.lower_is_better, "total": one.total}
        | {"errors": None if one.errors is None else one.errors.tolist()}
        for one in scores.cells
    ]
    plain = {"task": scores.task, "kind": scores.kind, "unit": scores.unit, "units": len(scores.units), "documents": scores.documents}
    if scores.trained is not None:
        plain["trained_unknown"] = scores.trained.unknown
    return {**plain, "facts": dict(scores.facts), "notes": list(scores.notes), "samples": samples, "cells": cells}


def _trained_columns(trained: Trained) -> dict[str, np.ndarray | None]:
    return dict(zip(TRAINED, (trained.queries, trained.relevant, trained.documents), strict=True))


def _trained(table: pa.Table, unknown: str | None) -> Trained | None:
    if unknown is None:
        return None
    queries, relevant, documents = (table[name].to_numpy() if name in table.column_names else None for name in TRAINED)
    if queries is None or relevant is None or queries.dtype != np.bool_:
        raise ValueError(f"no counts of {TRAINED[0]}, though the model is of a job")
    return Trained(queries, relevant, documents, unknown)


def _sample(table: pa.Table, record: Mapping[str, Any]) -> Sample:
    bounds = record.get("bounds")
    bare = Sample(values=np.empty(0), **{**record, "bounds": None if bounds is None else tuple(bounds)})
    if bare.statistic not in get_args(Statistic):
        raise ValueError(f"the statistic {bare.statistic}, which is none of {', '.join(get_args(Statistic))}")
    name = _name_of(bare)
    reference, groups = f"{name}: reference", f"{name}: group"
    return replace(
        bare,
        values=_numbers(table, name),
        reference=_numbers(table, reference) if reference in table.column_names else None,
        groups=table[groups].to_numpy() if groups in table.column_names else None,
    )


def _numbers(table: pa.Table, name: str) -> Float[np.ndarray, " n"]:
    values = np.asarray(table[name].to_numpy(), dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"values of {name} that are not finite")
    return values


def _cells(table: pa.Table, record: Mapping[str, Any]) -> Cells:
    rows, columns = tuple(record["rows"]), tuple(record["columns"])
    errors = None if record["errors"] is None else np.array(record["errors"], dtype=np.int64)
    bare = Cells(
        **{**record, "rows": rows, "columns": columns, "errors": errors}, values=np.empty((len(rows), len(columns), 0), dtype=np.float32)
    )
    lists = table[_name_of_cells(bare)].combine_chunks()
    flat = lists.flatten().to_numpy().reshape(-1, len(rows) * len(columns))
    return replace(bare, values=np.ascontiguousarray(flat.T).reshape(len(rows), len(columns), -1))
