"""One writer at a time: a directory that a process writes into, kept from a second one."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from adiabat.errors import InUseError

LOCKLESS = frozenset({errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})
"""What file systems answer that cannot lock a directory: NFS wants a descriptor open for writing, which a directory never has."""


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Keep a second process from writing into the same directory.

    File systems that cannot lock a directory (NFS, some network and user-space ones) are not guarded: there the caller must see to it that
    one process writes at a time.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        if not take_lock(handle):
            raise InUseError(f"{folder} must have one writer at a time, another process is writing; wait for it to end")
        yield
    finally:
        os.close(handle)


def take_lock(handle: int) -> bool:
    """Lock an open file or directory until it is closed."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in LOCKLESS:
            raise
    return True
