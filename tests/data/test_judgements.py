"""Runs and judgements in the format of TREC."""

from pathlib import Path

import pytest

from adiabat.core.errors import DataError
from adiabat.data.judgements import read_qrels, read_run
from tests.data.files import write
from tests.refused import refused


def written(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_a_run_is_scores_of_documents_by_query(tmp_path: Path) -> None:
    path = written(
        tmp_path, "a.run", "q1 Q0 d1 1 9.5 mine", "q1\tQ0\td2\t2\t-1e-3\tmine", "", "q2 Q0 d1 1 3 mine"
    )
    write(tmp_path / "a.run.gz", path.read_bytes())
    runs = {"q1": {"d1": 9.5, "d2": -0.001}, "q2": {"d1": 3.0}}
    assert read_run(path) == read_run(tmp_path / "a.run.gz") == runs


def test_judgements_have_four_columns_or_those_of_beir(tmp_path: Path) -> None:
    plain = written(tmp_path, "plain", "q1 0 d1 2", "q1 0 d2 0", "q2 0 d1 -1")
    beir = written(tmp_path, "test.tsv", "query-id\tcorpus-id\tscore", "q1\td1\t2", "q1\td2\t0", "q2\td1\t-1")
    assert read_qrels(plain) == read_qrels(beir) == {"q1": {"d1": 2, "d2": 0}, "q2": {"d1": -1}}
    # Of several judgements the highest grade counts.
    assert read_qrels(written(tmp_path, "q", "q1 0 d1 1", "q1 0 d1 2", "q1 0 d1 0")) == {"q1": {"d1": 2}}


def test_all_faulty_lines_of_a_run_are_told_at_once(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "a.run",
        "q1 Q0 d1 1 9.5 mine",
        "q1 d1 9.5",
        "q1 Q0 d2 1 nan mine",
        "q1 Q0 d3 1 much mine",
        "q1 Q0 d1 2 1 mine",
    )
    faults = [
        ":2: a line of a run must have 6 columns (query Q0 document rank score name), got 3",
        ":3: score must be a finite number, got 'nan'",
        ":4: score must be a finite number, got 'much'",
        ":5: a query must retrieve a document once, got 'd1' again for 'q1'",
    ]
    with refused(DataError, "4 faults: ", *(f"{path}{fault}" for fault in faults), "trec_eval's run format"):
        read_run(path)


@pytest.mark.parametrize("grade", ["1.5", "nan", "yes", "1001"])
def test_a_grade_is_a_whole_number_that_trec_eval_can_take(tmp_path: Path, grade: str) -> None:
    path = written(tmp_path, "q", "q1 0 d1 1", f"q1 0 d2 {grade}")
    with refused(DataError, f"{path}:2: grade ", "from -1,000 to 1,000", f"got '{grade}'; "):
        read_qrels(path)


def test_judgements_without_a_relevant_document_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "q", "q1 0 d1 0")
    with refused(DataError, "must judge a document above 0 for some query, got none"):
        read_qrels(path)
