"""The moments at which a command changes files, and commands that end at one of them.

Python's audit events tell every change but those that libraries in other languages make (weights, Parquet):
these lie between two moments.
"""

import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reliability import Ended, run

CHANGES = {
    "os.mkdir": 0,
    "os.rename": 1,
    "os.remove": 0,
    "os.rmdir": 0,
    "os.truncate": 0,
    "os.chmod": 0,
    "shutil.rmtree": 0,
}
"""Audit events of changes, with the argument that names what is changed."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
RANDOM = re.compile(
    r"(?<=\.part-)[0-9a-f]+|(?<=/)tmp[a-z0-9_]{8}|(?<=\.making-)[a-z0-9_]{8}|(?<=^\.pair\.)[a-z0-9_]{8}"
)
"""Parts of names that nobody can foresee."""
NUMBER = re.compile("[0-9a-f]{12,}|[0-9]+")
"""Numbers and digests in names."""


@dataclass(frozen=True)
class Moment:
    """A change of a file, just before it is made.

    Attributes:
        event: Of Python.
        path: In the folder of the command; "" where only the descriptor of its folder is known.
    """

    event: str
    path: str

    @property
    def kind(self) -> str:
        """The same for files that differ in a number only."""
        return f"{self.event} {NUMBER.sub('0', self.path)}"


def _of(event: str, arguments: tuple[object, ...], folder: str) -> Moment | None:
    if event == "open":
        path, _, flags = arguments
        if not isinstance(flags, int) or not flags & WRITING:
            return None
    elif event in CHANGES:
        path = arguments[CHANGES[event]]
    else:
        return None
    if not isinstance(path, str | os.PathLike):
        return Moment(event, "")
    whole = os.path.abspath(os.fspath(path))
    if whole.startswith(f"{folder}/"):
        return Moment(event, RANDOM.sub("RANDOM", os.path.relpath(whole, folder)))
    return None if os.path.isabs(path) else Moment(event, "")


def _hooked(folder: Path, act: Callable[[Moment], None]) -> Callable[[], None]:
    """Something to be called before every change in a folder, and before a file is flushed to disk."""
    place = os.path.realpath(folder)

    def begin() -> None:
        flush = os.fsync

        def audit(event: str, arguments: tuple[object, ...]) -> None:
            if (moment := _of(event, arguments, place)) is not None:
                act(moment)

        def flushing(handle: int) -> None:
            act(Moment("os.fsync", ""))
            flush(handle)

        setattr(os, "fsync", flushing)  # noqa: B010 (its type is another one)
        sys.addaudithook(audit)

    return begin


def moments(words: Sequence[str], folder: Path) -> tuple[list[Moment], Ended]:
    """Run a command, and note when it changes files.

    Args:
        words: Of the command line.
        folder: To work in.

    Returns:
        The moments, and how it ended.
    """
    record = Path(f"{folder}.moments")
    record.unlink(missing_ok=True)
    handle = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    ended = run(words, folder, hook=_hooked(folder, lambda moment: _note(handle, moment)))
    os.close(handle)
    lines = record.read_text(encoding="utf-8").splitlines()
    return [Moment(*line.split("\t")) for line in lines], ended


def _note(handle: int, moment: Moment) -> None:
    os.write(handle, f"{moment.event}\t{moment.path}\n".encode())


def run_until(words: Sequence[str], folder: Path, number: int) -> Ended:
    """Run a command, and kill it at one of its moments.

    Args:
        words: Of the command line.
        folder: To work in.
        number: Of the moment, from 0.

    Returns:
        How it ended.
    """
    left = [number]

    def act(moment: Moment) -> None:
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1

    return run(words, folder, hook=_hooked(folder, act))


def chosen(every: Sequence[Moment]) -> list[int]:
    """Numbers of moments to be killed at: all, but of those that repeat, such as writing a checkpoint, the
    first two and the last.

    Args:
        every: From `moments`.

    Returns:
        Ascending.
    """
    by_kind: dict[str, list[int]] = {}
    for number, moment in enumerate(every):
        before = every[number - 1].kind if number else ""
        # A flush goes by what comes before it.
        by_kind.setdefault(moment.kind if moment.path else f"{before} {moment.kind}", []).append(number)
    return sorted({number for numbers in by_kind.values() for number in (*numbers[:2], numbers[-1])})
