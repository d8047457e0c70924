"""Values in other people's files whose type adiabat would assume: refused by file and key, or taken as their
library takes them.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

import adiabat
from adiabat.core.errors import ModelError
from adiabat.models.loading import load
from tests.models.peer_directories import LIMITS, ROOT, assert_same_vectors, dense, with_modules
from tests.models.static_models import word_table, write_model2vec
from tests.tiny import edit, save_tiny

Build = Callable[[Path], object]

POOLING, DENSE, ROUTER, TOKENIZER = (
    "1_Pooling/config.json",
    "2_Dense/config.json",
    "router_config.json",
    "tokenizer_config.json",
)


def static(folder: Path) -> None:
    write_model2vec(folder, {"embeddings": word_table()})


def decoder(folder: Path) -> None:
    save_tiny(folder, "llama")


SWITCHES: dict[str, tuple[Build, str, str]] = {
    "do_lower_case": (save_tiny, LIMITS, "do_lower_case"),
    "include_prompt": (save_tiny, POOLING, "include_prompt"),
    "a pooling": (save_tiny, POOLING, "pooling_mode_max_tokens"),
    "bias": (with_modules(dense(8)), DENSE, "bias"),
    "use_residual": (with_modules(dense(32)), DENSE, "use_residual"),
    "normalize": (static, "config.json", "normalize"),
    "is_causal": (decoder, "config.json", "is_causal"),
    "add_eos_token": (save_tiny, TOKENIZER, "add_eos_token"),
}


@pytest.mark.parametrize("value", [float("nan"), {}, [], "false", 2], ids=repr)
@pytest.mark.parametrize(("build", "name", "key"), SWITCHES.values(), ids=SWITCHES)
def test_a_switch_is_true_or_false(build: Build, name: str, key: str, value: object, tmp_path: Path) -> None:
    build(tmp_path / "model")
    edit(tmp_path / "model", name, **{key: value})
    with pytest.raises(
        ModelError, match=f"{name}: {key} must (be true or false|have a value), got "
    ) as caught:
        load(tmp_path / "model")
    assert str(caught.value).startswith(str(tmp_path / "model"))


@pytest.mark.parametrize(
    ("key", "value"),
    [("do_lower_case", 1), ("do_lower_case", None), ("include_prompt", 0), ("include_prompt", None)],
)
def test_one_zero_and_null_mean_what_sentence_transformers_takes_them_for(
    key: str, value: object, tmp_path: Path
) -> None:
    save_tiny(tmp_path)
    edit(tmp_path, ROOT, prompts={"query": "query: ", "document": ""})
    edit(tmp_path, LIMITS if key == "do_lower_case" else POOLING, **{key: value})
    assert_same_vectors(load(tmp_path), tmp_path, ["Where does the RIVER rise?", "a"])


OTHERS: dict[str, tuple[Build, str, str, object, str]] = {
    "a width": (
        with_modules(dense(8)),
        DENSE,
        "in_features",
        32.0,
        "must be a whole number above 0, got 32.0",
    ),
    "no width": (
        with_modules(dense(8)),
        DENSE,
        "out_features",
        True,
        "must be a whole number above 0, got True",
    ),
    "prompts": (save_tiny, ROOT, "prompts", [], r"must map names to values, got \[\]"),
    "similarity": (save_tiny, ROOT, "similarity_fn_name", {}, "must be cosine, dot, euclidean, got {}"),
    "parameters of a router": (
        lambda folder: save_tiny(folder, shared=False),
        ROUTER,
        "parameters",
        [],
        "must map names",
    ),
    "options of a tokenizer": (
        save_tiny,
        LIMITS,
        "tokenizer_args",
        0,
        "tokenizer_args must map names to values, got 0",
    ),
    "a switch among options": (
        save_tiny,
        LIMITS,
        "tokenizer_args",
        {"add_bos_token": "no"},
        "add_bos_token must be true or false, got 'no'",
    ),
    "a setting among options": (
        decoder,
        LIMITS,
        "config_args",
        {"is_causal": "no"},
        "is_causal must be true or false, got 'no'",
    ),
    "calls": (save_tiny, LIMITS, "processing_kwargs", {"text": 1}, "text must map names to values, got 1"),
    "a limit of the tokenizer": (
        save_tiny,
        TOKENIZER,
        "model_max_length",
        48.5,
        "model_max_length must be a whole number, got 48.5",
    ),
    "a number": (
        save_tiny,
        "config.json",
        "layer_norm_eps",
        float("nan"),
        "layer_norm_eps must have a value, got NaN",
    ),
}


@pytest.mark.parametrize(("build", "name", "key", "value", "told"), OTHERS.values(), ids=OTHERS)
def test_a_value_of_another_type_is_named(
    build: Build, name: str, key: str, value: object, told: str, tmp_path: Path
) -> None:
    build(tmp_path / "model")
    edit(tmp_path / "model", name, **{key: value})
    with pytest.raises(ModelError, match=told):
        adiabat.load(tmp_path / "model")
