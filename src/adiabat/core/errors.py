"""Errors that a user can fix, in one small class tree.

The command line prints such an error as one line and exits with code 2; any other exception is a defect of
adiabat and exits with 1. A message reads ``<setting or file:line> must <constraint>, got <value>; <what to
do>``.
"""

import errno
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec

from adiabat.core.wording import in_callers_words


class AdiabatError(Exception):
    """Base class of all errors that a user can fix.

    Example:
        >>> try:
        ...     adiabat.load("nowhere/model")
        ... except adiabat.AdiabatError as error:
        ...     print(type(error).__name__)
        ModelError
    """

    def __init__(self, *words: object) -> None:
        """Take the message; it names the arguments of rows in memory, not the files that these were written
        to.
        """
        super().__init__(*(in_callers_words(word) if isinstance(word, str) else word for word in words))


class ConfigError(AdiabatError, ValueError):
    """A setting is unknown, of the wrong type or out of range."""


class BudgetError(ConfigError):
    """A budget is too small for this run; other runs of the experiment can continue."""


class DataError(AdiabatError, ValueError):
    """A data file is missing or malformed, or refers to something that does not exist."""


class StoreError(AdiabatError, ValueError):
    """A store of vectors is damaged, unfinished, or was built by another encoder."""


class ModelError(AdiabatError, ValueError):
    """A model directory cannot be loaded, or has no parameter of a given name."""


class JobError(AdiabatError, RuntimeError):
    """A job directory is taken, damaged, or cannot be resumed."""


class InterruptionError(JobError):
    """A run was asked to stop and has saved the state needed to resume it."""


class DivergedError(JobError):
    """A loss or gradient is not finite: this run stops; other runs of the experiment can continue.

    Attributes:
        what: What was not finite, without the advice for a single run that the message adds.
    """

    what: str

    def __init__(self, what: str, advice: str) -> None:
        """Take the finding and the advice."""
        # Pass both, so that the error can be pickled.
        super().__init__(what, advice)
        self.what = what

    def __str__(self) -> str:
        """Take the finding and the advice."""
        return "; ".join(map(str, self.args))


class InUseError(AdiabatError, RuntimeError):
    """Another process is writing to the same directory."""


class LinkError(AdiabatError, RuntimeError):
    """A symbolic or hard link stands where adiabat would write through it into another place."""


class MissingDependencyError(AdiabatError, ImportError):
    """An optional package is not installed; the message has the command to install it."""

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package}; install it with: pip install 'adiabat[{extra}]'"
        )


def require_packages(packages: Iterable[str], *, extra: str, purpose: str) -> None:
    """Refuse to begin without the packages of an extra, each by the name that it is imported by.

    Args:
        packages: Names of modules.
        extra: Extra of adiabat that brings them.
        purpose: What needs them, for the message.

    Raises:
        MissingDependencyError: For the first one that is missing.
    """
    for package in packages:
        if find_spec(package) is None:
            raise MissingDependencyError(package.replace("_", "-"), extra=extra, purpose=purpose)


def first_line(fault: BaseException) -> str:
    """The first line of another library's message, which may be long or empty; with the next one where it
    only announces that.
    """
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    if not lines:
        return type(fault).__name__
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


class Faults:
    """Counts faults and keeps the text of the first few, so that a file full of faults costs no memory."""

    def __init__(self, *, shown: int = 10) -> None:
        """Start empty; the first `shown` faults are kept as text."""
        self.count = 0
        self._shown = shown
        self._first: list[str] = []

    def add(self, phrase: str) -> None:
        """Add a fault, best with its file and line."""
        self.count += 1
        if len(self._first) < self._shown:
            self._first.append(phrase)

    def extend(self, phrases: Iterable[str]) -> None:
        """Add several faults."""
        for phrase in phrases:
            self.add(phrase)

    def told(self, of: str = "faults") -> str:
        """All faults in one line: a single phrase as it is, otherwise the count with its plural noun and the
        first phrases.
        """
        head = "; ".join(self._first)
        if self.count == 1:
            return head
        more = f"; and {self.count - len(self._first)} more" if self.count > len(self._first) else ""
        return f"{self.count} {of}: {head}{more}"


