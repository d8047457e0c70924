"""Rows of Parquet files and of data sets of the ``datasets`` library; columns become Python values on first
use.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from adiabat.core.errors import DataError, reraise_unrelated
from adiabat.core.files import is_there, require_plain, require_regular
from adiabat.core.surroundings import hub_cache
from adiabat.data.folders import Place, one_split, read_whole
from adiabat.data.lines import HUB_PREFIX
from adiabat.data.sources import Source

VALIDATED_ROWS = 1_000
"""Rows of a data set on disk validated at a time."""

_BATCH_ROWS = 1024


def parquet_size(files: Sequence[Path]) -> int:
    """Number of rows, from the metadata of the files."""
    return sum(int(_open_parquet(file).metadata.num_rows) for file in files)


def parquet_rows(files: Sequence[Path], *, after: int = 0) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Iterate over the rows of all files after the first `after`; earlier files and row groups are not
    read.
    """
    for file in files:
        with _open_parquet(file) as table:
            count = int(table.metadata.num_rows)
            if after < count:
                yield from _file_rows(table, file, after)
            after = max(0, after - count)
    if after:
        where = files[0] if len(files) == 1 else files[0].parent
        raise DataError(
            f"{where} must be unchanged since it was read, got {after:,} rows "
            "fewer; restore the files, or start again"
        )


