"""Any source of examples, documents or sentence pairs as a stream of entries, each with its place and its texts by role."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from adiabat.config.dataset_settings import InspectDataSection
from adiabat.core.errors import ConfigError
from adiabat.data.columns import Columns, first_of, parsed_rows
from adiabat.data.corpora import BEIR_COLUMNS, documents_file, parse_document
from adiabat.data.examples import is_beir_examples, parse_example, parse_grid_row, read_examples
from adiabat.data.records import Example, ExampleSet
from adiabat.data.table_headers import COLUMN_ALIASES, OF_DOCUMENTS
from adiabat.data.table_rows import FileFaults, Row, read_rows, table_name
from adiabat.profiling.pair_counters import NAMES
from adiabat.profiling.profile_record import Layout, Role

USUAL_SPLIT = "train"
"""Of a BEIR folder that has several: what is inspected is mostly what is about to be trained on."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row.

    Attributes:
        place: ``file:line``.
        address: Id of the query or document; "" where the file gives none.
        texts: Texts of each role, or ids where a corpus holds the texts.
        languages: Of the texts of each role, in step with them, where the data names them.
        topic: What an example is about; "" where the data does not say.
        tag: The same, finer.
    """

    place: str
    address: str
    texts: Mapping[Role, tuple[str, ...]]
    languages: Mapping[Role, tuple[str, ...]] = field(default_factory=dict)
    topic: str = ""
    tag: str = ""


@dataclass(frozen=True, slots=True)
class Stream:
    """Rows of one source, read from the start as often as they are asked for.

    Attributes:
        source: A file or folder as for `read_rows`.
        split: Of a ``datasets`` source.
        layout: What a row is.
        columns: Where things stand.
        used: The file's name of each column that is read, to ours.
    """

    source: str | Path
    split: str | None
    layout: Layout
    columns: Columns
    used: Mapping[str, str]

    def entries(self, faults: FileFaults, on_row: Callable[[Row], None] | None = None) -> Iterator[Entry]:
        """Read the rows."""
        parse = partial(_PARSERS[self.layout], columns=self.columns)
        yield from parsed_rows(_told(read_rows(self.source, split=self.split, faults=faults), on_row), faults, parse)


@dataclass(frozen=True, slots=True)
class Judged:
    """The judged queries of a BEIR folder, which their reader holds in memory.

    Attributes:
        source: The folder.
        examples: Documents by id.
    """

    source: str
    examples: tuple[Example, ...]

    def entries(self, faults: FileFaults, on_row: Callable[[Row], None] | None = None) -> Iterator[Entry]:
        """The queries as entries.

        Args:
            faults: None can come: the reader has told them all.
        """
        del faults, on_row
        yield from map(_example_entry, self.examples)


@dataclass(frozen=True, slots=True)
class Source:
    """What is to be inspected.

    Attributes:
        name: For tables.
        layout: Of the source.
        rows: The examples, documents or sentence pairs; of a BEIR folder the judged queries.
        corpus: Where the documents are, if examples name them by id.
    """

    name: str
    layout: Layout
    rows: Stream | Judged
    corpus: Stream | None = None


def open_source(source: str, settings: InspectDataSection) -> Source:
    """Find out what a source is."""
    given = settings.columns.given()
    # With a corpus of its own, those of a document are its columns, not the examples'.
    own = given if settings.corpus is None else {name: given[name] for name in given if name not in OF_DOCUMENTS}
    if is_beir_examples(source):
        found = read_examples(source, split=settings.split, columns=own, usual_split=USUAL_SPLIT)
        assert isinstance(found, ExampleSet)
        return Source(found.name, "BEIR folder", Judged(source, tuple(found.examples)), _corpus(settings.corpus or source, settings))
    stream = _stream(source, settings.split, own)
    name = f"{table_name(source)}/{settings.split}" if settings.split else table_name(source)
    if settings.corpus is None:
        return Source(name, stream.layout, stream)
    if stream.layout != "examples":
        raise ConfigError(f"data.corpus must be left out for {source}, which holds a {stream.layout}, got {settings.corpus}; leave it out")
    return Source(name, stream.layout, stream, _corpus(settings.corpus, settings))


def recalled(stream: Stream | Judged, wanted: set[int]) -> dict[int, Entry]:
    """Read some entries again, so that a message can quote what was kept as a hash only."""
    if not wanted:
        return {}
    found: dict[int, Entry] = {}
    for number, entry in enumerate(stream.entries(FileFaults())):
        if number in wanted:
            found[number] = entry
            if len(found) == len(wanted):
                break
    return found


def _corpus(source: str, settings: InspectDataSection) -> Stream | None:
    """The documents that examples name; None for a BEIR folder without a corpus."""
    if settings.corpus is None and documents_file(source) == source:
        return None
    given = settings.columns.given() if settings.corpus else {}
    return _stream(source, None, {name: given[name] for name in given if name in OF_DOCUMENTS}, wanted_corpus=True)


def _stream(source: str, split: str | None, given: Mapping[str, str], *, wanted_corpus: bool = False) -> Stream:
    rows = documents_file(source)
    columns = Columns(BEIR_COLUMNS if rows != source and not given else given)
    faults = FileFaults()
    first, _ = first_of(read_rows(rows, split=split, faults=faults), faults, source)
    layout: Layout = columns.layout(first, wanted=("corpus",) if wanted_corpus else ("grid", "examples", "corpus"))
    used = {column: name for name in _USED[layout] if (column := columns.find(name, first))}
    if layout == "examples":
        positives, negatives, label = columns.listed(first)
        used |= dict.fromkeys(positives, "positive") | dict.fromkeys(negatives, "negative")
        used |= {} if label is None else {label: "label"}
        # The first row may be one without.
        used.update({column: name for name in NAMES for column in _names_of(columns, name)})
    return Stream(rows, split, layout, columns, used)


def _names_of(columns: Columns, name: str) -> tuple[str, ...]:
    """What a column may be called."""
    return (columns.given[name],) if name in columns.given else COLUMN_ALIASES[name]


def _told(rows: Iterator[Row], on_row: Callable[[Row], None] | None) -> Iterator[Row]:
    for row in rows:
        if on_row is not None:
            on_row(row)
        yield row


def _parse_example(number: int, row: Row, *, columns: Columns) -> Entry:
    entry = _example_entry(parse_example(number, row, columns=columns))
    # A file without ids has its queries numbered, which says nothing about the data.
    # Of a labelled file several rows ask the same, as rows of one query.
    return entry if columns.find("query_id", row) is not None and not columns.labelled else replace(entry, address="")


def _parse_document(number: int, row: Row, *, columns: Columns) -> Entry:
    document, place = parse_document(number, row, columns=columns, keep_blank=False)
    return Entry(place, document.doc_id, {"document": (document.text,)})


def _parse_pair(number: int, row: Row, *, columns: Columns) -> Entry:
    pair = parse_grid_row(number, row, columns=columns)
    texts: dict[Role, tuple[str, ...]] = {"query": tuple(pair.premise.values()), "document": tuple(pair.hypothesis.values())}
    languages: dict[Role, tuple[str, ...]] = {"query": tuple(pair.premise), "document": tuple(pair.hypothesis)}
    return Entry(row.place, "", texts, languages)


def _example_entry(example: Example) -> Entry:
    texts: dict[Role, tuple[str, ...]] = {"query": (example.query,), "positive": example.positives, "negative": example.negatives}
    return Entry(example.where, example.query_id, texts, topic=example.topic, tag=example.tag)


_PARSERS: Mapping[Layout, Callable[..., Entry]] = {"examples": _parse_example, "corpus": _parse_document, "grid": _parse_pair}
_USED: Mapping[Layout, tuple[str, ...]] = {
    "examples": ("query_id", "query", "positive", "negative"),
    "corpus": ("doc_id", "text", "title"),
    "grid": ("premise", "hypothesis", "label"),
}
