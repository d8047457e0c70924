"""Code that ends its own process, in a fork of the test's: to import everything anew takes longer than most
of what is killed.
"""

import os
import signal
import traceback
from collections.abc import Callable

import torch


def exit_code(run: Callable[[], object]) -> int:
    """Run something in a process of its own; returns how that ended, negative where a signal did it."""
    child = os.fork()
    if not child:
        signal.alarm(120)
        # The threads that torch had are not there any more.
        torch.set_num_threads(1)
        try:
            run()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
