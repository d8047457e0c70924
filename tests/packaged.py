"""What tests of packaged files, and of the scripts that made them, share."""

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from adiabat.core.errors import DataError
from adiabat.core.provenance import packaged_folder

SCRIPTS = Path(__file__).parents[1] / "scripts"


def script(name: str) -> ModuleType:
    """One of the scripts, which are in no package, as a module."""
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def copy_read_by(module: ModuleType, room: str, folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """A copy of the files that come with a room, which one of its modules reads in their place."""
    shutil.copytree(packaged_folder(room), folder)
    patch.setattr(module, "packaged_folder", {room: folder}.__getitem__)
    return folder


def require_damage_told(path: Path, read: Callable[[], object]) -> None:
    """Change a file and then remove it: whoever reads it must refuse both, and say what to do."""
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        DataError,
        match=f"{path.name} must have the sha256 [0-9a-f]{{64}}, got [0-9a-f]{{64}}; install adiabat again",
    ):
        read()
    path.unlink()
    with pytest.raises(DataError, match=f"{path.name} must exist, got no such file; install adiabat again"):
        read()
