"""Keys of saved models that former versions of the libraries read, and the versions that a model needs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transformers as tf
from tokenizers.pre_tokenizers import ByteLevel

from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.models.former_versions import OLDEST, Versions, oldest_versions
from adiabat.models.loading import load
from adiabat.models.saving import model_card, save
from adiabat.models.towers import DualEncoder
from tests.architectures import GROUPED, MODERN, SIZES, tiny_architecture
from tests.tiny import lists, save_tiny, tiny_dual, tiny_encoder, tiny_tokenizer

FULL, WINDOW = "full_attention", "sliding_attention"
PLAIN = {"rope_type": "default", "rope_theta": 300.0}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 3.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
FACTORS = {"short_factor": [1.0, 1.5, 2.0, 2.5], "long_factor": [2.0, 3.0, 4.0, 5.0]}
LONG = {"rope_type": "longrope", "rope_theta": 300.0, **FACTORS}
HALF = {**PLAIN, "partial_rotary_factor": 0.5}


SHORT = {"max_position_embeddings": 64}
WINDOWS = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}


def encoder(kind: type[tf.PreTrainedModel], config: tf.PreTrainedConfig) -> Encoder:
    return Encoder(kind(config), tiny_tokenizer(), EncoderSettings(max_tokens=32)).eval()


def modernbert(*layers: str, **more: object) -> Encoder:
    sizes = {**SIZES, "num_hidden_layers": len(layers), "layer_types": list(layers)}
    return encoder(tf.ModernBertModel, tf.ModernBertConfig(**sizes, **MODERN, **more))


def gemma3(*layers: str, **more: object) -> Encoder:
    sizes = {**SIZES, "num_hidden_layers": len(layers), "layer_types": list(layers)}
    return encoder(tf.Gemma3TextModel, tf.Gemma3TextConfig(**sizes, **GROUPED, head_dim=8, **more))


def llama(**rope: object) -> Encoder:
    return encoder(
        tf.LlamaModel, tf.LlamaConfig(**SIZES, **GROUPED, rope_parameters={"rope_theta": 300.0, **rope})
    )


def saved(tower: Encoder, folder: Path, name: str) -> dict[str, Any]:
    save(DualEncoder(tower, tower), folder)
    record: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    return record


@pytest.mark.parametrize(
    ("tower", "former"),
    [
        (llama(rope_type="default"), {"rope_theta": 300.0}),
        (llama(**LLAMA3), {"rope_theta": 300.0, "rope_scaling": LLAMA3}),
        # Transformers 5 adds the number of positions, from which 4.51 would compute another factor.
        (llama(rope_type="yarn", factor=3.0), {"rope_scaling": {"rope_type": "yarn", "factor": 3.0}}),
        (
            encoder(tf.GPTNeoXModel, tf.GPTNeoXConfig(**SIZES, rope_parameters=HALF)),
            {"rotary_emb_base": 300.0, "rotary_pct": 0.5},
        ),
        (
            encoder(tf.Phi3Model, tf.Phi3Config(**{**SIZES, **GROUPED, **SHORT}, rope_parameters=LONG)),
            {"rope_scaling": {"type": "longrope", **FACTORS}},
        ),
        (
            modernbert(
                *(FULL, WINDOW, FULL, WINDOW),
                rope_parameters={FULL: {**PLAIN, "rope_theta": 700.0}, WINDOW: PLAIN},
            ),
            {"global_rope_theta": 700.0, "local_rope_theta": 300.0, "global_attn_every_n_layers": 2},
        ),
        (
            gemma3(WINDOW, WINDOW, FULL, WINDOW),
            {"rope_theta": 1_000_000.0, "rope_local_base_freq": 10_000.0, "sliding_window_pattern": 3},
        ),
    ],
    ids=["llama", "llama3", "yarn", "gpt_neox", "phi3", "modernbert", "gemma3"],
)
def test_angles_and_layers_keep_their_former_places(
    tower: Encoder, former: dict[str, object], tmp_path: Path
) -> None:
    config = saved(tower, tmp_path, "config.json")
    assert {key: config.get(key) for key in former} == former
    assert config["rope_parameters"] == tower.backbone.config.rope_parameters
    again = load(tmp_path).query
    assert again.backbone.config.rope_parameters.items() >= tower.backbone.config.rope_parameters.items()
    assert again.fingerprint() == tower.fingerprint()


def test_a_tokenizer_is_all_in_its_own_file_and_pads_on_the_right(tmp_path: Path) -> None:
    pieces = {
        token: i for i, token in enumerate(["[UNK]", "[PAD]", "[SEP]", "[CLS]", "[MASK]", "river", "[Q]"])
    }
    tokenizer = tf.BertTokenizer(vocab=pieces, do_lower_case=False, padding_side="left")
    tokenizer.add_special_tokens({"additional_special_tokens": ["[Q]"]})
    tower = Encoder(tiny_architecture("bert"), tokenizer, EncoderSettings(max_tokens=32)).eval()
    stated = saved(tower, tmp_path, "tokenizer_config.json")
    assert (stated["tokenizer_class"], stated["padding_side"]) == ("PreTrainedTokenizerFast", "right")
    assert stated["model_input_names"] == tokenizer.model_input_names
    assert stated["additional_special_tokens"] == ["[Q]"]
    assert not {"backend", "is_local", "extra_special_tokens"} & stated.keys()
    again = load(tmp_path).query
    assert lists(again.tokenize(["[Q] river"], side="query")) == [[3, 6, 5, 2]]
    assert again.fingerprint() == tower.fingerprint()


def test_blanks_before_a_text_are_those_of_the_tokenizer_itself(tmp_path: Path) -> None:
    tower = tiny_encoder()
    tower.tokenizer.backend_tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=True, use_regex=False)
    assert saved(tower, tmp_path, "tokenizer_config.json")["add_prefix_space"] is True


def test_a_router_has_no_keys_that_sentence_transformers_5_0_refuses(tmp_path: Path) -> None:
    save_tiny(tmp_path, shared=False)
    parameters = json.loads((tmp_path / "router_config.json").read_text())["parameters"]
    assert parameters == {"default_route": "document", "allow_empty_key": True}


def test_a_cut_is_a_module_too_and_comes_back_as_a_setting(tmp_path: Path) -> None:
    settings = EncoderSettings(max_tokens=32, truncate_dim=5)
    model = tiny_dual(settings=settings, shared=False)
    save(model, tmp_path)
    structure = json.loads((tmp_path / "router_config.json").read_text())["structure"]
    assert structure["query"][-1] == structure["document"][-1] == "query_3_Dense"
    again = load(tmp_path)
    assert again.query.settings == settings
    assert len(again.query.projections) == 0
    assert again.query.fingerprint() == model.query.fingerprint()


def made_bidirectional() -> Encoder:
    return encoder(tf.LlamaModel, tf.LlamaConfig(**SIZES, **GROUPED, is_causal=False))


def limited(side: str) -> Encoder:
    tower = tiny_encoder()
    return tower.with_settings(replace(tower.settings, **{f"{side}_max_tokens": 9}))


NEEDED: dict[str, tuple[Encoder, Versions]] = {
    "plain": (tiny_encoder(projection=8), OLDEST),
    "limits": (limited("document"), Versions((6, 0), (4, 50))),
    "umt5": (encoder(tf.UMT5EncoderModel, tiny_architecture("umt5").config), Versions((5, 4), (4, 50))),
    "bidirectional": (made_bidirectional(), Versions((5, 2), (5, 2))),
    "gemma3": (gemma3(FULL, use_bidirectional_attention=True), Versions((5, 0), (4, 57))),
    "modernbert": (modernbert(WINDOW, FULL, WINDOW), Versions((5, 2), (5, 0))),
    "windows in some layers": (
        encoder(tf.Qwen2Model, tf.Qwen2Config(**SIZES, **GROUPED, **WINDOWS)),
        Versions((5, 0), (4, 53)),
    ),
    "yarn": (
        llama(rope_type="yarn", factor=3.0, original_max_position_embeddings=200),
        Versions((5, 0), (4, 51)),
    ),
}


@pytest.mark.parametrize(("tower", "needed"), NEEDED.values(), ids=NEEDED)
def test_a_model_says_which_versions_it_needs(tower: Encoder, needed: Versions, tmp_path: Path) -> None:
    assert oldest_versions(tower, tiny_encoder()) == needed
    (st, st_minor), (hf, hf_minor) = needed
    stamp = saved(tower, tmp_path, "config_sentence_transformers.json")["__version__"]
    assert stamp == {"sentence_transformers": f"{st}.{st_minor}.0", "transformers": f"{hf}.{hf_minor}.0"}
    card = model_card(DualEncoder(tower, tower))
    assert f"sentence-transformers {st}.{st_minor} or later" in card
    assert f"transformers {hf}.{hf_minor} or later that has `{tower.backbone.config.model_type}`" in card
    assert ("other vectors" in card) == (needed.transformers > OLDEST.transformers)
