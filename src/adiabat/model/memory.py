"""How much memory a part of a job takes at its peak."""

import ctypes
import gc
import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch

_MARKS, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def begin_peak(device: torch.device) -> None:
    """Forget how much was held before, as far as the system lets us: where it does not, the peak is that of the whole process.

    What is free goes back to the system first: allocators keep it, and a process that trains one model after the other would seem to hold
    more with each.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    gc.collect()
    with suppress(OSError, AttributeError):
        # The GNU C library alone has it.
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        # Linux: the mark of the most that was resident begins anew.
        _MARKS.write_text("5")


def peak_bytes(device: torch.device) -> int:
    """Most that was held since `begin_peak`."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError, StopIteration):
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
