"""Runs and judgements as TREC writes them: columns between blanks, one line for each retrieved or judged document.

A run has six columns (query, ``Q0``, document, rank, score, name of the run), of which query, document and score count: programs that
evaluate runs sort by score, and break ties as they like. Judgements have four (query, ``0``, document, grade), or three under the header
of a BEIR folder.
"""

from collections.abc import Callable
from pathlib import Path

from adiabat.core.errors import DataError
from adiabat.core.text import A_GRADE, GRADING, grade_of, number_of, shown
from adiabat.data.lines import Cursor, text_lines
from adiabat.data.table_rows import FileFaults, require_path

Run = dict[str, dict[str, float]]
"""Query to document to score."""

Qrels = dict[str, dict[str, int]]
"""Query to document to grade."""

_BEIR_HEADER = ["query-id", "corpus-id", "score"]


def read_run(path: Path) -> Run:
    """Read a run."""
    run: Run = {}

    def fault_of(columns: list[str]) -> str | None:
        if len(columns) != 6:
            return f"a line of a run must have 6 columns (query Q0 document rank score name), got {len(columns)}"
        query, _, document, _, text, _ = columns
        score = number_of(text)
        if score is None:
            return f"score must be a finite number, got {shown(text)}"
        if document in run.setdefault(query, {}):
            return f"a query must retrieve a document once, got {shown(document)} again for {shown(query)}"
        run[query][document] = score
        return None

    _read_lines(path, fault_of, advice="write these lines as trec_eval reads a run")
    return run


def read_qrels(path: Path) -> Qrels:
    """Read judgements; of several for a document, the highest grade counts."""
    qrels: Qrels = {}

    def fault_of(columns: list[str]) -> str | None:
        if columns == _BEIR_HEADER:
            return None
        if len(columns) not in (3, 4):
            return f"a line of judgements must have 4 columns (query 0 document grade), or BEIR's 3, got {len(columns)}"
        query, document, text = columns[0], columns[-2], columns[-1]
        grade = grade_of(text)
        if grade is None:
            return f"grade must be {A_GRADE}, got {shown(text)}"
        grades = qrels.setdefault(query, {})
        grades[document] = max(grade, grades.get(document, grade))
        return None

    _read_lines(path, fault_of, advice=f"write these lines as trec_eval reads judgements, and {GRADING}")
    if not any(grade > 0 for grades in qrels.values() for grade in grades.values()):
        raise DataError(f"{path} must judge a document above 0 for some query, got none; check its columns")
    return qrels


def _read_lines(path: Path, fault_of: Callable[[list[str]], str | None], *, advice: str) -> None:
    """Pass the columns of each line to a function that stores them or returns their fault."""
    require_path(path)
    faults = FileFaults()
    for number, line, is_valid in text_lines(path, faults, Cursor()):
        if is_valid and (columns := line.split()) and (fault := fault_of(columns)):
            faults.add(f"{path}:{number}: {fault}")
            faults.advise(advice)
    faults.raise_if_any()
