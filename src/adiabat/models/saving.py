"""Saving models in the format of sentence-transformers: modules, projections and the model card."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers.normalizers import Lowercase

from adiabat.core.disk import give_usual_mode, make_folder, new_file
from adiabat.core.progress import ignored
from adiabat.core.text import IN_WORDS
from adiabat.data.records import SIDES
from adiabat.models.backbone import normalizers_of, quietly
from adiabat.models.embedding_head import NAMES, cutting
from adiabat.models.encoder import Encoder, state_width
from adiabat.models.former_versions import OLDEST, has_own_code, oldest_versions, stamp, write_former_keys
from adiabat.models.json_files import ROOT_FILE, write_json
from adiabat.models.st_files import OLD_POOLING_FLAGS, save_projection
from adiabat.models.static import StaticBackbone, require_saveable, save_static_embedding
from adiabat.models.towers import DualEncoder

MODULES = "sentence_transformers.models"
"""The old dotted name of modules, which old and new versions can import."""

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

{versions}

Vectors have {width} dimensions and are compared by {similarity}. \
Documents and queries go through different weights:

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("PATH")
documents = model.encode_document(["a document"])
queries = model.encode_query(["a question"])
```

Plain `encode` uses the document tower, \
so that libraries that add documents to an index add the right vectors. LangChain, LlamaIndex and
Haystack call plain `encode`; select the query tower where they embed queries:

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
    """Instructions for using a saved Router in other libraries."""
    # LlamaIndex sets the prompts of both sides itself, and normalises vectors by default.
    prompts = {
        "query_instruction": model.query.settings.query_prompt,
        "text_instruction": model.document.settings.document_prompt,
    }
    llama = ['"PATH"', *(f"{name}={prompt!r}" for name, prompt in prompts.items() if prompt)]
    if not model.unit:
        llama.append("normalize=False")
    return _CARD.format(
        versions=_versions_told(model),
        width=model.width,
        similarity=f"{IN_WORDS[model.similarity]} (`{NAMES[model.similarity]}`)",
        arguments=QUERY_ARGUMENTS,
        llama=", ".join(llama),
    )


def _versions_told(model: DualEncoder) -> str:
    """A sentence on the versions that load a model."""
    needed = oldest_versions(model.query, model.document)
    first, second = (".".join(map(str, version)) for version in needed)
    towers = (model.tower(side).backbone for side in SIDES)
    families = dict.fromkeys(
        f"`{tower.config.model_type}`" for tower in towers if not isinstance(tower, StaticBackbone)
    )
    known = f" that has {' and '.join(families)}" if families else ""
    told = f"Loads in sentence-transformers {first} or later, with transformers {second} or later{known}."
    if needed.transformers > OLDEST.transformers:
        told += " Earlier versions of transformers may load it too, and give other vectors."
    return told


def save(model: DualEncoder, folder: Path) -> None:
    """Write a directory that `sentence_transformers.SentenceTransformer` loads with equal embeddings.

    Shared towers are saved as a plain model. Different towers are saved as a Router with two routes, and a
    card with instructions for other libraries. Plain `encode` uses the document tower and its prompt, because
    libraries add documents to an index that way. A backbone or projection shared by both towers is written
    once and listed in both routes, and so stays shared.
    """
    for side in SIDES:
        require_saveable(model.tower(side))
    make_folder(folder, parents=True)
    stated, query, document = model.root, model.query, model.document
    query_prompt, document_prompt = query.settings.query_prompt, document.settings.document_prompt
    default_prompt = stated.get("default_prompt_name")
    if model.shared:
        modules = _save_tower(query, folder, {}, prefix="", root=True)
    else:
        _save_routes(model, folder)
        default_prompt = "document" if document_prompt else None
        modules = [("", f"{MODULES}.Router")]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": dotted} for i, (path, dotted) in enumerate(modules)
    ]
    write_json(folder / "modules.json", listed)
    root = {
        "__version__": stamp(oldest_versions(model.query, model.document)),
        "model_type": "SentenceTransformer",
        # Both prompts are written even if empty, so that no default replaces them.
        "prompts": {**(stated.get("prompts") or {}), "query": query_prompt, "document": document_prompt},
        "default_prompt_name": default_prompt,
        "similarity_fn_name": stated.get("similarity_fn_name") or "cosine",
    }
    # sentence-transformers cuts the vectors of both towers to one width.
    if any(model.tower(side).full_width > model.width for side in SIDES):
        root["truncate_dim"] = model.width
    write_json(folder / ROOT_FILE, root)
    give_usual_mode(*folder.rglob("*.safetensors"))


def _save_routes(model: DualEncoder, folder: Path) -> None:
    """Write the modules of both towers, the Router that chooses between them, and the card."""
    shared: dict[tuple[int, ...], str] = {}
    types: dict[str, str] = {}
    structure: dict[str, list[str]] = {}
    for side in SIDES:
        modules = _save_tower(model.tower(side), folder, shared, prefix=f"{side}_", root=False)
        types |= modules
        structure[side] = [path for path, _ in modules]
    # Without route_mappings, which versions before 5.4 refuse even if empty.
    parameters = {"default_route": "document", "allow_empty_key": True}
    router = {"types": types, "structure": structure, "parameters": parameters}
    write_json(folder / "router_config.json", router)
    with new_file(folder / "README.md") as file:
        file.write(model_card(model).encode())


def _save_tower(
    encoder: Encoder, folder: Path, shared: dict[tuple[int, ...], str], *, prefix: str, root: bool
) -> list[tuple[str, str]]:
    """Write the modules of one tower, except those in `shared` (identity of the weights to folder).

    Returns:
        Path and dotted type of each module.
    """
    settings = encoder.settings
    # The Transformer module holds the limit too, so different limits need two modules.
    limits = (settings.max_tokens, settings.query_max_tokens or 0, settings.document_max_tokens or 0)
    tokens = (id(encoder.backbone), *limits)
    # Kind, writer, and what identifies its weights; None for a module without weights.
    modules: list[tuple[str, Callable[[Path], None], tuple[int, ...] | None]]
    if isinstance(encoder.backbone, StaticBackbone):
        modules = [("StaticEmbedding", partial(save_static_embedding, encoder), tokens)]
    else:
        modules = [
            ("Transformer", partial(_save_transformer, encoder), tokens),
            ("Pooling", partial(_save_pooling, encoder), None),
        ]
    for projection in encoder.projection_list():
        modules.append(("Dense", partial(save_projection, projection), (id(projection),)))
    if settings.normalize:
        # A Normalize is an empty folder.
        modules.append(("Normalize", ignored, None))
    widths = encoder.full_width, encoder.width
    if encoder.width < encoder.full_width:
        # Versions before 5.4 cut no vectors by the root configuration.
        modules.append(("Dense", partial(save_projection, cutting(*widths)), widths))
    listed: list[tuple[str, str]] = []
    for i, (kind, write, weights) in enumerate(modules):
        new_path = "" if root and kind == "Transformer" else f"{prefix}{i}_{kind}"
        path = new_path if weights is None else shared.setdefault(weights, new_path)
        listed.append((path, f"{MODULES}.{kind}"))
        if path == new_path:
            make_folder(folder / path)
            write(folder / path)
    return listed


def _save_transformer(encoder: Encoder, folder: Path) -> None:
    """Write a backbone, its tokenizer, and its token limits."""
    # Omit truncation and padding of the tokenizer's last call, so that its files depend only on the model.
    backend = encoder.tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    with quietly():
        encoder.backbone.save_pretrained(folder)
        encoder.tokenizer.save_pretrained(folder)
    write_former_keys(folder, encoder.tokenizer)
    settings, options = encoder.settings, getattr(encoder.backbone, "config_options", {})
    # A class of the model's own may rebuild its normaliser from its own settings, and would lose an added
    # one.
    lowers = any(isinstance(normalizer, Lowercase) for normalizer in normalizers_of(encoder.tokenizer))
    lower_case = lowers and has_own_code(encoder.tokenizer)
    # Versions before 6 refuse unknown keys, so these are written only if they are not defaults.
    sides = {"query_length": settings.query_max_tokens, "document_length": settings.document_max_tokens}
    config: dict[str, Any] = {"max_seq_length": settings.max_tokens, "do_lower_case": lower_case}
    config |= {key: limit for key, limit in sides.items() if limit is not None}
    if options:
        config["config_args"] = dict(options)
    write_json(folder / "sentence_bert_config.json", config)


def _save_pooling(encoder: Encoder, folder: Path) -> None:
    """Write the pooling configuration."""
    settings = encoder.settings
    config: dict[str, Any] = {"word_embedding_dimension": state_width(encoder.backbone)}
    config |= {flag: pooling == settings.pooling for flag, pooling in OLD_POOLING_FLAGS.items()}
    config |= {"pooling_mode_mean_sqrt_len_tokens": False, "include_prompt": settings.pool_prompt}
    write_json(folder / "config.json", config)
