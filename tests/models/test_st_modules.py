"""Keys that sentence-transformers reads of a directory are honoured, or refused by their names."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sentence_transformers
from sentence_transformers.base.modules import Module

from adiabat.core.errors import ModelError
from adiabat.models.loading import load
from adiabat.models.st_modules import FILES, FIXED, KNOWN, ROUTER_PARAMETERS
from tests.models.peer_directories import dense, model, routes, static, with_modules
from tests.models.worlds import DENSE, LIMITS, POOLING, ROOT, ROUTER, after, edited
from tests.refused import one_line
from tests.tiny import write

PEER_FAMILIES = ("base", "sentence_transformer", "sparse_encoder", "multi_vector_encoder", "cross_encoder")


def classes() -> Iterator[type[Module]]:
    """Every module class that a directory can name."""
    for family in PEER_FAMILIES:
        importlib.import_module(f"sentence_transformers.{family}.modules")
    waiting = [Module]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            if kind.__module__.startswith("sentence_transformers.") and kind.__name__ != "InputModule":
                yield kind
            waiting.append(kind)


VERSION = "6.2"
"""The version of sentence-transformers whose keys the tables below hold: those that the loaders of its
modules, of ``modules.json`` and of ``config_sentence_transformers.json`` look up, and the parameters of the
constructors that a file is passed to. For a newer version, compare these loaders, then raise the number."""

HONOURED: dict[str, str] = {
    "Transformer": "max_seq_length query_length document_length do_lower_case processor_kwargs "
    "tokenizer_args config_kwargs config_args "
    "model_args modality_config module_output_name transformer_task unpad_inputs "
    "processing_kwargs processing_kwargs.text "
    "processing_kwargs.common processing_kwargs.image processing_kwargs.audio "
    "processing_kwargs.video processing_kwargs.chat_template " + " ".join(FILES),
    "Pooling": "embedding_dimension word_embedding_dimension pooling_mode include_prompt "
    "pooling_mode_mean_tokens pooling_mode_cls_token "
    "pooling_mode_max_tokens pooling_mode_weightedmean_tokens pooling_mode_lasttoken",
    "Dense": "in_features out_features bias activation_function module_input_name "
    "module_output_name use_residual",
    "Normalize": "module_input_name module_output_name",
    "Router": "types structure parameters default_route allow_empty_key route_mappings",
    "StaticEmbedding": "embedding.weight embeddings mapping weights",
    "root": "truncate_dim prompts default_prompt_name similarity_fn_name model_type",
    "modules.json": "type path name",
}
"""Class to the keys that rows of `DIRECTORIES` show; there a name begins with the class, or says which
pooling or limit it is."""

REFUSED: dict[str, dict[str, object]] = {
    "Transformer": {
        "transformer_task": "fill-mask",
        "modality_config": {"message": {"method": "forward", "method_output_name": "last_hidden_state"}},
        "query_expansion": {"strategy": "fixed", "length": 8},
        "tokenizer_name_or_path": "another",
        "backend": "onnx",
        "model_kwargs": {"quantization_config": {}},
        "model_args": {"variant": "fp16"},
        "tokenizer_args": {"vocab_file": "/etc/hosts"},
        "config_args": {"auto_map": {"AutoModel": "other/repository--code.Model"}},
        "processing_kwargs": {"text": {"add_special_tokens": False}},
        "max_seq_length": "24",
        "query_length": 1.5,
        "new_key": 1,
    },
    "Pooling": {"pooling_mode": ["mean", "max"], "pooling_mode_mean_sqrt_len_tokens": True, "new_key": 1},
    "Dense": {
        "module_input_name": "token_embeddings",
        "module_output_name": "other",
        "activation_function": "torch.nn.modules.activation.Hardtanh",
        "init_weight": [[1.0]],
        "init_bias": [1.0],
        "new_key": 1,
    },
    "Normalize": {"module_input_name": "token_embeddings", "module_output_name": "other"},
    "Router": {"route_mappings": {"query": "document"}, "sub_modules": {}, "new_key": 1},
    "root": {
        "truncate_dim": 0,
        "model_type": "CrossEncoder",
        "default_prompt_name": "none of them",
        "prompts": ["q: "],
    },
    "modules.json": {"type": "other.Transformer", "path": "/", "name": "1"},
}
"""Class to key to a value that adiabat cannot honour."""

NAMED = {
    ("Transformer", "model_kwargs"): "quantization_config",
    ("Transformer", "model_args"): "variant",
    ("Transformer", "tokenizer_args"): "vocab_file",
    ("Transformer", "config_args"): "auto_map",
    ("Transformer", "processing_kwargs"): "add_special_tokens",
    ("Pooling", "pooling_mode"): "mean, max",
    ("root", "model_type"): "CrossEncoder",
    ("modules.json", "type"): "got other.Transformer",
    ("modules.json", "path"): "got '/'",
    ("modules.json", "name"): "a unique name, got 1, 1",
}
"""What is named where the key itself says too little."""

OTHER_CLASSES = tuple(
    """
    BaseTokenPooling BoW CLIPModel CNN Dropout HierarchicalTokenPooling LSTM LambdaTokenPooling LayerNorm
    LogitScore MLMTransformer MultiVectorMask SparseAutoEncoder SparseStaticEmbedding SpladePooling
    WeightedLayerPooling WordEmbeddings WordWeights
    """.split()  # noqa: SIM905
)
"""Classes that are refused as a whole."""

FOLDERS: dict[str, tuple[Any, str]] = {
    "Transformer": (model(), LIMITS),
    "Pooling": (model(), POOLING),
    "Dense": (with_modules(dense(8)), DENSE),
    "Normalize": (
        with_modules(dense(8), sentence_transformers.sentence_transformer.modules.Normalize()),
        "3_Normalize/config.json",
    ),
    "root": (model(), ROOT),
}
"""Class to a directory that has it, and the file that its keys stand in."""


def test_the_tables_hold_the_keys_and_classes_of_the_installed_version() -> None:
    assert sentence_transformers.__version__.startswith(f"{VERSION}."), "compare what its loaders read"
    named = {name for name in HONOURED if name not in ("root", "modules.json")}
    assert {kind.__name__ for kind in classes()} == named | set(OTHER_CLASSES)


@pytest.mark.parametrize(("name", "read"), [("Transformer", KNOWN | {*FIXED}), ("Router", ROUTER_PARAMETERS)])
def test_the_tables_hold_every_key_that_is_read(name: str, read: set[str]) -> None:
    assert read <= {*HONOURED[name].split(), *REFUSED[name]}


@pytest.mark.parametrize(("name", "key"), [(name, key) for name in FOLDERS for key in REFUSED[name]])
def test_a_key_that_cannot_be_honoured_is_refused_by_its_name(name: str, key: str, tmp_path: Path) -> None:
    build, file = FOLDERS[name]
    after(build, edited(file, **{key: REFUSED[name][key]}))(tmp_path / "model")
    of_the_whole = key == "model_type"
    with one_line(ModelError, "/model " if of_the_whole else file, NAMED.get((name, key), key)):
        load(tmp_path / "model")


@pytest.mark.parametrize("key", REFUSED["Router"])
def test_a_parameter_of_a_router_that_is_not_honoured_is_refused(key: str, tmp_path: Path) -> None:
    routes({key: REFUSED["Router"][key]})(tmp_path / "model")
    with one_line(ModelError, ROUTER, f" {key}"):
        load(tmp_path / "model")


@pytest.mark.parametrize("key", REFUSED["modules.json"])
def test_an_entry_of_a_module_that_cannot_be_honoured_is_refused(key: str, tmp_path: Path) -> None:
    model()(tmp_path / "model")
    kind = "sentence_transformers.models.{}"
    listed: list[dict[str, object]] = [
        {"name": "0", "path": "", "type": kind.format("Transformer")},
        {"name": "1", "path": "1_Pooling", "type": kind.format("Pooling")},
    ]
    listed[0][key] = REFUSED["modules.json"][key]
    write(tmp_path / "model", "modules.json", listed)
    with one_line(ModelError, "modules.json must ", NAMED["modules.json", key]):
        load(tmp_path / "model")


@pytest.mark.parametrize("name", OTHER_CLASSES)
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_a_class_that_adiabat_lacks_is_refused_by_its_name(name: str, first: bool, tmp_path: Path) -> None:
    dotted = {kind.__name__: f"{kind.__module__}.{name}" for kind in classes()}[name]
    static()(tmp_path / "model")
    entry = {"path": "", "type": dotted}
    start = [] if first else [{"path": "", "type": "sentence_transformers.models.StaticEmbedding"}]
    write(tmp_path / "model", "modules.json", [*start, entry])
    with one_line(ModelError, name):
        load(tmp_path / "model")
