"""The end of a run that updated weights: its model, its result with what it was trained on, and its checkpoints."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from safetensors import SafetensorError

from adiabat.core.errors import JobError
from adiabat.core.files import advice_on
from adiabat.data.trained_texts import TrainedTexts
from adiabat.models.saving import save
from adiabat.models.towers import DualEncoder
from adiabat.models.trained_file import packed
from adiabat.results.evaluation_result import Result
from adiabat.runs.finish import finish_job
from adiabat.runs.run_dir import Job
from adiabat.runs.run_log import GO_ON
from adiabat.training.checkpoint import drop_older


def finish_run(job: Job, model: DualEncoder, result: Result, trained: TrainedTexts, *, keep_checkpoints: int | None) -> Result:
    """Write the model, the result with the record of its training texts, and the page.

    Args:
        keep_checkpoints: How many stay; None leaves the newest alone, which takes several times the space of the model.
    """
    texts, content = packed(trained)
    if result.training is not None:
        result = replace(result, training=replace(result.training, texts=texts))
    try:
        finish_job(job, result, save=partial(_save, model.to("cpu")), beside={job.trained.name: content})
        if keep_checkpoints is None:
            drop_older(job.checkpoints)
    except SafetensorError as fault:
        raise JobError(f"{job.model} could not be written: {fault}; {advice_on(fault, GO_ON)}") from fault
    return result


def _save(model: DualEncoder, folder: Path) -> None:
    save(model, folder)
