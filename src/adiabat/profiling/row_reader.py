"""Any source of examples, documents or sentence pairs as a stream of entries, each with its location and its
texts by role.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from adiabat.config.dual_training_data import TrainExamplesSection
from adiabat.core.errors import ConfigError
from adiabat.data.columns import Columns, parsed_rows, split_name
from adiabat.data.corpora import ANY, documents_file, open_corpus, parse_document
from adiabat.data.examples import parse_example, read_examples
from adiabat.data.judged_sets import is_judged
from adiabat.data.language_grids import parse_grid_row
from adiabat.data.lines import COLUMN_ALIASES, OF_LAYOUT, parted_columns
from adiabat.data.records import Example, ExampleSet
from adiabat.data.table_rows import FileFaults, Row, read_rows
from adiabat.profiling.profile_record import NAMES, Layout, Role

USUAL_SPLIT = "train"
"""Default split of a BEIR folder that has several: data are mostly inspected before training."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row: the id of the query or document, "" if the file has none, and the texts of each role, or ids
    of a corpus.
    """

    location: str
    address: str
    texts: Mapping[Role, tuple[str, ...]]
    languages: Mapping[Role, tuple[str, ...]] = field(default_factory=dict)
    topic: str = ""
    tag: str = ""


@dataclass(frozen=True, slots=True)
class Stream:
    """Rows of one source, read from the start at every call, except the queries of a BEIR folder (`judged`),
    which are in memory.

    `used` has our name of each column that is read, by the file's; `whole` reads all splits, as of a corpus.
    """

    source: str | Path
    split: str | None
    layout: Layout
    columns: Columns = field(default_factory=Columns)
    used: Mapping[str, str] = field(default_factory=dict)
    judged: Sequence[Example] | None = None
    whole: bool = False

    def entries(
        self, faults: FileFaults, on_row: Callable[[Row], None] = lambda row: None
    ) -> Iterator[Entry]:
        """Read the rows; `on_row` is called with each before it is parsed."""
        if self.judged is not None:
            yield from map(_example_entry, self.judged)
            return

        def rows() -> Iterator[Row]:
            """The rows, each told to the caller before it is parsed."""
            for row in read_rows(self.source, split=self.split, faults=faults, whole=self.whole, mapped=True):
                on_row(row)
                yield row

        yield from parsed_rows(rows(), faults, partial(_PARSERS[self.layout], columns=self.columns))


def open_source(source: str, settings: TrainExamplesSection) -> tuple[str, Stream, Stream | None]:
    """Name and rows of a source, and the corpus, if examples name documents by id."""
    columns, _ = _mapped(settings)
    if is_judged(source):
        examples = read_examples(source, split=settings.split, columns=columns, usual_split=USUAL_SPLIT)
        assert isinstance(examples, ExampleSet)
        rows = Stream(source, settings.split, "BEIR folder", judged=examples.examples)
        return examples.name, rows, _corpus(settings.corpus or source, settings)
    stream = _stream(source, settings.split, columns)
    name = split_name(source, settings.split)
    if settings.corpus is None:
        return name, stream, None
    if stream.layout != "examples":
        raise ConfigError(
            f"data.corpus must be left out for {source}, which holds a {stream.layout}, "
            f"got {settings.corpus}; leave it out"
        )
    return name, stream, _corpus(settings.corpus, settings)


def reread(stream: Stream, numbers: set[int]) -> dict[int, Entry]:
    """Read some entries again, for messages that quote rows of which only hashes are in memory."""
    entries: dict[int, Entry] = {}
    if numbers:
        # Faults were told when the rows were counted.
        for number, entry in enumerate(stream.entries(FileFaults())):
            if number in numbers:
                entries[number] = entry
                if len(entries) == len(numbers):
                    break
    return entries


def _corpus(source: str, settings: TrainExamplesSection) -> Stream | None:
    """The documents that examples name; None for a BEIR folder without a corpus."""
    if settings.corpus is None and documents_file(source) == source:
        return None
    _, columns = _mapped(settings)
    return _stream(source, None, columns, is_corpus=True)


def _mapped(settings: TrainExamplesSection) -> tuple[dict[str, str], dict[str, str]]:
    """The columns of the examples, and those of their corpus."""
    return parted_columns(settings.columns.given(), has_corpus=settings.corpus is not None)


def _stream(source: str, split: str | None, mapped: Mapping[str, str], *, is_corpus: bool = False) -> Stream:
    """Open a table, and map the columns that its first row has.

    The map from the file's names to ours is for the list of columns alone; `Columns` finds those of each row.
    """
    table = open_corpus(source, mapped, split, wanted=("corpus",) if is_corpus else ANY, whole=is_corpus)
    columns, layout, first = table.columns, table.layout, table.first
    # Documents of examples may have several columns, which are added below.
    names = ("query_id", "query") if layout == "examples" else OF_LAYOUT[layout]
    used = {column: name for name in names if (column := columns.find(name, first))}
    if layout == "examples":
        positives, negatives, label = columns.document_columns(first)
        used |= dict.fromkeys(positives, "positive") | dict.fromkeys(negatives, "negative")
        used |= {} if label is None else {label: "label"}
        # The first row may lack a topic or a tag that others have.
        for name in NAMES:
            aliases = (columns.mapping[name],) if name in columns.mapping else COLUMN_ALIASES[name]
            used |= dict.fromkeys(aliases, name)
    return Stream(table.source, split, layout, columns, used, whole=is_corpus)


def _parse_example(row: Row, columns: Columns) -> Entry:
    """Read a row of examples; an id that says nothing about the data is left out."""
    entry = _example_entry(parse_example(row, columns))
    # Queries of a file without ids are numbered, and the numbers say nothing about the data. In labelled
    # files several rows share a query.
    return (
        entry
        if columns.find("query_id", row) is not None and not columns.labelled
        else replace(entry, address="")
    )


def _parse_document(row: Row, columns: Columns) -> Entry:
    """Read a row of a corpus."""
    document, location = parse_document(row, columns)
    return Entry(location, document.doc_id, {"document": (document.text,)})


def _parse_pair(row: Row, columns: Columns) -> Entry:
    """Read a sentence pair, whose languages are known."""
    pair = parse_grid_row(row, columns)
    texts: dict[Role, tuple[str, ...]] = {
        "query": tuple(pair.premise.values()),
        "document": tuple(pair.hypothesis.values()),
    }
    languages: dict[Role, tuple[str, ...]] = {
        "query": tuple(pair.premise),
        "document": tuple(pair.hypothesis),
    }
    return Entry(row.location, "", texts, languages)


def _example_entry(example: Example) -> Entry:
    """An example as an entry."""
    texts: dict[Role, tuple[str, ...]] = {
        "query": (example.query,),
        "positive": example.positives,
        "negative": example.negatives,
    }
    return Entry(example.location, example.query_id, texts, topic=example.topic, tag=example.tag)


_PARSERS: Mapping[Layout, Callable[..., Entry]] = {
    "examples": _parse_example,
    "corpus": _parse_document,
    "grid": _parse_pair,
}
