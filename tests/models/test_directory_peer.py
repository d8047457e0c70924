"""Vectors equal to sentence-transformers' own for every kind of directory that we read; so are those of what we save of it."""

import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as peers

import adiabat
from adiabat.config.reader import checked
from adiabat.config.tuning import TuneSettings
from adiabat.data.records import SIDES
from adiabat.models.loading import load
from adiabat.models.saving import save
from adiabat.models.towers import DualEncoder
from tests.commands import one_thread
from tests.models.peer_directories import DIRECTORIES, LEFT, LIMITS, dense, with_modules
from tests.tiny import edit, write

TEXTS = [
    "Where does the RIVER rise?",
    "река",
    "a",
    "alpha " * 20 + "omega of the long text",
    "river bank rise of a b c d e",
    "the cat on the moon",
    "word " * 150,
]


def assert_equal_vectors(model: DualEncoder, folder: Path) -> None:
    peer = SentenceTransformer(str(folder), device="cpu")
    for side in SIDES:
        encode = peer.encode_query if side == "query" else peer.encode_document
        theirs = np.stack([encode(text) for text in TEXTS])
        np.testing.assert_allclose(model.encode(TEXTS, side=side, precision="fp32"), theirs, atol=1e-5)


CHANGED = {
    "transformer: config_args": "backbone",
    "transformer: truncation_side": "tokenizer",
    "transformer: model_max_length": "max_tokens",
    "transformer: document_length": "max_tokens",
    "root: truncate_dim": "width",
}
"""Directories that differ from the usual one in one file, and the part of the fingerprint that must say so."""


@pytest.mark.parametrize("name", CHANGED)
def test_what_changes_vectors_changes_the_fingerprint(name: str, tmp_path: Path) -> None:
    DIRECTORIES["pooling mean"](tmp_path / "usual")
    DIRECTORIES[name](tmp_path / "model")
    (told,) = load(tmp_path / "usual").fingerprint().differences(load(tmp_path / "model").fingerprint())
    assert told.startswith(f"{CHANGED[name]} ")


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_directory_gives_the_vectors_of_sentence_transformers_as_it_is_and_saved_again(name: str, tmp_path: Path) -> None:
    DIRECTORIES[name](tmp_path / "model")
    model = load(tmp_path / "model")
    assert_equal_vectors(model, tmp_path / "model")
    save(model, tmp_path / "again")
    assert_equal_vectors(model, tmp_path / "again")
    again = load(tmp_path / "again")
    for side in SIDES:
        assert again.fingerprint(side) == model.fingerprint(side)
        np.testing.assert_array_equal(again.encode(TEXTS, side=side, precision="fp32"), model.encode(TEXTS, side=side, precision="fp32"))


def test_a_tuned_model_keeps_what_its_directory_said(tmp_path: Path) -> None:
    build = with_modules(dense(32, residual=True), peers.Normalize(), root={"truncate_dim": 16, "prompts": {"query": "q: "}})
    build(tmp_path / "model")
    edit(tmp_path / "model", LIMITS, query_length=12, document_length=20, config_args={"layer_norm_eps": 0.1}, tokenizer_args=LEFT)
    corpus = "".join(json.dumps({"_id": f"d{i}", "text": f"document {i} of some length"}) + "\n" for i in range(16))
    pairs = "".join(json.dumps({"query": f"question {i}", "pos": [f"d{i}"], "neg": [f"d{(i + 1) % 16}"]}) + "\n" for i in range(16))
    write(tmp_path, "corpus.jsonl", corpus)
    write(tmp_path, "pairs.jsonl", pairs)
    short = checked(TuneSettings, {"tune": {"max_epochs": 1, "batches_per_epoch": 2}, "data": {"validation_fraction": 0.4}})
    with one_thread():
        adiabat.embed(tmp_path / "model", tmp_path / "corpus.jsonl", tmp_path / "store")
        adiabat.tune(tmp_path / "model", tmp_path / "store", tmp_path / "pairs.jsonl", tmp_path / "job", settings=short)
    tuned, before = load(tmp_path / "job/model"), load(tmp_path / "model")
    assert tuned.width == 16
    assert tuned.query.settings == before.query.settings
    assert tuned.fingerprint("document") == before.fingerprint("document")
    assert_equal_vectors(tuned, tmp_path / "job/model")
