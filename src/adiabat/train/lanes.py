"""Several rates in one step: runs that see the same batches are stepped together, each with its own loss, optimizer and end.

A step has three parts: each lane asks for the embeddings of its batch, for which all towers pass at once, and differentiates its own loss
down to them; one backward pass carries all gradients on into the stack; each lane judges its loss and moves its weights. Everything else,
from validation to checkpoints, a lane does as if it were alone: its checkpoints are ordinary, and a run begun in lanes may go on alone.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from adiabat.errors import DivergedError
from adiabat.model.tokens import TokenTable
from adiabat.train.interrupt import Interruption, InterruptionError
from adiabat.train.limits import Outcome
from adiabat.train.loop import Loop, stepping
from adiabat.train.stacked import StackedTowers


@dataclass(frozen=True, slots=True)
class Lane:
    """What one run embeds its batches with: the part of `adiabat.train.passes.Passes` that objectives of one tower call.

    Attributes:
        shared: The pass of all runs.
        number: Of the tower.
    """

    shared: "SharedPass"
    number: int

    def embed(self, table: TokenTable, picked: Int[np.ndarray, " b"]) -> Float[Tensor, "b e"]:
        """Embed some texts of a table with the lane's own tower.

        Args:
            table: Tokenised by the tower.
            picked: Which texts; every lane must ask for the same.

        Returns:
            Their embeddings, a leaf: its gradient goes on in `SharedPass.carry_on`.

        Raises:
            RuntimeError: If another lane asked for other texts in this step.
        """
        return self.shared.embeddings(table, picked)[self.number]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the lanes of a step asked for, and what they were given."""

    table: TokenTable
    picked: Int[np.ndarray, " b"]
    embeddings: Float[Tensor, "k b e"]
    leaves: dict[int, Float[Tensor, "b e"]]

    def is_for(self, table: TokenTable, picked: Int[np.ndarray, " b"]) -> bool:
        if table is self.table:
            return np.array_equal(picked, self.picked)
        return table.side == self.table.side and table.lists(picked) == self.table.lists(self.picked)


class SharedPass:
    """One forward and one backward pass per step for all lanes; see `run_lanes`."""

    def __init__(self, towers: StackedTowers) -> None:
        """Set up.

        Args:
            towers: One for each lane.
        """
        self._towers = towers
        self._lanes: tuple[int, ...] = tuple(range(len(towers)))
        self._asked: _Asked | None = None

    def __len__(self) -> int:
        return len(self._towers)

    def lane(self, number: int) -> Lane:
        """What a run is to embed with.

        Args:
            number: Of its tower.

        Returns:
            The lane.
        """
        return Lane(self, number)

    def begin(self, lanes: Sequence[int]) -> None:
        """Begin a step.

        Args:
            lanes: Numbers of those that take it; with none of them every tower is by itself again.
        """
        self._lanes, self._asked = tuple(lanes), None
        self._towers.stack(self._lanes)

    def embeddings(self, table: TokenTable, picked: Int[np.ndarray, " b"]) -> dict[int, Float[Tensor, "b e"]]:
        """Embed some texts with all lanes of the step, once.

        Args:
            table: Tokenised by the towers.
            picked: Which texts.

        Returns:
            For each lane a tensor to differentiate down to.

        Raises:
            RuntimeError: If other texts were asked for in this step.
        """
        if self._asked is None:
            embeddings = self._towers.embed(table, picked, self._lanes)
            leaves = {lane: own.detach().requires_grad_() for lane, own in zip(self._lanes, embeddings, strict=True)}
            self._asked = _Asked(table, picked, embeddings, leaves)
        elif not self._asked.is_for(table, picked):
            raise RuntimeError("runs that are stepped together must ask for the same texts, got others; give them one data set and seed")
        return self._asked.leaves

    def carry_on(self) -> None:
        """Carry the gradients of all lanes on into the weights of their towers; a lane without one gets none."""
        asked, self._asked = self._asked, None
        if asked is None:
            return
        reached = [lane for lane, leaf in asked.leaves.items() if leaf.grad is not None]
        gradients = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in asked.leaves.values()]
        torch.autograd.backward(asked.embeddings, torch.stack(gradients))
        self._towers.hand_out_gradients(reached)


