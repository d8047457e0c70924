"""Vectors of texts: embedding, caches that outlive the process, and handling of texts without a vector."""

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, UInt64

from adiabat.core.arrays import Mask, VectorArray
from adiabat.core.disk import make_folder, open_in_place, remove
from adiabat.core.errors import DataError, Faults, JobError, disk_error_of, several
from adiabat.core.progress import Watch
from adiabat.core.provenance import read_array, write_array
from adiabat.core.text import cut
from adiabat.data.corpora import Blank
from adiabat.data.records import Document, Side
from adiabat.models.bulk import Progress
from adiabat.models.encoder import Encoder
from adiabat.models.static import StaticBackbone
from adiabat.models.towers import DualEncoder
from adiabat.store.addressing import SHOWN_CHARACTERS

HEAD = 64
"""Letters to tokenise first: tokenisation takes most of a static model's time, and nearly every text begins
with a known token."""

DOCUMENTS_PER_BLOCK = 2048
SHOWN_TEXTS, SHOWN_DOCUMENTS, SHOWN_DOCUMENT_CHARACTERS = 5, 3, 40
"""Maximum number of texts named in a message."""


def embed_texts(
    model: DualEncoder, texts: Sequence[str], *, side: Side, name: str, watch: Watch
) -> Float32[np.ndarray, "n e"]:
    """Embed texts in float32; equal texts share one vector, to the last bit.

    NaN or infinity is refused: such a vector would rank last without a word.
    """
    row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}

    def show(progress: Progress) -> None:
        watch.progress(f"encoding {name}", progress.done, progress.total)

    vectors = model.encode(list(row_of), side=side, precision="fp32", on_progress=show)
    broken = ~np.isfinite(vectors).all(axis=1)
    if broken.any():
        raise DataError(
            f"{name}: vectors must be finite, got NaN or infinity for "
            f"{_named(list(row_of), broken)}; the model's weights are damaged"
        )
    return vectors[[row_of[text] for text in texts]]


def zero_rows(vectors: VectorArray) -> Mask:
    """Which vectors are zero, and so have no cosine."""
    return np.asarray(~vectors.any(axis=1))


def require_directions(vectors: VectorArray, texts: Sequence[str], *, name: str) -> None:
    """Refuse zero vectors before cosines are computed."""
    zero = zero_rows(vectors)
    if zero.any():
        raise DataError(
            f"{name}: vectors must not be zero, which have no cosine, got one for {_named(texts, zero)}; "
            "leave those texts out, or use a model that knows them"
        )


def _named(texts: Sequence[str], mask: Mask) -> str:
    """Some of the distinct texts, shortened."""
    distinct = dict.fromkeys(texts[row] for row in np.flatnonzero(mask).tolist())
    shortened = (repr(cut(text, limit=SHOWN_CHARACTERS)) for text in distinct)
    return several(shortened, of="texts", shown=SHOWN_TEXTS)


def tokens_with_weight(encoder: Encoder) -> Bool[np.ndarray, " v"] | None:
    """Which tokens of a static model have a nonzero row; None for a transformer, which can embed every
    text.
    """
    if not isinstance(encoder.backbone, StaticBackbone):
        return None
    # The padding row, which represents a text without tokens, is zero too.
    return np.asarray(encoder.backbone.token_embeddings.weight.detach().any(dim=1).cpu())


def wordless(
    encoder: Encoder, texts: Sequence[str], *, side: Side, with_weight: Bool[np.ndarray, " v"] | None = None
) -> Mask:
    """Which texts have no token with a nonzero row; callers with many blocks compute `tokens_with_weight`
    once.
    """
    weighted = tokens_with_weight(encoder) if with_weight is None else with_weight
    if weighted is None:
        return np.zeros(len(texts), dtype=np.bool_)
    unknown = np.ones(len(texts), dtype=np.bool_)
    # The tokens of the first whole words are also the first tokens of the whole text.
    heads = [text if len(text) <= HEAD else text[:HEAD].rpartition(" ")[0] for text in texts]
    for beginnings in (texts,) if encoder.tokenizer.truncation_side == "left" else (heads, texts):
        rows = np.flatnonzero(unknown).tolist()
        tokens = encoder.tokenize([beginnings[row] for row in rows], side=side)
        unknown[rows] = [not weighted[tokens[number]].any() for number in range(len(rows))]
    return unknown


def known_documents(
    encoder: Encoder,
    documents: Iterator[Document],
    *,
    blank: Blank,
    source: str,
    note: Callable[[str], None],
    setting: str = "data.blank",
) -> Iterator[Document]:
    """Documents with a nonzero vector; the others are refused at the end, or dropped or given the text ""
    with a note.
    """
    with_weight = tokens_with_weight(encoder)
    if with_weight is None:
        yield from documents
        return
    unknown, count = Faults(shown=SHOWN_DOCUMENTS), 0
    while block := list(islice(documents, DOCUMENTS_PER_BLOCK)):
        count += len(block)
        texts = [document.text for document in block]
        mask = wordless(encoder, texts, side="document", with_weight=with_weight)
        for document, is_unknown in zip(block, mask, strict=True):
            if is_unknown and document.text:
                unknown.add(f'"{document.doc_id}" ({cut(document.text, limit=SHOWN_DOCUMENT_CHARACTERS)!r})')
            if not is_unknown:
                yield document
            elif blank == "keep":
                yield replace(document, text="")
    if not unknown.count:
        return
    listed = unknown.told(f"of {count:,} documents")
    if blank == "error":
        raise DataError(
            f"{source}: a document must hold a token that the static model knows, got none in {listed}; "
            f"set {setting} = drop, which leaves such documents out of a corpus, or use another model"
        )
    note(f"{source}: documents without a token that the static model knows are left out: {listed}")