def several(phrases: Iterable[str], *, of: str = "faults", shown: int = 10) -> str:
    """Join phrases into one line, like `Faults.told`."""
    faults = Faults(shown=shown)
    faults.extend(phrases)
    return faults.told(of)


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that a machine may lack, and how libraries report that.

    Attributes:
        name: What is wanting, for the message.
        advice: What a user can do.
        exit_code: Of a command that ends for want of it.
        numbers: Errors of the operating system.
        phrases: Parts of messages, in lower case, of errors without such a number.
    """

    name: str
    advice: str
    exit_code: int
    numbers: tuple[int, ...]
    phrases: tuple[str, ...]


MEMORY = Resource(
    "memory",
    "free memory",
    1,
    (errno.ENOMEM,),
    (
        "out of memory",
        "defaultcpuallocator",
        "bad_alloc",
        "cannot allocate memory",
        "status_alloc_failed",
        # Of the system's loader, which maps libraries.
        "failed to map segment",
    ),
)
THREADS = Resource(
    "memory or threads",
    "free memory, end other processes, or raise the limit on processes (ulimit -u)",
    1,
    # The number is EAGAIN, which a lock or a full pipe gives too; so the words decide.
    (),
    (
        "can't start new thread",
        "failed to launch worker thread",
        "resource temporarily unavailable",
        "threadpoolbuilderror",
    ),
)
DESCRIPTORS = Resource(
    "file descriptors",
    "raise the limit on open files (ulimit -n), or close other programs",
    1,
    (errno.EMFILE, errno.ENFILE),
    ("too many open files",),
)
DISK = Resource(
    "disk space",
    "free space there, or check the path, the quota, and the limit on file size (ulimit -f)",
    2,
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    # The last is SQLite's.
    ("no space left on device", "disk quota exceeded", "file too large", "disk is full"),
)
RESOURCES = (MEMORY, THREADS, DESCRIPTORS, DISK)


@dataclass(frozen=True, slots=True)
class Shortage:
    """A resource that is wanting, and the message of the library that noticed."""

    resource: Resource
    reason: str


def shortage_of(fault: BaseException) -> Shortage | None:
    """The resource whose lack an exception reports, or one that it was raised for, in whatever class a
    library reports it.

    An `AdiabatError` is already a statement about its cause.
    """
    for cause in _causes(fault):
        if isinstance(cause, AdiabatError):
            return None
        if resource := _wanting(cause):
            return Shortage(resource, str(cause) or type(cause).__name__)
    return None


def reraise_unrelated(fault: BaseException) -> None:
    """Raise an exception again unless it is about the file or model that was being read.

    Errors that a user can fix are statements already, a lack of memory or the like is about the machine, and
    Ctrl-C about neither. A panic of a Rust library is no `Exception`, but a damaged file can cause it.
    """
    is_error = isinstance(fault, Exception) or type(fault).__name__ == "PanicException"
    if not is_error or isinstance(fault, AdiabatError):
        raise fault
    shortage = shortage_of(fault)
    if shortage is not None and not _ABSURD_SIZE.search(shortage.reason):
        raise fault


_ABSURD_SIZE = re.compile(r"[PEZY]iB\b|\b\d{16,}\b")
"""A petabyte or more, which no machine has: a damaged header asks for it."""


def is_out_of_memory(fault: BaseException) -> bool:
    """Whether memory ran out in Python, the system or a GPU; a thread that cannot start may lack memory for
    its stack.
    """
    shortage = shortage_of(fault)
    return shortage is not None and shortage.resource in (MEMORY, THREADS)


def _causes(fault: BaseException) -> Iterator[BaseException]:
    """An exception, the one that it was raised for, and so on."""
    cause: BaseException | None = fault
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        unstated = None if cause.__suppress_context__ else cause.__context__
        cause = cause.__cause__ or unstated


def _wanting(fault: BaseException) -> Resource | None:
    """The resource whose lack one exception reports, by its class, its number or its words."""
    # GPU errors are known by name, because torch may not be loaded.
    if isinstance(fault, MemoryError) or type(fault).__name__ == "OutOfMemoryError":
        return MEMORY
    error = os_error_of(fault)
    text = str(fault).lower()
    for resource in RESOURCES:
        if error is not None and error.errno in resource.numbers:
            return resource
        if not _may_quote(fault) and any(phrase in text for phrase in resource.phrases):
            return resource
    return None


def _may_quote(fault: BaseException) -> bool:
    """Whether a message may quote any text, as that of an error in a value does."""
    return isinstance(fault, (ValueError, TypeError, LookupError, SyntaxError))


_NUMBER = re.compile(r"\(os error (\d+)\)|\bos \{ code: (\d+)|\berrno (\d+)", re.IGNORECASE)
"""An error of the operating system in the messages of Rust's libraries, of its panics, and of Python's and
Arrow's."""

_NUMPY_WROTE_LESS = re.compile(r"\d+ requested and \d+ written")


def os_error_of(fault: BaseException) -> OSError | None:
    """The error of the operating system that an exception is or reports; other languages' libraries have it
    in their messages only.
    """
    if isinstance(fault, OSError) and fault.errno is not None:
        return fault
    if isinstance(fault, OSError) and _NUMPY_WROTE_LESS.search(str(fault)):
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if isinstance(fault, AdiabatError) or _may_quote(fault):
        return None
    if found := _NUMBER.search(str(fault)):
        number = int(found[found.lastindex or 0])
        return OSError(number, os.strerror(number))
    return fault if isinstance(fault, OSError) else None


def disk_error_of(fault: BaseException) -> OSError | None:
    """The error for which a file could not be written, in whatever class a library reports it.

    None for an exception that is none of the operating system's, and where memory, threads or file
    descriptors are wanting.
    """
    for cause in _causes(fault):
        error = os_error_of(cause)
        resource = None if isinstance(cause, AdiabatError) else _wanting(cause)
        if resource is DISK:
            return error or OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if error is not None or resource is not None:
            return error if resource is None else None
    return None
