"""Vectors and ids of other programs: numpy, Parquet, Arrow and faiss files, read a block at a time.

An npy file has vectors alone, in rows. A table has a column of lists or tensors, and perhaps one of ids,
under usual names or those of its address. A faiss index has its own ids, or none. Whole numbers are refused
as vectors: they may be codes of a quantiser, whose scale the file does not have.
"""

import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Int

from adiabat.core.arrays import BlockArray
from adiabat.core.disk import AnyPath
from adiabat.core.errors import (
    ConfigError,
    DataError,
    Faults,
    MissingDependencyError,
    StoreError,
    reraise_unrelated,
    several,
)
from adiabat.core.files import reading, require_plain
from adiabat.core.text import cut
from adiabat.core.wording import option
from adiabat.data.lines import Cursor, text_lines
from adiabat.data.sources import Source
from adiabat.store.arrow_tables import TABLE_SUFFIXES, open_table

ID_NAMES = ("doc_id", "_id", "id")
VECTOR_NAMES = ("vector", "embedding", "embeddings", "vec")
TABLE_COLUMNS = ("doc_id", "vector", "text", "title")
"""Names that the address of a table of vectors may map."""
FAISS_SUFFIXES = (".faiss", ".index")
SUFFIXES = ".npy, .parquet, .arrow, .feather, .faiss or .index"
IDS_PER_BLOCK = 65_536

Ids = AnyPath | Sequence[str] | Sequence[int] | np.ndarray
"""Ids as callers may give them: a file, a list or an array."""

CODES = (
    "integers may be codes, whose scale is missing: save codes * scale + offset, as the engine that made "
    "them reads them (of one bit a dimension, numpy.unpackbits(codes, axis=1) * 2.0 - 1)"
)
"""Advice on vectors of integers."""


@dataclass(frozen=True, slots=True)
class VectorSource:
    """Vectors of a file; `blocks` gives (ids of the file or None, vectors) of consecutive rows, once."""

    width: int
    has_ids: bool
    blocks: Iterator[tuple[list[str] | None, BlockArray]]


def open_vectors(address: str | Path, *, block_rows: int) -> VectorSource:
    """Open a file of vectors by its suffix; columns of a table may be named in its address."""
    path, columns = _file_and_columns(address, "vectors", TABLE_COLUMNS)
    read_table = partial(_open_table, named=columns)
    readers: dict[str, Callable[[Path, int], VectorSource]] = {
        ".npy": _open_numpy,
        **dict.fromkeys(TABLE_SUFFIXES, read_table),
        **dict.fromkeys(FAISS_SUFFIXES, _open_faiss),
    }
    if path.suffix not in readers:
        raise StoreError(
            f"{path}: vectors must end in {SUFFIXES}, got {path.suffix or 'no suffix'}; "
            "write them in one of these formats"
        )
    return readers[path.suffix](path, block_rows)


def require_vectors(address: str | Path, ids: object) -> None:
    """Refuse a file of vectors by its header, and one of ids by its name; a faiss index, which is read whole,
    is opened later.
    """
    path, _ = _file_and_columns(address, "vectors", TABLE_COLUMNS)
    if isinstance(ids, str | os.PathLike):
        _file_and_columns(os.fspath(ids), "ids", ("doc_id",))
    if path.suffix not in FAISS_SUFFIXES:
        require_ids(open_vectors(address, block_rows=1), path, ids)


def require_ids(vectors: VectorSource, name: object, ids: object) -> None:
    """Refuse vectors that come without ids."""
    if ids is None and not vectors.has_ids:
        raise StoreError(
            f"{name}: vectors must come with ids, the file holds none; name a file of them ({option('ids')})"
        )


def _file_and_columns(
    address: str | Path, content: str, names: Sequence[str]
) -> tuple[Path, Mapping[str, str]]:
    """A file of vectors or ids, and the columns that its address names, which must be among `names` and of a
    table.
    """
    source = Source.of(address)
    path = Path(source.path)
    is_table = path.suffix in TABLE_SUFFIXES
    if strange := [name for name in source.columns if name not in names or not is_table]:
        where = f"of {' and '.join(names)} alone" if is_table else "in tables alone"
        raise ConfigError(f"{path}: columns can be named {where}, got {', '.join(strange)}; leave it out")
    if not path.exists():
        raise StoreError(f"{path}: {content} must be a file, there is none; check the path")
    require_plain(path, error=StoreError)
    return path, source.columns


