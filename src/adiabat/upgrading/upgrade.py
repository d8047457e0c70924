"""What of a path is of a former version, and its conversion: one step for each file, which is whole before
and after.

A step replaces one file by a rename, and is not found again once it is done. So the same call completes an
interrupted one.
"""

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import tomli_w

from adiabat.core.errors import AdiabatError, ConfigError, DataError, JobError
from adiabat.core.files import LARGEST_CONFIGURATION, read_json, read_plain, reading, sole_writer, write_text
from adiabat.core.progress import Watch
from adiabat.core.text import amount
from adiabat.results.record import AGAIN, FORMAT, RECORD_FILE, RECORDS, read_result, write_result
from adiabat.runs.run_config import SETTINGS, Job, any_description, read_description, write_description
from adiabat.upgrading.backup import set_aside
from adiabat.upgrading.former_results import present_record
from adiabat.upgrading.settings import present_settings, with_comments
from adiabat.upgrading.stores import bytes_to_read, bytes_to_write, is_former, upgrade_store

NOT_ENTERED = ("checkpoints", "model", "tensorboard", "stream")
"""Folders of a job without files of a format of their own."""


@dataclass(frozen=True, slots=True)
class Step:
    """The conversion of one file.

    Attributes:
        path: The file, or the folder of a store.
        what: What is done, for the user.
        run: Converts it, and returns the former files.
    """

    path: Path
    what: str
    run: Callable[[Watch], list[Path]]


@dataclass(slots=True)
class Found:
    """What a path holds of former versions, and what cannot be converted, with the reason."""

    steps: list[Step] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def find(path: Path) -> Found:
    """Look for files of former versions, without reading vectors."""
    found = Found()
    if path.is_dir():
        _look_into(path, found)
    elif path.suffix == ".toml" and path.name != "config.toml":
        found.steps += _of_settings(path)
    elif path.is_file():
        _look_into(path.parent, found, only=path.name)
    else:
        raise DataError(
            f"{path} must be a store, a job, a result, a folder of them or a settings "
            "file, got nothing there; check the path"
        )
    return found


def _look_into(folder: Path, found: Found, *, only: str = "") -> None:
    """A folder, and those below it."""
    for name, steps in (("manifest.json", _of_store), ("config.toml", _of_job), (RECORD_FILE, _of_result)):
        if only not in ("", name) or not (folder / name).is_file():
            continue
        try:
            found.steps += steps(folder)
        except AdiabatError as fault:
            found.faults.append(str(fault))
    if only:
        return
    for child in sorted(folder.iterdir()):
        # Links may lead in circles, or to what belongs to others.
        if (
            child.is_dir()
            and not child.is_symlink()
            and child.name[0] != "."
            and child.name not in NOT_ENTERED
        ):
            _look_into(child, found)


def _of_store(folder: Path) -> Iterator[Step]:
    """The step for a store; its time is that of reading the vectors once."""
    if not (_is_ours(folder) and is_former(folder)):
        return
    what = (
        f"store of format 1: reads {amount(bytes_to_read(folder))} once, adds "
        f"{amount(bytes_to_write(folder)) or 'nothing'}"
    )
    yield Step(folder, f"{what}; vectors stay as they are", lambda watch: [upgrade_store(folder, watch)])


def _is_ours(folder: Path) -> bool:
    """Whether a ``manifest.json`` is that of a store; other programs have files of that name."""
    record = read_json(folder / "manifest.json", remedy=AGAIN, required=False)
    return str(record.get("format", "")).startswith("adiabat")


def _of_job(folder: Path) -> Iterator[Step]:
    """The step for the settings of a run directory, which state every key."""
    job = Job(folder)
    description = any_description(job)
    if description.format >= SETTINGS.number:
        read_description(job)
        return
    conversion = present_settings(description.tables, is_job=True)

    def run(watch: Watch) -> list[Path]:
        with sole_writer(folder):
            backup = set_aside(job.config)
            write_description(job, conversion.tables)
        read_description(job)
        return [backup]

    yield Step(job.config, f"settings of format {description.format} to format {SETTINGS.number}", run)


def _of_result(folder: Path) -> Iterator[Step]:
    """The step for a record; it is converted before anything is written, so that a fault is found first."""
    path = folder / RECORD_FILE
    plain = read_json(path, remedy=AGAIN, required=False)
    # Other programs have files of that name.
    if (number := plain.get("format")) is None:
        return
    if number not in RECORDS.writers:
        read_result(path)
        return
    # A record of a number that is still read may lack what its verb needs today.
    if number >= RECORDS.oldest and _reads(path):
        return
    record = present_record(plain, path)

    def run(watch: Watch) -> list[Path]:
        with sole_writer(folder):
            backup = set_aside(path)
            write_result(record, folder)
        if read_result(path) != record:
            raise JobError(
                f"{path} must be read as it was converted, got another record; "
                f"restore {backup.name} and report this"
            )
        return [backup]

    yield Step(path, f"result of format {number} to format {FORMAT}", run)


def _reads(path: Path) -> bool:
    """Whether this version reads a record as it is."""
    try:
        read_result(path)
    except DataError:
        return False
    return True


def _of_settings(path: Path) -> Iterator[Step]:
    """The step for a settings file, with a phrase for each key that changes."""
    with reading(path, remedy="check that it is a TOML file of settings", error=ConfigError):
        text = read_plain(path, limit=LARGEST_CONFIGURATION, error=ConfigError).decode("utf-8-sig")
        former = tomllib.loads(text)
    conversion = present_settings(former)
    if conversion.tables == former:
        return
    # Line by line where that gives the same settings; otherwise anew, without comments.
    written = with_comments(text, conversion)
    loss = "" if written else "; comments are lost"

    def run(watch: Watch) -> list[Path]:
        backup = set_aside(path)
        write_text(written or tomli_w.dumps(conversion.tables), path)
        return [backup]

    changes = conversion.changes() or ["written anew"]
    yield Step(path, f"settings: {'; '.join(changes)}{loss}", run)
