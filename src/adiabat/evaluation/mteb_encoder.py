"""Models and stores behind mteb's encoder and search protocols.

The classes do not inherit from mteb's: the protocols ask for methods alone, and importing mteb takes seconds.
"""

import hashlib
import json
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Bool, Float32, Int64

from adiabat.core.errors import ConfigError, StoreError, several
from adiabat.core.progress import SILENT, Watch
from adiabat.core.text import cut
from adiabat.data.records import Side, text_id
from adiabat.models.embedding_head import Similarity
from adiabat.models.towers import DualEncoder
from adiabat.store.addressing import SHOWN_CHARACTERS
from adiabat.store.imports import import_vectors
from adiabat.store.search import score_rows, search
from adiabat.store.text_vectors import embed_texts
from adiabat.store.vector_store import Store

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models.model_meta import ModelMeta, ScoringFunction
    from mteb.types import PromptType

LOADER_OPTIONS = {"batch_size": 1024, "show_progress_bar": False}
"""How mteb passes texts; the encoder chooses its own batches."""


class MtebEncoder:
    """A model for the tasks of mteb: queries go through the query tower, documents through the document tower, each with its prompt."""

    def __init__(self, model: DualEncoder, *, side: Side = "query", similarity: Similarity | None = None, watch: Watch = SILENT) -> None:
        """Wrap a model; `similarity` None takes the similarity that the model states."""
        self.model = model
        self.side = side
        self.compared_by = similarity or model.similarity
        self.watch = watch

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: "TaskMetadata",
        hf_split: str,
        hf_subset: str,
        prompt_type: "PromptType | None" = None,
        **kwargs: Any,
    ) -> Float32[np.ndarray, "n e"]:
        """Embed texts in float32, each distinct one once; without a `prompt_type` they go through the chosen side."""
        if others := sorted(set(kwargs) - set(LOADER_OPTIONS)):
            raise ConfigError(f"encode_kwargs must hold {' and '.join(LOADER_OPTIONS)} alone, got {', '.join(others)}; leave those out")
        texts = [text for batch in inputs for text in batch["text"]]
        side: Side = self.side if prompt_type is None else prompt_type.value
        return embed_texts(self.model, texts, side=side, name=task_metadata.name, watch=self.watch)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Scores of every vector with every other."""
        from mteb.similarity_functions import select_similarity

        return select_similarity(embeddings1, embeddings2, self._scoring())

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Scores of each vector with the vector beside it; higher is closer."""
        from mteb.similarity_functions import select_pairwise_similarity

        return select_pairwise_similarity(embeddings1, embeddings2, self._scoring())

    def _scoring(self) -> "ScoringFunction":
        from mteb.models.model_meta import ScoringFunction

        names = {"cosine": ScoringFunction.COSINE, "dot": ScoringFunction.DOT_PRODUCT, "distance": ScoringFunction.EUCLIDEAN}
        return names[self.compared_by]

    @cached_property
    def mteb_model_meta(self) -> "ModelMeta":
        """Metadata for mteb's files; the revision identifies everything that decides a score."""
        from mteb.models.model_meta import ModelMeta

        plain = re.sub(r"[^\w.-]+", "-", self.model.name).strip("-.") or "unnamed"
        about = {
            "name": f"adiabat/{plain}",
            "revision": hashlib.sha256(json.dumps(self._made_of(), sort_keys=True).encode()).hexdigest()[:16],
            "n_parameters": self.model.parameters,
            "embed_dim": self.model.width,
            "max_tokens": float(self.model.query.settings.max_tokens),
            "framework": ["PyTorch"],
            "similarity_fn_name": self._scoring(),
            "use_instructions": bool(self.model.query.settings.query_prompt or self.model.document.settings.document_prompt),
        }
        return ModelMeta.create_empty(about)

    def _made_of(self) -> list[Any]:
        """Everything that decides a score, as plain data."""
        return [self.model.fingerprint("query").to_json(), self.model.fingerprint("document").to_json(), self.side, self.compared_by]


Missing = Literal["error", "encode"]
"""Whether documents that a store lacks are an error, or are encoded."""

BLOCK_DOCUMENTS = 50_000
"""Documents per lookup: mteb's own step, so that its cached corpus serves both ways."""


@dataclass(frozen=True, slots=True)
class _Corpus:
    """Documents of a task as rows of a store that holds nothing else; `ids` are mteb's ids of the rows."""

    store: Store
    ids: Sequence[str]


