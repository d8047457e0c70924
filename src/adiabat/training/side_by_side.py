"""Several runs whose steps take turns in one thread, each on a stream of its own, so that a GPU works on all of them at once.

A step of tuning has a few hundred tokens, which leave most of a GPU idle. A recorded step does not wait for the device, so one thread feeds
several runs. They do not depend on each other: each gives what it would give alone, bit for bit.
"""

from collections.abc import Sequence
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
            with stream.used(), loop.on_the_clock():
                _note_divergence(ended, number, loop)
        interruption = stack.enter_context(Interruption())
        stack.enter_context(drawing_apart(device))
        while len(ended) < len(loops):
            for number, (loop, stream) in enumerate(zip(loops, streams, strict=True)):
                if number not in ended:
                    with stream.used(), loop.on_the_clock():
                        _advance(ended, number, loop)
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


def _note_divergence(ended: dict[int, Ended], number: int, loop: Loop) -> None:
    try:
        loop.start(resume=True)
    except DivergedError as fault:
        ended[number] = fault


def _advance(ended: dict[int, Ended], number: int, loop: Loop) -> None:
    """Take a step of a run, or note its end."""
    try:
        reason = loop.advance()
    except DivergedError as fault:
        ended[number] = fault
        return
    if reason is not None:
        ended[number] = loop.finish(reason)


def _stop(loops: Sequence[Loop]) -> None:
    """Save interrupted runs."""
    for loop in loops:
        loop.save()
    if loops:
        steps = " and ".join(str(loop.position.step) for loop in loops)
        raise InterruptionError(f"stopped at {numbered('step', len(loops))} {steps}; {again(resume=True)} to continue")
