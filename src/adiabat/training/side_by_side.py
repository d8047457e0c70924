"""Several runs whose steps take turns in one thread, each on a stream of its own, so that a GPU works on all
of them at once.

A step of tuning has a few hundred tokens, which leave most of a GPU idle. A recorded step does not wait for
the device, so one thread feeds
several runs. They do not depend on each other: each gives what it would give alone, bit for bit.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

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
    runs = [_Run(loop) for loop in loops]
    with ExitStack() as stack:
        for loop in loops:
            stack.callback(loop.close)
        for run in runs:
            run.start()
        interruption = stack.enter_context(Interruption())
        stack.enter_context(drawing_apart(device))
        while going := [run for run in runs if run.ended is None]:
            for run in going:
                run.advance()
            if interruption.requested:
                _stop([run.loop for run in runs if run.ended is None])
        for run in runs:
            run.join()
    return [run.ended for run in runs if run.ended is not None]


class _Run:
    """A loop with a stream of its own, which begins after earlier work; on a CPU without one.

    Attributes:
        ended: How the run ended; None while it goes on.
    """

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.ended: Ended | None = None
        self._stream: torch.cuda.Stream | None = None
        if loop.device.type == "cuda":
            self._stream = torch.cuda.Stream(loop.device)  # type: ignore[no-untyped-call]
            self._stream.wait_stream(torch.cuda.current_stream(loop.device))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Within the context, work runs on the stream and on the clock of the run, and may end it."""
        # Torch takes None for the stream that is current already.
        with torch.cuda.stream(self._stream), self.loop.on_the_clock():
            try:
                yield
            except DivergedError as fault:
                self.ended = fault

    def start(self) -> None:
        """Restore a checkpoint, or validate the initial weights."""
        with self._turn():
            self.loop.start(resume=True)

    def advance(self) -> None:
        """Take a step, or finish."""
        with self._turn():
            reason = self.loop.advance()
            if reason is not None:
                self.ended = self.loop.finish(reason)

    def join(self) -> None:
        """Let later work wait for that of the stream."""
        if self._stream is not None:
            torch.cuda.current_stream(self.loop.device).wait_stream(self._stream)


def _stop(loops: Sequence[Loop]) -> None:
    """Save interrupted runs."""
    for loop in loops:
        loop.save()
    if loops:
        steps = " and ".join(str(loop.position.step) for loop in loops)
        raise InterruptionError(
            f"stopped at {numbered('step', len(loops))} {steps}; {again(resume=True)} to continue"
        )
