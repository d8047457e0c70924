"""Queries with judged documents: judged data sets, and the runs and judgements of TREC.

TREC writes columns between blanks, one line for each retrieved or judged document. A run has six columns
(query, ``Q0``, document, rank, score, name of the run), whose query, document and score are used: programs
that evaluate runs sort by score, and break ties as they like. Judgements have four (query, ``0``, document,
grade), or three under the header of a BEIR folder.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from adiabat.core.errors import ConfigError, DataError
from adiabat.core.text import A_GRADE, GRADING, grade_of, number_of, shown
from adiabat.data.columns import Columns, first_row, id_of, parsed_rows, quoted, shared_values, text_of
from adiabat.data.folders import place_of, require_path
from adiabat.data.judged_sets import JUDGEMENT_COLUMNS, JudgedSet
from adiabat.data.lines import Cursor, text_lines
from adiabat.data.records import Example, ExampleSet
from adiabat.data.sources import Source
from adiabat.data.table_rows import FileFaults, Row, RowError, UniqueNames, read_rows

BEIR_ID = {"doc_id": "_id", "text": "text"}
"""Columns of ``corpus.jsonl`` and ``queries.jsonl``, which come before other names where a row has them."""

_QRELS_HEADER = tuple(names[0] for names in JUDGEMENT_COLUMNS)


@dataclass(slots=True)
class _Judgements:
    """The grades of one query's documents, and the location of the first."""

    location: str
    grades: dict[str, int] = field(default_factory=dict)


def read_judged(source: JudgedSet, split: str, columns: Mapping[str, str]) -> ExampleSet:
    """Read the judged queries of a split: scores above 0 are positives with that grade, others judged
    negatives; `columns` may map ``measure.cluster`` alone.
    """
    if others := [name for name in columns if name != "measure.cluster"]:
        raise ConfigError(
            f"columns must be left out for the BEIR folder {source.address}, whose names are fixed, got "
            f"{', '.join(others)}"
        )
    faults, tables = FileFaults(), source.judgements[split]
    judged = _read_qrels(tables, faults)
    queries = _read_queries(source.queries_of(split), judged, faults, columns.get("measure.cluster"))
    faults.raise_if_any()
    answered = []
    for query_id, (text, clusters) in queries.items():
        positives: dict[str, int] = {}
        negatives = []
        for doc_id, grade in judged[query_id].grades.items():
            if grade > 0:
                positives[doc_id] = grade
            else:
                negatives.append(doc_id)
        if positives:
            example = Example(
                query_id,
                text,
                tuple(positives),
                tuple(negatives),
                tuple(positives.values()),
                judged[query_id].location,
                clusters=clusters,
            )
            answered.append(example)
    if not answered:
        raise DataError(f"{tables[0]} must hold at least one score above 0, got none; choose another split")
    if lost := len(queries) - len(answered):
        warnings.warn(
            f"{tables[0]}: {lost} of {len(queries)} queries have no score above 0 and are left out",
            stacklevel=3,
        )
    return ExampleSet(f"{source.name}/{split}", tuple(answered), holds_texts=False, is_judged=True)


def _read_qrels(tables: Sequence[str], faults: FileFaults) -> dict[str, _Judgements]:
    """The grades of each query's documents, from all tables of a split; equal repeated ones count once."""
    judged: dict[str, _Judgements] = {}
    for table in tables:
        is_delimited = place_of(table).form in ("csv", "tsv")
        _, rows = first_row(
            read_rows(table, faults=faults, header=_QRELS_HEADER if is_delimited else None), faults, table
        )
        for query_id, doc_id, grade, location in parsed_rows(rows, faults, _parse_judgement):
            grades = judged.setdefault(query_id, _Judgements(location)).grades
            if (first := grades.setdefault(doc_id, grade)) != grade:
                faults.add(
                    f'{location}: a document must be judged once, got "{doc_id}" for query '
                    f'"{query_id}" with {first} and {grade}'
                )
    return judged


def _parse_judgement(row: Row) -> tuple[str, str, int, str]:
    """Query, document, grade and ``file:line`` of a row."""
    query, document, score = (_column(row, names) for names in JUDGEMENT_COLUMNS)
    value, grade = row.values[score], None
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        grade = grade_of(str(value))
    if grade is None:
        got = shown(value) if value else "nothing"
        raise RowError(f'{row.location}: "{score}" must be {A_GRADE}, got {got}', advice=GRADING)
    return id_of(row, query), id_of(row, document), grade, row.location


