"""Training of one model by several processes, each with a part of every batch; other modules do not handle
processes.

Every process holds all weights, embeds its own rows of the global batch (`Processes.share`), sees the
embeddings of all (`Processes.gather`), and averages its loss over its own rows (`Pairs.rows`). The loss of
the whole is the mean over processes:

``dL/dw = 1/R sum_s dE_s/dw sum_r dL_r/dE_s`` with ``E_s`` the rows that process ``s`` embeds and ``L_r`` the
loss of process ``r``.

The backward pass of `Processes.gather` computes the inner sum, and `Processes.average_gradients` the outer
one with ``1/R``; parameters of the loss other than embeddings, such as a learned temperature, only need the
outer one. The result is the gradient of one process on the joined batch, so that clipping and the optimiser's
step, alike in every process, keep all copies of the weights equal to the last bit.

Exchanges are matched by order: every process must make the same ones in the same order, whatever its own rows
are.

If a process dies or hangs, the next exchange of the others fails instead of blocking forever: at once if the
connection breaks (gloo), after `PATIENCE` if it stays silent. On a CPU that is a JobError; on GPUs torch's
watchdog ends the process itself. The launcher then ends the rest with SIGTERM, and with SIGKILL 30 seconds
later. Ctrl-C and SIGTERM to the launcher are passed on to every process, but not at the
same step: `Processes.any` makes them stop at the same one.

Sharded weights (FSDP) are not supported; docs/decisions/009-several-processes.md lists the required changes.
"""

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from adiabat.core.errors import AdiabatError, ConfigError, JobError, reraise_unrelated
from adiabat.core.wording import again

PATIENCE = timedelta(minutes=10)
"""Timeout of an exchange: longer than any work that one process does alone, such as writing a checkpoint."""

BUCKET_BYTES = 2**26
"""Bytes of gradients averaged in one exchange; a larger gradient goes alone. This is also the additional
memory required."""


_CPU = torch.device("cpu")

_SHARDING = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_MEGATRON_LM")
"""Environment variables that the launcher sets if its configuration says so."""


