"""A padding token for tokenizers that have none: needed by those who load what is saved, without effect on any vector."""

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from adiabat.core.errors import ConfigError, ModelError
from adiabat.models.backbone import require_pad_token
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.models.loading import load, override
from adiabat.models.saving import save
from adiabat.models.towers import DualEncoder
from tests.tiny import Kind, save_tiny, tiny_backbone, tiny_dual, tiny_tokenizer

TEXTS = ["Where does the river rise?", "река", "a", "word " * 20]


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


def vectors(model: DualEncoder) -> np.ndarray:
    return model.encode(TEXTS, side="query", precision="fp32")


def test_a_padding_token_changes_no_vector_and_no_fingerprint(folder: Path) -> None:
    model = load(folder, pad_token="[SEP]")
    assert (model.query.tokenizer.pad_token, model.query.pad_token_id) == ("[SEP]", 2)
    assert load(folder).query.tokenizer.pad_token is None
    np.testing.assert_allclose(vectors(model), vectors(load(folder)), atol=1e-6)
    assert model.fingerprint() == load(folder).fingerprint()


def test_sentence_transformers_encodes_with_what_was_saved_with_a_padding_token_and_not_without(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not have a padding token"):
        SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    model = load(folder, pad_token="[SEP]")
    save(model, tmp_path / "padded")
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path / "padded"), device="cpu").encode_query(TEXTS), vectors(model), atol=1e-5)
    again = load(tmp_path / "padded")
    assert again.query.tokenizer.pad_token == "[SEP]"
    assert again.fingerprint() == model.fingerprint()


def test_an_encoder_that_cannot_pad_is_refused_with_the_token_to_set() -> None:
    with pytest.raises(
        ModelError, match=r'the tokenizer must have a padding token, got none: .*; set encoder.pad_token = "\[SEP\]"'
    ) as caught:
        require_pad_token(without_padding().query.tokenizer)
    assert "\n" not in str(caught.value)
    require_pad_token(tiny_dual("llama").query.tokenizer)


# An ordinary token would become a special one on the way to the disk.
@pytest.mark.parametrize("token", ["<|endoftext|>", "a"], ids=["unknown", "ordinary"])
def test_a_token_that_is_not_special_is_refused(token: str, folder: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(folder, pad_token=token)
    listed = "'[CLS]', '[PAD]', '[SEP]', '[UNK]', '[MASK]'"
    assert str(caught.value) == f"encoder.pad_token must be one of the tokenizer's special tokens ({listed}), got {token!r}; choose another"


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
    assert model.query.tokenize([""], side="query") == [[0]]
    model.query.tokenizer.pad_token = "[SEP]"
    assert model.query.tokenize([""], side="query") == [[0]]
