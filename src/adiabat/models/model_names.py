"""Resolve a MODEL name (hub, directory, job or embedded model), and find the texts that a job trained its
model on.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path

import numpy as np

from adiabat.config.shared import EncoderSection, RankingEncoderSection
from adiabat.core.errors import AdiabatError, ConfigError, DataError, JobError, reraise_unrelated
from adiabat.core.files import is_there, read_plain
from adiabat.data.near_duplicates import SIGNATURE_BYTES
from adiabat.data.text_hashes import HASH_BYTES, TrainedTexts
from adiabat.models.backbone import Trust
from adiabat.models.deltas import is_delta, load_delta
from adiabat.models.device import device_of
from adiabat.models.loading import load as load_directory
from adiabat.models.loading import override
from adiabat.models.model_paths import Model, directory_of, job_of
from adiabat.models.towers import DualEncoder
from adiabat.results.evaluation_result import Result
from adiabat.results.record import read_result
from adiabat.results.training_record import TrainedFile
from adiabat.runs.run_config import FREE_RUNS, Job, flat_settings, read_description


def load(model: Model, *, settings: EncoderSection | None = None, device: str = "cpu") -> DualEncoder:
    """Load a model.

    Args:
        model: Its name, or a loaded model.
        settings: Overrides of pooling, prompts and the like; None takes the model's own. If
            `trust_remote_code` names another model, such as the other one of a comparison, this one runs no
            code.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    Returns:
        Query tower and document tower.

    Raises:
        ModelError: If it cannot be loaded.
        ConfigError: If a setting does not apply to the model.
        JobError: If it is a job that is not finished.
        TypeError: If `model` has another type.

    Example:
        >>> adiabat.load("demo").encode_query(["What is a graph?"]).dtype
        dtype('float32')
    """
    torch_device = device_of(device)
    section = settings or RankingEncoderSection()
    if isinstance(model, DualEncoder):
        if section.blocks is not None:
            raise ConfigError(
                "encoder.blocks must be left out for a model already loaded, got "
                f"{section.blocks}; load it with them"
            )
        return _with_similarity(
            override(model, section.overrides(), pad_token=section.pad_token), section
        ).to(torch_device)
    if not isinstance(model, str | PathLike):
        raise TypeError(
            "model must be a hub name, a path, a finished job or a loaded model, "
            f"got {model!r} ({type(model).__name__})"
        )
    model = fspath(model)
    name = directory_of(model)
    if is_delta(Path(name)):
        return load_over_base(Path(name), section, load).to(torch_device)
    trusted = (section.trust_remote_code or "").rstrip("/") == model.rstrip("/")
    trust = Trust(remote_code=str(name) if trusted else None, pickles=section.allow_pickles)
    loaded = load_directory(
        name, settings=section.overrides(), trust=trust, blocks=section.blocks, pad_token=section.pad_token
    )
    return _with_similarity(replace(loaded, name=model), section).to(torch_device)


def load_over_base(
    folder: Path,
    section: EncoderSection,
    load_base: Callable[[str], DualEncoder],
    *,
    over_base: bool = False,
) -> DualEncoder:
    """A delta over its base, as `load_delta`; settings are laid over those of the delta."""
    model = load_delta(folder, load_base, over_base=over_base)
    return _with_similarity(override(model, section.overrides(), pad_token=section.pad_token), section)


def _with_similarity(model: DualEncoder, section: EncoderSection) -> DualEncoder:
    """The model with the similarity of the settings; a model for ranking must state a similarity that adiabat
    computes.
    """
    if not isinstance(section, RankingEncoderSection):
        return model
    if section.similarity is not None:
        model = replace(model, root={**model.root, "similarity_fn_name": section.similarity})
    model.similarity  # noqa: B018 - raises
    return model


def load_with(name: str, section: EncoderSection, *, device: str = "cpu") -> DualEncoder:
    """`load` for jobs: a name with its encoder settings."""
    return load(name, settings=section, device=device)


_SIDES = ("queries", "documents", "doc_ids")


def packed(trained: TrainedTexts) -> tuple[TrainedFile, bytes]:
    """The record and the bytes of the ``trained.bin`` of a job."""
    content = b"".join(getattr(trained, side).tobytes() for side in _SIDES)
    counts = {side: len(getattr(trained, side)) for side in _SIDES}
    if trained.signatures is not None:
        content += trained.signatures.tobytes()
        counts["signatures"] = len(trained.signatures)
    return TrainedFile(**counts, sha256=hashlib.sha256(content).hexdigest(), unknown=trained.unknown), content


def unpacked(path: Path, record: TrainedFile) -> TrainedTexts:
    """The inverse of `packed`."""
    try:
        content = read_plain(path)
    except FileNotFoundError as fault:
        raise DataError(f"{path} is missing") from fault
    except OSError as fault:
        reraise_unrelated(fault)
        raise DataError(f"{path} cannot be read ({fault.strerror or fault})") from fault
    ends = np.cumsum([getattr(record, side) for side in _SIDES])
    of_hashes = HASH_BYTES * int(ends[-1])
    if hashlib.sha256(content).hexdigest() != record.sha256 or of_hashes + SIGNATURE_BYTES * (
        record.signatures or 0
    ) != len(content):
        raise DataError(f"{path} changed after the run")
    queries, documents, doc_ids = np.split(
        np.frombuffer(content[:of_hashes], dtype=f"S{HASH_BYTES}"), ends[:-1]
    )
    rest = np.frombuffer(content[of_hashes:], dtype=np.uint8).reshape(-1, SIGNATURE_BYTES)
    return TrainedTexts(
        queries, documents, doc_ids, record.unknown, None if record.signatures is None else rest
    )


def trained_by(model: str | Path) -> TrainedTexts | None:
    """Texts that the job of a model, and the jobs that it started from, trained or validated on.

    Returns:
        The hashes, empty if the record of the job is missing or damaged; None if the model is not from a job.
    """
    folder = Path(model)
    job, around = job_of(model), Job(folder.parent)
    # A job without its configuration still has its record.
    if job is None and folder == around.model and is_there(around.trained, error=JobError):
        job = around
    if job is None:
        return None
    try:
        record = read_result(job.result, Result).training
        if record is None or record.texts is None:
            return TrainedTexts(unknown=f"{job.result} has no record of it")
        return unpacked(job.trained, record.texts)
    except AdiabatError as fault:
        return TrainedTexts(unknown=str(fault))


_APART = {"run.seed", "job.out", *FREE_RUNS}
"""Settings in which runs of one experiment may differ."""

_INPUTS = {"job.query_tower": "job.model", "job.store_vectors": "job.store", "job.examples": "job.data"}
"""Checksums of inputs, whose paths do not matter then."""

_NAMED_SETTINGS = 6


def run_difference(model: str, run: str) -> str:
    """A sentence on the settings in which the jobs of two runs differ, apart from the seed; "" if they do
    not, or neither is of a job.
    """
    jobs = [job_of(model), job_of(run)]
    settings = [flat_settings(read_description(job)) for job in jobs if job is not None]
    if len(settings) < len(jobs):
        return (
            f"whether {run} is a run of the same experiment as {model} is unknown, "
            "because only one of them is a job"
            if settings
            else ""
        )
    first, other = ({key: value for key, value in table.items() if key not in _APART} for table in settings)
    differing = [key for key in dict.fromkeys([*first, *other]) if first.get(key) != other.get(key)]
    checked = {path for checksum, path in _INPUTS.items() if checksum in first and checksum in other}
    names = [
        _INPUTS.get(key) or f"{key} ({first.get(key)}, {other.get(key)})"
        for key in differing
        if key not in checked
    ]
    if not names:
        return ""
    more = f" and {len(names) - _NAMED_SETTINGS} more" if len(names) > _NAMED_SETTINGS else ""
    return (
        f"{run} is no run of the same experiment as {model}: they differ in "
        f"{', '.join(names[:_NAMED_SETTINGS])}{more}"
    )


def with_starts(trained: TrainedTexts, *models: str | None) -> TrainedTexts:
    """Add the texts that the jobs of the initial models trained on; None stands for no model."""
    former = [trained_by(model) for model in models if model is not None]
    return TrainedTexts.joined([trained, *(texts for texts in former if texts is not None)])
