"""Stored scores: one Parquet file for each model and task, with a row for each unit.

Columns are ``unit``, ``text``, and for each measure its value (``nDCG@10 by cosine``), with its reference
(``nDCG@10 by cosine: reference``) and groups (``...: group``) where it has them. A language grid has a list
with one value for each cell, and the model of a job has columns of its training data (`TRAINED`). The
metadata ``adiabat`` of the file holds everything else as JSON.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import BaseModel

from adiabat.core.arrow_columns import numbers_column, strings_column
from adiabat.core.disk import clear, make_folder, move
from adiabat.core.errors import DataError, JobError, disk_error_of
from adiabat.core.files import open_parquet, reading, write_parquet, writing_to
from adiabat.core.formats import Format
from adiabat.core.text import cut
from adiabat.core.wording import call_of, option
from adiabat.data.records import Fingerprint
from adiabat.results.suite_result import Kind
from adiabat.stats.clusters import Clusters
from adiabat.stats.samples import GridSample, Sample, Statistic, TaskScores, TrainingOverlap
from adiabat.stats.unit_arrays import Values

SCORE_FILE = Format(1, oldest=1)
METADATA = b"adiabat"
SUFFIX = ".parquet"
REMEDY = "evaluate again"
"""Advice about a damaged file."""

SCORES = "scores"
"""Folder of scores in a result, by model."""

TRAINED = (
    "query trained on",
    "relevant documents",
    "relevant documents trained on",
    "near duplicate trained on",
)
"""Columns of `TrainingOverlap`."""

CLUSTER = "cluster"
"""Column of the numbers of `Clusters`."""

LONGEST_NAME = 150
"""Maximum bytes of the name of a folder or file."""

SIDES = ("model", "baseline")
"""Folders of scores of an evaluation."""


PLAIN_NAME = re.compile(r"[a-z]+|(?:[a-z_]+=[a-z0-9.+_-]+, )*seed=[0-9]+")
"""Names of runs that stay distinct as names of folders."""

LONGEST_PLAIN_NAME = 100
"""Characters of a run folder's name before its digest."""


def folder_names(names: Sequence[str]) -> list[str]:
    """Names of folders, distinct on any disk and independent of the order of `names`."""
    plain = []
    for name in names:
        readable = re.sub(r"[^\w.+-]+", "-", name).strip("-.").encode("utf-8", "replace")
        # As many bytes as file systems take, with room for a suffix.
        plain.append(readable[:LONGEST_NAME].decode("utf-8", "ignore") or "unnamed")
    # Some disks do not tell capitals apart.
    counts = Counter(map(str.casefold, plain))
    used: Counter[str] = Counter()
    unique = []
    for short, name in zip(plain, names, strict=True):
        told_apart = short if counts[short.casefold()] == 1 else f"{short}-{_digest(name)[:6]}"
        used[told_apart] += 1
        unique.append(told_apart if used[told_apart] == 1 else f"{told_apart}-{used[told_apart]}")
    return unique


def run_folder_name(name: str) -> str:
    """Folder of a run, distinct for every run on any disk."""
    plain = folder_names([name])[0]
    if PLAIN_NAME.fullmatch(name) and len(name) <= LONGEST_PLAIN_NAME:
        return plain
    return f"{plain[:LONGEST_PLAIN_NAME]}-{_digest(name)[:12]}"


