"""Changes of a store that crash before a chosen step."""

import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from adiabat.store import append, commit, deletion
from adiabat.store.corpus_files import IdIndex
from adiabat.store.manifest import VectorFile


class CutError(Exception):
    """Stands for a crash."""


def raising(*unused: object, **named: object) -> None:
    raise CutError


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


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """From now on this process may write no file beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
