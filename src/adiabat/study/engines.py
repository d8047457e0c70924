"""Where the runs of a study are made: one group after another in this process, or spread over a Ray cluster."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from adiabat.config import StudySettings
from adiabat.errors import AdiabatError, MissingDependencyError
from adiabat.measure.study_results import StudyRun
from adiabat.model.device import device_of
from adiabat.study.spec import Planned, groups_of
from adiabat.study.worker import Loader, Worker
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
    section = worker.settings.study
    groups = groups_of(list(runs), lanes=section.lanes or lanes_on(device_of(worker.settings.run.device)))
    if groups:
        # Before any run: what is wrong with a task and the model must not come to light after the first of them.
        worker.measure_start()
    (_over_ray if section.engine == "ray" else _here)(worker, groups, add)


def _here(worker: Worker, groups: Sequence[Sequence[Planned]], add: Callable[[StudyRun], None]) -> None:
    done, every = 0, sum(map(len, groups))
    for group in groups:
        for row in worker.make(group):
            add(row)
            done += 1
            worker.watch.note(f"{row.name}: run {done:,} of {every:,}, {row.status} after {row.steps:,} steps")


def _over_ray(worker: Worker, groups: Sequence[Sequence[Planned]], add: Callable[[StudyRun], None]) -> None:
    ray = _ray()
    begun_here = not ray.is_initialized()
    if begun_here:
        ray.init(log_to_driver=False)
    try:
        kind = "GPU" if device_of(worker.settings.run.device).type == "cuda" else "CPU"
        count = min(len(groups), int(ray.cluster_resources().get(kind, 1)))
        # What is read has no place in a message: each process reads it from the disk that all of them share.
        parts = (worker.settings, worker.folder.resolve(), worker.load, worker.command)
        remote = ray.remote(_Apart).options(num_cpus=1, num_gpus=int(kind == "GPU"))
        pool = ray.util.ActorPool([remote.remote(*parts) for _ in range(count)])
        for rows in pool.map_unordered(lambda one, group: one.make.remote(group), [list(group) for group in groups]):
            for row in rows:
                add(row)
                worker.watch.note(f"{row.name}: {row.status} after {row.steps:,} steps")
    except ray.exceptions.RayTaskError as fault:
        # What went wrong, as it was said where it did; the rest is Ray's own text.
        raise (fault.cause if isinstance(fault.cause, AdiabatError) else fault) from None
    finally:
        if begun_here:
            ray.shutdown()


class _Apart:
    """A worker in a process of Ray's, which makes one group after another."""

    def __init__(self, settings: StudySettings, folder: Path, load: Loader, command: str) -> None:
        self._worker = Worker(settings, folder, load, command, SILENT)

    def make(self, group: list[Planned]) -> list[StudyRun]:
        return list(self._worker.make(group))


def _ray() -> Any:
    try:
        import ray
    except ImportError as fault:
        raise MissingDependencyError("ray", extra="ray", purpose="study.engine = ray") from fault
    return ray
