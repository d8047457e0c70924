"""Arguments of the public functions: paths or objects, rows in memory, settings as keywords; a wrong type is
one TypeError.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, time
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from adiabat.config.reader import checked, in_file, keys_of, read_table, shallow, with_values
from adiabat.config.section import Section
from adiabat.core.disk import make_folder, move, new_file, real
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.files import require_name, require_no_zero
from adiabat.core.surroundings import user_cache
from adiabat.core.text import shown
from adiabat.core.wording import remember_rows
from adiabat.data.records import text_id
from adiabat.data.sources import COLUMNS, with_columns, with_split

if TYPE_CHECKING:
    from adiabat.config.shared import RetainSection

S = TypeVar("S", bound=Section)

PathLike = str | os.PathLike[str]
"""A path, or the return value of a function of adiabat: stores, results and mined files know their path
(`os.fspath`)."""


class Frame(Protocol):
    """A DataFrame of pandas or polars, which need not be installed."""

    @property
    def columns(self) -> Any:
        """Names of columns."""


Data = PathLike | Frame | Iterable[Mapping[str, Any]] | Iterable[str]
"""A file, folder or hub name; or rows: a list of dicts (or, for a corpus, of texts), a DataFrame, a
`datasets.Dataset`."""

SettingsLike = Section | PathLike | Mapping[str, Any] | None
"""A settings object, a TOML file, nested dicts, or None for the defaults."""

DATA_TYPES = "a path, a list of dicts, a DataFrame of pandas or polars, or a datasets.Dataset"


def wrong_type(argument: str, allowed: str, value: object) -> TypeError:
    """The error for an argument of a type that a function does not take."""
    return TypeError(f"{argument} must be {allowed}, got {shown(value)} ({type(value).__name__})")


def path_of(value: object, argument: str, *, allowed: str = "a path, or a result of adiabat") -> str:
    """The path of an argument: itself, or where the object lies."""
    # A path of bytes is none: records and messages hold text.
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str):
        raise wrong_type(argument, allowed, value)
    if not path:
        raise ConfigError(f"{argument} must be a path, got an empty text; name a file or folder")
    require_name(Path(path), error=ConfigError)
    return path


Retained = tuple[PathLike, Data] | tuple[PathLike, Data, Mapping[str, str]]
"""A store and its data, and perhaps the names of the columns of these data by adiabat's names."""


def retained_sets(retain: Sequence[Retained], listed: Sequence["RetainSection"]) -> list[tuple[str, str]]:
    """Store and address of each retention set, those of the settings first."""
    sets = [
        (each.store, with_columns(with_split(each.data, each.split), each.columns.given())) for each in listed
    ]
    # Each set may name its columns, since its file may have others than the target.
    for store, data, *columns in retain:
        named: Mapping[str, str] = columns[0] if columns else {}
        if unknown := [name for name in named if name not in COLUMNS]:
            raise ConfigError(
                f"columns of retain must be adiabat's names, got {', '.join(unknown)}; "
                f"the names are {', '.join(COLUMNS)}"
            )
        sets.append((path_of(store, "store"), with_columns(data_of(data, "retain"), named)))
    return sets


def require_retained(retain: object) -> None:
    """Refuse a `retain` that is no list of stores with their data."""
    if isinstance(retain, Sequence) and all(
        isinstance(each, list | tuple) and _is_retained(*each) for each in retain
    ):
        return
    raise wrong_type(
        "retain",
        "a list of pairs of a store and its data, or of triples with the names of its columns",
        retain,
    )


def require_pairs(value: object, argument: str, allowed: str) -> None:
    """Refuse an argument that is no list of pairs."""
    entries = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(entry, list | tuple) and len(entry) == 2 for entry in entries):
        raise wrong_type(argument, allowed, value)


def _is_retained(*entry: object) -> bool:
    return len(entry) == 2 or (len(entry) == 3 and isinstance(entry[2], Mapping))


