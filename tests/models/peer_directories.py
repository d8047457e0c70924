"""Tiny random directories of sentence-transformers, each with one thing that it reads: for vectors that must
be equal.
"""

import json
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as peers
from torch import nn
from transformers import T5Config, T5Model

from adiabat.data.records import SIDES
from adiabat.models.embedding_head import EncoderSettings, Pooling
from adiabat.models.st_modules import FAMILIES, FILES
from adiabat.models.towers import DualEncoder
from tests.models.static_models import word_table, word_tokenizer
from tests.models.worlds import (
    LIMITS,
    POOLING,
    ROOT,
    ROUTER,
    TOKENIZER,
    Build,
    after,
    edited,
    renamed,
    written,
)
from tests.tiny import VOCABULARY, Kind, edit, save_tiny, tiny_backbone, tiny_tokenizer, write

TEXTS = [
    *("Where does the RIVER rise?", "река", "مرحبا", "a", "  spaces ", "the cat on the moon"),
    *("alpha " * 20 + "omega of the long text", "word " * 150, "river bank rise of a b c d e"),
]


def peer_of(folder: Path) -> SentenceTransformer:
    return SentenceTransformer(str(folder), device="cpu")


def assert_same_vectors(
    model: DualEncoder, folder: Path, texts: Sequence[str] = TEXTS, *, alone: bool = False, atol: float = 1e-5
) -> None:
    """Vectors of texts together are those that sentence-transformers gives for them, or for each text
    alone.
    """
    peer = peer_of(folder)
    for side in SIDES:
        encode = peer.encode_query if side == "query" else peer.encode_document
        theirs = np.asarray(encode(list(texts), batch_size=1 if alone else 32, show_progress_bar=False))
        np.testing.assert_allclose(model.encode(texts, side=side, precision="fp32"), theirs, atol=atol)


def assert_same_model(found: DualEncoder, wanted: DualEncoder) -> None:
    """The same fingerprints, and every bit of the same vectors."""
    assert found.fingerprints() == wanted.fingerprints()
    for side in SIDES:
        vectors = (one.encode(TEXTS, side=side, precision="fp32") for one in (found, wanted))
        np.testing.assert_array_equal(*vectors)


def model(
    kind: Kind = "bert",
    *,
    pooling: Pooling = "mean",
    normalize: bool = True,
    prompts: bool = False,
    layers: int = 1,
) -> Build:
    """A whole directory of its own."""
    settings = EncoderSettings(pooling, normalize, 24, *(("query: ", "passage: ") if prompts else ()))
    return partial(save_tiny, kind=kind, layers=layers, settings=settings)


def changed(name: str, *, of: Build | None = None, **values: object) -> Build:
    """A directory with other values in one of its files."""
    return after(of or model(), edited(name, **values))


def replaced(name: str, content: object) -> Build:
    """A directory with one file of another content."""
    return after(model(), written(name, content))


def without_limits(kind: Kind, tokenizer_limit: int) -> Build:
    """A directory with no limit but that of its tokenizer."""
    none = written(LIMITS, {"max_seq_length": None, "do_lower_case": False})
    return after(model(kind), none, edited(TOKENIZER, model_max_length=tokenizer_limit))


def transformer(folder: Path, *, seed: int = 0) -> tuple[peers.Transformer, peers.Pooling]:
    """The modules of a backbone and its mean."""
    tiny_backbone(seed=seed).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return peers.Transformer(str(folder)), peers.Pooling(32, pooling_mode="mean")


def save_by_peer(folder: Path, *modules: nn.Module) -> None:
    """Write modules as sentence-transformers writes them."""
    peer = SentenceTransformer(modules=list(modules), device="cpu")
    peer.save_pretrained(str(folder), create_model_card=False)


def with_modules(*extra: nn.Module, root: dict[str, object] | None = None) -> Build:
    """What sentence-transformers saves of a backbone, a pooling and other modules."""

    def build(folder: Path) -> None:
        save_by_peer(folder, *transformer(folder.parent / "backbone"), *extra)
        edit(folder, ROOT, **(root or {}))

    return build


def dense(
    out: int,
    activation: nn.Module | None = None,
    *,
    width: int = 32,
    bias: bool = True,
    residual: bool = False,
) -> peers.Dense:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(out)
        return peers.Dense(
            width, out, bias=bias, activation_function=activation or nn.Tanh(), use_residual=residual
        )


def cut(out: int) -> peers.Dense:
    """A linear layer that keeps the first dimensions."""
    return peers.Dense(32, out, bias=False, activation_function=nn.Identity(), init_weight=torch.eye(out, 32))


