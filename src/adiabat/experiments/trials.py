"""The runs of an experiment: each is a separate job, made or resumed, and leaves a row in a Parquet file when
it is finished.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from torch import device

from adiabat.config.budgets import ScalingSection, ScalingSettings
from adiabat.config.sweeps import SweepSection, SweepSettings
from adiabat.config.tasks import SuiteSettings
from adiabat.core.disk import clear, make_folder, require_no_link
from adiabat.core.errors import (
    AdiabatError,
    BudgetError,
    DivergedError,
    JobError,
    MissingDependencyError,
    is_out_of_memory,
    reraise_unrelated,
)
from adiabat.core.files import is_there
from adiabat.core.progress import SILENT, Watch, once
from adiabat.dual_encoder.tower_setup import Loader
from adiabat.evaluation.score_files import run_folder_name
from adiabat.evaluation.task_kinds import LoadedTask, load_tasks
from adiabat.runs.output_dir import claimed_for_jobs, require_begun
from adiabat.runs.row_files import Rows
from adiabat.runs.run_config import (
    Job,
    Rules,
    description_of,
    flat_settings,
    is_described,
    is_job,
    require_same,
)

RUNS, ROWS = "runs", "runs.parquet"
"""In the directory of an experiment: the folder of its jobs, and the file of its rows."""

OUT_OF_MEMORY = "out of memory; lower memory.chunk_tokens (with memory.cached) or train.batch_size"


class Named(Protocol):
    """A trial or its row."""

    @property
    def name(self) -> str:
        """Name of trial and row, unique in the experiment."""


class Outcome(Named, Protocol):
    """A row."""

    @property
    def status(self) -> Literal["done", "failed"]:
        """Whether the run left a model."""


Executor = Literal["process", "ray"]

TrialT = TypeVar("TrialT", bound=Named)
RowT = TypeVar("RowT", bound=Outcome)


@dataclass(frozen=True, slots=True)
class ExperimentKind:
    """How an experiment is identified in a directory, and which settings may change when it is resumed.

    Attributes:
        table: Table in its ``config.toml``.
        name: Name for messages.
        free: Dotted settings that may change.
        free_tables: Tables in which every setting may change.
        free_in: For settings that are lists of tables, the keys that may change.
        growing: Tables whose entries may come and go; those of earlier calls stay in the configuration.
        defaults: Settings of older experiments that their configuration does not state.
    """

    table: str
    name: str
    free: frozenset[str]
    growing: tuple[str, ...]
    free_tables: tuple[str, ...] = ()
    free_in: Mapping[str, frozenset[str]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def begin(self, folder: Path, *, resume: bool, watch: Watch) -> bool:
        """Check the output directory; returns whether it holds an experiment to resume."""
        begun = is_described(folder, self.table)
        if note := require_begun(folder, self.name, begun=begun, resume=resume):
            watch.note(note)
        return begun

    def resumed(self, folder: Path, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Refuse to resume a different experiment; returns the configuration of the resumed one."""
        if not is_begun(folder):
            return dict(wanted)
        before = description_of(
            Job(folder),
            {name: {} for name in self.growing if "." not in name} | dict(wanted),
            of=f"a {self.name}",
        )
        pairs = {name: (_table(before, name), _table(wanted, name)) for name in self.growing}
        free = set(self.free)
        for name, (former, present) in pairs.items():
            free.update(_come_or_gone(name, former, present))
        for key in (*flat_settings(before), *flat_settings(wanted)):
            if key.partition(".")[0] in self.free_tables:
                free.add(key)
        rules = Rules(free=frozenset(free), free_in=self.free_in, defaults=self.defaults)
        require_same(Job(folder), wanted, rules=rules)
        merged = dict(wanted)
        for name, (former, present) in pairs.items():
            merged = _with_table(merged, name.split("."), {**former, **present})
        return merged


def is_begun(folder: Path) -> bool:
    """Whether an experiment has started or finished a run."""
    return is_there(folder / ROWS, error=JobError) or any((folder / RUNS).glob("*"))


