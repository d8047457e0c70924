"""What every public function has in common: who called it, and whether progress is shown."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from adiabat.api.arguments import wrong_type
from adiabat.core.progress import SILENT, Watch

Progress = bool | Watch | None
"""True shows progress on stderr, False shows none, None decides by whether stderr is a terminal or a notebook; or a `Watch`."""

_COMMAND_LINE: ContextVar[str | None] = ContextVar("command line", default=None)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a public function.

    Attributes:
        command: For the record: the command line, or the function's name.
        watch: Takes notes and progress.
    """

    command: str
    watch: Watch


@contextmanager
def command_line(command: str) -> Iterator[None]:
    """Functions called meanwhile record this command line, and show their progress."""
    token = _COMMAND_LINE.set(command)
    try:
        yield
    finally:
        _COMMAND_LINE.reset(token)


@contextmanager
def called(function: str, progress: Progress) -> Iterator[Call]:
    """A call while it runs."""
    typed = _COMMAND_LINE.get()
    command = typed or f"adiabat.{function}(...)"
    if isinstance(progress, Watch):
        yield Call(command, progress)
        return
    if not isinstance(progress, bool | None):
        raise wrong_type("progress", "True, False or None", progress)
    if progress or (progress is None and (typed is not None or _has_reader())):
        from adiabat.api.progress_display import shown_progress

        with shown_progress() as watch:
            yield Call(command, watch)
    else:
        yield Call(command, SILENT)


def _has_reader() -> bool:
    return "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
