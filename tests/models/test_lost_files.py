"""A model directory that lost a file is refused by the name of that file; one that never had it loads."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from adiabat.core.errors import ModelError
from adiabat.models.loading import load, local_folder
from adiabat.models.model_paths import require_name
from tests.models.peer_directories import LIMITS, ROOT, adapted
from tests.models.static_models import write_modules, write_static
from tests.tiny import edit, save_plain, save_tiny, tiny_encoder, write

Change = Callable[[Path], object]


def lose(path: Path) -> None:
    """Leave a link to a blob that is no longer in the hub's cache."""
    path.unlink()
    path.symlink_to("../../blobs/0123abcd")


def files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "README.md"]


@pytest.mark.parametrize(
    "build",
    [save_tiny, lambda folder: save_tiny(folder, projection=8, shared=False), write_static, save_plain],
)
def test_each_file_that_is_a_link_to_nowhere_is_named(build: Callable[[Path], Path], tmp_path: Path) -> None:
    whole = build(tmp_path / "whole")
    for path in files(whole):
        folder = tmp_path / "lost"
        shutil.copytree(whole, folder)
        lost = folder / path.relative_to(whole)
        lose(lost)
        with pytest.raises(
            ModelError,
            match=re.escape(f"{lost} must exist, got a link to ../../blobs/0123abcd, which is not there"),
        ):
            load(folder)
        shutil.rmtree(folder)


