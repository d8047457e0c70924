"""Every error that is the user's to mend, in one small tree.

The command line prints such an error as one line and exits with code 2; anything else is a defect of adiabat and exits with 1.
A message reads ``<setting or file:line> must <constraint>, got <value>; <what to do>``.
"""

import errno
from collections.abc import Iterable


class AdiabatError(Exception):
    """Root of the tree: catch it to catch every mistake of a user.

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
    """A budget does not pay for what was asked: this run cannot be made, others beside it can."""


class DataError(AdiabatError, ValueError):
    """A data file is missing, malformed, or names what does not exist."""


class StoreError(AdiabatError, ValueError):
    """A store of vectors is damaged, unfinished, or does not belong to the encoder at hand."""


class ModelError(AdiabatError, ValueError):
    """A model directory cannot be loaded, or has no parameter of the name asked for."""


class JobError(AdiabatError, RuntimeError):
    """A job directory is taken, damaged, or cannot be resumed."""


class InterruptionError(JobError):
    """A run was asked to stop and has written what it takes to go on."""


class DivergedError(JobError):
    """A loss, or a gradient, is no finite number: this run cannot go on, others beside it can.

    Attributes:
        what: That was found; the message has advice behind it, which is for a run that stands alone.
    """

    what: str

    def __init__(self, what: str, advice: str) -> None:
        """Say what was found, and what to do."""
        # Both, so that it can go from process to process.
        super().__init__(what, advice)
        self.what = what

    def __str__(self) -> str:
        """What was found, and what to do."""
        return "; ".join(map(str, self.args))


class InUseError(AdiabatError, RuntimeError):
    """Another process is writing into the same directory."""


class MissingDependencyError(AdiabatError, ImportError):
    """An optional package is not installed; the message holds the line that installs it."""

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package}; install it with: pip install 'adiabat[{extra}]'")


class Faults:
    """What is wrong with something: all of it counted, the first few in words, so that a file full of faults costs no memory."""

    def __init__(self, *, shown: int = 10) -> None:
        """Begin with none; `shown` of them will be spelled out."""
        self.count = 0
        self._shown = shown
        self._first: list[str] = []

    def add(self, phrase: str) -> None:
        """Note one fault, best with its file and line."""
        self.count += 1
        if len(self._first) < self._shown:
            self._first.append(phrase)

    def extend(self, phrases: Iterable[str]) -> None:
        """Note several faults."""
        for phrase in phrases:
            self.add(phrase)

    def told(self, of: str = "faults") -> str:
        """All of them in one line: the one phrase as it is, or the count with its plural noun and the first of them."""
        head = "; ".join(self._first)
        if self.count == 1:
            return head
        more = f"; and {self.count - len(self._first)} more" if self.count > len(self._first) else ""
        return f"{self.count} {of}: {head}{more}"


def several(phrases: Iterable[str], *, of: str = "faults", shown: int = 10) -> str:
    """Join phrases into one line, as `Faults.told` does."""
    faults = Faults(shown=shown)
    faults.extend(phrases)
    return faults.told(of)


OUT_OF_MEMORY = ("DefaultCPUAllocator", "std::bad_alloc", "Cannot allocate memory", "CUBLAS_STATUS_ALLOC_FAILED", "can't start new thread")
"""What libraries without a class for it say."""


def is_out_of_memory(fault: BaseException) -> bool:
    """Whether memory did not suffice: of Python, of the system, or of a GPU (known by its name, since torch may not be loaded)."""
    if isinstance(fault, MemoryError) or type(fault).__name__ == "OutOfMemoryError":
        return True
    return (isinstance(fault, OSError) and fault.errno == errno.ENOMEM) or any(phrase in str(fault) for phrase in OUT_OF_MEMORY)
