"""The end of a job: its model, its result and its report."""

import shutil
from dataclasses import replace
from pathlib import Path

from safetensors import SafetensorError

from adiabat.data.trained import TrainedTexts
from adiabat.errors import JobError
from adiabat.jobs.job import Job
from adiabat.jobs.trained import packed
from adiabat.measure.results import Result
from adiabat.model.saving import save
from adiabat.model.towers import DualEncoder
from adiabat.report.page import write_evaluation


def finish_job(job: Job, model: DualEncoder, result: Result, trained: TrainedTexts) -> Result:
    """Write model, result and report; the model gets its own name last of all, so that a job with a model is complete.

    Args:
        job: Whose directory is written.
        model: What the job made; moved to the CPU.
        result: What the job did.
        trained: On what.

    Returns:
        The result as it is written, with the record of what was trained on.

    Raises:
        JobError: If the disk is full or not writable.
    """
    texts, content = packed(trained)
    if result.training is not None:
        result = replace(result, training=replace(result.training, texts=texts))
    partial, former = job.folder / ".model", job.folder / ".former-model"
    try:
        _clear(partial, former)
        save(model.to("cpu"), partial)
        if job.model.exists():
            # In one move: a model half removed would be taken for a whole one.
            job.model.rename(former)
        write_evaluation(result, job.folder, beside={job.trained.name: content})
        partial.rename(job.model)
    except (OSError, SafetensorError) as fault:
        raise JobError(f"{job.model} could not be written: {fault}; free some space and run the same command with --resume") from fault
    finally:
        _clear(partial, former)
    return result


def _clear(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
