"""Damage, values of other types, and what is no embedding model are told in one line; no file points outside
of its model or to compiled code.
"""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import torch
import transformers as tf
import transformers.modeling_utils
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SparseEncoder
from tokenizers.processors import TemplateProcessing

import adiabat
from adiabat.core.errors import ConfigError, ModelError
from adiabat.models.loading import load
from tests.models.peer_directories import adapted, assert_same_vectors
from tests.models.static_models import word_table, write_model2vec
from tests.models.worlds import (
    DENSE,
    INDEX,
    LIMITS,
    POOLING,
    ROOT,
    ROUTER,
    TOKENIZER,
    Build,
    after,
    edited,
    removed,
    truncated,
    written,
)
from tests.refused import Facts, one_line
from tests.tiny import VOCABULARY, edit, save_plain, save_tiny, tiny_tokenizer, write


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


MODELS = "sentence_transformers.models"
ADAPTER = "adapter_config.json"
WEIGHTS = "model.safetensors"
DENSE_WEIGHTS = f"2_Dense/{WEIGHTS}"

SIZES: dict[str, Any] = {
    **{
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    },
    "num_labels": 1,
}


def saved(kind: type[tf.PreTrainedModel], config: tf.PreTrainedConfig) -> Build:
    """A plain directory of any class of transformers."""

    def build(folder: Path) -> None:
        kind(config).save_pretrained(folder)
        tiny_tokenizer().save_pretrained(folder)

    return build


def cross_encoder(folder: Path) -> None:
    saved(tf.BertForSequenceClassification, tf.BertConfig(**SIZES))(folder.parent / "plain")
    CrossEncoder(str(folder.parent / "plain"), device="cpu").save_pretrained(str(folder))


def sparse_encoder(folder: Path) -> None:
    saved(tf.BertForMaskedLM, tf.BertConfig(**SIZES))(folder.parent / "plain")
    SparseEncoder(str(folder.parent / "plain"), device="cpu").save_pretrained(str(folder))


