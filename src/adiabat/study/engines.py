"""Which runs of a study are made together, and where."""

from collections.abc import Callable, Sequence

from adiabat.jobs.engines import make_runs
from adiabat.measure.study_results import StudyRun
from adiabat.model.device import device_of
from adiabat.study.spec import Planned, groups_of
from adiabat.study.worker import Worker
from adiabat.tune.together import lanes_on


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
    engine = (section.engine, "study.engine")
    make_runs(worker, groups, add, engine=engine, place=device, said=lambda row: f"{row.status} after {row.steps:,} steps")
