"""Runs that kill themselves at given moments."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from adiabat.runs.run_log import JobLog
from adiabat.training import checkpoint
from tests.training.toy import Regression, regression_loop


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("the signal came too late")


def die_at(number: int) -> Callable[[int], None]:
    return lambda now: die() if now == number else None


def in_a_step(objective: Regression) -> None:
    objective.before_loss = die_at(8)


def in_a_validation(objective: Regression) -> None:
    objective.before_validation = die_at(2)


def in_a_checkpoint(objective: Regression) -> None:
    """Half of the tensors reach the disk."""
    written: list[Path] = []
    save_file = checkpoint.save_file

    def half(tensors: Any, path: Path) -> None:
        if len(written) == 7:
            path.write_bytes(b"half of it")
            die()
        written.append(path)
        save_file(tensors, path)

    vars(checkpoint)["save_file"] = half


def in_the_log(objective: Regression) -> None:
    """The last row of the log reaches the disk by half."""
    write = JobLog.row

    def half(self: JobLog, *, step: int, **row: Any) -> None:
        write(self, step=step, **row)
        if step == 14:
            os.truncate(self.path, self.path.stat().st_size - 20)
            die()

    JobLog.row = half  # type: ignore[assignment, method-assign]


MOMENTS = {moment.__name__: moment for moment in (in_a_step, in_a_validation, in_a_checkpoint, in_the_log)}


def kill(moment: str, folder: Path) -> None:
    """A run with a checkpoint at each step, until that moment."""
    objective = Regression()
    MOMENTS[moment](objective)
    regression_loop(folder / moment, objective=objective, checkpoint_seconds=1e-6).run()