def _digest(name: str) -> str:
    """SHA-256 of a name, which may hold half of a surrogate pair."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def write_scores(scores: TaskScores, path: Path, *, key: str, about: Mapping[str, Any]) -> None:
    """Write the scores of one model on one task, atomically."""
    # The order of columns belongs to the format: people read these files too.
    columns: dict[str, Any] = {"unit": _strings(scores.units)}
    if scores.texts:
        columns["text"] = _strings(scores.texts)
    for sample in scores.samples:
        columns |= _columns_of(sample)
    for cells in scores.grids:
        columns[_name_of_cells(cells)] = _lists(cells)
    if (clusters := scores.samples[0].clusters) is not None:
        columns[CLUSTER] = numbers_column(clusters.numbers)
    if scores.trained is not None:
        trained = scores.trained
        counts = (trained.queries, trained.relevant, trained.documents, trained.near)
        for name, values in zip(TRAINED, counts, strict=True):
            if values is not None:
                columns[name] = numbers_column(values)
    record = {**SCORE_FILE.stamp(), "key": key, "about": dict(about), **_described(scores)}
    table = pa.table(columns).replace_schema_metadata(
        {METADATA: json.dumps(record, ensure_ascii=False).encode("utf-8", "replace")}
    )
    with writing_to(path):
        make_folder(path.parent, parents=True)
    write_parquet(table, path)


def read_scores(path: Path, record: Mapping[str, Any] | None = None) -> TaskScores:
    """Read scores; `record` is what `read_record` returned, or None."""
    record = read_record(path) if record is None else record
    with reading(path, remedy=REMEDY):
        table = open_parquet(path, remedy=REMEDY).read()
        if len(table) != record["units"] or not record["samples"]:
            raise ValueError(
                f"{len(table):,} rows and {len(record['samples'])} measures, of {record['units']:,} units"
            )
        numbers = _optional(table, CLUSTER, "whole numbers")
        clusters = None if numbers is None else Clusters(numbers, record["clustered_by"])
        texts = _optional(table, "text", "texts")
        return TaskScores(
            task=record["task"],
            kind=record["kind"],
            unit=record["unit"],
            units=_units(table),
            samples=[replace(_sample(table, each), clusters=clusters) for each in record["samples"]],
            texts=() if texts is None else texts.tolist(),
            documents=record["documents"],
            grids=[_cells(table, each) for each in record["cells"]],
            facts=record["facts"],
            notes=tuple(record["notes"]),
            trained=_trained(table, record.get("trained_unknown")),
        )


def read_record(path: Path) -> dict[str, Any]:
    """Metadata of a file of scores."""
    if not path.exists():
        raise DataError(
            f"{path} must be a file of scores, got no such file; make it with {call_of('evaluate')}"
        )
    with reading(path, remedy=REMEDY):
        metadata = open_parquet(path, remedy=REMEDY).schema_arrow.metadata or {}
        record = json.loads(metadata.get(METADATA, b"null"))
    if not isinstance(record, dict):
        raise DataError(f"{path}: format of scores must be {SCORE_FILE.number}, got {record}; {REMEDY}")
    SCORE_FILE.require(record.get("format"), path, older=REMEDY)
    with reading(path, remedy=REMEDY):
        _Record.model_validate(record)
    return record


class _MeasureRecord(BaseModel, strict=True):
    """Fields of a `Sample` that are no columns."""

    measure: str
    similarity: str = ""
    statistic: Statistic = "mean"
    proportion: bool = False
    lower_is_better: bool = False
    bounds: list[float] | None = None
    pseudo_values: bool = False


class _CellsRecord(BaseModel, strict=True):
    """Fields of a `GridSample` that are no columns."""

    comparison: str
    similarity: str = ""
    rows: list[str]
    columns: list[str]
    lower_is_better: bool = False
    total: int = 0
    errors: list[list[int]] | None = None


class _Record(BaseModel):
    """Required metadata of a file of scores."""

    key: str
    about: dict[str, Any]
    task: str
    kind: Kind
    unit: str
    units: int
    documents: int
    facts: dict[str, float]
    notes: list[str]
    samples: list[_MeasureRecord]
    cells: list[_CellsRecord]


class Scored(NamedTuple):
    """Scores of one side of an evaluation on a task: ``model``, ``model/run 2``, ``baseline``.

    `state` is what decides the scores of a model on any data (`state_of`); "" if it is unknown.
    """

    side: str
    scores: TaskScores
    state: str = ""


def state_of(query: Fingerprint, document: Fingerprint, similarity: str, fused: str = "") -> str:
    """SHA-256 of everything that decides a model's scores: weights and settings of both towers, and what
    their ranking is fused with.
    """
    # Names and paths decide nothing.
    decisive: list[object] = [query.to_json(), document.to_json()]
    # Cosine is left out, so that its keys stay valid.
    decisive += [] if similarity == "cosine" else [similarity]
    decisive += [fused] if fused else []
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


@contextmanager
def replacing_scores(scored: Sequence[Scored], folder: Path, *, models: Mapping[str, str]) -> Iterator[None]:
    """Replace the scores of an evaluation together with its result: both, or neither."""
    scores, staging, backup = (folder / name for name in (SCORES, f".{SCORES}", f".former-{SCORES}"))
    try:
        clear(staging)
        if backup.exists() and not scores.exists():
            # A former process was killed between the two renames.
            move(backup, scores)
        _stage(scored, staging, models)
        with _in_place_of(scores, staging, backup):
            yield
    except OSError as fault:
        if (error := disk_error_of(fault)) is None:
            raise
        raise DataError(
            f"{scores} must be writable, got {error.strerror or error}; free "
            "space there or name another folder"
        ) from fault
    finally:
        clear(staging)


def _stage(scored: Sequence[Scored], staging: Path, models: Mapping[str, str]) -> None:
    """Write the scores of each side; where the model has several runs, each has a folder of its own."""
    of_sides: dict[str, list[Scored]] = {}
    for each in scored:
        of_sides.setdefault(each.side, []).append(each)
    has_runs = any("/" in side for side in of_sides)
    for side, of_side in of_sides.items():
        model, _, further = side.partition("/")
        about = {"model": models[model], "state": of_side[0].state}
        folder = staging / side
        if has_runs and model == "model":
            about["run"] = side
            folder = staging / model / (further or "run 1")
        names = folder_names([each.scores.task for each in of_side])
        for each, name in zip(of_side, names, strict=True):
            write_scores(each.scores, folder / f"{name}{SUFFIX}", key="", about=about)


@contextmanager
def _in_place_of(folder: Path, staging: Path, backup: Path) -> Iterator[None]:
    """Swap a folder for a staged one; if the block fails, the old folder is restored."""
    clear(backup)
    if folder.exists():
        move(folder, backup)
    try:
        move(staging, folder)
        yield
    except BaseException:
        clear(folder)
        if backup.exists():
            move(backup, folder)
        raise
    clear(backup)


def refuse_foreign_scores(folder: Path) -> None:
    """Refuse a folder with scores of another kind of run, which an evaluation would replace."""
    ended = (folder / "result.json").exists()
    for path in sorted((folder / SCORES).rglob("*")):
        if path.is_file() and not _is_of_evaluation(path, folder, ended=ended):
            raise JobError(
                f"{option('out')} must hold no scores except those of an earlier evaluation, "
                f"got {path}; choose another directory"
            )


def _is_of_evaluation(path: Path, folder: Path, *, ended: bool) -> bool:
    """Whether a file lies where an evaluation writes scores: of a side, or of a run of the model.

    An evaluation that was killed before it had a result leaves scores without a key; those of a suite have
    one.
    """
    parts = path.relative_to(folder / SCORES).parts
    is_side = len(parts) == 2 and parts[0] in SIDES
    is_run = len(parts) == 3 and parts[0] == "model" and parts[1].startswith("run ")
    is_side = is_side or is_run
    # A folder with a result is judged by its layout alone.
    if ended or not is_side:
        return is_side
    try:
        return not read_record(path)["key"]
    except DataError:
        return False


def score_files(folder: Path) -> Iterator[Path]:
    """Every file of scores below a folder, sorted."""
    yield from sorted(path for path in folder.rglob(f"*{SUFFIX}") if not path.name.startswith("."))


def _strings(texts: Sequence[str]) -> pa.Array:
    """Texts as UTF-8: half of a surrogate pair, which JSON may hold, becomes "?"."""
    return strings_column([text.encode("utf-8", "replace").decode() for text in texts])


def _name_of(sample: Sample) -> str:
    """Column of the values of a measure."""
    return f"{sample.measure} by {sample.similarity}" if sample.similarity else sample.measure


def _name_of_cells(cells: GridSample) -> str:
    """Column of the values of a language grid."""
    return f"cells: {cells.comparison} by {cells.similarity}"


def _columns_of(sample: Sample) -> dict[str, Any]:
    """Columns of a measure: its values, and what they are aggregated by."""
    name = _name_of(sample)
    columns = {name: numbers_column(sample.values)}
    if sample.reference is not None:
        columns[f"{name}: reference"] = numbers_column(sample.reference)
    if sample.groups is not None:
        columns[f"{name}: group"] = numbers_column(sample.groups)
    return columns


def _lists(cells: GridSample) -> pa.Array:
    """One list for each unit, row by row of the grid."""
    # Arrow wants one run of numbers: all cells of the first unit, then of the second.
    flat = np.ascontiguousarray(cells.values.reshape(-1, cells.values.shape[-1]).T)
    return pa.FixedSizeListArray.from_arrays(numbers_column(flat.ravel()), flat.shape[1])


def _described(scores: TaskScores) -> dict[str, Any]:
    """What the metadata holds of scores; keys and their order belong to the format."""
    described: dict[str, Any] = {
        "task": scores.task,
        "kind": scores.kind,
        "unit": scores.unit,
        "units": len(scores.units),
        "documents": scores.documents,
    }
    if (clusters := scores.samples[0].clusters) is not None:
        described["clustered_by"] = clusters.by
    if scores.trained is not None:
        described["trained_unknown"] = scores.trained.unknown
    cells = [_fields(grid, _CellsRecord) for grid in scores.grids]
    for grid in cells:
        grid["errors"] = None if grid["errors"] is None else grid["errors"].tolist()
    return described | {
        "facts": dict(scores.facts),
        "notes": list(scores.notes),
        "samples": [_fields(sample, _MeasureRecord) for sample in scores.samples],
        "cells": cells,
    }


def _fields(values: Sample | GridSample, record: type[BaseModel]) -> dict[str, Any]:
    """The fields that a record of metadata has."""
    return {name: getattr(values, name) for name in record.model_fields}


_HOLDS: Mapping[str, Sequence[Callable[[pa.DataType], bool]]] = {
    "texts": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    "numbers": (pa.types.is_integer, pa.types.is_floating),
    "whole numbers": (pa.types.is_integer,),
    "truth values": (pa.types.is_boolean,),
}
"""What a column may hold, with the tests of its type; other programs may have written the file again."""


def _filled(table: pa.Table, name: str, what: str) -> np.ndarray:
    """The values of a column of one kind without gaps."""
    column = table[name]
    if not any(holds(column.type) for holds in _HOLDS[what]):
        raise TypeError(f'the column "{name}" must hold {what}, got {column.type}')
    if column.null_count:
        raise ValueError(
            f'the column "{name}" must hold {what}, got nothing in '
            f"{column.null_count:,} of {len(column):,} rows"
        )
    values: np.ndarray = column.to_numpy()
    return values


def _optional(table: pa.Table, name: str, what: str) -> np.ndarray | None:
    """The values of a column that not all files have."""
    return _filled(table, name, what) if name in table.column_names else None


def _units(table: pa.Table) -> list[str]:
    """The names of the units, each once: scores of two models are matched by them."""
    units: list[str] = _filled(table, "unit", "texts").tolist()
    if repeated := [name for name, count in Counter(units).items() if count > 1]:
        raise ValueError(
            f'the column "unit" must name each unit once, got {cut(repeated[0], limit=60)!r} again'
        )
    return units


def _trained(table: pa.Table, unknown: str | None) -> TrainingOverlap | None:
    """Training data among the units; None if the scores say nothing of a job."""
    if unknown is None:
        return None
    kinds = ("truth values", "whole numbers", "whole numbers", "truth values")
    queries, relevant, documents, near = (
        _optional(table, name, what) for name, what in zip(TRAINED, kinds, strict=True)
    )
    if queries is None or relevant is None:
        raise ValueError(f"no counts of {TRAINED[0]}, though the model comes from a job")
    return TrainingOverlap(queries, relevant, documents, unknown, near)


def _sample(table: pa.Table, record: Mapping[str, Any]) -> Sample:
    """A measure from its columns and its metadata."""
    bounds = record.get("bounds")
    bare = Sample(values=np.empty(0), **{**record, "bounds": None if bounds is None else tuple(bounds)})
    name = _name_of(bare)
    reference = f"{name}: reference"
    return replace(
        bare,
        values=_numbers(table, name),
        reference=_numbers(table, reference) if reference in table.column_names else None,
        groups=_optional(table, f"{name}: group", "whole numbers"),
    )


def _numbers(table: pa.Table, name: str) -> Values:
    """A column of finite numbers."""
    values = np.asarray(_filled(table, name, "numbers"), dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"values of {name} that are not finite")
    return values


def _cells(table: pa.Table, record: Mapping[str, Any]) -> GridSample:
    """A language grid from its column of lists; the inverse of `_lists`."""
    rows, columns = tuple(record["rows"]), tuple(record["columns"])
    errors = None if record["errors"] is None else np.array(record["errors"], dtype=np.int64)
    bare = GridSample(
        **{**record, "rows": rows, "columns": columns, "errors": errors},
        values=np.empty((len(rows), len(columns), 0), dtype=np.float32),
    )
    lists = table[_name_of_cells(bare)].combine_chunks()
    flat = lists.flatten().to_numpy().reshape(-1, len(rows) * len(columns))
    return replace(bare, values=np.ascontiguousarray(flat.T).reshape(len(rows), len(columns), -1))
