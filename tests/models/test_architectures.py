"""Tiny random models of many architectures: each embeds as transformers alone does, passes in training, and
goes through whole jobs.
"""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import BertConfig, BertModel

import adiabat
from adiabat.adiabatic.expected_time import Pace
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import ConfigError, ModelError
from adiabat.data.records import Document
from adiabat.models.bulk import TokenTable
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.models.loading import load
from adiabat.models.packing import PackedBackbone, is_packable
from adiabat.models.towers import trainable_copy
from adiabat.runs.run_log import read_log
from adiabat.store.build import build_store
from adiabat.training.gradient_cache import Chunking, training_copies
from adiabat.training.passes import Group, Passes
from tests.architectures import ARCHITECTURES, SIZES, flop_counter, tiny_architecture
from tests.pages import without_pages
from tests.refused import one_line
from tests.tiny import tiny_tokenizer

TEXTS = ["", "a", "שלום עולם", "the longest of all the texts in this batch, which fills its row", "two words"]
EVERY = pytest.mark.parametrize("name", ARCHITECTURES)


def saved(folder: Path, name: str) -> Path:
    tiny_architecture(name).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def encoder_of(name: str) -> Encoder:
    return trainable_copy(
        Encoder(tiny_architecture(name), tiny_tokenizer(), EncoderSettings(max_tokens=128)).eval()
    )


def almost_no_dropout(module: nn.Module) -> None:
    """Switch every dropout on, at a share that drops nothing: 1 minus it is 1."""
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 1e-30
        for attribute in ("dropout", "attention_dropout", "hidden_dropout"):
            if isinstance(getattr(part, attribute, None), float):
                setattr(part, attribute, 1e-30)
    module.train()


@EVERY
def test_vectors_are_those_of_the_plain_transformer(name: str, tmp_path: Path) -> None:
    plain, tokenizer = tiny_architecture(name), tiny_tokenizer()
    encoder = load(saved(tmp_path, name)).query
    with torch.no_grad():
        alone = [
            plain(input_ids=torch.tensor([tokenizer(text)["input_ids"]])).last_hidden_state[0].mean(dim=0)
            for text in TEXTS
        ]
    expected = nn.functional.normalize(torch.stack(alone), dim=-1).numpy()
    assert encoder.width == expected.shape[1]
    np.testing.assert_allclose(encoder.encode(TEXTS, side="query", precision="fp32"), expected, atol=1e-5)


@EVERY
def test_training_passes_equal_padded_ones_and_cost_what_is_counted(name: str) -> None:
    encoder = encoder_of(name)
    batch = encoder.collate(encoder.tokenize(TEXTS, side="query"), side="query")
    with torch.no_grad():
        padded = encoder.eval()(batch)
    almost_no_dropout(encoder)
    chunking = Chunking(cached=True, checkpointed=True)
    passes = Passes(
        encoder, precision="fp32", copies=training_copies([encoder], 1, chunking, "fp32"), chunking=chunking
    )
    table = TokenTable.of(encoder, TEXTS, side="query")
    told = passes.operations([Group(table, np.arange(len(TEXTS)))])
    with sdpa_kernel(SDPBackend.MATH), flop_counter() as counter:
        embeddings = passes.embed(table, np.arange(len(TEXTS)))
        (embeddings @ torch.randn(embeddings.shape[1])).sum().backward()
    torch.testing.assert_close(embeddings, padded, rtol=1e-4, atol=1e-5)
    # DeBERTa projects its table of distances once for a whole batch, which is counted for each text.
    assert 0.98 <= told / counter.get_total_flops() <= (1.35 if name.startswith("deberta") else 1.02)
    for name, weights in encoder.used_parameters().items():
        assert weights.grad is not None, name
        assert weights.grad.isfinite().all(), name
        weights.data -= 0.01 * weights.grad
    with torch.no_grad():
        changed = (encoder.eval()(batch) - padded).abs().amax()
    assert 1e-6 < changed < 2


PACKED = [name for name in ARCHITECTURES if is_packable(tiny_architecture(name))]