def optional_name(value: object, argument: str) -> str | None:
    """The path of an optional argument, as text."""
    return None if value is None else path_of(value, argument)


def optional_path(value: object, argument: str) -> Path | None:
    """The path of an optional argument."""
    return None if value is None else Path(path_of(value, argument))


def place_of(value: object, argument: str = "out") -> Path:
    """The place that a function writes to: links on the way there are resolved, those inside are not
    followed.
    """
    return real(Path(path_of(value, argument)))


def optional_place(value: object, argument: str = "out") -> Path | None:
    """The same of an optional argument."""
    return None if value is None else place_of(value, argument)


def with_real_out(settings: S, section: str) -> S:
    """Settings whose ``out`` in a section is the place of `place_of`."""
    table = getattr(settings, section)
    if table.out is None or str(out := real(Path(table.out))) == table.out:
        return settings
    return settings.model_copy(update={section: table.model_copy(update={"out": str(out)})})


def require_model(value: object, argument: str) -> None:
    """Refuse an argument that is not a model."""
    if isinstance(value, str | os.PathLike):
        require_no_zero(Path(value), error=ConfigError)
        return
    from adiabat.models.towers import DualEncoder

    if not isinstance(value, DualEncoder):
        raise wrong_type(argument, "a model: a hub name, a path, a finished job, or a loaded model", value)


def data_of(value: Data, argument: str) -> str:
    """A readable path for data; rows in memory are first written to the user's cache.

    The file is named by its content, so that a run resumed with the same rows reads the same file.
    """
    if isinstance(value, str | os.PathLike):
        return path_of(value, argument)
    # Written under a temporary name, as the digest is known only behind the last row.
    folder, digest = user_cache() / "rows", hashlib.sha256()
    with _caching(folder), TemporaryDirectory(dir=folder) as temporary:
        written = Path(temporary) / "rows"
        with new_file(written) as file:
            # Row by row: a generator may yield more than memory holds.
            for row in _rows(value, argument):
                line = f"{json.dumps(row)}\n".encode()
                digest.update(line)
                file.write(line)
            if not file.tell():
                raise DataError(f"{argument} must hold at least one row, got none; add rows")
        rows = folder / f"rows-{digest.hexdigest()[:16]}.jsonl"
        move(written, rows)
        remember_rows(str(rows), argument)
        return str(rows)


@contextmanager
def _caching(folder: Path) -> Iterator[None]:
    """Make a folder of the cache; a failure of the disk becomes one line."""
    try:
        make_folder(folder, parents=True)
        yield
    except OSError as fault:
        # A generator of rows may raise its own file errors.
        faulty = folder if fault.filename is None else Path(str(fault.filename))
        if not (faulty in folder.parents or faulty.is_relative_to(folder)):
            raise
        advice = "free space there or set XDG_CACHE_HOME to another folder"
        raise DataError(f"{folder} must be writable, got {fault.strerror or fault}; {advice}") from fault


def sources_of(value: Any, argument: str) -> list[str]:
    """A readable path for data with one or several sources: a path, a list of paths, or rows in memory."""
    if isinstance(value, str | os.PathLike):
        return [path_of(value, argument)]
    if isinstance(value, list | tuple) and all(isinstance(entry, str | os.PathLike) for entry in value):
        return [path_of(entry, argument) for entry in value]
    return [data_of(value, argument)]


def _is_from(library: str, value: object, attribute: str) -> bool:
    """Whether a value is an object of a library with an attribute; the library need not be installed."""
    return type(value).__module__.partition(".")[0] == library and hasattr(value, attribute)


def is_pandas(value: object) -> bool:
    """Whether a value is a DataFrame of pandas."""
    return _is_from("pandas", value, "columns")


def is_polars(value: object) -> bool:
    """Whether a value is a DataFrame or a LazyFrame of polars."""
    return _is_from("polars", value, "with_columns")


