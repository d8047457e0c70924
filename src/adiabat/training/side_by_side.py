"""Several runs whose steps take turns in one thread, each on a stream of its own, so that a GPU works on all
of them at once.

A step of tuning has a few hundred tokens, which leave most of a GPU idle. A recorded step does not wait for
the device, so one thread feeds
several runs. They do not depend on each other: each gives what it would give alone, bit for bit.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext

import torch

from adiabat.core.errors import DivergedError, InterruptionError
from adiabat.core.text import numbered
from adiabat.core.wording import again
from adiabat.training.checkpoint import Interruption, Outcome
from adiabat.training.loop import Loop, drawing_apart

Ended = Outcome | DivergedError
"""How a run ended: with weights, or because its numbers were no longer finite."""


def run_side_by_side(loops: Sequence[Loop]) -> list[Ended]:
    """Run loops to their ends, each from its checkpoint if it has one.

    Returns:
        How each of them ended.

    Raises:
        InterruptionError: After an interruption, when all of them have been saved.
    """
    device = loops[0].device
    streams = [_Stream(device) for _ in loops]
    ended: dict[int, Ended] = {}
    with ExitStack() as stack:
        for loop in loops:
            stack.callback(loop.close)
        for number, (loop, stream) in enumerate(zip(loops, streams, strict=True)):
            if (end := _turn(loop, stream, _start)) is not None:
                ended[number] = end
        interruption = stack.enter_context(Interruption())
        stack.enter_context(drawing_apart(device))
        while len(ended) < len(loops):
            for number, (loop, stream) in enumerate(zip(loops, streams, strict=True)):
                if number not in ended and (end := _turn(loop, stream, _advance)) is not None:
                    ended[number] = end
            if interruption.requested:
                _stop([loop for number, loop in enumerate(loops) if number not in ended])
        for stream in streams:
            stream.join()
    return [ended[number] for number in range(len(loops))]


class _Stream:
    """A stream of a GPU that begins after earlier work; on a CPU nothing."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(device))

    def used(self) -> AbstractContextManager[object]:
        """A context whose work runs on the stream."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def join(self) -> None:
        """Let later work wait for that of the stream."""
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)


def _turn(loop: Loop, stream: _Stream, work: Callable[[Loop], Outcome | None]) -> Ended | None:
    """Do a run's next work on its stream and its clock; returns how the run ended, if it did."""
    with stream.used(), loop.on_the_clock():
        try:
            return work(loop)
        except DivergedError as fault:
            return fault


def _start(loop: Loop) -> None:
    loop.start(resume=True)


def _advance(loop: Loop) -> Outcome | None:
    reason = loop.advance()
    return None if reason is None else loop.finish(reason)


def _stop(loops: Sequence[Loop]) -> None:
    """Save interrupted runs."""
    for loop in loops:
        loop.save()
    if loops:
        steps = " and ".join(str(loop.position.step) for loop in loops)
        raise InterruptionError(
            f"stopped at {numbered('step', len(loops))} {steps}; {again(resume=True)} to continue"
        )
