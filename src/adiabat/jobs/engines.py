"""Where the runs of a study or sweep are made: one group after another in this process, or spread over a Ray cluster."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from adiabat.errors import AdiabatError, MissingDependencyError

Planned = TypeVar("Planned")
Row = TypeVar("Row")

Make = Callable[[Sequence[Planned]], Iterable[Row]]
"""Makes a group of runs, and gives the row of each as soon as it is there."""


def make_here(make: Make[Planned, Row], groups: Sequence[Sequence[Planned]], add: Callable[[Row], None]) -> None:
    """Make runs in this process.

    Args:
        make: Makes each group.
        groups: One after the other.
        add: Takes each row as soon as it is there.
    """
    for group in groups:
        for row in make(group):
            add(row)


def make_over_ray(
    begin: Callable[..., Make[Planned, Row]],
    parts: Sequence[Any],
    groups: Sequence[Sequence[Planned]],
    add: Callable[[Row], None],
    *,
    setting: str,
    on_gpu: bool,
) -> None:
    """Make runs in processes of a Ray cluster, whose machines share the disk.

    Args:
        begin: Gives each process what makes runs.
        parts: What `begin` is called with; goes from process to process, so what can be read has no place among it.
        groups: Each made by one process.
        add: Takes the rows of a group as soon as all are there.
        setting: That asks for Ray, for a message.
        on_gpu: Whether each process needs a GPU, or a core.

    Raises:
        AdiabatError: As it was raised in a process.
        MissingDependencyError: If Ray is not installed.
    """
    ray = _ray(setting)
    begun_here = not ray.is_initialized()
    if begun_here:
        ray.init(log_to_driver=False)
    try:
        count = min(len(groups), int(ray.cluster_resources().get("GPU" if on_gpu else "CPU", 1)))
        remote = ray.remote(_Apart).options(num_cpus=1, num_gpus=int(on_gpu))
        pool = ray.util.ActorPool([remote.remote(begin, parts) for _ in range(count)])
        for rows in pool.map_unordered(lambda one, group: one.make.remote(group), [list(group) for group in groups]):
            for row in rows:
                add(row)
    except ray.exceptions.RayTaskError as fault:
        # What went wrong, as it was said where it did; the rest is Ray's own text.
        raise (fault.cause if isinstance(fault.cause, AdiabatError) else fault) from None
    finally:
        if begun_here:
            ray.shutdown()


class _Apart:
    """What makes runs, in a process of Ray's."""

    def __init__(self, begin: Callable[..., Make[Any, Any]], parts: Sequence[Any]) -> None:
        self._make = begin(*parts)

    def make(self, group: list[Any]) -> list[Any]:
        return list(self._make(group))


def _ray(setting: str) -> Any:
    try:
        import ray
    except ImportError as fault:
        raise MissingDependencyError("ray", extra="ray", purpose=f"{setting} = ray") from fault
    return ray
