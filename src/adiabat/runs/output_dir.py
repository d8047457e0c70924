"""Write access to a directory, for a new run, a resumed run or an evaluation; and the files of a finished
one.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from adiabat.core.disk import clear, fresh_folder, is_part, make_folder, move, remove_empty
from adiabat.core.errors import DataError, JobError, several
from adiabat.core.files import is_store, is_there, sole_writer
from adiabat.core.provenance import CHECKSUMS, digest_of, write_digests
from adiabat.core.wording import option
from adiabat.results.evaluation_result import Result
from adiabat.results.record import Record, read_result, write_result
from adiabat.runs.run_config import (
    CONFIG,
    PREPARED,
    STRICT,
    Job,
    Rules,
    flat_settings,
    is_job,
    read_description,
    require_same,
    write_description,
)
from adiabat.runs.run_log import plain_faults


def require_free(folder: Path, *, resume: bool | None = None) -> None:
    """Refuse an unsuitable directory before long preparations; writes nothing.

    `resume` is None for a verb that cannot resume.
    """
    require_outside(folder)
    if is_job(folder):
        _require_resume(folder, "job", resume=resume)
    elif folder.exists() and not folder.is_dir():
        raise JobError(
            f"{option('out')} must be a new or empty directory, {folder} is a file; choose another"
        )
    elif folder.exists() and not all(entry.name == PREPARED or is_part(entry) for entry in folder.iterdir()):
        raise JobError(
            f"{option('out')} must be a new or empty directory, {folder} holds other files; choose another"
        )


def _require_resume(folder: Path, what: str, *, resume: bool | None) -> None:
    """Refuse to begin where a job or an experiment lies already, unless it is resumed; None stands for a verb
    that cannot resume.
    """
    if not resume:
        advice = "choose another directory"
        if resume is not None:
            advice = f"continue it with {option('resume', True)}, or {advice}"
        raise JobError(f"{option('out', folder)} holds a {what} already; {advice}")


def require_outside(path: Path, *, setting: str = "out") -> None:
    """Refuse a path inside a directory that is rewritten as a whole, or inside a file."""
    for directory in path.resolve().parents:
        if directory.is_file():
            raise JobError(
                f"{option(setting)} must be in a directory, {path} lies in the "
                f"file {directory}; choose another"
            )
        if _is_of_adiabat(directory):
            place = f"{path} lies in the job, model or store {directory}"
            raise JobError(f"{option(setting)} must be a directory of its own, {place}; choose another")


def require_begun(folder: Path, what: str, *, begun: bool, resume: bool) -> str | None:
    """Check the directory of an experiment; returns a note if there is nothing to resume."""
    if begun:
        _require_resume(folder, what, resume=resume)
        return None
    if is_job(folder):
        raise JobError(
            f"{option('out')} must be the directory of a {what}, {Job(folder).config} "
            "belongs to a job; choose another"
        )
    require_free(folder, resume=False)
    return f"{folder} holds no {what} to resume yet: starting a new one" if resume else None


def require_fitting(
    folder: Path,
    description: Mapping[str, Any],
    *,
    resume: bool,
    rules: Rules = STRICT,
    unknown: Collection[str] = (),
) -> str | None:
    """Check that a directory belongs to this job, before any long work; returns a note if there is nothing to
    resume.
    """
    require_free(folder, resume=resume)
    if not resume:
        return None
    if is_job(folder):
        require_same(Job(folder), description, rules=rules, unknown=unknown)
        return None
    why = "is empty" if folder.exists() else "does not exist"
    return f"{option('resume')} found no job to resume, {folder} {why}: starting a new one"


def _is_of_adiabat(directory: Path) -> bool:
    """Whether a directory's content is rewritten as a whole, including foreign files inside.

    A damaged one counts as none: whatever reads it tells the fault.
    """
    with suppress(DataError, JobError):
        return is_job(directory) or is_there(directory / "modules.json") or is_store(directory)
    return False


def open_job(folder: Path, description: Mapping[str, Any], *, resume: bool, rules: Rules = STRICT) -> Job:
    """Claim a directory for a new or resumed job.

    A new one gets its configuration. A resumed one must have the same, but for settings that may change; they
    are written anew.
    """
    require_free(folder, resume=resume)
    job = Job(folder)
    if is_job(folder):
        require_same(job, description, rules=rules)
        if faults := rules.behind(job, flat_settings(description)):
            raise JobError(f"{job.folder}: {several(faults)}; raise it, or start again in another directory")
        if flat_settings(read_description(job)) != flat_settings(description):
            with sole_writer(folder):
                write_description(job, description)
        return job
    # A folder that the user made stays when the description cannot be written.
    is_new = not folder.exists()
    make_directory(folder)
    try:
        write_description(job, description)
    except DataError:
        if is_new:
            remove_empty(folder)
        raise
    return job


def make_directory(folder: Path, *, setting: str = "out") -> None:
    """Make the directory that a setting names, and those above it."""
    try:
        make_folder(folder, parents=True)
    except OSError as fault:
        raise JobError(
            f"{option(setting)} must be a directory that can be created, got "
            f"{folder}: {fault.strerror}; choose another"
        ) from fault


@contextmanager
def claimed_for_jobs(
    folder: Path, describe: Callable[[], Mapping[str, Any]], *, begun: bool
) -> Iterator[None]:
    """Claim a directory for an experiment, which is not a job itself, and lock out other processes."""
    if not begun:
        open_job(folder, describe(), resume=False)
    with sole_writer(folder):
        if begun:
            write_description(Job(folder), describe())
        yield


@contextmanager
def claimed(folder: Path | None, *, kind: str = "evaluation") -> Iterator[Path | None]:
    """Claim a directory for an evaluation, whose earlier record is replaced; a new directory is removed if
    the evaluation fails.
    """
    if folder is None:
        yield None
        return
    require_own(folder, kind)
    # All folders that are made here go again with a failed evaluation; only empty ones can be removed.
    missing = [directory for directory in (folder, *folder.parents) if not directory.exists()]
    make_directory(folder)
    try:
        with sole_writer(folder):
            yield folder
    except BaseException:
        remove_empty(*missing)
        raise


_BEGUN = {"suite": ("scores", "stores"), "evaluation": ("scores",)}
"""What an interrupted run of a kind leaves without a result; `evaluate` refuses foreign scores itself."""


def require_own(folder: Path, kind: str = "evaluation", *, parts: Collection[str] = ()) -> None:
    """Refuse a directory of another kind or inside one, with a result or report of another kind, or with
    files that are not of adiabat.

    `parts` may be there beside or before the result.
    """
    kinds = {
        "a file": folder.exists() and not folder.is_dir(),
        "a job": is_job(folder),
        "an experiment": is_there(folder / CONFIG),
        "a store": is_store(folder),
        "a model": any(is_there(folder / name) for name in ("modules.json", "config.json")),
    }
    if other := next((name for name, applies in kinds.items() if applies), None):
        raise JobError(f"{option('out')} must be a directory of its own, {folder} is {other}; choose another")
    require_outside(folder)
    begun = (*_BEGUN.get(kind, ()), *parts)
    if is_there(folder / "result.json") or is_there(folder / "report.html"):
        try:
            if (existing := read_result(folder / "result.json").kind) != kind:
                raise DataError(f"kind is {existing}, not {kind}")
        except DataError as fault:
            raise JobError(
                f"{option('out')} must be new or hold an undamaged evaluation of the same kind, {folder} "
                f"does not ({fault}); choose another, or remove its result.json and report.html if you do "
                "not need them"
            ) from fault
    elif folder.is_dir() and not all(entry.name in begun or _is_ours(entry) for entry in folder.iterdir()):
        raise JobError(
            f"{option('out')} must be a new or empty directory, {folder} holds other files; choose another"
        )


def _is_ours(entry: Path) -> bool:
    """Whether a job, a store or a folder of stores may lie beside a result, as in the directory of the demo;
    hidden files may.

    So may a folder of temporary files, such as the figures of a report that was killed while it was written.
    """
    if entry.name[0] == "." or is_job(entry) or is_store(entry):
        return True
    return entry.is_dir() and all(is_store(child) or is_part(child) for child in entry.iterdir())


def finish_job(
    job: Job,
    result: Result,
    *,
    save: Callable[[Path], None],
    beside: Mapping[str, bytes],
    tidy: Callable[[], None],
) -> None:
    """Write model, result, report and further files, and tidy up; the model is renamed last, so a job with a
    model is complete.
    """
    new, former = job.folder / ".model", job.folder / ".former-model"
    try:
        with plain_faults(job.model):
            clear(former)
            save(fresh_folder(new))
            if job.model.exists():
                # Rename at once: a partly removed model could be mistaken for a whole one.
                move(job.model, former)
            write_report(result, job.folder, beside=beside)
            # In the job's directory, so that a copy of the model does not include them.
            files = sorted(path for path in new.rglob("*") if path.is_file())
            write_digests(
                {f"{job.model.name}/{path.relative_to(new)}": digest_of(path) for path in files},
                job.folder / CHECKSUMS,
            )
            move(new, job.model)
            tidy()
    finally:
        clear(new, former)


def write_report(record: Record, folder: Path, *, beside: Mapping[str, bytes] | None = None) -> None:
    """Write ``result.json``, its page with tables and figures, and further files by name; either all or none
    are written.
    """
    from adiabat.report.pages import files

    write_result(
        record,
        folder,
        beside={
            **files(record),
            **{name: partial(bytes, content) for name, content in (beside or {}).items()},
        },
    )
