"""adiabat: tune, train, plan, distil and measure dual-encoder text-embedding models.

The public functions are in `adiabat.api` (the rooms of the package have the names of the verbs, so the functions cannot stand here);
settings are in `adiabat.config`, errors in `adiabat.core.errors`. Importing the package itself loads nothing heavy.
"""

from importlib.metadata import PackageNotFoundError, version

__all__ = ["__version__"]

try:
    __version__ = version("adiabat")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0+unknown"
