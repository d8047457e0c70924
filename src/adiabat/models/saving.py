"""Models as sentence-transformers loads them: modules, projections and the model card."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from tokenizers.normalizers import Lowercase
from torch import nn

from adiabat.core.errors import ModelError
from adiabat.core.files import reading
from adiabat.core.text import IN_WORDS
from adiabat.data.records import SIDES
from adiabat.models.backbone import first_line, quietly
from adiabat.models.embedding_head import Projection
from adiabat.models.encoder import Encoder
from adiabat.models.similarity_function import NAMES
from adiabat.models.st_files import (
    IN_AND_OUT,
    checked_keys,
    needed,
    read_json,
    write_json,
    write_pooling,
    write_root_configuration,
    write_transformer_settings,
)
from adiabat.models.static import StaticBackbone
from adiabat.models.static_files import require_writable, save_static_embedding
from adiabat.models.token_rows import state_width
from adiabat.models.tokenizer import normalizers_of
from adiabat.models.towers import DualEncoder

ACTIVATIONS: Mapping[str, type[nn.Module]] = {
    "torch.nn.modules.linear.Identity": nn.Identity,
    "torch.nn.modules.activation.Tanh": nn.Tanh,
    "torch.nn.modules.activation.ReLU": nn.ReLU,
    "torch.nn.modules.activation.GELU": nn.GELU,
    "torch.nn.modules.activation.Sigmoid": nn.Sigmoid,
}
"""Activations of a projection that are built by name; nothing else named in a file is ever imported."""

KNOWN = frozenset({"in_features", "out_features", "bias", "activation_function", "use_residual"})


def load_projection(folder: Path) -> Projection:
    """Read the folder of a Dense module."""
    config = read_json(folder / "config.json")
    checked_keys(folder / "config.json", config, known=KNOWN, fixed=IN_AND_OUT)
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    if activation not in ACTIVATIONS:
        raise ModelError(f"{folder}/config.json: activation_function must be one of {', '.join(ACTIVATIONS)}, got {activation}")
    inner, outer = needed(config, "in_features", "out_features", where=folder / "config.json")
    residual = (nn.Identity() if inner == outer else nn.Linear(inner, outer, bias=False)) if config.get("use_residual") else None
    projection = Projection(nn.Linear(inner, outer, bias=config.get("bias", True)), ACTIVATIONS[activation](), residual)
    if not (folder / "model.safetensors").is_file():
        raise ModelError(f"{folder} must hold model.safetensors; save the model anew with sentence-transformers")
    with reading(folder / "model.safetensors", remedy="get the model again", error=ModelError):
        tensors = load_file(folder / "model.safetensors")
    try:
        projection.load_state_dict(tensors)
    except RuntimeError as fault:
        raise ModelError(f"{folder}/model.safetensors must hold a linear layer of {inner} to {outer}: {first_line(fault)}") from fault
    return projection


def save_projection(projection: Projection, folder: Path) -> None:
    """Write the folder of a Dense module."""
    linear = projection.linear
    activation = type(projection.activation)
    write_json(
        folder / "config.json",
        {
            "in_features": linear.in_features,
            "out_features": linear.out_features,
            "bias": linear.bias is not None,
            "activation_function": f"{activation.__module__}.{activation.__name__}",
            # Versions before 5.7 refuse the key, so it is written only where it says something.
            **({} if projection.residual is None else {"use_residual": True}),
        },
    )
    save_file({name: weights.contiguous() for name, weights in projection.state_dict().items()}, folder / "model.safetensors")


QUERY_ARGUMENTS = '{"task": "query", "prompt_name": "query"}'

_CARD = """\
---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-transformers
- feature-extraction
---

# Query tower and document tower

Vectors have {width} numbers and are compared by {similarity}. Documents and queries go through different weights:

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("PATH")
documents = model.encode_document(["a document"])
queries = model.encode_query(["a question"])
```

Plain `encode` takes the document tower, so that whoever adds documents to an index by it adds the right vectors. LangChain, LlamaIndex and
Haystack call plain `encode`; ask them for the query tower where they embed queries:

```python
HuggingFaceEmbeddings(model_name="PATH", query_encode_kwargs={arguments})  # langchain-huggingface
SentenceTransformersTextEmbedder(model="PATH", encode_kwargs={arguments})  # sentence-transformers-haystack
SentenceTransformersDocumentEmbedder(model="PATH")


class TunedQueries(HuggingFaceEmbedding):  # llama-index-embeddings-huggingface
    def _get_query_embedding(self, query):
        return self._model.encode_query(query, normalize_embeddings=self.normalize).tolist()