def run_lanes(loops: Sequence[Loop], shared: SharedPass, *, resume: bool) -> list[Outcome | DivergedError]:
    """Run several loops in lockstep, each to its own end, and leave each one's best weights in its tower.

    Those with the fewest steps go first, so that runs resumed from different checkpoints meet.

    Args:
        loops: One for each lane of `shared`, whose objective embeds with that lane.
        shared: The pass of all of them.
        resume: Each goes on from its newest whole checkpoint where there is one.

    Returns:
        How each run ended; a run that diverged is its error, and the others went on.

    Raises:
        InterruptionError: After Ctrl-C or SIGTERM, with a checkpoint written by every run that had moved.
        JobError: If a checkpoint cannot be written, or none of those of a run is whole.
        RuntimeError: If two runs ask for different texts in one step.
        ValueError: If loops and lanes differ in number, or a loop has several processes.
    """
    if len(loops) != len(shared):
        raise ValueError(f"there must be a loop for each lane, got {len(loops)} for {len(shared)}")
    if any(loop.processes.count > 1 for loop in loops):
        raise ValueError("runs that are stepped together must be of one process, got several; step them one after another")
    lanes = _Lanes(loops, shared)
    with ExitStack() as stack:
        for loop in loops:
            stack.callback(loop.log.close)
        lanes.start(resume=resume)
        with stepping(loops[0].device) as interruption:
            while running := lanes.running():
                lanes.step(running, interruption)
    shared.begin([])
    return [lanes.ended[number] for number in range(len(loops))]


@dataclass(frozen=True, slots=True)
class _Lanes:
    """The runs of a study that are under way, and how those ended that are not."""

    loops: Sequence[Loop]
    shared: SharedPass
    ended: dict[int, Outcome | DivergedError] = field(default_factory=dict)

    def start(self, *, resume: bool) -> None:
        for lane, loop in enumerate(self.loops):
            with self._by_itself(lane):
                loop.start(resume=resume)

    def running(self) -> list[int]:
        """The lanes that take the next step: of those that go on, the ones with the fewest steps."""
        for lane, loop in enumerate(self.loops):
            if lane not in self.ended and (reason := loop.reason_to_stop()) is not None:
                self.ended[lane] = loop.end(reason)
        steps = {lane: loop.position.step for lane, loop in enumerate(self.loops) if lane not in self.ended}
        return [lane for lane, step in steps.items() if step == min(steps.values())]

    def step(self, lanes: Sequence[int], interruption: Interruption) -> None:
        losses = self._losses(lanes)
        for lane, loss in losses.items():
            with self._by_itself(lane):
                self.loops[lane].finish(loss)
        stopping, stopped = interruption.requested, None
        for lane in [lane for lane in losses if lane not in self.ended]:
            try:
                with self._by_itself(lane):
                    self.loops[lane].rest(stopping=stopping)
            except InterruptionError as fault:
                stopped = fault
        if stopped:
            raise stopped

    def _losses(self, lanes: Sequence[int]) -> dict[int, Tensor]:
        """Every lane's loss, on the CPU: with one wait for the device, where each lane would wait for the others' optimizers."""
        found: dict[int, Tensor] = {}
        self.shared.begin(lanes)
        for lane in lanes:
            with self._by_itself(lane):
                found[lane] = self.loops[lane].forward()
        self.shared.carry_on()
        return dict(zip(found, torch.stack([loss.detach() for loss in found.values()]).cpu(), strict=True)) if found else {}

    @contextmanager
    def _by_itself(self, lane: int) -> Iterator[None]:
        """Let a lane that diverges end without the others."""
        try:
            yield
        except DivergedError as fault:
            self.loops[lane].optimizer.zero_grad(set_to_none=True)
            self.ended[lane] = fault
