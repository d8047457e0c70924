"""Threads that work side by side, and the copies of a model that they run.

On a CPU, many small batches with one thread each beat one batch cut over all cores: no core waits for the others after every
operation, and what a batch needs stays in its core's cache.
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
"""A forward pass holds the interpreter lock for a few of its hundred milliseconds, so that more threads would wait for it, not compute."""


@contextmanager
def side_by_side(functions: Sequence[Callable[[Job], Result]]) -> Iterator[Callable[[Iterable[Job]], Iterator[Result]]]:
    """Threads, as many as functions, that share out jobs and the cores.

    Each function runs one job at a time, so it may keep state that is not safe to share. Torch computes with an equal share of the
    caller's threads in each; the caller's number of threads is restored on the way out. An exception in a job, or an interrupt, reaches
    the caller after the jobs that are running have ended; those that wait are dropped.
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
        # A thread that started in the middle of others' work would change the number of threads under it, and with it last digits.
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
    """Copies of a module for forward passes in several threads.

    A forward pass may keep state in its module (rotary tables that grow, for one), so each thread gets a module of its own; the weights
    are shared. In bf16 those of linear layers are converted once here, where autocast would convert them in every pass; the results
    are the same bit for bit.
    """
    kept = {id(part): part for part in (*shared, *module.parameters())}
    if precision == "bf16":
        kept |= {id(weights): nn.Parameter(weights.detach().bfloat16(), requires_grad=False) for weights in _linear_weights(module)}
    return [copy.deepcopy(module, dict(kept)) for _ in range(count)]


def _linear_weights(module: nn.Module) -> list[nn.Parameter]:
    """Float32 weights that only plain linear layers use (not those tied to an embedding table, which is looked up in float32)."""
    linear: dict[int, nn.Parameter] = {}
    elsewhere: set[int] = set()
    for part in module.modules():
        own = {id(weights): weights for weights in part.parameters(recurse=False)}
        if type(part) is nn.Linear:
            linear |= {key: weights for key, weights in own.items() if weights.dtype == torch.float32}
        else:
            elsewhere |= own.keys()
    return [weights for key, weights in linear.items() if key not in elsewhere]
