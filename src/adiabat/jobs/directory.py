"""The directory of a job: what it was asked to do, where its files are, and with what it may go on."""

import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from adiabat.errors import DataError, JobError, several
from adiabat.files import write_text
from adiabat.locks import sole_writer
from adiabat.store.build import is_store

CONFIG = "config.toml"

FREE_RUN = ("run.device", "run.checkpoint_seconds", "run.keep_checkpoints")
"""How a job runs: settings that change no number of it."""

FREE_RUNS = (*FREE_RUN, "run.log_every", "run.tensorboard")
"""The same of what consists of many jobs, which takes no number from their logs by step."""


@dataclass(frozen=True, slots=True)
class Job:
    """Paths of one job directory."""

    folder: Path

    @property
    def config(self) -> Path:
        """The resolved configuration."""
        return self.folder / CONFIG

    @property
    def log(self) -> Path:
        """Losses and validations, one row each."""
        return self.folder / "log.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Where the run can be taken up again."""
        return self.folder / "checkpoints"

    @property
    def model(self) -> Path:
        """The tuned model, there once the job is done."""
        return self.folder / "model"

    @property
    def result(self) -> Path:
        """What the run did, for programs."""
        return self.folder / "result.json"

    @property
    def report(self) -> Path:
        """The same for people."""
        return self.folder / "report.html"


def _none_stop(settings: Mapping[str, Any]) -> set[str]:
    return set()


def _none_behind(job: Job, settings: Mapping[str, Any]) -> list[str]:
    return []


