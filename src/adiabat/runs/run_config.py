"""The files of a run's directory, the settings that it was started with, and which of them may change when it is resumed."""

import hashlib
import shutil
import tomllib
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from adiabat.core.errors import JobError, ModelError, several
from adiabat.core.files import reading, write_text
from adiabat.core.provenance import CHECKSUMS, require_seal

CONFIG = "config.toml"


PREPARED = "prepared"


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
    def prepared(self) -> Path:
        """What was made for the run before it began; it may stand in a directory where no job has begun yet."""
        return self.folder / PREPARED

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
    def trained(self) -> Path:
        """Hashes of the texts that it trained or validated on."""
        return self.folder / "trained.bin"

    @property
    def report(self) -> Path:
        """The same for people."""
        return self.folder / "report.html"

    @property
    def is_done(self) -> bool:
        """Whether its model and its result are there."""
        return self.model.is_dir() and self.result.is_file()

    def finished_model(self) -> Path:
        """The directory of the model, compared with its checksums; JobError while the job is not finished."""
        if not self.model.is_dir():
            raise JobError(f"{self.folder} is a job that is not finished; run its command again with --resume")
        if (self.folder / CHECKSUMS).exists():
            require_seal(self.folder, remedy=f"if it was changed on purpose, name a copy of {self.model} elsewhere", error=ModelError)
        return self.model

    def tidy(self, *, keep_model: bool) -> None:
        """Remove what a job of many needs no more once it has its row."""
        if not keep_model:
            shutil.rmtree(self.model, ignore_errors=True)
        # Last, so that what is left of a process that was killed is known by them.
        shutil.rmtree(self.checkpoints, ignore_errors=True)


FREE_RUN = ("run.device", "run.checkpoint_seconds", "run.keep_checkpoints")
"""How a job runs: settings that change no number of it."""

FREE_RUNS = (*FREE_RUN, "run.log_every", "run.tensorboard")
"""The same of what consists of many jobs, which takes no number from their logs by step."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What may differ between how a job was begun and how it goes on.

    Attributes:
        free: Settings that change no number of the result, dotted: where inputs lie whose digests are compared, and how the job runs.
        free_in: The same of settings that are lists of tables: keys of each table.
        stopping: Given the settings wanted, those that say when the run stops and change no step before.
        behind: Given the job and the settings wanted, what is wrong with a stop that lies behind the run.
        words: Of settings whose values say nothing to people, such as digests, what a difference means.
        reasons: Given the settings wanted, why some of them must stay as they were, where that is not plain.
        defaults: Tables as in a description, of what settings are where nobody says anything: a job that was begun before a setting
            existed had its default. None of those in the tables can be None, which is left out of a description as well.
        later: Keys that descriptions have not always had, and that nobody can tell of a job whose description lacks them.
    """

    free: frozenset[str] = frozenset()
    free_in: Mapping[str, frozenset[str]] = field(default_factory=dict)
    stopping: Callable[[Mapping[str, Any]], set[str]] = lambda settings: set()
    behind: Callable[[Job, Mapping[str, Any]], list[str]] = lambda job, settings: []
    words: Mapping[str, str] = field(default_factory=dict)
    reasons: Callable[[Mapping[str, Any]], Mapping[str, str]] = lambda settings: {}
    defaults: Mapping[str, Any] = field(default_factory=dict)
    later: frozenset[str] = frozenset()


STRICT = Rules()

FORMAT = 2
"""Of the settings in a run's ``config.toml``; format 1 had losses, methods and schedules as words with their keys beside them."""

HEAD = f"# format {FORMAT}; SHA-256 of the lines below: "
FORMER_HEAD = "# SHA-256 of the lines below: "
REMEDY = "restore it, remove its first line if you changed it on purpose, or start again in another directory"


def read_description(job: Job) -> dict[str, Any]:
    """What a job was asked to do."""
    with reading(job.config, remedy=REMEDY, error=JobError):
        text = job.config.read_text(encoding="utf-8-sig")
        if text.startswith(FORMER_HEAD):
            raise JobError(f"{job.config} must have format {FORMAT}, got format 1 of adiabat 0.1; start again in another directory")
        head, _, body = text.partition("\n")
        if head.startswith(HEAD) and head != _head(body):
            raise ValueError("its settings do not match the checksum in its first line")
        if not (tables := tomllib.loads(text)):
            raise ValueError("it is empty")
        return tables


