"""Runs that are killed at given moments; started by test_loop.py in a process of its own, which forks one run per moment.

python -m tests.training.kills FOLDER OPTIMIZER
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from adiabat.runs.run_log import JobLog
from adiabat.training import checkpoint
from tests.training.toy import Regression, regression_loop

MOMENTS = ("step", "validation", "checkpoint", "log")


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("the signal came too late")


def die_at(number: int) -> Callable[[int], None]:
    return lambda now: die() if now == number else None


def die_in_a_checkpoint() -> None:
    """Half of the tensors reach the disk."""
    written: list[Path] = []

    def half(tensors: object, path: Path) -> None:
        if len(written) == 7:
            path.write_bytes(b"half of it")
            die()
        written.append(path)
        save_file(tensors, path)

    save_file: Callable[[object, Path], None] = vars(checkpoint)["save_file"]
    vars(checkpoint)["save_file"] = half


def die_in_the_log() -> None:
    """The last row of the log reaches the disk by half."""
    write = JobLog.row

    def half(self: JobLog, *, step: int, epoch: int, values: dict[str, float | int], seconds: float) -> None:
        write(self, step=step, epoch=epoch, values=values, seconds=seconds)
        if step == 14:
            os.truncate(self.path, self.path.stat().st_size - 20)
            die()

    JobLog.row = half  # type: ignore[assignment, method-assign]


def run(folder: Path, moment: str, optimizer: str) -> None:
    """A run with a checkpoint at each step."""
    objective = Regression()
    if moment == "step":
        objective.before_loss = die_at(8)
    elif moment == "validation":
        objective.before_validation = die_at(2)
    elif moment == "checkpoint":
        die_in_a_checkpoint()
    else:
        die_in_the_log()
    regression_loop(folder, objective=objective, optimizer=optimizer, checkpoint_seconds=1e-6).run()  # type: ignore[arg-type]


def main() -> None:
    """Fork one run per moment, and report how each ended."""
    # What torch imports at first use is imported once, not in each child.
    regression_loop(Path(sys.argv[1]) / "first").optimizer.step()
    for moment in MOMENTS:
        child = os.fork()
        if not child:
            run(Path(sys.argv[1]) / moment, moment, sys.argv[2])
            os._exit(0)
        print(moment, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    main()
