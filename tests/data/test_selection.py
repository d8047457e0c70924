import json
from pathlib import Path

import pytest

from adiabat.core.errors import DataError
from adiabat.data.columns import RowError, plain_value
from adiabat.data.labelled import selected_rows, value_counts
from adiabat.data.table_rows import Row

ROWS: list[dict[str, object]] = [
    {"lang": "de", "split": "test", "i": 0, "a": "x"},
    {"lang": "en", "split": "dev", "i": 1.0, "a": "y"},
    {"lang": "en", "split": "test", "i": 1, "a": "z", "seen": True},
]


def written(folder: Path, *rows: object) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def texts(source: Path, **where: str) -> list[object]:
    return selected_rows(source, {"a": "a"}, lambda row: row.values["a"], split=None, where=where)


def fault(source: Path, **where: str) -> str:
    with pytest.raises(DataError) as caught:
        texts(source, **where)
    return str(caught.value)


def test_only_rows_that_pass_the_whole_filter_come_back_in_file_order(tmp_path):
    path = written(tmp_path, *ROWS)
    assert texts(path) == ["x", "y", "z"]
    assert texts(path, lang="en") == ["y", "z"]
    assert texts(path, lang="en", split="test") == ["z"]


def test_a_filter_compares_numbers_and_truth_values_as_settings_write_them(tmp_path):
    path = written(tmp_path, *ROWS)
    assert texts(path, i="1") == ["y", "z"]
    assert texts(path, seen="true") == ["z"]
    assert [plain_value(value) for value in (None, True, 3, 3.0, 0.5, "t")] == ["", "true", "3", "3", "0.5", "t"]


def test_a_filter_that_leaves_nothing_tells_what_there_is(tmp_path):
    path = written(tmp_path, *ROWS)
    told = 'got none of 3; "lang" is "en" (2), "de" (1)'
    assert fault(path, lang="fr") == f'{path} must have rows where "lang" is "fr", {told}'
    assert fault(path, lang="de", split="dev").endswith(f'"lang" is "de" and "split" is "dev", {told}; "split" is "test" (2), "dev" (1)')
    assert 'there is no column "langs", did you mean "lang"?' in fault(path, langs="en")
    assert 'there is no column "zzz", the columns are "lang", "split", "i", "a", "seen"' in fault(path, zzz="en")


def test_of_many_values_the_ten_most_frequent_are_named():
    values = [str(number) for number in range(12) for _ in range(12 - number)]
    assert value_counts(values).startswith('"0" (12), "1" (11)')
    assert value_counts(values).endswith('"9" (3) and 2 more')
    assert value_counts(["x" * 1000]) == f'"{"x" * 59}…" (1)'


def test_columns_that_the_first_wanted_row_lacks_are_asked_for_together(tmp_path):
    path = written(tmp_path, {"lang": "en"}, {"lang": "de", "sentence1": "x", "gold": 3})
    columns = {"a": "sentence", "score": "similarity"}
    with pytest.raises(DataError) as caught:
        selected_rows(path, columns, dict, split=None, where={"lang": "de"})
    assert str(caught.value) == (
        f'{path}:2 must have the columns "sentence", "similarity", got "lang", "sentence1", "gold"; '
        'name the right ones with a (did you mean "sentence1"?) and score'
    )


def test_faults_of_later_rows_are_told_at_once_and_other_rows_are_not_looked_at(tmp_path):
    rows = [{"lang": "en", "a": "x"}, {"lang": "en", "A": "x"}, {"lang": "de"}, 7, {"lang": "en", "a": "bad"}]
    path = written(tmp_path, *rows)

    def parse(row: Row) -> object:
        if row.values["a"] == "bad":
            raise RowError(f"{row.location}: bad")
        return row.values["a"]

    with pytest.raises(DataError) as caught:
        selected_rows(path, {"a": "a"}, parse, split=None, where={"lang": "en"})
    message = str(caught.value)
    assert message.startswith("3 faults: ")
    assert f'{path}:2 must have the column "a"' in message
    assert f"{path}:4 must be one JSON object" in message
    assert f"{path}:5: bad" in message
    assert f"{path}:3" not in message


def test_a_table_of_faulty_lines_alone_is_told_by_its_lines(tmp_path):
    assert "must be one JSON object" in fault(written(tmp_path, 7), lang="en")
    assert "must hold at least one row" in fault(written(tmp_path), lang="en")
    # One line is at fault, and no other passes the filter: the fault may be why.
    assert "rows.jsonl:1 must be one JSON object" in fault(written(tmp_path, 7, {"lang": "de", "a": "x"}), lang="en")