def test_a_module_or_a_model_that_is_a_link_to_nowhere_is_named(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    (folder / "2_Normalize").rmdir()
    load(folder)  # Hubs keep no empty folders.
    (folder / "2_Normalize").symlink_to("elsewhere")
    with pytest.raises(ModelError, match=r"2_Normalize must exist, got a link to elsewhere"):
        load(folder)
    (tmp_path / "name").symlink_to("gone")
    for reader in (require_name, local_folder):
        with pytest.raises(ModelError, match=r"name must exist, got a link to gone"):
            reader(str(tmp_path / "name"))


def without(*names: str) -> Change:
    def change(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return change


def router(folder: Path) -> None:
    save_tiny(folder, shared=False)


def bare(folder: Path) -> None:
    """A Router without a stamp or modules of its own name, which is all that is left of it."""
    router(folder)
    without("modules.json", ROOT)(folder)
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    write(folder, "config.json", {})


def new_types(folder: Path) -> None:
    write_static(folder)
    without(ROOT)(folder)


def sharded(folder: Path) -> None:
    save_tiny(folder)
    without("model.safetensors")(folder)
    tiny_encoder().backbone.save_pretrained(folder, max_shard_size="30KB")
    sorted(folder.glob("model-*.safetensors"))[1].unlink()


LOST: dict[str, tuple[Change, Change, str]] = {
    "modules beside a pooling": (
        save_tiny,
        without("modules.json", ROOT),
        r"must hold modules.json, .* it has a folder 1_Pooling",
    ),
    "modules beside routes": (
        router,
        without("modules.json", ROOT),
        r"must hold modules.json, .* it has a folder document_0_Transformer",
    ),
    "modules of a router": (bare, lambda _: None, r"must hold modules.json, .* it has router_config.json"),
    "modules beside a stamp": (
        save_plain,
        lambda folder: write(folder, ROOT, {"__version__": {"sentence_transformers": "2.2.2"}}),
        r"must hold modules.json, .* it has a __version__ in config_sentence_transformers.json",
    ),
    "modules of a static model": (
        write_static,
        without("modules.json"),
        r"must hold modules.json, .* a folder 0_StaticEmbedding",
    ),
    "root of a router": (
        router,
        without(ROOT),
        r"must hold config_sentence_transformers.json, which has its prompts .* router_config.json",
    ),
    "root of new modules": (
        new_types,
        lambda _: None,
        r"must hold config_sentence_transformers.json, .* a module of type sentence_transf",
    ),
    "limits": (
        save_tiny,
        without(LIMITS),
        r"must hold sentence_bert_config.json: every version .* that writes __version__",
    ),
    "limits of a route": (
        router,
        without(f"query_0_Transformer/{LIMITS}"),
        r"query_0_Transformer must hold sentence_bert_config.json",
    ),
    "settings of the tokenizer": (
        save_tiny,
        without("tokenizer_config.json"),
        r"must hold tokenizer_config.json: every version",
    ),
    "a part of the weights": (
        sharded,
        lambda _: None,
        r"model.safetensors.index.json lists, got no model-00002-of-\d+.safetensors",
    ),
}


@pytest.mark.parametrize(("build", "change", "message"), LOST.values(), ids=LOST)
def test_a_lost_file_is_named_with_what_shows_that_it_was_there(
    build: Change, change: Change, message: str, tmp_path: Path
) -> None:
    build(tmp_path / "model")
    change(tmp_path / "model")
    with pytest.raises(ModelError, match=message) as caught:
        load(tmp_path / "model")
    assert str(caught.value).startswith(str(tmp_path / "model"))
    assert "get the model again" in str(caught.value)


@pytest.mark.parametrize("name", ["modules beside a pooling", "root of a router"])
def test_a_lost_list_is_told_before_a_model_is_loaded(name: str, tmp_path: Path) -> None:
    build, change, message = LOST[name]
    build(tmp_path / "model")
    change(tmp_path / "model")
    with pytest.raises(ModelError, match=message):
        require_name(str(tmp_path / "model"))


def unstamped(folder: Path) -> None:
    """As people write directories by hand."""
    save_tiny(folder)
    root = json.loads((folder / ROOT).read_text(encoding="utf-8"))
    del root["__version__"]
    write(folder, ROOT, root)


def beside(name: str, content: str) -> Change:
    """A folder that no reader opens, with a file of this content."""

    def change(folder: Path) -> None:
        (folder / name).mkdir()
        (folder / name / "tokenizer.json").write_text(content, encoding="utf-8")

    return change


def exported(folder: Path) -> None:
    (folder / "onnx").mkdir()
    (folder / "onnx" / "config.json").symlink_to("../../../blobs/0123abcd")


NEVER_THERE: dict[str, tuple[Change, Change]] = {
    "a plain model": (save_plain, lambda _: None),
    "a plain model with prompts": (
        save_plain,
        lambda folder: write(folder, ROOT, {"prompts": {"query": "query: "}}),
    ),
    "version 1, without a root configuration": (save_tiny, without(ROOT)),
    "by hand, without limits": (unstamped, without(LIMITS)),
    "by hand, without settings of the tokenizer": (unstamped, without("tokenizer_config.json")),
    "a limit by an old name": (
        save_tiny,
        lambda folder: (folder / LIMITS).rename(folder / "sentence_roberta_config.json"),
    ),
    "a folder that looks like a module": (save_plain, beside("epoch_3_Best", "{}")),
    "an export left as a pointer": (
        save_tiny,
        beside("onnx", "version https://git-lfs.github.com/spec/v1\n"),
    ),
    "an export that is not in the cache": (save_tiny, exported),
    "an adapter": (adapted("bert", ["query"]), lambda _: None),
    "a static model has no limits": (
        write_static,
        lambda folder: edit(folder, ROOT, __version__={"sentence_transformers": "5.0.0"}),
    ),
    "weights in one file beside an old index": (
        save_tiny,
        lambda folder: write(
            folder, "model.safetensors.index.json", {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
        ),
    ),
}


@pytest.mark.parametrize(("build", "change"), NEVER_THERE.values(), ids=NEVER_THERE)
def test_a_file_that_was_never_there_is_not_missed(build: Change, change: Change, tmp_path: Path) -> None:
    build(tmp_path / "model")
    change(tmp_path / "model")
    assert load(tmp_path / "model").width


def test_modules_of_a_former_name_need_no_root_configuration(tmp_path: Path) -> None:
    write_static(tmp_path)
    write_modules(tmp_path, ("0_StaticEmbedding", "sentence_transformers.models.StaticEmbedding"))
    (tmp_path / ROOT).unlink()
    assert load(tmp_path).width
