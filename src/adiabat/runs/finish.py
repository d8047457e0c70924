"""The end of a job: its model, its result and its report."""

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from adiabat.core.checksums import CHECKSUMS, digest_of
from adiabat.core.errors import DataError, JobError
from adiabat.core.files import advice_on, write_json
from adiabat.results.evaluation_result import Result
from adiabat.results.record import Record, write_result
from adiabat.runs.run_dir import Job
from adiabat.runs.run_log import GO_ON


def finish_job(job: Job, result: Result, *, save: Callable[[Path], None], beside: Mapping[str, bytes], tidy: Callable[[], None]) -> None:
    """Write model, result, report and further files by name, and tidy up; a job with a model is complete: it gets its name last of all."""
    new, former = job.folder / ".model", job.folder / ".former-model"
    try:
        _clear(new, former)
        save(new)
        if job.model.exists():
            # In one move: a model half removed would be taken for a whole one.
            job.model.rename(former)
        write_report(result, job.folder, beside=beside)
        # In the job, where a copy of the model does not take them along.
        files = sorted(path for path in new.rglob("*") if path.is_file())
        write_json({f"{job.model.name}/{path.relative_to(new)}": digest_of(path)._asdict() for path in files}, job.folder / CHECKSUMS)
        new.rename(job.model)
        tidy()
    except (OSError, DataError) as fault:
        raise JobError(f"{job.model} could not be written: {fault}; {advice_on(fault, GO_ON)}") from fault
    finally:
        _clear(new, former)


def write_report(record: Record, folder: Path, *, beside: Mapping[str, bytes] | None = None) -> None:
    """Write ``result.json``, its page, the tables and figures made from it, and further files by name, all or none."""
    from adiabat.report.pages import files

    write_result(record, folder, beside={**files(record), **{name: partial(bytes, content) for name, content in (beside or {}).items()}})


def _clear(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