def _named_column(
    path: Path,
    name: str,
    columns: Mapping[str, str],
    usual: Sequence[str],
    present: Sequence[str],
    *,
    required: bool = True,
) -> str:
    """The file's name of a column: the one that the address gives, or a usual one; "" for none."""
    wanted = (columns[name],) if name in columns else usual
    found = next((each for each in wanted if each in present), "")
    if not found and (required or name in columns):
        remedy = "name a column that is there" if name in columns else f"rename it, or add ?{name}=NAME"
        raise StoreError(
            f"{path}: must have a column named {' or '.join(wanted)}, got {', '.join(present)}; {remedy}"
        )
    return found


def _open_numpy(path: Path, block_rows: int) -> VectorSource:
    """An npy file of vectors, which holds no ids."""
    # numpy would also open an archive of several arrays, and advise to unpickle any other file.
    with path.open("rb") as file:
        head = file.read(6)
    if head.startswith(b"PK"):
        raise StoreError(
            f"{path}: must be an npy file, got an archive of several (npz); write the one array with "
            "numpy.save"
        )
    if not head.startswith(b"\x93NUMPY"):
        beginning = f"one that begins with {head!r}" if head else "an empty file"
        raise StoreError(f"{path}: must be a whole npy file, got {beginning}; write it with numpy.save")
    array = _mapped(path)
    if array.ndim != 2 or array.dtype.kind != "f" or not array.shape[1]:
        raise StoreError(
            f"{path}: vectors must be a float array of two dimensions, got {array.dtype} of shape "
            f"{array.shape}; {_advice_on(array)}"
        )

    def blocks() -> Iterator[tuple[None, BlockArray]]:
        for start in range(0, len(array), block_rows):
            # Map again for each block: touched pages of one map would count as this process's memory.
            yield None, np.array(_mapped(path)[start : start + block_rows])

    return VectorSource(array.shape[1], False, blocks())


def _advice_on(array: np.ndarray) -> str:
    """How an array of other numbers, or of other dimensions, becomes one of vectors."""
    if array.dtype.kind in "iub" and array.ndim == 2:
        return CODES
    # numpy's files keep the two bytes of a bfloat16, and not its name.
    if array.dtype.kind == "V" and array.dtype.itemsize == 2:
        return "save bfloat16 as float32"
    return "save one"


def _mapped(path: Path) -> np.ndarray:
    """An npy file, mapped into memory."""
    remedy = "write it again with numpy.save, as numbers and not as Python objects"
    with reading(path, remedy=remedy, error=StoreError):
        array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        return array


def _open_table(path: Path, block_rows: int, named: Mapping[str, str]) -> VectorSource:
    """A table with a column of vectors and perhaps one of ids."""
    opened = partial(reading, path, remedy="write the table again", error=StoreError)
    with opened():
        table = open_table(path)
    id_name = _named_column(path, "doc_id", named, ID_NAMES, table.names, required=False)
    vector_name = _named_column(path, "vector", named, VECTOR_NAMES, table.names)
    with opened():
        columns = (_lists(path, batch.column(0)) for batch in table.batches([vector_name], block_rows))
        width = next((int(length) for column in columns for length in _lengths(column) if length > 0), 0)
    if not width:
        raise StoreError(f"{path}: must hold at least one vector, got none")

    def blocks() -> Iterator[tuple[list[str] | None, BlockArray]]:
        start = 0
        with opened():
            for batch in table.batches([vector_name] + ([id_name] if id_name else []), block_rows):
                ids = _plain_ids(path, batch.column(id_name).to_pylist(), start) if id_name else None
                yield ids, _list_array(path, _lists(path, batch.column(vector_name)), start, width)
                start += len(batch)

    return VectorSource(width, bool(id_name), blocks())


