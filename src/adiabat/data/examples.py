"""Queries with the documents that answer them: triplet files, labelled files, BEIR folders with a split, and language grids."""

import ast
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from adiabat.core.errors import ConfigError, DataError
from adiabat.core.text import A_GRADE, GRADING, grade_of, shown
from adiabat.data.columns import Columns, RowError, entries_value, first_row, id_value, parsed_rows, plain_value, text_value
from adiabat.data.language_grids import read_grid
from adiabat.data.records import Example, ExampleSet, ExampleStream, LanguageGridSet, invented_id
from adiabat.data.table_formats import HUB_PREFIX
from adiabat.data.table_headers import Layout
from adiabat.data.table_rows import FileFaults, Row, read_rows, require_path, table_name

_COMPRESSIONS = ("", ".gz", ".zst")
_QRELS_HEADER = ("query-id", "corpus-id", "score")
_IS_ANSWER = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}
_LABEL_ADVICE = (
    "write 1 where the document answers the query and 0 where it does not, or set data.columns.label = '' to take every row for an answer"
)
_LIST_ADVICE = "write JSON lists, or JSON lines in place of CSV"


@dataclass(slots=True)
class _Judgements:
    """The grades of one query's documents, and the location of the first."""

    location: str
    grades: dict[str, int] = field(default_factory=dict)


def read_examples(
    source: str | Path,
    *,
    split: str | None = None,
    columns: Mapping[str, str] | None = None,
    name: str | None = None,
    usual_split: str = "test",
) -> ExampleSet | LanguageGridSet:
    """Read a data set of queries with relevant and irrelevant documents, or of sentence pairs in several languages.

    Reads rows with a query, positives and negatives (MS MARCO triplets and their relatives; texts or document ids, single or in lists),
    a BEIR folder (``queries.jsonl``, ``qrels/{split}.tsv``; scores above 0 are positives with that grade, others judged negatives), and
    rows whose premise and hypothesis are objects by language, with a label (XNLI).

    All examples are held in memory as tuples: 500,000 with one positive and 50 negative ids each take about 2 GB.

    Args:
        split: Split of a BEIR folder or a ``datasets`` source. None takes the only one; of several in a BEIR folder, the usual one.

    Returns:
        The examples in file order, or the sentence pairs in the languages that all of them have, sorted.
    """
    if is_beir_examples(source):
        return _read_beir(Path(source), split=split, usual_split=usual_split, name=name, columns=columns)
    table = _open(source, split, columns)
    if table.layout == "grid":
        return read_grid(table.rows, table.faults, columns=table.columns, name=name or table.name, source=source)
    examples = _unique(table, source)
    table.faults.raise_if_any()
    table.columns.remarks.warn(source)
    return ExampleSet(name or table.name, tuple(examples), holds_texts=None)


def stream_examples(
    source: str | Path, *, split: str | None = None, columns: Mapping[str, str] | None = None, usual_split: str = "train"
) -> ExampleStream:
    """Read queries with documents one example at a time; of a BEIR folder, queries and judgements are held in memory.

    Query ids may repeat: nothing is looked up by them.
    """
    if is_beir_examples(source):
        examples = _read_beir(Path(source), split=split, usual_split=usual_split, name=None, columns=columns)
        return ExampleStream(examples.name, iter(examples.examples))
    table = _open(source, split, columns)
    if table.layout == "grid":
        raise DataError(f"{source} must hold queries with positives, got a language grid; use it with adiabat evaluate")

    def parsed() -> Iterator[Example]:
        yield from table.examples()
        table.faults.raise_if_any()

    return ExampleStream(table.name, parsed(), remarks=table.columns.remarks.sentences)


@dataclass(frozen=True, slots=True)
class _Table:
    """A table whose layout is known."""

    rows: Iterator[Row]
    faults: FileFaults
    columns: Columns
    layout: Layout
    name: str

    def examples(self) -> Iterator[Example]:
        return parsed_rows(self.rows, self.faults, partial(parse_example, columns=self.columns))


def _open(source: str | Path, split: str | None, mapping: Mapping[str, str] | None) -> _Table:
    columns, faults = Columns(mapping), FileFaults()
    first, rows = first_row(read_rows(source, split=split, faults=faults), faults, source)
    name = f"{table_name(source)}/{split}" if split else table_name(source)
    return _Table(rows, faults, columns, columns.layout(first, wanted=("grid", "examples")), name)


def _unique(table: _Table, source: str | Path) -> list[Example]:
    """Examples in file order, those of labelled rows merged; ids that repeat are noted."""
    parsed = list(table.examples())
    examples: list[Example] = []
    locations: dict[str, str] = {}
    for example in merged_by_query(parsed, source) if table.columns.labelled else parsed:
        first = locations.setdefault(example.query_id, example.location)
        if first == example.location:
            examples.append(example)
        else:
            table.faults.add(f'{example.location}: query id must be unique, got "{example.query_id}" again, first at {first}')
    return examples


