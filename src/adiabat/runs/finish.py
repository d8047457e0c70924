"""The end of a job: its model, its result and its report."""

import shutil
from dataclasses import replace
from pathlib import Path

from safetensors import SafetensorError

from adiabat.core.checksums import CHECKSUMS, digest_of, require_seal
from adiabat.core.errors import DataError, JobError, ModelError
from adiabat.core.files import advice_on, write_json
from adiabat.data.trained_texts import TrainedTexts
from adiabat.models.saving import save
from adiabat.models.towers import DualEncoder
from adiabat.models.trained_file import packed
from adiabat.report.evaluation_page import write_evaluation
from adiabat.results.evaluation_result import Result
from adiabat.runs.run_dir import Job
from adiabat.runs.run_log import GO_ON
from adiabat.training.checkpoint import drop_older


def finish_job(job: Job, model: DualEncoder, result: Result, trained: TrainedTexts, *, keep_checkpoints: int | None) -> Result:
    """Write model, result and report; the model gets its own name last of all, so that a job with a model is complete.

    Args:
        keep_checkpoints: How many stay; None leaves the newest alone, which takes several times the space of the model.
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
        seal_model(job, partial)
        partial.rename(job.model)
        if keep_checkpoints is None:
            drop_older(job.checkpoints)
    except (OSError, SafetensorError, DataError) as fault:
        raise JobError(f"{job.model} could not be written: {fault}; {advice_on(fault, GO_ON)}") from fault
    finally:
        _clear(partial, former)
    return result


def seal_model(job: Job, folder: Path) -> None:
    """Note the checksums of a job's model in the job, where a copy of the model does not take them along."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    write_json({f"{job.model.name}/{path.relative_to(folder)}": digest_of(path)._asdict() for path in files}, job.folder / CHECKSUMS)


def require_model(job: Job) -> Path:
    """The model of a finished job, as the job left it."""
    if not job.model.is_dir():
        raise JobError(f"{job.folder} is a job that is not finished; run its command again with --resume")
    if (job.folder / CHECKSUMS).exists():
        require_seal(job.folder, remedy=f"if it was changed on purpose, name a copy of {job.model} elsewhere", error=ModelError)
    return job.model


def _clear(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
