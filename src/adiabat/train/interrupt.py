"""Ctrl-C and SIGTERM between steps: a run ends where it can be taken up again, not in the middle of an update."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from adiabat.errors import JobError

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class InterruptionError(JobError):
    """A run was asked to stop and has written what it takes to go on."""


class Interruption:
    """While entered, the first signal is only noted; a second one acts as it always does.

    Outside the main thread, where Python allows no handlers, signals keep their ordinary meaning; so does a signal that the process was
    started to ignore, as the shell does with Ctrl-C for a job in the background.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            heeded = [number for number in SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
            self._before = {number: signal.signal(number, self._note) for number in heeded}
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
