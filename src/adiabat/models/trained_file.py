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
    """What goes into a file."""
    content = b"".join(getattr(trained, side).tobytes() for side in _SIDES)
    counts = {side: len(getattr(trained, side)) for side in _SIDES}
    return TrainedFile(**counts, sha256=hashlib.sha256(content).hexdigest(), unknown=trained.unknown), content


def unpacked(path: Path, record: TrainedFile) -> TrainedTexts:
    """Read what `packed` gave."""
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
    """What the job of a model trained or validated on, and the jobs that it went on from.

    Returns:
        The hashes, none of them where the record of the job is missing or damaged; None where the model is not that of a job.
    """
    place = Path(model)
    folders = [folder for folder in (place, place.parent) if folder == place or place.name == "model"]
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
    """Add what the models that a run began with were trained on, where jobs made them.

    Args:
        *models: Their names; None for none.
    """
    before = [trained_by(model) for model in models if model is not None]
    return TrainedTexts.joined([trained, *(one for one in before if one is not None)])
