"""The files of a run directory, the settings that the run was started with, and those that may change when it
is resumed.
"""

import hashlib
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from adiabat.core.disk import clear, real
from adiabat.core.errors import JobError, ModelError, several
from adiabat.core.files import LARGEST_CONFIGURATION, is_there, read_plain, reading, write_text
from adiabat.core.formats import Format, to_upgrade
from adiabat.core.provenance import CHECKSUMS, require_seal
from adiabat.core.version import __version__
from adiabat.core.wording import option

CONFIG = "config.toml"


PREPARED = "prepared"


def exists(path: Path) -> bool:
    """`is_there` for the files of a job."""
    return is_there(path, error=JobError)


class _Inside:
    """A file or folder of a job directory."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, job: "Job", kind: type["Job"] | None = None) -> Path:
        return job.folder / self._name


@dataclass(frozen=True, slots=True)
class Job:
    """Paths of one job directory."""

    folder: Path

    config = _Inside(CONFIG)
    """The resolved configuration."""
    log = _Inside("log.jsonl")
    """Losses and validations, one row each."""
    board = _Inside("tensorboard")
    """The same for TensorBoard, if it was asked for."""
    prepared = _Inside(PREPARED)
    """Data prepared for the run before it starts; it may exist before the job does."""
    checkpoints = _Inside("checkpoints")
    """Checkpoints, from which the run can be resumed."""
    model = _Inside("model")
    """The trained model; it exists once the job is finished."""
    result = _Inside("result.json")
    """The result, for programs."""
    trained = _Inside("trained.bin")
    """Hashes of the texts that the job trained or validated on."""
    report = _Inside("report.html")
    """The result page."""

    @property
    def is_done(self) -> bool:
        """Whether its model and result exist."""
        return self.model.is_dir() and exists(self.result)

    def finished_model(self) -> Path:
        """The directory of the model, checked against its checksums; JobError if the job is unfinished."""
        if not self.model.is_dir():
            raise JobError(
                f"{self.folder} is a job that is not finished; repeat what began "
                f"it, with {option('resume', True)}"
            )
        if exists(self.folder / CHECKSUMS):
            require_seal(
                real(self.folder),
                remedy=f"if it was changed on purpose, name a copy of {self.model} elsewhere",
                error=ModelError,
            )
        return self.model

    def tidy(self, *, keep_model: bool) -> None:
        """Delete the files of a job in an experiment that are not needed once it has its row."""
        if not keep_model:
            clear(self.model)
        # Removed last, because it identifies what a killed process left.
        clear(self.checkpoints)


FREE_RUN = ("run.device", "run.checkpoint_seconds", "run.keep_checkpoints")
"""Settings of execution, which do not change results."""

FREE_RUNS = (*FREE_RUN, "run.log_every", "run.tensorboard")
"""The same for experiments, which take no numbers by step from their logs."""


def _nothing(*given: object) -> Any:
    """No settings, faults or reasons."""
    return {}


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings that may change when a job is resumed.

    Attributes:
        free: Dotted keys of settings that do not change the result: paths of inputs whose digests are
            compared, and execution.
        free_in: The same in settings that are lists of tables: keys of each table.
        stopping: Returns, for the new settings, those that decide when the run stops and change no step
            before.
        behind: Returns what is wrong with a stop that lies before the current step, given the job and the new
            settings.
        words: Explanations of differences in settings with unreadable values, such as digests.
        reasons: Returns, for the new settings, why some of them must not change, if that is not obvious.
        defaults: Tables of defaults: a job started before a setting existed had its default. None of them can
            be None, because a configuration leaves None out.
        later: Keys that configurations have not always had, and whose value cannot be inferred if they are
            missing.
    """

    free: frozenset[str] = frozenset()
    free_in: Mapping[str, frozenset[str]] = field(default_factory=dict)
    stopping: Callable[[Mapping[str, Any]], set[str]] = _nothing
    behind: Callable[[Job, Mapping[str, Any]], list[str]] = _nothing
    words: Mapping[str, str] = field(default_factory=dict)
    reasons: Callable[[Mapping[str, Any]], Mapping[str, str]] = _nothing
    defaults: Mapping[str, Any] = field(default_factory=dict)
    later: frozenset[str] = frozenset()


STRICT = Rules()

SETTINGS = Format(3, oldest=3, writers={1: "0.1"})
"""Format of the settings in ``config.toml``. Format 2 had the search of a rate as a word in place of the
rate, and format 1 losses, methods and schedules as words with their keys beside them."""

SEAL = "SHA-256 of the lines below: "
HEAD = re.compile(rf"# (?:format (\d+)(?: of adiabat (\S+))?; )?{SEAL}([0-9a-f]*)")
"""The first line of ``config.toml``; the first versions stated no format, which was 1."""

REMEDY = (
    "restore it, remove the line with its SHA-256 if you changed it on "
    "purpose, or start again in another directory"
)


@dataclass(frozen=True, slots=True)
class Description:
    """The tables of a ``config.toml``, their format, and the version of adiabat that wrote them; None if it
    is not stated.
    """

    tables: dict[str, Any]
    format: int
    writer: str | None = None


def read_description(job: Job) -> dict[str, Any]:
    """The configuration of a job."""
    description = any_description(job)
    SETTINGS.require(
        description.format,
        job.config,
        older=to_upgrade(job.folder),
        error=JobError,
        writer=description.writer,
    )
    return description.tables


