"""Training data of both towers: pairs of texts from one or several sources, split into training and
validation.

The dataset cache holds pairs that were read and numbered once, so that later runs over the same files need
not read them again. Texts are stored in Arrow files and read by row; only numbers are in memory, about 50
bytes for each listed document.
"""

import hashlib
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from adiabat.config.dual_training_data import TrainDataSection
from adiabat.core.disk import clear, make_folder, move, new_file, real
from adiabat.core.errors import DataError, StoreError, several
from adiabat.core.files import is_there, read_json, reading, write_json
from adiabat.core.formats import layout_of
from adiabat.core.progress import SILENT, Watch
from adiabat.core.provenance import digest_of, require_seal, seal
from adiabat.core.ragged import Ragged
from adiabat.core.surroundings import user_cache
from adiabat.core.text import cut
from adiabat.data.corpora import read_corpus, with_id_warning
from adiabat.data.examples import stream_examples
from adiabat.data.judged_sets import is_judged
from adiabat.data.lines import HUB_PREFIX, parted_columns
from adiabat.data.pair_sets import EQUAL_TEXTS, PairBuilder, PairSet, TextList, Texts, joined, text_numbers
from adiabat.data.records import Example, ExampleStream
from adiabat.data.sources import Source, validation_source
from adiabat.data.table_rows import count_rows
from adiabat.data.text_hashes import TrainedTexts, held_out_queries, in_blocks
from adiabat.runs.run_log import plain_faults
from adiabat.store.addressing import rows_of_entries, stored_documents
from adiabat.store.corpus_files import ID_BATCH, TEXT_BATCH, StringColumn, StringColumnWriter
from adiabat.store.vector_store import Store


@dataclass(frozen=True, slots=True)
class _Source:
    """Location and format of examples, part of the key of the cache.

    Attributes:
        split: Split to read; None reads the usual one.
        usual_split: Split of a folder with several, where neither settings nor path name one.
        columns: Names of columns that adiabat does not recognise, by our names.
        corpus: Data with the texts of documents that examples name by id; None where they hold texts.
    """

    path: str
    split: str | None
    usual_split: str
    columns: Mapping[str, str]
    corpus: str | None


def read_pairs(
    source: str | None,
    settings: TrainDataSection,
    *,
    stored: bool = False,
    cache: Path | None = None,
    watch: Watch = SILENT,
) -> tuple[PairSet, PairSet]:
    """Read examples, and split them into training and validation by the query's text.

    Args:
        source: Source of the examples; None reads `TrainDataSection.sources`.
        stored: Whether documents are ids of a store, which stand for their texts.
        cache: Directory of the dataset cache; None keeps pairs in memory.

    Returns:
        Training pairs and validation pairs over the same texts, with notes on what was left out.

    Raises:
        DataError: If a source is faulty, or no query is left on one of the sides.
    """
    # A source uses the settings of `[data]` for those that it does not set itself.
    listed = [
        _Source(entry.path, entry.split, "train", entry.columns.given(), entry.corpus)
        for entry in settings.listed(source)
    ]
    sources = [*listed, *_validated(settings, source)]
    sets = _numbered(sources, stored, cache, watch)
    if not settings.validation:
        return _parted(joined(sets), " + ".join(source_read.path for source_read in sources), settings)
    train, validation = joined(sets[:-1]), sets[-1]
    if note := _overlap_note(train, validation):
        validation = replace(validation, notes=(*validation.notes, note))
    return train, validation


def read_validation(
    source: str | None, settings: TrainDataSection, *, cache: Path, watch: Watch = SILENT
) -> PairSet:
    """Read the validation pairs of a run over a stream."""
    return _numbered(_validated(settings, source), False, cache, watch)[0]


def _validated(settings: TrainDataSection, source: str | None) -> list[_Source]:
    """The validation data that the settings name; empty if queries are held out of the training data."""
    path = validation_source(settings, [entry.path for entry in settings.listed(source)])
    return [] if path is None else [_Source(path, None, "dev", settings.columns.given(), settings.corpus)]