def modules(*kinds: str) -> Build:
    """List modules of sentence-transformers in this order."""
    folders = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense", "Normalize": "3_Normalize"}
    entries = [
        {"idx": i, "name": str(i), "path": folders.get(kind, kind), "type": f"{MODELS}.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    return written("modules.json", entries)


def late_interaction(**root: object) -> Build:
    kinds = {"": f"{MODELS}.Transformer", "2_Dense": "pylate.models.Dense.Dense"}
    listed = [{"path": path, "type": kind} for path, kind in kinds.items()]
    return after(partial(save_tiny, projection=8), edited(ROOT, **root), written("modules.json", listed))


def own_code(folder: Path) -> None:
    save_tiny(folder)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["type"] = "custom_st.Transformer"
    write(folder, "modules.json", modules)


def left_over(name: str, build: Build = save_tiny) -> Build:
    def make(folder: Path) -> None:
        build(folder)
        tensors = load_file(folder / "model.safetensors")
        save_file({**tensors, name: torch.zeros(2, 32)}, folder / "model.safetensors", {"format": "pt"})

    return make


def other_token_types(folder: Path) -> None:
    save_tiny(folder)
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A:0 [CLS]:2", special_tokens=[("[CLS]", 0)]
    )
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names
    tokenizer.save_pretrained(folder)


def adapter(**changes: object) -> Build:
    """An adapter beside nothing, with other values in its configuration."""
    return after(adapted("bert", ["query", "value"]), edited(ADAPTER, **changes))


def pickled_adapter(folder: Path) -> None:
    adapter()(folder)
    torch.save(load_file(folder / "adapter_model.safetensors"), folder / "adapter_model.bin")
    (folder / "adapter_model.safetensors").unlink()


def outside(path: str, *, link: str | None = None) -> Build:
    """A module that lies outside of its model: at an absolute path, upwards, or by a link."""

    def build(folder: Path) -> None:
        save_tiny(folder)
        shutil.copytree(folder / "1_Pooling", folder.parent / "elsewhere")
        if link is not None:
            (folder / path.partition("/")[0]).symlink_to(folder / link)
        modules = json.loads((folder / "modules.json").read_text())
        modules[1]["path"] = path.format(folder.parent)
        write(folder, "modules.json", modules)

    return build


def route_outside(folder: Path) -> None:
    PAIR(folder)
    record = json.loads((folder / ROUTER).read_text())
    route = record["structure"]["query"]
    shutil.move(folder / route[0], folder.parent / "elsewhere")
    record["types"]["../elsewhere"] = record["types"].pop(route[0])
    route[0] = "../elsewhere"
    write(folder, ROUTER, record)


HALVES = {f"{half}_{size}": 4 for half in ("encoder", "decoder") for size in ("attention_heads", "ffn_dim")}
WEIGHTS_OUTSIDE: dict[str, dict[str, object]] = {
    INDEX: {
        "metadata": {},
        "weight_map": {"embeddings.word_embeddings.weight": "../elsewhere.safetensors"},
    },
    "config.json": {"model_type": "bert", "transformers_weights": "/etc/elsewhere.safetensors"},
}
ROUTERS: dict[str, tuple[dict[str, object], Facts]] = {
    "of nothing": ({}, ("hold types, structure", "got nothing")),
    "in lists": ({"types": [], "structure": []}, ("types must map names", "got []")),
    "of one route": ({"types": {}, "structure": {"query": ["a"]}}, ("query and document", "got query")),
    "of an empty route": (
        {"types": {}, "structure": {"query": ["a"], "document": []}},
        ("query and document",),
    ),
    "of a module without a type": (
        {"types": {"a": f"{MODELS}.Transformer"}, "structure": {"query": ["a"], "document": ["b"]}},
        ("hold b", "got a"),
    ),
}


def named(key: str, value: object) -> tuple[str, ...]:
    """The key, unless its value is a table, of which the refusal names a key."""
    return () if isinstance(value, dict) and value else (key,)


def static(folder: Path) -> None:
    write_model2vec(folder, {"embeddings": word_table()})


PROJECTED: Build = partial(save_tiny, projection=8)
PAIR: Build = partial(save_tiny, shared=False)
DECODER: Build = partial(save_tiny, kind="llama")
NO_MODEL = "a transformers model: "
MISFIT = "missing, left over or of another shape"
OUTSIDE = ("modules.json", "inside the model's own", "copy that folder")

DAMAGED: dict[str, tuple[Build, Facts]] = {
    "damaged config": (written("config.json", "{"), ("/config.json ", "undamaged", "got JSONDecodeError")),
    "config that is a list": (written("config.json", []), ("/config.json ", "a JSON object", "got list")),
    "config of no family": (written("config.json", {}), (NO_MODEL, "Unrecognized model")),
    "unknown family": (edited("config.json", model_type="nope"), (NO_MODEL, "`nope`")),
    "missing config": (removed("config.json"), (NO_MODEL, "in its config.json")),
    "missing weights": (removed(WEIGHTS), (NO_MODEL, f"no file named {WEIGHTS}")),
    "truncated weights": (truncated(WEIGHTS), (NO_MODEL, "SafetensorError")),
    "too few weights": (
        edited("config.json", num_hidden_layers=2),
        ("its config.json describes", "BertModel", "; 16 are missing", "encoder.layer.1"),
    ),
    "weights of another shape": (
        edited("config.json", vocab_size=99),
        ("1 are missing or of another shape", "embeddings.word_emb"),
    ),
    "missing tokenizer": (removed("tokenizer.json", TOKENIZER), ("a tokenizer", "none of tokenizer.json")),
    "damaged tokenizer": (
        written("tokenizer.json", "{"),
        ("/tokenizer.json ", "undamaged", "JSONDecodeError"),
    ),
    "empty tokenizer": (written("tokenizer.json", {}), ("must hold a tokenizer: ", "KeyError")),
    "tokenizer settings in a list": (written(TOKENIZER, []), (TOKENIZER, "a JSON object", "got list")),
    "damaged modules": (
        written("modules.json", "nope"),
        ("modules.json", "undamaged", "got JSONDecodeError"),
    ),
    "modules that are no list": (written("modules.json", {}), ("modules.json", "a JSON list", "got dict")),
    "no modules": (written("modules.json", []), ("modules.json", "types and paths", "got []")),
    "module at a number": (
        written("modules.json", [{"type": f"{MODELS}.Transformer", "path": 3}]),
        ("modules.json", "types and paths", "'path': 3"),
    ),
    "module without a type": (
        written("modules.json", [{"path": ""}]),
        ("modules.json", "hold type", "got path"),
    ),
    "width that is a word": (
        edited("config.json", hidden_size="abc"),
        (NO_MODEL, "'hidden_size'", "expected int"),
    ),
    "width of nothing": (edited("config.json", hidden_size=0), (NO_MODEL, "ZeroDivisionError")),
    "unknown activation": (edited("config.json", hidden_act="nope"), (NO_MODEL, "KeyError: 'nope'")),
    "pooling that is a number": (written(POOLING, {"pooling_mode": 3}), ("one pooling of mean, ", "got 3")),
    "missing pooling": (removed(POOLING), ("one pooling of mean, ", "got none")),
    "bag of words": (modules("BoW"), ("Transformer or a StaticEmbedding", "got BoW")),
    "normalise before dense": (
        modules("Transformer", "Pooling", "Normalize", "Dense"),
        ("must be Pooling", "got Pooling, Normalize, Dense"),
    ),
    "unknown module": (
        modules("Transformer", "Pooling", "LSTM"),
        ("Pooling, any Dense, then Normalize", "got Pooling, LSTM"),
    ),
    "two poolings": (
        modules("Transformer", "Pooling", "Pooling"),
        ("then Normalize", "got Pooling, Pooling"),
    ),
    "missing dense weights": (removed(DENSE_WEIGHTS), ("/2_Dense ", f"hold {WEIGHTS}")),
    "damaged dense weights": (truncated(DENSE_WEIGHTS), (DENSE_WEIGHTS, "undamaged", "got SafetensorError")),
    "dense of another width": (
        edited(DENSE, out_features=5),
        ("a linear layer of 32 to 5: ", "size mismatch for linear.weight"),
    ),
    "dense without widths": (
        written(DENSE, {}),
        ("config.json", "hold in_features, out_features", "nothing"),
    ),
    "dense of words": (edited(DENSE, in_features="a"), ("in_features", "whole number above 0", "got 'a'")),
    "dense of less than nothing": (
        edited(DENSE, out_features=-3),
        ("out_features", "whole number above 0", "got -3"),
    ),
    "activation that is a list": (edited(DENSE, activation_function=[]), ("undamaged", "got TypeError")),
    "limit past the positions": (
        edited(LIMITS, max_seq_length=601),
        ("encoder.max_tokens", "<= 600", "got 601"),
    ),
    "options of a call that are a list": (
        edited(LIMITS, processing_kwargs=[1]),
        (f"{LIMITS}: processing_kwargs", "map names to values", "got [1]"),
    ),
    "options of texts that are a number": (
        edited(LIMITS, processing_kwargs={"text": 3}),
        (f"{LIMITS}: text", "map names to values", "got 3"),
    ),
    "weights in a list": (edited("config.json", transformers_weights=["x"]), ("undamaged", "got TypeError")),
    "index of a list": (written(INDEX, {"weight_map": [1]}), ("undamaged", "got AttributeError")),
}
"""What spoils a whole model, and facts of the refusal."""

OF_ANOTHER_TYPE: dict[str, tuple[Build, str, str, object, Facts]] = {
    "a width": (PROJECTED, DENSE, "in_features", 32.0, ("whole number above 0", "got 32.0")),
    "no width": (PROJECTED, DENSE, "out_features", True, ("whole number above 0", "got True")),
    "prompts": (save_tiny, ROOT, "prompts", [], ("map names to values", "got []")),
    "parameters of a router": (PAIR, ROUTER, "parameters", [], ("map names to values", "got []")),
    "options of a tokenizer": (save_tiny, LIMITS, "tokenizer_args", 0, ("map names to values", "got 0")),
    "a switch among options": (
        *(save_tiny, LIMITS, "tokenizer_args", {"add_bos_token": "no"}),
        ("add_bos_token", "true or false", "got 'no'"),
    ),
    "a setting among options": (
        *(DECODER, LIMITS, "config_args", {"is_causal": "no"}),
        ("is_causal", "true or false", "got 'no'"),
    ),
    "a limit of the tokenizer": (
        save_tiny,
        TOKENIZER,
        "model_max_length",
        48.5,
        ("whole number", "got 48.5"),
    ),
    "a number": (save_tiny, "config.json", "layer_norm_eps", float("nan"), ("have a value", "got NaN")),
}
"""A model, one of its files, a key in it, a value of another type, and facts of the refusal."""

REFUSED: dict[str, tuple[Build, Facts]] = {
    **{name: (after(PROJECTED, spoil), facts) for name, (spoil, facts) in DAMAGED.items()},
    **{
        name: (after(build, edited(file, **{key: value})), (f"{file}: ", *facts, *named(key, value)))
        for name, (build, file, key, value, facts) in OF_ANOTHER_TYPE.items()
    },
    "a reranker": (
        saved(tf.BertForSequenceClassification, tf.BertConfig(**SIZES)),
        ("one vector", "of type BertForSequenceClassification", "choose"),
    ),
    "a tagger": (
        saved(tf.BertForTokenClassification, tf.BertConfig(**SIZES)),
        ("got one of type BertForTokenClassification",),
    ),
    "a model that mixes padding in": (
        saved(tf.FNetModel, tf.FNetConfig(**SIZES)),
        ("type fnet", "with padding"),
    ),
    "a model of images": (saved(tf.ViTModel, tf.ViTConfig(**SIZES)), ("token ids", "got one of type vit")),
    "both halves": (
        saved(tf.BartModel, tf.BartConfig(vocab_size=300, d_model=32, **HALVES)),
        ("got both halves of type bart",),
    ),
    "a cross-encoder": (cross_encoder, ("one vector", "got one of type CrossEncoder", "choose another")),
    "a sparse encoder": (sparse_encoder, ("got one of type SparseEncoder",)),
    "ColBERT by its type": (late_interaction(model_type="ColBERT"), ("got one of type ColBERT",)),
    "ColBERT by its module": (late_interaction(), ("modules.json", "got pylate.models.Dense.Dense")),
    "a type of tomorrow": (late_interaction(model_type="Omni"), ("got one of type Omni",)),
    "a module of the model's own": (own_code, ("modules.json", "got custom_st.Transformer")),
    "no pooling": (
        after(save_tiny, modules("Transformer")),
        ("Pooling, any Dense, then Normalize", "got none"),
    ),
    "a classifier's weights": (
        left_over("classifier.weight"),
        ("1 belong to something on top of it", ": classifier.weight; choose"),
    ),
    "ColBERT's weights": (left_over("linear.weight", save_plain), ("late interaction", ": linear.weight")),
    "a block that is not configured": (
        left_over("encoder.layer.2.output.dense.weight"),
        ("on top of it", ": encoder.layer.2.output.dense"),
    ),
    "a tokenizer of other token types": (other_token_types, ("token types of 0", "got others")),
    "an adapter of a base elsewhere": (
        adapter(base_model_name_or_path="nobody/nothing"),
        (ADAPTER, "a base model", "got nobody/nothing: "),
    ),
    "an adapter of no base": (
        adapter(base_model_name_or_path=None),
        ("base model", "base_model_name_or_path", "got None"),
    ),
    "an adapter of fewer layers": (adapter(target_modules=["query"]), ("of BertModel; 2 of its", MISFIT)),
    "an adapter of another rank": (adapter(r=3), ("; 4 of its weights", MISFIT, "such as ")),
    "a DoRA adapter": (
        adapter(use_dora=True),
        (f"{ADAPTER}: use_dora", "unset", "got True", "merge_and_unload"),
    ),
    "an adapter of VeRA": (
        adapter(peft_type="VERA"),
        (f"{ADAPTER}: peft_type", "LORA", "'VERA'", "merge it"),
    ),
    "an adapter of prompts": (adapter(peft_type="PROMPT_TUNING"), ("got 'PROMPT_TUNING'",)),
    "an adapter that waits for a text": (
        adapter(alora_invocation_tokens=[5]),
        ("alora_invocation_tokens", "unset", "got [5]", "merge it first"),
    ),
    "an adapter with a switch of words": (
        adapter(use_rslora="false"),
        (f"{ADAPTER}: use_rslora", "true or false", "got 'false'"),
    ),
    "an adapter without modules of its own": (
        adapter(modules_to_save=["intermediate.dense"]),
        ("; 2 of its weights", MISFIT, "modules_to_save", "merge it first"),
    ),
    "a pickled adapter": (pickled_adapter, ("adapter_model.safetensors", ADAPTER)),
    "a module at an absolute path": (outside("{}/elsewhere"), OUTSIDE),
    "a module upwards": (outside("1_Pooling/../../elsewhere"), OUTSIDE),
    "a module behind a link": (outside("link", link="../elsewhere"), OUTSIDE),
    "a module behind a loop": (outside("loop/1_Pooling", link="loop"), OUTSIDE),
    "a module of no name": (outside("1_Pooling\0"), OUTSIDE),
    "a route outside": (route_outside, (ROUTER, "inside the model's own", "got '../elsewhere'")),
    **{
        f"weights outside by {name}": (
            after(save_tiny, written(name, content)),
            ("files of its own", "/elsewhere.safetensors'", "copy that file"),
        )
        for name, content in WEIGHTS_OUTSIDE.items()
    },
    **{
        f"a router {name}": (after(PAIR, written(ROUTER, config)), (ROUTER, *facts))
        for name, (config, facts) in ROUTERS.items()
    },
}


@pytest.mark.parametrize(("build", "facts"), REFUSED.values(), ids=REFUSED)
def test_a_directory_is_refused_with_what_is_wrong(build: Build, facts: Facts, tmp_path: Path) -> None:
    build(tmp_path / "model")
    positions = facts[0].startswith("encoder.")
    with one_line(ConfigError if positions else ModelError, *facts):
        load(tmp_path / "model")


def test_a_similarity_that_is_none_is_refused(tmp_path: Path) -> None:
    edit(save_tiny(tmp_path), ROOT, similarity_fn_name={})
    with one_line(ModelError, f"similarity_fn_name in {ROOT}", "cosine, dot, euclidean", "got {}"):
        adiabat.load(tmp_path)


SWITCHES: dict[str, tuple[Build, str]] = {
    "do_lower_case": (save_tiny, LIMITS),
    "include_prompt": (save_tiny, POOLING),
    "pooling_mode_max_tokens": (save_tiny, POOLING),
    "bias": (PROJECTED, DENSE),
    "use_residual": (PROJECTED, DENSE),
    "normalize": (static, "config.json"),
    "is_causal": (DECODER, "config.json"),
    "add_eos_token": (save_tiny, TOKENIZER),
}


@pytest.mark.parametrize("value", [float("nan"), {}, [], "false", 2], ids=repr)
@pytest.mark.parametrize("key", SWITCHES)
def test_a_switch_is_true_or_false(key: str, value: object, tmp_path: Path) -> None:
    build, name = SWITCHES[key]
    after(build, edited(name, **{key: value}))(tmp_path / "model")
    told = ("have a value", "got NaN") if isinstance(value, float) else ("be true or false", f"got {value!r}")
    with one_line(ModelError, f"{tmp_path / 'model' / name}: {key} must ", *told):
        load(tmp_path / "model")


@pytest.mark.parametrize("value", [1, None])
@pytest.mark.parametrize(("key", "name"), [("do_lower_case", LIMITS), ("include_prompt", POOLING)])
def test_one_zero_and_null_are_switches_as_the_peer_has_them(
    key: str, name: str, value: int | None, tmp_path: Path
) -> None:
    save_tiny(tmp_path)
    edit(tmp_path, ROOT, prompts={"query": "query: ", "document": ""})
    edit(tmp_path, name, **{key: value if value is None or key == "do_lower_case" else 0})
    assert_same_vectors(load(tmp_path), tmp_path, ["Where does the RIVER rise?", "a"])


def test_a_directory_of_something_else_is_no_model(tmp_path: Path) -> None:
    with one_line(ModelError, "the directory of a model", "config.json or modules.json", "got nothing in it"):
        load(tmp_path)
    for name in ("vectors.bin", "manifest.json", "a", "b", "c"):
        (tmp_path / name).touch()
    with one_line(ModelError, "got a, b, c, manifest.json, ... in it; name another"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nobody/nothing", "(its cache has none of that name"),
        ("nothing", "(its cache has none of that name"),
        ("/no/such/folder/at all", "(Repo id must be"),
        ("a/b/c", "(Repo id must be"),
    ],
)
def test_a_name_that_cannot_be_had_is_told_with_the_reason(name: str, why: str) -> None:
    with one_line(ModelError, "model must be ", f"got {name}: no such directory", "the hub", why):
        load(name)


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"max_tokns": 3}, ("encoder.max_tokns", "known are pooling, ", "max_tokens")),
        ({"max_tokens": 601}, ("encoder.max_tokens", "<= 600", "positions", "got 601")),
        ({"max_tokens": 1}, ("encoder.max_tokens", ">= 3", "got 1")),
    ],
)
def test_faulty_settings_are_refused(settings: dict[str, int], facts: Facts, tmp_path: Path) -> None:
    with one_line(ConfigError, *facts):
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
        with one_line(ModelError, f"{path} must hold its content", "got a Git LFS pointer", "git lfs pull"):
            load(folder)
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
    with one_line(ModelError, f"{name}:31 must be text", "got a zero byte"):
        load(folder)


