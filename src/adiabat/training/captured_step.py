"""Optimizer steps as recorded graphs of device operations, replayed for each step.

A step over a small batch is hundreds of short operations, and a GPU waits for Python between them. A CUDA
graph launches them all at once. It repeats the same operations on the same memory, so a step becomes one
function of inputs of fixed shapes. Everything that differs from
step to step is an input, the learning rate too: it is copied into place before each replay. Inputs of another
shape get another graph.

Only recording needs a GPU. The tests record on a CPU, by an emulator that repeats every operation of torch in
place.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn, optim

from adiabat.config.section import OptimizerName
from adiabat.core.errors import first_line, is_out_of_memory

Arrays = Mapping[str, np.ndarray]
"""Inputs of a step on the host, by name."""

WARM_UPS = 3
"""Steps before a recording, as torch advises: libraries load kernels and choose among them in the first
ones."""

ALIGNMENT = 16
"""Bytes between the starts of two inputs in their common buffer: any number's size divides it."""

RATE, NUMBER = "learning_rate", "step"
"""Inputs that every step has."""


NO_MEMORY = "the memory of the GPU does not hold a recorded step; lower tune.batch_size"
"""Why a step is not recorded where memory ran out."""


class CaptureError(Exception):
    """A step could not be recorded: a note for the job; weights and optimizer are as before."""