def _overlap_note(train: PairSet, validation: PairSet) -> str | None:
    """A note on validation queries that are also trained on; None if there are none.

    Both sets number their texts together, so equal rows are equal queries.
    """
    shared, queries = len(np.intersect1d(train.query_rows, validation.query_rows)), len(validation.query_rows)
    if not shared:
        return None
    note = (
        f"{shared:,} of {queries:,} validation queries are also trained on, "
        "so validation looks better than it is"
    )
    return (
        note
        if shared < queries
        else f"{note}: name other data as data.validation, or leave it out to hold some of these out"
    )


def _numbered(
    sources: Sequence[_Source], stored: bool, cache: Path | None, watch: Watch
) -> tuple[PairSet, ...]:
    """The pairs of each source, from the cache if the same files were read before.

    Args:
        stored: Whether documents are ids of a store.
    """

    def number(builder: PairBuilder) -> list[str]:
        names = []
        for index, source in enumerate(sources):
            stream = _read(source, stored=stored)
            total = None if is_judged(source.path) else count_rows(source.path, split=source.split)
            label = f"reading {cut(source.path, limit=40)}"
            builder.add(watched(stream.examples, watch, label=label, total=total, counter=count()), of=index)
            builder.note(f"{stream.name}: {remark}" for remark in stream.remarks())
            names.append(stream.name)
        return names

    folder = None
    if cache is not None:
        read = [
            {**asdict(source), "files": [*files_of(source.path), *files_of(source.corpus or source.path)]}
            for source in sources
        ]
        folder = cache / cache_key({"sources": read, "stored": stored})
    return numbered_pairs(number, folder, advice="name another folder (data.cache)")


def watched(
    examples: Iterator[Example], watch: Watch, *, label: str, total: int | None, counter: Iterator[int]
) -> Iterator[Example]:
    """Examples with a progress display; nothing is shown if the total is unknown."""
    for example in examples:
        number = next(counter)
        if total and number % 10_000 == 0:
            watch.progress(label, number, total)
        yield example


def _read(source: _Source, *, stored: bool) -> ExampleStream:
    """Examples with document ids replaced by texts, if they hold ids; examples and texts are then in
    memory.
    """
    # A separate corpus has its own columns for documents, not those of the examples.
    columns, of_documents = parted_columns(source.columns, has_corpus=source.corpus is not None)
    stream = stream_examples(source.path, split=source.split, columns=columns, usual_split=source.usual_split)
    corpus = source.corpus or (source.path if is_judged(source.path) and not stored else None)
    if corpus is None:
        return stream if stored else replace(stream, examples=with_id_warning(stream.examples, source.path))
    examples = list(stream.examples)
    naming: dict[str, str] = {}
    for example in examples:
        for entry in (*example.positives, *example.negatives):
            naming.setdefault(entry, example.location)
    # A blank document is harmless unless an example refers to it; then it counts as missing.
    documents = read_corpus(corpus, columns=of_documents, blank="drop")
    texts = {document.doc_id: document.text for document in documents if document.doc_id in naming}
    if absent := [
        f'{location}: "{cut(entry, limit=60)}"' for entry, location in naming.items() if entry not in texts
    ]:
        raise DataError(
            f"{stream.name}: every document must be in the corpus {corpus}, it "
            f"lacks {several(absent, of='documents')}; "
            "name the corpus that holds them (data.corpus), or none where the examples hold texts"
        )

    def named(entries: Sequence[str]) -> tuple[str, ...]:
        return tuple(texts[entry] for entry in entries)

    looked_up = (
        replace(example, positives=named(example.positives), negatives=named(example.negatives))
        for example in examples
    )
    return ExampleStream(stream.name, looked_up)


def _parted(pairs: PairSet, source: str, settings: TrainDataSection) -> tuple[PairSet, PairSet]:
    """Training pairs, and the pairs of queries that are held out for validation.

    All pairs of a query are on one side, and its hash decides which (`held_out_queries`).
    """
    held_out = held_out_queries(pairs.texts.queries, settings.validation_fraction, settings.max_validation)
    validated = np.isin(pairs.query, held_out)
    if validated.all() or not validated.any():
        raise DataError(
            f"{source}: data.validation_fraction = {settings.validation_fraction} must leave "
            f"queries on both sides, got {len(held_out)} of "
            f"{len(pairs.texts.queries)} held out; choose another fraction, or name a data.validation file"
        )
    return pairs.subset(~validated), replace(pairs, notes=()).subset(validated)


