"""Where a result came from: versions, time and device, so that every result file can be told apart and repeated."""

import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("adiabat", "torch", "transformers", "tokenizers", "numpy", "pyarrow", "ir-measures")


def versions(device: str) -> dict[str, str]:
    """Versions of what a result depends on."""
    found = {name: _version(name) for name in PACKAGES}
    return {**found, "python": platform.python_version(), "platform": f"{platform.system()} {platform.machine()}", "device": device}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed as a package"


def now() -> str:
    """The time."""
    return datetime.now(UTC).isoformat(timespec="seconds")
