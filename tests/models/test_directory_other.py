"""What is no embedding model is refused in one line that says what it is; no file points outside of its model
or to compiled code.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers.modeling_utils
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SparseEncoder
from tokenizers.processors import TemplateProcessing
from transformers import (
    BartConfig,
    BartModel,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    FNetConfig,
    FNetModel,
    ViTConfig,
    ViTModel,
)

from adiabat.core.errors import AdiabatError
from adiabat.models.loading import load
from tests.models.peer_directories import adapted
from tests.tiny import VOCABULARY, edit, save_plain, save_tiny, tiny_tokenizer, write

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


def saved(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def cross_encoder(folder: Path) -> None:
    plain = saved(BertForSequenceClassification(BertConfig(**SIZES)), folder.parent / "plain")
    CrossEncoder(str(plain), device="cpu").save_pretrained(str(folder))


def sparse_encoder(folder: Path) -> None:
    plain = saved(BertForMaskedLM(BertConfig(**SIZES)), folder.parent / "plain")
    SparseEncoder(str(plain), device="cpu").save_pretrained(str(folder))


def late_interaction(root: dict[str, object]) -> Callable[[Path], object]:
    def build(folder: Path) -> None:
        save_tiny(folder, projection=8)
        edit(folder, "config_sentence_transformers.json", **root)
        kinds = {"": "sentence_transformers.models.Transformer", "2_Dense": "pylate.models.Dense.Dense"}
        write(folder, "modules.json", [{"path": path, "type": kind} for path, kind in kinds.items()])

    return build


def own_code(folder: Path) -> None:
    save_tiny(folder)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["type"] = "custom_st.Transformer"
    write(folder, "modules.json", modules)


def without_pooling(folder: Path) -> None:
    save_tiny(folder)
    write(folder, "modules.json", [{"path": "", "type": "sentence_transformers.models.Transformer"}])


def left_over(name: str, build: Callable[[Path], object] = save_tiny) -> Callable[[Path], object]:
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


def adapter(folder: Path, **changes: object) -> Path:
    """An adapter beside nothing, with other values in its configuration."""
    adapted("bert", ["query", "value"])(folder)
    edit(folder, "adapter_config.json", **changes)
    return folder


def pickled_adapter(folder: Path) -> None:
    adapter(folder)
    torch.save(load_file(folder / "adapter_model.safetensors"), folder / "adapter_model.bin")
    (folder / "adapter_model.safetensors").unlink()


def outside(path: str, *, link: str | None = None) -> Callable[[Path], object]:
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
    save_tiny(folder, shared=False)
    record = json.loads((folder / "router_config.json").read_text())
    route = record["structure"]["query"]
    shutil.move(folder / route[0], folder.parent / "elsewhere")
    record["types"]["../elsewhere"] = record["types"].pop(route[0])
    route[0] = "../elsewhere"
    write(folder, "router_config.json", record)


HALVES = {f"{half}_{size}": 4 for half in ("encoder", "decoder") for size in ("attention_heads", "ffn_dim")}
WEIGHTS_OUTSIDE: dict[str, dict[str, object]] = {
    "model.safetensors.index.json": {
        "metadata": {},
        "weight_map": {"embeddings.word_embeddings.weight": "../elsewhere.safetensors"},
    },
    "config.json": {"model_type": "bert", "transformers_weights": "/etc/elsewhere.safetensors"},
}
OUTSIDE = r"modules.json must name folders inside the model's own, got .*; copy that folder"
MISFIT = r"of its weights are missing, left over or of another shape"

REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a reranker": (
        lambda folder: saved(BertForSequenceClassification(BertConfig(**SIZES)), folder),
        r"one vector, got one of type BertForSequenceClassification; choose",
    ),
    "a tagger": (
        lambda folder: saved(BertForTokenClassification(BertConfig(**SIZES)), folder),
        r"got one of type BertForTokenClassification",
    ),
    "a model that mixes padding in": (
        lambda folder: saved(FNetModel(FNetConfig(**SIZES)), folder),
        "type fnet, whose vectors change with padding",
    ),
    "a model of images": (
        lambda folder: saved(ViTModel(ViTConfig(**SIZES)), folder),
        "turns token ids into token states, got one of type vit",
    ),
    "both halves": (
        lambda folder: saved(BartModel(BartConfig(vocab_size=300, d_model=32, **HALVES)), folder),
        "got both halves of type bart",
    ),
    "a cross-encoder": (cross_encoder, r"one vector, got one of type CrossEncoder; choose another"),
    "a sparse encoder": (sparse_encoder, r"got one of type SparseEncoder"),
    "ColBERT by its type": (late_interaction({"model_type": "ColBERT"}), r"got one of type ColBERT"),
    "ColBERT by its module": (late_interaction({}), r"modules.json .* got pylate.models.Dense.Dense"),
    "a type of tomorrow": (late_interaction({"model_type": "Omni"}), r"got one of type Omni"),
    "a module of the model's own": (
        own_code,
        r"modules.json must name modules of .*, got custom_st.Transformer",
    ),
    "no pooling": (
        without_pooling,
        r"must be Pooling, any Dense, then Normalize, got none: without a Pooling, a text has no vector",
    ),
    "a classifier's weights": (
        left_over("classifier.weight"),
        r"1 belong to something on top of it, .*: classifier.weight; choose",
    ),
    "ColBERT's weights": (
        left_over("linear.weight", save_plain),
        r"a classifier or a layer of late interaction: linear.weight",
    ),
    "a block that is not configured": (
        left_over("encoder.layer.2.output.dense.weight"),
        r"on top of it, .*: encoder.layer.2.output.dense",
    ),
    "a tokenizer of other token types": (other_token_types, r"token types of 0, got others"),
    "an adapter of a base elsewhere": (
        lambda folder: adapter(folder, base_model_name_or_path="nobody/nothing"),
        r"adapter_config.json must name a base model .*, got nobody/nothing: ",
    ),
    "an adapter of no base": (
        lambda folder: adapter(folder, base_model_name_or_path=None),
        r"must name the adapter's base model in base_model_name_or_path, got None",
    ),
    "an adapter of fewer layers": (
        lambda folder: adapter(folder, target_modules=["query"]),
        rf"must hold an adapter of BertModel; 2 {MISFIT}",
    ),
    "an adapter of another rank": (lambda folder: adapter(folder, r=3), rf"4 {MISFIT}, such as "),
    "a DoRA adapter": (
        lambda folder: adapter(folder, use_dora=True),
        r"adapter_config.json: use_dora must be unset .* got True; merge "
        r"it first \(peft's merge_and_unload\)",
    ),
    "an adapter of VeRA": (
        lambda folder: adapter(folder, peft_type="VERA"),
        r"adapter_config.json: peft_type must be .*LORA.*, got 'VERA'; merge it first",
    ),
    "an adapter of prompts": (
        lambda folder: adapter(folder, peft_type="PROMPT_TUNING"),
        r"got 'PROMPT_TUNING'",
    ),
    "an adapter that waits for a text": (
        lambda folder: adapter(folder, alora_invocation_tokens=[5]),
        r"alora_invocation_tokens must be unset .* got \[5\]; merge it first",
    ),
    "an adapter with a switch of words": (
        lambda folder: adapter(folder, use_rslora="false"),
        r"adapter_config.json: use_rslora must be true or false, got 'false'",
    ),
    "an adapter without modules of its own": (
        lambda folder: adapter(folder, modules_to_save=["intermediate.dense"]),
        rf"2 {MISFIT}, such as .*modules_to_save.*; if peft loads it, merge it first",
    ),
    "a pickled adapter": (
        pickled_adapter,
        r"must hold adapter_model.safetensors, which adapter_config.json asks for",
    ),
    "a module at an absolute path": (outside("{}/elsewhere"), OUTSIDE),
    "a module upwards": (outside("1_Pooling/../../elsewhere"), OUTSIDE),
    "a module behind a link": (outside("link", link="../elsewhere"), OUTSIDE),
    "a module behind a loop": (outside("loop/1_Pooling", link="loop"), OUTSIDE),
    "a module of no name": (outside("1_Pooling\0"), OUTSIDE),
    "a route outside": (
        route_outside,
        r"router_config.json must name folders inside the model's own, got '../elsewhere'",
    ),
    **{
        f"weights outside by {name}": (
            lambda folder, name=name, content=content: write(save_tiny(folder), name, content),
            r"must name files of its own for its weights, got '.*/elsewhere.safetensors'; copy that file",
        )
        for name, content in WEIGHTS_OUTSIDE.items()
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_directory_is_refused_in_one_line_that_says_what_it_is(name: str, tmp_path: Path) -> None:
    build, message = REFUSED[name]
    build(tmp_path / "model")
    with pytest.raises(AdiabatError, match=message) as caught:
        load(tmp_path / "model")
    assert "\n" not in str(caught.value)


def test_blocks_that_are_left_out_on_request_are_not_left_over(tmp_path: Path) -> None:
    assert not any(
        "layer.1." in name for name in load(save_tiny(tmp_path, layers=2), blocks=1).query.used_parameters()
    )


def test_an_adapter_of_blocks_that_are_left_out_on_request_is_read_in_part(tmp_path: Path) -> None:
    model = load(adapter(tmp_path / "model"), blocks=1)
    whole = load(tmp_path / "model").query.used_parameters()
    assert all(torch.equal(weights, whole[name]) for name, weights in model.query.used_parameters().items())


# What a file may not reach.


@pytest.mark.parametrize(
    "key",
    ["_attn_implementation", "attn_implementation", "_experts_implementation", "experts_implementation"],
)
def test_no_file_has_compiled_kernels_fetched(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(*given: object, **named: object) -> None:
        raise AssertionError(given, named)

    monkeypatch.setattr(transformers.modeling_utils, "lazy_import_flash_attention", fetch)
    edit(save_tiny(tmp_path), "config.json", **{key: "nobody/kernels"})
    backbone = load(tmp_path).query.backbone
    assert backbone.config._attn_implementation == "sdpa"
    assert backbone.config._experts_implementation != "nobody/kernels"


def test_what_the_test_above_watches_is_where_transformers_would_fetch_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(
        transformers.modeling_utils, "lazy_import_flash_attention", lambda name, **_: asked.append(name)
    )
    edit(save_tiny(tmp_path), "config.json", _attn_implementation="kernels-community/attention")
    transformers.AutoModel.from_pretrained(tmp_path)
    assert asked == ["kernels-community/attention"]


def test_a_model_that_is_itself_a_link_is_read(tmp_path: Path) -> None:
    save_tiny(tmp_path / "model")
    (tmp_path / "link").symlink_to(tmp_path / "model", target_is_directory=True)
    assert load(tmp_path / "link").fingerprint() == load(tmp_path / "model").fingerprint()
