"""The words of messages for the door that a user came through: flags on the command line, keywords in Python.

A message names an argument once, by its name in Python. These functions write it as the door does, when the
message is made.
"""

import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from adiabat.core.text import setting

_typed: list[tuple[str, float]] = []
"""The command lines that are running and when each began, the innermost last; no context variable, which
threads of a verb would not see."""

FLAGS = {
    "runs": "--run",
    "baseline_stores": "--baseline-store",
    "budget_seconds": "--budget-time",
    "vectors": "--import",
}
"""Flags of arguments that have another name at each door."""

SWITCHES = {("evidence", "told"): "--anyway"}
"""Flags that stand for one value of an argument."""


@contextmanager
def typed(command: str, *, began: float | None = None) -> Iterator[None]:
    """Messages made within the block speak the command line's words; `began` is the monotonic clock at its
    start, by default now.
    """
    _typed.append((command, time.monotonic() if began is None else began))
    try:
        yield
    finally:
        _typed.pop()


def typed_command() -> str | None:
    """The command line that is running; None in Python."""
    return _typed[-1][0] if _typed else None


def call_began() -> float:
    """The monotonic clock when a call began, from which its time limit counts: the start of a command's
    process; in Python now.
    """
    return _typed[-1][1] if _typed else time.monotonic()


def option(name: str, value: object = None) -> str:
    """An optional argument, with its value if there is one: ``--out DIR``, or ``out="DIR"``."""
    if typed_command() is None:
        return name if value is None else f"{name}={written(value)}"
    if isinstance(value, str) and (name, value) in SWITCHES:
        return SWITCHES[name, value]
    flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
    return flag if value is None or value is True else f"{flag} {written(value)}"


def positional(name: str) -> str:
    """A positional argument: ``STORE``, or ``store``."""
    return name if typed_command() is None else name.upper()


def assignment(key: str, value: object) -> str:
    """A setting by its dotted key: ``--set tune.keep=last``, or ``settings={"tune": {"keep": "last"}}``."""
    if typed_command() is not None:
        return f"--set {key}={written(value)}"
    # From the inside out: {"tune": {"keep": "last"}} for tune.keep.
    nested = written(value)
    for part in reversed(key.split(".")):
        nested = f'{{"{part}": {nested}}}'
    return f"settings={nested}"


def call_of(verb: str, *arguments: str, **options: object) -> str:
    """A verb with its arguments, as `positional` or `written` write them: ``adiabat embed MODEL``, or
    ``adiabat.embed(model)``.
    """
    words = [*arguments, *(option(name, value) for name, value in options.items())]
    if typed_command() is not None:
        return " ".join(["adiabat", verb, *words])
    function = f"adiabat.{verb.replace(' ', '_').replace('-', '_')}"
    return f"{function}({', '.join(words)})" if words else function


def again(**options: object) -> str:
    """Advice to repeat the call: ``run the same command with --resume``, or ``make the same call with
    resume=True``.
    """
    given = " and ".join(option(name, value) for name, value in options.items())
    how = f"with {given}" if given else "again"
    return f"make the same call {how}" if typed_command() is None else f"run the same command {how}"


def written(value: object) -> str:
    """A value as the door writes it; `...` stands for any."""
    if value is ...:
        return "..."
    if isinstance(value, float):
        return setting(value)
    if isinstance(value, list):
        entries = [written(entry) for entry in value]
        return f"[{', '.join(entries)}]" if typed_command() is None else " ".join(entries)
    if not isinstance(value, str | os.PathLike):
        return repr(value) if typed_command() is None else str(value)
    text = str(os.fspath(value))
    if typed_command() is not None:
        return shlex.quote(text)
    # Double quotes, as in the guide; a text that needs escapes is left to Python.
    return repr(text) if '"' in text or "\\" in text else f'"{text}"'


_IN_MEMORY: dict[str, str] = {}
"""File of rows that a caller gave in memory, and the argument that held them."""


def remember_rows(path: str, argument: str) -> None:
    """Let messages about a file of rows in memory name their argument."""
    _IN_MEMORY[path] = argument


def in_callers_words(message: object) -> str:
    """A message with the arguments in place of the files that their rows were written to."""
    text = str(message)
    for path, argument in _IN_MEMORY.items():
        text = text.replace(path, argument)
    return text


def place_in(path: Path, number: int) -> str:
    """A row in messages: ``file:line``, or its number in the argument that held it."""
    argument = _IN_MEMORY.get(str(path))
    return f"{path}:{number}" if argument is None else f"row {number} of {argument}"
