"""One tower: texts in, vectors out, whatever the order, the batch, the script, the layout and the token that
pads.
"""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import nn

from adiabat.core.errors import ConfigError, ModelError
from adiabat.core.ragged import Ragged
from adiabat.data.records import SIDES
from adiabat.models.backbone import require_pad_token
from adiabat.models.bulk import Progress, _Pass
from adiabat.models.device import Precision, parallel_map
from adiabat.models.embedding_head import POOLINGS, EncoderSettings, Pooling, Projection
from adiabat.models.encoder import Encoder
from adiabat.models.loading import load, override
from adiabat.models.saving import save
from adiabat.models.towers import DualEncoder
from tests.models.peer_directories import assert_same_vectors
from tests.refused import one_line
from tests.tiny import (
    CLS,
    KINDS,
    PAD,
    SEP,
    Kind,
    lists,
    save_tiny,
    tiny_backbone,
    tiny_dual,
    tiny_encoder,
    tiny_tokenizer,
)

TEXTS = [
    "Where does the river rise?",
    "river",
    "",
    "Комитет собрался, чтобы взвесить риски.",
    "اجتمعت اللجنة لدراسة تكاليف الخط.",
    "לאן זורם הנהר?",
    "委员会开会讨论成本。",
    "a",
    "word " * 300,
    "  spaces around  ",
    "🙂 e\u0301 \u200b",
]


LAYOUTS_AND_POOLINGS: list[tuple[Kind, Pooling]] = [
    *((kind, "mean") for kind in KINDS),
    *(("bert", pooling) for pooling in POOLINGS if pooling != "mean"),
    ("gpt-neox", "last"),
    ("llama", "last"),
]
"""Every layout and every pooling once, and the decoders with the pooling made for them."""


def vectors(encoder: Encoder, **how: Any) -> np.ndarray:
    return encoder.encode(TEXTS, side="query", precision="fp32", **how)


def one_by_one(encoder: Encoder, texts: list[str]) -> np.ndarray:
    with torch.no_grad():
        rows = [
            encoder(encoder.collate(encoder.tokenize([text], side="query"), side="query")) for text in texts
        ]
    return torch.cat(rows).numpy()


@pytest.mark.parametrize(("kind", "pooling"), LAYOUTS_AND_POOLINGS)
def test_encoding_in_batches_equals_forward_one_by_one(kind: Kind, pooling: Pooling) -> None:
    encoder = tiny_encoder(kind, settings=EncoderSettings(pooling=pooling, max_tokens=64))
    together = vectors(encoder)
    np.testing.assert_allclose(together, one_by_one(encoder, TEXTS), atol=1e-5)


@pytest.mark.parametrize("token_budget", [1, 100, 10**6])
def test_the_token_budget_does_not_change_the_vectors(token_budget: int) -> None:
    encoder = tiny_encoder()
    expected = vectors(encoder)
    np.testing.assert_allclose(vectors(encoder, token_budget=token_budget), expected, atol=1e-6)


def test_order_is_kept_across_blocks_of_tokenising(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = tiny_encoder()
    expected = vectors(encoder)
    monkeypatch.setattr("adiabat.models.bulk.TOKENIZE_BLOCK", 3)
    np.testing.assert_allclose(vectors(encoder), expected, atol=1e-6)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_one_batch_starts_no_thread_and_has_the_bits_of_a_pass_in_one(
    precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = tiny_encoder().eval()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    tokens = encoder.collate(encoder.tokenize(TEXTS[:3], side="query"), side="query")
    with parallel_map([_Pass(encoder, precision, limit=10)]) as embed:
        (batch,) = embed([(np.arange(3), tokens)])
    monkeypatch.setattr("adiabat.models.device.ThreadPoolExecutor", None)
    alone = encoder.encode(TEXTS[:3], side="query", precision=precision, token_budget=1_000)
    # These texts are in the order of a batch already: the longest comes first.
    assert np.array_equal(alone, batch.embeddings())
    with pytest.raises(TypeError, match="NoneType"):
        encoder.encode(TEXTS[:3], side="query", precision=precision, token_budget=1)


def test_no_texts_give_no_rows() -> None:
    assert tiny_encoder(projection=7).encode([], side="query").shape == (0, 7)


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_text_alone_gets_a_finite_unit_vector(kind: Kind) -> None:
    vector = tiny_encoder(kind).encode([""], side="document", precision="fp32")
    assert vector.shape == (1, 32)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_text_is_cut_at_the_limit_with_its_special_tokens(kind: Kind) -> None:
    encoder = tiny_encoder(kind, settings=EncoderSettings(max_tokens=10))
    (ids,) = encoder.tokenize(["word " * 100], side="query")
    short = encoder.tokenize(["w"], side="query")[0]
    assert len(ids) == 10
    assert (ids[0] == CLS) == (short[0] == CLS)
    assert (ids[-1] == SEP) == (short[-1] == SEP)


def test_each_side_may_have_a_limit_of_its_own() -> None:
    encoder = tiny_encoder(settings=EncoderSettings(max_tokens=20, query_max_tokens=5))
    assert [len(encoder.tokenize(["a long text that is cut"], side=side)[0]) for side in SIDES] == [5, 20]


@pytest.mark.parametrize(("normalize", "expected"), [(True, [0.48, 0.6]), (False, [2.4, 3.0])])
def test_embeddings_are_truncated_after_unit_length_by_hand(normalize: bool, expected: list[float]) -> None:
    encoder = tiny_encoder(settings=EncoderSettings(normalize=normalize, truncate_dim=2))
    assert encoder.head(torch.tensor([[2.4, 3.0, 3.2]])).tolist()[0] == pytest.approx(expected)
    assert (encoder.width, encoder.full_width, encoder.settings.unit_length) == (2, 32, False)
    assert encoder.encode(["a"], side="query").shape == (1, 2)


@pytest.mark.parametrize(
    "residual", [nn.Identity(), nn.Linear(2, 2, bias=False)], ids=["as it is", "projected"]
)
def test_a_residual_projection_adds_what_it_was_given_by_hand(residual: nn.Identity | nn.Linear) -> None:
    linear = nn.Linear(2, 2)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[1.0, 1.0], [0.0, -2.0]]))
        linear.bias.copy_(torch.tensor([0.5, 0.0]))
        if isinstance(residual, nn.Linear):
            residual.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    # relu(1 + 2 + 0.5) + 1 and relu(-4) + 2
    assert Projection(linear, nn.ReLU(), residual)(torch.tensor([[1.0, 2.0]])).tolist() == [[4.5, 2.0]]


