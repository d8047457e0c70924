"""Queries with the documents that answer them: triplet files, labelled files, BEIR folders with a split, and
language grids.
"""

import ast
import json
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from adiabat.core.errors import DataError
from adiabat.core.files import is_there
from adiabat.core.text import shown
from adiabat.core.wording import call_of, in_callers_words
from adiabat.data.columns import (
    Columns,
    Table,
    entries_value,
    id_of,
    id_value,
    parsed_rows,
    plain_value,
    shared_values,
    split_name,
    text_of,
)
from adiabat.data.judged_sets import is_judged, judged_set, splits_of
from adiabat.data.lines import Cursor, Layout, parted_columns
from adiabat.data.records import Example, ExampleSet, ExampleStream, LanguageGridSet, invented_id
from adiabat.data.sources import Source
from adiabat.data.table_rows import FileFaults, Row, RowError, UniqueNames, read_rows

_WANTED: tuple[Layout, ...] = ("grid", "examples")
_IS_ANSWER = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}
_LABEL_ADVICE = (
    "write 1 if the document answers the query and 0 if it does not, or set "
    "data.columns.label = '' to count every row as an answer"
)
_LIST_ADVICE = "write JSON lists, or JSON lines in place of CSV"
_SCORES_ADVICE = "score the documents again, or read the file without them (FILE?scores=)"
_LIST_BEGINS = re.compile(r"""\[["'\]\d]""")


def resolved_split(source: str | Path, split: str | None, *, usual_split: str = "test") -> str | None:
    """The split that `read_examples` reads of a judged data set; of other sources the one that was given."""
    judged = judged_set(source)
    return Source.of(source).split_or(split) if judged is None else judged.chosen_split(split, usual_split)


def source_identity(address: str, split: str | None) -> tuple[str, str | None]:
    """Name and split that tell a data set apart, whether the split is part of its name, given, or the only
    one.
    """
    source = Source.of(address)
    path = Path(source.path)
    if (judged := judged_set(address)) is not None:
        return judged.name if source.is_hub else str(path.resolve()), judged.chosen_split(split, "test")
    if not source.is_hub and not any(
        is_there(folder / "dataset_dict.json") for folder in (path, path.resolve().parent)
    ):
        alone, split = splits_of(source), source.split_or(split)
        return str(path.resolve()), alone[0] if split is None and len(alone) == 1 else split
    # Loaded only for data sets with splits.
    from adiabat.data.table_formats import source_and_split

    return source_and_split(address, split)


def require_columns(source: str, columns: Mapping[str, str]) -> None:
    """Check the columns of a file of examples by its first row; folders and data sets of the hub are checked
    as they are read.
    """
    if Path(Source.of(source).path).is_file():
        Table.open(source, columns, wanted=_WANTED)


def read_examples(
    source: str | Path,
    *,
    split: str | None = None,
    columns: Mapping[str, str] | None = None,
    usual_split: str = "test",
) -> ExampleSet | LanguageGridSet:
    """Read a data set of queries with relevant and irrelevant documents, or of sentence pairs in several
    languages.

    Reads rows with a query, positives and negatives (MS MARCO triplets and their relatives; texts or document
    ids, single or in lists), a BEIR folder (``queries.jsonl``, ``qrels/{split}.tsv``; scores above 0 are
    positives with that grade, others judged negatives), and rows whose premise and hypothesis are objects by
    language, with a label (XNLI).

    All examples are held in memory as tuples: 500,000 with one positive and 50 negative ids each take about 2
    GB.

    Args:
        split: Split of a judged set, a folder or a ``datasets`` source. None takes the only one; of several
            in a judged set, the usual one.

    Returns:
        The examples in file order, or the sentence pairs in the languages that all of them have, sorted.
    """
    if (judged := judged_set(source)) is not None:
        # Loaded only for data sets with judgements.
        from adiabat.data.judgements import read_judged

        # Columns that the address names may be those of its corpus.
        of_queries, _ = parted_columns(Source.of(source).columns)
        return read_judged(judged, judged.chosen_split(split, usual_split), {**(columns or {}), **of_queries})
    table = Table.open(source, columns, split=split, wanted=_WANTED)
    if table.layout == "grid":
        # Loaded only for language grids.
        from adiabat.data.language_grids import read_grid

        return read_grid(table)
    examples = list(table.parsed(parse_example))
    if table.columns.labelled:
        # A labelled file has a row for each document.
        examples = merged_by_query(examples, source)
    ids = UniqueNames("query id", table.faults)
    for example in examples:
        ids.add(example.query_id, example.location)
    table.finish()
    return ExampleSet(table.name, tuple(examples))