def is_frame(value: object) -> bool:
    """Whether a value is a table in memory whose rows are not its entries."""
    return is_pandas(value) or is_polars(value)


def frame_rows(frame: Any) -> Iterable[Mapping[str, Any]]:
    """The rows of a DataFrame."""
    # Each library has its own way to rows, and a lazy frame has none before it is collected.
    if is_pandas(frame):
        return frame.to_dict("records")  # type: ignore[no-any-return]
    return frame.lazy().collect().iter_rows(named=True)  # type: ignore[no-any-return]


def is_dataset(value: object) -> bool:
    """Whether a value is a data set of the ``datasets`` library."""
    return _is_from("datasets", value, "column_names")


def _rows(value: Any, argument: str) -> Iterator[Mapping[str, Any]]:
    if is_frame(value):
        value = frame_rows(value)
    elif isinstance(value, Mapping | bytes) or not isinstance(value, Iterable):
        raise wrong_type(argument, DATA_TYPES, value)
    for row in value:
        # A text alone, of a corpus, is named by its hash: the same text has the same id in every call.
        if isinstance(row, str):
            yield {"_id": text_id(row), "text": row}
        elif isinstance(row, Mapping):
            yield _plain(row, argument)
        else:
            raise wrong_type(f"a row of {argument}", "a dict (or, in a corpus, a text)", row)


def _plain(value: Any, argument: str) -> Any:
    """A row or cell in JSON's types: numbers and arrays of numpy become Python's, dates and decimals texts,
    missing values None.
    """
    if value is None or _is_missing(value):
        return None
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        if odd := [name for name in value if not isinstance(name, str)]:
            raise wrong_type(f"a key in a row of {argument}", "a text", odd[0])
        return {name: _plain(cell, argument) for name, cell in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry, argument) for entry in value]
    if isinstance(value, date | time | Decimal):
        return str(value)
    # `m` and `M` are numpy's kinds of durations and dates.
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    # numpy would convert dates to integers of nanoseconds.
    plain = (
        value.astype(f"{kind}8[us]").tolist()
        if kind in ("m", "M")
        else value.tolist()
        if hasattr(value, "tolist")
        else value
    )
    # Nothing converted it, and a further round would not either.
    if type(plain) is type(value):
        raise wrong_type(
            f"a cell in a row of {argument}",
            "a text, number, truth value, date, list, array, dict or None",
            value,
        )
    return _plain(plain, argument)


def _is_missing(value: Any) -> bool:
    """Whether a cell is NaN, or pandas' NA or NaT."""
    if isinstance(value, float):
        return math.isnan(value)
    return value.is_nan() if isinstance(value, Decimal) else type(value).__name__ in ("NAType", "NaTType")


def with_section(options: Mapping[str, Any], section: str, **values: Any) -> dict[str, Any]:
    """Keyword arguments with the values of positional ones laid over their section; empty values are left
    out.
    """
    table = options.get(section)
    if not isinstance(table, Mapping | None):
        raise wrong_type(section, "a dict of settings", table)
    given = {name: value for name, value in values.items() if value}
    return {**options, section: {**(table or {}), **given}} if given else dict(options)


def settings_table(settings: SettingsLike, kind: type[Section]) -> dict[str, Any]:
    """The tables of settings in any form, without defaults."""
    if settings is None:
        return {}
    if isinstance(settings, Mapping):
        table: dict[str, Any] = _setting(settings)
        return table
    # Only what was stated: its defaults must not count as stated.
    if isinstance(settings, kind):
        return settings.overlay()
    allowed = f"{kind.__name__}, a path of a TOML file or a dict"
    if isinstance(settings, Section):
        raise wrong_type("settings", allowed, settings)
    return read_table(Path(path_of(settings, "settings", allowed=allowed)), kind)


