"""Training data of both towers: pairs of texts from one or several sources, split into training and validation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path

import numpy as np

from adiabat.config.dual_training_data import TrainDataSection
from adiabat.core.errors import DataError, several
from adiabat.core.progress import SILENT, Watch
from adiabat.core.text import cut
from adiabat.data.corpora import read_corpus, with_id_warning
from adiabat.data.examples import stream_examples
from adiabat.data.lines import OF_DOCUMENTS
from adiabat.data.pair_sets import PairBuilder, PairSet, joined
from adiabat.data.records import Example, ExampleStream
from adiabat.data.table_rows import count_rows, is_beir_examples
from adiabat.data.text_hashes import TrainedTexts, held_out_queries, in_blocks
from adiabat.dual_encoder.dataset_cache import cache_key, files_of, numbered_pairs
from adiabat.store.addressing import rows_of_entries, stored_documents
from adiabat.store.vector_store import Store


@dataclass(frozen=True, slots=True)
class _Source:
    """Location and format of examples."""

    path: str
    split: str | None
    usual_split: str
    columns: Mapping[str, str]
    corpus: str | None


def read_pairs(
    source: str | None, settings: TrainDataSection, *, stored: bool = False, cache: Path | None = None, watch: Watch = SILENT
) -> tuple[PairSet, PairSet]:
    """Read examples, and split them into training and validation by the query's text.

    Args:
        source: Source of the examples; None reads `TrainDataSection.sources`.
        cache: Directory of the dataset cache; None keeps pairs in memory.
    """
    # A source uses the settings of `[data]` for those that it does not set itself.
    listed = [_Source(entry.path, entry.split, "train", entry.columns.given(), entry.corpus) for entry in settings.listed(source)]
    sources = [*listed, *_validated(settings)]
    sets = _numbered(sources, stored, cache, watch)
    if not settings.validation:
        return _parted(joined(sets), " + ".join(source_read.path for source_read in sources), settings)
    train, validation = joined(sets[:-1]), sets[-1]
    if note := _overlap_note(train, validation):
        validation = replace(validation, notes=(*validation.notes, note))
    return train, validation


def read_validation(settings: TrainDataSection, *, cache: Path, watch: Watch = SILENT) -> PairSet:
    """Read the validation pairs of a run over a stream."""
    return _numbered(_validated(settings), False, cache, watch)[0]


def _validated(settings: TrainDataSection) -> list[_Source]:
    if not settings.validation:
        return []
    split = settings.validation_split or settings.split
    return [_Source(settings.validation, split, "dev", settings.columns.given(), settings.corpus)]


def _overlap_note(train: PairSet, validation: PairSet) -> str | None:
    shared, queries = len(np.intersect1d(train.query_rows, validation.query_rows)), len(validation.query_rows)
    if not shared:
        return None
    note = f"{shared:,} of {queries:,} validation queries are also trained on, so validation looks better than it is"
    return note if shared < queries else f"{note}: name other data as data.validation, or leave it out to hold some of these out"


def _numbered(sources: Sequence[_Source], stored: bool, cache: Path | None, watch: Watch) -> tuple[PairSet, ...]:
    def number(builder: PairBuilder) -> list[str]:
        names = []
        for index, source in enumerate(sources):
            stream = _read(source, stored=stored)
            total = None if is_beir_examples(source.path) else count_rows(source.path, split=source.split)
            label = f"reading {cut(source.path, limit=40)}"
            builder.add(watched(stream.examples, watch, label=label, total=total, counter=count()), of=index)
            builder.note(f"{stream.name}: {remark}" for remark in stream.remarks())
            names.append(stream.name)
        return names

    folder = None
    if cache is not None:
        read = [{**asdict(source), "files": [*files_of(source.path), *files_of(source.corpus or source.path)]} for source in sources]
        folder = cache / cache_key({"sources": read, "stored": stored})
    return numbered_pairs(number, folder, advice="name another folder (data.cache)")


def watched(examples: Iterator[Example], watch: Watch, *, label: str, total: int | None, counter: Iterator[int]) -> Iterator[Example]:
    """Examples with a progress display; nothing is shown if the total is unknown."""
    for example in examples:
        number = next(counter)
        if total and number % 10_000 == 0:
            watch.progress(label, number, total)
        yield example


def _read(source: _Source, *, stored: bool) -> ExampleStream:
    """Examples with document ids replaced by texts, if they hold ids; examples and texts are then in memory."""
    # A separate corpus has its own columns for documents, not those of the examples.
    columns = {name: column for name, column in source.columns.items() if source.corpus is None or name not in OF_DOCUMENTS}
    stream = stream_examples(source.path, split=source.split, columns=columns, usual_split=source.usual_split)
    corpus = source.corpus or (source.path if is_beir_examples(source.path) and not stored else None)
    if corpus is None:
        return stream if stored else replace(stream, examples=with_id_warning(stream.examples, source.path))
    examples = list(stream.examples)
    naming: dict[str, str] = {}
    for example in examples:
        for entry in (*example.positives, *example.negatives):
            naming.setdefault(entry, example.location)
    columns = {name: column for name, column in source.columns.items() if source.corpus and name in OF_DOCUMENTS}
    # A blank document is harmless unless an example refers to it; then it counts as missing.
    documents = read_corpus(corpus, columns=columns, blank="drop")
    texts = {document.doc_id: document.text for document in documents if document.doc_id in naming}
    if absent := [f'{location}: "{cut(entry, limit=60)}"' for entry, location in naming.items() if entry not in texts]:
        raise DataError(
            f"{stream.name}: every document must be in the corpus {corpus}, it lacks {several(absent, of='documents')}; "
            "name the corpus that holds them (data.corpus), or none where the examples hold texts"
        )

    def named(entries: Sequence[str]) -> tuple[str, ...]:
        return tuple(texts[entry] for entry in entries)

    looked_up = (replace(example, positives=named(example.positives), negatives=named(example.negatives)) for example in examples)
    return ExampleStream(stream.name, looked_up)


def _parted(pairs: PairSet, source: str, settings: TrainDataSection) -> tuple[PairSet, PairSet]:
    held_out = held_out_queries(pairs.texts.queries, settings.validation_fraction, settings.max_validation)
    validated = np.isin(pairs.query, held_out)
    if validated.all() or not validated.any():
        raise DataError(
            f"{source}: data.validation_fraction = {settings.validation_fraction} must leave queries on both sides, got {len(held_out)} of "
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
