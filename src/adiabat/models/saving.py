"""Writing models as sentence-transformers loads them: modules, projections and the model card."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from tokenizers.normalizers import Lowercase

from adiabat.core.text import IN_WORDS
from adiabat.data.records import SIDES
from adiabat.models.backbone import quietly
from adiabat.models.embedding_head import NAMES, Projection
from adiabat.models.encoder import Encoder
from adiabat.models.st_files import write_json, write_pooling, write_root_configuration, write_transformer_settings
from adiabat.models.static import StaticBackbone, require_saveable, save_static_embedding
from adiabat.models.token_rows import state_width
from adiabat.models.tokenizer import normalizers_of
from adiabat.models.towers import DualEncoder


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
    """How other libraries use a saved Router."""
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


SharedFolders = dict[tuple[int, ...], str]
"""Folders of the modules that two routes may share, by the identity of their weights."""


def save(model: DualEncoder, folder: Path) -> None:
    """Write a directory that `sentence_transformers.SentenceTransformer` loads with equal embeddings.

    Shared towers become a plain model. Towers that differ become a Router with one route each, and a card that tells how other libraries
    reach them. Plain `encode` takes the document tower and its prompt, because libraries add documents to an index so. A backbone or a
    projection of both towers is written once and named in both routes, and so stays shared.
    """
    for side in SIDES:
        require_saveable(model.tower(side))
    folder.mkdir(parents=True, exist_ok=True)
    stated, document_prompt = model.root, model.document.settings.document_prompt
    if model.shared:
        modules = _save_tower(model.query, folder, {}, prefix="", root=True)
        listed = [{"idx": i, "name": str(i), "path": path, "type": _dotted(kind)} for i, (path, kind) in enumerate(modules)]
    else:
        shared: SharedFolders = {}
        routes = {side: _save_tower(model.tower(side), folder, shared, prefix=f"{side}_", root=False) for side in ("query", "document")}
        write_json(folder / "router_config.json", _router_configuration(routes))
        (folder / "README.md").write_text(model_card(model), encoding="utf-8")
        stated = {**stated, "default_prompt_name": "document" if document_prompt else None}
        listed = [{"idx": 0, "name": "0", "path": "", "type": _dotted("Router")}]
    write_json(folder / "modules.json", listed)
    # sentence-transformers cuts the vectors of both towers to one width.
    truncated = any(model.tower(side).full_width > model.width for side in SIDES)
    write_root_configuration(
        folder,
        stated,
        query_prompt=model.query.settings.query_prompt,
        document_prompt=document_prompt,
        truncate_dim=model.width if truncated else None,
    )


def _dotted(kind: str) -> str:
    """The old dotted name, which old and new versions import."""
    return f"sentence_transformers.models.{kind}"


def _router_configuration(routes: Mapping[str, Sequence[tuple[str, str]]]) -> dict[str, Any]:
    return {
        "types": {path: _dotted(kind) for modules in routes.values() for path, kind in modules},
        "structure": {side: [path for path, _ in modules] for side, modules in routes.items()},
        "parameters": {"default_route": "document", "allow_empty_key": True, "route_mappings": {}},
    }


def _save_tower(encoder: Encoder, folder: Path, shared: SharedFolders, *, prefix: str, root: bool) -> list[tuple[str, str]]:
    """Write the modules of one tower, those in `shared` excepted; returns (path, kind) of each."""
    front = _front(encoder)
    kinds = [*front, *("Dense" for _ in encoder.projections), *(["Normalize"] if encoder.settings.normalize else [])]
    # The Transformer module holds the limit too, so that two limits need two modules.
    projections = {i: (id(projection),) for i, projection in enumerate(encoder.projections, len(front))}
    limits = (encoder.settings.max_tokens, encoder.settings.query_max_tokens or 0, encoder.settings.document_max_tokens or 0)
    shareable = {0: (id(encoder.backbone), *limits), **projections}
    modules: list[tuple[str, str]] = []
    for i, kind in enumerate(kinds):
        new_path = "" if root and kind == "Transformer" else f"{prefix}{i}_{kind}"
        path = shared.setdefault(shareable[i], new_path) if i in shareable else new_path
        modules.append((path, kind))
        if path == new_path:
            _save_module(encoder, i, kind, folder / path)
    return modules


def _front(encoder: Encoder) -> list[str]:
    """The modules before the projections."""
    return ["StaticEmbedding"] if isinstance(encoder.backbone, StaticBackbone) else ["Transformer", "Pooling"]


def _save_module(encoder: Encoder, i: int, kind: str, folder: Path) -> None:
    """Write the module of number `i` of a tower; a Normalize is an empty folder."""
    folder.mkdir(exist_ok=True)
    if kind == "Transformer":
        # Without the truncation and padding of the tokenizer's last call, so that its files follow from the model alone.
        backend = encoder.tokenizer.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        with quietly():
            encoder.backbone.save_pretrained(folder)
            encoder.tokenizer.save_pretrained(folder)
        # Some tokenizer classes rebuild their normaliser from their own settings and would lose one that was added.
        lower_case = any(isinstance(normalizer, Lowercase) for normalizer in normalizers_of(encoder.tokenizer))
        write_transformer_settings(folder, encoder.settings, lower_case=lower_case, options=getattr(encoder.backbone, "config_options", {}))
    elif kind == "StaticEmbedding":
        save_static_embedding(encoder, folder)
    elif kind == "Pooling":
        write_pooling(folder, encoder.settings, hidden_size=state_width(encoder.backbone))
    elif kind == "Dense":
        projection = encoder.projections[i - len(_front(encoder))]
        assert isinstance(projection, Projection)
        save_projection(projection, folder)
