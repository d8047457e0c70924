"""A store while a run reads it: files that another process writes anew are noticed before a result rests on
two stores.
"""

import hashlib
import os
from pathlib import Path

from adiabat.core.errors import StoreError
from adiabat.core.files import MANIFEST_FILE
from adiabat.core.provenance import digest_of
from adiabat.core.wording import again, option
from adiabat.store.manifest import COPY_BYTES, HEADER_BYTES, VECTOR_FILE, Manifest

State = tuple[int, int, int] | None
"""Inode, size and time of a file; None if there is none."""


class WatchedFiles:
    """The files of a store as they were when it was opened.

    An append, an update and a deletion extend the vector file in place and replace the other files by a
    rename. A reader that has them open keeps its rows, its ids and its texts. Anything else is another store.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Note the state of each file; the manifest is the one that was read."""
        self._folder, self._manifest = folder, manifest
        self._states = self._now()

    def require_manifest(self) -> None:
        """Refuse a store that was exchanged between the reading of its manifest and the opening of its
        files.
        """
        if Manifest.read(self._folder) != self._manifest:
            raise self._changed(MANIFEST_FILE)

    def _now(self) -> dict[str, State]:
        """The state of every file of the store."""
        return {name: _state(self._folder / name) for name in (MANIFEST_FILE, *self._manifest.digests)}

    def require_unchanged(self, vectors: int) -> None:
        """Refuse files whose content is another one; `vectors` is the open vector file."""
        now = self._now()
        if now == self._states:
            return
        for name, state in now.items():
            if state != self._states[name] and not self._is_intact(name, state, vectors):
                raise self._changed(name)
        # Contents that were compared once are compared again only if they change once more.
        self._states = now

    def _is_intact(self, name: str, state: State, vectors: int) -> bool:
        """Whether a file that changed still has, for this reader, what it had.

        The manifest was read when the store was opened. The vector file may have grown. Any other file stays
        open under its former inode when a new one takes its name.
        """
        former = self._states[name]
        if state is None or former is None:
            return False
        is_replaced = state[0] != former[0]
        if name == MANIFEST_FILE:
            return True
        if name == VECTOR_FILE:
            return not is_replaced and self._has_rows(vectors)
        # A replaced file stays open under its former inode; one that was written in place does not.
        return is_replaced or digest_of(self._folder / name) == self._manifest.files[name]

    def _has_rows(self, vectors: int) -> bool:
        """Whether the first rows of the vector file are those of the manifest; more may follow."""
        expected = self._manifest.digests[VECTOR_FILE]
        digest, offset, end = hashlib.sha256(), HEADER_BYTES, expected.size
        while offset < end and (block := os.pread(vectors, min(COPY_BYTES, end - offset), offset)):
            digest.update(block)
            offset += len(block)
        return digest.hexdigest() == expected.sha256

    def _changed(self, name: str) -> StoreError:
        """The error for a store that is another one now."""
        return StoreError(
            f"{self._folder} must stay as it is while it is read, another process changed its {name}, so "
            f"that rows and vectors would be of two stores; put the former store back and {again()} (a job "
            f"goes on with {option('resume', True)})"
        )


def _state(path: Path) -> State:
    """What shows that a file was changed or replaced."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
