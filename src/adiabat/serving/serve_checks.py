"""Checks of a server by its settings, packages and paths, before torch is loaded."""

from collections.abc import Sequence
from pathlib import Path

from adiabat.config.serving import ServeSettings
from adiabat.config.shared import require_device_name
from adiabat.core.errors import ConfigError, require_packages
from adiabat.core.wording import option
from adiabat.models.model_paths import require_names, require_reachable
from adiabat.store.analysers import analyser_of
from adiabat.store.vector_store import require_readable

PACKAGES = ("fastapi", "uvicorn", "prometheus_client")


def require_server(store: str, settings: ServeSettings) -> dict[str, str]:
    """Check that a server can start.

    Returns:
        Name to model.
    """
    require_packages(PACKAGES, extra="serve", purpose="a server")
    if settings.serve.approximate:
        require_packages(["faiss"], extra="faiss", purpose="approximate search")
    named = named_towers(settings.serve.towers)
    require_device_name(settings.run.device)
    require_readable(store)
    analyser_of(settings.fuse.stemmer)
    for model in named.values():
        require_names(model, named_by="serve.towers")
    require_reachable(*named.values(), named_by="serve.towers")
    return named


def require_client() -> None:
    """Refuse to ask an endpoint without a client of HTTP."""
    require_packages(["httpx2"], extra="serve", purpose="a client of an endpoint")


def named_towers(texts: Sequence[str]) -> dict[str, str]:
    """Name to model, of ``NAME=MODEL`` or a model alone."""
    if not texts:
        raise ConfigError(f"serve.towers must name a tower, got none; add {option('tower', 'NAME=MODEL')}")
    named: dict[str, str] = {}
    for text in texts:
        name, equals, model = text.partition("=")
        if not equals:
            name, model = Path(text).name, text
        if not name or not model or "/" in name:
            raise ConfigError(f"serve.towers must be NAME=MODEL, got {text!r}; a name has no slash")
        if name in named:
            raise ConfigError(f"serve.towers must have each name once, got {name} twice; name one otherwise")
        named[name] = model
    return named