@pytest.mark.parametrize("pool_prompt", [True, False])
@pytest.mark.parametrize(("kind", "pooling"), LAYOUTS_AND_POOLINGS)
def test_prompts_are_handled_as_by_the_peer(
    kind: Kind, pooling: Pooling, pool_prompt: bool, tmp_path: Path
) -> None:
    prompts = {"query_prompt": "query: ", "document_prompt": "Represent: ", "pool_prompt": pool_prompt}
    settings = EncoderSettings(pooling=pooling, max_tokens=40, **prompts)
    encoder = tiny_encoder(kind, settings=settings)
    model = DualEncoder(encoder, encoder)
    save(model, tmp_path)
    assert_same_vectors(model, tmp_path, [text for text in TEXTS if text])


@pytest.mark.parametrize("kind", ["gpt-neox", "llama"])
def test_last_token_pooling_finds_the_last_letter_though_padding_is_end_of_text(kind: Kind) -> None:
    encoder = tiny_encoder(kind, settings=EncoderSettings(pooling="last", max_tokens=64))
    assert encoder.pad_token_id == encoder.tokenizer.eos_token_id == SEP
    token_ids = encoder.tokenize(["river [SEP]", "a"], side="query")
    assert token_ids[0][-1] == SEP
    batch = encoder.collate(token_ids, side="query")
    with torch.no_grad():
        hidden = encoder.backbone(batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state
        last = torch.stack([hidden[row, len(ids) - 1] for row, ids in enumerate(token_ids)])
        torch.testing.assert_close(encoder(batch), nn.functional.normalize(last, dim=-1))


def test_a_tokenizer_without_padding_token_fills_with_zero() -> None:
    encoder = tiny_encoder("gpt-neox")
    expected = vectors(encoder)
    encoder.tokenizer.pad_token = None
    assert encoder.pad_token_id == 0
    filled = encoder.encode(TEXTS[:2], side="query", precision="fp32")
    np.testing.assert_allclose(filled, expected[:2], atol=1e-5)


def test_xlm_roberta_pads_with_the_id_its_positions_know() -> None:
    batch = tiny_encoder("xlm-roberta").collate(Ragged.of([[CLS, 9, SEP], [CLS, SEP]]), side="query")
    assert batch.input_ids[1, 2] == PAD


def test_dropout_is_off_while_encoding_and_every_module_gets_its_mode_back_even_after_a_fault() -> None:
    encoder = tiny_encoder()
    expected = vectors(encoder)
    encoder.train().backbone.train(False)
    encoder.backbone.get_submodule("encoder.layer.0").train()
    modes = [module.training for module in encoder.modules()]
    np.testing.assert_array_equal(vectors(encoder), expected)
    assert [module.training for module in encoder.modules()] == modes

    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encoder.encode(["a"], side="query", precision="fp32", on_progress=stop)
    assert [module.training for module in encoder.modules()] == modes


def test_progress_counts_every_text_once() -> None:
    seen: list[Progress] = []
    tiny_encoder().encode(TEXTS, side="query", precision="fp32", token_budget=200, on_progress=seen.append)
    done = [progress.done for progress in seen]
    assert len(done) > 1
    assert done == sorted(set(done))
    assert seen[-1] == Progress(len(TEXTS), len(TEXTS), full=1)


def test_one_text_is_not_taken_for_a_list_of_letters() -> None:
    with one_line(TypeError, "texts must be a list", "got one text", "write ['hello']"):
        tiny_encoder().encode("hello", side="query")


def test_encoding_leaves_the_random_state_alone() -> None:
    encoder = tiny_encoder()
    before = torch.random.get_rng_state()
    vectors(encoder)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_an_unknown_pooling_is_refused() -> None:
    settings = EncoderSettings()
    object.__setattr__(settings, "pooling", "median")
    with one_line(ConfigError, "encoder.pooling", "one of mean, ", "got 'median'"):
        inspect.unwrap(EncoderSettings.__post_init__)(settings)


SHORT = ["Where does the river rise?", "река", "a", "word " * 20]


def without_padding(kind: Kind = "llama") -> DualEncoder:
    """A decoder as many are published: its tokenizer cannot pad."""
    tokenizer = tiny_tokenizer(kind)
    tokenizer.pad_token = None
    encoder = Encoder(tiny_backbone(kind), tokenizer, EncoderSettings(max_tokens=64)).eval()
    return DualEncoder(encoder, encoder, "decoder")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(without_padding(), tmp_path / "decoder")
    return tmp_path / "decoder"


def query_vectors(model: DualEncoder) -> np.ndarray:
    return model.encode(SHORT, side="query", precision="fp32")


def test_a_padding_token_changes_no_vector_and_no_fingerprint(folder: Path) -> None:
    model = load(folder, pad_token="[SEP]")
    assert (model.query.tokenizer.pad_token, model.query.pad_token_id) == ("[SEP]", 2)
    assert load(folder).query.tokenizer.pad_token is None
    np.testing.assert_allclose(query_vectors(model), query_vectors(load(folder)), atol=1e-6)
    assert model.fingerprint() == load(folder).fingerprint()


def test_the_peer_encodes_with_a_saved_padding_token_and_not_without(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not have a padding token"):
        SentenceTransformer(str(folder), device="cpu").encode(SHORT)
    model = load(folder, pad_token="[SEP]")
    save(model, tmp_path / "padded")
    assert_same_vectors(model, tmp_path / "padded", SHORT)
    again = load(tmp_path / "padded")
    assert again.query.tokenizer.pad_token == "[SEP]"
    assert again.fingerprint() == model.fingerprint()


def test_an_encoder_that_cannot_pad_is_refused_with_the_token_to_set() -> None:
    with one_line(ModelError, "a padding token", "got none", 'set encoder.pad_token = "[SEP]"'):
        require_pad_token(without_padding().query.tokenizer)
    require_pad_token(tiny_dual("llama").query.tokenizer)


# An ordinary token would become a special one on the way to the disk.
@pytest.mark.parametrize("token", ["<|endoftext|>", "a"], ids=["unknown", "ordinary"])
def test_a_token_that_is_not_special_is_refused(token: str, folder: Path) -> None:
    listed = "('[CLS]', '[PAD]', '[SEP]', '[UNK]', '[MASK]')"
    with one_line(
        ConfigError, "encoder.pad_token", "special tokens", listed, f"got {token!r}", "choose another"
    ):
        load(folder, pad_token=token)


@pytest.mark.parametrize("token", ["[SEP]", "[PAD]", "<|endoftext|>"])
def test_a_tokenizer_that_can_pad_keeps_its_own_token(token: str, tmp_path: Path) -> None:
    assert load(save_tiny(tmp_path), pad_token=token).query.tokenizer.pad_token == "[PAD]"


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "pair"])
def test_a_model_already_loaded_gets_a_padding_token_in_a_copy(shared: bool) -> None:
    one, other = without_padding(), without_padding("gpt-neox")
    model = one if shared else DualEncoder(one.query, other.document)
    padded = override(model, {}, pad_token="[SEP]")
    assert padded.shared == shared
    assert padded.query.backbone is model.query.backbone
    assert [tower.tokenizer.pad_token for tower in (padded.query, padded.document)] == ["[SEP]", "[SEP]"]
    assert [tower.tokenizer.pad_token for tower in (model.query, model.document)] == [None, None]
    assert override(padded, {"max_tokens": 9}).query.tokenizer.pad_token == "[SEP]"


def test_an_empty_text_has_one_vector_whatever_token_pads() -> None:
    model = without_padding()
    model.query.tokenizer.backend_tokenizer.post_processor = None
    assert lists(model.query.tokenize([""], side="query")) == [[0]]
    model.query.tokenizer.pad_token = "[SEP]"
    assert lists(model.query.tokenize([""], side="query")) == [[0]]
