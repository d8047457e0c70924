"""``trained.bin`` of a job: hashes of the texts that it trained or validated on, read again when its model is measured."""

import hashlib
from pathlib import Path

import numpy as np

from adiabat.core.errors import AdiabatError, DataError
from adiabat.data.text_hashes import HASH_BYTES
from adiabat.data.trained_texts import TrainedTexts
from adiabat.results.evaluation_result import Result, TrainedFile
from adiabat.results.record import read_result
from adiabat.runs.run_config import is_job
from adiabat.runs.run_dir import Job

_SIDES = ("queries", "documents", "doc_ids")


def packed(trained: TrainedTexts) -> tuple[TrainedFile, bytes]:
    """The record and the bytes of a file."""
    content = b"".join(getattr(trained, side).tobytes() for side in _SIDES)
    counts = {side: len(getattr(trained, side)) for side in _SIDES}
    return TrainedFile(**counts, sha256=hashlib.sha256(content).hexdigest(), unknown=trained.unknown), content


def unpacked(path: Path, record: TrainedFile) -> TrainedTexts:
    """The inverse of `packed`."""
    try:
        content = path.read_bytes()
    except OSError as fault:
        raise DataError(f"{path} cannot be read ({fault.strerror or fault})") from fault
    ends = np.cumsum([getattr(record, side) for side in _SIDES])
    if hashlib.sha256(content).hexdigest() != record.sha256 or HASH_BYTES * ends[-1] != len(content):
        raise DataError(f"{path} is not what the run wrote")
    queries, documents, doc_ids = np.split(np.frombuffer(content, dtype=f"S{HASH_BYTES}"), ends[:-1])
    return TrainedTexts(queries, documents, doc_ids, record.unknown)


def trained_by(model: str | Path) -> TrainedTexts | None:
    """Texts that the job of a model, and the jobs that it started from, trained or validated on.

    Returns:
        The hashes, none of them where the record of the job is missing or damaged; None where the model is not that of a job.
    """
    path = Path(model)
    folders = [folder for folder in (path, path.parent) if folder == path or path.name == "model"]
    job = next((Job(folder) for folder in folders if is_job(folder)), None)
    if job is None:
        return None
    try:
        record = read_result(job.result, Result).training
        if record is None or record.texts is None:
            return TrainedTexts(unknown=f"{job.result} has no record of it")
        return unpacked(job.trained, record.texts)
    except AdiabatError as fault:
        return TrainedTexts(unknown=str(fault))


def with_starts(trained: TrainedTexts, *models: str | None) -> TrainedTexts:
    """Add the texts that the jobs of a run's start models trained on; None stands for no model."""
    former = [trained_by(model) for model in models if model is not None]
    return TrainedTexts.joined([trained, *(texts for texts in former if texts is not None)])