def _column(row: Row, names: Sequence[str]) -> str:
    """The file's name of a column of judgements."""
    for name in names:
        if name in row.values:
            return name
    raise RowError(f'{row.location}: expected "{names[0]}" of a judgement, found {quoted(row.values)}')


def _read_queries(
    table: str, judged: Mapping[str, _Judgements], faults: FileFaults, cluster: str | None
) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Texts of the judged queries in file order, each with its values of the column `cluster`, which may lie
    in ``metadata``.
    """
    columns = Columns(usual=BEIR_ID | {"query_id": "_id"})
    unique = UniqueNames("query id", faults)
    texts: dict[str, tuple[str, tuple[str, ...]]] = {}

    def parse(row: Row) -> tuple[str, str, str, tuple[str, ...]]:
        """Id, ``file:line``, text and clusters of a query."""
        id_column = columns.find("query_id", row)
        text_column = columns.find("text", row) or columns.find("query", row)
        if id_column is None or text_column is None:
            raise RowError(
                f'{row.location}: expected "_id" and "text" of a query, found {quoted(row.values)}'
            )
        clusters = () if cluster is None else _clusters_of(row, cluster)
        return id_of(row, id_column), row.location, text_of(row, text_column), clusters

    for query_id, location, text, clusters in parsed_rows(read_rows(table, faults=faults), faults, parse):
        unique.add(query_id, location)
        if query_id in judged:
            texts[query_id] = text, clusters
    if not faults.count:  # A query whose own line is at fault would be reported twice.
        name = Path(Source.of(table).path).name
        for query_id, judgements in judged.items():
            if query_id not in unique.places:
                where = judgements.location
                faults.add(f'{where}: query must be one of {name}, got unknown id "{query_id}"')
    return texts


def _clusters_of(row: Row, column: str) -> tuple[str, ...]:
    """A query's values of a column, of the line itself or of its ``metadata``."""
    metadata = row.values.get("metadata")
    values = {**metadata, **row.values} if isinstance(metadata, Mapping) else row.values
    if column not in values:
        raise RowError(
            f'{row.location}: expected "{column}" (measure.cluster) in the line or its "metadata", got none'
        )
    return shared_values(values[column], column, row.location)


Run = dict[str, dict[str, float]]
"""Query to document to score."""

Qrels = dict[str, dict[str, int]]
"""Query to document to grade."""


def read_run(path: Path) -> Run:
    """Read a run."""
    run: Run = {}

    def fault_of(columns: list[str]) -> str | None:
        if len(columns) != 6:
            return (
                f"a line of a run must have 6 columns (query Q0 document rank score name), got {len(columns)}"
            )
        query, _, document, _, text, _ = columns
        score = number_of(text)
        if score is None:
            return f"score must be a finite number, got {shown(text)}"
        if document in run.setdefault(query, {}):
            return f"a query must retrieve a document once, got {shown(document)} again for {shown(query)}"
        run[query][document] = score
        return None

    _read_lines(path, fault_of, advice="write these lines in trec_eval's run format")
    return run


def read_qrels(path: Path) -> Qrels:
    """Read judgements; of several for a document, the highest grade counts."""
    qrels: Qrels = {}

    def fault_of(columns: list[str]) -> str | None:
        # BEIR folders have a header, files of TREC have none.
        if tuple(columns) == _QRELS_HEADER:
            return None
        if len(columns) not in (3, 4):
            return (
                "a line of judgements must have 4 columns (query 0 document "
                f"grade), or BEIR's 3, got {len(columns)}"
            )
        query, document, text = columns[0], columns[-2], columns[-1]
        grade = grade_of(text)
        if grade is None:
            return f"grade must be {A_GRADE}, got {shown(text)}"
        grades = qrels.setdefault(query, {})
        # As trec_eval does.
        grades[document] = max(grade, grades.get(document, grade))
        return None

    _read_lines(path, fault_of, advice=f"write these lines in trec_eval's qrels format, and {GRADING}")
    if not any(grade > 0 for grades in qrels.values() for grade in grades.values()):
        raise DataError(f"{path} must judge a document above 0 for some query, got none; check its columns")
    return qrels


def _read_lines(path: Path, fault_of: Callable[[list[str]], str | None], *, advice: str) -> None:
    """Pass the columns of each line to a function that stores them or returns a fault."""
    require_path(path)
    faults = FileFaults()
    for number, line, is_valid in text_lines(path, faults, Cursor()):
        if is_valid and (columns := line.split()) and (fault := fault_of(columns)):
            faults.add(f"{path}:{number}: {fault}", advice)
    faults.raise_if_any()
