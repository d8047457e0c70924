"""A model directory that lost a file is refused by the name of that file; one that never had it loads."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from adiabat.core.errors import ModelError
from adiabat.models.loading import load, local_folder
from adiabat.models.model_paths import require_name
from tests.models.peer_directories import adapted
from tests.models.static_models import write_modules, write_static
from tests.models.worlds import (
    INDEX,
    LIMITS,
    ROOT,
    ROUTER,
    TOKENIZER,
    Build,
    after,
    edited,
    removed,
    renamed,
    written,
)
from tests.refused import Facts, one_line
from tests.tiny import save_plain, save_tiny, tiny_encoder, write


def lose(path: Path) -> None:
    """Leave a link to a blob that is no longer in the hub's cache."""
    path.unlink()
    path.symlink_to("../../blobs/0123abcd")


def files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "README.md"]


@pytest.mark.parametrize(
    "build",
    [save_tiny, partial(save_tiny, projection=8, shared=False), write_static, save_plain],
)
def test_each_file_that_is_a_link_to_nowhere_is_named(build: Callable[[Path], Path], tmp_path: Path) -> None:
    whole = build(tmp_path / "whole")
    for path in files(whole):
        folder = tmp_path / "lost"
        shutil.copytree(whole, folder)
        lost = folder / path.relative_to(whole)
        lose(lost)
        with one_line(ModelError, f"{lost} must exist", "got a link to ../../blobs/0123abcd", "not there"):
            load(folder)
        shutil.rmtree(folder)


def test_a_module_or_a_model_that_is_a_link_to_nowhere_is_named(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    (folder / "2_Normalize").rmdir()
    load(folder)  # Hubs keep no empty folders.
    (folder / "2_Normalize").symlink_to("elsewhere")
    with one_line(ModelError, "2_Normalize must exist", "got a link to elsewhere"):
        load(folder)
    (tmp_path / "name").symlink_to("gone")
    for reader in (require_name, local_folder):
        with one_line(ModelError, "name must exist", "got a link to gone"):
            reader(str(tmp_path / "name"))


PAIR: Build = partial(save_tiny, shared=False)


def bare(folder: Path) -> None:
    """A Router without a stamp or modules of its own name, which is all that is left of it."""
    PAIR(folder)
    folders = [path.name for path in folder.iterdir() if path.is_dir()]
    after(removed("modules.json", ROOT, *folders), written("config.json", {}))(folder)


def sharded(folder: Path) -> None:
    after(save_tiny, removed("model.safetensors"))(folder)
    tiny_encoder().backbone.save_pretrained(folder, max_shard_size="30KB")
    sorted(folder.glob("model-*.safetensors"))[1].unlink()


STAMPED = {"__version__": {"sentence_transformers": "2.2.2"}}
NO_LIST = "/model must hold modules.json, "
LOST: dict[str, tuple[Build, Facts]] = {
    "modules beside a pooling": (
        after(save_tiny, removed("modules.json", ROOT)),
        (NO_LIST, "it has a folder 1_Pooling"),
    ),
    "modules beside routes": (
        after(PAIR, removed("modules.json", ROOT)),
        (NO_LIST, "it has a folder document_0_Transformer"),
    ),
    "modules of a router": (bare, (NO_LIST, f"it has {ROUTER}")),
    "modules beside a stamp": (
        after(save_plain, written(ROOT, STAMPED)),
        (NO_LIST, f"it has a __version__ in {ROOT}"),
    ),
    "modules of a static model": (
        after(write_static, removed("modules.json")),
        (NO_LIST, "a folder 0_StaticEmbedding"),
    ),
    "root of a router": (after(PAIR, removed(ROOT)), (f"/model must hold {ROOT}", "its prompts", ROUTER)),
    "root of new modules": (
        after(write_static, removed(ROOT)),
        (f"/model must hold {ROOT}", "a module of type sentence_transf"),
    ),
    "limits": (after(save_tiny, removed(LIMITS)), (f"/model must hold {LIMITS}", "writes __version__")),
    "limits of a route": (
        after(PAIR, removed(f"query_0_Transformer/{LIMITS}")),
        (f"query_0_Transformer must hold {LIMITS}",),
    ),
    "settings of the tokenizer": (
        after(save_tiny, removed(TOKENIZER)),
        (f"/model must hold {TOKENIZER}", "every version"),
    ),
    "a part of the weights": (sharded, (f"{INDEX} lists", "got no model-00002-of-")),
}


@pytest.mark.parametrize(("build", "facts"), LOST.values(), ids=LOST)
def test_a_lost_file_is_named_with_its_traces(build: Build, facts: Facts, tmp_path: Path) -> None:
    build(tmp_path / "model")
    with one_line(ModelError, *facts, str(tmp_path / "model"), "get the model again"):
        load(tmp_path / "model")


@pytest.mark.parametrize("name", ["modules beside a pooling", "root of a router"])
def test_a_lost_list_is_told_before_a_model_is_loaded(name: str, tmp_path: Path) -> None:
    build, facts = LOST[name]
    build(tmp_path / "model")
    with one_line(ModelError, *facts):
        require_name(str(tmp_path / "model"))


def unstamped(folder: Path) -> None:
    """As people write directories by hand."""
    save_tiny(folder)
    root = json.loads((folder / ROOT).read_text())
    del root["__version__"]
    write(folder, ROOT, root)


def beside(name: str, content: str) -> Build:
    """A folder that no reader opens, with a file of this content."""

    def build(folder: Path) -> None:
        (folder / name).mkdir()
        write(folder / name, "tokenizer.json", content)

    return build


def exported(folder: Path) -> None:
    (folder / "onnx").mkdir()
    (folder / "onnx" / "config.json").symlink_to("../../../blobs/0123abcd")


OLD_INDEX = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
NEVER_THERE: dict[str, Build] = {
    "a plain model": save_plain,
    "a plain model with prompts": after(save_plain, written(ROOT, {"prompts": {"query": "query: "}})),
    "version 1, without a root configuration": after(save_tiny, removed(ROOT)),
    "by hand, without limits": after(unstamped, removed(LIMITS)),
    "by hand, without settings of the tokenizer": after(unstamped, removed(TOKENIZER)),
    "a limit by an old name": after(save_tiny, renamed(LIMITS, "sentence_roberta_config.json")),
    "a folder that looks like a module": after(save_plain, beside("epoch_3_Best", "{}")),
    "an export left as a pointer": after(
        save_tiny, beside("onnx", "version https://git-lfs.github.com/spec/v1\n")
    ),
    "an export that is not in the cache": after(save_tiny, exported),
    "an adapter": adapted("bert", ["query"]),
    "a static model has no limits": after(
        write_static, edited(ROOT, __version__={"sentence_transformers": "5.0.0"})
    ),
    "weights in one file beside an old index": after(save_tiny, written(INDEX, OLD_INDEX)),
}


@pytest.mark.parametrize("build", NEVER_THERE.values(), ids=NEVER_THERE)
def test_a_file_that_was_never_there_is_not_missed(build: Build, tmp_path: Path) -> None:
    build(tmp_path / "model")
    assert load(tmp_path / "model").width


def test_modules_of_a_former_name_need_no_root_configuration(tmp_path: Path) -> None:
    write_static(tmp_path)
    write_modules(tmp_path, ("0_StaticEmbedding", "sentence_transformers.models.StaticEmbedding"))
    (tmp_path / ROOT).unlink()
    assert load(tmp_path).width