TunedQueries({llama})
```

Made with adiabat.
"""


def model_card(model: DualEncoder) -> str:
    """Tell how a saved Router is used."""
    # LlamaIndex sets the prompts of both sides itself, and brings vectors to unit length unless told otherwise.
    prompts = {"query_instruction": model.query.settings.query_prompt, "text_instruction": model.document.settings.document_prompt}
    llama = ['"PATH"', *(f"{name}={prompt!r}" for name, prompt in prompts.items() if prompt)]
    if not model.unit:
        llama.append("normalize=False")
    return _CARD.format(
        width=model.width,
        similarity=f"{IN_WORDS[model.similarity]} (`{NAMES[model.similarity]}`)",
        arguments=QUERY_ARGUMENTS,
        llama=", ".join(llama),
    )


Written = dict[tuple[int, ...], str]
"""Folders of the modules that two routes may share, by the identity of what is in them."""


def save(model: DualEncoder, folder: Path) -> None:
    """Write a directory that `sentence_transformers.SentenceTransformer` loads with equal embeddings.

    Shared towers become a plain model; towers that differ become a Router, with a route for queries and one for documents, and a card that
    tells how other libraries reach each. Plain `encode` takes the document tower and its prompt: libraries add documents to an index so.
    A backbone or a projection that both towers have is written once and named in both routes, and so stays shared.
    """
    for side in SIDES:
        require_writable(model.tower(side))
    folder.mkdir(parents=True, exist_ok=True)
    stated, document_prompt = model.root, model.document.settings.document_prompt
    if model.shared:
        modules = _save_tower(model.query, folder, {}, prefix="", root=True)
        listed = [{"idx": i, "name": str(i), "path": path, "type": _dotted(kind)} for i, (path, kind) in enumerate(modules)]
    else:
        written: Written = {}
        routes = {side: _save_tower(model.tower(side), folder, written, prefix=f"{side}_", root=False) for side in ("query", "document")}
        write_json(folder / "router_config.json", _router_configuration(routes))
        (folder / "README.md").write_text(model_card(model), encoding="utf-8")
        stated = {**stated, "default_prompt_name": "document" if document_prompt else None}
        listed = [{"idx": 0, "name": "0", "path": "", "type": _dotted("Router")}]
    write_json(folder / "modules.json", listed)
    write_root_configuration(
        folder,
        stated,
        query_prompt=model.query.settings.query_prompt,
        document_prompt=document_prompt,
        truncate_dim=_truncate_dim(model),
    )


def _truncate_dim(model: DualEncoder) -> int | None:
    """The width that sentence-transformers is to cut to, which it does for both towers; both have it already where one is not cut."""
    return model.width if any(model.tower(side).full_width > model.width for side in SIDES) else None


def _dotted(kind: str) -> str:
    """The old dotted name: new installations still import it, old ones know no other."""
    return f"sentence_transformers.models.{kind}"


def _router_configuration(routes: Mapping[str, Sequence[tuple[str, str]]]) -> dict[str, Any]:
    return {
        "types": {path: _dotted(kind) for modules in routes.values() for path, kind in modules},
        "structure": {side: [path for path, _ in modules] for side, modules in routes.items()},
        "parameters": {"default_route": "document", "allow_empty_key": True, "route_mappings": {}},
    }


def _save_tower(encoder: Encoder, folder: Path, written: Written, *, prefix: str, root: bool) -> list[tuple[str, str]]:
    """Write the modules of one tower; returns (path, kind) of each. What is in `written` already is not written again."""
    front = _front(encoder)
    kinds = [*front, *("Dense" for _ in encoder.projections), *(["Normalize"] if encoder.settings.normalize else [])]
    # A transformer of sentence-transformers holds the limit too, so that two limits need two.
    projections = {i: (id(one),) for i, one in enumerate(encoder.projections, len(front))}
    limits = (encoder.settings.max_tokens, encoder.settings.query_max_tokens or 0, encoder.settings.document_max_tokens or 0)
    shareable = {0: (id(encoder.backbone), *limits), **projections}
    modules: list[tuple[str, str]] = []
    for i, kind in enumerate(kinds):
        own = "" if root and kind == "Transformer" else f"{prefix}{i}_{kind}"
        path = written.setdefault(shareable[i], own) if i in shareable else own
        modules.append((path, kind))
        if path == own:
            _save_module(encoder, i, kind, folder / path)
    return modules


def _front(encoder: Encoder) -> list[str]:
    """The modules before the projections."""
    return ["StaticEmbedding"] if isinstance(encoder.backbone, StaticBackbone) else ["Transformer", "Pooling"]


def _save_tokenizer(encoder: Encoder, folder: Path) -> None:
    """Write the tokenizer without the truncation and padding of its last call, so that its files follow from the model alone."""
    backend = encoder.tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    encoder.tokenizer.save_pretrained(folder)


def _save_module(encoder: Encoder, i: int, kind: str, folder: Path) -> None:
    """Write the module of number `i` of a tower; a Normalize is an empty folder."""
    folder.mkdir(exist_ok=True)
    if kind == "Transformer":
        with quietly():
            encoder.backbone.save_pretrained(folder)
            _save_tokenizer(encoder, folder)
        # Some tokenizer classes rebuild their normaliser from their own settings and would lose one that was added.
        lower_case = any(isinstance(part, Lowercase) for part in normalizers_of(encoder.tokenizer))
        write_transformer_settings(folder, encoder.settings, lower_case=lower_case, options=getattr(encoder.backbone, "config_options", {}))
    elif kind == "StaticEmbedding":
        save_static_embedding(encoder, folder)
    elif kind == "Pooling":
        write_pooling(folder, encoder.settings, hidden_size=state_width(encoder.backbone))
    elif kind == "Dense":
        projection = encoder.projections[i - len(_front(encoder))]
        assert isinstance(projection, Projection)
        save_projection(projection, folder)
