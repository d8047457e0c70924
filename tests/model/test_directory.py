"""Directories: what we save sentence-transformers loads, what it saves we load, and nothing in a directory runs unasked."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as peers
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from torch import nn
from transformers import BertTokenizer, T5Config, T5Model
from transformers.utils import logging as transformers_logging

from adiabat.data.records import Side
from adiabat.errors import AdiabatError, ConfigError, ModelError
from adiabat.model.directory import Trust, load, local_folder, save
from adiabat.model.encoder import Encoder, EncoderSettings, Projection
from adiabat.model.layout import NAMES_OF_POOLING, OLD_POOLING_FLAGS
from adiabat.model.pooling import POOLINGS, Pooling
from adiabat.model.towers import DualEncoder
from tests.tiny import KINDS, VOCABULARY, Kind, save_tiny, tiny_dual, tiny_encoder, tiny_tokenizer

TEXTS = ["Where does the river rise?", "река", "مرحبا", "a", "word " * 60, "  spaces "]
SETTINGS = EncoderSettings(max_tokens=64, query_prompt="query: ", document_prompt="passage: ")
PEER_NAMES = {ours: theirs for theirs, ours in NAMES_OF_POOLING.items()}
SIDES: tuple[Side, Side] = ("query", "document")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test asks the hub, and code copied out of a model lands in a folder of its own."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules")))
    monkeypatch.setattr(sys, "path", list(sys.path))


def peer_encode(peer: SentenceTransformer, side: Side) -> np.ndarray:
    encode = peer.encode_query if side == "query" else peer.encode_document
    return np.asarray(encode(TEXTS, show_progress_bar=False))


def peer_of(folder: Path) -> SentenceTransformer:
    return SentenceTransformer(str(folder), device="cpu")


def assert_same_vectors(model: DualEncoder, peer: SentenceTransformer) -> None:
    for side in SIDES:
        np.testing.assert_allclose(model.encode(TEXTS, side=side, precision="fp32"), peer_encode(peer, side), atol=1e-5)


def write(folder: Path, name: str, content: object) -> None:
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def edit(folder: Path, name: str, **changes: object) -> None:
    write(folder, name, {**json.loads((folder / name).read_text()), **changes})


def plain_model(folder: Path, kind: Kind = "bert") -> Path:
    """A Hugging Face directory without sentence-transformers files."""
    encoder = tiny_encoder(kind)
    encoder.backbone.save_pretrained(folder)
    encoder.tokenizer.save_pretrained(folder)
    return folder


# What we save, sentence-transformers loads.


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("projection", [None, 12], ids=["plain", "projected"])
def test_a_saved_model_gives_equal_vectors_in_sentence_transformers(pooling: Pooling, projection: int | None, tmp_path: Path) -> None:
    model = tiny_dual(settings=replace(SETTINGS, pooling=pooling), projection=projection)
    save(model, tmp_path)
    assert_same_vectors(model, peer_of(tmp_path))
    assert_same_vectors(load(tmp_path), peer_of(tmp_path))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "pair"])
def test_every_layout_is_saved_and_loaded(kind: Kind, shared: bool, tmp_path: Path) -> None:
    model = tiny_dual(kind, settings=SETTINGS, projection=9, shared=shared)
    save(model, tmp_path)
    assert_same_vectors(model, peer_of(tmp_path))
    assert_same_vectors(load(tmp_path), peer_of(tmp_path))


def test_vectors_without_unit_length_stay_so(tmp_path: Path) -> None:
    model = tiny_dual(settings=replace(SETTINGS, normalize=False), projection=9)
    save(model, tmp_path)
    loaded = load(tmp_path)
    assert not loaded.query.settings.normalize
    assert np.ptp(np.linalg.norm(loaded.encode(TEXTS, side="query", precision="fp32"), axis=1)) > 0.01
    assert_same_vectors(loaded, peer_of(tmp_path))


def test_settings_survive(tmp_path: Path) -> None:
    settings = EncoderSettings("weighted_mean", False, 33, "find: ", "text: ", False)
    loaded = load(save_tiny(tmp_path, settings=settings))
    assert loaded.query.settings == settings
    assert loaded.shared
    assert loaded.name == str(tmp_path)
    assert not loaded.query.training


def test_several_projections_keep_their_order_and_activations(tmp_path: Path) -> None:
    plain = tiny_encoder(settings=SETTINGS)
    torch.manual_seed(0)
    steps = [Projection(nn.Linear(32, 20), nn.GELU()), Projection(nn.Linear(20, 10, bias=False), nn.Identity())]
    encoder = Encoder(plain.backbone, plain.tokenizer, SETTINGS, steps).eval()
    save(DualEncoder(encoder, encoder), tmp_path)
    loaded = load(tmp_path)
    assert loaded.width == 10
    np.testing.assert_array_equal(
        loaded.encode(TEXTS, side="query", precision="fp32"), encoder.encode(TEXTS, side="query", precision="fp32")
    )
    assert_same_vectors(loaded, peer_of(tmp_path))


def test_a_tuned_pair_leaves_the_document_tower_untouched_bit_for_bit(tmp_path: Path) -> None:
    original = save_tiny(tmp_path / "original", settings=SETTINGS)
    model = DualEncoder(load(original).query, load(original).document)
    with torch.no_grad():
        for weights in model.query.used_parameters().values():
            weights.mul_(1.01)
    save(model, tmp_path / "tuned")
    tuned, before = load(tmp_path / "tuned"), load(original)
    assert not tuned.shared
    assert tuned.fingerprint("document") == before.fingerprint("document")
    assert tuned.fingerprint("query") != before.fingerprint("query")
    documents, queries = ([one.encode(TEXTS, side=side, precision="fp32") for one in (tuned, before)] for side in ("document", "query"))
    np.testing.assert_array_equal(documents[0], documents[1])
    assert np.abs(queries[0] - queries[1]).max() > 1e-3
    # Bit for bit in the peer as well: document vectors already stored stay valid.
    np.testing.assert_array_equal(peer_encode(peer_of(tmp_path / "tuned"), "document"), peer_encode(peer_of(original), "document"))
    assert_same_vectors(tuned, peer_of(tmp_path / "tuned"))


def test_saving_twice_gives_the_same_model(tmp_path: Path) -> None:
    model = tiny_dual(settings=SETTINGS, projection=9, shared=False)
    save(model, tmp_path)
    save(load(tmp_path), tmp_path)
    assert [load(tmp_path).fingerprint(side) for side in SIDES] == [model.fingerprint(side) for side in SIDES]


# What sentence-transformers saves, we load.


def peer_modules(folder: Path, pooling: Pooling, *extra: nn.Module) -> list[nn.Module]:
    return [peers.Transformer(str(plain_model(folder))), peers.Pooling(32, pooling_mode=PEER_NAMES[pooling]), *extra]


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_model_that_sentence_transformers_saved_gives_equal_vectors(pooling: Pooling, tmp_path: Path) -> None:
    torch.manual_seed(1)
    dense = peers.Dense(32, 7, bias=pooling != "cls", activation_function=nn.ReLU() if pooling == "max" else nn.Tanh())
    modules = peer_modules(tmp_path / "backbone", pooling, dense, peers.Normalize())
    peer = SentenceTransformer(modules=modules, device="cpu", prompts={"query": "q: ", "document": "d: "})
    peer.save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    assert "pooling_mode" in json.loads((tmp_path / "saved/1_Pooling/config.json").read_text())
    model = load(tmp_path / "saved")
    assert (model.query.settings.pooling, model.width) == (pooling, 7)
    assert_same_vectors(model, peer_of(tmp_path / "saved"))


def test_a_prompt_left_out_of_the_pooling_by_sentence_transformers_is_left_out_by_us(tmp_path: Path) -> None:
    transformer = peers.Transformer(str(plain_model(tmp_path / "backbone")))
    pooling = peers.Pooling(32, pooling_mode="mean", include_prompt=False)
    peer = SentenceTransformer(modules=[transformer, pooling], device="cpu", prompts={"query": "query: ", "document": ""})
    peer.save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    model = load(tmp_path / "saved")
    assert not model.query.settings.pool_prompt
    assert not model.query.settings.normalize
    assert_same_vectors(model, peer)


def router(folder: Path, query_seed: int, document_seed: int) -> SentenceTransformer:
    routes = {}
    for side, seed in (("query", query_seed), ("document", document_seed)):
        path = folder / side
        encoder = tiny_encoder(seed=seed)
        encoder.backbone.save_pretrained(path)
        encoder.tokenizer.save_pretrained(path)
        routes[side] = [peers.Transformer(str(path)), peers.Pooling(32, pooling_mode="mean")]
    both = peers.Router.for_query_document(query_modules=routes["query"], document_modules=routes["document"])
    return SentenceTransformer(modules=[both, peers.Normalize()], device="cpu")


def test_a_router_that_sentence_transformers_saved_gives_equal_vectors(tmp_path: Path) -> None:
    router(tmp_path, 1, 2).save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    model = load(tmp_path / "saved")
    assert not model.shared
    assert model.query.settings.normalize
    assert_same_vectors(model, peer_of(tmp_path / "saved"))


def test_routes_of_the_same_modules_are_one_tower(tmp_path: Path) -> None:
    router(tmp_path, 1, 2).save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    structure = json.loads((tmp_path / "saved/router_config.json").read_text())["structure"]
    edit(tmp_path / "saved", "router_config.json", structure={"query": structure["document"], "document": structure["document"]})
    assert load(tmp_path / "saved").shared


def test_old_names_and_flags_are_read(tmp_path: Path) -> None:
    model = tiny_dual(settings=replace(SETTINGS, pooling="cls"))
    save(model, tmp_path)
    kinds = [entry["type"] for entry in json.loads((tmp_path / "modules.json").read_text())]
    assert kinds == [f"sentence_transformers.models.{kind}" for kind in ("Transformer", "Pooling", "Normalize")]
    # As version 2 wrote it: no include_prompt, fewer flags, no prompts.
    flags = {flag: ours == "cls" for flag, ours in list(OLD_POOLING_FLAGS.items())[:3]}
    write(tmp_path, "1_Pooling/config.json", {"word_embedding_dimension": 32, **flags})
    write(tmp_path, "config_sentence_transformers.json", {"__version__": {"sentence_transformers": "2.0.0"}})
    loaded = load(tmp_path)
    assert loaded.query.settings == EncoderSettings("cls", True, 64)
    assert_same_vectors(loaded, peer_of(tmp_path))


@pytest.mark.parametrize("prompts", [{"query": "q: ", "passage": "p: "}, {"query": "q: ", "corpus": "p: ", "document": None}])
def test_other_names_of_the_document_prompt_are_found(prompts: dict[str, str | None], tmp_path: Path) -> None:
    save_tiny(tmp_path)
    edit(tmp_path, "config_sentence_transformers.json", prompts=prompts)
    settings = load(tmp_path).query.settings
    assert (settings.query_prompt, settings.document_prompt) == ("q: ", "p: ")


@pytest.mark.parametrize("prompts", [None, {}, {"query": None, "document": ""}])
def test_prompts_that_are_not_there_are_empty(prompts: dict[str, str | None] | None, tmp_path: Path) -> None:
    save_tiny(tmp_path)
    edit(tmp_path, "config_sentence_transformers.json", prompts=prompts)
    settings = load(tmp_path).query.settings
    assert (settings.query_prompt, settings.document_prompt) == ("", "")


# Plain Hugging Face directories.


@pytest.mark.parametrize("kind", KINDS)
def test_a_plain_model_gets_mean_pooling_and_unit_length(kind: Kind, tmp_path: Path) -> None:
    model = load(plain_model(tmp_path, kind))
    assert model.query.settings == EncoderSettings("mean", True, 512)
    np.testing.assert_array_equal(
        model.encode(TEXTS, side="query", precision="fp32"),
        tiny_encoder(kind, settings=EncoderSettings()).encode(TEXTS, side="query", precision="fp32"),
    )


def test_settings_of_the_user_come_first(tmp_path: Path) -> None:
    chosen: dict[str, str | bool | int] = {"pooling": "last", "normalize": False, "max_tokens": 40, "query_prompt": "q: "}
    model = load(plain_model(tmp_path), settings=chosen)
    assert model.query.settings == EncoderSettings("last", False, 40, "q: ")


def test_settings_of_the_user_reach_both_towers(tmp_path: Path) -> None:
    model = load(save_tiny(tmp_path, shared=False), settings={"max_tokens": 40})
    assert (model.query.settings.max_tokens, model.document.settings.max_tokens) == (40, 40)


@pytest.mark.parametrize(("tokenizer_limit", "limit"), [(50, 50), (10**30, 600), (700, 600)])
def test_a_text_is_cut_at_the_lesser_of_the_limits(tokenizer_limit: int, limit: int, tmp_path: Path) -> None:
    edit(plain_model(tmp_path), "tokenizer_config.json", model_max_length=tokenizer_limit)
    assert load(tmp_path).query.settings.max_tokens == limit


def test_rows_that_xlm_roberta_keeps_for_padding_are_no_positions(tmp_path: Path) -> None:
    edit(plain_model(tmp_path, "xlm-roberta"), "tokenizer_config.json", model_max_length=10**30)
    model = load(tmp_path)
    assert model.query.settings.max_tokens == 598
    assert np.isfinite(model.encode(["a" * 1000], side="query", precision="fp32")).all()


def test_relative_positions_without_any_stated_limit_are_cut_at_the_usual_length(tmp_path: Path) -> None:
    edit(plain_model(tmp_path, "t5"), "tokenizer_config.json", model_max_length=10**30)
    assert load(tmp_path).query.settings.max_tokens == 512


def test_rotary_positions_may_go_past_their_trained_length(tmp_path: Path) -> None:
    model = load(plain_model(tmp_path, "llama"), settings={"max_tokens": 700})
    assert np.isfinite(model.encode(["a" * 800], side="query", precision="fp32")).all()


def test_only_the_encoder_half_of_a_t5_is_loaded(tmp_path: Path) -> None:
    torch.manual_seed(0)
    whole = T5Model(T5Config(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, pad_token_id=1))
    whole.save_pretrained(tmp_path)
    tiny_tokenizer("t5").save_pretrained(tmp_path)
    model = load(tmp_path)
    assert type(model.query.backbone).__name__ == "T5EncoderModel"
    expected = Encoder(whole.encoder, tiny_tokenizer("t5"), EncoderSettings())
    expected.train(False)
    np.testing.assert_allclose(
        model.encode(TEXTS, side="query", precision="fp32"), expected.encode(TEXTS, side="query", precision="fp32"), atol=1e-6
    )


def test_half_precision_weights_are_loaded_as_float32(tmp_path: Path) -> None:
    encoder = tiny_encoder()
    encoder.bfloat16()
    encoder.backbone.save_pretrained(tmp_path)
    encoder.tokenizer.save_pretrained(tmp_path)
    assert {weights.dtype for weights in load(tmp_path).query.parameters()} == {torch.float32}


def test_weights_in_several_files_load(tmp_path: Path) -> None:
    encoder = tiny_encoder()
    save_tiny(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "sharded")
    (tmp_path / "sharded/model.safetensors").unlink()
    encoder.backbone.save_pretrained(tmp_path / "sharded", max_shard_size="30KB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 1
    assert load(tmp_path / "sharded").fingerprint() == load(tmp_path / "whole").fingerprint()


# Nothing runs unasked.


def pickled(folder: Path) -> Path:
    """A model whose only weights are a pickle."""
    save_tiny(folder)
    (folder / "model.safetensors").unlink()
    torch.save(tiny_encoder().backbone.state_dict(), folder / "pytorch_model.bin")
    return folder


def test_pickled_weights_are_refused_unless_allowed(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no file named model.safetensors .*; weights in a pickle need encoder.allow_pickles = true"):
        load(pickled(tmp_path))
    assert load(tmp_path, trust=Trust(pickles=True)).fingerprint() == tiny_dual().fingerprint()


def test_a_damaged_pickle_is_told(tmp_path: Path) -> None:
    (pickled(tmp_path) / "pytorch_model.bin").write_bytes(b"not a pickle")
    with pytest.raises(ModelError, match="must hold a transformers model"):
        load(tmp_path, trust=Trust(pickles=True))


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
    edit(folder, "config.json", model_type=model_type, auto_map={"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"})
    edit(folder, "tokenizer_config.json", auto_map={"AutoTokenizer": [None, "own.OwnTokenizer"]})
    return folder


@pytest.mark.parametrize("trust", [None, Trust(), Trust(pickles=True)], ids=["default", "none", "pickles"])
def test_a_model_that_needs_its_own_code_is_refused_and_its_code_does_not_run(trust: Trust | None, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    folder = with_own_code(tmp_path / "model", marker, model_type="own-bert")
    with pytest.raises(ModelError, match=r"its own Python code runs only where encoder.trust_remote_code names this model") as caught:
        load(folder, trust=trust)
    assert "\n" not in str(caught.value)
    assert not marker.exists()


def test_a_known_family_with_code_beside_it_loads_without_running_it(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    folder = with_own_code(tmp_path / "model", marker, model_type="bert")
    assert load(folder).fingerprint() == tiny_dual().fingerprint()
    assert not marker.exists()


def test_code_of_the_model_named_runs(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    folder = with_own_code(tmp_path / "model", marker, model_type="own-bert")
    edit(folder, "tokenizer_config.json", auto_map={})
    model = load(folder, trust=Trust(remote_code=str(folder)))
    assert marker.read_text() == "ran"
    assert type(model.query.backbone).__name__ == "OwnModel"
    np.testing.assert_array_equal(
        model.encode(TEXTS, side="query", precision="fp32"), tiny_dual().encode(TEXTS, side="query", precision="fp32")
    )


def test_trust_in_another_model_is_refused(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    folder = with_own_code(tmp_path / "model", marker, model_type="own-bert")
    with pytest.raises(ModelError, match=r"encoder.trust_remote_code must be the name of the model loaded, got 'other/model'"):
        load(folder, trust=Trust(remote_code="other/model"))
    assert not marker.exists()


def test_a_module_type_named_in_a_file_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "evil.py", f"open({str(tmp_path / 'marker')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    save_tiny(tmp_path / "model", projection=8)
    edit(tmp_path / "model", "2_Dense/config.json", activation_function="evil.Activation")
    with pytest.raises(ModelError, match=r"activation_function must be one of .*Tanh.*, got evil.Activation"):
        load(tmp_path / "model")
    assert not (tmp_path / "marker").exists()


# Damage, and what we do not have, is told in one line.

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


def modules(*kinds: str) -> list[dict[str, Any]]:
    folders = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense", "Normalize": "3_Normalize"}
    return [{"idx": i, "name": str(i), "path": folders.get(kind, kind), "type": f"a.b.{kind}"} for i, kind in enumerate(kinds)]


FAULTS: dict[str, tuple[Spoil, str]] = {
    "damaged config": (replaced("config.json", "{"), r"config.json must be readable JSON"),
    "config that is a list": (replaced("config.json", []), r"config.json must hold a JSON object, got list"),
    "config of no family": (replaced("config.json", {}), r"must hold a transformers model: Unrecognized model"),
    "unknown family": (edited("config.json", model_type="nope"), r"must hold a transformers model: .*`nope`"),
    "missing config": (removed("config.json"), r"must hold a transformers model"),
    "missing weights": (removed("model.safetensors"), r"must hold a transformers model: .*no file named model.safetensors"),
    "truncated weights": (truncated("model.safetensors"), r"must hold a transformers model"),
    "too few weights": (
        edited("config.json", num_hidden_layers=3),
        r"must hold the weights that its config.json describes \(BertModel\); 16 are missing .*, such as encoder.layer.2",
    ),
    "weights of another shape": (edited("config.json", vocab_size=99), r"1 are missing or of another shape, such as embeddings.word_emb"),
    "missing tokenizer": (removed("tokenizer.json", "tokenizer_config.json"), r"must hold a tokenizer, got none of tokenizer.json"),
    "damaged tokenizer": (replaced("tokenizer.json", "{"), r"must hold a tokenizer: "),
    "empty tokenizer": (replaced("tokenizer.json", {}), r"must hold a tokenizer: "),
    "damaged modules": (replaced("modules.json", "nope"), r"modules.json must be readable JSON"),
    "modules that are no list": (replaced("modules.json", {}), r"modules.json must hold a JSON list, got dict"),
    "no modules": (replaced("modules.json", []), r"modules.json must hold a list of modules, got \[\]"),
    "module without a type": (replaced("modules.json", [{"path": ""}]), r"modules.json must hold type, got path"),
    "static embedding": (replaced("modules.json", modules("StaticEmbedding")), r"first module must be a Transformer, got StaticEmbedding"),
    "normalise before dense": (
        replaced("modules.json", modules("Transformer", "Pooling", "Normalize", "Dense")),
        r"must be Pooling, any Dense, then Normalize, got Pooling, Normalize, Dense",
    ),
    "unknown module": (
        replaced("modules.json", modules("Transformer", "Pooling", "LSTM")),
        r"must be Pooling, any Dense, then Normalize, got Pooling, LSTM",
    ),
    "two poolings": (replaced("modules.json", modules("Transformer", "Pooling", "Pooling")), r"then Normalize, got Pooling, Pooling"),
    "missing pooling": (removed("1_Pooling/config.json"), r"must name one pooling of mean, .*, got none"),
    "joined poolings": (replaced("1_Pooling/config.json", {"pooling_mode": ["mean", "max"]}), r"must name one pooling .*, got mean, max"),
    "foreign pooling": (
        replaced("1_Pooling/config.json", {"pooling_mode_mean_sqrt_len_tokens": True}),
        r"must name one pooling .*, got pooling_mode_mean_sqrt_len_tokens",
    ),
    "missing dense weights": (removed("2_Dense/model.safetensors"), r"2_Dense must hold model.safetensors"),
    "damaged dense weights": (truncated("2_Dense/model.safetensors"), r"must hold a linear layer of 32 to 8: "),
    "dense of another width": (edited("2_Dense/config.json", out_features=5), r"must hold a linear layer of 32 to 5: "),
    "dense without widths": (replaced("2_Dense/config.json", {}), r"config.json must hold in_features, out_features, got nothing"),
    "limit that is no number": (
        edited("sentence_bert_config.json", max_seq_length="512"),
        r"max_seq_length must be a whole number, got '512'",
    ),
    "limit past the positions": (edited("sentence_bert_config.json", max_seq_length=601), r"encoder.max_tokens must be <= 600, .*got 601"),
    "prompts that are no names": (
        edited("config_sentence_transformers.json", prompts=["q: "]),
        r"prompts must map names to texts, got \['q: '\]",
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
        ({"types": {}, "structure": {"query": ["a"]}}, r"must have routes query and document, got query"),
        ({"types": {}, "structure": {"query": ["a"], "document": []}}, r"must have routes query and document"),
        ({"types": {"a": "x.Transformer"}, "structure": {"query": ["a"], "document": ["b"]}}, r"router_config.json must hold b, got a"),
    ],
)
def test_a_faulty_router_is_told(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    write(save_tiny(tmp_path, shared=False), "router_config.json", config)
    with pytest.raises(ModelError, match=message):
        load(tmp_path)


def test_an_empty_directory_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="must hold a transformers model"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["nobody/nothing", "nothing", "/no/such/folder/at all", "a/b/c"])
def test_a_name_that_cannot_be_had_is_one_clear_line(name: str) -> None:
    with pytest.raises(ModelError, match=rf"MODEL must be a directory, .* got {name}: no such directory, and the hub says: \S") as caught:
        load(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("trust", "fetched"),
    [(None, set()), (Trust(pickles=True), {"*.bin"}), (Trust(remote_code="a/b"), {"*.py"})],
    ids=["default", "pickles", "code"],
)
def test_only_trusted_kinds_of_file_are_fetched(
    trust: Trust | None, fetched: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def download(name: str, *, allow_patterns: list[str]) -> str:
        asked.extend(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert local_folder("a/b", trust=trust) == tmp_path
    assert set(asked) - {"*.json", "*.safetensors", "*.txt", "*.model"} == fetched


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_tokns": 3}, r"unknown key encoder.max_tokns; known are pooling, .*max_tokens"),
        ({"max_tokens": 601}, r"encoder.max_tokens must be <= 600, the positions that the backbone has, got 601"),
        ({"max_tokens": 1}, r"encoder.max_tokens must be >= 3"),
    ],
)
def test_faulty_settings_are_refused(settings: dict[str, int], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        load(save_tiny(tmp_path), settings=settings)


# Lower-casing.


def cased_word_pieces(folder: Path) -> Path:
    """A model with a tokenizer of its own class, which rebuilds its normaliser when loaded."""
    save_tiny(folder)
    pieces = {token: i for i, token in enumerate(["[UNK]", "[PAD]", "[SEP]", "[CLS]", "[MASK]", "river", "River", "rise"])}
    tokenizer = BertTokenizer(vocab=pieces, do_lower_case=False)
    assert isinstance(tokenizer.backend_tokenizer, Tokenizer)
    assert isinstance(tokenizer.backend_tokenizer.model, WordPiece)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("build", [save_tiny, cased_word_pieces], ids=["bytes", "word pieces"])
def test_lower_casing_beside_the_tokenizer_is_done_once_and_survives_saving(build: Callable[[Path], Path], tmp_path: Path) -> None:
    texts = ["River RISE", "river rise"]
    cased = load(build(tmp_path / "model")).query.tokenize(texts, side="query")
    assert cased[0] != cased[1]
    edit(tmp_path / "model", "sentence_bert_config.json", do_lower_case=True)
    model = load(tmp_path / "model")
    lowered = model.query.tokenize(texts, side="query")
    assert lowered[0] == lowered[1] == cased[1]
    peer = peer_of(tmp_path / "model")
    np.testing.assert_allclose(peer.encode(texts), model.encode(texts, side="query", precision="fp32"), atol=1e-5)

    save(model, tmp_path / "again")
    again = load(tmp_path / "again")
    assert again.query.tokenize(texts, side="query") == lowered
    assert again.fingerprint() == model.fingerprint()
    np.testing.assert_allclose(peer_of(tmp_path / "again").encode(texts), model.encode(texts, side="query", precision="fp32"), atol=1e-5)


# Quiet.


@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_loading_and_saving_write_nothing(kind: Kind, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
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