def stream_examples(
    source: str | Path,
    *,
    split: str | None = None,
    columns: Mapping[str, str] | None = None,
    usual_split: str = "train",
) -> ExampleStream:
    """Read queries with documents one example at a time; queries and judgements of a BEIR folder are held in
    memory.

    Query ids may repeat, because they are not used for lookup.
    """
    if is_judged(source):
        examples = read_examples(source, split=split, columns=columns, usual_split=usual_split)
        assert isinstance(examples, ExampleSet)
        return ExampleStream(examples.name, iter(examples.examples))
    table = Table.open(source, columns, split=split, wanted=_WANTED)
    _require_examples(table.layout, source)
    return ExampleStream(table.name, table.whole(parse_example), remarks=table.columns.remarks.sentences)


def _require_examples(layout: Layout, source: str | Path) -> None:
    """Refuse a language grid where rows must be queries with documents."""
    if layout == "grid":
        raise DataError(
            f"{source} must hold queries with positives, got a language grid; "
            f"use it with {call_of('evaluate')}"
        )


def parse_example(row: Row, columns: Columns) -> Example:
    """Read a row of a triplet file.

    A file without ids of queries gets invented ones, which never equal those of documents.
    """
    query = text_of(row, columns.require("query", row, "examples"))
    positives, negatives = _listed_documents(row, columns)
    scores = _teacher_scores(row, columns, len(positives) + len(negatives))
    columns.note_unread(row, "examples")
    id_column = columns.find("query_id", row)
    return Example(
        invented_id(row.number, query) if id_column is None else id_of(row, id_column),
        query,
        positives,
        negatives,
        grades=(1,) * len(positives),
        location=row.location,
        topic=_group_name("topic", row, columns),
        tag=_group_name("tag", row, columns),
        clusters=_clusters(row, columns),
        scores=scores,
    )


def _teacher_scores(row: Row, columns: Columns, count: int) -> tuple[float, ...]:
    """A teacher's scores of the documents of a row, in their order; empty if it has none, or is labelled."""
    column = columns.find("scores", row)
    # A row of a labelled file holds a part of the documents of its query.
    if column is None or columns.document_columns(row)[2] is not None:
        return ()
    value = row.values[column]
    if isinstance(value, str) and row.header:
        value = parse_list(value, of=(int, float))
    scores = value if isinstance(value, list | tuple) else [value]
    wrong = [each for each in scores if not _is_score(each)]
    if len(scores) == count and not wrong:
        return tuple(map(float, scores))
    got = shown(str(wrong[0])) if wrong else f"{len(scores):,}"
    raise RowError(
        f'{row.location}: "{column}" must hold a finite number for each of {count:,} documents, positives '
        f"first, got {got}",
        advice=_SCORES_ADVICE,
    )


def _is_score(value: object) -> bool:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def unscored(place: str) -> str:
    """The fault of an example without a teacher's scores, where the loss learns from them."""
    return (
        f'{place} must have "scores", a number for each positive and then each negative, where the loss is '
        f"listwise, got none; {call_of('label')} writes them"
    )


def _clusters(row: Row, columns: Columns) -> tuple[str, ...]:
    """Values of ``measure.cluster``; a cell of a CSV file may hold a list of them as text."""
    column = columns.find("measure.cluster", row)
    if column is None or row.values[column] is None:
        return ()
    value = row.values[column]
    if row.header and isinstance(value, str):
        entries = parse_list(value, of=(str, int, float, bool))
        if entries is not None:
            columns.remarks.add_list(column, row.location, read=True)
            value = entries
    return shared_values(value, column, row.location)


