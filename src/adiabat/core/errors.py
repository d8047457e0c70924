"""Errors that a user can fix, in one small class tree.

The command line prints such an error as one line and exits with code 2; any other exception is a defect of adiabat and exits with 1.
A message reads ``<setting or file:line> must <constraint>, got <value>; <what to do>``.
"""

import errno
from collections.abc import Iterable


class AdiabatError(Exception):
    """Base class of all errors that a user can fix.

    Example:
        >>> try:
        ...     adiabat.load("nowhere/model")
        ... except adiabat.AdiabatError as error:
        ...     print(type(error).__name__)
        ModelError
    """


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


class MissingDependencyError(AdiabatError, ImportError):
    """An optional package is not installed; the message has the command to install it."""

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package}; install it with: pip install 'adiabat[{extra}]'")


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
        """All faults in one line: a single phrase as it is, otherwise the count with its plural noun and the first phrases."""
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


OUT_OF_MEMORY = ("DefaultCPUAllocator", "std::bad_alloc", "Cannot allocate memory", "CUBLAS_STATUS_ALLOC_FAILED", "can't start new thread")
"""Message of out-of-memory errors from libraries without a class for them."""


def is_out_of_memory(fault: BaseException) -> bool:
    """Whether memory ran out in Python, the system or a GPU; GPU errors are known by name, because torch may not be loaded."""
    if isinstance(fault, MemoryError) or type(fault).__name__ == "OutOfMemoryError":
        return True
    return (isinstance(fault, OSError) and fault.errno == errno.ENOMEM) or any(phrase in str(fault) for phrase in OUT_OF_MEMORY)
