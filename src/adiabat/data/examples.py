"""Queries with the documents that answer them: triplet files, BEIR folders with a split, and language grids."""

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from adiabat.core.errors import ConfigError, DataError
from adiabat.core.text import A_GRADE, GRADING, grade_of, shown
from adiabat.data.columns import Columns, RowError, first_row, id_value, parsed_rows, text_value, value_kind
from adiabat.data.listed_documents import listed_documents, merged_by_query
from adiabat.data.records import Example, ExampleSet, ExampleStream, LanguageGridSet, invented_id
from adiabat.data.table_formats import HUB_PREFIX
from adiabat.data.table_headers import Layout
from adiabat.data.table_rows import FileFaults, Row, read_rows, require_path, table_name

LABELS = ("entailment", "neutral", "contradiction")
"""Of a sentence pair; a file may also give the position in this tuple, as XNLI on the hub does."""

_PACKINGS = ("", ".gz", ".zst")
_QRELS_HEADER = ("query-id", "corpus-id", "score")


@dataclass(slots=True)
class _Judgements:
    """What the qrels say of one query."""

    location: str
    grades: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GridRow:
    """One sentence pair in several languages."""

    label: str
    premise: Mapping[str, str]
    hypothesis: Mapping[str, str]


def read_examples(
    source: str | Path,
    *,
    split: str | None = None,
    columns: Mapping[str, str] | None = None,
    name: str | None = None,
    usual_split: str = "test",
) -> ExampleSet | LanguageGridSet:
    """Read a data set of queries with relevant and irrelevant documents, or of sentence pairs in several languages.

    Understood are rows with a query, positives and negatives (MS MARCO triplets and their relatives; texts or document ids, single or
    in lists), a BEIR folder (``queries.jsonl``, ``qrels/{split}.tsv``; scores above 0 are positives with that grade, others judged
    negatives), and rows whose premise and hypothesis are objects by language, with a label (XNLI).

    All examples are held in memory as tuples: 500,000 with one positive and 50 negative ids each take about 2 GB.

    Args:
        split: Of a BEIR folder or a ``datasets`` source. None takes the only one; of several in a BEIR folder, the usual one.
        name: For tables and reports; None takes the file's or folder's name.

    Returns:
        The examples in file order, or the sentence pairs in the languages that all of them have, sorted.
    """
    if is_beir_examples(source):
        return _read_beir(Path(source), split=split, usual=usual_split, name=name, columns=columns)
    table = _opened(source, split, columns)
    if table.layout == "grid":
        return _read_grid(table.rows, table.faults, columns=table.columns, name=name or table.name, source=source)
    return _read_triplets(table.rows, table.faults, columns=table.columns, name=name or table.name, source=source)


def stream_examples(
    source: str | Path, *, split: str | None = None, columns: Mapping[str, str] | None = None, usual_split: str = "train"
) -> ExampleStream:
    """Read queries with documents one example at a time; of a BEIR folder, queries and judgements are held in memory.

    Query ids may repeat: nothing is looked up by them.
    """
    if is_beir_examples(source):
        whole = _read_beir(Path(source), split=split, usual=usual_split, name=None, columns=columns)
        return ExampleStream(whole.name, iter(whole.examples))
    table = _opened(source, split, columns)
    if table.layout == "grid":
        raise DataError(f"{source} must hold queries with positives, got a language grid; use it with adiabat evaluate")

    def examples() -> Iterator[Example]:
        yield from parsed_rows(table.rows, table.faults, partial(parse_example, columns=table.columns))
        table.faults.raise_if_any()

    return ExampleStream(table.name, examples(), remarks=table.columns.remarks.sentences)


@dataclass(frozen=True, slots=True)
class _Table:
    """A table whose first row has been looked at."""

    rows: Iterator[Row]
    faults: FileFaults
    columns: Columns
    layout: Layout
    name: str


def _opened(source: str | Path, split: str | None, columns: Mapping[str, str] | None) -> _Table:
    names, faults = Columns(columns), FileFaults()
    first, rows = first_row(read_rows(source, split=split, faults=faults), faults, source)
    name = f"{table_name(source)}/{split}" if split else table_name(source)
    return _Table(rows, faults, names, names.layout(first, wanted=("grid", "examples")), name)


def is_beir_examples(source: str | Path) -> bool:
    """Whether `source` is a folder with BEIR's queries and judgements."""
    if str(source).startswith(HUB_PREFIX):
        return False
    return packed_path(Path(source) / "queries.jsonl") is not None and (Path(source) / "qrels").is_dir()


def packed_path(path: Path) -> Path | None:
    """The file of that name, plain or packed.

    Returns:
        The one that exists, the plain one first, or None.
    """
    return next((found for packing in _PACKINGS if (found := path.with_name(path.name + packing)).is_file()), None)