def _lists(path: Path, column: Any) -> Any:
    """The column as lists of floats; tensors of one dimension are such lists under another name."""
    kind = column.type
    if isinstance(kind, pa.FixedShapeTensorType) and sum(size > 1 for size in kind.shape) > 1:
        shape = " x ".join(map(str, kind.shape))
        raise StoreError(
            f"{path}: must hold one vector in each row, got tensors of {shape} "
            "numbers; keep one vector of each"
        )
    if isinstance(kind, pa.BaseExtensionType):
        column, kind = column.storage, kind.storage_type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not is_list or not pa.types.is_floating(kind.value_type):
        advice = "convert it"
        if pa.types.is_struct(kind):
            advice = f"keep the field with the numbers: {', '.join(field.name for field in kind)}"
        elif pa.types.is_integer(kind.value_type if is_list else kind):
            advice = CODES
        raise StoreError(f"{path}: vectors must be lists of floats, got a column of {kind}; {advice}")
    return column


def _lengths(column: Any) -> Int[np.ndarray, " n"]:
    """Length of each list; 0 for null."""
    lengths: Int[np.ndarray, " n"] = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return lengths


def _list_array(path: Path, column: Any, start: int, width: int) -> BlockArray:
    """A column of lists as an array; lists must not be null and must have equal length."""
    lengths = _lengths(column)
    odd = np.flatnonzero(lengths != width)
    if len(odd):
        nulls = column.is_null()
        faults = []
        for row in odd.tolist():
            found = "is null" if nulls[row].as_py() else f"has {lengths[row]} numbers"
            faults.append(f"row {start + row} {found}")
        raise StoreError(
            f"{path}: vectors must all have {width} numbers, got "
            f"{several(faults, of='rows')}; correct or drop them"
        )
    # A null within a list becomes NaN, which the import reports with the document's id.
    return np.asarray(column.flatten().to_numpy(zero_copy_only=False)).reshape(-1, width)


def _open_faiss(path: Path, block_rows: int) -> VectorSource:
    """A faiss index, which is read whole; its vectors are reconstructed block by block."""
    try:
        import faiss
    except ImportError as error:
        reraise_unrelated(error)
        raise MissingDependencyError("faiss-cpu", extra="faiss", purpose="reading a faiss index") from error
    with path.open("rb") as file:
        is_binary = file.read(2) == b"IB"
    if is_binary:
        raise StoreError(
            f"{path}: must hold vectors of floats, got a binary index of one bit a dimension; import the "
            "original vectors"
        )
    with reading(path, remedy="write it again with faiss.write_index", error=StoreError):
        index = faiss.read_index(str(path))
    # Lists packed for faiss's fast scan: reconstructing their vectors would crash the process.
    ivf = faiss.try_extract_index_ivf(index)
    if ivf is not None and isinstance(faiss.downcast_index(ivf), faiss.IndexIVFFastScan):
        raise StoreError(f"{path}: IndexIVFFastScan cannot return its vectors; import the original vectors")
    labels, inner = _faiss_labels(faiss, index)
    if not isinstance(inner, faiss.IndexFlat | faiss.IndexHNSWFlat | faiss.IndexIVFFlat | faiss.IndexNSGFlat):
        warnings.warn(
            f"{path}: {type(inner).__name__} keeps compressed vectors; the store gets approximations",
            stacklevel=4,
        )

    def blocks() -> Iterator[tuple[list[str] | None, BlockArray]]:
        for start in range(0, index.ntotal, block_rows):
            rows = min(block_rows, index.ntotal - start)
            ids = None if labels is None else [str(label) for label in labels[start : start + rows]]
            try:
                # Below an id map, and in an index without ids, vectors are numbered from 0; an inverted list
                # uses its own ids.
                keys = np.arange(start, start + rows)
                if inner is index and labels is not None:
                    keys = labels[start : start + rows]
                yield ids, inner.reconstruct_batch(keys)
            except RuntimeError as error:
                reraise_unrelated(error)
                raise StoreError(
                    f"{path}: {type(inner).__name__} cannot return its vectors; import the original vectors"
                ) from error

    return VectorSource(index.d, labels is not None, blocks())