def _group_name(name: str, row: Row, columns: Columns) -> str:
    """A topic or tag: the first of several; "" if the row has none."""
    column = columns.find(name, row)
    if column is None:
        return ""
    value = row.values[column]
    if isinstance(value, list | tuple):
        value = value[0] if value else None
    return "" if value in (None, "") else id_value(value, column, row.location)


def _listed_documents(row: Row, columns: Columns) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Positives and negatives of a row; documents with the label 0 are negatives, so that a row may have no
    positives.
    """
    positive_columns, negative_columns, label_column = columns.document_columns(row)
    positives = _documents(positive_columns, row, columns)
    negatives = _documents(negative_columns, row, columns)
    if not positives:
        names = " and ".join(f'"{name}"' for name in positive_columns)
        raise RowError(f"{row.location}: {names} must name at least one document, got none")
    if label_column is None:
        return positives, negatives
    columns.labelled = True
    answers = _are_answers(row.values[label_column], label_column, row.location, len(positives))
    if not all(answers):
        columns.remarks.add_label(label_column)
    right, wrong = list[str](), list[str]()
    for document, is_answer in zip(positives, answers, strict=True):
        (right if is_answer else wrong).append(document)
    return tuple(right), (*wrong, *negatives)


def _documents(names: Sequence[str], row: Row, columns: Columns) -> tuple[str, ...]:
    """Documents of some columns of a row, in the order of the columns."""
    documents: tuple[str, ...] = ()
    for name in names:
        value = row.values[name]
        # A list of texts, an empty one, or a list of numbers, which are ids.
        if isinstance(value, str) and _LIST_BEGINS.match(value):
            value = _text_or_list(value, name, row, columns)
        documents += entries_value(value, name, row.location)
    return documents


def _text_or_list(text: str, column: str, row: Row, columns: Columns) -> object:
    """A text that may be a list: CSV cells can only hold lists as text; in other formats it is a text."""
    entries = parse_list(text)
    if entries is None and not (text[1:2] in ("'", '"') and text[-2:] in ("']", '"]')):
        return text
    if not row.header:
        columns.remarks.add_list(column, row.location, read=False)
        return text
    if entries is None:
        raise RowError(
            f'{row.location}: "{column}" must be a text or a list, got a text '
            f"that looks like a list: {shown(text)}",
            advice=_LIST_ADVICE,
        )
    columns.remarks.add_list(column, row.location, read=True)
    return entries


def parse_list(text: str, of: tuple[type, ...] = (str, int)) -> list[Any] | None:
    """The list of values of certain types that a text spells, in JSON or as Python's ``str`` writes it.

    None if it is not such a list, or could be misread: Python joins the strings of numpy's ``['a' 'b']``.
    """
    # JSON first; Python's own form is what pandas writes into CSV.
    for parse in (json.loads, ast.literal_eval):
        try:
            entries = parse(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        is_exact = parse is json.loads or str(entries) == text
        if is_exact and isinstance(entries, list) and all(type(entry) in of for entry in entries):
            return entries
    return None


def _are_answers(value: object, column: str, location: str, count: int) -> list[bool]:
    """Whether each document of a row is an answer; a single label applies to all of them."""
    labels = list(value) if isinstance(value, list | tuple) else [value] * count
    if len(labels) != count:
        raise RowError(
            f'{location}: "{column}" must hold a label for each of {count} documents, got {len(labels)}',
            advice=_LABEL_ADVICE,
        )
    answers = [_IS_ANSWER.get(plain_value(label).strip().lower()) for label in labels]
    if None in answers:
        label = labels[answers.index(None)]
        got = "none" if label is None else shown(label)
        raise RowError(
            f'{location}: "{column}" must be 0 or 1 (whether the document answers the query), got {got}',
            advice=_LABEL_ADVICE,
        )
    return [bool(answer) for answer in answers]


def merged_by_query(rows: Sequence[Example], source: str | Path) -> list[Example]:
    """Merge examples by query text and topic, because labelled files have a row for each document.

    Queries without an answer are left out.
    """
    rows_of: dict[tuple[str, str], list[Example]] = {}
    for row in rows:
        rows_of.setdefault((row.query, row.topic), []).append(row)
    merged = map(_merged, rows_of.values())
    examples = [example for example in merged if example.positives]
    if rows and not examples:
        raise DataError(
            f"{source} must have a row with label 1, got label 0 in all {len(rows):,}; "
            "check what the labels mean"
        )
    if lost := len(rows_of) - len(examples):
        left_out = f"{lost:,} of {len(rows_of):,} queries have no row with label 1 and are left out"
        warnings.warn(f"{in_callers_words(source)}: {left_out}", stacklevel=3)
    return examples


def _merged(rows: Sequence[Example]) -> Example:
    """One example of several rows with one query; a document with label 1 in any of them is an answer."""
    positives, negatives, clusters = dict[str, None](), dict[str, None](), dict[str, None]()
    for row in rows:
        positives |= dict.fromkeys(row.positives)
        negatives |= dict.fromkeys(row.negatives)
        clusters |= dict.fromkeys(row.clusters)
    return replace(
        rows[0],
        positives=tuple(positives),
        negatives=tuple(document for document in negatives if document not in positives),
        grades=(1,) * len(positives),
        clusters=tuple(clusters),
        scores=(),
    )


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Reading position in a source: behind which row, and whether and how often the source `ended`."""

    mark: Cursor = field(default_factory=Cursor)
    ended: bool = False
    ends: int = 0

    def rewound(self) -> "SourcePosition":
        """The position of the first row."""
        return replace(self, mark=Cursor(), ended=False)