@pytest.mark.parametrize(
    "name", ["tokenizer.json", TOKENIZER, "special_tokens_map.json", "added_tokens.json"]
)
@pytest.mark.parametrize(
    "damage",
    [lambda content: zeroed(content, len(content) // 2), lambda content: content[: len(content) // 2]],
)
def test_a_damaged_tokenizer_is_named(name: str, damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    path = folder / name
    if not path.exists():
        write(folder, name, {})
    # Blanks, so that the block lies within the object.
    path.write_bytes(damage(path.read_bytes().rstrip(b"\n}") + b" " * 200 + b"}"))
    with one_line(ModelError, f"{path} must be undamaged, got "):
        load(folder)


def test_blocks_that_are_left_out_on_request_are_not_left_over(tmp_path: Path) -> None:
    assert not any(
        "layer.1." in name for name in load(save_tiny(tmp_path, layers=2), blocks=1).query.used_parameters()
    )


def test_an_adapter_of_blocks_that_are_left_out_on_request_is_read_in_part(tmp_path: Path) -> None:
    adapter()(tmp_path / "model")
    model = load(tmp_path / "model", blocks=1)
    whole = load(tmp_path / "model").query.used_parameters()
    assert all(torch.equal(weights, whole[name]) for name, weights in model.query.used_parameters().items())


# What a file may not reach.


@pytest.mark.parametrize(
    "key",
    ["_attn_implementation", "attn_implementation", "_experts_implementation", "experts_implementation"],
)
def test_no_file_fetches_compiled_kernels(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*given: object, **named: object) -> None:
        raise AssertionError(given, named)

    monkeypatch.setattr(transformers.modeling_utils, "lazy_import_flash_attention", fetch)
    edit(save_tiny(tmp_path), "config.json", **{key: "nobody/kernels"})
    backbone = load(tmp_path).query.backbone
    assert backbone.config._attn_implementation == "sdpa"
    assert backbone.config._experts_implementation != "nobody/kernels"


def test_transformers_would_fetch_kernels_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(
        transformers.modeling_utils, "lazy_import_flash_attention", lambda name, **_: asked.append(name)
    )
    edit(save_tiny(tmp_path), "config.json", _attn_implementation="kernels-community/attention")
    tf.AutoModel.from_pretrained(tmp_path)
    assert asked == ["kernels-community/attention"]


def test_a_model_that_is_itself_a_link_is_read(tmp_path: Path) -> None:
    save_tiny(tmp_path / "model")
    (tmp_path / "link").symlink_to(tmp_path / "model", target_is_directory=True)
    assert load(tmp_path / "link").fingerprint() == load(tmp_path / "model").fingerprint()
