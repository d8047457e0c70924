"""Everything that adiabat creates, clears, renames and writes in place; a symbolic link is never followed on
the way.

A store, a job or a cache that somebody sends may hold links under the names that adiabat writes. The links of
a path that a user names are resolved once, by `real`. Below that path a link is refused where work would go
through it, and replaced where it stands in the place of something new; what it leads to stays as it is. No
other module creates, renames or removes anything (`tests/test_written_places.py`).
"""

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from io import BufferedWriter
from pathlib import Path
from typing import BinaryIO

from adiabat.core.errors import LinkError

AnyPath = str | os.PathLike[str]
"""A path as callers may give it."""

LOCKLESS = frozenset({errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})
"""Errors of file systems that cannot lock a directory; NFS requires a descriptor open for writing, which
directories never have."""

_PART = re.compile(r"\..+\.part(-[0-9a-f]+|[0-9]+)")
"""Name of a temporary file; those of version 0.1 end in a number."""


def real(path: Path) -> Path:
    """A path that a user named, without the symbolic links that it leads through."""
    if os.path.islink(path) and not path.exists():
        raise LinkError(
            f"{path} must not be a symbolic link to a missing place, got one to "
            f"{os.readlink(path)}; remove the link"
        )
    if any(map(os.path.islink, (path, *path.parents))):
        return Path(os.path.realpath(path))
    return path


def require_no_link(path: Path) -> None:
    """Refuse a path that is a symbolic link, or leads through one."""
    for place in (*reversed(path.parents), path):
        if os.path.islink(place):
            raise LinkError(
                f"{place} must be a file or folder of its own, which adiabat writes, got a symbolic link to "
                f"{os.readlink(place)}; remove the link, or put a copy of what it leads to in its place"
            )


def make_folder(path: Path, *, parents: bool = False) -> None:
    """Create a folder, or take an existing one that is no link."""
    require_no_link(path)
    path.mkdir(exist_ok=True, parents=parents)


def fresh_folder(path: Path) -> Path:
    """Create an empty folder in the place of whatever has its name; other libraries may write into it."""
    remove(path)
    path.mkdir()
    return path


def remove(*paths: Path) -> None:
    """Remove files, links and whole folders; missing ones are passed over."""
    for path in paths:
        require_no_link(path.parent)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def clear(*paths: Path) -> None:
    """Remove what can be removed; what remains is found, and told, by whatever uses the place next."""
    for path in paths:
        with suppress(OSError):
            remove(path)


def remove_empty(*folders: Path) -> None:
    """Remove folders that are empty; others stay."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def move(source: Path, target: Path) -> None:
    """Rename a file or folder; a file or link of the new name is replaced."""
    # Moving from or into a linked folder would change what it leads to.
    require_no_link(source.parent)
    require_no_link(target.parent)
    # The system renames no folder onto a link.
    if source.is_dir() and target.is_symlink():
        target.unlink()
    source.replace(target)


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder in the place of whatever has the new name."""
    remove(target)
    shutil.copytree(source, target, symlinks=True)


def new_file(path: Path) -> BufferedWriter:
    """Create a file in the place of whatever has its name."""
    remove(path)
    return path.open("xb")


def open_in_place(path: Path, *, append: bool = False) -> int:
    """Open a file to change it where it lies, and create it if it is missing; returns the descriptor."""
    require_sole(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | (os.O_APPEND if append else 0)
    return os.open(path, flags, 0o666)


def require_sole(path: Path) -> None:
    """Refuse to change a file in place that is a link, or that a hard link gives a second name."""
    require_no_link(path)
    if not path.exists():
        return
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise LinkError(
            f"{path} must be a plain file, which adiabat continues, got another kind of file; remove it"
        )
    if status.st_nlink > 1:
        raise LinkError(
            f"{path} must have one name, since adiabat writes into it, got {status.st_nlink} "
            "hard links; put a copy of it in its place"
        )


def appending_to(path: Path) -> BinaryIO:
    """Open a file to write at its end."""
    return os.fdopen(open_in_place(path, append=True), "ab")


def shorten(path: Path, size: int) -> None:
    """Cut off the end of a file."""
    handle = open_in_place(path)
    try:
        os.ftruncate(handle, min(size, os.fstat(handle).st_size))
    finally:
        os.close(handle)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk: a rename is durable once its folder is flushed."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def give_usual_mode(*files: Path) -> None:
    """Give files that safetensors wrote, for their owner alone, the mode that the umask gives to new
    files.
    """
    # The umask can be read only by setting it; this value keeps files of other threads private in between.
    umask = os.umask(0o077)
    os.umask(umask)
    for file in files:
        file.chmod(0o666 & ~umask)


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


def is_part(path: Path) -> bool:
    """Whether a name is that of a temporary file, which a killed process leaves."""
    return _PART.fullmatch(path.name) is not None


@contextmanager
def part_of(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Create a temporary file beside its destination, under a name that cannot be foreseen; those of killed
    processes are removed.
    """
    require_no_link(path.parent)
    _clear_parts(path)
    part, file = _locked_part(path)
    with _closed_after(file):
        try:
            yield part, file
        finally:
            # Unless it was renamed into place.
            if _is_at(part, file):
                part.unlink()


@contextmanager
def _closed_after(file: BinaryIO) -> Iterator[None]:
    """Close a file; after an error, what its buffer still holds is given up."""
    try:
        yield
    except BaseException:
        # A full disk refuses the rest of the buffer once more, in place of the error that is told.
        with suppress(OSError):
            file.close()
        raise
    file.close()


def _locked_part(path: Path) -> tuple[Path, BinaryIO]:
    """A new temporary file, locked so that no other process takes it for a leftover."""
    while True:
        part = path.with_name(f".{path.name}.part-{secrets.token_hex(6)}")
        file = part.open("xb")
        # A process that removes leftovers may have locked or removed it since it was created.
        if take_lock(file.fileno()) and _is_at(part, file):
            return part, file
        file.close()
        part.unlink(missing_ok=True)


def _clear_parts(path: Path) -> None:
    """Remove the temporary files of a destination that no process holds locked; without locks, none is known
    to be left over.
    """
    for part in path.parent.glob(f".{escape(path.name)}.part*"):
        if is_part(part) and part.is_file() and not part.is_symlink():
            with suppress(OSError), part.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part.unlink()


def _is_at(path: Path, file: BinaryIO) -> bool:
    """Whether an open file is still the one at a path."""
    with suppress(FileNotFoundError):
        return os.path.samestat(path.lstat(), os.fstat(file.fileno()))
    return False
