"""Changes of a store that crash before a chosen step."""

import errno
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Never

import pytest

from adiabat.core.errors import StoreError
from adiabat.store import append, commit, deletion
from adiabat.store.corpus_files import IdIndex
from adiabat.store.manifest import VectorFile
from adiabat.store.vector_store import Store
from tests.refused import refused

DISK_IS_FULL = "the disk is full; free some space and make the same call"


class CutError(Exception):
    """Stands for a crash."""


def raising(*unused: object, **named: object) -> Never:
    raise CutError


def on_full_disk(*unused: object, **named: object) -> Never:
    raise OSError(errno.ENOSPC, "No space left on device")


def crashes_at(number: int, change: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Make a change that crashes before its step of that number; whether it came so far.

    Steps are all the calls by which a merge, a compaction and a commit change what is on disk.
    """
    steps = 0

    def stepping(function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **named: Any) -> Any:
            nonlocal steps
            if steps == number:
                raise CutError
            steps += 1
            return function(*arguments, **named)

        return step

    # Replacing within a context: the test that follows runs with the true functions.
    with monkeypatch.context() as patch:
        for module in (append, deletion):
            patch.setattr(module, "merge", stepping(module.merge))
        patch.setattr(deletion, "write_json", stepping(deletion.write_json))
        for name in ("_extend_vectors", "_move", "write_json", "sync"):
            patch.setattr(commit, name, stepping(getattr(commit, name)))
        patch.setattr(shutil, "rmtree", stepping(shutil.rmtree))
        patch.setattr(IdIndex, "write", staticmethod(stepping(IdIndex.write)))
        patch.setattr(VectorFile, "append", stepping(VectorFile.append))
        patch.setattr(VectorFile, "commit", stepping(VectorFile.commit))
        patch.setattr(Path, "unlink", stepping(Path.unlink))
        patch.setattr(Path, "replace", stepping(Path.replace))
        try:
            change()
        except CutError:
            return True
    return False


def crashes_of(
    change: Callable[[Path], object], original: Path, monkeypatch: pytest.MonkeyPatch, *, least: int
) -> Iterator[tuple[Path, bool]]:
    """Copies of a store, each as a crash before another step of the change left it, and whether the change is
    half done, so that the copy cannot be opened; of more than `least` steps.
    """
    for step in range(200):
        folder = original.with_name(f"{original.name}-{step}")
        shutil.copytree(original, folder)
        if not crashes_at(step, partial(change, folder), monkeypatch):
            break
        is_half_done = (folder / "appending" / "commit.json").exists()
        if is_half_done:
            require_half_done(folder)
        yield folder, is_half_done
        shutil.rmtree(folder)
    assert least < step < 199


def require_half_done(folder: Path) -> None:
    with refused(StoreError, "a change of it is half done"):
        Store.open(folder)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """From now on this process may write no file beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
