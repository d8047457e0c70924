"""`adiabat.embed`: a store of document vectors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from adiabat.config.shared import EmbedSettings, StoreSection
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.progress import SILENT, Watch
from adiabat.data.corpora import read_corpus
from adiabat.data.records import Side
from adiabat.models.bulk import Progress
from adiabat.models.device import Precision, emulation_note
from adiabat.models.fingerprint import Fingerprint
from adiabat.models.model_names import Model, is_model, load
from adiabat.models.towers import DualEncoder
from adiabat.store.append import append_documents, finish_append
from adiabat.store.build import build_store
from adiabat.store.imports import import_vectors
from adiabat.store.known_documents import known_documents
from adiabat.store.vector_store import Store


@dataclass(slots=True)
class _Documents:
    """The document side of a model in the precision asked for, as the store's builders want it; counts what it is given."""

    model: DualEncoder
    precision: Precision
    encoded: int = 0
    full: int = 0

    @property
    def width(self) -> int:
        return self.model.width

    def fingerprint(self, side: Side) -> Fingerprint:
        return self.model.fingerprint(side)

    def encode(self, texts: Sequence[str], *, side: Side) -> Float[np.ndarray, "n e"]:
        counts: list[Progress] = []
        vectors = self.model.encode(texts, side=side, precision=self.precision, on_progress=counts.append)
        self.encoded += len(texts)
        self.full += counts[-1].full if counts else 0
        return vectors

    def say_what_was_cut(self, watch: Watch) -> None:
        """Documents that fill the token limit are counted: their ends may be missing from their vectors."""
        if self.full:
            limit = self.model.document.settings.limit("document")
            watch.note(
                f"{self.full:,} of {self.encoded:,} distinct documents fill the limit of {limit} tokens: "
                "what goes beyond it is not in their vectors"
            )


def embed(
    model: Model,
    corpus: str | Path,
    out: str | Path,
    *,
    settings: EmbedSettings | None = None,
    append: bool = False,
    vectors: str | Path | None = None,
    ids: str | Path | None = None,
    watch: Watch = SILENT,
) -> Store:
    """Build a store of document vectors, resumably; or add to one; or take vectors that were computed elsewhere.

    Args:
        model: Its document tower encodes.
        corpus: BEIR folder, JSONL, CSV, Parquet, ``hf:NAME``, or a file of examples whose documents are texts.
        out: The store's directory.
        settings: None takes the defaults.
        append: Add the corpus to the store that stands at `out`.
        vectors: Vectors of the corpus (``.npy``, Parquet or a faiss index), imported instead of encoded; some documents are encoded all
            the same, to see that the vectors come from this model.
        ids: Document ids of `vectors`, one per line, where the file itself holds none.
        watch: Whom to tell.

    Returns:
        The finished store.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    settings = settings or EmbedSettings()
    if is_model(corpus):
        raise DataError(f"CORPUS must be a corpus, {corpus} is a model; the order is MODEL CORPUS")
    _require_one_way(settings.store, append=append, vectors=vectors, ids=ids)
    # Looks at the first row, so that a fault of the corpus comes before the model is loaded.
    documents = read_corpus(corpus, columns=settings.data.columns.given(), split=settings.data.split, blank=settings.data.blank)
    if append:
        finish_append(out)
        kept = Store.open(out)
        _refuse_idle(settings.store, {"dtype": kept.dtype, "keep_texts": kept.has_texts}, "append, which keeps to the store")
    encoder = _Documents(load(model, settings=settings.encoder, device=settings.run.device), settings.store.precision)
    if slow := emulation_note(encoder.model.document.device, settings.store.precision, setting="store.precision"):
        watch.note(slow)
    if vectors is None:
        blank = settings.data.blank
        documents = known_documents(encoder.model.document, documents, blank=blank, source=str(corpus), note=watch.note)
    name, maker, progress = str(corpus), encoder.model.name, _on("encoding documents", watch)
    dtype, texts, seed = settings.store.dtype, settings.store.keep_texts, settings.run.seed
    if vectors is not None:
        return import_vectors(
            vectors, out, ids=ids, documents=documents, encoder=encoder, dtype=dtype, seed=seed, source=name, encoder_name=maker
        )
    if append:
        store, note = append_documents(encoder, lambda: documents, out, on_progress=progress, source=name).store, ""
    else:
        built = build_store(
            encoder, lambda: documents, out, dtype=dtype, keep_texts=texts, on_progress=progress, source=name, encoder_name=maker
        )
        store, note = built.store, built.note
    if note:
        watch.note(note)
    encoder.say_what_was_cut(watch)
    return store


def _require_one_way(section: StoreSection, *, append: bool, vectors: str | Path | None, ids: str | Path | None) -> None:
    """Refuse to encode, append and import at once, and what would be ignored."""
    if append and vectors is not None:
        raise DataError("append must add a corpus that is encoded, got vectors too; import them into a store of their own")
    if ids is not None and vectors is None:
        raise DataError("ids must name the rows of vectors, got no vectors; give both, or neither")
    if vectors is not None:
        _refuse_idle(section, {"keep_texts": True}, "import, which keeps the texts that it checks the vectors by")


def _refuse_idle(section: StoreSection, kept: dict[str, object], purpose: str) -> None:
    """Refuse settings of a store that would have no effect: those that differ from their default and from what holds anyway."""
    default = StoreSection()
    idle = [name for name, value in kept.items() if getattr(section, name) not in (value, getattr(default, name))]
    if idle:
        names = " and ".join(f"store.{name}" for name in idle)
        raise ConfigError(f"{names} must be left out of an {purpose}, got {', '.join(str(getattr(section, name)) for name in idle)}")


def _on(label: str, watch: Watch) -> Callable[[int, int], None]:
    return lambda done, total: watch.progress(label, done, total)
