"""Notes as lines and progress as a bar, on stderr."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from adiabat.core.progress import Watch
from adiabat.core.text import ELLIPSIS, printable

PEOPLE = Console(stderr=True, highlight=False)

LONGEST, TAIL = 4_000, 1_000
"""Characters of a line, and how many of them are its end, which says what to do."""

SECONDS_PER_LINE = 60.0
"""Between two lines of progress without a terminal, such as in a log file."""


@contextmanager
def shown_progress(console: Console = PEOPLE) -> Iterator[Watch]:
    """Show notes as lines and progress as a bar; without a terminal or ipywidgets, progress is a line a minute."""
    if not (console.is_interactive or (console.is_jupyter and find_spec("ipywidgets"))):
        yield Watch(note=lambda sentence: say(sentence, console), progress=Lines(console))
        return
    # Labels hold file names, whose brackets and colons are no markup.
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
    """One bar at a time: a new stage replaces the last and restarts the clock."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._stage = ""
        self._task: TaskID | None = None

    def __call__(self, label: str, done: int, total: int) -> None:
        """Show how far a stage is."""
        stage = "epoch" if label.startswith("epoch ") else label
        if self._task is None or stage != self._stage:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._stage, self._task = stage, self._bar.add_task("", total=total)
        self._bar.update(self._task, description=one_line(label), completed=done, total=total)


@dataclass
class Lines:
    """Progress as a line every `SECONDS_PER_LINE`, the first after that time."""

    console: Console
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._last = self.clock()

    def __call__(self, label: str, done: int, total: int) -> None:
        """Print how far a stage is, once a minute."""
        if self.clock() - self._last >= SECONDS_PER_LINE:
            self._last = self.clock()
            say(f"{label}: {done:,} of {total:,}", self.console)


def say(sentence: str, console: Console = PEOPLE) -> None:
    """Print one line for people, unwrapped where there is no terminal."""
    console.print(one_line(sentence), markup=False, emoji=False, soft_wrap=True)


def one_line(sentence: str) -> str:
    """Text that cannot move the cursor or turn words around: without line ends, and without control characters of a file that is quoted."""
    flat = " ".join(printable(sentence).split())
    return flat if len(flat) <= LONGEST else f"{flat[: LONGEST - TAIL]}{ELLIPSIS}{flat[-TAIL:]}"