_KNOWN = 1 << 32
"""Offset beyond a 32-bit checksum, which may be 0."""

VALIDATED, UNUSED = -1, np.iinfo(np.int64).max
"""In place of a step: a validation was the first to need a row; nothing has needed it yet."""


class EmbeddingCache:
    """A cache of vectors for texts or tokens, and which rows are known; float32, 4 bytes per value.

    Attributes:
        vectors: All rows; unknown rows have arbitrary content.
        known: Which rows hold a vector.
        first_steps: Training step that first needed each row, whose cost includes the row; `VALIDATED` or
            `UNUSED` if none did.
    """

    vectors: VectorArray
    known: Mask
    first_steps: Int[np.ndarray, " n"]

    def __init__(self, rows: int, width: int) -> None:
        """Start with all rows unknown and no file."""
        self.vectors = np.empty((rows, width), dtype=np.float32)
        self.known = np.zeros(rows, dtype=np.bool_)
        self.first_steps = np.full(rows, UNUSED, dtype=np.int64)
        self._checksums = np.zeros(rows, dtype=np.uint64)
        self._flags: Path | None = None

    def keep_in(self, stem: Path, *, resume: bool) -> None:
        """Store vectors in files from here on.

        ``<stem>.f32`` holds all rows, also unknown ones, in float32. ``<stem>.npy`` holds a checksum for each
        row, 0 for an unknown one, and the step that first needed it. A row whose checksum does not match is
        computed again.
        """
        path, self._flags = stem.with_suffix(".f32"), stem.with_suffix(".npy")
        has_both = self._flags.is_file() and path.is_file()
        goes_on = resume and has_both and path.stat().st_size == self.vectors.nbytes
        try:
            make_folder(stem.parent, parents=True)
            if not goes_on:
                remove(path)
            with os.fdopen(open_in_place(path), "r+b") as file:
                if self.vectors.nbytes:
                    # Writing to a page without disk space would kill the process.
                    os.posix_fallocate(file.fileno(), 0, self.vectors.nbytes)
                    self.vectors = np.memmap(file, dtype=np.float32, mode="r+", shape=self.vectors.shape)
        except OSError as fault:
            if (error := disk_error_of(fault)) is None:
                raise
            raise JobError(
                f"{path} must hold {self.vectors.nbytes:,} bytes, got: {error.strerror}; free some space"
            ) from fault
        if goes_on:
            self._checksums, self.first_steps = _rows_in(self._flags, len(self.known))
            saved = np.flatnonzero(self._checksums)
            self.known[saved] = self._checksums[saved] == _checksums_of(self.vectors, saved)
            self._checksums[~self.known] = 0

    def put(self, rows: Int[np.ndarray, " some"], vectors: Float[np.ndarray, "some e"]) -> None:
        """Set the vectors of some rows."""
        self.vectors[rows], self.known[rows] = vectors, True

    def save(self) -> None:
        """Record on disk which rows are known, if vectors are stored in files; rows set later are computed
        again after a kill.
        """
        if self._flags is None:
            return
        new = np.flatnonzero(self.known & (self._checksums == 0))
        self._checksums[new] = _checksums_of(self.vectors, new)
        try:
            if isinstance(self.vectors, np.memmap):
                self.vectors.flush()
            write_array(np.stack([self._checksums.astype(np.int64), self.first_steps]), self._flags)
        except (OSError, DataError) as fault:
            if disk_error_of(fault) is None:
                raise
            raise JobError(
                f"{self._flags} could not be written: {fault}; free some space; earlier vectors are kept"
            ) from fault


def _checksums_of(vectors: VectorArray, rows: Int[np.ndarray, " some"]) -> UInt64[np.ndarray, " some"]:
    """A nonzero checksum for each row."""
    checksums = (zlib.crc32(vectors[row].data) | _KNOWN for row in rows.tolist())
    return np.fromiter(checksums, dtype=np.uint64, count=len(rows))


def _rows_in(path: Path, rows: int) -> tuple[UInt64[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """The checksum of each row in a file, 0 for an unknown one, and its first step; no row is known if the
    file is damaged.
    """
    try:
        saved = read_array(path, remedy="")
    except DataError:
        saved = np.empty(0)
    if saved.shape == (2, rows) and saved.dtype == np.int64:
        return saved[0].astype(np.uint64), saved[1]
    # Earlier versions wrote checksums alone, and had counted the cost of the rows.
    if saved.shape == (rows,) and saved.dtype == np.uint64:
        return saved, np.full(rows, VALIDATED)
    return np.zeros(rows, dtype=np.uint64), np.full(rows, UNUSED)
