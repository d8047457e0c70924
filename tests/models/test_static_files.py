"""Static models on disk: each layout gives the vectors of its own library, what we save has equal ones, and
bad files are told.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as peers
from tokenizers import Tokenizer
from tokenizers.models import BPE, Unigram
from torch import nn

from adiabat.core.errors import ModelError
from adiabat.models.embedding_head import EncoderSettings, Projection
from adiabat.models.loading import load
from adiabat.models.saving import save
from adiabat.models.static import TOKENIZER, WEIGHTS
from adiabat.models.towers import DualEncoder, build_towers
from tests.models.peer_directories import assert_same_vectors
from tests.models.static_models import (
    CORNERS,
    NEW,
    OLD,
    WIDTH,
    WORDS,
    static_encoder,
    word_table,
    word_tokenizer,
    write_embedding,
    write_model2vec,
    write_modules,
    write_static,
)
from tests.models.worlds import Build, removed, written
from tests.refused import Facts, one_line
from tests.tiny import edit, save_plain, save_tiny, tiny_encoder

AGAIN = ("get the model",)
MAPPING = torch.tensor([0, 1, 1, 1, 2, 3, 4, 4, 2, 0, 3, 1])
SCALES = torch.linspace(0.5, 2.0, len(WORDS))


def assert_as_sentence_transformers(folder: Path, texts: list[str] = CORNERS) -> None:
    assert_same_vectors(load(folder), folder, texts, atol=1e-6)


def assert_as_model2vec(folder: Path, texts: list[str] = CORNERS) -> None:
    peer = pytest.importorskip("model2vec").StaticModel.from_pretrained(folder)
    np.testing.assert_allclose(load(folder).encode(texts, side="document"), peer.encode(texts), atol=1e-6)


# As sentence-transformers reads them.


@pytest.mark.parametrize(
    "dotted",
    [OLD.format("StaticEmbedding"), NEW.format("static_embedding.StaticEmbedding")],
    ids=["old", "new"],
)
@pytest.mark.parametrize("place", [".", "0_StaticEmbedding"])
@pytest.mark.parametrize("unit", [True, False], ids=["unit", "any"])
def test_either_name_in_either_place_is_read(dotted, place, unit, tmp_path):
    write_embedding(tmp_path / place, {"embedding.weight": word_table()})
    write_modules(tmp_path, (place, dotted), *([("1_Normalize", OLD.format("Normalize"))] if unit else []))
    assert load(tmp_path).query.settings.normalize is unit
    assert_as_sentence_transformers(tmp_path)


TABLES: dict[str, dict[str, torch.Tensor]] = {
    "plain": {"embeddings": word_table()},
    "weights": {"embeddings": word_table(), "weights": SCALES},
    "mapping": {"embeddings": word_table(rows=5), "mapping": MAPPING.int()},
    "both": {"embeddings": word_table(rows=5), "mapping": MAPPING, "weights": SCALES.double()},
}


def test_towers_may_be_static_on_one_side(tmp_path):
    save_tiny(tmp_path / "transformer", settings=EncoderSettings(max_tokens=64))
    static, full = (
        peers.StaticEmbedding(word_tokenizer(), embedding_weights=word_table(width=32)),
        peers.Transformer(str(tmp_path / "transformer")),
    )
    router = peers.Router.for_query_document([static], [full, peers.Pooling(32)])
    SentenceTransformer(modules=[router, peers.Normalize()], device="cpu").save_pretrained(
        str(tmp_path / "both")
    )
    assert_as_sentence_transformers(tmp_path / "both", CORNERS[2:])


# As model2vec reads them.


@pytest.mark.parametrize("tensors", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize(
    "config", [{}, {"normalize": True, "max_length": 3}, {"max_length": None, "seq_length": 5}]
)
def test_a_directory_of_model2vec_is_read_as_model2vec_does(tensors, config, tmp_path):
    assert_as_model2vec(write_model2vec(tmp_path, tensors, **config))


@pytest.mark.parametrize("tensors", TABLES.values(), ids=TABLES)
def test_a_directory_of_model2vec_gives_the_vectors_of_a_plain_loop(tensors, tmp_path):
    model = load(write_model2vec(tmp_path, tensors))
    rows, weights = (
        tensors.get("mapping", torch.arange(len(WORDS))),
        tensors.get("weights", torch.ones(len(WORDS))),
    )
    expected = []
    for text in CORNERS:
        known = [WORDS.index(word) for word in text.split() if word in WORDS]
        vectors = [float(weights[token]) * tensors["embeddings"][int(rows[token])].numpy() for token in known]
        expected.append(np.mean(vectors, axis=0) if vectors else np.zeros(WIDTH))
    np.testing.assert_allclose(model.encode(CORNERS, side="query"), expected, atol=1e-6)
    assert model.query.settings == EncoderSettings(normalize=False, max_tokens=512)


def test_long_texts_are_cut_by_letters_first_as_model2vec_does(tmp_path):
    folder = write_model2vec(tmp_path, {"embeddings": word_table()}, max_length=4)
    # The words in the middle have 3 and 4 letters: rounded down, 12 letters for 4 tokens.
    assert load(folder).query.tokenizer.letters_per_token == 3
    texts = ["zebrazebr a cat moon", "a a a cat dog", "the the the cat"]
    expected = [text[:12].split()[:4] for text in texts]
    table = word_table().numpy()
    means = [
        np.mean([table[WORDS.index(word)] for word in words if word in WORDS], axis=0) for words in expected
    ]
    np.testing.assert_allclose(load(folder).encode(texts, side="query"), means, atol=1e-6)
    assert_as_model2vec(folder, texts)


def test_whole_numbers_are_read_as_model2vec_does(tmp_path):
    table = (word_table() * 50).round().clamp(-127, 127).to(torch.int8)
    assert_as_model2vec(write_model2vec(tmp_path, {"embeddings": table}, normalize=True))


@pytest.mark.parametrize(
    "model",
    [
        Unigram([("<unk>", 0.0), ("cat", -1.0), ("dog", -1.5)], unk_id=0),
        BPE({"c": 0, "a": 1, "t": 2}, []),
        BPE({"u": 0, "a": 1, "t": 2}, [], unk_token="u"),
    ],
    ids=["unigram", "none", "bpe"],
)
def test_unknown_tokens_are_left_out_whatever_the_kind_of_tokenizer(model, tmp_path):
    folder = write_model2vec(tmp_path, {"embeddings": word_table(rows=3)}, Tokenizer(model))
    assert_as_model2vec(folder, ["cat", "cat!", "tact", "xyz", "dogcat", ""])


# What we save.


@pytest.mark.parametrize("limit", [None, 5])
@pytest.mark.parametrize("projected", [False, True], ids=["plain", "projected"])
@pytest.mark.parametrize("unit", [True, False], ids=["unit", "any"])
def test_a_saved_model_gives_equal_vectors_in_sentence_transformers(limit, projected, unit, tmp_path):
    model = load(
        write_static(tmp_path / "one", limit=limit),
        settings={"query_prompt": "the ", "document_prompt": "a ", "normalize": unit},
    )
    if projected:
        model.query.projections.append(Projection(nn.Linear(WIDTH, 3), nn.Tanh()))
    save(model, tmp_path / "two")
    assert_as_sentence_transformers(tmp_path / "two")
    saved = load(tmp_path / "two")
    assert saved.fingerprint() == model.fingerprint()
    np.testing.assert_array_equal(saved.encode(CORNERS, side="query"), model.encode(CORNERS, side="query"))


def test_a_saved_pair_keeps_its_towers(tmp_path):
    settings = EncoderSettings(max_tokens=64)
    pairs = [
        DualEncoder(static_encoder(word_table(width=32), settings=settings), tiny_encoder(settings=settings)),
        DualEncoder(
            static_encoder(settings=settings),
            static_encoder(word_table(seed=1), settings=replace(settings, max_tokens=3)),
        ),
    ]
    for number, pair in enumerate(pairs):
        save(pair, tmp_path / str(number))
        assert_as_sentence_transformers(tmp_path / str(number), CORNERS[2:])
        assert load(tmp_path / str(number)).fingerprints() == pair.fingerprints()


@pytest.mark.parametrize(
    "act",
    [
        lambda model, folder: save(model, folder),
        lambda model, folder: build_towers(model, kind="shared", seed=0),
    ],
    ids=["saved", "trained"],
)
def test_a_directory_of_model2vec_cannot_be_kept_and_that_is_told_before_anything_is_done(act, tmp_path):
    model = load(write_model2vec(tmp_path / "model", {"embeddings": word_table()}))
    with one_line(ModelError, "sentence-transformers'", "got a directory of model2vec", "unknown tokens"):
        act(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# Bad files.


def tensors(**found: torch.Tensor) -> Build:
    return lambda folder: write_embedding(folder, found)


TABLE = word_table(rows=5)
FAULTS: dict[str, tuple[Build, Facts]] = {
    "no weights": (removed(WEIGHTS), (f"hold {WEIGHTS} and {TOKENIZER}", f"got no {WEIGHTS};")),
    "nothing": (removed(WEIGHTS, TOKENIZER), (f"got no {WEIGHTS} and no {TOKENIZER}; get",)),
    "damaged weights": (written(WEIGHTS, "x"), (f"{WEIGHTS} must be undamaged, got SafetensorError", *AGAIN)),
    "damaged tokenizer": (written(TOKENIZER, "{"), (f"{TOKENIZER} must be undamaged, got Exception", *AGAIN)),
    "other tensors": (
        tensors(weight=TABLE, bias=SCALES),
        ("embedding.weight or embeddings", "got bias, weight", *AGAIN),
    ),
    "a vector": (
        tensors(embeddings=TABLE[0]),
        ("embeddings must", "one row per token", "shape (8,)", *AGAIN),
    ),
    "few rows": (
        tensors(embeddings=TABLE),
        ("no token beyond the 5 rows of model.safetensors", "got one of id 11", "they belong to"),
    ),
    "few weights": (
        tensors(embeddings=word_table(), weights=SCALES[1:]),
        ("weights must", "one number per token (12)", "got shape (11,)"),
    ),
    "mapping too high": (
        tensors(embeddings=TABLE, mapping=MAPPING + 1),
        ("mapping must", "rows from 0 to 4", "got 5", *AGAIN),
    ),
    "mapping below zero": (
        tensors(embeddings=TABLE, mapping=MAPPING - 1),
        ("mapping must", "rows from 0 to 4", "got -1", *AGAIN),
    ),
    "mapping of fractions": (
        tensors(embeddings=TABLE, mapping=SCALES),
        ("mapping must", "got torch.float32 of shape (12,)", *AGAIN),
    ),
    "short mapping": (tensors(embeddings=TABLE, mapping=MAPPING[:6]), ("no token beyond the 6 rows",)),
}


@pytest.mark.parametrize(("spoil", "facts"), FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("listed", [True, False], ids=["listed", "model2vec"])
def test_a_bad_file_is_told(spoil, facts, listed, tmp_path):
    write_model2vec(tmp_path, {"embeddings": word_table()})
    if listed:
        write_modules(tmp_path, (".", OLD.format("StaticEmbedding")))
    spoil(tmp_path)
    with one_line(ModelError, str(tmp_path), *facts):
        load(tmp_path)


@pytest.mark.parametrize("kind", ["Pooling", "WordWeights"])
def test_modules_that_a_static_model_cannot_have_are_told(kind, tmp_path):
    write_modules(
        write_static(tmp_path),
        ("0_StaticEmbedding", OLD.format("StaticEmbedding")),
        ("1_Other", OLD.format(kind)),
    )
    with one_line(ModelError, "after the StaticEmbedding", "any Dense, then Normalize", f"got {kind}"):
        load(tmp_path)


def test_a_configuration_of_another_kind_is_no_static_model(tmp_path):
    folder = save_plain(tmp_path)
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"] == "bert"
    assert load(folder).query.backbone.config.model_type == "bert"
    edit(folder, "config.json", model_type="model2vec")
    shutil.copy(folder / "tokenizer.json", folder / "copy.json")
    with one_line(ModelError, "embedding.weight or embeddings", "got "):
        load(folder)


@pytest.mark.parametrize("limit", ["many", 7.5, True])
def test_a_limit_that_is_no_whole_number_is_told(limit, tmp_path):
    with one_line(ModelError, "max_length", "a whole number", "null for none", f"got {limit!r}"):
        load(write_model2vec(tmp_path, {"embeddings": word_table()}, max_length=limit))


def test_a_table_with_rows_to_spare_is_read(tmp_path):
    assert_as_sentence_transformers(write_static(tmp_path, word_table(rows=16)))