def parse_example(number: int, row: Row, *, columns: Columns) -> Example:
    """One row of a triplet file."""
    location = row.location
    query_column = columns.require("query", row, "examples")
    query = text_value(row.values[query_column], query_column, location)
    positives, negatives = listed_documents(row, columns)
    columns.note_unread(row, "examples")
    id_column = columns.find("query_id", row)
    query_id = invented_id(number, query) if id_column is None else id_value(row.values[id_column], id_column, location)
    topic, tag = (_name_value(columns.find(name, row), row) for name in ("topic", "tag"))
    return Example(query_id, query, positives, negatives, (1,) * len(positives), location, topic, tag)


def _name_value(column: str | None, row: Row) -> str:
    """A topic or tag; of several, the first, and "" where the row has none."""
    value = None if column is None else row.values[column]
    if isinstance(value, list | tuple):
        value = value[0] if value else None
    return "" if column is None or value is None or value == "" else id_value(value, column, row.location)


def parse_grid_row(number: int, row: Row, *, columns: Columns) -> GridRow:
    """One row of a language grid.

    Returns:
        The pair, languages sorted.
    """
    del number
    label_column = columns.find("label", row)
    if label_column is None:
        raise RowError(f'{row.location}: expected "label" beside premise and hypothesis, found none; map it with data.columns.label')
    columns.note_unread(row, "grid")
    label = row.values[label_column]
    if isinstance(label, int) and not isinstance(label, bool) and 0 <= label < len(LABELS):
        label = LABELS[label]
    if label not in LABELS:
        raise RowError(f'{row.location}: "{label_column}" must be {", ".join(LABELS)} or 0, 1, 2, got {shown(label)}')
    return GridRow(label, _by_language("premise", row, columns), _by_language("hypothesis", row, columns))


def _by_language(name: str, row: Row, columns: Columns) -> dict[str, str]:
    column = columns.require(name, row, "grid")
    value = row.values[column]
    if not isinstance(value, Mapping):
        raise RowError(f'{row.location}: "{column}" must be an object by language')
    if set(value) == {"language", "translation"}:
        value = _from_parallel_lists(value["language"], value["translation"], column, row.location)
    present = {language: text for language, text in value.items() if text is not None}
    if not present:
        raise RowError(f'{row.location}: "{column}" must hold at least one language, got none')
    return {language: text_value(present[language], f"{column}.{language}", row.location) for language in sorted(present)}


def _from_parallel_lists(languages: object, texts: object, column: str, location: str) -> dict[str, object]:
    """The hub's XNLI keeps hypotheses as two parallel lists."""
    if not isinstance(languages, list | tuple) or not isinstance(texts, list | tuple):
        raise RowError(f'{location}: "{column}" must hold lists of languages and translations, got {value_kind(texts)}')
    if len(languages) != len(texts):
        raise RowError(f'{location}: "{column}" must hold as many translations as languages, got {len(texts)} for {len(languages)}')
    strange = [language for language in languages if not isinstance(language, str)]
    if strange:
        raise RowError(f'{location}: "{column}" must name every language by a text, got {value_kind(strange[0])}')
    return dict(zip(languages, texts, strict=True))


def _read_triplets(rows: Iterator[Row], faults: FileFaults, *, columns: Columns, name: str, source: str | Path) -> ExampleSet:
    examples: list[Example] = []
    locations: dict[str, str] = {}
    parsed = list(parsed_rows(rows, faults, partial(parse_example, columns=columns)))
    for example in merged_by_query(parsed, source) if columns.labelled else parsed:
        first = locations.setdefault(example.query_id, example.location)
        if first == example.location:
            examples.append(example)
        else:
            faults.add(f'{example.location}: query id must be unique, got "{example.query_id}" again, first at {first}')
    faults.raise_if_any()
    columns.remarks.warn(source)
    return ExampleSet(name, tuple(examples), holds_texts=None)


def _read_grid(rows: Iterator[Row], faults: FileFaults, *, columns: Columns, name: str, source: str | Path) -> LanguageGridSet:
    def located(number: int, row: Row) -> tuple[str, GridRow]:
        return row.location, parse_grid_row(number, row, columns=columns)

    read = list(parsed_rows(rows, faults, located))
    faults.raise_if_any()
    columns.remarks.warn(source)
    pairs = [pair for _, pair in read]
    common = set.intersection(*(set(side) for pair in pairs for side in (pair.premise, pair.hypothesis)))
    if not common:
        raise DataError(f"{source} must have a language that every premise and hypothesis is in, got none; drop incomplete rows")
    languages = tuple(sorted(common))
    return LanguageGridSet(
        name,
        languages,
        tuple(pair.label for pair in pairs),
        tuple({language: pair.premise[language] for language in languages} for pair in pairs),
        tuple({language: pair.hypothesis[language] for language in languages} for pair in pairs),
        _incomplete(read, common),
    )


def _incomplete(read: Iterable[tuple[str, GridRow]], common: Collection[str]) -> dict[str, str]:
    """Where the languages are missing that not all sentence pairs have on both sides."""
    present = [
        (location, pair.premise.keys() & pair.hypothesis.keys(), pair.premise.keys() | pair.hypothesis.keys()) for location, pair in read
    ]
    every = set().union(*(some for _, _, some in present))
    lacking = {
        language: [location for location, both, _ in present if language not in both] for language in sorted(every.difference(common))
    }
    return {language: locations[0] + _more_rows(len(locations) - 1) for language, locations in lacking.items()}