def trained_pairs(pairs: PairSet, store: Store | None = None) -> TrainedTexts:
    """Texts of queries and answers of pairs; documents are read from a store if one is given."""
    queries, answers = in_blocks(pairs.texts.queries.take, pairs.query_rows), np.unique(pairs.positive)
    if store is None:
        return TrainedTexts.of(queries, documents=in_blocks(pairs.texts.documents.take, answers))
    rows = rows_of_entries(pairs.texts.documents.take(answers), store)
    return TrainedTexts.of(queries, **stored_documents(store, rows))


FORMAT = 5
"""Format of the folder, part of its name."""

MAKING = ".making-"
"""Prefix of an unfinished folder's name."""

ABANDONED_SECONDS = 24 * 3600
"""Age from which an unfinished folder is assumed to be left by a killed process."""

SAMPLES, SAMPLED_BYTES = 16, 1 << 16
"""Number of sampled blocks that identify a file beside its size and date; the first and last are among
them."""

READABLE = "check its permissions"

COLUMNS = {"queries": TEXT_BATCH, "documents": TEXT_BATCH, "query_ids": ID_BATCH}

EACH = ("query", "positive", "sources", "topics", "tags")

Number = Callable[[PairBuilder], list[str]]
"""Numbers examples, and returns the names of their sets."""


def cache_folder(setting: str | None) -> Path:
    """Directory of the cache."""
    return user_cache() if setting is None else real(Path(setting))


def cache_key(description: dict[str, Any]) -> str:
    """Name of a folder of the cache: 128 bits of the SHA-256 of what its content depends on."""
    return hashlib.sha256(json.dumps({"format": FORMAT, **description}, sort_keys=True).encode()).hexdigest()[
        :32
    ]


def numbered_pairs(number: Number, folder: Path | None, *, advice: str) -> tuple[PairSet, ...]:
    """Open the pairs of a folder, or number them and store them there; without a folder they stay in
    memory.

    A damaged folder is replaced, with a warning. A new one is made beside its path and moved there, so that
    several processes may make the same one.

    Args:
        number: Numbers the examples; not called if the folder holds them.
        advice: What to do where the cache cannot be written.
    """
    if folder is None:
        columns = TextList(), TextList(), TextList()
        builder = PairBuilder(*columns)
        return builder.built(number(builder), Texts(*columns))
    if folder.is_dir():
        try:
            return _opened(folder)
        except (DataError, StoreError) as damage:
            warnings.warn(str(damage), stacklevel=2)
            clear(folder)
    cache = folder.parent
    with plain_faults(cache, advice=f"it must be writable and have room, or {advice}", error=DataError):
        make_folder(cache, parents=True)
        _clear_abandoned(cache)
        making = Path(tempfile.mkdtemp(prefix=MAKING, dir=cache))
        try:
            _write(number, making)
            move(making, folder)
        except OSError:
            # Another process may have been faster.
            if not folder.is_dir():
                raise
        finally:
            clear(making)
    return _opened(folder)


def files_of(source: str) -> list[tuple[str, ...]]:
    """Identity of a source, without reading all of it."""
    return [_state(path) if path.is_file() else (str(path),) for path in _files(source)]


def contents_of(sources: Iterable[str]) -> dict[str, str]:
    """Path of each file to the SHA-256 of its bytes, so that a copy with another date is the same; a hub name
    maps to "".
    """
    digests = dict[str, str]()
    for path in (path for source in sources for path in _files(source)):
        with reading(path, remedy=READABLE):
            digests[str(path)] = digest_of(path).sha256 if path.is_file() else ""
    return digests


def _files(source: str) -> list[Path]:
    """The files of a source; a hub name or a missing file is returned unchanged."""
    if source.startswith(HUB_PREFIX):
        return [Path(source)]
    path = Path(Source.of(source).path).resolve()
    return (
        sorted(child for child in path.rglob("*") if is_there(child) and child.is_file())
        if path.is_dir()
        else [path]
    )