@dataclass(frozen=True, slots=True)
class Processes:
    """All processes of a run, from the view of one of them.

    A run of one process exchanges and copies nothing.

    Attributes:
        rank: Rank of this process, from 0.
        count: Number of processes, >= 1.
        device: Device of this process.
    """

    rank: int = 0
    count: int = 1
    device: torch.device = _CPU

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and prints messages."""
        return self.rank == 0

    def share(self, count: int) -> slice:
        """This process's items of a global batch: equal parts, without gaps, in rank order."""
        size, remainder = divmod(count, self.count)
        if remainder or not size:
            choices = " or ".join(str(number * self.count) for number in (size, size + 1) if number)
            raise ConfigError(
                f"train.batch_size must be a multiple of the {self.count} "
                f"processes, got {count}; take {choices}"
            )
        return slice(self.rank * size, (self.rank + 1) * size)

    def gather(self, embeddings: Float[Tensor, "b ..."]) -> Float[Tensor, "n ..."]:
        """Rows of all processes, differentiably: the gradient of a row is the sum of its gradients in all
        processes.

        Processes may contribute different numbers of rows, or none. Either the losses of all processes must
        depend on the result, or none: the backward pass is an exchange too.
        """
        if self.count == 1:
            return embeddings
        trained = torch.is_grad_enabled() and embeddings.requires_grad
        heads = self._joined(torch.tensor([[len(embeddings), trained]], device=self.device), [1] * self.count)
        rows, needs_gradient = heads.T.tolist()
        # If other processes differentiate, this one must take part, even without rows of its own.
        root = torch.empty(0, requires_grad=any(needs_gradient))
        gathered: Tensor = _Gathered.apply(embeddings, root, self, rows)  # type: ignore[no-untyped-call]
        return gathered

    def gather_numbers(self, numbers: Int[Tensor, " b"]) -> Int[Tensor, " n"]:
        """Integers of all processes, such as keys of texts; processes may contribute different numbers of
        them.
        """
        if self.count == 1:
            return numbers
        lengths = self._joined(torch.tensor([len(numbers)], device=self.device), [1] * self.count)
        return self._joined(numbers, lengths.tolist())

    def spread(self, rows: Float[Tensor, "b ..."]) -> Float[Tensor, "n ..."]:
        """This process's rows at their positions in the global batch, zeros elsewhere; nothing is sent.

        Used for values that only a process's own rows need: `Pairs.own`, each query's own negatives.
        """
        if self.count == 1:
            return rows
        before, after = (
            rows.new_zeros(len(rows) * ranks, *rows.shape[1:])
            for ranks in (self.rank, self.count - self.rank - 1)
        )
        return torch.cat([before, rows, after])

    @torch.no_grad()
    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace each gradient by its mean over processes; a missing gradient counts as zero.

        If no process has a gradient, it stays missing, so that an optimiser skips the weight as it does in
        one process.
        """
        trained = [weights for weights in dict.fromkeys(parameters) if weights.requires_grad]
        if self.count == 1 or not trained:
            return
        present = torch.tensor(
            [weights.grad is not None for weights in trained], dtype=torch.int32, device=self.device
        )
        # Every process must exchange the same tensors in the same order, or sums would mix different weights.
        for anywhere, weights in zip(self._reduce(present, dist.ReduceOp.MAX).tolist(), trained, strict=True):
            if anywhere and weights.grad is None:
                weights.grad = torch.zeros_like(weights)
        # One exchange per bucket: for small tensors, latency would cost more than the bytes.
        for bucket in _buckets([weights.grad for weights in trained if weights.grad is not None]):
            flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
            self._reduce(flat, dist.ReduceOp.SUM).div_(self.count)
            means = torch.split(flat, [gradient.numel() for gradient in bucket])
            for gradient, mean in zip(bucket, means, strict=True):
                gradient.copy_(mean.view_as(gradient))

    def mean(self, value: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """Mean of a number over processes, for the log; without gradient."""
        return (
            value.detach()
            if self.count == 1
            else self._reduce(value.detach().clone(), dist.ReduceOp.SUM).div_(self.count)
        )

    def any(self, flag: bool) -> bool:
        """Whether a condition holds in any process, so that all stop at the same step when one is
        interrupted.
        """
        if self.count == 1:
            return flag
        return bool(
            self._reduce(
                torch.tensor([flag], dtype=torch.int32, device=self.device), dist.ReduceOp.MAX
            ).item()
        )

    @torch.no_grad()
    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite tensors, such as weights, with those of the main process."""
        if self.count == 1:
            return
        for tensor in tensors:
            sent = tensor.detach().contiguous()
            with self._exchange():
                dist.broadcast(sent, src=0)
            tensor.copy_(sent)

    def _joined(self, mine: Tensor, rows: list[int]) -> Tensor:
        """Rows of all processes, for known numbers of rows."""
        longest = max(rows)
        if not longest:
            return mine.detach().clone()
        # gloo and NCCL only exchange tensors of equal shape.
        padded = mine.new_zeros(longest, *mine.shape[1:])
        padded[: len(mine)] = mine
        gathered = [torch.empty_like(padded) for _ in rows]
        with self._exchange():
            dist.all_gather(gathered, padded)
        return torch.cat([tensor[:count] for tensor, count in zip(gathered, rows, strict=True)])

    def _reduce(self, value: Tensor, operation: Any) -> Tensor:
        """Overwrite the tensor by its sum or maximum over processes, and return it."""
        with self._exchange():
            dist.all_reduce(value, op=operation)
        return value

    @contextmanager
    def _exchange(self) -> Iterator[None]:
        """Report in one line that another process is lost."""
        try:
            yield
        except RuntimeError as fault:
            reraise_unrelated(fault)
            raise JobError(
                f"process {self.rank} of {self.count} lost contact with the others: {_reason(fault)}; "
                f"check how they ended, then {again(resume=True)}"
            ) from fault


ALONE = Processes()
"""One process, on the CPU."""


class _Gathered(torch.autograd.Function):
    """`Processes.gather` for several processes."""

    @staticmethod
    def forward(ctx: Any, mine: Tensor, root: Tensor, processes: Processes, rows: list[int]) -> Tensor:
        """Gather; `root` makes autograd call `backward`."""
        ctx.processes, ctx.rows = processes, rows
        return processes._joined(mine, rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None, None]:
        """Sum the gradients of all processes, and keep those of this process's rows."""
        # All processes' losses depend on these rows; `average_gradients` divides by their number afterwards.
        summed = ctx.processes._reduce(
            gradients[0].clone(memory_format=torch.contiguous_format), dist.ReduceOp.SUM
        )
        mine: Tensor | None = summed.split(ctx.rows)[ctx.processes.rank] if ctx.needs_input_grad[0] else None
        return mine, None, None, None


