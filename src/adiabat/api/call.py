"""Common behaviour of public functions: the recorded command, and notes and progress on stderr."""

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from adiabat.api.arguments import wrong_type
from adiabat.core.progress import SILENT, Watch
from adiabat.core.surroundings import console_size
from adiabat.core.text import ELLIPSIS, duration, printable
from adiabat.core.wording import typed_command

Progress = bool | Watch | None
"""None shows progress where stderr is a terminal, or in a notebook; True shows it everywhere, False nowhere;
or a `Watch`."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a public function.

    Attributes:
        command: Command to record: the command line, or the function's name.
        watch: Receives notes and progress.
    """

    command: str
    watch: Watch


@contextmanager
def called(function: str, progress: Progress) -> Iterator[Call]:
    """A call while it runs."""
    typed = typed_command()
    command = typed or f"adiabat.{function}(...)"
    # A verb that calls another one, such as the demo, passes its own watch on.
    if isinstance(progress, Watch):
        yield Call(command, progress)
        return
    if not isinstance(progress, bool | None):
        raise wrong_type("progress", "True, False or None", progress)
    if progress or (progress is None and (typed is not None or _has_reader())):
        with shown_progress() as watch:
            yield Call(command, watch)
    else:
        yield Call(command, SILENT)


def _has_reader() -> bool:
    return "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())


PEOPLE = Console(stderr=True, highlight=False, **console_size())

LONGEST, TAIL = 4_000, 1_000
"""Maximum characters of a line, and how many of them are kept at its end, which has the advice."""

SECONDS_PER_LINE = 30.0
"""Seconds between lines of progress without a terminal, such as in a log file."""


@contextmanager
def shown_progress(console: Console = PEOPLE) -> Iterator[Watch]:
    """Show notes as lines and progress as a bar; without a terminal or ipywidgets, progress is a line every
    half minute.
    """
    # A bar in a log file would be a line for every step.
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
    with Bar(*columns, console=console, transient=True) as bar:
        yield Watch(note=lambda sentence: say(sentence, console), progress=OneBar(bar))


class OneBar:
    """One bar at a time: a new stage replaces the last and restarts the clock."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._stage = ""
        self._task: TaskID | None = None

    def __call__(self, label: str, done: int, total: int) -> None:
        """Show how far a stage is."""
        stage = stage_of(label)
        if self._task is None or stage != self._stage:
            # The former bar goes: only one stage runs at a time.
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._stage, self._task = stage, self._bar.add_task("", total=total)
        # The total of a run that stops early grows with each improvement.
        self._bar.update(self._task, description=one_line(label), completed=done, total=total)


def stage_of(label: str) -> str:
    """The stage of a label: its beginning, up to figures that change within the stage."""
    return re.split(r"(?<=\bepoch) | \(|: drift ", label, maxsplit=1)[0]


@dataclass
class Lines:
    """Progress as a line every `SECONDS_PER_LINE`, the first after that time."""

    console: Console
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._last = self.clock()
        self._stage, self._started, self._first = "", self._last, 0

    def __call__(self, label: str, done: int, total: int) -> None:
        """Print how far a stage is and the time left at its mean speed, every half minute."""
        now = self.clock()
        if (stage := stage_of(label)) != self._stage:
            self._stage, self._started, self._first = stage, now, done
        if now - self._last >= SECONDS_PER_LINE:
            self._last = now
            # Steps of an earlier process, which a resumed run did not take, say nothing of its speed.
            advanced = done - self._first
            left = (
                f", {duration((now - self._started) * (total - done) / advanced)} left"
                if advanced > 0 and done < total
                else ""
            )
            say(f"{label}: {done:,} of {total:,}{left}", self.console)


def say(sentence: str, console: Console = PEOPLE) -> None:
    """Print one line, unwrapped without a terminal."""
    console.print(one_line(sentence), markup=False, emoji=False, soft_wrap=True)


def one_line(sentence: str) -> str:
    """Text without line ends and control characters, which could move the cursor or reorder words."""
    # Both ends are kept where a line is too long: its beginning names the place.
    flat = " ".join(printable(sentence).split())
    return flat if len(flat) <= LONGEST else f"{flat[: LONGEST - TAIL]}{ELLIPSIS}{flat[-TAIL:]}"
