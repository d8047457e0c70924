"""Training data of a student on disk: texts, and the teachers' vectors as targets (Reimers 2021)."""

import hashlib
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from adiabat.config.distillation import StudentDataSection
from adiabat.config.section import Section
from adiabat.core.disk import require_no_link
from adiabat.core.errors import DataError, JobError, several
from adiabat.core.files import is_there, read_json
from adiabat.core.formats import layout_of
from adiabat.core.progress import SILENT, Watch
from adiabat.core.provenance import read_array, require_seal, write_array
from adiabat.core.text import shown
from adiabat.core.wording import option
from adiabat.data.corpora import read_corpus
from adiabat.data.parallel import Translation
from adiabat.data.records import Document, Fingerprint, Side, text_id
from adiabat.data.text_hashes import held_out_queries
from adiabat.datasets.writer import RECORD, DatasetWriter, HashSet, create_dataset
from adiabat.dual_encoder.pair_data import contents_of
from adiabat.models.towers import DualEncoder
from adiabat.store.build import build_store
from adiabat.store.vector_store import Store

Vectors = Float[np.ndarray, "n e"]
"""A vector for each text."""

Read = Callable[[], Iterable[Translation]]
"""Reads all texts with their translations, anew at each call."""

VALIDATION = "validation"
"""File of the held-out examples."""

WATCHED = 10_000
"""Texts between two reports of progress."""

_BLOCK = 8_192
"""Number of vectors read at a time."""


@dataclass(frozen=True, slots=True)
class Lessons:
    """Numbers of rows in each training file and the held-out file; the folder also has the teachers' texts as
    a corpus.
    """

    folder: Path
    counts: Mapping[str, int]

    def path(self, name: str) -> Path:
        """A file of examples."""
        return self.folder / f"{name}.jsonl.gz"


@dataclass(slots=True)
class _Neighbours:
    """Joins consecutive sentences of one language into passages of varying length."""

    most: int
    waiting: deque[Translation] = field(default_factory=deque)
    length: int = 2

    def add(self, sentence: Translation) -> Translation | None:
        """Take the next sentence; returns the passage that it completes, if any."""
        self.waiting.append(sentence)
        if len(self.waiting) < self.length:
            return None
        # Lengths alternate, so that a student learns all of them.
        self.length = 2 + (self.length - 1) % (self.most - 1)
        return self.end()

    def end(self) -> Translation | None:
        """The passage so far; the next sentence does not continue it."""
        waiting = [self.waiting.popleft() for _ in range(len(self.waiting))]
        if len(waiting) < 2:
            return None
        source, text = (
            " ".join(getattr(sentence, name) for sentence in waiting) for name in ("source", "text")
        )
        return replace(waiting[-1], source=source, text=text)


@dataclass(slots=True)
class _Writer:
    """Writes each text into the file of its language, and each distinct teacher's text once into that of the
    teacher's language (`own`).
    """

    output: DatasetWriter
    own: str
    held_out: set[int]
    counts: Counter[str] = field(default_factory=Counter)
    # By hash: the texts of a large corpus do not fit into memory.
    known: HashSet = field(default_factory=HashSet)

    def write(self, lesson: Translation, *, held_out: bool = False) -> None:
        """Write a text and its translation, both with the teacher's vector of the text as their target."""
        self.output.document(text_id(lesson.source), lesson.source)
        if self.known.add(lesson.source):
            self._put(self.own, lesson.source, lesson.source, held_out)
        if lesson.language != self.own:
            self._put(lesson.language, lesson.text, lesson.source, held_out)

    def write_passage(self, passage: Translation | None) -> None:
        """Write a passage if there is one."""
        if passage is not None:
            self.write(passage)

    def _put(self, language: str, text: str, source: str, held_out: bool) -> None:
        """Write one example: a text of the student, and the id of the teacher's text."""
        if not held_out:
            self.counts[language] += 1
        self.output.example(
            VALIDATION if held_out else language, {"query": text, "positive": text_id(source)}
        )


def write_lessons(
    read: Read,
    folder: Path,
    *,
    settings: StudentDataSection,
    sources: Iterable[str],
    own: str,
    passages: int = 1,
    least: int = 1,
    watch: Watch = SILENT,
) -> Lessons:
    """Write texts and translations as examples, or reuse those of an earlier call.

    The target of a text does not depend on the language of the student's text, so a text is held out with all
    its translations and every passage that contains it.

    Args:
        read: Reads all texts; it is called twice, first to choose those to hold out.
        sources: Files whose content decides whether an earlier call's data can be used.
        own: Name of the file of the teachers' own texts.
        passages: Sentences of the longest passage of consecutive ones; 1 writes none.
        least: Fewest texts to hold out.
    """
    inputs: dict[str, Any] = {"settings": settings.model_dump(mode="json"), "files": contents_of(sources)}
    if is_there(folder / RECORD, error=JobError):
        return _written(folder, inputs)
    held_out = _held_out(partial(_trimmed, read), settings, least, watch)
    with create_dataset(
        folder, maker="lessons", source=folder.parent, settings=_Told(**inputs), checksums=True
    ) as output:
        counts = _write(_trimmed(read), _Writer(output, own, held_out), passages, watch)
    return Lessons(folder, counts)


