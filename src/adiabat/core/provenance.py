"""Where a result came from: versions and dates. Packaged files, checked before they are read."""

import platform
from datetime import UTC, datetime
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from adiabat.core.checksums import digest_of
from adiabat.core.errors import AdiabatError, DataError

PACKAGES = ("adiabat", "torch", "transformers", "tokenizers", "numpy", "pyarrow", "ir-measures")


def versions(device: str) -> dict[str, str]:
    """Versions of what a result depends on."""
    packages = {name: _version(name) for name in PACKAGES}
    return {**packages, "python": platform.python_version(), "platform": f"{platform.system()} {platform.machine()}", "device": device}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed as a package"


def now() -> str:
    """The time."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def packaged_folder(room: str) -> Path:
    """Where the files lie that come with a room of adiabat."""
    # A wheel is unpacked when it is installed, so that the package's files have paths.
    return Path(str(resources.files(f"adiabat.{room}"))) / "files"


def require_published(path: Path, sha256: str, *, remedy: str = "install adiabat again", error: type[AdiabatError] = DataError) -> Path:
    """Refuse a file whose bytes are not those it was published with."""
    if not path.is_file():
        raise error(f"{path} must exist, got no such file; {remedy}")
    if (actual := digest_of(path).sha256) != sha256:
        raise error(f"{path} must have the sha256 {sha256}, got {actual}; {remedy}")
    return path
