"""Bad data: each kind is told with its place, and the rest of the file is inspected all the same."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adiabat.core.errors import DataError
from tests.profiling.files import looked_at, of_kind, said, write

GOOD = [{"query": f"question {number}", "pos": [f"answer {number}"]} for number in range(5)]


def fault(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        looked_at(path)
    return str(caught.value)


def test_rows_at_fault_are_told_beside_what_the_sound_ones_hold(tmp_path):
    path = write(tmp_path / "pairs.jsonl", *GOOD, {"query": " ", "pos": ["p"]}, {"query": 7, "pos": ["p"]}, b"{broken\n", {"query": "q"})
    found = looked_at(path)
    assert found.rows == 5
    sentence = said(found, "unreadable rows")
    assert sentence.startswith("4 faults: ")
    for words in (':6: "query" must not be empty', ':7: "query" must be a text, got a number', ":8 must be one JSON", ":9: expected"):
        assert f"{path}{words}" in sentence


def test_a_packed_file_that_is_cut_short_is_inspected_up_to_there(tmp_path):
    rows = [{"query": f"question {number * 7919}", "pos": [f"answer {number * 104729}"]} for number in range(2_000)]
    path = write(tmp_path / "pairs.jsonl.gz", *rows)
    path.write_bytes(path.read_bytes()[:-2_000])
    found = looked_at(path)
    assert 500 < found.rows < 2_000
    assert f"{path} must be a whole gzip file, got one that is cut short after line" in said(found, "unreadable rows")
    assert of_kind(found, "unreadable rows") in found.faults


def test_a_source_that_is_empty_is_no_inspection(tmp_path):
    assert "must hold at least one row, got none" in fault(write(tmp_path / "empty.jsonl"))
    (tmp_path / "empty.csv").write_text("query,positive\n")
    assert "must hold at least one row, got none" in fault(tmp_path / "empty.csv")
    assert "must exist" in fault(tmp_path / "nowhere.jsonl")
    (tmp_path / "empty.jsonl.gz").write_bytes(gzip.compress(b""))
    assert "must hold at least one row, got none" in fault(tmp_path / "empty.jsonl.gz")


def test_a_byte_order_mark_at_the_start_is_no_fault_and_inside_it_is_one(tmp_path):
    lines = [json.dumps(row).encode() + b"\n" for row in GOOD]
    assert looked_at(write(tmp_path / "start.jsonl", b"\xef\xbb\xbf", *lines)).findings == ()
    found = looked_at(write(tmp_path / "joined.jsonl", *lines[:2], b"\xef\xbb\xbf", *lines[2:]))
    assert f"{tmp_path}/joined.jsonl:3 must be one JSON object" in said(found, "unreadable rows")
    assert said(found, "unreadable rows").endswith("(behind a byte-order mark, as where files were joined; remove it)")


def test_bytes_that_are_no_utf8_are_told_by_line(tmp_path):
    path = write(tmp_path / "pairs.jsonl", *GOOD, b'{"query": "caf\xe9", "pos": ["p"]}\n')
    assert said(looked_at(path), "unreadable rows") == f"{path}:6 must be UTF-8, got byte 0xe9 at byte 15 of the line"


def test_texts_that_were_decoded_wrongly_before_are_told(tmp_path):
    texts = ["cafÃ© au lait", "it â€™ s", "a\N{REPLACEMENT CHARACTER}b", "Ärger über Öl, Ãgua, São Â, £5 €9 – “so”"]
    path = write(tmp_path / "pairs.jsonl", *({"query": text, "pos": ["an answer"]} for text in texts))
    sentence = said(looked_at(path), "mis-decoded texts")
    assert sentence.startswith("3 of 4\N{NO-BREAK SPACE}queries hold characters that look mis-decoded")
    assert [f"{path}:{line}" in sentence for line in (1, 2, 3, 4)] == [True, True, True, False]


def test_mixed_kinds_in_a_column_are_told_with_the_first_place_of_each(tmp_path):
    path = write(
        tmp_path / "pairs.jsonl", *GOOD, {"query": "q", "pos": 3}, {"query": "q", "pos": [4, "five"]}, {"query": "q", "pos": "x y"}
    )
    found = looked_at(path)
    sentence = said(found, "mixed kinds")
    assert 'column "pos" should hold one kind of value' in sentence
    assert f"a number in 1\N{NO-BREAK SPACE}row (first {path}:6)" in sentence
    assert f"a list of several kinds in 1\N{NO-BREAK SPACE}row (first {path}:7)" in sentence
    assert [finding.severity for finding in found.findings if finding.kind == "mixed kinds"] == ["warning"]


def test_one_text_or_a_list_of_them_is_a_note(tmp_path):
    found = looked_at(write(tmp_path / "pairs.jsonl", *GOOD, {"query": "q", "pos": "x y"}))
    assert [(finding.kind, finding.severity) for finding in found.findings] == [("mixed kinds", "note")]


def test_a_tag_with_one_value_for_all_is_told_and_one_with_two_is_listed(tmp_path):
    rows = [{**row, "tag": "x", "topic": number % 2, "other": None, "empty": ""} for number, row in enumerate(GOOD)]
    found = looked_at(write(tmp_path / "pairs.jsonl", *rows))
    assert said(found, "one value for all").startswith("pairs must be of several tags")
    assert [finding.severity for finding in found.findings] == ["warning"]
    assert {column.name: column.values for column in found.columns if column.name not in ("query", "pos")} == {
        "tag": (("x", 5),),
        "topic": (("0", 3), ("1", 2)),
        "other": None,
        "empty": None,
    }


def test_a_tag_that_some_rows_lack_tells_those_apart(tmp_path):
    rows = [{**row, **({"tag": "x"} if number else {})} for number, row in enumerate(GOOD)]
    found = looked_at(write(tmp_path / "pairs.jsonl", *rows))
    assert [(finding.kind, finding.severity) for finding in found.findings] == [("pairs without a tag", "note")]


def test_a_column_that_is_not_read_and_holds_one_value_is_noted(tmp_path):
    found = looked_at(write(tmp_path / "pairs.jsonl", *({**row, "kind": "x"} for row in GOOD)))
    assert said(found, "one value for all") == 'column "kind" holds "x" in every row: as a tag it tells nothing apart'
    assert [finding.severity for finding in found.findings] == ["note"]


def test_ids_given_twice_and_ids_alike_but_for_case(tmp_path):
    ids = ["Q1", "q2", "q1", "q2", "q3", "q2"]
    path = write(tmp_path / "pairs.jsonl", *({"qid": one, "query": f"text {n}", "pos": ["p p"]} for n, one in enumerate(ids)))
    found = looked_at(path)
    twice = said(found, "repeated ids")
    assert f'got "q2" at {path}:4 again, first at {path}:2; "q2" at {path}:6 again, first at {path}:2; give' in twice
    assert f'"Q1" at {path}:1 and "q1" at {path}:3;' in said(found, "ids alike but for case")
    assert [(finding.kind, finding.severity, finding.count) for finding in found.findings[:2]] == [
        ("repeated ids", "fault", 2),
        ("ids alike but for case", "warning", 1),
    ]


def test_ids_that_some_rows_lack_keep_their_places(tmp_path):
    rows = [{"query": "a", "pos": ["p p"]}, {"qid": "x", "query": "b", "pos": ["p p"]}, {"qid": "x", "query": "c", "pos": ["p p"]}]
    path = write(tmp_path / "pairs.jsonl", *rows)
    assert f'"x" at {path}:3 again, first at {path}:2' in said(looked_at(path), "repeated ids")


def test_many_ids_given_twice_are_counted_and_the_first_told(tmp_path):
    path = write(tmp_path / "corpus.jsonl", *({"_id": "d", "text": f"t {number}"} for number in range(9)))
    found = said(looked_at(path), "repeated ids")
    assert found.startswith("document ids must be unique")
    assert "; and 5 more; give" in found
    assert found.count(" again") == 3


def test_a_negative_that_is_the_positive_is_told_with_its_query(tmp_path):
    path = write(tmp_path / "pairs.jsonl", *GOOD, {"query": "hers?", "pos": ["she is"], "neg": ["he is", "she is"]})
    found = looked_at(path)
    assert f'negatives must not be positives of the same query, 1 of 2 are: {path}:6 "hers?"; ' in said(found, "negatives that answer")


def test_a_document_that_is_its_query_is_told(tmp_path):
    path = write(tmp_path / "pairs.jsonl", *GOOD, {"query": "same words", "pos": ["same words"]})
    assert f'1 of 6 are the same text: {path}:6 "same words"; drop them' in said(looked_at(path), "documents that are their query")


def test_a_blank_document_is_a_fault_of_a_corpus(tmp_path):
    path = write(tmp_path / "corpus.jsonl", {"_id": "a", "text": "t"}, {"_id": "b", "text": ""})
    assert f'{path}:2: "text" must not be empty' in said(looked_at(path), "unreadable rows")


def test_a_column_that_nobody_uses_does_no_harm_where_it_cannot_be_read(tmp_path):
    broken = pa.array([b"\xff\xfe", b"x"]).view(pa.string())
    table = pa.table({"query": ["one a", "two b"], "positive": ["x y", "z w"], "extra": broken})
    pq.write_table(table, tmp_path / "pairs.parquet")
    found = looked_at(tmp_path / "pairs.parquet")
    assert (found.rows, [column.name for column in found.columns]) == (2, ["query", "positive"])


def test_few_unique_documents_bring_the_advice_of_the_source(tmp_path):
    found = looked_at(write(tmp_path / "pairs.jsonl", *({"query": f"q {n}", "pos": [f"document {n % 2}"]} for n in range(10))))
    assert said(found, "few unique documents").startswith("20.0 % of the documents are unique")
    assert found.faults == ()