class MtebIndex(MtebEncoder):
    """A model with stored document vectors: mteb's retrieval tasks search them exactly, and no stored document is encoded.

    Documents are found by their id, checked by their text where the store keeps texts, or else by their text. Vectors of a corpus that is
    only part of the store are copied to a temporary store. Other tasks go as with `MtebEncoder`.
    """

    def __init__(
        self,
        model: DualEncoder,
        store: Store,
        *,
        missing: Missing = "error",
        side: Side = "query",
        similarity: Similarity | None = None,
        watch: Watch = SILENT,
    ) -> None:
        """Wrap a model and its documents."""
        super().__init__(model, side=side, similarity=similarity, watch=watch)
        store.require_encoder(model.fingerprint("document"), who=model.name or None)
        self.store = store
        self.missing: Missing = missing
        self._corpus: _Corpus | None = None
        self._forget: Callable[[], Any] = lambda: None

    def index(
        self,
        corpus: Any,
        *,
        task_metadata: "TaskMetadata",
        hf_split: str,
        hf_subset: str,
        encode_kwargs: Mapping[str, Any],
        num_proc: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Find the documents of a task in the store."""
        del hf_split, hf_subset, encode_kwargs, num_proc, kwargs
        ids = list(corpus["id"])
        rows, absent = _located(self.store, corpus, ids, task_metadata)
        if absent and self.missing == "error":
            phrases = (f"{ids[row]!r} ({cut(text, limit=SHOWN_CHARACTERS)!r})" for row, text in absent.items())
            raise StoreError(
                f"{task_metadata.name}: every document must be in the store {self.store.path}, it lacks {several(phrases, of='documents')} "
                f"of {len(ids):,}; embed them (adiabat embed, or --append to the store), or let them be encoded (missing = encode)"
            )
        self._forget()
        if not absent and len(ids) == self.store.count and np.array_equal(np.sort(rows), np.arange(len(ids))):
            self._corpus = _Corpus(self.store, [ids[row] for row in np.argsort(rows).tolist()])
        else:
            vectors = embed_texts(self.model, list(absent.values()), side="document", name=task_metadata.name, watch=self.watch)
            self._corpus = _Corpus(self._copied(rows, list(absent), vectors), ids)

    def search(
        self,
        queries: Any,
        *,
        task_metadata: "TaskMetadata",
        hf_split: str,
        hf_subset: str,
        top_k: int,
        encode_kwargs: Mapping[str, Any],
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        num_proc: int | None = None,
        **kwargs: Any,
    ) -> dict[str, dict[str, float]]:
        """Rank the documents of the last index for each query."""
        from mteb.types import PromptType

        del num_proc, kwargs
        if self._corpus is None:
            raise RuntimeError("index must be called before search, got no corpus")
        batches = _batches(queries, task_metadata, PromptType.query)
        options: dict[str, Any] = {"task_metadata": task_metadata, "hf_split": hf_split, "hf_subset": hf_subset}
        vectors = self.encode(batches, **options, prompt_type=PromptType.query, **encode_kwargs)
        ids = list(queries["id"])
        if top_ranked is not None:
            return self._reranked(self._corpus, vectors, ids, top_ranked, top_k)
        return self._nearest(self._corpus, vectors, ids, top_k, task_metadata.name)

    def _nearest(
        self, corpus: _Corpus, vectors: Float32[np.ndarray, "q e"], ids: Sequence[str], top_k: int, name: str
    ) -> dict[str, dict[str, float]]:
        hits = search(
            corpus.store,
            vectors,
            top_k,
            similarity=self.compared_by,
            on_progress=lambda searched, total: self.watch.progress(f"searching {name}", searched, total),
        )
        ranking = {}
        for query, rows, scores in zip(ids, hits.rows.tolist(), hits.scores.tolist(), strict=True):
            ranking[query] = {corpus.ids[row]: score for row, score in zip(rows, scores, strict=True) if row >= 0}
        return ranking

    def _reranked(
        self,
        corpus: _Corpus,
        vectors: Float32[np.ndarray, "q e"],
        ids: Sequence[str],
        top_ranked: Mapping[str, Sequence[str]],
        top_k: int,
    ) -> dict[str, dict[str, float]]:
        row_of = {doc_id: row for row, doc_id in enumerate(corpus.ids)}
        rankings: dict[str, dict[str, float]] = {}
        for number, query in enumerate(ids):
            candidates = list(top_ranked.get(query, ()))
            rows = np.array([[row_of[doc_id] for doc_id in candidates]], dtype=np.int64)
            scores = score_rows(corpus.store, vectors[number : number + 1], rows, similarity=self.compared_by)[0]
            best = np.argsort(-scores, kind="stable")[:top_k].tolist()
            rankings[query] = {candidates[column]: float(scores[column]) for column in best}
        return rankings

    def _copied(self, rows: Int64[np.ndarray, " n"], absent: Sequence[int], encoded: Float32[np.ndarray, "a e"]) -> Store:
        """A store of some rows and of encoded documents; it is removed with this object, or with the next corpus."""
        folder = Path(tempfile.mkdtemp(prefix="adiabat-mteb-"))
        self._forget = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        path = folder / "vectors.npy"
        vectors = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(len(rows), self.store.width))
        stored = np.flatnonzero(rows >= 0)
        for start in range(0, len(stored), BLOCK_DOCUMENTS):
            piece = stored[start : start + BLOCK_DOCUMENTS]
            vectors[piece] = self.store.gather(rows[piece])
        vectors[list(absent)] = encoded
        vectors.flush()
        copy = import_vectors(path, folder / "store", ids=list(range(len(rows))), dtype=self.store.dtype)
        path.unlink()
        return copy

    def _made_of(self) -> list[Any]:
        return [*super()._made_of(), self.store.manifest.sha256]


def _batches(rows: Any, task_metadata: "TaskMetadata", role: "PromptType") -> Iterable[Mapping[str, Any]]:
    """Queries or documents as mteb joins them: a title before its text, an instruction after its query."""
    # mteb's own search models import this private module too.
    from mteb._create_dataloaders import create_dataloader

    return create_dataloader(rows, task_metadata=task_metadata, prompt_type=role, batch_size=LOADER_OPTIONS["batch_size"])


def _located(
    store: Store, corpus: Any, ids: Sequence[str], task_metadata: "TaskMetadata"
) -> tuple[Int64[np.ndarray, " n"], dict[int, str]]:
    """Rows of the documents in a store, -1 where it lacks them, and the texts of those by position."""
    rows = store.rows(ids)
    unproven: dict[int, str] = {}
    for start, texts in _pieces(corpus, task_metadata):
        same = _same(store, rows[start : start + len(texts)], texts)
        unproven |= {start + int(position): texts[position] for position in np.flatnonzero(~same)}
    # Another document may have the id, as where ids of several corpora are numbers; then the text decides.
    by_text = _rows_of_texts(store, list(unproven.values()))
    rows[list(unproven)] = by_text
    return rows, {position: text for (position, text), row in zip(unproven.items(), by_text.tolist(), strict=True) if row < 0}


def _pieces(corpus: Any, task_metadata: "TaskMetadata") -> Iterator[tuple[int, list[str]]]:
    """Texts of a corpus in blocks, with the position of the first."""
    from mteb.types import PromptType

    for start in range(0, len(corpus), BLOCK_DOCUMENTS):
        piece = corpus.select(range(start, min(start + BLOCK_DOCUMENTS, len(corpus))))
        yield start, [text for batch in _batches(piece, task_metadata, PromptType.document) for text in batch["text"]]


def _same(store: Store, rows: Int64[np.ndarray, " n"], texts: Sequence[str]) -> Bool[np.ndarray, " n"]:
    """Whether a row holds the document of its id; without texts, a store is trusted."""
    same: Bool[np.ndarray, " n"] = rows >= 0
    if store.has_texts:
        present = np.flatnonzero(same)
        same[present] = [
            stored.strip() == texts[position].strip() for position, stored in zip(present.tolist(), store.texts(rows[present]), strict=True)
        ]
    return same


def _rows_of_texts(store: Store, texts: Sequence[str]) -> Int64[np.ndarray, " n"]:
    """Rows by the hash of the text, or by the stored text; -1 where there is none."""
    rows = store.rows([text_id(text) for text in texts])
    unknown = np.flatnonzero(rows < 0).tolist()
    row_of = store.rows_of_texts({texts[position] for position in unknown})
    rows[unknown] = [row_of.get(texts[position], -1) for position in unknown]
    return rows