def _more_rows(count: int) -> str:
    return f" and {count:,} more row{'' if count == 1 else 's'}" if count else ""


def _read_beir(folder: Path, *, split: str | None, usual: str, name: str | None, columns: Mapping[str, str] | None) -> ExampleSet:
    if columns:
        raise ConfigError(f"columns must be left out for the BEIR folder {folder}, whose names are fixed, got {', '.join(columns)}")
    chosen = _choose_split(folder, split, usual)
    faults = FileFaults()
    judged = _read_qrels(chosen[1], faults)
    texts = _read_queries(folder, judged, faults)
    faults.raise_if_any()
    examples = tuple(_judged_example(query_id, text, judged[query_id]) for query_id, text in texts.items())
    answered = tuple(example for example in examples if example.positives)
    if not answered:
        raise DataError(f"{chosen[1]} must hold at least one score above 0, got none; choose another split")
    if len(answered) < len(examples):
        lost = len(examples) - len(answered)
        warnings.warn(f"{chosen[1]}: {lost} of {len(examples)} queries have no score above 0 and are left out", stacklevel=3)
    return ExampleSet(name or f"{folder.resolve().name}/{chosen[0]}", answered, holds_texts=False, is_judged=True)


def _choose_split(folder: Path, split: str | None, usual: str) -> tuple[str, Path]:
    """Name and file of the judgements to read."""
    endings = tuple(".tsv" + packing for packing in _PACKINGS)
    paths = {path.name.partition(".tsv")[0]: path for path in sorted((folder / "qrels").iterdir()) if path.name.endswith(endings)}
    if not paths:
        raise DataError(f"{folder / 'qrels'} must hold judgements named SPLIT.tsv, got none; check the folder")
    if split is None:
        split = next(iter(paths)) if len(paths) == 1 else usual
        if split not in paths:
            raise DataError(f"{folder} must be read with a split, got none, and there is no {usual}; choose {' or '.join(paths)}")
    if split not in paths:
        raise DataError(f'{folder} must have the split "{split}", got {", ".join(paths)}; choose one of them')
    return split, paths[split]


def _read_qrels(path: Path, faults: FileFaults) -> dict[str, _Judgements]:
    _, rows = first_row(read_rows(path, faults=faults, header=_QRELS_HEADER), faults, path)
    judged: dict[str, _Judgements] = {}
    for query_id, doc_id, grade, location in parsed_rows(rows, faults, _parse_judgement):
        grades = judged.setdefault(query_id, _Judgements(location)).grades
        if grades.setdefault(doc_id, grade) != grade:
            faults.add(
                f'{location}: a document must be judged once, got "{doc_id}" for query "{query_id}" with {grades[doc_id]} and {grade}'
            )
    return judged


def _parse_judgement(number: int, row: Row) -> tuple[str, str, int, str]:
    del number
    query_id, doc_id = (id_value(row.values[column], column, row.location) for column in _QRELS_HEADER[:2])
    text = row.values["score"] or ""
    grade = grade_of(text)
    if grade is None:
        raise RowError(f'{row.location}: "score" must be {A_GRADE}, got {shown(text) if text else "nothing"}', advice=GRADING)
    return query_id, doc_id, grade, row.location


def _read_queries(folder: Path, judged: Mapping[str, _Judgements], faults: FileFaults) -> dict[str, str]:
    """Texts of the judged queries, in file order."""
    path = packed_path(folder / "queries.jsonl")
    if path is None:
        require_path(folder / "queries.jsonl")
        return {}
    columns = Columns({"doc_id": "_id", "text": "text"})
    texts: dict[str, str] = {}
    seen: set[str] = set()
    for query_id, text, location in parsed_rows(read_rows(path, faults=faults), faults, partial(_parse_query, columns=columns)):
        if query_id in seen:
            faults.add(f'{location}: query id must be unique, got "{query_id}" again')
        seen.add(query_id)
        if query_id in judged:
            texts[query_id] = text
    if not faults.count:  # A query whose own line is at fault would be reported twice.
        for query_id in (query_id for query_id in judged if query_id not in seen):
            faults.add(f'{judged[query_id].location}: query must be one of {path.name}, got unknown id "{query_id}"')
    return texts


def _parse_query(number: int, row: Row, *, columns: Columns) -> tuple[str, str, str]:
    del number
    id_column, text_column = columns.require("doc_id", row, "corpus"), columns.require("text", row, "corpus")
    query_id = id_value(row.values[id_column], id_column, row.location)
    return query_id, text_value(row.values[text_column], text_column, row.location), row.location


def _judged_example(query_id: str, text: str, judgements: _Judgements) -> Example:
    positives = [(doc_id, grade) for doc_id, grade in judgements.grades.items() if grade > 0]
    negatives = tuple(doc_id for doc_id, grade in judgements.grades.items() if grade <= 0)
    return Example(
        query_id,
        text,
        tuple(doc_id for doc_id, _ in positives),
        negatives,
        tuple(grade for _, grade in positives),
        judgements.location,
    )
