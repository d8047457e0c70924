"""Where the runs of an experiment are made: one after another in this process, or spread over a Ray cluster."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

from torch import device

from adiabat.core.errors import AdiabatError, MissingDependencyError
from adiabat.core.progress import SILENT, Watch

Engine = Literal["process", "ray"]


@runtime_checkable
class Named(Protocol):
    """A run that is to be made, or its row."""

    @property
    def name(self) -> str:
        """The same of both, and of no other run."""


Planned = TypeVar("Planned", bound=Named, contravariant=True)
Row = TypeVar("Row", bound=Named, covariant=True)


@runtime_checkable
class Maker(Protocol[Planned, Row]):
    """Who makes runs: a dataclass, of which each process gets one of its own."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def folder(self) -> Path:
        """Where they are made."""

    @property
    def watch(self) -> Watch:
        """Whom to tell."""

    def make(self, run: Planned, /) -> Row:
        """Make a run, and give its row."""

    def tidy(self, run: Planned, /) -> None:
        """Remove what a run needs no more once it has its row."""


def make_runs(
    worker: Maker[Planned, Row],
    runs: Sequence[Planned],
    add: Callable[[Row], None],
    *,
    engine: tuple[Engine, str],
    place: device,
    said: Callable[[Row], str],
) -> None:
    """Make runs, keep the row of each, and tell of it."""
    if not runs:
        return
    planned = {run.name: run for run in runs}
    using, setting = engine
    made = _over_ray(worker, runs, setting, on_gpu=place.type == "cuda") if using == "ray" else map(worker.make, runs)
    for number, row in enumerate(made, 1):
        add(row)
        worker.tidy(planned[row.name])
        worker.watch.note(f"{row.name}: run {number:,} of {len(planned):,}, {said(row)}")


def _over_ray(worker: Maker[Planned, Row], runs: Sequence[Planned], setting: str, *, on_gpu: bool) -> Iterator[Row]:
    """By processes of a cluster, whose machines share the disk."""
    ray = _ray(setting)
    begun_here = not ray.is_initialized()
    if begun_here:
        ray.init(log_to_driver=False)
    try:
        count = min(len(runs), int(ray.cluster_resources().get("GPU" if on_gpu else "CPU", 1)))
        remote = ray.remote(_Apart).options(num_cpus=1, num_gpus=int(on_gpu))
        # Without what this process has read: each reads its own, and tells nobody.
        apart: Any = replace(worker, folder=worker.folder.resolve(), watch=SILENT)
        pool = ray.util.ActorPool([remote.remote(apart) for _ in range(count)])
        yield from pool.map_unordered(lambda one, run: one.make.remote(run), runs)
    except ray.exceptions.RayTaskError as fault:
        # What went wrong, as it was said where it did; the rest is Ray's own text.
        raise (fault.cause if isinstance(fault.cause, AdiabatError) else fault) from None
    finally:
        if begun_here:
            ray.shutdown()


class _Apart:
    """What makes runs, in a process of Ray's."""

    def __init__(self, worker: Maker[Any, Any]) -> None:
        self._worker = worker

    def make(self, run: Any) -> Any:
        return self._worker.make(run)


def _ray(setting: str) -> Any:
    try:
        import ray
    except ImportError as fault:
        raise MissingDependencyError("ray", extra="ray", purpose=f"{setting} = ray") from fault
    return ray