class ExampleReader:
    """Reads a source forward from any position, as a run does that resumes in the middle of a stream.

    The file stays open between two consecutive readings, so that a compressed file is decompressed once.
    """

    def __init__(
        self, source: str, *, split: str | None = None, columns: Mapping[str, str] | None = None
    ) -> None:
        """Check that the source can be read row by row; it is opened by the first reading."""
        require_streamable(source)
        self.name = split_name(source, split)
        self._source = source
        self._split = split
        self._columns = Columns(columns, source=source)
        self._open: _OpenSource | None = None
        self._position = SourcePosition()

    def remarks(self) -> list[str]:
        """Remarks on columns and values of the rows read so far."""
        return [f"{self.name}: {remark}" for remark in self._columns.remarks.sentences()]

    def position(self) -> SourcePosition:
        """The position after the last examples."""
        return self._position

    def read(self, start: SourcePosition, most: int) -> Iterator[Example]:
        """Read up to `most` examples; `position` is then after the last one."""
        self._position = start
        if not most or start.ended:
            return
        if self._open is None or self._open.cursor != start.mark:
            cursor, faults = start.mark.position(), FileFaults()
            rows = read_rows(self._source, split=self._split, faults=faults, cursor=cursor, mapped=True)
            self._open = _OpenSource(parsed_rows(rows, faults, self._parse), cursor, faults)
        # If a caller stops early, the open source has moved on and must not be reused.
        opened, self._open = self._open, None
        before = opened.cursor.rows
        yield from islice(opened.examples, most)
        opened.faults.raise_if_any()
        # Fewer rows than wanted: the source is at its end.
        ended = opened.cursor.rows < before + most
        if ended and not opened.cursor.rows:
            raise DataError(
                f"{self._source} must hold at least one row, got none; check that the file is complete"
            )
        self._position = SourcePosition(opened.cursor.position(), ended, start.ends + ended)
        self._open = None if ended else opened

    def _parse(self, row: Row) -> Example:
        """Read a row; the first one tells whether the source holds examples at all."""
        if not row.number:
            _require_examples(self._columns.layout(row, wanted=_WANTED), self._source)
        return parse_example(row, self._columns)


@dataclass(frozen=True, slots=True)
class _OpenSource:
    """A source between two readings: its next examples, their position, and the faults so far."""

    examples: Iterator[Example]
    cursor: Cursor
    faults: FileFaults


def require_streamable(source: str) -> None:
    """Refuse a source that cannot be read row by row."""
    if is_judged(source):
        raise DataError(
            f"{source} must hold one example a row with data.stream, got a BEIR "
            "folder; leave data.stream out, or write a file"
        )
