"""Directories that an evaluation may write into."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from adiabat.errors import DataError, JobError
from adiabat.jobs.descriptions import is_job
from adiabat.jobs.directory import require_outside
from adiabat.jobs.job import CONFIG
from adiabat.locks import sole_writer
from adiabat.report.files import read_result
from adiabat.store.build import is_store


@contextmanager
def claimed(folder: Path | None, *, reader: Callable[[Path], object] = read_result) -> Iterator[Path | None]:
    """A directory that an evaluation may write into, made where it is missing, and gone again where the evaluation fails.

    Args:
        folder: None where nothing is written.
    """
    if folder is None:
        yield None
        return
    _require_own(folder, reader)
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise JobError(f"--out must be a directory that can be made, got {folder}: {fault.strerror}; choose another") from fault
    try:
        with sole_writer(folder):
            yield folder
    except BaseException:
        for place in missing:
            with suppress(OSError):
                place.rmdir()
        raise


def _require_own(folder: Path, reader: Callable[[Path], object]) -> None:
    """Refuse a directory that is something else, lies in it, or holds a result or report of something else."""
    kinds = {
        "a file": folder.exists() and not folder.is_dir(),
        "a job": is_job(folder),
        "what consists of jobs": (folder / CONFIG).is_file(),
        "a store": is_store(folder),
        "a model": any((folder / name).exists() for name in ("modules.json", "config.json")),
    }
    if kind := next((name for name, found in kinds.items() if found), None):
        raise JobError(f"--out must be a directory of its own, {folder} is {kind}; choose another")
    require_outside(folder)
    if (folder / "result.json").exists() or (folder / "report.html").exists():
        try:
            reader(folder / "result.json")
        except DataError as fault:
            raise JobError(
                f"--out must hold nothing but an evaluation of the same kind, {folder} holds something else, or one that is damaged "
                f"({fault}); choose another, or remove its result.json and report.html if they are of no use"
            ) from fault
