"""The files of an exported tower that text-embeddings-inference and vLLM read, as docs/serving.md lists."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import adiabat
from adiabat.models.embedding_head import EncoderSettings
from tests.exporting.test_export import two_towers

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
POOLINGS = {"mean": "mean_tokens", "cls": "cls_token", "last": "lasttoken"}


@pytest.fixture(params=POOLINGS)
def pooling(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def tower(tmp_path: Path, pooling: str) -> Path:
    """A query tower with a prompt, a limit of its own and a layer on its pooled state."""
    settings = EncoderSettings(max_tokens=24, query_prompt="query: ", pooling=pooling)
    adiabat.export(two_towers(settings, projection=16), tmp_path / "out", to="sentence-transformers")
    return tmp_path / "out"


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def test_family_weights_and_tokens_lie_in_the_root(tower: Path) -> None:
    config = read(tower, "config.json")
    assert config["architectures"] == ["BertModel"]
    assert config["model_type"] == "bert"
    assert config["max_position_embeddings"] >= 24
    assert {"model.safetensors", "tokenizer.json"} <= {path.name for path in tower.iterdir()}
    # Special tokens come from here, without a Python tokenizer.
    assert read(tower, "tokenizer.json")["post_processor"] is not None


def test_pooling_is_told_by_the_keys_that_both_servers_know(tower: Path, pooling: str) -> None:
    config = read(tower, "1_Pooling/config.json")
    modes = {name for name in POOLINGS.values() if config[f"pooling_mode_{name}"] is True}
    assert modes == {POOLINGS[pooling]}
    # vLLM takes every key that is true for a pooling, and passes over names that it does not know.
    others = {key for key, value in config.items() if value is True} - {f"pooling_mode_{POOLINGS[pooling]}"}
    assert others <= {"include_prompt"}


def test_modules_have_the_names_that_both_servers_compare_with(tower: Path) -> None:
    modules = read(tower, "modules.json")
    types = [module["type"] for module in modules]
    assert [name.removeprefix("sentence_transformers.models.") for name in types] == [
        "Transformer",
        "Pooling",
        "Dense",
        "Normalize",
    ]
    assert all({"idx", "name", "path"} <= module.keys() for module in modules)
    dense = modules[2]["path"]
    layer = read(tower, f"{dense}/config.json")
    assert {"in_features", "out_features", "bias", "activation_function"} <= layer.keys()
    assert (tower / dense / "model.safetensors").is_file()


def test_limit_and_prompt_are_those_of_the_query_tower(tower: Path) -> None:
    limits = read(tower, "sentence_bert_config.json")
    assert limits["max_seq_length"] == 24
    # Without this key vLLM passes over the file.
    assert limits["do_lower_case"] is False
    assert read(tower, "config_sentence_transformers.json")["prompts"]["query"] == "query: "


def test_every_file_of_the_list_is_looked_for_here() -> None:
    table = "\n".join(line for line in PAGE.splitlines() if line.startswith("|"))
    named = set(re.findall(r"`([\w/]+\.(?:json|safetensors))`", table))
    source = Path(__file__).read_text(encoding="utf-8")
    assert {name for name in named if f'"{name}"' not in source} == set()
