"""Queries that nobody judged, from text files and tables."""

import gzip
from pathlib import Path

import pytest

from adiabat.core.errors import DataError
from adiabat.data.text_files import read_query_log


def test_text_files_and_tables_give_the_same_queries(tmp_path: Path) -> None:
    text = "what is a graph\nprime numbers\nwhat is a graph\n"
    (tmp_path / "log.txt").write_text(text)
    (tmp_path / "log.txt.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "log.csv").write_text("question,text\nwhat is a graph,x\nprime numbers,y\n")
    (tmp_path / "log.jsonl").write_text('{"text": "what is a graph"}\n{"text": "prime numbers"}\n')
    (tmp_path / "frage.csv").write_text("frage\nwhat is a graph\nprime numbers\n")
    for name in ("log.txt", "log.txt.gz", "log.csv", "log.jsonl", "frage.csv?query=frage"):
        log = read_query_log(str(tmp_path / name))
        assert (log.source, log.texts) == (str(tmp_path / name), ["what is a graph", "prime numbers"])


@pytest.mark.parametrize(
    ("name", "content", "facts"),
    [
        ("log.txt", "", ("log.txt must hold at least one query",)),
        ("log.txt", "one\n\ntwo\n", ("log.txt:2", "empty")),
        ("log.csv", "title\nx\n", ("log.csv", 'a column "query"', '"title"')),
        ("log.jsonl", '{"query": 3}\n', ("log.jsonl:1", "must be a text")),
    ],
)
def test_files_without_queries_are_refused(
    tmp_path: Path, name: str, content: str, facts: tuple[str, ...]
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError) as fault:
        read_query_log(str(tmp_path / name))
    assert [fact for fact in facts if fact not in str(fault.value)] == []
