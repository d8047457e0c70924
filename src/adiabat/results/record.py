"""``result.json`` on disk: written whole or not at all, and checked when it is read."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from adiabat.core.errors import DataError, several
from adiabat.core.files import read_json, sealed_json, write_together
from adiabat.core.text import printable
from adiabat.results.evaluation_result import RESULT_FORMAT, Result, WithOrigin

Record = TypeVar("Record", bound=WithOrigin)


def write_record(plain: Mapping[str, Any], path: Path, *, beside: Mapping[str, Callable[[], str | bytes]] | None = None) -> None:
    """Write a record as JSON with a checksum, and with it what was made from it: all or none.

    Characters that are no text (lone surrogates, controls) are stored as U+FFFD.
    """
    if faults := _not_finite(plain):
        raise DataError(f"{path}: {several(faults)}; leave out what could not be measured")
    write_together({path: sealed_json(_clean(plain)), **{path.parent / name: render() for name, render in (beside or {}).items()}})


def read_result(path: Path) -> Result:
    """Read a result that `write_record` wrote."""
    return read_record(path, Result, version=RESULT_FORMAT, misfits=_misfits)


def read_record(
    path: Path, record: type[Record], *, version: int, misfits: Callable[[Record], Iterable[str]] | None = None, command: str = "evaluate"
) -> Record:
    """Read what `write_record` wrote, and check what types cannot say as well: ``1e999`` reads as infinity.

    Args:
        misfits: What is wrong with a record of sound types, a phrase for each fault; None where its numbers are all that can be.
    """
    read = _of_type(path, record, version, command)
    if faults := [*_not_finite(read.to_json()), *(misfits(read) if misfits is not None else ())]:
        raise DataError(f"{path}: {several(faults)}; make it anew with adiabat {command}")
    return read


def _of_type(path: Path, record: type[Record], version: int, command: str) -> Record:
    if not path.exists():
        raise DataError(f"{path} must be a readable result.json, got No such file or directory; run adiabat {command} first")
    plain = read_json(path, remedy=f"make it anew with adiabat {command}", required=False)
    if plain.get("format") != version:
        raise DataError(f"{path}: format must be {version}, got {plain.get('format')}; read it with the version of adiabat that wrote it")
    if faults := _not_finite(plain):
        raise DataError(f"{path}: {several(faults)}; make it anew with adiabat {command}")
    try:
        return TypeAdapter(record).validate_json(json.dumps(plain), strict=True)
    except ValidationError as error:
        raise DataError(f"{path}: {several(_faults(error))}; make it anew with adiabat {command}") from error


def _not_finite(plain: Any) -> list[str]:
    """A phrase for each number that is not finite, with its place."""
    return [f"{where} must be finite, got {value}" for where, value in _numbers(plain, "result") if not math.isfinite(value)]


def _numbers(plain: Any, where: str) -> Iterator[tuple[str, float]]:
    """Every float with the place it stands at."""
    if isinstance(plain, float):
        yield where, plain
    elif isinstance(plain, dict):
        for key, value in plain.items():
            yield from _numbers(value, f"{where}.{key}")
    elif isinstance(plain, list | tuple):
        for position, value in enumerate(plain):
            yield from _numbers(value, f"{where}[{position}]")


def _clean(plain: Any) -> Any:
    if isinstance(plain, str):
        return printable(plain)
    if isinstance(plain, dict):
        return {printable(str(key)): _clean(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [_clean(value) for value in plain]
    return plain


def _faults(error: ValidationError) -> list[str]:
    return [
        f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors(include_url=False, include_input=False)
    ]


def _misfits(result: Result) -> Iterator[str]:
    """A main measure that was not measured, and grids that are not square."""
    for dataset in result.datasets:
        if not any(change.measure == dataset.main for change in dataset.changes):
            yield f"data set {dataset.name}: main must be one of its measures, got {dataset.main}"
        side = len(dataset.languages)
        for grid in dataset.grid:
            tables = [table for table in (grid.after, grid.before, grid.improvement, grid.verdicts) if table is not None]
            if any(len(table) != side or any(len(row) != side for row in table) for table in tables):
                yield f"data set {dataset.name}: the {grid.comparison} grid must have {side} rows and columns, one per language"