def _faiss_labels(faiss: Any, index: Any) -> tuple[np.ndarray | None, Any]:
    """The ids in an index, or None, and the index that can reconstruct its vectors.

    An id map holds the ids beside another index. Inverted lists hold them list by list; here they are sorted.
    """
    ivf = faiss.try_extract_index_ivf(index)
    if ivf is not None:
        # Inverted lists hold arbitrary ids: a hash table finds each, also behind a transform or an id map.
        ivf.set_direct_map_type(faiss.DirectMap.Hashtable)
    if isinstance(index, faiss.IndexIDMap):
        return faiss.vector_to_array(index.id_map), faiss.downcast_index(index.index)
    if ivf is None or isinstance(index, faiss.IndexRefine):
        return None, index
    lists = ivf.invlists
    labels = [
        faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number)).copy()
        for number in range(lists.nlist)
        if lists.list_size(number)
    ]
    return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *labels])), index


def read_ids(ids: Ids) -> Iterator[str]:
    """Document ids of a list, an array or a file: ``.json``, ``.npy``, Parquet, Arrow (a column of
    `ID_NAMES`), or text lines.
    """
    if not isinstance(ids, str | os.PathLike):
        return iter(_plain_ids("ids given", ids))
    path, columns = _file_and_columns(os.fspath(ids), "ids", ("doc_id",))
    if path.suffix in TABLE_SUFFIXES:
        return _column_ids(path, columns)
    if path.suffix not in (".json", ".npy"):
        return _text_ids(path)
    found = _json_ids(path) if path.suffix == ".json" else _npy_ids(path)
    return iter(_plain_ids(path, found))


def _json_ids(path: Path) -> list[object]:
    """Ids in a JSON file, which holds one list."""
    with reading(path, remedy="write it again, as a list of strings", error=StoreError):
        ids = json.loads(path.read_text(encoding="utf-8-sig"))
    if not isinstance(ids, list):
        raise StoreError(f"{path}: ids must be one list, got {type(ids).__name__}; write one")
    return ids


def _npy_ids(path: Path) -> np.ndarray:
    """Ids in an npy file, which holds one array of strings or numbers."""
    with reading(path, remedy="save strings or numbers, such as ids.astype(str)", error=StoreError):
        array = np.load(path, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        array.close()
        raise StoreError(f"{path}: ids must be an array of one dimension, got an archive (npz); save one")
    if array.ndim != 1:
        raise StoreError(
            f"{path}: ids must be an array of one dimension, got one of shape {array.shape}; save one"
        )
    return array


def _text_ids(path: Path) -> Iterator[str]:
    """Ids in a text file, one in each line."""
    # Only line feeds end a line: an id may hold any other character that Unicode counts as a break.
    faults = Faults()
    try:
        for number, line, _ in text_lines(path, faults, Cursor()):
            doc_id = line.removesuffix("\n").removesuffix("\r")
            if not doc_id:
                faults.add(f"{path}:{number} must be an id, got an empty line")
            if not faults.count:
                yield doc_id
    except DataError as fault:
        raise StoreError(f"ids: {fault}") from fault
    if faults.count:
        raise StoreError(f"ids: {faults.told()}")


def _column_ids(path: Path, columns: Mapping[str, str]) -> Iterator[str]:
    """Ids in a column of a table."""
    start = 0
    with reading(path, remedy="write it again", error=StoreError):
        table = open_table(path)
        name = _named_column(path, "doc_id", columns, ID_NAMES, table.names)
        for batch in table.batches([name], IDS_PER_BLOCK):
            yield from _plain_ids(path, batch.column(0).to_pylist(), start)
            start += len(batch)


def _plain_ids(source: Path | str, ids: Iterable[object], start: int = 0) -> list[str]:
    """Strings and whole numbers as text; any other value is refused, and so is what a lost block leaves in an
    array of strings.
    """
    values = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
    strange = ((i, value) for i, value in enumerate(values, start) if not _is_id(value))
    if odd := [f"entry {index} is {cut(repr(value), limit=60)}" for index, value in strange]:
        listed = several(odd, of="entries")
        raise StoreError(
            f"{source}: ids must be strings or whole numbers, got {listed}; correct "
            "them, none may be empty or hold a zero byte"
        )
    return [str(value) for value in values]


def _is_id(value: object) -> bool:
    """Whether a value can be the id of a document."""
    if isinstance(value, str):
        return value != "" and "\0" not in value
    # In Python a truth value is also a whole number.
    return isinstance(value, Integral) and not isinstance(value, bool)
