"""What one process does for all."""

from collections.abc import Callable
from typing import TypeVar

from adiabat.errors import AdiabatError, JobError
from adiabat.train.distributed import Processes

Done = TypeVar("Done")


def on_main(processes: Processes, work: Callable[[], Done]) -> Done | None:
    """Do in the main process what is done once; the others wait, and where it fails there, they end too.

    Returns:
        What came of it; None in the others.
    """
    done, fault = None, None
    if processes.is_main:
        try:
            done = work()
        except AdiabatError as found:
            fault = found
    if processes.any(fault is not None):
        raise fault or JobError("the main process must be able to go on; it says why it is not")
    return done
