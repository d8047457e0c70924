"""One writer at a time: a directory that a process writes into, kept from a second one."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from adiabat.errors import InUseError


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Keep a second process from writing into the same directory.

    Args:
        folder: An existing directory; the lock goes with the process, so that a killed one leaves none.

    Yields:
        Nothing.

    Raises:
        InUseError: If another process holds it.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise InUseError(f"{folder} must have one writer at a time, another process is writing; wait for it to end") from error
    finally:
        os.close(handle)
