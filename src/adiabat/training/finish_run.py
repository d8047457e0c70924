"""The end of a run that updated weights: its model, its result with what it was trained on, and its checkpoints."""

from dataclasses import replace
from pathlib import Path

from safetensors import SafetensorError

from adiabat.core.errors import DataError
from adiabat.data.trained_texts import TrainedTexts
from adiabat.models.saving import save
from adiabat.models.towers import DualEncoder
from adiabat.models.trained_file import packed
from adiabat.results.evaluation_result import Result
from adiabat.runs.finish import finish_job
from adiabat.runs.run_dir import Job
from adiabat.training.checkpoint import drop_older


def finish_run(job: Job, model: DualEncoder, result: Result, trained: TrainedTexts, *, keep_checkpoints: int | None) -> Result:
    """Write the model, the result with the record of its training texts, and the page.

    Args:
        keep_checkpoints: How many stay; None leaves the newest alone, which takes several times the space of the model.
    """
    texts, content = packed(trained)
    if result.training is not None:
        result = replace(result, training=replace(result.training, texts=texts))

    def write_model(folder: Path) -> None:
        try:
            save(model.to("cpu"), folder)
        except SafetensorError as fault:
            raise DataError(str(fault)) from fault

    def tidy() -> None:
        if keep_checkpoints is None:
            drop_older(job.checkpoints)

    finish_job(job, result, save=write_model, beside={job.trained.name: content}, tidy=tidy)
    return result