def _table(description: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = description
    for part in name.split("."):
        table = table.get(part, {})
    return table


def _with_table(tables: Mapping[str, Any], path: Sequence[str], table: Mapping[str, Any]) -> dict[str, Any]:
    first, *others = path
    return {**tables, first: _with_table(tables.get(first, {}), others, table) if others else table}


def _come_or_gone(name: str, before: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    for entry in before.keys() ^ wanted.keys():
        yield from flat_settings({name: {entry: {**before, **wanted}[entry]}})


@dataclass(frozen=True)
class Runner(ABC, Generic[TrialT, RowT]):
    """Makes the runs of an experiment; each process of a cluster has its own copy."""

    folder: Path
    load: Loader
    command: str
    watch: Watch
    settings: SweepSettings | ScalingSettings

    @cached_property
    def tasks(self) -> list[LoadedTask]:
        """The tasks that models are measured on, read and checked."""
        if not self.settings.tasks:
            return []
        return load_tasks(SuiteSettings(tasks=self.settings.tasks, measure=self.settings.measure), self.watch)

    @abstractmethod
    def train(self, trial: TrialT, job: Job, *, resume: bool, watch: Watch) -> None:
        """Train a model to the end."""

    @abstractmethod
    def failed(self, trial: TrialT, reason: str) -> RowT:
        """The row of a run without a model."""

    @abstractmethod
    def measured(self, trial: TrialT, job: Job) -> RowT:
        """Measure a trained model; returns the row of its run."""

    def refreshed(self, trial: TrialT, row: RowT) -> RowT:
        """An earlier row, updated to this call; a row of another run is refused."""
        return row

    def prepare(self, todo: Sequence[TrialT]) -> None:
        """Whatever must be ready before the first run that is to be made."""

    def job(self, trial: TrialT) -> Job:
        """The job of a run."""
        return Job(self.folder / RUNS / run_folder_name(trial.name))

    def make(self, trial: TrialT) -> RowT:
        """Train and measure; a run that diverges, runs out of memory or cannot afford a step leaves a row
        with the reason.
        """
        job = self.job(trial)
        try:
            # A run that was trained before its process ended is only measured.
            if not job.is_done:
                make_folder(job.folder.parent, parents=True)
                require_no_link(job.folder)
                self.train(trial, job, resume=is_job(job.folder), watch=self._watch(trial))
        except Exception as fault:
            if (reason := _failure(fault)) is None:
                raise
            self.watch.note(f"{trial.name} failed: {reason}")
            return self.failed(trial, reason)
        return self.measured(trial, job)

    def label(self, trial: TrialT) -> str:
        """Label of the notes of a run; runs with the same label share a note. "" shares it among all runs."""
        return ""

    def _watch(self, trial: TrialT) -> Watch:
        """Watch of a run, whose notes start with its label."""
        label = self.label(trial)

        def note(sentence: str) -> None:
            self._note_once(f"{label}: {sentence}" if label else sentence)

        return self.watch.under(trial.name, note=note)

    @cached_property
    def _note_once(self) -> Callable[[str], None]:
        return once(self.watch.note)

    def tidy(self, trial: TrialT, *, keep_model: bool) -> None:
        """Remove files that a run does not need once its row is on disk."""
        job = self.job(trial)
        clear(job.prepared)
        job.tidy(keep_model=keep_model)


def _failure(fault: Exception) -> str | None:
    """Reason of a failure that does not affect other runs; None for an error that ends the experiment."""
    if isinstance(fault, DivergedError):
        return fault.what
    if isinstance(fault, BudgetError):
        return str(fault)
    return OUT_OF_MEMORY if is_out_of_memory(fault) else None


def waiting(runner: Runner[TrialT, RowT], trials: Sequence[TrialT], rows: Rows[RowT]) -> list[TrialT]:
    """Trials without a row, and failed ones: memory or disk may suffice now."""
    for trial in trials:
        if trial.name in rows:
            runner.refreshed(trial, rows[trial.name])
    return [trial for trial in trials if trial.name not in rows or rows[trial.name].status == "failed"]


@contextmanager
def run_trials(
    runner: Runner[TrialT, RowT],
    trials: Sequence[TrialT],
    describe: Callable[[], Mapping[str, Any]],
    rows_at: Callable[[Path], Rows[RowT]],
    *,
    begun: bool,
    section: SweepSection | ScalingSection,
    kind: ExperimentKind,
    place: device,
    outcome: Callable[[RowT], str],
) -> Iterator[list[RowT]]:
    """Claim the output directory, make every missing run, and yield all rows while the directory is claimed.

    Args:
        describe: Returns the configuration of the experiment, or refuses a different one.
        section: Has the executor, and whether models are kept after they are measured.
        place: Device of the runs.
        outcome: Describes the outcome of a run.
    """
    with claimed_for_jobs(runner.folder, describe, begun=begun):
        rows = rows_at(runner.folder / ROWS)
        todo = {trial.name: trial for trial in waiting(runner, trials, rows)}
        if todo:
            runner.prepare(list(todo.values()))
            # A process of a cluster has its own working directory, and no terminal.
            apart = replace(runner, folder=runner.folder.resolve(), watch=SILENT)
            setting, on_gpu = f"{kind.table}.engine", place.type == "cuda"
            made = map_trials(
                runner.make,
                apart,
                list(todo.values()),
                executor=section.engine,
                setting=setting,
                on_gpu=on_gpu,
            )
            for number, row in enumerate(made, 1):
                rows.add(row)
                runner.tidy(todo[row.name], keep_model=section.keep_models)
                runner.watch.note(f"{row.name}: run {number:,} of {len(todo):,}, {outcome(row)}")
        for trial in trials:
            # A process killed after writing the row and before tidying left its checkpoints.
            if runner.job(trial).checkpoints.is_dir():
                runner.tidy(trial, keep_model=section.keep_models)
            if (row := runner.refreshed(trial, rows[trial.name])) != rows[trial.name]:
                rows.add(row)
        yield [rows[trial.name] for trial in trials]


def map_trials(
    make: Callable[[TrialT], RowT],
    apart: object,
    trials: Sequence[TrialT],
    *,
    executor: Executor,
    setting: str,
    on_gpu: bool,
) -> Iterator[RowT]:
    """Yield the row of each trial, made in this process or on a Ray cluster.

    Args:
        apart: The runner that is copied to every process of a cluster.
        setting: Dotted name of the executor's setting, for errors.
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
        # Keep the process's own error; the rest of the message is Ray's.
        raise (fault.cause if isinstance(fault.cause, AdiabatError) else fault) from None
    finally:
        if begun_here:
            ray.shutdown()


class _Apart:
    """A runner in a Ray process."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def make(self, trial: Any) -> Any:
        return self._runner.make(trial)


def _ray(setting: str) -> Any:
    try:
        import ray
    except ImportError as fault:
        reraise_unrelated(fault)
        raise MissingDependencyError("ray", extra="ray", purpose=f"{setting} = ray") from fault
    return ray