def description_of(job: Job, tables: Mapping[str, Any], *, of: str) -> dict[str, Any]:
    """What many jobs were asked to do."""
    before = read_description(job)
    if not _has_tables(before, tables):
        raise JobError(f"{job.config} must describe {of}, got other tables; restore it, or choose another directory")
    return before


def _has_tables(before: Any, tables: Mapping[str, Any]) -> bool:
    """Whether a table stands wherever one is wanted; keys may be missing."""
    inner = {key: value for key, value in tables.items() if isinstance(value, Mapping)}
    return isinstance(before, Mapping) and all(_has_tables(before.get(key, {}), value) for key, value in inner.items())


def write_description(job: Job, description: Mapping[str, Any]) -> None:
    """Write what a job is asked to do."""
    text = tomli_w.dumps(without_none(description))
    write_text(f"{_head(text)}\n{text}", job.config)


def _head(text: str) -> str:
    """The first line of a description, which is a comment in TOML: a checksum of the rest."""
    return HEAD + hashlib.sha256(text.encode()).hexdigest()


def is_job(folder: Path) -> bool:
    """Whether a directory is a job."""
    return is_described(folder, "job")


def is_described(folder: Path, table: str) -> bool:
    """Whether a directory's description has a table, by which one tells what it is."""
    job = Job(folder)
    return job.config.is_file() and table in read_description(job)


def require_same(job: Job, description: Mapping[str, Any], *, rules: Rules = STRICT, unknown: Collection[str] = ()) -> None:
    """Refuse to go on with a job as another one."""
    before_tables = read_description(job)
    optional = {name for name, table in rules.defaults.items() if table is None}
    _require_verb(job, before_tables.keys() - optional, without_none(description).keys() - optional)
    wanted = flat_settings(description)
    # Settings that may not have existed when the job was begun; a job that said nothing of them meant their defaults.
    unstated = {key: value for key, value in flat_settings(rules.defaults).items() if wanted.get(key) == value}
    stated = flat_settings(before_tables)
    before = {**unstated, **stated}
    reasons = rules.reasons(wanted)
    differing = [
        rules.words.get(key) or f"{key} was {before.get(key, 'not set')!r}, is {wanted.get(key, 'not set')!r}{reasons.get(key, '')}"
        for key in sorted({*before, *wanted} - rules.free - rules.stopping(wanted) - set(unknown) - (rules.later - stated.keys()))
        if _bound(before, key, rules) != _bound(wanted, key, rules)
    ]
    if differing:
        differences = f"a difference: {differing[0]}" if len(differing) == 1 else several(differing, of="differences")
        raise JobError(
            f"--resume must continue the job in {job.folder} with its settings and data, got {differences}; "
            f"repeat the first command with all its settings ({job.config} holds them), or choose another --out"
        )


def _bound(settings: Mapping[str, Any], key: str, rules: Rules) -> Any:
    """What of a setting may not differ."""
    value, free = settings.get(key), rules.free_in.get(key)
    if not (free and isinstance(value, list)):
        return value
    return [{name: item for name, item in row.items() if name not in free} if isinstance(row, Mapping) else row for row in value]


def _require_verb(job: Job, before: AbstractSet[str], wanted: AbstractSet[str]) -> None:
    """Refuse a job with tables that this one has not, which lacks tables that this one has: nobody wants all their differences."""
    extra, missing = (" and ".join(f"[{name}]" for name in sorted(names)) for names in (before - wanted, wanted - before))
    if extra and missing:
        raise JobError(
            f"{job.folder} must hold a job of the same verb, got one with {extra} and without {missing} in its config.toml; "
            "choose another --out"
        )


def flat_settings(description: Mapping[str, Any]) -> dict[str, Any]:
    """A description as dotted keys with values, lists for tuples, without what is None."""
    flat: dict[str, Any] = {}
    for key, value in without_none(description).items():
        flat |= {f"{key}.{inner}": setting for inner, setting in flat_settings(value).items()} if isinstance(value, dict) else {key: value}
    return flat


def without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out settings that are None, which means the same: TOML has no null; lists for tuples."""

    def clean(value: Any) -> Any:
        if isinstance(value, Mapping):
            return without_none(value)
        return [clean(entry) for entry in value] if isinstance(value, tuple | list) else value

    return {key: clean(value) for key, value in table.items() if value is not None}
