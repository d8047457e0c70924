"""Names of models that neither a directory nor the hub has: why, and what to do."""

import re
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import read_settings
from adiabat.core.errors import ModelError
from adiabat.dual_encoder.train_checks import require_model_names
from adiabat.models.loading import local_folder
from adiabat.models.model_paths import require_on_hub, unknown_model


@pytest.mark.parametrize("find", [require_on_hub, local_folder])
def test_a_name_that_an_offline_cache_lacks_is_told_with_the_way_online(
    find: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        ModelError, match=r"nobody/nothing: .*its cache has none of that name.*unset HF_HUB_OFFLINE"
    ):
        find("nobody/nothing")


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (GatedRepoError, "it is gated.*log in"),
        (RepositoryNotFoundError, "none of that name, or not for you.*check the name"),
        (LocalEntryNotFoundError, "the hub was not reached.*the network"),
    ],
)
def test_an_error_of_the_hub_is_told_without_the_advice_for_callers_of_its_library(
    kind: type[Exception], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    # Without the response that its constructor needs.
    fault = kind.__new__(kind, "pass 'local_files_only=False' as input")
    message = str(unknown_model("a/b", fault))
    assert re.search(told, message)
    assert "local_files_only" not in message


@pytest.mark.parametrize("setting", ["job.model", "towers.document_model", "train.loss.guide"])
def test_a_path_that_is_no_model_is_told_with_the_setting_that_names_it(setting: str, tmp_path: Path) -> None:
    wrong = str(tmp_path / "no model")
    keys = {"train.loss.guide": "train.loss.guide.model"}
    settings = read_settings(
        TrainSettings, None, ["towers.kind=asymmetric", f"{keys.get(setting, setting)}={wrong}"]
    )
    with pytest.raises(
        ModelError,
        match=rf"^{setting} must be a directory, a job, `demo` or a hub name, "
        r"got .*no model: there is no such",
    ):
        require_model_names(settings)


def test_a_hub_that_cannot_be_reached_is_left_to_loading_in_whatever_class_its_library_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    with pytest.raises(ModelError, match=r"the hub did not return it .the read timed out."):
        local_folder("nobody/nothing")
