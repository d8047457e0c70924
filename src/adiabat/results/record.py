"""``result.json``: the base record of every job, with one reader and one writer."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

from adiabat.core.disk import make_folder
from adiabat.core.errors import DataError, JobError, MissingDependencyError, reraise_unrelated, several
from adiabat.core.files import read_json, sealed_json, write_together, writing_to
from adiabat.core.formats import UPDATE, Format, reader_of, to_upgrade
from adiabat.core.misfits import misfits
from adiabat.core.text import printable
from adiabat.core.version import is_newer, version_in

if TYPE_CHECKING:
    from pandas import DataFrame

Ends = tuple[float, float]
"""Lower and upper end of an interval, at 95 % unless a field says otherwise."""

FORMAT = 6
"""Version of the layout of all records; adiabat 0.1 wrote 1 to 4, and each kind of record had its own number
up to 3."""

RECORDS = Format(FORMAT, oldest=4, writers={**dict.fromkeys(range(1, 5), "0.1"), 5: "0.2.0.dev0"})
"""Records of formats 4 and 5 whose fields are those of today are read as they are: those without verdicts,
which have reasons since 6."""

RECORD_FILE = "result.json"

AGAIN = "repeat the command that wrote it"

_CLASSES = {
    **dict.fromkeys(("training", "evaluation"), "evaluation_result.Result"),
    "suite": "suite_result.SuiteResult",
    "sweep": "sweep_result.SweepResult",
    "rate-search": "rate_search_result.SafeRate",
    **dict.fromkeys(("scaling", "plan"), "scaling_result.ScalingResult"),
    "space": "space_result.SpaceResult",
    "advice": "advice_result.Advice",
    "tenants": "tenants_result.TenantsResult",
    "distillation": "distillation_result.DistillResult",
}
"""Kind of a record to its class; a class is imported when a record of its kind is read."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What people read of a record: the headline of its page, the sentences below, and its tables as text."""

    headline: str
    reasons: list[str]
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Fields that every ``result.json`` has.

    Attributes:
        kind: Kind of job, which decides the class.
        title: Title of the report.
        command: Command line that made the record.
        created: ISO 8601, UTC.
        seconds: Duration, over all runs and resumed parts.
        seed: Seed of all random choices; runs of a sweep have their own seeds.
        versions: Package name to version, including ``python`` and ``device``.
        settings: The resolved configuration.
        inputs: Input files and stores by role, such as ``target`` or ``retain 1``, with the SHA-256 of stored
            vectors.
        notes: Notes for the reader.
        format: Version of this layout.
        folder: Directory where it was written or read; None if neither. It is not part of ``result.json``.
        shown: What its page says; None in a record that no public function returned. It is not part of
            ``result.json`` either.
    """

    ROWS: ClassVar[str] = ""
    """Field whose entries are the rows of `to_frame`."""

    kind: str
    title: str
    command: str
    created: str
    seconds: float
    seed: int
    versions: dict[str, str]
    settings: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    format: int = FORMAT
    folder: Path | None = field(default=None, compare=False, repr=False)
    shown: "Shown | None" = field(default=None, compare=False, repr=False)

    def __fspath__(self) -> str:
        if self.folder is None:
            raise JobError(
                "this result was not saved, so it has no path; pass out=DIR to the function that makes it"
            )
        return str(self.folder)

    @property
    def page(self) -> Path:
        """Path of ``report.html``."""
        return Path(self) / "report.html"

    @property
    def headline(self) -> str:
        """The headline of the page: the verdict in one sentence; "" if the record has no page of its own."""
        return self._shown().headline

    @property
    def reasons(self) -> list[str]:
        """The sentences below the headline: what it rests on, and what limits it."""
        return self._shown().reasons

    def summary(self) -> str:
        """The headline, the table and the notes of the page as text."""
        return self._shown().summary

    def _shown(self) -> "Shown":
        if self.shown is None:
            raise JobError("this record has no page yet; take the result that a function of adiabat returned")
        return self.shown

    def to_frame(self) -> "DataFrame":
        """A pandas DataFrame of the figures: a row for each data set and measure, model and task, or run."""
        return frame_of(self.rows())

    def rows(self) -> list[dict[str, Any]]:
        """The rows of `to_frame` as plain data."""
        return [asdict(entry) for entry in getattr(self, self.ROWS)] if self.ROWS else [self.to_json()]

    def to_json(self) -> dict[str, Any]:
        """Nested plain data, ready for `json.dump`."""
        # Where a record lies, and what its page says, follow from other files.
        plain = asdict(self)
        del plain["folder"], plain["shown"]
        return plain


AnyRecord = TypeVar("AnyRecord", bound=Record)


def write_result(
    record: Record, folder: Path, *, beside: Mapping[str, Callable[[], str | bytes]] | None = None
) -> None:
    """Write ``result.json`` with a checksum, and the files made from it: all or none.

    Characters that are not valid text (lone surrogates, controls) are stored as U+FFFD.

    Args:
        beside: Path inside `folder` to the function that renders the file.

    Raises:
        DataError: If a number is not finite, or the file system refuses a file.
    """
    # JSON has no infinity and no NaN: a reader in another language would refuse the file.
    plain = record.to_json()
    if faults := _not_finite(plain):
        raise DataError(
            f"{folder / RECORD_FILE}: {several(faults)}; leave out figures that could not be measured"
        )
    # All files are rendered before the first is written, so that a failing page leaves none behind.
    files = {folder / name: render() for name, render in (beside or {}).items()}
    for subfolder in {path.parent for path in files} - {folder}:
        with writing_to(subfolder):
            make_folder(subfolder)
    write_together({folder / RECORD_FILE: sealed_json(_clean(plain)), **files})


@overload
def read_result(path: Path) -> Record: ...
@overload
def read_result(path: Path, expected: type[AnyRecord]) -> AnyRecord: ...
def read_result(path: Path, expected: type[Record] = Record) -> Record:
    """Read a record that `write_result` wrote; its ``kind`` decides the class.

    Args:
        path: Path of ``result.json``.
        expected: Class that the record must have.

    Raises:
        DataError: If the file is missing, damaged, of another format, or of a kind with another class.
    """
    if not path.exists():
        raise DataError(
            f"{path} must be a readable result.json, got No such file or directory; "
            "run the job that writes it first"
        )
    # Without its checksum at first, which the first records had not.
    number = read_json(path, remedy=AGAIN, required=False).get("format")
    older = AGAIN if number is None else to_upgrade(path.parent)
    RECORDS.require(number, path, older=older)
    plain = read_json(path, remedy=AGAIN)
    kind = plain.get("kind")
    if kind not in _CLASSES:
        raise DataError(f"{path}: kind must be one of {', '.join(_CLASSES)}, got {kind}; {AGAIN}")
    # Only the class of this kind is imported, which keeps the start of a verb short.
    record_class = class_of(kind)
    if not issubclass(record_class, expected):
        wanted = ", ".join(
            kind for kind, known in _CLASSES.items() if known.endswith(f".{expected.__name__}")
        )
        raise DataError(f"{path} must be the result of a job of kind {wanted}, got {kind}; name another file")
    # A verdict without reasons would look like proof.
    if number != FORMAT and _lacks_reasons(plain):
        raise DataError(f"{path} has verdicts without reasons, as former versions wrote them; {older}")
    from pydantic import ValidationError

    # Python reads NaN and Infinity, though JSON has no such numbers.
    faults = _not_finite(plain)
    remedy = AGAIN if number == FORMAT else older
    try:
        read: Record = reader_of(record_class).validate_json(json.dumps(plain), strict=True)
    except ValidationError as error:
        faults += misfits(error)
        remedy = UPDATE if is_newer(version_in(path) or "") else remedy
        raise DataError(f"{path}: {several(faults)}; {remedy}") from error
    if faults:
        raise DataError(f"{path}: {several(faults)}; {AGAIN}")
    return replace(read, folder=path.parent)


def class_of(kind: str) -> type[Record]:
    """The class of a kind of record."""
    module, _, name = _CLASSES[kind].partition(".")
    record_class: type[Record] = getattr(import_module(f"adiabat.results.{module}"), name)
    return record_class


def _lacks_reasons(plain: Any) -> bool:
    """Whether a record holds comparisons without the reasons of their verdicts."""
    if isinstance(plain, Mapping):
        if plain.get("before") is not None and "verdict" in plain and "reasons" not in plain:
            return True
        plain = list(plain.values())
    return isinstance(plain, list) and any(map(_lacks_reasons, plain))


def _not_finite(plain: Any) -> list[str]:
    """A phrase for each number that is not finite, with its key."""
    return [
        f"{key} must be finite, got {number}"
        for key, number in _floats(plain, "result")
        if not math.isfinite(number)
    ]


def _floats(plain: Any, key: str) -> Iterator[tuple[str, float]]:
    if isinstance(plain, float):
        yield key, plain
    elif isinstance(plain, dict):
        for name, value in plain.items():
            yield from _floats(value, f"{key}.{name}")
    elif isinstance(plain, list | tuple):
        for position, value in enumerate(plain):
            yield from _floats(value, f"{key}[{position}]")


def _clean(plain: Any) -> Any:
    if isinstance(plain, str):
        return printable(plain)
    if isinstance(plain, dict):
        return {printable(str(key)): _clean(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [_clean(value) for value in plain]
    return plain


def frame_of(rows: Iterable[Mapping[str, Any]]) -> "DataFrame":
    """Make a DataFrame with a row for each mapping; keys of nested mappings are joined by dots."""
    return pandas_for("to_frame()").json_normalize(list(rows))


def pandas_for(purpose: str) -> Any:
    """The module pandas, which is an extra."""
    try:
        import pandas
    except ImportError as error:
        reraise_unrelated(error)
        raise MissingDependencyError("pandas", extra="frames", purpose=purpose) from error
    return pandas