def _no_reason(settings: Mapping[str, Any]) -> dict[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Rules:
    """What may differ between how a job was begun and how it goes on.

    Attributes:
        free: Settings that change no number of the result, dotted: where inputs lie whose digests are compared, and how the job runs.
        stopping: Given the settings wanted, those that say when the run stops and change no step before.
        behind: Given the job and the settings wanted, what is wrong with a stop that lies behind the run.
        words: Of settings whose values say nothing to people, such as digests, what a difference means.
        reasons: Given the settings wanted, why some of them must stay as they were, where that is not plain.
        defaults: Tables as in a description, of what settings are where nobody says anything: a job that was begun before a setting
            existed had its default. None of those in the tables can be None, which is left out of a description as well.
        later: Keys that descriptions have not always had, and that nobody can tell of a job whose description lacks them.
    """

    free: frozenset[str] = frozenset()
    stopping: Callable[[Mapping[str, Any]], set[str]] = _none_stop
    behind: Callable[[Job, Mapping[str, Any]], list[str]] = _none_behind
    words: Mapping[str, str] = field(default_factory=dict)
    reasons: Callable[[Mapping[str, Any]], Mapping[str, str]] = _no_reason
    defaults: Mapping[str, Any] = field(default_factory=dict)
    later: frozenset[str] = frozenset()


STRICT = Rules()


def require_free(folder: Path, *, resume: bool) -> None:
    """Refuse a directory that a job must not be put into; writes nothing, so that long preparations are not made in vain.

    Args:
        folder: Perhaps missing.
        resume: Whether a job may stand there already.

    Raises:
        JobError: If the directory holds something else, or a job that is not to be resumed.
    """
    for place in folder.resolve().parents:
        if _is_of_adiabat(place):
            raise JobError(f"--out must be a directory of its own, {folder} lies in the job, model or store {place}; choose another")
    if is_job(folder):
        if not resume:
            raise JobError(f"--out {folder} holds a job already; go on with it by --resume, or choose another directory")
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise JobError(f"--out must be a new or empty directory, {folder} holds other files; choose another")


def require_begun(folder: Path, what: str, *, begun: bool, resume: bool) -> str | None:
    """Refuse a directory for what consists of many jobs, and is none itself.

    Args:
        folder: Perhaps missing.
        what: Is to be there, such as ``study``.
        begun: Whether one stands there.
        resume: Whether it may.

    Returns:
        What to tell people where there is nothing to go on with, and None elsewhere.

    Raises:
        JobError: If one stands there that is not to be resumed, or something else.
    """
    if begun:
        if not resume:
            raise JobError(f"--out {folder} holds a {what} already; go on with it by --resume, or choose another directory")
        return None
    require_free(folder, resume=False)
    return f"{folder} holds no {what} yet, so there is nothing to go on with: beginning" if resume else None


def require_fitting(
    folder: Path, description: Mapping[str, Any], *, resume: bool, rules: Rules = STRICT, unknown: Collection[str] = ()
) -> str | None:
    """Refuse a directory that is not for this job, before anything long begins; writes nothing.

    Args:
        folder: Perhaps missing.
        description: What is wanted.
        resume: Whether the job may stand there already.
        rules: What may differ.
        unknown: As for `require_same`.

    Returns:
        What to tell people where there is nothing to go on with, and None elsewhere.

    Raises:
        JobError: As `require_free` and `require_same`.
    """
    require_free(folder, resume=resume)
    if not resume:
        return None
    if is_job(folder):
        require_same(Job(folder), description, rules=rules, unknown=unknown)
        return None
    why = "is empty" if folder.exists() else "does not exist"
    return f"--resume found no job to go on with, {folder} {why}: beginning a new one from the start"


def _is_of_adiabat(place: Path) -> bool:
    """Whether a directory's content is rewritten as a whole, and with it what somebody put inside."""
    with suppress(JobError):
        return is_job(place) or (place / "modules.json").is_file() or is_store(place)
    return False


def open_job(folder: Path, description: Mapping[str, Any], *, resume: bool, rules: Rules = STRICT) -> Job:
    """Claim a directory for a job, or come back to one.

    Args:
        folder: Made where missing.
        description: Everything that decides the run, as plain tables; written to ``config.toml``.
        resume: Whether a job of the same description may stand there already. When it stops may differ: the steps until then do not.
        rules: What may differ.

    Returns:
        The job.

    Raises:
        JobError: If the directory holds something else, a job that is not to be resumed, one of another description, or one that has
            already gone beyond where it is now to stop.
        DataError: If the disk is full or not writable.
        InUseError: If another process works at the job, and is to stop elsewhere.
    """
    require_free(folder, resume=resume)
    job = Job(folder)
    if is_job(folder):
        require_same(job, description, rules=rules)
        if faults := rules.behind(job, _flat_settings(description)):
            raise JobError(f"{job.folder}: {several(faults)}; raise it, or start anew in another directory")
        if _flat_settings(read_description(job)) != _flat_settings(description):
            with sole_writer(folder):
                _describe(job, description)
        return job
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise JobError(f"--out must be a directory that can be made, got {folder}: {fault.strerror}; choose another") from fault
    try:
        _describe(job, description)
    except DataError:
        if is_new:
            folder.rmdir()
        raise
    return job


def claim(folder: Path, description: Mapping[str, Any], *, begun: bool) -> None:
    """Claim a directory for what consists of many jobs and is none itself, or describe anew what stands there.

    Args:
        folder: Made where missing.
        description: Everything that decides what the jobs give; fits what stands there (`require_same`).
        begun: Whether it stands there already.

    Raises:
        JobError: If nothing stands there and the directory holds something else.
        DataError: If the disk is full or not writable.
        InUseError: If another process works there.
    """
    if not begun:
        open_job(folder, description, resume=False)
        return
    with sole_writer(folder):
        _describe(Job(folder), description)


def _describe(job: Job, description: Mapping[str, Any]) -> None:
    write_text(tomli_w.dumps(without_none(description)), job.config)


def read_description(job: Job) -> dict[str, Any]:
    """What a job was asked to do.

    Args:
        job: Whose ``config.toml`` is read.

    Returns:
        Its tables.

    Raises:
        JobError: If the file is damaged.
    """
    try:
        return tomllib.loads(job.config.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as fault:
        raise JobError(f"{job.config} must be TOML: {fault}; start anew in another directory") from fault


def is_job(folder: Path) -> bool:
    """Whether a directory is a job.

    Args:
        folder: Any path.

    Returns:
        True where it holds a ``config.toml`` that describes a job.
    """
    return is_described(folder, "job")


def is_described(folder: Path, table: str) -> bool:
    """Whether a directory's description has a table, by which one tells what it is.

    Args:
        folder: Any path.
        table: Such as ``job`` or ``study``.

    Returns:
        True where it holds a ``config.toml`` with that table.

    Raises:
        JobError: If the file is damaged.
    """
    job = Job(folder)
    return job.config.is_file() and table in read_description(job)


def require_same(job: Job, description: Mapping[str, Any], *, rules: Rules = STRICT, unknown: Collection[str] = ()) -> None:
    """Refuse to go on with a job as another one.

    Args:
        job: What stands there.
        description: What is wanted.
        rules: What may differ.
        unknown: Keys of the description, dotted, that are not known yet and so not compared.

    Raises:
        JobError: Naming every setting that differs.
    """
    wanted = _flat_settings(description)
    # Settings that may not have existed when the job was begun; a job that said nothing of them meant their defaults.
    unsaid = {key: value for key, value in _flat_settings(rules.defaults).items() if wanted.get(key) == value}
    said = _flat_settings(read_description(job))
    before = {**unsaid, **said}
    reasons = rules.reasons(wanted)
    differing = [
        rules.words.get(key) or f"{key} was {before.get(key, 'not set')!r}, is {wanted.get(key, 'not set')!r}{reasons.get(key, '')}"
        for key in sorted({*before, *wanted} - rules.free - rules.stopping(wanted) - set(unknown) - (rules.later - said.keys()))
        if before.get(key) != wanted.get(key)
    ]
    if differing:
        told = f"a difference: {differing[0]}" if len(differing) == 1 else several(differing, of="differences")
        raise JobError(
            f"--resume must go on with the job in {job.folder} as it was begun, got {told}; "
            f"repeat the first command with all its settings ({job.config} holds them), or choose another --out"
        )


def _flat_settings(description: Mapping[str, Any]) -> dict[str, Any]:
    return dict(_flat(without_none(description)))


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", list(value) if isinstance(value, tuple) else value


def without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out settings that are None, which means the same: TOML has no null.

    Args:
        table: Nested tables.

    Returns:
        The rest.
    """
    return {key: _without_none(value) for key, value in table.items() if value is not None}


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return without_none(value)
    return [_without_none(entry) for entry in value] if isinstance(value, tuple | list) else value
