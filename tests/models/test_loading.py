"""Directories: what sentence-transformers saves we load, with the same vectors; what we save it loads."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer import modules as peers
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from transformers import BertTokenizer

import adiabat
from adiabat.config.reader import checked
from adiabat.config.tuning import TuneSettings
from adiabat.data.records import SIDES
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.loading import load, override
from adiabat.models.saving import save
from adiabat.models.towers import DualEncoder
from tests.commands import DOCUMENTS, PAIRS, lines
from tests.models.peer_directories import (
    DIRECTORIES,
    LEFT,
    TEXTS,
    assert_same_model,
    assert_same_vectors,
    dense,
    peer_of,
    router,
    with_modules,
)
from tests.models.worlds import LIMITS, ROOT, ROUTER, TOKENIZER
from tests.tiny import (
    KINDS,
    Kind,
    edit,
    files_of,
    lists,
    save_plain,
    save_tiny,
    tiny_dual,
    tiny_encoder,
)

SETTINGS = EncoderSettings(max_tokens=64, query_prompt="query: ", document_prompt="passage: ")


CHANGED = {
    "transformer: config_args": "backbone",
    "transformer: truncation_side": "tokenizer",
    "transformer: model_max_length": "max_tokens",
    "transformer: document_length": "max_tokens",
    "root: truncate_dim": "width",
}
"""Directories that differ from the usual one in one file, and the part of the fingerprint that must say
so."""


@pytest.mark.parametrize("name", CHANGED)
def test_what_changes_vectors_changes_the_fingerprint(name: str, tmp_path: Path) -> None:
    DIRECTORIES["pooling mean"](tmp_path / "usual")
    DIRECTORIES[name](tmp_path / "model")
    (told,) = load(tmp_path / "usual").fingerprint().differences(load(tmp_path / "model").fingerprint())
    assert told.startswith(f"{CHANGED[name]} ")


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_directory_gives_the_peers_vectors_as_it_is_and_saved_again(name: str, tmp_path: Path) -> None:
    DIRECTORIES[name](tmp_path / "model")
    model = load(tmp_path / "model")
    assert_same_vectors(model, tmp_path / "model", alone=True)
    save(model, tmp_path / "again")
    assert_same_vectors(model, tmp_path / "again")
    assert_same_model(load(tmp_path / "again"), model)


def test_a_tuned_model_keeps_what_its_directory_said(tmp_path: Path) -> None:
    root = {"truncate_dim": 16, "prompts": {"query": "q: "}}
    with_modules(dense(32, residual=True), peers.Normalize(), root=root)(tmp_path / "model")
    limits = {"query_length": 12, "document_length": 20}
    edit(tmp_path / "model", LIMITS, **limits, config_args={"layer_norm_eps": 0.1}, tokenizer_args=LEFT)
    lines(tmp_path / "corpus.jsonl", DOCUMENTS)
    lines(tmp_path / "pairs.jsonl", PAIRS)
    regime = {"recipe": "paper", "max_epochs": 1, "batches_per_epoch": 2}
    short = checked(TuneSettings, {"tune": regime, "data": {"validation_fraction": 0.4}})
    model, store = tmp_path / "model", tmp_path / "store"
    adiabat.embed(model, tmp_path / "corpus.jsonl", store)
    adiabat.tune(model, store, tmp_path / "pairs.jsonl", tmp_path / "job", settings=short)
    tuned, before = load(tmp_path / "job/model"), load(model)
    assert tuned.width == 16
    assert tuned.query.settings == before.query.settings
    assert tuned.fingerprint("document") == before.fingerprint("document")
    assert_same_vectors(tuned, tmp_path / "job/model")


# What we save, sentence-transformers loads.


def test_what_is_written_does_not_depend_on_what_was_encoded_before(tmp_path: Path) -> None:
    model = tiny_dual(settings=SETTINGS)
    for name, limit in (("first", 7), ("second", 9)):
        model.query.tokenizer(["a", "two words"], padding=True, truncation=True, max_length=limit)
        save(model, tmp_path / name)
    assert files_of(tmp_path / "first") == files_of(tmp_path / "second")
    definition = json.loads((tmp_path / "first" / "tokenizer.json").read_text(encoding="utf-8"))
    assert (definition["truncation"], definition["padding"]) == (None, None)
    assert_same_vectors(model, tmp_path / "first")


# What sentence-transformers saves, we load.


def structure_of(folder: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads((folder / ROUTER).read_text())["structure"]
    return found


def test_routes_that_share_a_transformer_share_it_after_loading_and_after_saving(tmp_path: Path) -> None:
    router(tmp_path / "saved")
    structure = structure_of(tmp_path / "saved")
    structure["query"][0] = structure["document"][0]
    edit(tmp_path / "saved", structure["query"][1] + "/config.json", pooling_mode="cls")
    edit(tmp_path / "saved", ROUTER, structure=structure)
    model = load(tmp_path / "saved")
    assert not model.shared
    assert model.query.backbone is model.document.backbone
    save(model, tmp_path / "again")
    assert len(list((tmp_path / "again").glob("*/model.safetensors"))) == 1
    assert_same_vectors(model, tmp_path / "again")
    again = load(tmp_path / "again")
    assert again.query.backbone is again.document.backbone
    assert again.query.settings.pooling == "cls"


def test_similarity_default_prompt_and_other_prompts_survive_saving(tmp_path: Path) -> None:
    stated = {
        "prompts": {"query": "q: ", "document": "d: ", "clustering": "c: "},
        "default_prompt_name": "clustering",
    }
    edit(save_tiny(tmp_path / "one"), ROOT, **stated, similarity_fn_name="dot")
    save(load(tmp_path / "one"), tmp_path / "two")
    peer, before = peer_of(tmp_path / "two"), peer_of(tmp_path / "one")
    assert peer.similarity_fn_name == "dot"
    found, named = peer.encode("hello"), peer.encode("hello", prompt_name="clustering")
    np.testing.assert_allclose(found, before.encode("hello"), atol=1e-6)
    np.testing.assert_allclose(named, found, atol=1e-6)
    assert np.abs(peer.encode("hello", prompt="") - found).max() > 1e-3


def test_other_settings_of_a_loaded_model_share_its_weights(tmp_path: Path) -> None:
    model = load(save_tiny(tmp_path))
    other = override(model, {"query_prompt": "ask: ", "max_tokens": 20})
    assert other.shared
    assert other.query.backbone is model.query.backbone
    assert (other.query.settings.query_prompt, other.query.settings.max_tokens) == ("ask: ", 20)
    assert override(model, {}) is model


def test_models_known_by_name_leave_the_prompt_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_tiny(tmp_path)
    monkeypatch.setattr("adiabat.models.loading.local_folder", lambda name, **_: tmp_path)
    assert not load("hkunlp/instructor-base").query.settings.pool_prompt
    assert load("hkunlp/instructor-base", settings={"pool_prompt": True}).query.settings.pool_prompt
    assert load("hkunlp/other").query.settings.pool_prompt


@pytest.mark.parametrize(
    "prompts", [{"query": "q: ", "passage": "p: "}, {"query": "q: ", "corpus": "p: ", "document": None}]
)
def test_other_names_of_the_document_prompt_are_found(prompts: dict[str, str | None], tmp_path: Path) -> None:
    save_tiny(tmp_path)
    edit(tmp_path, ROOT, prompts=prompts)
    settings = load(tmp_path).query.settings
    assert (settings.query_prompt, settings.document_prompt) == ("q: ", "p: ")


# Plain Hugging Face directories.


@pytest.mark.parametrize("kind", KINDS)
def test_a_plain_model_gets_mean_pooling_and_unit_length(kind: Kind, tmp_path: Path) -> None:
    model = load(save_plain(tmp_path, kind))
    assert model.query.settings == EncoderSettings("mean", True, 512)
    plain = tiny_encoder(kind, settings=EncoderSettings())
    vectors = (one.encode(TEXTS, side="query", precision="fp32") for one in (model, plain))
    np.testing.assert_array_equal(*vectors)


def test_settings_of_the_user_come_first(tmp_path: Path) -> None:
    numbers = {"normalize": False, "max_tokens": 40}
    model = load(save_plain(tmp_path), settings={"pooling": "last", "query_prompt": "q: ", **numbers})
    assert model.query.settings == EncoderSettings("last", False, 40, "q: ")


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


# Lower-casing.


def cased_word_pieces(folder: Path) -> Path:
    """A model with a tokenizer of its own class, which rebuilds its normaliser when loaded."""
    save_tiny(folder)
    pieces = ("[UNK]", "[PAD]", "[SEP]", "[CLS]", "[MASK]", "river", "River", "rise")
    tokenizer = BertTokenizer(vocab={token: i for i, token in enumerate(pieces)}, do_lower_case=False)
    assert isinstance(tokenizer.backend_tokenizer, Tokenizer)
    assert isinstance(tokenizer.backend_tokenizer.model, WordPiece)
    tokenizer.save_pretrained(folder)
    return folder


def test_lower_casing_beside_the_tokenizer_is_done_once_and_survives_saving(tmp_path: Path) -> None:
    texts = ["River RISE", "river rise"]
    cased = lists(load(cased_word_pieces(tmp_path / "model")).query.tokenize(texts, side="query"))
    assert cased[0] != cased[1]
    edit(tmp_path / "model", LIMITS, do_lower_case=True)
    model = load(tmp_path / "model")
    lowered = lists(model.query.tokenize(texts, side="query"))
    assert lowered[0] == lowered[1] == cased[1]
    assert_same_vectors(model, tmp_path / "model", texts)
    save(model, tmp_path / "again")
    again = load(tmp_path / "again")
    assert lists(again.query.tokenize(texts, side="query")) == lowered
    assert again.fingerprint() == model.fingerprint()
    assert_same_vectors(model, tmp_path / "again", texts)


def test_routes_of_the_same_modules_are_one_tower(tmp_path: Path) -> None:
    router(tmp_path / "saved")
    structure = structure_of(tmp_path / "saved")
    edit(tmp_path / "saved", ROUTER, structure=dict.fromkeys(SIDES, structure["document"]))
    assert load(tmp_path / "saved").shared


def test_a_limit_of_the_user_is_that_of_both_sides(tmp_path: Path) -> None:
    edit(save_tiny(tmp_path), LIMITS, query_length=9, document_length=30)
    settings = load(tmp_path, settings={"max_tokens": 20}).query.settings
    assert (settings.limit("query"), settings.limit("document")) == (20, 20)
    assert override(load(tmp_path), {"max_tokens": 21}).query.settings.limit("query") == 21


def test_towers_of_one_backbone_with_limits_of_their_own_keep_them(tmp_path: Path) -> None:
    model = load(save_tiny(tmp_path / "one"))
    query = model.query.with_settings(replace(model.query.settings, query_max_tokens=9))
    save(DualEncoder(query, model.document), tmp_path / "two")
    again = load(tmp_path / "two")
    limits = [again.tower(side).settings.limit(side) for side in SIDES]
    assert limits == [9, model.document.settings.max_tokens]
    assert_same_vectors(again, tmp_path / "two")


# XLM-R keeps two rows of its positions for padding; T5 has relative positions, and so no limit of its own.
@pytest.mark.parametrize(
    ("kind", "tokenizer_limit", "limit"),
    [
        ("bert", 50, 50),
        ("bert", 10**30, 600),
        ("bert", 700, 600),
        ("xlm-roberta", 10**30, 598),
        ("t5", 10**30, 512),
    ],
)
def test_a_text_is_cut_at_the_least_limit(
    kind: Kind, tokenizer_limit: int, limit: int, tmp_path: Path
) -> None:
    edit(save_plain(tmp_path, kind), TOKENIZER, model_max_length=tokenizer_limit)
    assert load(tmp_path).query.settings.max_tokens == limit


def test_rotary_positions_may_go_past_their_trained_length(tmp_path: Path) -> None:
    model = load(save_plain(tmp_path, "llama"), settings={"max_tokens": 700})
    assert np.isfinite(model.encode(["a" * 800], side="query", precision="fp32")).all()