def _buckets(gradients: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Consecutive tensors of one dtype, as many as `BUCKET_BYTES` hold, at least one."""
    bucket: list[Tensor] = []
    size = 0
    for gradient in gradients:
        if bucket and (gradient.dtype != bucket[0].dtype or size + gradient.nbytes > BUCKET_BYTES):
            yield bucket
            bucket, size = [], 0
        bucket.append(gradient)
        size += gradient.nbytes
    if bucket:
        yield bucket


def _reason(fault: RuntimeError) -> str:
    """The first sentence of a torch message, without the source line before it."""
    return re.sub(r"^\[\S+:\d+\] ", "", str(fault)).partition("\n")[0].partition(". ")[0]


@contextmanager
def processes(device: torch.device, *, timeout: timedelta = PATIENCE) -> Iterator[Processes]:
    """Connect the processes started by ``torchrun`` or ``accelerate launch`` within the block; otherwise this
    process runs alone.

    They use gloo on a CPU and NCCL on GPUs, where each process takes the GPU of its local rank.
    `accelerate.PartialState` connects them; an
    existing connection is used and left open. On a CPU only ``torchrun`` works: ``accelerate launch --cpu``
    starts one process whatever ``--num_processes`` says. Under ``mpirun`` every process runs alone.
    """
    launched = all(name in os.environ for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    if not launched or int(os.environ["WORLD_SIZE"]) == 1:
        yield Processes(device=device)
        return
    _check(device)
    ours = not dist.is_initialized()
    try:
        yield _connected(device, timeout)
    finally:
        if ours:
            if dist.is_initialized():
                dist.destroy_process_group()
            # Only several processes need it. It is one object for the life of the Python process, and would
            # take itself for connected in the next block.
            from accelerate import PartialState

            PartialState._reset_state()


def _connected(device: torch.device, timeout: timedelta) -> Processes:
    # Only several processes need it.
    from accelerate import PartialState

    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    try:
        # Addresses left by an earlier connection would be mistaken for current ones.
        store = PrefixStore(f"adiabat-{next(_CONNECTIONS)}", _store(timeout))
        # Not through InitProcessGroupKwargs, which drops a timeout equal to its own default, although the
        # backend's differs.
        state = PartialState(
            cpu=device.type == "cpu", timeout=timeout, store=store, rank=rank, world_size=count
        )
    except RuntimeError as fault:
        reraise_unrelated(fault)
        raise JobError(
            f"process {rank} of {count} could not reach the others: {_reason(fault)}; "
            "check how they ended, and the address and port given to the launcher"
        ) from fault
    # PartialState numbers the CPU too, so its device would not equal that of CPU tensors.
    return Processes(rank, count, device if device.type == "cpu" else state.device)


_CONNECTIONS = itertools.count()
"""Number of this process's connections; the counts of all processes agree, since they connect equally
often."""


@cache
def _store(timeout: timedelta) -> Store:
    """Store in which processes find each other; the first process may host it, so it stays open between
    connections.
    """
    store: Store = next(rendezvous("env://", timeout=timeout))[0]
    return store


def _check(device: torch.device) -> None:
    """Raise ConfigError if sharded weights are configured, or if processes would share a GPU."""
    for name in _SHARDING:
        if os.environ.get(name, "").lower() == "true":
            raise ConfigError(
                f"accelerate launch must not shard weights, got {name}=true; launch "
                "with --multi_gpu, or with torchrun"
            )
    if device.type != "cuda":
        return
    if device != torch.device("cuda"):
        raise ConfigError(
            "run.device must be auto, cpu or cuda where several processes take a "
            f"GPU each, got {device}; leave the number out"
        )
    count, gpus = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    if count > gpus:
        raise ConfigError(
            f"run.device must have a GPU for each of the {count} processes, got {gpus}; "
            "start fewer processes, or set run.device = cpu"
        )


Done = TypeVar("Done")


def on_main(processes: Processes, work: Callable[[], Done]) -> Done | None:
    """Run a function in the main process only; the others wait, get None, and fail if it fails."""
    result, fault = None, None
    if processes.is_main:
        try:
            result = work()
        except AdiabatError as found:
            fault = found
    if processes.any(fault is not None):
        raise fault or JobError("the main process failed; see its message")
    return result
