"""The hardware of a job: device, peak memory, precision, and parallel threads with their replicas of a
model.
"""

import copy
import ctypes
import gc
import os
import platform
import resource
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Barrier
from typing import Literal, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from adiabat.config.shared import require_device_name
from adiabat.core.arrays import VectorArray
from adiabat.core.errors import ConfigError, is_out_of_memory


def device_of(name: str) -> torch.device:
    """The device of a setting; ConfigError if this machine does not have it."""
    require_device_name(name)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"run.device must be a device of this machine, got {name!r} where "
            f"there are {torch.cuda.device_count()} GPUs"
        )
    return device


def device_name(device: torch.device) -> str:
    """Name of a device in a result."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"CPU {platform.machine()}, {threads} {'thread' if threads == 1 else 'threads'}"


def free_memory(device: torch.device) -> int:
    """Bytes of a device that this process may still take, including what a GPU's allocator holds unused."""
    if device.type == "cpu":
        return _available_memory()
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def _available_memory() -> int:
    """Bytes that the system gives without swapping; where it does not tell, half of its memory."""
    with suppress(OSError, StopIteration):
        line = next(line for line in _MEMORY.read_text().splitlines() if line.startswith("MemAvailable:"))
        return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def release_unused() -> None:
    """Give back the memory of a GPU that this process holds unused, before something is tried again in
    less.
    """
    # After a recording that failed, torch's allocator may refuse.
    with suppress(RuntimeError):
        torch.cuda.empty_cache()


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on another device; only a copy from pinned memory to a GPU does not wait."""
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)


_CLEAR_REFS, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
_MEMORY = Path("/proc/meminfo")


def reset_peak_memory(device: torch.device) -> None:
    """Restart the measurement of peak memory; if the system cannot, the peak covers the whole process.

    Free memory is returned to the system first: allocators keep it, so successive models in one process would
    seem to need more each time.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # Only the GNU C library has it.
    with suppress(OSError):
        _CLEAR_REFS.write_text("5")  # Linux: resets VmHWM, the peak of resident memory.


def peak_memory(device: torch.device) -> int:
    """Peak memory in bytes since `reset_peak_memory`."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError, StopIteration):
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


Precision = Literal["auto", "fp32", "bf16"]

MINIMUM_COSINE = 0.9999
"""Minimum cosine between bfloat16 and float32 vectors."""

_SENTENCE = (
    "The committee met on 3 March 2019 to weigh costs, risks and benefits of "
    "the new railway line between both cities. "
)
PROBE: tuple[str, ...] = (
    "a",
    "railway",
    "Where does the river rise?",
    "x = (a + b)^2 / 2 - sqrt(c)",
    "Le comité s'est réuni pour examiner les coûts.",
    "Комитет собрался, чтобы взвесить риски.",
    "اجتمعت اللجنة لدراسة تكاليف خط السكة الحديدية الجديد.",
    "委员会开会讨论新铁路线的成本和效益。",
    _SENTENCE,
    _SENTENCE * 4,
    _SENTENCE * 40,
)
"""Probe texts, from one letter to beyond any usual token limit, in several scripts; fixed, so that a resumed
job chooses the same precision."""


def native_bf16(device: torch.device) -> bool:
    """Whether a device multiplies bfloat16 in hardware; emulation is slower than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and bool(
        torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    )


def emulation_note(device: torch.device, precision: Precision, *, setting: str = "run.precision") -> str:
    """A note for users who set bfloat16 on a device that emulates it; "" otherwise."""
    if precision != "bf16" or native_bf16(device):
        return ""
    # One thread of a CPU with only AVX2: a step of 32 pairs through MiniLM's first four blocks takes 18.2 s,
    # and 1.24 s in float32.
    return (
        f"{setting} = bf16 is only emulated on this {device.type} device, "
        "which takes many times as long as fp32"
    )


def autocast(
    device: torch.device, precision: Precision, *, cached: bool = True
) -> AbstractContextManager[object]:
    """Context in which a forward pass runs in `precision`; `cached` keeps converted weights until its end."""
    return (
        torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=cached)
        if precision == "bf16"
        else nullcontext()
    )


def settled_precision(
    encode: Callable[[Sequence[str], Precision], VectorArray], device: torch.device
) -> Precision:
    """Choose bf16 if it is native and accurate for this encoder, otherwise fp32."""
    if not native_bf16(device):
        return "fp32"
    exact = encode(PROBE, "fp32")
    try:
        rounded = encode(PROBE, "bf16")
    except RuntimeError as fault:
        if is_out_of_memory(fault):
            raise
        # DeBERTa masks padding with the lowest float32, which bfloat16 cannot represent.
        return "fp32"
    return "bf16" if minimum_cosine(exact, rounded) >= MINIMUM_COSINE else "fp32"