def routes(
    parameters: dict[str, object] | None = None,
    *,
    names: tuple[str, str] = ("query", "document"),
    old: bool = False,
) -> Build:
    """Two towers, as Router lays them out, or the older Asym."""

    def build(folder: Path) -> None:
        save_tiny(folder, settings=EncoderSettings(max_tokens=24), shared=False)
        found = json.loads((folder / ROUTER).read_text())["structure"]
        structure = {name: found[side] for name, side in zip(names, SIDES, strict=True)}
        edit(folder, ROUTER, structure=structure, parameters=parameters or {"allow_empty_key": True})
        if old:
            (folder / ROUTER).rename(folder / "config.json")
            write(
                folder,
                "modules.json",
                [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Asym"}],
            )

    return build


def router(folder: Path, *, top: nn.Module | None = None, on_top: bool = False) -> None:
    """A Router over two backbones, with one more module at the end of both routes or after the Router."""
    inside, after_both = [top] if top and not on_top else [], [top] if top and on_top else []
    routes = [
        [*transformer(folder.parent / side, seed=seed), *inside] for seed, side in enumerate(SIDES, start=1)
    ]
    both = peers.Router.for_query_document(query_modules=routes[0], document_modules=routes[1])
    save_by_peer(folder, both, *after_both, peers.Normalize())


def static(*, cut: str | None = None) -> Build:
    """A StaticEmbedding, which may cut texts at either end."""

    def build(folder: Path) -> None:
        tokenizer = word_tokenizer() if cut is None else word_tokenizer(limit=3, side=cut)
        table = peers.StaticEmbedding(tokenizer, embedding_weights=word_table())
        save_by_peer(folder, table, peers.Normalize())

    return build


def model2vec_rows(folder: Path) -> None:
    """A StaticEmbedding whose rows are shared and weighed, as model2vec writes them."""
    static()(folder)
    path = next(folder.rglob("model.safetensors"))
    rows = torch.randn(5, 12, generator=torch.Generator().manual_seed(1))
    table = load_file(path)["embedding.weight"]
    mapping = torch.arange(len(table)) % len(rows)
    save_file({"embeddings": rows, "mapping": mapping, "weights": torch.linspace(0.5, 2.0, len(table))}, path)


def adapted(kind: Kind, targets: list[str], **options: object) -> Build:
    """A LoRA adapter beside nothing, as sentence-transformers saves it: its base model lies elsewhere."""

    def build(folder: Path) -> None:
        from peft import LoraConfig

        base = folder.parent / "base"
        model(kind)(base)
        peer = SentenceTransformer(str(base), device="cpu")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            peer.add_adapter(LoraConfig(r=4, target_modules=targets, init_lora_weights=False, **options))  # type: ignore[arg-type]
            for name, weights in peer.named_parameters():
                if any(part in name for part in ("lora_", "modules_to_save", "trainable_tokens")):
                    nn.init.normal_(weights, std=0.2)
        peer.save_pretrained(str(folder), create_model_card=False)

    return build


def whole_t5(folder: Path) -> None:
    """Encoder and decoder, of which the first alone embeds."""
    model("t5")(folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = T5Config(
            vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, pad_token_id=1
        )
        T5Model(config).save_pretrained(folder)


def with_a_head_for_words(folder: Path) -> None:
    """The weights of pre-training beside those of the backbone."""
    model()(folder)
    tensors = load_file(folder / "model.safetensors")
    head = {
        "cls.predictions.bias": torch.zeros(VOCABULARY),
        "cls.seq_relationship.weight": torch.zeros(2, 32),
    }
    save_file(
        {**{f"bert.{name}": weights for name, weights in tensors.items()}, **head},
        folder / "model.safetensors",
        {"format": "pt"},
    )


def linked(folder: Path) -> None:
    """A directory whose files are links, as in the hub's cache."""
    model()(folder.parent / "blobs")
    shutil.copytree(
        folder.parent / "blobs", folder, copy_function=lambda source, target: Path(target).symlink_to(source)
    )


LEFT = {"truncation_side": "left"}
TEXT = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
NEW_FORM = {
    "transformer_task": "feature-extraction",
    "modality_config": TEXT,
    "module_output_name": "token_embeddings",
}
SIDES_MAPPED = {"('query', 'text')": "ask", "('document', None)": "tell"}

DIRECTORIES: dict[str, Build] = {
    **{f"pooling {name}": model(pooling=name) for name in ("mean", "cls", "max", "weighted_mean", "last")},
    **{
        f"limit of {family}": after(model(), renamed(LIMITS, name))
        for family, name in zip(FAMILIES, FILES, strict=True)
    },
    "pooling: no mode": replaced(POOLING, {"embedding_dimension": 32, "pooling_mode_mean_tokens": False}),
    "pooling: flags of version 2": replaced(
        POOLING,
        {"word_embedding_dimension": 32, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
    ),
    "pooling: a list of one": replaced(POOLING, {"embedding_dimension": 32, "pooling_mode": ["max"]}),
    "pooling: include_prompt": changed(POOLING, of=model(prompts=True), include_prompt=False),
    "pooling: include_prompt of a decoder": changed(
        POOLING, of=model("llama", prompts=True), include_prompt=False
    ),
    "t5": whole_t5,
    "xlm-roberta": model("xlm-roberta", prompts=True),
    "gpt-neox": model("gpt-neox", pooling="last"),
    "a decoder with its last token": model("llama", pooling="last", prompts=True),
    "a head for words": with_a_head_for_words,
    "links to files": linked,
    "normalize: twice": with_modules(peers.Normalize(), peers.Normalize()),
    "normalize: none": model(normalize=False),
    "normalize: named": replaced(
        "2_Normalize/config.json", {"module_input_name": "sentence_embedding", "module_output_name": None}
    ),
    "dense: tanh": with_modules(dense(8)),
    "dense: named": with_modules(dense(8, nn.ReLU()), peers.Normalize()),
    "dense: two": with_modules(dense(20, nn.GELU()), dense(6, nn.Sigmoid(), width=20, bias=False)),
    "dense: use_residual": with_modules(dense(32, residual=True)),
    "dense: use_residual to another width": with_modules(
        dense(8, nn.Identity(), residual=True), peers.Normalize()
    ),
    "root: truncate_dim": changed(ROOT, truncate_dim=16),
    "root: truncate_dim of vectors of any length": changed(ROOT, of=model(normalize=False), truncate_dim=5),
    "root: truncate_dim past the width": changed(ROOT, truncate_dim=99),
    "root: truncate_dim after a dense": with_modules(dense(8), peers.Normalize(), root={"truncate_dim": 3}),
    "root: truncate_dim beyond a dense that cuts": with_modules(cut(8), root={"truncate_dim": 16}),
    "root: default_prompt_name": changed(
        ROOT, prompts={"x": "x: "}, default_prompt_name="x", similarity_fn_name="dot"
    ),
    "root: prompts": model(prompts=True),
    "root: of version 2": replaced(ROOT, {"__version__": {"sentence_transformers": "2.0.0"}}),
    "tokenizer_config: truncation_side": changed(TOKENIZER, truncation_side="left"),
    "transformer: truncation_side": changed(LIMITS, processor_kwargs=LEFT),
    "transformer: truncation_side by its old name": changed(LIMITS, tokenizer_args=LEFT),
    "transformer: model_max_length": changed(LIMITS, tokenizer_args={"model_max_length": 9}),
    "tokenizer_config: no limit": changed(TOKENIZER, model_max_length=float("inf")),
    "transformer: config_args": changed(LIMITS, config_args={"layer_norm_eps": 0.5}),
    "transformer: config_kwargs with fewer blocks": changed(
        LIMITS, of=model(layers=2), config_kwargs={"num_hidden_layers": 1}
    ),
    "transformer: model_args": changed(
        LIMITS, model_args={"torch_dtype": "float32", "attn_implementation": "eager"}
    ),
    "transformer: do_lower_case": changed(LIMITS, do_lower_case=True),
    "transformer: query_length": changed(LIMITS, of=model(prompts=True), query_length=9),
    "transformer: document_length": changed(LIMITS, document_length=40, query_length=7),
    "transformer: processing_kwargs": changed(
        LIMITS, processing_kwargs={"text": {"max_length": 11, "padding": "longest"}}
    ),
    "transformer: processing_kwargs for all": changed(
        LIMITS, query_length=7, processing_kwargs={"text": {"max_length": 11}, "common": {"max_length": 13}}
    ),
    "transformer: processing_kwargs without a cut": changed(
        LIMITS, of=model("llama"), processing_kwargs={"text": {"truncation": False}}
    ),
    "transformer: processing_kwargs of other inputs": changed(
        LIMITS,
        processing_kwargs={
            "image": {"size": 1},
            "audio": {},
            "video": {},
            "chat_template": {"restore_suffix": False},
        },
    ),
    "transformer: modality_config": replaced(
        LIMITS, {**NEW_FORM, "unpad_inputs": False, "processor_kwargs": {"model_max_length": 12}}
    ),
    "transformer: no limit but the tokenizer's": without_limits("bert", 21),
    "transformer: no limit but the positions": without_limits("bert", 10**30),
    "transformer: no limit at all": without_limits("t5", 10**30),
    "transformer: attention of its configuration": changed("config.json", _attn_implementation="eager"),
    "static": static(),
    "static: cut on the right": static(cut="right"),
    "static: cut on the left": static(cut="left"),
    "static: rows of model2vec": model2vec_rows,
    "router": routes({"default_route": "document", "allow_empty_key": True, "route_mappings": {}}),
    "router: route_mappings": routes({"route_mappings": SIDES_MAPPED}, names=("ask", "tell")),
    "router: route_mappings that swap the towers": routes(
        {"route_mappings": {"('query', None)": "document", "(None, 'text')": "query"}}
    ),
    "asym": routes(old=True),
    "lora": adapted("bert", ["query", "value"]),
    "lora: ranks of its own": adapted(
        "bert", ["query", "dense"], use_rslora=True, rank_pattern={"query": 2}, lora_alpha=3
    ),
    "lora of a t5": adapted("t5", ["q", "v"]),
    "lora: layers trained whole": adapted("bert", ["query"], modules_to_save=["intermediate.dense"]),
    "lora: tokens trained whole": adapted(
        "bert", ["query"], trainable_token_indices={"word_embeddings": [60, 61, 70]}
    ),
    "lora: biases": adapted("bert", ["query", "dense"], bias="all"),
}
"""Name to what writes the directory; the part before a colon says which module's key it is about."""
