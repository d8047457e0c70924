"""Device, peak memory and number format of a job."""

import ctypes
import gc
import platform
import resource
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float

from adiabat.core.device_names import require_device_name
from adiabat.core.errors import ConfigError, is_out_of_memory


def device_of(name: str) -> torch.device:
    """The device of a setting; ConfigError where this machine has none such."""
    require_device_name(name)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"run.device must be a device of this machine, got {name!r} where there are {torch.cuda.device_count()} GPUs")
    return device


def device_name(device: torch.device) -> str:
    """Name of a device in a result."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"CPU {platform.machine()}, {threads} {'thread' if threads == 1 else 'threads'}"


_CLEAR_REFS, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def reset_peak_memory(device: torch.device) -> None:
    """Start measuring peak memory again; where the system cannot, the peak is that of the whole process.

    Free memory goes back to the system first: allocators keep it, so that a process that trains several models would seem to need more for
    each.
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
    """Peak of memory in bytes since `reset_peak_memory`."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError, StopIteration):
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


Precision = Literal["auto", "fp32", "bf16"]

MINIMUM_COSINE = 0.9999
"""Between bfloat16 vectors and float32 ones, at the least."""

_SENTENCE = "The committee met on 3 March 2019 to weigh costs, risks and benefits of the new railway line between both cities. "
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
"""Texts from one letter to past any usual token limit, in several scripts; fixed, so that a resumed job chooses the same precision."""


def native_bf16(device: torch.device) -> bool:
    """Whether a device multiplies in bfloat16 in hardware; emulated, it is slower than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def emulation_note(device: torch.device, precision: Precision, *, setting: str = "run.precision") -> str:
    """A sentence for people who set bfloat16 where it is emulated; "" otherwise."""
    if precision != "bf16" or native_bf16(device):
        return ""
    # One thread of a CPU with AVX2 alone: a step of 32 pairs through MiniLM's first four blocks takes 18.2 s, and 1.24 s in float32.
    return f"{setting} = bf16 is only emulated on this {device.type} device, which takes many times as long as fp32"


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Context in which a forward pass runs in `precision`."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bf16" else nullcontext()


def settled_precision(encode: Callable[[Sequence[str], Precision], Float[np.ndarray, "n e"]], device: torch.device) -> Precision:
    """Choose bf16 where it is native and harmless for this encoder, else fp32."""
    if not native_bf16(device):
        return "fp32"
    exact = encode(PROBE, "fp32")
    try:
        rounded = encode(PROBE, "bf16")
    except RuntimeError as fault:
        if is_out_of_memory(fault):
            raise
        # DeBERTa hides padding by the least float32, which bfloat16 cannot hold.
        return "fp32"
    return "bf16" if minimum_cosine(exact, rounded) >= MINIMUM_COSINE else "fp32"


def minimum_cosine(vectors: Float[np.ndarray, "n e"], others: Float[np.ndarray, "n e"]) -> float:
    """Smallest cosine between rows of the same number, in float64; NaN where a row holds NaN or is zero."""
    a, b = vectors.astype(np.float64), others.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.min(np.sum(a * b, axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))))