def _state(path: Path) -> tuple[str, ...]:
    """What changes with a file: its size, dates and inode, and a digest of 16 blocks spread over it."""
    digest = hashlib.sha256()
    with reading(path, remedy=READABLE), path.open("rb") as file:
        state = os.fstat(file.fileno())
        for start in np.linspace(0, max(0, state.st_size - SAMPLED_BYTES), SAMPLES, dtype=np.int64).tolist():
            file.seek(start)
            digest.update(file.read(SAMPLED_BYTES))
    return (
        str(path),
        *map(str, (state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino)),
        digest.hexdigest(),
    )


def _clear_abandoned(cache: Path) -> None:
    """Remove unfinished folders of processes that were killed; those of running ones are younger."""
    for folder in cache.glob(f"{MAKING}*"):
        if time.time() - folder.stat().st_mtime > ABANDONED_SECONDS:
            clear(folder)


def _write(number: Number, folder: Path) -> None:
    """Number examples and write their texts, pairs and notes, sealed by checksums.

    Texts go to disk while they are numbered; only numbers are held until the end.
    """
    with ExitStack() as stack:
        sinks = [
            stack.enter_context(StringColumnWriter(folder / f"{name}.arrow", name=name, batch_rows=rows))
            for name, rows in COLUMNS.items()
        ]
        builder = PairBuilder(*sinks)
        names = number(builder)
    texts = _texts(folder)
    sets = builder.built(names, texts)
    arrays = {f"{index}.{name}": getattr(pairs, name) for index, pairs in enumerate(sets) for name in EACH}
    for name in ("answers", "negatives"):
        lists: Ragged = getattr(sets[0], name)
        arrays |= {f"{name}.values": lists.values, f"{name}.offsets": lists.offsets}
    if sets[0].negative_scores is not None:
        arrays |= {f"{index}.scores": pairs.scores for index, pairs in enumerate(sets)}
        arrays["negatives.scores"] = sets[0].negative_scores
    with new_file(folder / "numbers.npz") as file:
        np.savez(file, **arrays)
    # Without its folder, which would hold the file that is written here.
    queries, documents = text_numbers(replace(texts, folder=None))
    with new_file(folder / EQUAL_TEXTS) as file:
        np.savez(file, queries=queries, documents=documents)
    about = {
        "sha256": texts.digest().hex(),
        "sets": [{"name": pairs.name, "notes": pairs.notes} for pairs in sets],
    }
    write_json(about, folder / "about.json")
    seal(folder, sorted(path.name for path in folder.iterdir()))


def _texts(folder: Path, sha256: str = "") -> Texts:
    """The texts in a folder, read by row; `sha256` is their digest if it is known."""
    queries, documents, query_ids = (StringColumn(folder / f"{name}.arrow") for name in COLUMNS)
    return Texts(queries, documents, query_ids, folder, sha256)


def _opened(folder: Path) -> tuple[PairSet, ...]:
    """The pairs in a folder, whose checksums must be right."""
    remedy = "the pairs are read again"
    require_seal(folder, remedy=remedy)
    about = read_json(folder / "about.json", remedy=remedy)
    with reading(folder / "numbers.npz", remedy=remedy), np.load(folder / "numbers.npz") as numbers:
        arrays = {name: numbers[name] for name in numbers.files}
    with layout_of(folder / "about.json", remedy=remedy):
        return _sets(folder, about, arrays)


def _sets(folder: Path, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> tuple[PairSet, ...]:
    """The sets of pairs of a folder, which share their texts, answers and negatives."""
    texts = _texts(folder, about["sha256"])
    answers, negatives = (
        Ragged(arrays[f"{name}.values"], arrays[f"{name}.offsets"]) for name in ("answers", "negatives")
    )
    sets = []
    for number, each in enumerate(about["sets"]):
        columns = {name: arrays[f"{number}.{name}"] for name in EACH}
        sets.append(
            PairSet(
                each["name"],
                texts,
                answers=answers,
                negatives=negatives,
                notes=tuple(each["notes"]),
                scores=arrays.get(f"{number}.scores"),
                negative_scores=arrays.get("negatives.scores"),
                **columns,
            )
        )
    return tuple(sets)
