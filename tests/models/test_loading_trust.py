"""Loading a model runs none of its code and fetches no more than it may, unless it is trusted by name; and it
is quiet.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers.utils import logging as transformers_logging

from adiabat.core.errors import ModelError
from adiabat.models.backbone import Trust
from adiabat.models.loading import load, local_folder
from adiabat.models.packing import is_packable
from adiabat.models.saving import save
from tests.refused import one_line
from tests.tiny import Kind, edit, save_tiny, tiny_dual, tiny_encoder, write

TEXTS = ["Where does the river rise?", "река"]


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test asks the hub, and code copied out of a model lands in a folder of its own."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(
        "transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules"))
    )
    monkeypatch.setattr(sys, "path", list(sys.path))


PICKLED = ("in a pickle", "set encoder.allow_pickles = true")


def pickled(folder: Path) -> Path:
    """A model whose only weights are a pickle."""
    save_tiny(folder)
    (folder / "model.safetensors").unlink()
    torch.save(tiny_encoder().backbone.state_dict(), folder / "pytorch_model.bin")
    return folder


def test_pickled_weights_are_refused_unless_allowed(tmp_path: Path) -> None:
    with one_line(ModelError, "no file named model.safetensors", *PICKLED):
        load(pickled(tmp_path))
    assert load(tmp_path, trust=Trust(pickles=True)).fingerprint() == tiny_dual().fingerprint()


def test_pickles_that_the_hub_did_not_send_get_the_same_advice(tmp_path: Path) -> None:
    (pickled(tmp_path) / "pytorch_model.bin").unlink()
    with one_line(ModelError, *PICKLED):
        load(tmp_path)
    with pytest.raises(ModelError) as caught:
        load(tmp_path, trust=Trust(pickles=True))
    assert "allow_pickles" not in str(caught.value)


def test_a_projection_in_a_pickle_is_refused_unless_allowed(tmp_path: Path) -> None:
    save_tiny(tmp_path, projection=8)
    whole = load(tmp_path).fingerprint()
    weights = tmp_path / "2_Dense" / "model.safetensors"
    torch.save(load_file(weights), weights.with_name("pytorch_model.bin"))
    weights.unlink()
    with one_line(ModelError, "2_Dense must hold model.safetensors", *PICKLED):
        load(tmp_path)
    assert load(tmp_path, trust=Trust(pickles=True)).fingerprint() == whole


CODE = """
from pathlib import Path

from transformers import BertConfig, BertModel

Path({marker!r}).write_text("ran")


class OwnConfig(BertConfig):
    model_type = "{model_type}"


class OwnModel(BertModel):
    config_class = OwnConfig
"""


def with_own_code(folder: Path, marker: Path, *, model_type: str) -> Path:
    """A model that brings Python files, which write a marker when they run."""
    save_tiny(folder)
    write(folder, "own.py", CODE.format(marker=str(marker), model_type=model_type))
    edit(
        folder,
        "config.json",
        model_type=model_type,
        auto_map={"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"},
    )
    edit(folder, "tokenizer_config.json", auto_map={"AutoTokenizer": [None, "own.OwnTokenizer"]})
    return folder


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """What code of a model writes when it runs."""
    return tmp_path / "marker"


@pytest.mark.parametrize("trust", [None, Trust(), Trust(pickles=True)], ids=["default", "none", "pickles"])
def test_a_model_that_needs_its_own_code_is_refused(
    trust: Trust | None, marker: Path, tmp_path: Path
) -> None:
    folder = with_own_code(tmp_path / "model", marker, model_type="own-bert")
    with one_line(ModelError, "its own Python code", "encoder.trust_remote_code names this model"):
        load(folder, trust=trust)
    assert not marker.exists()


def test_a_known_family_with_code_beside_it_loads_without_running_it(marker: Path, tmp_path: Path) -> None:
    folder = with_own_code(tmp_path / "model", marker, model_type="bert")
    assert load(folder).fingerprint() == tiny_dual().fingerprint()
    assert not marker.exists()


def test_code_of_the_model_named_runs(marker: Path, tmp_path: Path) -> None:
    folder = with_own_code(tmp_path / "model", marker, model_type="own-bert")
    edit(folder, "tokenizer_config.json", auto_map={})
    model = load(folder, trust=Trust(remote_code=str(folder)))
    assert marker.read_text() == "ran"
    assert type(model.query.backbone).__name__ == "OwnModel"
    assert not is_packable(model.query.backbone)
    np.testing.assert_array_equal(
        model.encode(TEXTS, side="query", precision="fp32"),
        tiny_dual().encode(TEXTS, side="query", precision="fp32"),
    )


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_code_of_another_repository_does_not_run(file: str, marker: Path, tmp_path: Path) -> None:
    folder = with_own_code(tmp_path / "model", marker, model_type="own-bert")
    edit(folder, "tokenizer_config.json", auto_map={})
    edit(
        folder,
        file,
        auto_map={"AutoConfig": "other/unnamed--own.OwnConfig", "AutoModel": "other/unnamed--own.OwnModel"},
    )
    with one_line(ModelError, f"/{file} ", "the model itself", "got code of other/unnamed", "copy that code"):
        load(folder, trust=Trust(remote_code=str(folder)))
    assert not marker.exists()


def test_trust_in_another_model_is_refused(marker: Path, tmp_path: Path) -> None:
    folder = with_own_code(tmp_path / "model", marker, model_type="own-bert")
    with one_line(ModelError, "encoder.trust_remote_code", "name of the model loaded", "got 'other/model'"):
        load(folder, trust=Trust(remote_code="other/model"))
    assert not marker.exists()


def test_a_type_named_in_a_file_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "evil.py", f"open({str(tmp_path / 'marker')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    save_tiny(tmp_path / "model", projection=8)
    edit(tmp_path / "model", "2_Dense/config.json", activation_function="evil.Activation")
    with one_line(ModelError, "activation_function", "Tanh", "got evil.Activation"):
        load(tmp_path / "model")
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    ("trust", "fetched"),
    [(None, set()), (Trust(pickles=True), {"*.bin"}), (Trust(remote_code="a/b"), {"*.py"})],
    ids=["default", "pickles", "code"],
)
def test_only_trusted_kinds_of_file_are_fetched(
    trust: Trust | None, fetched: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def download(name: str, *, allow_patterns: list[str], cache_dir: str | None) -> str:
        asked.extend(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert local_folder("a/b", trust=trust) == tmp_path
    assert set(asked) - {"*.json", "*.safetensors", "*.txt", "*.model"} == fetched


# Quiet.


@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_loading_and_saving_are_quiet(kind: Kind, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    save(load(save_tiny(tmp_path / "one", kind)), tmp_path / "two")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("level", [transformers_logging.get_verbosity(), 10])
def test_the_users_logging_and_bars_are_restored(level: int, tmp_path: Path) -> None:
    def hook(factory: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return factory(*given, **named)

    before, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity(level)
    transformers_logging.set_tqdm_hook(hook)
    try:
        load(save_tiny(tmp_path))
        write(tmp_path, "config.json", "{}")
        with pytest.raises(ModelError):
            load(tmp_path)
        assert transformers_logging.get_verbosity() == level
        assert transformers_logging.is_progress_bar_enabled() == bars
        assert transformers_logging.set_tqdm_hook(None) is hook
    finally:
        transformers_logging.set_verbosity(before)
        transformers_logging.set_tqdm_hook(None)
