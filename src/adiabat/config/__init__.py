"""Settings: what a TOML file, or ``--set key=value``, may say."""

from importlib import import_module
from pkgutil import iter_modules


def __getattr__(name: str) -> object:
    """Find a settings class in the module that defines it."""
    if not name.startswith("_"):
        for module in iter_modules(__path__):
            found: object = getattr(import_module(f"{__name__}.{module.name}"), name, None)
            if found is not None:
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
