"""Parallel threads, and the replicas of a model that they run.

On a CPU, many small batches with one thread each beat one batch split over all cores: no core waits for the others after every operation,
and the data of a batch stay in its core's cache.
"""

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Barrier
from typing import TypeVar

import torch
from torch import nn

from adiabat.models.device import Precision

Job = TypeVar("Job")
Result = TypeVar("Result")
ModuleT = TypeVar("ModuleT", bound=nn.Module)

MAX_WORKERS = 16
"""A forward pass holds the interpreter lock for a few of its hundred milliseconds: more threads would wait for it."""


@contextmanager
def parallel_map(functions: Sequence[Callable[[Job], Result]]) -> Iterator[Callable[[Iterable[Job]], Iterator[Result]]]:
    """A function that maps jobs to results in parallel, in their order, with one thread per function.

    Each function runs one job at a time, so its state needs no lock. Every thread gets an equal share of torch's threads, whose number is
    restored at the end. An exception in a job, or an interrupt, reaches the caller once running jobs have ended; waiting jobs are dropped.
    """
    free: SimpleQueue[Callable[[Job], Result]] = SimpleQueue()
    for function in functions:
        free.put(function)

    def call(job: Job) -> Result:
        function = free.get()
        try:
            return function(job)
        finally:
            free.put(function)

    before = torch.get_num_threads()
    share = max(1, before // len(functions))
    pool = ThreadPoolExecutor(len(functions), "adiabat", initializer=_start, initargs=(share, Barrier(len(functions))))
    try:
        # All threads start first: a late one would change torch's number of threads during the work of others, and with it last digits.
        wait([pool.submit(_nothing) for _ in functions])
        yield lambda jobs: _in_order(pool, call, jobs, ahead=2 * len(functions))
    finally:
        try:
            pool.shutdown(cancel_futures=True)
        finally:
            torch.set_num_threads(before)


def _start(threads: int, all_here: Barrier) -> None:
    torch.set_num_threads(threads)
    all_here.wait()


def _nothing() -> None:
    """Do nothing: a job that makes its thread start."""


def _in_order(pool: ThreadPoolExecutor, call: Callable[[Job], Result], jobs: Iterable[Job], *, ahead: int) -> Iterator[Result]:
    waiting: deque[Future[Result]] = deque()
    try:
        for job in jobs:
            waiting.append(pool.submit(call, job))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BaseException:
        for future in waiting:
            future.cancel()
        wait(waiting)
        raise


def thread_replicas(module: ModuleT, count: int, *, precision: Precision, shared: Iterable[object] = ()) -> list[ModuleT]:
    """Copies of a module for forward passes in several threads; they share its weights.

    A forward pass may keep state in its module, such as rotary tables that grow. In bf16 the weights of linear layers are converted here,
    once; autocast would convert them in every pass, to the same bits.
    """
    # What the memo of deepcopy holds is not copied.
    memo = {id(item): item for item in (*shared, *module.parameters())}
    if precision == "bf16":
        memo |= {id(weights): nn.Parameter(weights.detach().bfloat16(), requires_grad=False) for weights in _linear_weights(module)}
    return [copy.deepcopy(module, dict(memo)) for _ in range(count)]


def _linear_weights(module: nn.Module) -> list[nn.Parameter]:
    """Float32 weights that only plain linear layers use; those tied to an embedding table are looked up in float32."""
    linear: dict[int, nn.Parameter] = {}
    elsewhere: set[int] = set()
    for submodule in module.modules():
        direct = {id(weights): weights for weights in submodule.parameters(recurse=False)}
        if type(submodule) is nn.Linear:
            linear |= {key: weights for key, weights in direct.items() if weights.dtype == torch.float32}
        else:
            elsewhere |= direct.keys()
    return [weights for key, weights in linear.items() if key not in elsewhere]
