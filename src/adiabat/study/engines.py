"""Which runs of a study are made together, and where."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from adiabat.jobs.engines import make_here, make_over_ray
from adiabat.measure.study_results import StudyRun
from adiabat.model.device import device_of
from adiabat.study.spec import Planned, groups_of
from adiabat.study.worker import Worker
from adiabat.tune.together import lanes_on
from adiabat.watch import SILENT


def carry_out(worker: Worker, runs: Sequence[Planned], *, add: Callable[[StudyRun], None]) -> None:
    """Make runs.

    Args:
        worker: Makes them in this process, or is copied to others.
        runs: To be made.
        add: Takes each row as soon as it is there.

    Raises:
        AdiabatError: If what the user gave is wrong, or the disk is full; rows that were added stay.
        MissingDependencyError: If Ray is asked for and not installed.
    """
    section, device = worker.settings.study, device_of(worker.settings.run.device)
    groups = groups_of(list(runs), lanes=section.lanes or lanes_on(device))
    if not groups:
        return
    # Before any run: what is wrong with a task and the model must not come to light after the first of them.
    worker.measure_start()
    done, named = 0, {run.name: run for run in runs}

    def told(row: StudyRun) -> None:
        nonlocal done
        add(row)
        worker.tidy(named[row.name])
        done += 1
        worker.watch.note(f"{row.name}: run {done:,} of {len(runs):,}, {row.status} after {row.steps:,} steps")

    if section.engine == "ray":
        parts = (worker.settings, worker.folder.resolve(), worker.load, worker.command, SILENT)
        make_over_ray(_apart, parts, groups, told, setting="study.engine", on_gpu=device.type == "cuda")
    else:
        make_here(worker.make, groups, told)


def _apart(*parts: Any) -> Callable[[Sequence[Planned]], Iterable[StudyRun]]:
    """What makes runs in a process of its own."""
    return Worker(*parts).make
