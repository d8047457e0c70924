"""Errors and warnings on stderr, one line each."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from adiabat.api.progress_display import one_line, say


def complain(sentence: str) -> None:
    """Print an error, unwrapped, so that it stays one line in a log."""
    print(f"adiabat: {one_line(sentence)}", file=sys.stderr)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show warnings without their file and line number."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        yield


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None, line: str | None = None
) -> None:
    say(f"warning: {message}")
