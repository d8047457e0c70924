"""Bad data: each kind is told with its place, and the rest of the file is inspected all the same."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.profiling.files import inspected, of_kind, sentence_of, write

GOOD = [{"query": f"question {number}", "pos": [f"answer {number}"]} for number in range(5)]


def test_a_packed_file_that_is_cut_short_is_inspected_up_to_there(tmp_path):
    rows = [{"query": f"question {number * 7919}", "pos": [f"answer {number * 104729}"]} for number in range(2_000)]
    path = write(tmp_path / "pairs.jsonl.gz", *rows)
    path.write_bytes(path.read_bytes()[:-2_000])
    found = inspected(path)
    assert 500 < found.rows < 2_000
    assert f"{path} must be a whole gzip file, got one that is cut short after line" in sentence_of(found, "unreadable rows")
    assert of_kind(found, "unreadable rows") in found.faults


def test_values_of_a_column_are_listed_where_they_differ(tmp_path):
    rows = [{**row, "tag": "x", "topic": number % 2, "other": None, "empty": ""} for number, row in enumerate(GOOD)]
    # The mark of bytes at the start of a file is no fault.
    found = inspected(write(tmp_path / "pairs.jsonl", b"\xef\xbb\xbf", *rows))
    assert [(finding.kind, finding.severity) for finding in found.findings] == [("one value for all", "warning")]
    wanted = {"tag": (("x", 5),), "topic": (("0", 3), ("1", 2)), "other": None, "empty": None}
    assert {column.name: column.values for column in found.columns if column.name in wanted} == wanted


def test_a_column_that_nobody_uses_does_no_harm_where_it_cannot_be_read(tmp_path):
    broken = pa.array([b"\xff\xfe", b"x"]).view(pa.string())
    table = pa.table({"query": ["one a", "two b"], "positive": ["x y", "z w"], "extra": broken})
    pq.write_table(table, tmp_path / "pairs.parquet")
    found = inspected(tmp_path / "pairs.parquet")
    assert (found.rows, [column.name for column in found.columns]) == (2, ["query", "positive"])


Q, P = [{"query": "q a", "pos": ["p p"]}], [{"query": f"q {number}", "pos": [f"document {number % 2}"]} for number in range(10)]


@pytest.mark.parametrize(
    ("rows", "kind", "severity", "count", "facts"),
    [
        (
            [*GOOD, {"query": " ", "pos": ["p"]}, {"query": 7, "pos": ["p"]}, b"{broken\n", {"query": "q"}, b'{"query": "\xe9"}\n'],
            "unreadable rows",
            "fault",
            1,
            [
                "5 faults: ",
                '{path}:6: "query" must not be empty',
                '{path}:7: "query"',
                "{path}:8 must",
                "{path}:9: exp",
                "{path}:10 must be UTF-8",
            ],
        ),
        ([*GOOD, b"\xef\xbb\xbf", GOOD[0]], "unreadable rows", "fault", 1, ["{path}:6 must be one JSON object", "byte-order mark"]),
        (
            [{"qid": name, "query": f"text {number}", "pos": ["p p"]} for number, name in enumerate(["Q1", "q2", "q1", "q2", "q3", "q2"])],
            "repeated ids",
            "fault",
            2,
            ['"q2" at {path}:4 again, first at {path}:2; "q2" at {path}:6 again, first at {path}:2; give'],
        ),
        (
            [*Q, {"qid": "x", "query": "b", "pos": ["p p"]}, {"qid": "X", "query": "c", "pos": ["p p"]}],
            "ids alike but for case",
            "warning",
            1,
            ['"x" at {path}:2 and "X" at {path}:3;'],
        ),
        ([{"_id": "d", "text": f"t {n}"} for n in range(9)], "repeated ids", "fault", 8, ["document ids must be unique", "; and 5 more;"]),
        (
            [*GOOD, {"query": "hers?", "pos": ["she is"], "neg": ["he is", "she is"]}],
            "negatives that answer",
            "warning",
            1,
            ['1 of 2 are: {path}:6 "hers?"'],
        ),
        (
            [*GOOD, {"query": "a b", "pos": ["a b"]}],
            "documents that are their query",
            "warning",
            1,
            ['1 of 6 are the same text: {path}:6 "a b"'],
        ),
        (P, "few unique documents", "note", 8, ["20.0 % of the documents are unique"]),
        ([{**row, "kind": "x"} for row in GOOD], "one value for all", "note", 5, ['column "kind" holds "x" in every row']),
        ([{**row, **({"tag": "x"} if n else {})} for n, row in enumerate(GOOD)], "pairs without a tag", "note", 1, ["1 of 5 pairs"]),
        ([*GOOD, {"query": "q", "pos": "x y"}], "mixed kinds", "note", 1, ['column "pos"']),
        (
            [*GOOD, {"query": "q", "pos": 3}, {"query": "q", "pos": [4, "five"]}, {"query": "q", "pos": "x y"}],
            "mixed kinds",
            "warning",
            3,
            [
                'column "pos"',
                "a number in 1\N{NO-BREAK SPACE}row (first {path}:6)",
                "a list of several kinds in 1\N{NO-BREAK SPACE}row (first {path}:7)",
            ],
        ),
        (
            [{"query": text, "pos": ["p p"]} for text in ("cafÃ© x", "it â€™ s", "a\ufffdb", "Öl, Ãgua, São Â, £5 €9 – “so”")],
            "mis-decoded texts",
            "warning",
            3,
            ["3 of 4\N{NO-BREAK SPACE}queries", "{path}:1; {path}:2; {path}:3; decode"],
        ),
    ],
)
def test_each_finding_names_its_locations(tmp_path: Path, rows: list[Any], kind: str, severity: str, count: int, facts: list[str]) -> None:
    path = write(tmp_path / "rows.jsonl", *rows)
    finding = of_kind(inspected(path), kind)
    assert finding is not None
    assert (finding.severity, finding.count) == (severity, count)
    assert all(fact.format(path=path) in finding.sentence for fact in facts), finding.sentence