def any_description(job: Job) -> Description:
    """The configuration of a job, in any format.

    The first line states the format, the version that wrote it, and the checksum of all other lines. Without
    that line a user edited the file on purpose, and it counts as of today's format.
    """
    with reading(job.config, remedy=REMEDY, error=JobError):
        text = read_plain(job.config, limit=LARGEST_CONFIGURATION, error=JobError).decode("utf-8-sig")
        head, _, body = text.partition("\n")
        stated = HEAD.fullmatch(head)
        if stated is None and SEAL in text:
            raise ValueError("its line with the SHA-256 is not the first, or not as adiabat writes it")
        if stated is not None and stated[3] != _checksum(body):
            raise ValueError("its settings do not match the checksum in its first line")
        if not (tables := tomllib.loads(text)):
            raise ValueError("it is empty")
    number = SETTINGS.number if stated is None else int(stated[1] or 1)
    losses = [tables.get(verb, {}).get("loss") for verb in ("tune", "train")]
    # The first versions stated neither; their losses were words.
    if stated is None and any(isinstance(loss, str) for loss in losses):
        number = 1
    return Description(tables, number, None if stated is None else stated[2])


def description_of(job: Job, tables: Mapping[str, Any], *, of: str) -> dict[str, Any]:
    """The configuration of an experiment."""
    before = read_description(job)
    if not _has_tables(before, tables):
        raise JobError(
            f"{job.config} must describe {of}, got other tables; restore it, or choose another directory"
        )
    return before


def _has_tables(before: Any, tables: Mapping[str, Any]) -> bool:
    """Whether every expected table is a table; keys may be missing."""
    inner = {key: value for key, value in tables.items() if isinstance(value, Mapping)}
    return isinstance(before, Mapping) and all(
        _has_tables(before.get(key, {}), value) for key, value in inner.items()
    )


def write_description(job: Job, description: Mapping[str, Any]) -> None:
    """Write the configuration of a job."""
    text = tomli_w.dumps(without_none(description))
    # The first line is a TOML comment.
    head = f"# format {SETTINGS.number} of adiabat {__version__}; {SEAL}{_checksum(text)}"
    write_text(f"{head}\n{text}", job.config)


def _checksum(text: str) -> str:
    """SHA-256 of the settings below the first line, as they are written."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_job(folder: Path) -> bool:
    """Whether a directory is a job."""
    return is_described(folder, "job")


def is_described(folder: Path, table: str) -> bool:
    """Whether the configuration in a directory has a table that identifies its kind."""
    job = Job(folder)
    # In any format: a finished job of an earlier version is a model.
    return exists(job.config) and table in any_description(job).tables


def require_same(
    job: Job, description: Mapping[str, Any], *, rules: Rules = STRICT, unknown: Collection[str] = ()
) -> None:
    """Refuse to resume a job with different settings."""
    before_tables = read_description(job)
    # Tables that a job may have or lack.
    optional = {name for name, table in rules.defaults.items() if not table}
    _require_verb(job, before_tables.keys() - optional, without_none(description).keys() - optional)
    wanted = flat_settings(description)
    # Settings that may not have existed when the job began; a job without them had their defaults.
    unstated = {
        key: value for key, value in flat_settings(rules.defaults).items() if wanted.get(key) == value
    }
    # What a job states counts more than a default.
    stated = flat_settings(before_tables)
    before = {**unstated, **stated}
    reasons = rules.reasons(wanted)
    compared = {*before, *wanted} - rules.free - set(rules.stopping(wanted)) - set(unknown)
    # A job from before a setting existed does not state it.
    compared -= rules.later - stated.keys()
    differing = []
    for key in sorted(compared):
        if _bound(before, key, rules) != _bound(wanted, key, rules):
            former, now = before.get(key, "not set"), wanted.get(key, "not set")
            usual = f"{key} was {former!r}, is {now!r}{reasons.get(key, '')}"
            differing.append(rules.words.get(key) or usual)
    if differing:
        differences = several(differing, of="differences")
        if len(differing) == 1:
            differences = f"a difference: {differences}"
        raise JobError(
            f"{option('resume')} must continue the job in {job.folder} with its settings and data, got "
            f"{differences}; repeat the first command with all its settings ({job.config} holds them), or "
            f"choose another {option('out')}"
        )


def _bound(settings: Mapping[str, Any], key: str, rules: Rules) -> Any:
    """The part of a setting that must not change."""
    value, free = settings.get(key), rules.free_in.get(key)
    if not (free and isinstance(value, list)):
        return value
    return [_without(row, free) for row in value]


def _without(row: Any, names: Collection[str]) -> Any:
    """A table without some keys; anything else as it is."""
    if not isinstance(row, Mapping):
        return row
    return {name: item for name, item in row.items() if name not in names}


def _require_verb(job: Job, before: AbstractSet[str], wanted: AbstractSet[str]) -> None:
    """Refuse a job that lacks tables of this one and has others instead; a list of all differences would not
    help.
    """
    extra, missing = _tables(before - wanted), _tables(wanted - before)
    if extra and missing:
        raise JobError(
            f"{job.folder} must hold a job of the same verb, got one with {extra} and without {missing} in "
            f"its config.toml; choose another {option('out')}"
        )


def _tables(names: AbstractSet[str]) -> str:
    """Tables of a configuration in messages: ``[job] and [tune]``."""
    return " and ".join(f"[{name}]" for name in sorted(names))


def flat_settings(description: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as dotted keys with values, with tuples as lists and without None."""
    flat: dict[str, Any] = {}
    for key, value in without_none(description).items():
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": setting for inner, setting in flat_settings(value).items()}
        else:
            flat[key] = value
    return flat


def without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out settings that are None, because TOML has no null; tuples become lists."""

    def clean(value: Any) -> Any:
        if isinstance(value, Mapping):
            return without_none(value)
        return [clean(entry) for entry in value] if isinstance(value, tuple | list) else value

    return {key: clean(value) for key, value in table.items() if value is not None}