@runtime_checkable
class FixedShapes(Protocol):
    """The loss of a step as a function of inputs that have few different shapes."""

    def inputs(self, step: int) -> dict[str, np.ndarray]:
        """Everything that differs from step to step, but the weights; it follows from the step's number
        alone.
        """

    def loss(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The loss, on the device of its inputs, without an operation that waits for it."""

    def close(self) -> None:
        """Stop work on later inputs."""


class Recorder(Protocol):
    """Records the operations of a function on one kind of device."""

    def warm_up(self, work: Callable[[], Tensor]) -> None:
        """Run the function a few times as it will be recorded."""

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """Record one run of the function; returns its repetition, and the tensor that receives the result."""


class CudaGraphs:
    """Graphs of one job, in one pool of memory: they never run at the same time."""

    def __init__(self, device: torch.device) -> None:
        """Set up."""
        self._device = device
        with torch.cuda.device(device):
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._pool = torch.cuda.graph_pool_handle()

    def warm_up(self, work: Callable[[], Tensor]) -> None:
        """Run the function on the stream of the recording, since gradients are summed on the stream that
        first made them.
        """
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        try:
            with torch.cuda.stream(self._stream):
                for _ in range(WARM_UPS):
                    work()
        finally:
            # Whoever restores the weights after a failure must not be overtaken.
            current.wait_stream(self._stream)

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """Record a CUDA graph."""
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        # Other threads of a program may copy to the GPU meanwhile, which by default would spoil the
        # recording.
        recording = torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local")
        # The current stream is set again even where torch fails to end a recording.
        with torch.cuda.device(self._device), torch.cuda.stream(current), recording:
            result = work()
        return graph.replay, result


RECORDERS: dict[str, Callable[[torch.device], Recorder]] = {"cuda": CudaGraphs}
"""Types of devices whose steps are recorded."""


class StaticInputs:
    """Inputs of one shape in one buffer on the device, which a single copy fills."""

    def __init__(self, arrays: Arrays, device: torch.device) -> None:
        """Make room for arrays of these shapes."""
        self._slices: dict[str, slice] = {}
        end = 0
        for name, array in arrays.items():
            start = -(-end // ALIGNMENT) * ALIGNMENT
            end = start + array.nbytes
            self._slices[name] = slice(start, end)
        self._buffer = torch.zeros(end, dtype=torch.uint8, device=device)
        self.tensors = {
            name: self._buffer[self._slices[name]].view(_dtype(array)).view(array.shape)
            for name, array in arrays.items()
        }

    def fill(self, arrays: Arrays) -> None:
        """Copy arrays into place, without waiting for the device."""
        # Torch keeps pinned memory from being used again until the copy is done.
        host = torch.empty(
            self._buffer.shape, dtype=torch.uint8, pin_memory=self._buffer.device.type == "cuda"
        )
        numbers = host.numpy()
        for name, place in self._slices.items():
            numbers[place] = np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8)
        self._buffer.copy_(host, non_blocking=True)


def _dtype(array: np.ndarray) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype=array.dtype)).dtype


@dataclass(frozen=True, slots=True)
class _Graph:
    """A recorded step: its inputs, its repetition, and the loss that this leaves."""

    inputs: StaticInputs
    repeat: Callable[[], None]
    loss: Tensor


class CapturedSteps:
    """Takes the steps of a run by graphs, recorded when a step first has inputs of their shape.

    Nothing here waits for the device. So a loss that is not finite is noted there, with the number of the
    first such step, and is found by whoever asks for `fault` before the weights are used.
    """

    def __init__(self, objective: FixedShapes, optimizer: optim.Optimizer, recorder: Recorder) -> None:
        """Set up; the first step records, so the state of a resumed run may still be restored."""
        self._objective = objective
        self._optimizer = optimizer
        self._recorder = recorder
        parameters = chain.from_iterable(group["params"] for group in optimizer.param_groups)
        self._trained: list[nn.Parameter] = list(parameters)
        self._device = self._trained[0].device
        self._rate = torch.zeros((), device=self._device)
        self._fault = torch.tensor([-1.0, 0.0], dtype=torch.float64, device=self._device)
        self._graphs: dict[tuple[object, ...], _Graph] = {}

    def take(self, step: int, learning_rate: float) -> Tensor:
        """Take one step; returns its loss, which the next step overwrites.

        Raises:
            CaptureError: If it cannot be recorded.
        """
        arrays = self._objective.inputs(step)
        arrays[RATE] = np.array(learning_rate, dtype=np.float32)
        arrays[NUMBER] = np.array(step, dtype=np.float64)
        shapes = tuple((name, array.shape, array.dtype) for name, array in arrays.items())
        if shapes not in self._graphs:
            self._graphs[shapes] = self._record(arrays)
        graph = self._graphs[shapes]
        graph.inputs.fill(arrays)
        graph.repeat()
        return graph.loss

    def fault(self) -> tuple[int, float] | None:
        """The first step whose loss was not finite, and that loss; waits for all steps taken."""
        step, loss = self._fault.tolist()
        return None if step < 0 else (int(step), loss)

    def close(self) -> None:
        """Release the graphs; no step can be taken afterwards."""
        self._objective.close()
        self._graphs.clear()

    def _record(self, arrays: Arrays) -> _Graph:
        inputs = StaticInputs(arrays, self._device)
        inputs.fill(arrays)
        self._move_state()
        before, work = self._state(), partial(self._step, inputs.tensors)
        try:
            self._recorder.warm_up(work)
            # Those of warming up lie in memory that other work takes over.
            self._optimizer.zero_grad(set_to_none=True)
            return _Graph(inputs, *self._recorder.record(work))
        # Libraries take other ways while they are recorded, so whatever fails here may succeed in an eager
        # step.
        except Exception as fault:
            self.close()
            why = f"a step could not be recorded ({first_line(fault)})"
            if is_out_of_memory(fault):
                why = NO_MEMORY
            raise CaptureError(eager_note(why)) from fault
        finally:
            # The graph keeps writing gradients into its own memory, which nobody else reads.
            self._optimizer.zero_grad(set_to_none=True)
            self._put_back(before)

    def _step(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """One step as it is recorded."""
        # Without former gradients, the backward pass makes them in the memory of the graph, and replays
        # overwrite them.
        self._optimizer.zero_grad(set_to_none=True)
        self._rate.copy_(inputs[RATE])
        loss = self._objective.loss(inputs)
        torch.autograd.backward(loss)
        with _capturable(self._optimizer, self._rate):
            self._optimizer.step()
        loss = loss.detach()
        first = ~torch.isfinite(loss) & (self._fault[0] < 0)
        self._fault.copy_(torch.where(first, torch.stack([inputs[NUMBER], loss.double()]), self._fault))
        return loss

    def _move_state(self) -> None:
        """Move step counts to the device, where a graph can count on; an eager run keeps those of some
        optimizers on the CPU.
        """
        for slots in self._optimizer.state.values():
            for name, value in slots.items():
                if isinstance(value, Tensor):
                    slots[name] = value.to(self._device)

    def _state(self) -> dict[object, Tensor]:
        """A copy of everything that a step changes."""
        kept: dict[object, Tensor] = {weights: weights.detach().clone() for weights in self._trained}
        kept["fault"] = self._fault.clone()
        for owner, name, value in self._slots():
            kept[owner, name] = value.clone()
        return kept

    @torch.no_grad()
    def _put_back(self, kept: Mapping[object, Tensor]) -> None:
        """Restore a copy in place; the optimizer's new state becomes 0, at which each of ours begins."""
        for weights in self._trained:
            weights.copy_(kept[weights])
        self._fault.copy_(kept["fault"])
        for owner, name, value in self._slots():
            if (owner, name) in kept:
                value.copy_(kept[owner, name])
            else:
                value.zero_()

    def _slots(self) -> Iterator[tuple[Tensor, str, Tensor]]:
        """The tensors of the optimizer's state."""
        for weights, slots in self._optimizer.state.items():
            for name, value in slots.items():
                if isinstance(value, Tensor):
                    yield weights, name, value


CAPTURED_OPTIONS: Mapping[type[optim.Optimizer], Mapping[str, Any]] = {
    optim.AdamW: {"capturable": True},
    # Not tensor by tensor: that reads the learning rate on the host.
    optim.Adamax: {"capturable": True, "foreach": True},
    optim.Adadelta: {"capturable": True, "foreach": True},
    # Its other kernels read the learning rate on the host.
    optim.SGD: {"fused": True},
}
"""Optimizers that take a learning rate on the device, and the options for that."""

UNCAPTURED: Mapping[OptimizerName, str] = {
    "adafactor": "tune.optimizer = adafactor computes the size of its steps on the CPU"
}
"""The others, and why."""


def eager_note(why: str) -> str:
    """A note for whoever expects a GPU to be busy."""
    return f"steps are not recorded as CUDA graphs, which are several times as fast: {why}"


@contextmanager
def _capturable(optimizer: optim.Optimizer, rate: Tensor) -> Iterator[None]:
    """Within the block, a step reads its learning rate on the device; afterwards the options are those of an
    eager run.

    Checkpoints hold these options, so captured and eager runs resume each other's.
    """
    options = {"lr": rate, **CAPTURED_OPTIONS[type(optimizer)]}
    before = [dict(group) for group in optimizer.param_groups]
    try:
        for group in optimizer.param_groups:
            group.update(options)
        with warnings.catch_warnings():
            # Warming up runs a capturable optimizer outside a graph, which torch takes for an oversight.
            warnings.filterwarnings("ignore", message=".*capturable=True", category=UserWarning)
            yield
    finally:
        for group, options_before in zip(optimizer.param_groups, before, strict=True):
            group.update(options_before)
