"""Queries of tenants: by a column, by the files of a folder, and rows that name none."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from adiabat.core.errors import AdiabatError, ConfigError, DataError
from adiabat.data.tenants import FILE, read_tenants
from tests.commands import lines

ROWS = [
    {"query": "what burns?", "pos": ["d1"], "firm": "b"},
    {"query": "what falls?", "pos": ["d2", "d3"], "neg": ["d9"], "firm": 7},
    {"query": "what burns?", "pos": ["d4"], "firm": 7},
]


def read(path: Path, by: str, columns: Mapping[str, str] | None = None) -> dict[str, list[tuple[str, ...]]]:
    found = read_tenants(str(path), by, columns=columns or {})
    return {
        name: [(each.query, *each.positives, *each.negatives) for each in queries.examples]
        for name, queries in found.items()
    }


def test_a_column_names_the_tenant_of_a_row_whatever_topic_it_has(tmp_path: Path) -> None:
    lines(tmp_path / "rows.jsonl", [{**row, "topic": "one"} for row in ROWS])
    found = read_tenants(str(tmp_path / "rows.jsonl"), "firm", columns={})
    assert [*found] == ["7", "b"]
    assert [each.topic for queries in found.values() for each in queries.examples] == ["", "", ""]
    assert read(tmp_path / "rows.jsonl", "firm") == {
        "7": [("what falls?", "d2", "d3", "d9"), ("what burns?", "d4")],
        "b": [("what burns?", "d1")],
    }


def test_a_question_that_two_tenants_ask_is_one_of_each_in_a_labelled_file(tmp_path: Path) -> None:
    rows = [
        {"query": "what?", "pos": "d1", "label": 1, "firm": "a"},
        {"query": "what?", "pos": "d2", "label": 0, "firm": "a"},
        {"query": "what?", "pos": "d3", "label": 1, "firm": "b"},
    ]
    lines(tmp_path / "rows.jsonl", rows)
    with pytest.warns(UserWarning, match="is a label"):
        found = read(tmp_path / "rows.jsonl", "firm")
    assert found == {"a": [("what?", "d1", "d2")], "b": [("what?", "d3")]}


def test_the_files_and_beir_folders_of_a_folder_are_tenants(tmp_path: Path) -> None:
    lines(tmp_path / "b.jsonl", ROWS[:1])
    (tmp_path / "a.csv").write_text("frage,pos\nwhat falls?,d2\n", encoding="utf-8")
    judged = tmp_path / "c"
    (judged / "qrels").mkdir(parents=True)
    lines(judged / "queries.jsonl", [{"_id": "q1", "text": "what melts?"}])
    (judged / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td5\t2\n", encoding="utf-8")
    (tmp_path / ".hidden").write_text("", encoding="utf-8")
    with pytest.raises(AdiabatError, match="frage"):
        read(tmp_path, FILE)
    (tmp_path / "a.csv").write_text("query,pos\nwhat falls?,d2\n", encoding="utf-8")
    assert read(tmp_path, FILE) == {
        "a": [("what falls?", "d2")],
        "b": [("what burns?", "d1")],
        "c": [("what melts?", "d5")],
    }
    lines(tmp_path / "a.jsonl", ROWS[:1])
    with pytest.raises(DataError, match="only data set named a"):
        read(tmp_path, FILE)


@pytest.mark.parametrize("tenant", [None, ""])
def test_a_row_without_a_tenant_is_told_with_its_line(tmp_path: Path, tenant: object) -> None:
    lines(tmp_path / "rows.jsonl", [*ROWS, {**ROWS[0], "firm": tenant}])
    with pytest.raises(DataError, match=r'rows.jsonl:4: "firm" must name the tenant'):
        read(tmp_path / "rows.jsonl", "firm")


def test_one_tenant_an_unknown_column_and_the_wrong_word_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    lines(path, ROWS[1:])
    with pytest.raises(DataError, match="at least two tenants, got 7 alone"):
        read(path, "firm")
    with pytest.raises(DataError, match='"team" \\(topic\\)'):
        read(path, "team")
    with pytest.raises(ConfigError, match="must go with a folder"):
        read(path, FILE)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="must hold a file for each tenant, got none"):
        read(tmp_path / "empty", FILE)
