from pathlib import Path

import pytest

from adiabat.core.errors import DataError
from adiabat.data.corpora import read_corpus
from adiabat.data.examples import read_examples
from adiabat.data.table_rows import read_rows


def written(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8")
    return path


def fault(source: Path, **columns: str) -> str:
    with pytest.raises(DataError) as caught:
        list(read_corpus(source, columns=columns))
    return str(caught.value)


def test_a_first_row_is_never_taken_for_the_header(tmp_path: Path) -> None:
    path = written(tmp_path / "collection.tsv", "0\twater is wet\n1\tthe heat\n")
    told = f"{path}:1 must be a header of column names, got '0', 'water is wet', where '0' is no name; put a header before the first row"
    assert fault(path) == told
    assert fault(path, doc_id="0", text="water is wet") == told
    sentence = "a passage of more than six words"
    assert f"where '{sentence}' is no name" in fault(written(path, f"d1\t{sentence}\nd2\tx\n"), doc_id="d1", text=sentence)


def test_a_header_of_unknown_names_is_asked_for_where_it_stands(tmp_path: Path) -> None:
    path = written(tmp_path / "c.tsv", "d1\twet\nd2\tdry\n")
    assert fault(path).startswith(f"{path}:1: expected ")
    assert "or put a header before the first row if these are values" in fault(path)


def test_columns_that_pandas_numbered_are_names(tmp_path: Path) -> None:
    path = written(tmp_path / "c.csv", "0,1\na,b\n")
    assert [one.text for one in read_corpus(path, columns={"doc_id": "0", "text": "1"})] == ["b"]


def test_a_number_beside_known_names_is_the_name_of_a_column(tmp_path: Path) -> None:
    path = written(tmp_path / "c.csv", "_id,text,2019\na,wet,3\n")
    assert [row.values for row in read_rows(path)] == [{"_id": "a", "text": "wet", "2019": "3"}]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("c.csv", "_id;text\n1;a, b\n", "commas, got semicolons in '_id;text'; write the file with commas"),
        ("c.csv", "_id\ttext\n1\ta\n", "commas, got tabs in '_id text'; write the file with commas"),
        ("c.tsv", "_id,text\n1,a\n", "tabs, got commas in '_id,text'; write the file with tabs"),
    ],
)
def test_another_separator_than_that_of_the_format_is_named(tmp_path: Path, name: str, content: str, told: str) -> None:
    path = written(tmp_path / name, content)
    assert fault(path) == f"{path}:1 must separate its columns by {told}"


def test_the_nameless_index_of_pandas_is_not_read_and_said(tmp_path: Path) -> None:
    path = written(tmp_path / "c.csv", ",_id,text\n0,a,x\n1,b,y\n")
    with pytest.warns(UserWarning, match=r"c.csv:1: the first column has no name, as where pandas wrote its index, and is not read"):
        assert [row.values for row in read_rows(path)] == [{"_id": "a", "text": "x"}, {"_id": "b", "text": "y"}]
    assert "must name every column once" in fault(written(path, "_id,,text\na,,x\n"))


def test_a_header_without_rows_may_be_a_row(tmp_path: Path) -> None:
    path = written(tmp_path / "c.csv", "_id,text\n")
    assert fault(path) == (
        f"{path} must hold at least one row, got none below line 1, '_id', 'text'; check that it was written to its end, and if this "
        "line is a row, put a header of column names before it"
    )


def test_one_object_over_many_lines_is_one_fault(tmp_path: Path) -> None:
    path = written(tmp_path / "finetune.json", '{\n "queries": {\n  "q": "a"\n },\n "corpus": {"d": "b"}\n}\n')
    with pytest.raises(DataError) as caught:
        read_examples(path)
    assert str(caught.value) == (
        f'{path} must hold one JSON object per line, such as {{"query": ..., "positive": ...}}, got one over many lines that begins with '
        "'{'; write each query with its documents on its own line"
    )
