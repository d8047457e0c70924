"""Where a student is to come: its teachers' vectors, each computed once into a store, side by side, and cut to the student's width."""

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import Float

from adiabat.core.checksums import read_array, write_array
from adiabat.core.errors import DataError, several
from adiabat.core.progress import SILENT, Watch
from adiabat.core.text import shown
from adiabat.data.corpora import read_corpus
from adiabat.data.records import Document, Side, text_id
from adiabat.models.fingerprint import Fingerprint
from adiabat.models.towers import DualEncoder
from adiabat.store.build import build_store
from adiabat.store.vector_store import Store

Directions = Float[np.ndarray, "e k"]


@dataclass(frozen=True, slots=True)
class _OfSide:
    """One side of a model, whatever side is asked for: what a store is built with."""

    model: DualEncoder
    side: Side

    @property
    def width(self) -> int:
        return self.model.width

    def fingerprint(self, side: Side) -> Fingerprint:
        del side
        return self.model.fingerprint(self.side)

    def encode(self, texts: Sequence[str], *, side: Side) -> Float[np.ndarray, "n e"]:
        del side
        vectors = self.model.encode(texts, side=self.side)
        if blind := [text for text, row in zip(texts, vectors, strict=True) if not row.any()]:
            raise DataError(
                f"a teacher must give every text a vector other than zero, {self.model.name} gives none to {several(map(shown, blind))}; "
                "remove it, or take another teacher"
            )
        return vectors


@dataclass(frozen=True, slots=True)
class _Joined:
    """Vectors of several stores as one: unit length each, side by side, times the directions that are kept."""

    stores: Sequence[Store]
    directions: Directions | None
    made_of: str
    """Digest of what the vectors follow from: not of their bits, which differ from machine to machine."""
    first: Fingerprint
    """Of the first teacher."""

    @property
    def width(self) -> int:
        return sum(store.width for store in self.stores) if self.directions is None else self.directions.shape[1]

    def fingerprint(self, side: Side) -> Fingerprint:
        """Of the first teacher, with all that vectors follow from in the place of its weights."""
        del side
        return replace(self.first, weights=self.made_of, width=self.width)

    def encode(self, texts: Sequence[str], *, side: Side) -> Float[np.ndarray, "n e"]:
        del side
        rows = joined_rows(self.stores, [text_id(text) for text in texts])
        return rows if self.directions is None else unit(rows @ self.directions)


def joined_rows(stores: Sequence[Store], ids: Sequence[str]) -> Float[np.ndarray, "n e"]:
    """Vectors of texts by several teachers, side by side."""
    units = [unit(store.gather(store.rows(ids)).astype(np.float32)) for store in stores]
    return np.concatenate(units, axis=1) / np.float32(np.sqrt(len(units)))


def unit(vectors: Float[np.ndarray, "n e"]) -> Float[np.ndarray, "n e"]:
    """Rows of length 1; one of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


def main_directions(rows: Callable[[], Iterator[Float[np.ndarray, "n e"]]], width: int) -> tuple[Directions, float]:
    """The directions in which vectors are largest, so that products between them change least.

    Vectors are not centred: a student's cosines are taken from the origin, and so are the teachers'.
    """
    moments: Float[np.ndarray, "e e"] | None = None
    for block in rows():
        exact = block.astype(np.float64)
        moments = exact.T @ exact if moments is None else moments + exact.T @ exact
    assert moments is not None
    values, vectors = np.linalg.eigh(moments)
    largest = vectors[:, ::-1][:, :width]
    signs = np.sign(largest[np.abs(largest).argmax(axis=0), np.arange(width)])
    return (largest * signs).astype(np.float32), float(values[::-1][:width].sum() / values.sum())


def build_targets(
    teachers: Sequence[DualEncoder], corpus: Path, folder: Path, *, side: Side, width: int | None = None, watch: Watch = SILENT
) -> Store:
    """Embed the teachers' texts, once for each teacher, and make of their vectors what a student is to come close to.

    What was cut short goes on; what is finished is not computed again.

    Args:
        width: Numbers that vectors are cut to; None keeps all.
    """
    if width is not None:
        require_texts(sum(1 for _ in islice(read_corpus(corpus), width)), width)
    stores = [
        _store_of(_OfSide(teacher, side), corpus, folder / f"teacher-{number}", teacher.name, watch)
        for number, teacher in enumerate(teachers, 1)
    ]
    if len(stores) == 1 and width is None:
        return stores[0]
    made_of = hashlib.sha256("".join([*(store.manifest.sha256 for store in stores), f" {width}"]).encode()).hexdigest()
    directions = None
    if width is not None:
        directions = cached_matrix(folder / f"directions-{made_of[:16]}.npy", lambda: _directions(stores, width, watch))
    return _store_of(
        _Joined(stores, directions, made_of, teachers[0].fingerprint(side)),
        corpus,
        folder / "targets",
        " + ".join(teacher.name for teacher in teachers),
        watch,
    )


def _store_of(encoder: _OfSide | _Joined, corpus: Path, target: Path, name: str, watch: Watch) -> Store:
    def documents() -> Iterator[Document]:
        return read_corpus(corpus)

    label = f"embedding texts by {name}"
    built = build_store(
        encoder,
        documents,
        target,
        dtype="float32",
        keep_texts=False,
        on_progress=lambda done, total: watch.progress(label, done, total),
        source=str(corpus),
        encoder_name=name,
    )
    if built.note:
        watch.note(f"{name}: {built.note}")
    return built.store


def require_texts(count: int, width: int, *, left_out: str = "") -> None:
    """Refuse texts too few to tell a student's directions apart."""
    if count < width:
        raise DataError(f"teachers must have at least {width} texts, as many as the student's numbers, got {count}{left_out}; add texts")


def cached_matrix(path: Path, make: Callable[[], Directions]) -> Directions:
    """One that an earlier call kept, so that what goes on elsewhere goes on with the same."""
    if path.exists():
        try:
            return read_array(path, remedy="it is made again")
        except DataError as damage:
            warnings.warn(str(damage), stacklevel=2)
    matrix = make()
    write_array(matrix, path)
    return matrix


def _directions(stores: Sequence[Store], width: int, watch: Watch) -> Directions:
    count = stores[0].count

    def rows() -> Iterator[Float[np.ndarray, "n e"]]:
        for start in range(0, count, _BLOCK):
            yield joined_rows(stores, stores[0].doc_ids(range(start, min(start + _BLOCK, count))))

    directions, share = main_directions(rows, width)
    watch.note(f"{width} of the {len(directions)} numbers of the teachers' vectors are kept, with {share:.1%} of their squared lengths")
    return directions


_BLOCK = 8_192
"""Vectors that are read at a time."""