def parse_example(number: int, row: Row, *, columns: Columns) -> Example:
    """One row of a triplet file."""
    location = row.location
    query_column = columns.require("query", row, "examples")
    query = text_value(row.values[query_column], query_column, location)
    positives, negatives = _listed_documents(row, columns)
    columns.note_unread(row, "examples")
    id_column = columns.find("query_id", row)
    query_id = invented_id(number, query) if id_column is None else id_value(row.values[id_column], id_column, location)
    topic, tag = (_group_name(columns.find(name, row), row) for name in ("topic", "tag"))
    return Example(query_id, query, positives, negatives, (1,) * len(positives), location, topic, tag)


def _group_name(column: str | None, row: Row) -> str:
    """A topic or tag, the first of several, "" where the row has none."""
    value = None if column is None else row.values[column]
    if isinstance(value, list | tuple):
        value = value[0] if value else None
    return "" if column is None or value is None or value == "" else id_value(value, column, row.location)


def _listed_documents(row: Row, columns: Columns) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Positives and negatives of a row; documents with the label 0 are negatives, so that a row may have no positives."""
    positive_columns, negative_columns, label_column = columns.document_columns(row)
    positives, negatives = (_documents(names, row, columns) for names in (positive_columns, negative_columns))
    if not positives:
        names = " and ".join(f'"{name}"' for name in positive_columns)
        raise RowError(f"{row.location}: {names} must name at least one document, got none")
    if label_column is None:
        return positives, negatives
    columns.labelled = True
    answers = _are_answers(row.values[label_column], label_column, row.location, len(positives))
    if not all(answers):
        columns.remarks.add_label(label_column)
    labelled = list(zip(positives, answers, strict=True))
    wrong = tuple(document for document, is_answer in labelled if not is_answer)
    return tuple(document for document, is_answer in labelled if is_answer), wrong + negatives


def _documents(names: Sequence[str], row: Row, columns: Columns) -> tuple[str, ...]:
    documents: tuple[str, ...] = ()
    for name in names:
        value = row.values[name]
        if isinstance(value, str) and (value[:2] in ("['", '["', "[]") or (value[:1] == "[" and value[1:2].isdigit())):
            value = _text_or_list(value, name, row, columns)
        documents += entries_value(value, name, row.location)
    return documents


def _text_or_list(text: str, column: str, row: Row, columns: Columns) -> object:
    """A text that may be a list: cells of CSV can hold lists only as text, while in other formats it is a text."""
    entries = parse_list(text)
    if entries is None and not (text[1:2] in ("'", '"') and text[-2:] in ("']", '"]')):
        return text
    if not row.header:
        columns.remarks.add_list(column, row.location, read=False)
        return text
    if entries is None:
        raise RowError(f'{row.location}: "{column}" must be a text or a list, got what looks like one: {shown(text)}', advice=_LIST_ADVICE)
    columns.remarks.add_list(column, row.location, read=True)
    return entries


def parse_list(text: str) -> list[str | int] | None:
    """The list of texts or whole numbers that a text spells, as JSON or as Python's ``str`` writes it.

    None where it is no such list, or could be misread: Python joins the strings of numpy's ``['a' 'b']``.
    """
    for parse in (json.loads, ast.literal_eval):
        try:
            entries = parse(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        is_exact = parse is json.loads or str(entries) == text
        if is_exact and isinstance(entries, list) and all(type(entry) in (str, int) for entry in entries):
            return entries
    return None


def _are_answers(value: object, column: str, location: str, count: int) -> list[bool]:
    """Whether each document of a row answers; a single label holds for all of them."""
    labels = list(value) if isinstance(value, list | tuple) else [value] * count
    if len(labels) != count:
        raise RowError(f'{location}: "{column}" must hold a label for each of {count} documents, got {len(labels)}', advice=_LABEL_ADVICE)
    answers = [_IS_ANSWER.get(plain_value(label).strip().lower()) for label in labels]
    if None in answers:
        label = labels[answers.index(None)]
        got = "none" if label is None else shown(label)
        raise RowError(f'{location}: "{column}" must be 0 or 1, whether the document answers the query, got {got}', advice=_LABEL_ADVICE)
    return [bool(answer) for answer in answers]


def merged_by_query(rows: Sequence[Example], source: str | Path) -> list[Example]:
    """One example for each query text: labelled files have a row for each document. Queries without an answer are left out."""
    rows_of: dict[str, list[Example]] = {}
    for row in rows:
        rows_of.setdefault(row.query, []).append(row)
    examples = [example for same_query in rows_of.values() if (example := _merged(same_query)).positives]
    if rows and not examples:
        raise DataError(f"{source} must have a row with label 1, got label 0 in all {len(rows):,}; check what the labels mean")
    if lost := len(rows_of) - len(examples):
        warnings.warn(f"{source}: {lost:,} of {len(rows_of):,} queries have no row with label 1 and are left out", stacklevel=3)
    return examples


def _merged(rows: Sequence[Example]) -> Example:
    positives = dict.fromkeys(document for row in rows for document in row.positives)
    negatives = dict.fromkeys(document for row in rows for document in row.negatives if document not in positives)
    return replace(rows[0], positives=tuple(positives), negatives=tuple(negatives), grades=(1,) * len(positives))


def is_beir_examples(source: str | Path) -> bool:
    """Whether `source` is a folder with BEIR's queries and judgements."""
    if str(source).startswith(HUB_PREFIX):
        return False
    return compressed_path(Path(source) / "queries.jsonl") is not None and (Path(source) / "qrels").is_dir()


