"""Damage, and what adiabat does not have, is told in one clear line."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

from adiabat.core.errors import AdiabatError, ConfigError, ModelError
from adiabat.models.loading import load
from tests.tiny import edit, save_tiny, write


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


Spoil = Callable[[Path], object]


def replaced(name: str, content: object) -> Spoil:
    return lambda folder: write(folder, name, content)


def removed(*names: str) -> Spoil:
    def remove(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return remove


def edited(name: str, **changes: object) -> Spoil:
    return lambda folder: edit(folder, name, **changes)


def truncated(name: str) -> Spoil:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:500])


LIMITS = "sentence_bert_config.json"
MODELS = "sentence_transformers.models"


def modules(*kinds: str) -> Spoil:
    folders = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense", "Normalize": "3_Normalize"}
    entries = [
        {"idx": i, "name": str(i), "path": folders.get(kind, kind), "type": f"{MODELS}.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    return replaced("modules.json", entries)


FAULTS: dict[str, tuple[Spoil, str]] = {
    "damaged config": (replaced("config.json", "{"), r"config.json must be undamaged, got JSONDecodeError"),
    "config that is a list": (replaced("config.json", []), r"config.json must hold a JSON object, got list"),
    "config of no family": (
        replaced("config.json", {}),
        r"must hold a transformers model: Unrecognized model",
    ),
    "unknown family": (edited("config.json", model_type="nope"), r"must hold a transformers model: .*`nope`"),
    "missing config": (removed("config.json"), r"must hold a transformers model"),
    "missing weights": (
        removed("model.safetensors"),
        r"must hold a transformers model: .*no file named model.safetensors",
    ),
    "truncated weights": (truncated("model.safetensors"), r"must hold a transformers model"),
    "too few weights": (
        edited("config.json", num_hidden_layers=2),
        r"config.json .*BertModel.*; 16 are missing .*encoder.layer.1",
    ),
    "weights of another shape": (
        edited("config.json", vocab_size=99),
        r"1 are missing or of another shape, such as embeddings.word_emb",
    ),
    "missing tokenizer": (
        removed("tokenizer.json", "tokenizer_config.json"),
        r"must hold a tokenizer, got none of tokenizer.json",
    ),
    "damaged tokenizer": (
        replaced("tokenizer.json", "{"),
        r"tokenizer.json must be undamaged, got JSONDecodeError",
    ),
    "empty tokenizer": (replaced("tokenizer.json", {}), r"must hold a tokenizer: "),
    "damaged modules": (
        replaced("modules.json", "nope"),
        r"modules.json must be undamaged, got JSONDecodeError",
    ),
    "modules that are no list": (
        replaced("modules.json", {}),
        r"modules.json must hold a JSON list, got dict",
    ),
    "no modules": (
        replaced("modules.json", []),
        r"modules.json must hold a list of modules with their types and paths, got \[\]",
    ),
    "module at a number": (
        replaced("modules.json", [{"type": f"{MODELS}.Transformer", "path": 3}]),
        r"list of modules with their types",
    ),
    "width that is a word": (edited("config.json", hidden_size="abc"), r"must hold a transformers model: \S"),
    "width of nothing": (edited("config.json", hidden_size=0), r"must hold a transformers model: \S"),
    "unknown activation": (
        edited("config.json", hidden_act="nope"),
        r"must hold a transformers model: KeyError: 'nope'",
    ),
    "tokenizer settings that are a list": (
        replaced("tokenizer_config.json", []),
        r"tokenizer_config.json must hold a JSON object, got list",
    ),
    "pooling that is a number": (
        replaced("1_Pooling/config.json", {"pooling_mode": 3}),
        r"must name one pooling .*, got 3",
    ),
    "module without a type": (
        replaced("modules.json", [{"path": ""}]),
        r"modules.json must hold type, got path",
    ),
    "bag of words": (modules("BoW"), r"first module must be a Transformer or a StaticEmbedding, got BoW"),
    "normalise before dense": (
        modules("Transformer", "Pooling", "Normalize", "Dense"),
        r"must be Pooling.*, got Pooling, Normalize, Dense",
    ),
    "unknown module": (
        modules("Transformer", "Pooling", "LSTM"),
        r"must be Pooling, any Dense, then Normalize, got Pooling, LSTM",
    ),
    "two poolings": (modules("Transformer", "Pooling", "Pooling"), r"then Normalize, got Pooling, Pooling"),
    "missing pooling": (removed("1_Pooling/config.json"), r"must name one pooling of mean, .*, got none"),
    "missing dense weights": (removed("2_Dense/model.safetensors"), r"2_Dense must hold model.safetensors"),
    "damaged dense weights": (
        truncated("2_Dense/model.safetensors"),
        r"2_Dense/model.safetensors must be undamaged, got SafetensorError",
    ),
    "dense of another width": (
        edited("2_Dense/config.json", out_features=5),
        r"must hold a linear layer of 32 to 5: ",
    ),
    "dense without widths": (
        replaced("2_Dense/config.json", {}),
        r"config.json must hold in_features, out_features, got nothing",
    ),
    "limit past the positions": (
        edited(LIMITS, max_seq_length=601),
        r"encoder.max_tokens must be <= 600, .*got 601",
    ),
    "options of a call that are a list": (
        edited(LIMITS, processing_kwargs=[1]),
        r"^\S+: processing_kwargs must map names to values, got \[1\]",
    ),
    "options of texts that are a number": (
        edited(LIMITS, processing_kwargs={"text": 3}),
        r"text must map names to values, got 3",
    ),
    "dense of words": (
        edited("2_Dense/config.json", in_features="a"),
        r"in_features must be a whole number above 0, got 'a'",
    ),
    "dense of less than nothing": (
        edited("2_Dense/config.json", out_features=-3),
        r"out_features must be a whole number above 0, got -3",
    ),
    "activation that is a list": (
        edited("2_Dense/config.json", activation_function=[]),
        r"must be undamaged, got TypeError",
    ),
    "weights in a list": (
        edited("config.json", transformers_weights=["x"]),
        r"must be undamaged, got TypeError",
    ),
    "index of a list": (
        replaced("model.safetensors.index.json", {"weight_map": [1]}),
        r"must be undamaged, got AttributeError",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_clear_line(name: str, tmp_path: Path) -> None:
    spoil, message = FAULTS[name]
    save_tiny(tmp_path, projection=8)
    spoil(tmp_path)
    with pytest.raises(AdiabatError, match=message) as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, r"router_config.json must hold types, structure, got nothing"),
        ({"types": [], "structure": []}, r"types must map names to values, got \[\]"),
        ({"types": {}, "structure": {"query": ["a"]}}, r"must have routes query and document, got query"),
        (
            {"types": {}, "structure": {"query": ["a"], "document": []}},
            r"must have routes query and document",
        ),
        (
            {"types": {"a": f"{MODELS}.Transformer"}, "structure": {"query": ["a"], "document": ["b"]}},
            r"_config.json must hold b, got a",
        ),
    ],
)
def test_a_faulty_router_is_told(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    write(save_tiny(tmp_path, shared=False), "router_config.json", config)
    with pytest.raises(ModelError, match=message):
        load(tmp_path)


def test_a_directory_of_something_else_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError,
        match=r"must be the directory of a model, with a config.json or "
        r"modules.json, got nothing in it; name",
    ):
        load(tmp_path)
    for name in ("vectors.bin", "manifest.json", "a", "b", "c"):
        (tmp_path / name).touch()
    with pytest.raises(ModelError, match=r"got a, b, c, manifest.json, ... in it; name another$"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["nobody/nothing", "nothing", "/no/such/folder/at all", "a/b/c"])
def test_a_name_that_cannot_be_had_is_one_clear_line(name: str) -> None:
    with pytest.raises(
        ModelError, match=rf"model must be .* got {name}: no such directory, and the hub .*\(\S"
    ) as caught:
        load(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_tokns": 3}, r"unknown key encoder.max_tokns; known are pooling, .*max_tokens"),
        (
            {"max_tokens": 601},
            r"encoder.max_tokens must be <= 600, the positions that the backbone has, got 601",
        ),
        ({"max_tokens": 1}, r"encoder.max_tokens must be >= 3"),
    ],
)
def test_faulty_settings_are_refused(settings: dict[str, int], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        load(save_tiny(tmp_path), settings=settings)


def test_a_pointer_of_git_lfs_under_any_name_is_named(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    read = {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.suffix in (".json", ".safetensors", ".txt")
    }
    assert len(read) > 5
    for path, content in read.items():
        path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
        with pytest.raises(ModelError) as caught:
            load(folder)
        assert (
            f"{path} must hold its content, got a Git LFS pointer; fetch the file with git lfs pull"
            in str(caught.value)
        )
        path.write_bytes(content)


def zeroed(content: bytes, place: int) -> bytes:
    return content[:place] + bytes(64) + content[place + 64 :]


@pytest.mark.parametrize("name", ["vocab.txt", "merges.txt"])
def test_a_lost_block_of_a_list_of_words_is_named_with_its_line(name: str, tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    words = "".join(f"word{number:04}\n" for number in range(100)).encode()
    (folder / name).write_bytes(words)
    load(folder)
    # Nine bytes a line: the block begins within line 31.
    (folder / name).write_bytes(zeroed(words, 30 * 9 + 4))
    with pytest.raises(ModelError, match=rf"{name}:31 must be text, got a zero byte"):
        load(folder)


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"]
)
@pytest.mark.parametrize(
    "damage",
    [lambda content: zeroed(content, len(content) // 2), lambda content: content[: len(content) // 2]],
)
def test_a_damaged_file_of_a_tokenizer_is_named(
    name: str, damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    folder = save_tiny(tmp_path / "model")
    path = folder / name
    if not path.exists():
        write(folder, name, {})
    # Blanks, so that the block lies within the object.
    path.write_bytes(damage(path.read_bytes().rstrip(b"\n}") + b" " * 200 + b"}"))
    with pytest.raises(ModelError, match=re.escape(f"{path} must be undamaged, got ")):
        load(folder)
