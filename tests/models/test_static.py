"""Static models: means of rows, what the rest of the house does with them, and what cannot be done with
them.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import adiabat
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked
from adiabat.config.shared import EncoderSection
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import ConfigError, DataError, ModelError
from adiabat.data.records import SIDES
from adiabat.models.adapters import add_lora, train_biases_only
from adiabat.models.backbone import require_pad_token
from adiabat.models.bulk import TokenTable, embed_all
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.models.freezing import freeze
from adiabat.models.loading import load, override
from adiabat.models.static import StaticBackbone, StaticTokenizer
from adiabat.models.towers import DualEncoder, build_towers
from adiabat.training.gradient_cache import Chunking
from adiabat.training.passes import side_passes
from tests.commands import lines
from tests.models.static_models import (
    CORNERS,
    UNKNOWN,
    WORDS,
    static_encoder,
    word_table,
    word_tokenizer,
    write_model2vec,
    write_static,
)
from tests.refused import Facts, one_line
from tests.tiny import lists

PLAIN = EncoderSettings(normalize=False)
CAT, DOG, SEA = (WORDS.index(word) for word in ("cat", "dog", "sea"))


def encode(encoder, texts, side="query"):
    return encoder.encode(texts, side=side)


def tokenizer(**options) -> StaticTokenizer:
    return StaticTokenizer(word_tokenizer(), rows=len(WORDS), **options)


# Vectors.


def test_a_text_is_the_mean_of_its_tokens():
    table = torch.zeros(len(WORDS), 2)
    table[CAT], table[DOG] = torch.tensor([4.0, 0.0]), torch.tensor([1.0, 3.0])
    found = encode(static_encoder(table, settings=PLAIN), ["cat dog", "cat cat dog", "dog"])
    np.testing.assert_array_equal(found, [[2.5, 1.5], [3.0, 1.0], [1.0, 3.0]])
    np.testing.assert_allclose(
        encode(static_encoder(table), ["cat cat dog"]), [[0.948683, 0.316228]], atol=1e-6
    )


def test_a_text_without_tokens_is_zero_and_no_special_token_is_added():
    encoder = static_encoder()
    assert lists(encoder.tokenize(["", "cat"], side="query")) == [[len(WORDS)], [CAT]]
    np.testing.assert_array_equal(encode(encoder, ["", "cat", " "])[[0, 2]], np.zeros((2, encoder.width)))


def test_unknown_tokens_are_left_out_after_the_limit_and_letters_are_cut_before_it():
    assert lists(tokenizer().token_ids(["zebra cat dog"], limit=2)) == [[UNKNOWN, CAT]]
    assert lists(tokenizer(unknown_id=UNKNOWN).token_ids(["zebra cat dog", "zebra"], limit=2)) == [[CAT], []]
    assert lists(tokenizer(letters_per_token=2).token_ids(["cat dog sea", "dogs"], limit=4)) == [
        [CAT, DOG],
        [UNKNOWN],
    ]
    assert lists(tokenizer(letters_per_token=1).token_ids(["cat dog sea"], limit=5)) == [[CAT, UNKNOWN]]


def test_padding_is_zero_whatever_fills_it():
    backbone = StaticBackbone(word_table())
    states = backbone(torch.tensor([[CAT, DOG]]), torch.tensor([[1, 0]])).last_hidden_state
    torch.testing.assert_close(
        states[0], torch.stack([word_table()[CAT], torch.zeros(backbone.config.hidden_size)])
    )


@pytest.mark.parametrize(("row", "learned"), [(0.0, False), (0.5, True)])
def test_an_unknown_token_of_zeros_is_not_learned(row: float, learned: bool) -> None:
    table = word_table()
    table[UNKNOWN] = row
    backbone = StaticBackbone(table, unknown_id=UNKNOWN)
    backbone(
        torch.tensor([[CAT, UNKNOWN]]), torch.ones(1, 2, dtype=torch.long)
    ).last_hidden_state.sum().backward()
    gradient = backbone.token_embeddings.weight.grad
    assert gradient is not None
    assert gradient[CAT].any()
    assert bool(gradient[UNKNOWN].any()) == learned


# Precision, settings, fingerprint.


def test_automatic_precision_stays_full_where_half_would_gain_nothing(monkeypatch):
    monkeypatch.setattr("adiabat.models.device.native_bf16", lambda device: True)
    encoder = static_encoder()
    assert encoder.settle("auto") == "fp32"
    half, full = (
        encoder.encode(CORNERS[2:], side="query", precision=precision) for precision in ("bf16", "fp32")
    )
    assert np.sum(half * full, axis=1).min() > 0.9999
    assert not np.array_equal(half, full)


def test_fingerprints_tell_apart_what_gives_other_vectors():
    encoder = static_encoder()
    prints = {
        encoder.fingerprint(),
        static_encoder(word_table(seed=1)).fingerprint(),
        static_encoder(side="left").fingerprint(),
        encoder.with_settings(EncoderSettings(max_tokens=9)).fingerprint(),
        *(
            encoder.with_settings(encoder.settings, tokenizer=tokenizer(**one)).fingerprint()
            for one in ({"unknown_id": 0}, {"letters_per_token": 4})
        ),
    }
    assert len(prints) == 6
    assert encoder.fingerprint() == static_encoder().fingerprint() == copy.deepcopy(encoder).fingerprint()


def test_settings_override_those_of_the_directory(tmp_path):
    model = load(
        write_static(tmp_path), settings={"max_tokens": 3, "query_prompt": "the ", "normalize": False}
    )
    plain = load(tmp_path)
    np.testing.assert_array_equal(
        model.encode(["cat dog sea"], side="query"),
        override(plain, {"normalize": False}).encode(["the cat dog"], side="query"),
    )
    assert override(plain, {}, pad_token="[SEP]").query.pad_token_id == len(WORDS)
    require_pad_token(plain.query.tokenizer)


# Stores.


def test_a_store_is_built_searched_and_refused_where_a_document_has_no_known_token(tmp_path):
    model = write_model2vec(tmp_path / "model", {"embeddings": word_table()})
    (tmp_path / "corpus.tsv").write_text("doc_id\ttext\nd1\tthe cat\nd2\tsalt sea\n", encoding="utf-8")
    store = adiabat.embed(model, tmp_path / "corpus.tsv", tmp_path / "store")
    hits = adiabat.search(store.path, "salt sea zebra", model=model, k=2)
    assert [hit.doc_id for hit in hits] == ["d2", "d1"]
    (tmp_path / "zero.tsv").write_text("doc_id\ttext\nd1\tthe cat\nd2\tzebra\n", encoding="utf-8")
    with one_line(DataError, "zero.tsv: ", '"d2"', "zebra", "data.blank = drop"):
        adiabat.embed(model, tmp_path / "zero.tsv", tmp_path / "other")


# Training.


def trained(**options) -> DualEncoder:
    encoder = static_encoder(settings=PLAIN)
    return build_towers(DualEncoder(encoder, encoder), kind="shared", seed=0, **options)


def gradient_of(tower: Encoder, texts: list[str]) -> Tensor:
    """Of the table, by the first number of each vector."""
    tower(tower.collate(tower.tokenize(texts, side="query"), side="query"))[:, 0].sum().backward()
    return tower.backbone.token_embeddings.weight.grad


def test_the_gradient_of_a_row_is_its_share_of_the_text_and_none_of_it_reaches_the_row_of_zeros():
    gradient = gradient_of(trained().query, ["cat cat dog", ""])
    expected = torch.zeros_like(gradient)
    expected[CAT, 0], expected[DOG, 0] = 2 / 3, 1 / 3
    torch.testing.assert_close(gradient, expected)


def test_passes_side_by_side_give_the_vectors_and_gradients_of_one_pass():
    texts = [text for text in CORNERS for _ in range(3)]
    found = []
    for chunking in (Chunking(), Chunking(12, cached=True)):
        tower = trained(projection_width=5).query
        table = TokenTable.of(tower, texts, side="query")
        with side_passes(tower, precision="fp32", chunking=chunking) as passes:
            vectors = passes.embed(table, np.arange(len(texts)))
            vectors.square().sum().backward()
        torch.testing.assert_close(
            vectors.detach(), embed_all(tower, table, token_budget=64), rtol=1e-5, atol=1e-6
        )
        found.append([weights.grad for weights in tower.parameters()])
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)


def test_a_static_model_is_trained_and_saved(tmp_path):
    model = write_static(tmp_path / "model", limit=20)
    words = WORDS[4:]
    lines(
        tmp_path / "pairs.jsonl",
        [{"query": f"the {word}", "positive": f"{word} {other}"} for word in words for other in words],
    )
    job = {"model": str(model), "data": str(tmp_path / "pairs.jsonl"), "out": str(tmp_path / "job")}
    tables = {
        "job": job,
        "data": {"validation_fraction": 0.3},
        "train": {"batch_size": 6, "steps": 2, "validate_every": 2, "learning_rate": 0.1},
    }
    adiabat.train(settings=checked(TrainSettings, tables))
    start, end = load(model), adiabat.load(tmp_path / "job")
    assert end.query.settings == replace(start.query.settings, max_tokens=20)
    assert not np.allclose(end.encode(["cat"], side="query"), start.encode(["cat"], side="query"), atol=1e-3)


def tuning(tmp_path: Path, **settings) -> None:
    model = write_static(tmp_path / "model")
    words = WORDS[4:9]
    lines(tmp_path / "corpus.jsonl", [{"_id": word, "text": f"{word} sea"} for word in words])
    pairs = [
        {"query": f"{other} {word}", "pos": [word], "neg": [one for one in words if one != word]}
        for word in words
        for other in WORDS[9:]
    ]
    lines(tmp_path / "pairs.jsonl", pairs)
    adiabat.embed(model, tmp_path / "corpus.jsonl", tmp_path / "store")
    length = {"max_epochs": 2, "batches_per_epoch": 4, "batch_size": 5, "learning_rate": 0.05}
    regime = {"loss": "in_batch_softmax", **length, **settings}
    tuned = checked(TuneSettings, {"data": {"validation_fraction": 0.4}, "tune": regime})
    adiabat.tune(model, tmp_path / "store", tmp_path / "pairs.jsonl", tmp_path / "job", settings=tuned)


def test_the_query_table_is_tuned_and_the_document_table_kept(tmp_path):
    tuning(tmp_path, freeze=())
    start, end = load(tmp_path / "model"), adiabat.load(tmp_path / "job")
    before, after = ({side: model.encode(["cat"], side=side) for side in SIDES} for model in (start, end))
    np.testing.assert_array_equal(after["document"], before["document"])
    assert not np.allclose(after["query"], before["query"], atol=1e-3)


def test_tuning_with_the_table_frozen_is_refused(tmp_path):
    with one_line(
        ModelError, "freeze must leave something to train", 'got ["embeddings"]', "set freeze = []"
    ):
        tuning(tmp_path)


def test_a_text_without_tokens_breaks_no_gradient_of_a_normalised_tower():
    gradient = gradient_of(static_encoder(), ["cat dog", "", "cat"])
    assert gradient.isfinite().all()
    assert gradient[CAT].any()
    assert not gradient[-1].any()


def passes_with_checkpoints(folder):
    with side_passes(trained().query, precision="fp32", chunking=Chunking(checkpointed=True)):
        pass


def backbone() -> StaticBackbone:
    return StaticBackbone(word_table())


POOLED = ("encoder.pooling", "must be mean", "got max", "leave it out")
LAYERS = ("method must be full", "dense layers", "type static")
REFUSED: list[tuple[Callable[[Path], object], type[Exception], Facts]] = [
    (lambda folder: load(write_static(folder), settings={"pooling": "max"}), ConfigError, POOLED),
    (lambda folder: override(load(write_static(folder)), {"pooling": "max"}), ConfigError, POOLED),
    (
        lambda folder: load(write_static(folder), settings={"pool_prompt": False}),
        ConfigError,
        ("encoder.pool_prompt", "must be true", "got false", "use no prompt"),
    ),
    (
        lambda folder: adiabat.load(write_static(folder), settings=EncoderSection(blocks=2)),
        ConfigError,
        ("encoder.blocks must be left out", "got 2"),
    ),
    (lambda folder: train_biases_only(backbone()), ModelError, LAYERS),
    (lambda folder: add_lora(backbone(), rank=1), ModelError, LAYERS),
    (
        lambda folder: freeze(trained().query.backbone, ["blocks"]),
        ModelError,
        ("knows embeddings.base, embeddings and", "has 0 blocks"),
    ),
    (passes_with_checkpoints, ModelError, ("checkpointed must be False", "StaticBackbone")),
]


@pytest.mark.parametrize(("act", "error", "facts"), REFUSED)
def test_what_a_table_of_tokens_cannot_do_is_refused(act, error, facts, tmp_path):
    with one_line(error, *facts):
        act(tmp_path)


def test_the_table_is_frozen_by_name():
    frozen = freeze(trained().query.backbone, ["embeddings.base"], alone=False)
    assert frozen.names == ("token_embeddings.weight",)
