"""Growth of a process's memory during work, for the benchmarks in this folder (Linux only)."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


def rise_of(work: Callable[[], Result]) -> tuple[float, Result]:
    """MB by which the resident set rises, at its highest, above what it is before the work; and the work's
    result.
    """
    Path("/proc/self/clear_refs").write_text(
        "5", encoding="ascii"
    )  # makes the present size the highest so far
    before = _resident("VmRSS")
    result = work()
    return _resident("VmHWM") - before, result


def _resident(name: str) -> float:
    """A line of the kernel's account of this process, in MB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))
