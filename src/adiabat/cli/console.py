"""What a person at a terminal sees while a verb runs: notes, progress, warnings and errors; all of it on stderr."""

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from adiabat.core.progress import Watch
from adiabat.core.text import ELLIPSIS, printable

PEOPLE = Console(stderr=True, highlight=False)

LONGEST, TAIL = 4_000, 1_000
"""Characters of a line, and how many of them are of its end, where it says what to do."""

SECONDS_PER_LINE = 60.0
"""Between two lines of progress where there is no terminal, such as in a log file."""


@contextmanager
def watching(console: Console = PEOPLE) -> Iterator[Watch]:
    """A watch that shows notes as lines, and progress as a bar, or where there is no terminal as a line now and then."""
    if not console.is_interactive:
        yield Watch(note=lambda sentence: say(sentence, console), progress=Lines(console))
        return
    # Labels may hold names of files, in which neither brackets nor words between colons are markup.
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        yield Watch(note=lambda sentence: say(sentence, console), progress=OneBar(bar))


class OneBar:
    """One bar at a time: a stage not seen before takes the place of the last, and starts the clock anew."""

    def __init__(self, bar: Progress) -> None:
        """Begin without a bar."""
        self._bar = bar
        self._stage = ""
        self._task: TaskID | None = None

    def __call__(self, label: str, done: int, total: int) -> None:
        """Show how far it is."""
        stage = "epoch" if label.startswith("epoch ") else label
        if self._task is None or stage != self._stage:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._stage, self._task = stage, self._bar.add_task("", total=total)
        self._bar.update(self._task, description=one_line(label), completed=done, total=total)


@dataclass
class Lines:
    """Progress as a line every `SECONDS_PER_LINE`, the first after that time.

    Attributes:
        console: Where to.
        clock: Gives seconds.
    """

    console: Console
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._last = self.clock()

    def __call__(self, label: str, done: int, total: int) -> None:
        """Say how far it is, if it is time."""
        if self.clock() - self._last >= SECONDS_PER_LINE:
            self._last = self.clock()
            say(f"{label}: {done:,} of {total:,}", self.console)


def say(sentence: str, console: Console = PEOPLE) -> None:
    """Print one line for people, unwrapped where there is no terminal."""
    console.print(one_line(sentence), markup=False, emoji=False, soft_wrap=True)


def complain(sentence: str) -> None:
    """Print one error line on stderr, unwrapped, so that it stays one line in a log."""
    print(f"adiabat: {one_line(sentence)}", file=sys.stderr)


def one_line(sentence: str) -> str:
    """Text that cannot move the cursor or turn words around: without line ends, and without control characters of a file that is quoted."""
    flat = " ".join(printable(sentence).split())
    return flat if len(flat) <= LONGEST else f"{flat[: LONGEST - TAIL]}{ELLIPSIS}{flat[-TAIL:]}"


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show warnings as one line for people, without the place in the code."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        yield


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None, line: str | None = None
) -> None:
    say(f"warning: {message}")