def _file_rows(table: pq.ParquetFile, file: Path, after: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Rows of a file from number `after` on, with their locations."""
    # Groups that lie before the first row wanted are not read.
    groups, number = _groups_behind(table, after)
    try:
        for batch in table.iter_batches(batch_size=_BATCH_ROWS, row_groups=groups):
            columns = _BatchColumns(batch, file, number)
            # Arrow allows columns of one name; a row has each name once.
            names = tuple(dict.fromkeys(batch.schema.names))
            for row in range(max(0, after - number), batch.num_rows):
                yield f"{file}:{number + row + 1}", _RowValues(columns, row, names)
            number += batch.num_rows
    except Exception as error:
        reraise_unrelated(error)
        raise DataError(
            f"{file} must be a whole Parquet file, got, after row {number}: {error}; write it again"
        ) from error


def _groups_behind(table: pq.ParquetFile, after: int) -> tuple[list[int], int]:
    """Row groups from that of row `after` on, and the number of rows before them."""
    before = 0
    for group in range(table.num_row_groups):
        rows = int(table.metadata.row_group(group).num_rows)
        if before + rows > after:
            return list(range(group, table.num_row_groups)), before
        before += rows
    return [], before


def _open_parquet(path: Path) -> pq.ParquetFile:
    """Open a file, whose metadata alone are read."""
    require_plain(path)
    try:
        return pq.ParquetFile(path)
    except Exception as error:
        reraise_unrelated(error)
        raise DataError(
            f"{path} must be a whole Parquet file, got: {error}; write or download it again"
        ) from error


@dataclass(slots=True)
class _BatchColumns:
    """The columns of a batch, converted to Python values on first use; `before` rows of the file precede
    it.
    """

    batch: pa.RecordBatch
    path: Path
    before: int
    values: dict[str, list[Any]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self.values:
            self.values[name] = self._converted(name)
        return self.values[name]

    def _converted(self, name: str) -> list[Any]:
        """The values of a column; an error names the first row that cannot be converted."""
        indices = self.batch.schema.get_all_field_indices(name)
        if not indices:
            raise KeyError(name)
        if len(indices) > 1:
            raise DataError(
                f'{self.path} must have one column "{name}", got {len(indices)} of '
                "that name; rename or drop the others"
            )
        column = self.batch.column(indices[0])
        try:
            values: list[Any] = column.to_pylist()
        except Exception as error:
            reraise_unrelated(error)
            raise DataError(self._fault(name, column, error)) from error
        return values

    def _fault(self, name: str, column: pa.Array, error: Exception) -> str:
        """The phrase for a column that cannot be converted, with its first faulty row."""
        location = f"{self.path}:{self.before + _first_inconvertible(column) + 1}"
        if isinstance(error, UnicodeDecodeError):
            byte = f"byte 0x{error.object[error.start]:02x} at byte {error.start + 1} of the value"
            return f'{location}: "{name}" must be UTF-8, got {byte}; write the column again as UTF-8'
        fault = f"{column.type}: {' '.join(str(error).split())}"
        return (
            f'{location}: "{name}" must hold values that Python can hold, got {fault}; '
            "write the column as text, or drop it"
        )


def _first_inconvertible(column: pa.Array) -> int:
    """Position of the first value of a column that Python cannot hold."""
    for index, value in enumerate(column):
        try:
            value.as_py()
        except Exception as error:
            reraise_unrelated(error)
            return index
    return 0


@dataclass(slots=True, eq=False)
class _RowValues(Mapping[str, Any]):
    """One row of a batch: a view, so that columns that no one reads are never converted."""

    columns: _BatchColumns
    row: int
    names: Sequence[str]

    def __getitem__(self, name: str) -> Any:
        return self.columns[name][self.row]

    def __contains__(self, name: object) -> bool:
        # The inherited method reads the value, and so would convert columns that are not used.
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def dataset_rows(place: Place, *, after: int = 0, streaming: bool = False) -> Iterator[Mapping[str, Any]]:
    """Iterate over the rows of a data set after the first `after`, from memory-mapped files or streamed from
    the hub.
    """
    source, data = place.path, _load(place, streaming=streaming and place.form == "hub")
    if not after:
        return _python_rows(data, source, 0)
    if hasattr(data, "__len__") and len(data) <= after:
        if len(data) < after:
            raise DataError(
                f"{source} must be unchanged since it was read, got {len(data):,} rows, "
                f"not {after:,}; restore it, or start again"
            )
        return iter(())
    return _python_rows(data.skip(after), source, after)


def dataset_size(place: Place) -> int:
    """Number of rows of a data set."""
    return len(_load(place))


def _load(place: Place, *, streaming: bool = False) -> Any:
    """One split of a data set, or all of them as one; a set without splits as it is."""
    import datasets

    source = place.path
    data, named_split = _whole(source, place.config, streaming=streaming)
    split = place.split or named_split
    is_single = isinstance(data, datasets.Dataset | datasets.IterableDataset)
    if is_single and split is None:
        return data
    if place.whole and split is None and len(data) > 1:
        warnings.warn(read_whole(source, sorted(data)), stacklevel=2)
        return datasets.concatenate_datasets(list(data.values()))
    return _one_split(data, source, split)


def _whole(source: str, config: str | None = None, *, streaming: bool = False) -> tuple[Any, str | None]:
    """A data set with all of its splits, and the one that its name states."""
    # Imported here, because it takes a second and most sources are plain files.
    import datasets

    try:
        if source.startswith(HUB_PREFIX):
            name, named_config, named_split = hub_name(source)
            # Streams cannot be kept in memory, so they do not accept this option.
            options = {"streaming": True} if streaming else {"keep_in_memory": False}
            cache = hub_cache("HF_DATASETS_CACHE", "datasets")
            return datasets.load_dataset(
                name, config or named_config, cache_dir=cache, **options
            ), named_split
        for path in Path(source).rglob("*"):
            require_regular(path)
        return datasets.load_from_disk(source, keep_in_memory=False), None
    except Exception as error:
        reraise_unrelated(error)
        known = (OSError, ValueError, pa.ArrowException, datasets.exceptions.DatasetsError)
        if source.startswith(HUB_PREFIX) or isinstance(error, known):
            raise DataError(
                f"{source} must be a readable data set, got: {' '.join(str(error).split())}; check its name"
            ) from error
        # The library raises arbitrary errors if its description of the data is incomplete or wrong.
        reason = f"{type(error).__name__}: {error}"
        raise DataError(
            f"{source} must be a whole saved data set, got one that is damaged "
            f"({reason}); save or copy it again"
        ) from error


def _python_rows(data: Any, source: str, before: int) -> Iterator[Mapping[str, Any]]:
    """Rows as Python values; `before` rows of the source precede them."""
    rows, number = iter(data), before + 1
    try:
        while True:
            if (number - before - 1) % VALIDATED_ROWS == 0:
                _require_valid(data, number - before - 1)
            if (values := next(rows, None)) is None:
                return
            yield values
            number += 1
    except OSError as error:
        reraise_unrelated(error)
        raise DataError(
            f"{source}:{number} must be readable, got: {' '.join(str(error).split())}; try again"
        ) from error
    except Exception as error:
        reraise_unrelated(error)
        reason = " ".join(str(error).split())
        raise DataError(
            f"{source}:{number} must hold values that Python can hold, got: {reason}; "
            "drop or convert the column, and save it again"
        ) from error


def _require_valid(data: Any, start: int) -> None:
    """Validate the next rows of a memory-mapped data set: damaged offsets would make Arrow read outside its
    memory and crash.
    """
    import datasets

    if not isinstance(data, datasets.Dataset):
        return
    # Selected rows lie anywhere, so that the whole table is validated once.
    if data._indices is None:
        data.data.table.slice(start, VALIDATED_ROWS).validate(full=True)
    elif not start:
        data._indices.table.validate(full=True)
        data.data.table.validate(full=True)


def source_and_split(address: str, split: str | None) -> tuple[str, str | None]:
    """A data set of the hub or of `save_to_disk` without the split in its name, and the split that is read;
    None if it has no splits.
    """
    source = Source.of(address)
    split = source.split_or(split)
    if source.is_hub:
        name, config, named_split = hub_name(source.path)
        config = source.config or config
        whole, split = name if config in (None, "default") else f"{name}:{config}", split or named_split
    else:
        folder = Path(source.path).resolve()
        if split is None and is_there(folder.parent / "dataset_dict.json"):
            return str(folder.parent), folder.name
        whole = str(folder)
    if split is None:
        data, _ = _whole(source.path, source.config)
        split = next(iter(data)) if isinstance(data, dict) and len(data) == 1 else None
    return whole, split


def hub_name(source: str) -> tuple[str, str | None, str | None]:
    """Name, configuration and split."""
    fields = source.removeprefix(HUB_PREFIX).split(":")
    if not all(fields) or len(fields) > 3:
        raise DataError(
            f"{source} must read hf:NAME, hf:NAME:SPLIT or hf:NAME:CONFIG:SPLIT, "
            f"got {len(fields)} parts; correct it"
        )
    return fields[0], fields[1] if len(fields) == 3 else None, fields[-1] if len(fields) > 1 else None


def _one_split(data: Any, source: str, split: str | None) -> Any:
    """The split that is named or the only one."""
    if not isinstance(data, dict):
        raise DataError(
            f'{source} must have the split "{split}", got a single data set '
            "without splits; leave the split out"
        )
    names = sorted(data)
    example = f"{source}{':' if source.startswith(HUB_PREFIX) else '/'}{names[0]}"
    return data[one_split(names, split, source, example=example)]