def minimum_cosine(vectors: VectorArray, others: VectorArray) -> float:
    """Smallest cosine between corresponding rows, ``min_i a_i b_i / (|a_i| |b_i|)``, in float64; NaN if a row
    holds NaN or is zero.
    """
    a, b = vectors.astype(np.float64), others.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.min(np.sum(a * b, axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))))


Job = TypeVar("Job")


Result = TypeVar("Result")


ModuleT = TypeVar("ModuleT", bound=nn.Module)


def retried(work: Callable[[], Result], relieve: Callable[[], bool]) -> Result:
    """Do some work, and again after a shortage of a GPU's memory, as long as `relieve` makes it smaller."""
    while True:
        try:
            return work()
        except RuntimeError as fault:
            if not is_out_of_memory(fault) or not relieve():
                raise
        # Here, not in the handler: there the traceback still holds the tensors of the attempt.
        release_unused()


def call(work: Callable[[], Result]) -> Result:
    """Do some work: what `parallel_map` does with jobs that are functions."""
    return work()


MAX_WORKERS = 16
"""Limit of threads: a forward pass holds the interpreter lock for a few of its hundred milliseconds, so more
threads would wait."""


@contextmanager
def parallel_map(
    functions: Sequence[Callable[[Job], Result]],
) -> Iterator[Callable[[Iterable[Job]], Iterator[Result]]]:
    """A parallel map of jobs to results, in order, with one thread per function.

    On a CPU, many small batches with one thread each are faster than one batch split over all cores: no core
    waits for the others after every operation, and the data of a batch stay in its core's cache.

    Each function runs one job at a time, so its state needs no lock. Torch's threads are divided equally, and
    their number is restored at the end. An exception in a job, or an interrupt, reaches the caller after
    running jobs have ended; waiting jobs are dropped.
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
    pool = ThreadPoolExecutor(
        len(functions), "adiabat", initializer=_start, initargs=(share, Barrier(len(functions)))
    )
    try:
        # Start all threads first: a late one would change torch's number of threads during the work of
        # others, and with it the last digits.
        wait([pool.submit(lambda: None) for _ in functions])
        yield lambda jobs: _in_order(pool, call, jobs, ahead=2 * len(functions))
    finally:
        try:
            pool.shutdown(cancel_futures=True)
        finally:
            torch.set_num_threads(before)


def _start(threads: int, all_here: Barrier) -> None:
    """Begin a thread with its share of torch's threads, and wait for the others."""
    # At its first question or operation, torch gives a thread the number that any other thread set last.
    # Without this question, that would be the first operation of a job, after nested maps may have changed
    # the number, and last digits would depend on them.
    torch.get_num_threads()
    torch.set_num_threads(threads)
    all_here.wait()


def _in_order(
    pool: ThreadPoolExecutor, call: Callable[[Job], Result], jobs: Iterable[Job], *, ahead: int
) -> Iterator[Result]:
    """Results in the order of their jobs; `ahead` more jobs than results are begun."""
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


def thread_replicas(
    module: ModuleT, count: int, *, precision: Precision, shared: Iterable[object] = ()
) -> list[ModuleT]:
    """Replicas of a module for forward passes in several threads, with shared weights.

    A forward pass may keep state in its module, such as growing rotary tables. In bf16 the weights of linear
    layers are converted here once; autocast would convert them in every pass, to the same bits.
    """
    # Objects in the memo of deepcopy are not copied.
    memo = {id(item): item for item in (*shared, *module.parameters())}
    if precision == "bf16":
        memo |= {
            id(weights): nn.Parameter(weights.detach().bfloat16(), requires_grad=False)
            for weights in linear_weights(module)
        }
    return [copy.deepcopy(module, dict(memo)) for _ in range(count)]


def linear_weights(module: nn.Module) -> list[nn.Parameter]:
    """Float32 weights used only by plain linear layers; weights tied to an embedding table are looked up in
    float32.
    """
    linear: dict[int, nn.Parameter] = {}
    elsewhere: set[int] = set()
    for submodule in module.modules():
        direct = {id(weights): weights for weights in submodule.parameters(recurse=False)}
        if type(submodule) is nn.Linear:
            linear |= {key: weights for key, weights in direct.items() if weights.dtype == torch.float32}
        else:
            elsewhere |= direct.keys()
    return [weights for key, weights in linear.items() if key not in elsewhere]