@pytest.mark.parametrize("name", PACKED)
def test_packed_texts_see_what_padded_ones_see_with_dropout_and_without(name: str) -> None:
    encoder = encoder_of(name).eval()
    batch = encoder.collate(encoder.tokenize(TEXTS, side="query"), side="query")
    packed = copy.deepcopy(encoder)
    packed.backbone = PackedBackbone(packed.backbone)  # type: ignore[assignment]
    with torch.no_grad():
        padded = encoder(batch)
        torch.testing.assert_close(packed(batch), padded, rtol=1e-4, atol=1e-5)
        almost_no_dropout(packed)
        torch.testing.assert_close(packed(batch), padded, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs, each of which names a document of a corpus."""
    folder = tmp_path_factory.mktemp("texts")
    words = ["water", "heat", "metal", "star", "galaxy", "protein", "cell", "gene"]
    rows = [
        {
            "query": f"what is {words[n % 8]} {n}",
            "positive": f"{words[n % 8]} of {n}",
            "negative": [f"{words[(n + k) % 8]} of {n + k}" for k in (1, 2, 3)],
        }
        for n in range(16)
    ]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


# One of each kind: padded and packed, relative positions, encoder half, sliding windows, a decoder, another
# width of states, no positions.
@pytest.mark.parametrize(
    "name", ["bert", "deberta-v3", "t5", "modernbert", "llama-bidirectional", "gemma3", "opt", "mpt"]
)
def test_whole_jobs_end_with_a_model_of_their_own(
    name: str, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pages and the expected time have tests of their own.
    without_pages(monkeypatch)
    monkeypatch.setattr(
        "adiabat.adiabatic.tune.measured_pace", lambda *_, **__: Pace(0.01, 0.01, 0.01, "CPU")
    )
    model, pairs = saved(tmp_path / "model", name), str(texts / "pairs.jsonl")
    tables = {"data": {"validation_fraction": 0.25}, "run": {"device": "cpu", "log_every": 1}}

    job = {"model": str(model), "data": pairs, "out": str(tmp_path / "train")}
    training = {"batch_size": 8, "steps": 1, "learning_rate": 1e-3}
    cache = {"data": {**tables["data"], "cache": str(tmp_path / "cache")}}
    settings = checked(TrainSettings, {**tables, **cache, "job": job, "train": training})
    assert adiabat.estimate(settings=settings).operations > 0
    adiabat.train(settings=settings)

    rows = [json.loads(line) for line in Path(pairs).read_text(encoding="utf-8").splitlines()]
    named = dict.fromkeys(text for row in rows for text in (row["positive"], *row["negative"]))
    documents, store = [Document(text, text) for text in named], tmp_path / "store"
    how = {"dtype": "float32", "source": "corpus", "encoder_name": "tiny"}
    build_store(load(model).document, lambda: iter(documents), store, **how)
    tuning = {"batch_size": 8, "batches_per_epoch": 1, "max_epochs": 1, "learning_rate": 1e-3, "keep": "last"}
    regime = checked(TuneSettings, {**tables, "tune": tuning})
    adiabat.tune(str(model), store, pairs, tmp_path / "tune", settings=regime)

    for out in ("train", "tune"):
        losses = [row["loss"] for row in read_log(tmp_path / out / "log.jsonl") if "loss" in row]
        assert losses
        assert np.isfinite(losses).all()
        trained = load(tmp_path / out / "model").query
        assert np.isfinite(trained.encode(TEXTS, side="query", precision="fp32")).all()


# --- Tokens, positions and heads ---


def with_more_tokens(folder: Path) -> Path:
    """A model whose tokenizer knows two tokens more than its table has rows."""
    saved(folder, "bert")
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["newtoken1", "newtoken2"])
    tokenizer.save_pretrained(folder)
    return folder


def test_a_token_beyond_the_table_is_refused_where_a_text_holds_it(tmp_path: Path) -> None:
    encoder = load(with_more_tokens(tmp_path)).query
    rows = len(tiny_tokenizer())
    expected = load(saved(tmp_path / "plain", "bert")).query.encode(["plain water"], side="query")
    np.testing.assert_array_equal(encoder.encode(["plain water"], side="query"), expected)
    facts = (f"beyond the {rows} rows", f"'newtoken2' of id {rows + 1}", "in the text 'some newtoken2'")
    with one_line(ModelError, *facts):
        encoder.encode(["plain water", "some newtoken2"], side="document")


def test_a_padding_token_beyond_the_table_pads_with_another(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"pad_token": "[FILL]"})
    saved(tmp_path, "llama")
    tokenizer.save_pretrained(tmp_path)
    encoder = load(tmp_path).query
    together = encoder.encode(["a", "a longer text"], side="query", precision="fp32")
    np.testing.assert_allclose(together[:1], encoder.encode(["a"], side="query", precision="fp32"), atol=1e-6)


def test_a_pooler_that_the_files_lack_is_always_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds_of_gpus: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds_of_gpus.append)
    BertModel(BertConfig(**SIZES), add_pooling_layer=False).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    poolers = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        poolers.append(load(tmp_path).query.backbone.pooler.dense.weight)
        assert torch.get_rng_state().equal(state)
    assert poolers[0].equal(poolers[1])
    assert seeds_of_gpus == [1, 2]


@pytest.mark.parametrize("name", ["bert", "roberta", "mpnet", "gpt2", "opt", "gptj"])
def test_more_tokens_than_positions_are_refused(name: str, tmp_path: Path) -> None:
    folder = saved(tmp_path, name)
    positions = 600 - (2 if name in ("roberta", "mpnet") else 0)
    text = ["x" * 2 * positions]
    assert np.isfinite(
        load(folder, settings={"max_tokens": positions}).query.encode(text, side="query")
    ).all()
    with one_line(ConfigError, "encoder.max_tokens", f"<= {positions},", f"got {positions + 1}"):
        load(folder, settings={"max_tokens": positions + 1})
