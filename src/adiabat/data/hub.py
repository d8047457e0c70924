"""Data sets of the ``datasets`` library: directories it saved, and names of the Hugging Face hub."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from adiabat.errors import DataError

HUB_PREFIX = "hf:"
"""Before a name of the hub."""

VALIDATED_ROWS = 1_000
"""Of a data set on disk, at a time."""


def dataset_rows(source: str, *, split: str | None, after: int = 0, streaming: bool = False) -> Iterator[Mapping[str, Any]]:
    """Iterate over the rows of a data set, read from its memory-mapped files, or from the hub as they are asked for.

    Args:
        split: Which split; None takes the one in `source`, or the only one.
    """
    data = _load(source, split, streaming=streaming and source.startswith(HUB_PREFIX))
    if not after:
        return _python_values(data, source, 0)
    if hasattr(data, "__len__") and len(data) <= after:
        if len(data) < after:
            raise DataError(f"{source} must be what was read before, got {len(data):,} rows, not {after:,}; bring it back, or start anew")
        return iter(())
    return _python_values(data.skip(after), source, after)


def dataset_size(source: str, *, split: str | None) -> int:
    """Number of rows of a data set."""
    return len(_load(source, split))


def _load(source: str, split: str | None, *, streaming: bool = False) -> Any:
    # Imported here: it takes a second, and most sources are plain files.
    import datasets

    try:
        if source.startswith(HUB_PREFIX):
            name, config, named_split = _parts(source)
            # Told only where it is wanted: a stream has no file that could be kept in memory.
            how = {"streaming": True} if streaming else {"keep_in_memory": False}
            data, split = datasets.load_dataset(name, config, **how), split or named_split
        else:
            data = _saved(source)
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{source} must be a readable data set, got: {' '.join(str(error).split())}; check its name") from error
    whole = isinstance(data, datasets.Dataset | datasets.IterableDataset)
    return data if whole and split is None else _one_split(data, source, split)


def _saved(source: str) -> Any:
    import datasets

    try:
        return datasets.load_from_disk(source, keep_in_memory=False)
    except (OSError, ValueError, pa.ArrowException, datasets.exceptions.DatasetsError):
        raise
    except Exception as error:
        # Where a description lacks a key, or holds another kind of value than the library expects, it fails in any way.
        reason = f"{type(error).__name__}: {error}"
        raise DataError(f"{source} must be a whole saved data set, got one that is damaged ({reason}); save or copy it again") from error


def _python_values(data: Any, source: str, before: int) -> Iterator[Mapping[str, Any]]:
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
        raise DataError(f"{source}:{number} must be readable, got: {' '.join(str(error).split())}; try again") from error
    except Exception as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{source}:{number} must hold values that Python can hold, got: {reason}; drop or convert the column, and save it again"
        ) from error


def _require_valid(data: Any, start: int) -> None:
    """Check the next rows of a data set that is mapped from disk: Arrow follows damaged offsets out of its memory."""
    import datasets

    if not isinstance(data, datasets.Dataset):
        return
    if data._indices is None:
        data.data.table.slice(start, VALIDATED_ROWS).validate(full=True)
    elif not start:
        data._indices.table.validate(full=True)
        data.data.table.validate(full=True)


def _parts(source: str) -> tuple[str, str | None, str | None]:
    """Name, configuration and split."""
    parts = source.removeprefix(HUB_PREFIX).split(":")
    if not all(parts) or len(parts) > 3:
        raise DataError(f"{source} must read hf:NAME, hf:NAME:SPLIT or hf:NAME:CONFIG:SPLIT, got {len(parts)} parts; correct it")
    return parts[0], parts[1] if len(parts) == 3 else None, parts[-1] if len(parts) > 1 else None


def _one_split(data: Any, source: str, split: str | None) -> Any:
    if not isinstance(data, dict):
        raise DataError(f'{source} must have the split "{split}", got a single data set without splits; leave the split out')
    names = sorted(data)
    if split is None and len(names) == 1:
        return data[names[0]]
    if split is None:
        one = f"{source}{':' if source.startswith(HUB_PREFIX) else '/'}{names[0]}"
        raise DataError(f"{source} must be read with a split, got the splits {', '.join(names)}; set data.split, or name one as {one}")
    if split not in names:
        raise DataError(f'{source} must have the split "{split}", got the splits {", ".join(names)}; choose one of them')
    return data[split]