class _Told(Section):
    """Provenance of the training data, as stored in ``made.json``."""

    settings: dict[str, Any]
    files: dict[str, str]


def _written(folder: Path, inputs: Mapping[str, Any]) -> Lessons:
    """The training data that an earlier call wrote; refused if it was made of other texts or settings."""
    remedy = "remove the folder to make it again"
    require_seal(folder, remedy=remedy, error=JobError)
    record = read_json(folder / RECORD, remedy=remedy, error=JobError)
    with layout_of(folder / RECORD, remedy=remedy, error=JobError):
        differing = [*_others(record["settings"], inputs)] if record["settings"] != inputs else []
        counts = {name.removesuffix(".jsonl.gz"): int(rows) for name, rows in record["examples"].items()}
    if differing:
        others = ", ".join(differing)
        raise JobError(
            f"{folder} was made from other texts or settings ({others}); choose "
            f"another {option('out')}, or remove it"
        )
    return Lessons(folder, {name: rows for name, rows in counts.items() if name != VALIDATION})


def _others(before: Mapping[str, Any], inputs: Mapping[str, Any]) -> Iterator[str]:
    """Settings and files that have changed."""
    for kind, prefix in (("settings", "data."), ("files", "")):
        was, now = before[kind], inputs[kind]
        yield from (f"{prefix}{name}" for name in sorted({*was, *now}) if was.get(name) != now.get(name))


def _trimmed(read: Read) -> Iterator[Translation]:
    """Texts with surrounding white space removed, as a corpus returns them, so that their ids stay equal."""
    for translation in read():
        yield replace(translation, source=translation.source.strip(), text=translation.text.strip())


def _held_out(read: Read, settings: StudentDataSection, least: int, watch: Watch) -> set[int]:
    """Hashes of the teachers' texts to hold out."""
    fraction, limit = settings.validation_fraction, settings.max_validation
    known, distinct = HashSet(), list[int]()

    def texts() -> Iterator[str]:
        for number, lesson in enumerate(read()):
            if number % WATCHED == 0:
                watch.progress("reading texts", number, number)
            if known.add(lesson.source):
                distinct.append(hash(lesson.source))
                yield lesson.source

    chosen = held_out_queries(texts(), fraction, limit)
    if not least <= len(chosen) < len(distinct):
        raise DataError(
            f"data.validation_fraction = {fraction} and data.max_validation = {limit} must leave {least} or "
            f"more texts for validation and some for training, got {len(chosen):,} of {len(distinct):,} "
            "held out; choose others, or add texts"
        )
    return {distinct[index] for index in chosen.tolist()}


def _write(read: Iterable[Translation], writer: _Writer, passages: int, watch: Watch) -> Mapping[str, int]:
    """Write all texts, and passages of consecutive ones of a language; returns the rows of each file.

    A text that is held out, or begins anew, ends the passage before it: no passage has a held-out text.
    """
    neighbours: dict[str, _Neighbours] = {}
    for number, lesson in enumerate(read):
        if number % WATCHED == 0:
            watch.progress("writing training data", number, number)
        held_out = hash(lesson.source) in writer.held_out
        writer.write(lesson, held_out=held_out)
        if passages == 1:
            continue
        near = neighbours.setdefault(lesson.language, _Neighbours(passages))
        if held_out or lesson.begins:
            writer.write_passage(near.end())
        if not held_out:
            writer.write_passage(near.add(lesson))
    for near in neighbours.values():
        writer.write_passage(near.end())
    return dict(writer.counts)


Directions = Float[np.ndarray, "e k"]


@dataclass(frozen=True, slots=True)
class _Targets:
    """Encoder for building a store of targets: it embeds one side, whichever side is requested."""

    width: int
    identity: Fingerprint
    vectors: Callable[[Sequence[str]], Vectors]

    def fingerprint(self, side: Side) -> Fingerprint:
        del side
        return self.identity

    def encode(self, texts: Sequence[str], *, side: Side) -> Vectors:
        del side
        return self.vectors(texts)


def _of_teacher(model: DualEncoder, side: Side) -> _Targets:
    """A teacher's vectors of one side; a zero vector is refused, since no student can have its direction."""

    def vectors(texts: Sequence[str]) -> Vectors:
        rows = model.encode(texts, side=side)
        if blind := [text for text, row in zip(texts, rows, strict=True) if not row.any()]:
            raise DataError(
                f"a teacher must give every text a nonzero vector, {model.name} gives "
                f"none to {several(map(shown, blind))}; "
                "remove it, or take another teacher"
            )
        return rows

    return _Targets(model.width, model.fingerprint(side), vectors)


def _joined(
    stores: Sequence[Store], directions: Directions | None, made_of: str, first: Fingerprint
) -> _Targets:
    """Concatenated unit-length vectors of several stores, projected onto the kept directions.

    The fingerprint is that of the first teacher, with a digest of the vectors' sources (`made_of`) instead of
    its weights: the bits of the vectors differ between machines.
    """

    def vectors(texts: Sequence[str]) -> Vectors:
        rows = joined_rows(stores, [text_id(text) for text in texts])
        return rows if directions is None else unit(rows @ directions)

    width = sum(store.width for store in stores) if directions is None else directions.shape[1]
    return _Targets(width, replace(first, weights=made_of, width=width), vectors)


