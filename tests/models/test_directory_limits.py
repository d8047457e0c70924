"""Where texts are cut: at the least of the limits of tokenizer and backbone, at the user's, or at one of each side."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from adiabat.core.errors import ConfigError
from adiabat.data.records import SIDES
from adiabat.models.loading import load, override
from adiabat.models.saving import save
from adiabat.models.towers import DualEncoder
from tests.tiny import edit, save_plain, save_tiny


def test_a_limit_of_the_user_is_that_of_both_sides(tmp_path: Path) -> None:
    edit(save_tiny(tmp_path), "sentence_bert_config.json", query_length=9, document_length=30)
    settings = load(tmp_path, settings={"max_tokens": 20}).query.settings
    assert (settings.limit("query"), settings.limit("document")) == (20, 20)
    assert override(load(tmp_path), {"max_tokens": 21}).query.settings.limit("query") == 21


def test_a_limit_of_one_side_beyond_the_positions_is_refused(tmp_path: Path) -> None:
    edit(save_tiny(tmp_path), "sentence_bert_config.json", document_length=601)
    with pytest.raises(ConfigError, match=r"encoder.max_tokens must be <= 600, the positions that the backbone has, got 601"):
        load(tmp_path)


def test_towers_of_one_backbone_with_limits_of_their_own_keep_them(tmp_path: Path) -> None:
    model = load(save_tiny(tmp_path / "one"))
    query = model.query.with_settings(replace(model.query.settings, query_max_tokens=9))
    save(DualEncoder(query, model.document), tmp_path / "two")
    again = load(tmp_path / "two")
    assert [again.tower(side).settings.limit(side) for side in SIDES] == [9, model.document.settings.max_tokens]
    peer = SentenceTransformer(str(tmp_path / "two"), device="cpu")
    for side, encode in zip(SIDES, (peer.encode_query, peer.encode_document), strict=True):
        text = "a text that is longer than nine tokens"
        np.testing.assert_allclose(again.encode([text], side=side, precision="fp32")[0], encode(text), atol=1e-5)


@pytest.mark.parametrize(("tokenizer_limit", "limit"), [(50, 50), (10**30, 600), (700, 600)])
def test_a_text_is_cut_at_the_lesser_of_the_limits(tokenizer_limit: int, limit: int, tmp_path: Path) -> None:
    edit(save_plain(tmp_path), "tokenizer_config.json", model_max_length=tokenizer_limit)
    assert load(tmp_path).query.settings.max_tokens == limit


def test_rows_that_xlm_roberta_keeps_for_padding_are_no_positions(tmp_path: Path) -> None:
    edit(save_plain(tmp_path, "xlm-roberta"), "tokenizer_config.json", model_max_length=10**30)
    model = load(tmp_path)
    assert model.query.settings.max_tokens == 598
    assert np.isfinite(model.encode(["a" * 1000], side="query", precision="fp32")).all()


def test_relative_positions_without_any_stated_limit_are_cut_at_the_usual_length(tmp_path: Path) -> None:
    edit(save_plain(tmp_path, "t5"), "tokenizer_config.json", model_max_length=10**30)
    assert load(tmp_path).query.settings.max_tokens == 512


def test_rotary_positions_may_go_past_their_trained_length(tmp_path: Path) -> None:
    model = load(save_plain(tmp_path, "llama"), settings={"max_tokens": 700})
    assert np.isfinite(model.encode(["a" * 800], side="query", precision="fp32")).all()