def compressed_path(path: Path) -> Path | None:
    """The file of that name, or else its compressed one, or None."""
    return next((file for ending in _COMPRESSIONS if (file := path.with_name(path.name + ending)).is_file()), None)


def _read_beir(folder: Path, *, split: str | None, usual_split: str, name: str | None, columns: Mapping[str, str] | None) -> ExampleSet:
    if columns:
        raise ConfigError(f"columns must be left out for the BEIR folder {folder}, whose names are fixed, got {', '.join(columns)}")
    split, qrels = _choose_split(folder, split, usual_split)
    faults = FileFaults()
    judged = _read_qrels(qrels, faults)
    texts = _read_queries(folder, judged, faults)
    faults.raise_if_any()
    examples = [_judged_example(query_id, text, judged[query_id]) for query_id, text in texts.items()]
    answered = tuple(example for example in examples if example.positives)
    if not answered:
        raise DataError(f"{qrels} must hold at least one score above 0, got none; choose another split")
    if lost := len(examples) - len(answered):
        warnings.warn(f"{qrels}: {lost} of {len(examples)} queries have no score above 0 and are left out", stacklevel=3)
    return ExampleSet(name or f"{folder.resolve().name}/{split}", answered, holds_texts=False, is_judged=True)


def _choose_split(folder: Path, split: str | None, usual_split: str) -> tuple[str, Path]:
    """Name and file of the judgements to read."""
    endings = tuple(".tsv" + compression for compression in _COMPRESSIONS)
    paths = {path.name.partition(".tsv")[0]: path for path in sorted((folder / "qrels").iterdir()) if path.name.endswith(endings)}
    if not paths:
        raise DataError(f"{folder / 'qrels'} must hold judgements named SPLIT.tsv, got none; check the folder")
    if split is None:
        split = next(iter(paths)) if len(paths) == 1 else usual_split
        if split not in paths:
            raise DataError(f"{folder} must be read with a split, got none, and there is no {usual_split}; choose {' or '.join(paths)}")
    if split not in paths:
        raise DataError(f'{folder} must have the split "{split}", got {", ".join(paths)}; choose one of them')
    return split, paths[split]


def _read_qrels(path: Path, faults: FileFaults) -> dict[str, _Judgements]:
    _, rows = first_row(read_rows(path, faults=faults, header=_QRELS_HEADER), faults, path)
    judged: dict[str, _Judgements] = {}
    for query_id, doc_id, grade, location in parsed_rows(rows, faults, _parse_judgement):
        grades = judged.setdefault(query_id, _Judgements(location)).grades
        if (first := grades.setdefault(doc_id, grade)) != grade:
            faults.add(f'{location}: a document must be judged once, got "{doc_id}" for query "{query_id}" with {first} and {grade}')
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
    path = compressed_path(folder / "queries.jsonl")
    if path is None:
        require_path(folder / "queries.jsonl")
        return {}
    columns = Columns({"doc_id": "_id", "text": "text"})
    texts: dict[str, str] = {}
    ids: set[str] = set()
    for query_id, text, location in parsed_rows(read_rows(path, faults=faults), faults, partial(_parse_query, columns=columns)):
        if query_id in ids:
            faults.add(f'{location}: query id must be unique, got "{query_id}" again')
        ids.add(query_id)
        if query_id in judged:
            texts[query_id] = text
    if not faults.count:  # A query whose own line is at fault would be reported twice.
        for query_id in (query_id for query_id in judged if query_id not in ids):
            faults.add(f'{judged[query_id].location}: query must be one of {path.name}, got unknown id "{query_id}"')
    return texts


def _parse_query(number: int, row: Row, *, columns: Columns) -> tuple[str, str, str]:
    del number
    id_column, text_column = columns.require("doc_id", row, "corpus"), columns.require("text", row, "corpus")
    query_id = id_value(row.values[id_column], id_column, row.location)
    return query_id, text_value(row.values[text_column], text_column, row.location), row.location


def _judged_example(query_id: str, text: str, judgements: _Judgements) -> Example:
    positives = {doc_id: grade for doc_id, grade in judgements.grades.items() if grade > 0}
    negatives = tuple(doc_id for doc_id, grade in judgements.grades.items() if grade <= 0)
    return Example(query_id, text, tuple(positives), negatives, tuple(positives.values()), judgements.location)