def joined_rows(stores: Sequence[Store], ids: Sequence[str]) -> Vectors:
    """Concatenated vectors of texts by several teachers."""
    # Divided by the root of their number, the joined vectors have unit length, too, and their product is the
    # mean of the teachers' cosines.
    units = [unit(store.gather(store.rows(ids)).astype(np.float32)) for store in stores]
    return np.concatenate(units, axis=1) / np.float32(np.sqrt(len(units)))


def unit(vectors: Vectors) -> Vectors:
    """Scale rows to length 1; a zero row stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


def main_directions(rows: Callable[[], Iterator[Vectors]], width: int) -> tuple[Directions, float]:
    """The directions in which vectors are largest; projecting onto them changes products between vectors
    least.

    Vectors are not centred, because cosines of student and teachers are measured from the origin.

    Args:
        rows: All vectors, some at a time, so that they need not fit into memory together.
        width: Number of directions.

    Returns:
        The directions as columns, and their share of the squared lengths of all vectors.
    """
    # M = sum of x x^T over all vectors x; its eigenvectors with the largest eigenvalues are the directions.
    moments: Float[np.ndarray, "e e"] | None = None
    for block in rows():
        exact = block.astype(np.float64)
        moments = exact.T @ exact if moments is None else moments + exact.T @ exact
    assert moments is not None
    values, vectors = np.linalg.eigh(moments)
    largest = vectors[:, ::-1][:, :width]
    # Eigenvectors have no sign of their own: the largest number of each is made positive.
    signs = np.sign(largest[np.abs(largest).argmax(axis=0), np.arange(width)])
    return (largest * signs).astype(np.float32), float(values[::-1][:width].sum() / values.sum())


def build_targets(
    teachers: Sequence[DualEncoder],
    corpus: Path,
    folder: Path,
    *,
    side: Side,
    width: int | None = None,
    watch: Watch = SILENT,
) -> Store:
    """Embed the teachers' texts, once for each teacher, and combine the vectors into targets.

    An interrupted call resumes, and finished parts are reused.

    Args:
        corpus: Folder of the teachers' texts, each with the id that `text_id` gives it.
        folder: Where the stores and the directions are kept.
        side: Tower of the teachers that embeds the texts.
        width: Dimensions to which the vectors are reduced; None keeps all.

    Returns:
        A store of the targets, without texts; that of the only teacher if nothing is reduced.
    """
    if width is not None:
        require_texts(sum(1 for _ in islice(read_corpus(corpus), width)), width)
    stores = [
        _store_of(_of_teacher(teacher, side), corpus, folder / f"teacher-{number}", teacher.name, watch)
        for number, teacher in enumerate(teachers, 1)
    ]
    if len(stores) == 1 and width is None:
        return stores[0]
    # Combined targets are those of these vectors and this width alone: a cached matrix is found by both.
    made_of = hashlib.sha256(
        "".join([*(store.manifest.sha256 for store in stores), f" {width}"]).encode()
    ).hexdigest()
    directions = None
    if width is not None:
        directions = cached_matrix(
            folder / f"directions-{made_of[:16]}.npy", lambda: _directions(stores, width, watch)
        )
    return _store_of(
        _joined(stores, directions, made_of, teachers[0].fingerprint(side)),
        corpus,
        folder / "targets",
        " + ".join(teacher.name for teacher in teachers),
        watch,
    )


def _store_of(encoder: _Targets, corpus: Path, target: Path, name: str, watch: Watch) -> Store:
    """Build or resume a store of targets, without the texts, which the training data have already."""

    def documents() -> Iterator[Document]:
        return read_corpus(corpus)

    require_no_link(target)
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
    """Refuse too few texts to determine a student's directions."""
    if count < width:
        raise DataError(
            f"teachers must have at least {width} texts, the width of the student, "
            f"got {count}{left_out}; add texts"
        )


def cached_matrix(path: Path, make: Callable[[], Directions]) -> Directions:
    """An array saved by an earlier call if there is one, so that a job resumed elsewhere uses the same
    values.
    """
    if path.exists():
        try:
            return read_array(path, remedy="it is rebuilt")
        except DataError as damage:
            warnings.warn(str(damage), stacklevel=2)
    matrix = make()
    write_array(matrix, path)
    return matrix


def _directions(stores: Sequence[Store], width: int, watch: Watch) -> Directions:
    """The directions of the teachers' joined vectors that a student of some width keeps."""
    count = stores[0].count

    def rows() -> Iterator[Vectors]:
        for start in range(0, count, _BLOCK):
            yield joined_rows(stores, stores[0].doc_ids(range(start, min(start + _BLOCK, count))))

    directions, share = main_directions(rows, width)
    watch.note(
        f"{width} of the {len(directions)} dimensions of the teachers' vectors are "
        f"kept, with {share:.1%} of their squared lengths"
    )
    return directions
