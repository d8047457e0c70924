"""Settings of the encoder reach the loader; what a model already loaded cannot have is told."""

from pathlib import Path

import pytest

import adiabat
from adiabat.config.shared import EncoderSection
from adiabat.core.errors import ConfigError
from tests.tiny import edit, save_tiny, tiny_dual


def test_blocks_and_a_padding_token_reach_the_loader(tmp_path: Path) -> None:
    save_tiny(tmp_path, "llama", layers=3)
    edit(tmp_path, "tokenizer_config.json", pad_token=None)
    assert adiabat.load(tmp_path).query.tokenizer.pad_token is None
    model = adiabat.load(tmp_path, settings=EncoderSection(blocks=2, pad_token="[SEP]", query_prompt="q: "))
    assert model.query.backbone.config.num_hidden_layers == 2
    assert model.query.tokenizer.pad_token == "[SEP]"
    assert model.query.settings.query_prompt == "q: "


def test_a_model_already_loaded_keeps_its_blocks() -> None:
    with pytest.raises(ConfigError, match=r"encoder.blocks must be left out for a model already loaded, got 1; load it with them"):
        adiabat.load(tiny_dual(), settings=EncoderSection(blocks=1))


def test_a_model_already_loaded_may_get_a_padding_token(tmp_path: Path) -> None:
    save_tiny(tmp_path, "llama")
    edit(tmp_path, "tokenizer_config.json", pad_token=None)
    model = adiabat.load(tmp_path)
    assert adiabat.load(model, settings=EncoderSection(pad_token="[SEP]")).query.tokenizer.pad_token == "[SEP]"
    assert model.query.tokenizer.pad_token is None


def test_neither_is_a_setting_of_the_encoder_itself() -> None:
    assert EncoderSection(blocks=1, pad_token="x", max_tokens=9).overrides() == {"max_tokens": 9}
