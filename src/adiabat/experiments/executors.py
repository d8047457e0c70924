"""Where the runs of an experiment are made: one after another in this process, or spread over a Ray cluster."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar

from adiabat.core.errors import AdiabatError, MissingDependencyError

Executor = Literal["process", "ray"]
Trial = TypeVar("Trial")
Row = TypeVar("Row")


def map_trials(
    make: Callable[[Trial], Row], apart: object, trials: Sequence[Trial], *, executor: Executor, setting: str, on_gpu: bool
) -> Iterator[Row]:
    """Make the row of each trial.

    Args:
        apart: The runner that every process of a cluster gets a copy of.
        setting: Dotted name of the setting that chose the executor, for errors.
    """
    if executor == "process":
        yield from map(make, trials)
        return
    ray = _ray(setting)
    begun_here = not ray.is_initialized()
    if begun_here:
        ray.init(log_to_driver=False)
    try:
        count = min(len(trials), int(ray.cluster_resources().get("GPU" if on_gpu else "CPU", 1)))
        remote: Any = ray.remote(_Apart).options(num_cpus=1, num_gpus=int(on_gpu))
        pool = ray.util.ActorPool([remote.remote(apart) for _ in range(count)])
        yield from pool.map_unordered(lambda actor, trial: actor.make.remote(trial), trials)
    except ray.exceptions.RayTaskError as fault:
        # The error of the process itself; the rest of the message is Ray's own text.
        raise (fault.cause if isinstance(fault.cause, AdiabatError) else fault) from None
    finally:
        if begun_here:
            ray.shutdown()


class _Apart:
    """A runner in a process of Ray's."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def make(self, trial: Any) -> Any:
        return self._runner.make(trial)


def _ray(setting: str) -> Any:
    try:
        import ray
    except ImportError as fault:
        raise MissingDependencyError("ray", extra="ray", purpose=f"{setting} = ray") from fault
    return ray
