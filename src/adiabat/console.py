"""What a person at a terminal sees while a verb runs: notes, one progress line, and errors; all of it on stderr."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from adiabat.watch import Watch

PEOPLE = Console(stderr=True, highlight=False)


@contextmanager
def watching(console: Console = PEOPLE) -> Iterator[Watch]:
    """A watch that shows notes as lines and progress as a bar.

    Args:
        console: Where to.

    Yields:
        The watch; the bar is gone when the block ends.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        shown: dict[str, TaskID] = {}

        def progress(label: str, done: int, total: int) -> None:
            # One bar: a label not seen before takes the place of the last, and starts the clock anew when the stage changes.
            stage = label.split(" ", 1)[0]
            if stage not in shown:
                for old in shown.values():
                    bar.remove_task(old)
                shown.clear()
                shown[stage] = bar.add_task(label, total=total)
            bar.update(shown[stage], description=label, completed=done, total=total)

        yield Watch(note=lambda sentence: bar.console.print(sentence, markup=False), progress=progress)


def complain(sentence: str) -> None:
    """Print one error line on stderr, unwrapped, so that it stays one line in a log.

    Args:
        sentence: What is wrong and what to do.
    """
    print(f"adiabat: {' '.join(sentence.split())}", file=sys.stderr)
