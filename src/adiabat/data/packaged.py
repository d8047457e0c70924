"""Files that come with a package, checked before they are read, so that a damaged installation is one clear error."""

from importlib import resources
from pathlib import Path

from adiabat.errors import AdiabatError, DataError
from adiabat.seals import digest_of


def packaged_folder(room: str) -> Path:
    """Where the files lie that come with a room of adiabat."""
    # A wheel is unpacked when it is installed, so that the package's files have paths.
    return Path(str(resources.files(f"adiabat.{room}"))) / "files"


def require_published(path: Path, sha256: str, *, remedy: str = "install adiabat again", error: type[AdiabatError] = DataError) -> Path:
    """Refuse a file whose bytes are not those it was published with.

    Args:
        sha256: Of its bytes, in hexadecimal.
    """
    if not path.is_file():
        raise error(f"{path} must exist, got no such file; {remedy}")
    found = digest_of(path).sha256
    if found != sha256:
        raise error(f"{path} must have the sha256 {sha256}, got {found}; {remedy}")
    return path