@shallow()
def settings_of(
    kind: type[S], settings: SettingsLike, options: Mapping[str, Any], *, section: str, function: str
) -> S:
    """Settings from an object, a file or dicts, with keyword arguments laid over them.

    A keyword is a section (``run={"seed": 1}``) or a key of any section (``seed=1``). If several sections
    have the key, those of `section` come first, then the least nested one.

    Args:
        kind: The settings class.
        settings: Base settings; None takes the defaults.
        options: Keyword arguments; None values are left out.
        section: Section of the verb.
        function: Name of the public function, for messages.

    Returns:
        The settings.

    Raises:
        TypeError: If a keyword is unknown, or names keys of several sections.
        ConfigError: Naming every faulty value at once.
    """
    stated = {name: value for name, value in options.items() if value is not None}
    if isinstance(settings, kind) and not stated:
        return settings
    table = settings_table(settings, kind)
    # loss="triplet" replaces a loss of another kind, and margin=0.3 changes it, whatever their order.
    values = [(_key(name, value, kind, section, function), _setting(value)) for name, value in stated.items()]
    try:
        return checked(kind, with_values(kind, table, values))
    except ConfigError as fault:
        if not isinstance(settings, str | os.PathLike):
            raise
        # If a keyword sets a key of the file too, either of them may be at fault.
        raise in_file(fault, Path(settings), "keywords" if values else "") from None


def _key(name: str, value: object, kind: type[Section], section: str, function: str) -> str:
    """Dotted key of a keyword's value."""
    if name in kind.model_fields and (isinstance(value, Mapping) or not _is_section(kind, name)):
        return name
    # A key of any depth, so that `seed=1` needs no name of its section.
    keys = [key for key in keys_of(kind) if key.rpartition(".")[2] == name]
    candidates = [key for key in keys if key.startswith(f"{section}.")] or keys
    depth = min((key.count(".") for key in candidates), default=0)
    shortest = [key for key in candidates if key.count(".") == depth]
    if len(shortest) == 1:
        return shortest[0]
    if keys:
        raise TypeError(
            f"{function}() takes {name} as {' or '.join(keys)}; write "
            f"{keys[0].partition('.')[0]}={{...}} as nested dicts"
        )
    if name in kind.model_fields:
        raise wrong_type(name, "a dict of settings", value)
    names = {*kind.model_fields, *(key.rpartition(".")[2] for key in keys_of(kind))}
    # Sorted, so that equally near names are suggested in the same order every time.
    near = get_close_matches(name, sorted(names), n=1)
    advice = f"did you mean {near[0]}?" if near else f"see adiabat settings {function.replace('_', ' ')}"
    # Loaded for this error alone: the keys of earlier versions are known there.
    from adiabat.upgrading.settings import present_key

    present = present_key(name, keys_of(kind))
    if present is not None:
        advice = f"it is {present} today"
    raise TypeError(f"{function}() has no argument or setting {name}; {advice}")


def _is_section(kind: type[Section], name: str) -> bool:
    annotation = kind.model_fields[name].annotation
    return isinstance(annotation, type) and issubclass(annotation, Section)


def _setting(value: Any) -> Any:
    """A value in the form of a TOML file."""
    if isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    # Rows in place of a path, such as validation=frame, are written to a file as data are.
    if is_frame(value) or is_dataset(value):
        return data_of(value, "a setting")
    if isinstance(value, list | tuple):
        return [_setting(entry) for entry in value]
    return {name: _setting(entry) for name, entry in value.items()} if isinstance(value, Mapping) else value


def texts_with_ids(texts: Iterable[str], ids: Iterable[object] | None) -> list[dict[str, str]]:
    """Rows of a corpus from texts and their ids; without ids, texts are named by their hash."""
    texts = list(texts)
    names = [text_id(text) for text in texts] if ids is None else [str(name) for name in ids]
    if len(names) != len(texts):
        raise DataError(
            f"ids and texts must be equally many, got {len(names):,} ids and "
            f"{len(texts):,} texts; give one id for each text"
        )
    return [{"_id": name, "text": text} for name, text in zip(names, texts, strict=True)]
