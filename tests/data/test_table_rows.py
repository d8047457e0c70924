import gzip
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adiabat.core.errors import ConfigError, DataError
from adiabat.data.corpora import read_corpus
from adiabat.data.examples import read_examples, source_identity
from adiabat.data.folders import table_name
from adiabat.data.table_formats import parquet_rows, parquet_size
from adiabat.data.table_rows import FileFaults, count_rows, read_rows
from tests.data.files import jsonl, refusal, table, zstd
from tests.refused import refused, require_facts

ROWS = [
    {"query": "what is α?", "pos": ["a", "b"], "neg": []},
    {
        "query": "متى بدأت الأعراض؟ \u200fשלום",
        "pos": ["line\u2028separator", 'a "quote", and\ttab'],
        "neg": ["\x0bn"],
    },
]


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def values(source: str | Path, split: str | None = None) -> list[dict[str, object]]:
    return [dict(row.values) for row in read_rows(source, split=split)]


def fault(source: str | Path, split: str | None = None) -> str:
    return refusal(values, source, split=split)


@pytest.mark.parametrize(("ending", "pack"), [("", bytes), (".gz", gzip.compress), (".zst", zstd)])
def test_json_lines_come_back_as_written(tmp_path, ending, pack):
    path = write(tmp_path / f"rows.jsonl{ending}", pack(jsonl(ROWS)))
    assert values(path) == ROWS
    assert [row.location for row in read_rows(path)] == [f"{path}:1", f"{path}:2"]
    assert count_rows(path) == 2
    # A file of several members is read to its end.
    if ending:
        assert values(write(path, pack(jsonl(ROWS[:1])) + pack(jsonl(ROWS[1:])))) == ROWS


@pytest.mark.parametrize(("ending", "codec", "pack"), [("gz", "gzip", gzip.compress), ("zst", "zstd", zstd)])
def test_a_stream_cut_short_is_one_clear_error(tmp_path, ending, codec, pack):
    packed = pack(jsonl([{"n": n, "text": f"{n * n}"} for n in range(50_000)]))
    path = write(tmp_path / f"rows.jsonl.{ending}", packed[: len(packed) // 2])
    message = fault(path)
    require_facts(message, f"{path} must be a whole {codec} file, got one that ends early, after line ")
    require_facts(refusal(count_rows, path), "ends early")
    # What stands before the cut is read, but for the piece that the cut falls into.
    told = int(message.partition("after line ")[2].partition(";")[0])
    assert len(pack(jsonl([{"n": n, "text": f"{n * n}"} for n in range(told)]))) > 0.8 * len(packed) / 2


def test_csv_fields_may_hold_commas_quotes_and_line_ends(tmp_path):
    rows = [{"id": "1", "text": 'a, "b"\nc'}, {"id": "2", "text": "שלום"}, {"id": "3", "text": "x" * 300_000}]
    path = table(tmp_path / "rows.csv", rows)
    read = list(read_rows(path))
    assert [dict(row.values) for row in read] == rows
    # The second row starts on line 4, because the first one spans two lines.
    assert [row.location.rpartition(":")[2] for row in read] == ["2", "4", "5"]
    assert count_rows(path) is None


def test_tsv_takes_quotes_as_text(tmp_path):
    path = write(tmp_path / "rows.tsv", b'id\ttext\n1\t"half a quote\n\n2\ta\rb\n')
    assert values(path) == [{"id": "1", "text": '"half a quote'}, {"id": "2", "text": "a b"}]
    assert count_rows(path) == 2


def test_a_quote_left_open_is_named_with_its_line_and_collects_no_more_than_a_limit(tmp_path):
    line = f"7,{'word ' * 200}\n"
    path = write(tmp_path / "rows.csv", ('id,text\n1,fine\n2,"open\n' + line * 17_000 + "3,last\n").encode())
    faults = FileFaults()
    # Reading goes on behind the limit.
    assert [row.values["id"] for row in read_rows(path, faults=faults)][-1] == "3"
    limit = f"{path}:3 must be well-formed CSV, got: a field of more than 16,777,216 characters, "
    with refused(DataError, limit, "close the quote that was left open"):
        faults.raise_if_any()
    assert faults.count == 1


def test_parquet_is_read_from_a_file_and_from_a_folder(tmp_path):
    folder = tmp_path / "parts" / "data"
    for number, row in enumerate(ROWS):
        table(folder / f"part-{number}.parquet", [row])
    assert values(tmp_path / "parts") == ROWS
    assert [row.location for row in read_rows(tmp_path / "parts")] == [
        f"{folder / f'part-{n}.parquet'}:1" for n in range(2)
    ]
    assert values(folder / "part-1.parquet") == ROWS[1:]
    assert count_rows(tmp_path / "parts") == 2


def test_saved_data_sets_are_read_by_split(tmp_path):
    parts = {"train": datasets.Dataset.from_list(ROWS[:1]), "test": datasets.Dataset.from_list(ROWS[1:])}
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "both"))
    parts["test"].save_to_disk(str(tmp_path / "one"))
    assert values(tmp_path / "both", split="train") == ROWS[:1]
    assert values(tmp_path / "one") == ROWS[1:]
    assert count_rows(tmp_path / "both", split="test") == 1
    both = tmp_path / "both"
    splits = f"{both} must be read with one of its splits (test, train), got "
    require_facts(fault(both), f"{splits}none; ", "data.split", f"{both}/test")
    assert values(both / "test") == ROWS[1:]
    require_facts(fault(both, "dev"), f"{splits}dev; ")
    require_facts(fault(tmp_path / "one", "test"), 'the split "test", got a single data set without splits')


@pytest.mark.parametrize("state", ["{}", "[]", "null"])
def test_a_saved_data_set_that_is_damaged_is_one_clear_error(tmp_path, state):
    datasets.Dataset.from_list(ROWS).save_to_disk(str(tmp_path / "saved"))
    write(tmp_path / "saved" / "state.json", state.encode())
    require_facts(fault(tmp_path / "saved"), f"{tmp_path / 'saved'} must be a whole saved data set, got ")


def test_hub_names_go_through_load_dataset(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "set").mkdir()
    write(tmp_path / "set" / "train.jsonl", jsonl(ROWS))
    write(tmp_path / "set" / "test.jsonl", jsonl(ROWS[1:]))
    name = f"hf:{tmp_path / 'set'}"
    assert values(f"{name}:train") == ROWS
    assert values(f"{name}:default:test") == ROWS[1:]
    assert values(name, split="test") == ROWS[1:]
    assert count_rows(f"{name}:train") == 2
    require_facts(fault(name), "(test, train), got none; ", "data.split", f"{name}:test")
    none = f"hf:{tmp_path / 'none'}"
    require_facts(fault(none), f"{none} must be a readable data set, got: ")
    require_facts(fault("hf:a:b:c:d"), "hf:NAME, hf:NAME:SPLIT or hf:NAME:CONFIG:SPLIT")


def test_a_data_set_is_the_same_with_its_split_named_given_or_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "test.jsonl", jsonl(ROWS))
    write(tmp_path / "two" / "train.jsonl", jsonl(ROWS[1:]))
    one, two = f"hf:{tmp_path / 'one'}", f"hf:{tmp_path / 'two'}"
    same = [(one, None), (one, "test"), (f"{one}:test", None), (f"{one}:default:test", None)]
    assert len({source_identity(*each) for each in same}) == 1
    others = [(two, None), (two, "test"), (f"{two}:train", None), (f"{two}:other:test", None), (one, None)]
    assert len({source_identity(*each) for each in others}) == 5
    assert source_identity(two, "train") == source_identity(f"{two}:train", None)
    data = datasets.Dataset.from_list(ROWS)
    datasets.DatasetDict({"test": data}).save_to_disk(str(tmp_path / "saved"))
    data.save_to_disk(str(tmp_path / "single"))
    saved, single = str(tmp_path / "saved"), str(tmp_path / "single")
    of_saved = [(saved, None), (saved, "test"), (f"{saved}/test", None)]
    assert {source_identity(*each) for each in of_saved} == {(saved, "test")}
    assert source_identity(single, None) == (single, None)


def test_names_drop_endings_alone_and_those_of_splits_stand_behind_the_name_of_their_folder():
    names = ("a/b.jsonl.gz", "b.c.csv", "c.zst", "v1.2", "hf:o/n")
    assert [table_name(name) for name in names] == ["b", "b.c", "c", "v1.2", "o/n"]
    names = ("law/test.jsonl.gz", "law/dev", "/test.jsonl", "law/tests.csv")
    assert [table_name(name) for name in names] == ["law/test", "law/dev", "test", "tests"]


@pytest.mark.parametrize(
    ("name", "content", "facts"),
    [
        (
            "rows.jsonl",
            b'{"a": 1}\n{"a": \n[1]\n"x"\n3\nnull\ntrue\n{"a": 2}\n',
            [
                "6 faults: ",
                ':2 must be one JSON object, got {"a": (Expecting value at column 6)',
                ":3 must be one JSON object, got a list",
                ":4 must be one JSON object, got a string",
                ":5 must be one JSON object, got a number",
                ":6 must be one JSON object, got null",
                ":7 must be one JSON object, got true or false",
            ],
        ),
        (
            "rows.jsonl",
            b"x\n" * 1234,
            [
                "1234 faults: ",
                ":10 must be one JSON object, got x (Expecting value at column 1); and 1224 more",
            ],
        ),
        (
            "rows.json",
            b'[\n{"a": 1},\n{"a": 2}\n]\n',
            ["must hold one JSON object per line", "got an array, or one over many lines"],
        ),
        ("rows.jsonl", b'{"a":' * 200_000, [":1 must be one JSON object", "nested too deeply"]),
        ("rows.jsonl", b'{"a": ' + b"1" * 5000 + b"}", ["(a number with too many digits)"]),
        (
            "rows.jsonl",
            b'{"a": "x"}\n{"a": "caf\xe9"}',
            [":2 must be UTF-8, got byte 0xe9 at byte 11 of the line"],
        ),
        ("rows.csv", b"a\ncaf\xe9", [":2 must be UTF-8, got byte 0xe9 at byte 4 of the line"]),
        ("rows.tsv", b"a\ncaf\xe9", [":2 must be UTF-8, got byte 0xe9 at byte 4 of the line"]),
        ("rows.csv", b"id,te\xfft\n1,x\n", [":1 must be UTF-8"]),
        ("rows.csv", b'id,text\n1,"a\nb\xff\nc"\n2,x\n', [":3 must be UTF-8"]),
        ("rows.csv", b"a,a\n1,2\n", [":1 must name every column once, got 'a', 'a'"]),
        (
            "rows.csv",
            b'id,text\n1\n2,a,b\n3,"x"y\n4,fine\n5,"open',
            [
                "4 faults: ",
                ":2 must have 2 fields",
                ":3 must have 2 fields",
                ":4 must be well-formed CSV",
                ":6 must be well-formed CSV",
            ],
        ),
        ("rows.jsonl", jsonl(ROWS).decode().encode("utf-16"), ["must be UTF-8, got UTF-16; convert it"]),
        ("rows.jsonl.gz", jsonl(ROWS), ["must be a gzip file, got other bytes"]),
        ("rows.jsonl.zst", jsonl(ROWS), ["must be a zstd file, got other bytes"]),
        ("rows.parquet", b"PAR1 and no more", ["must be a whole Parquet file"]),
        ("rows.xlsx", b"", ["must end in .jsonl, .csv, .tsv (each also .gz or .zst) or .parquet", '".xlsx"']),
        ("rows.gz", b"", ['got ".gz"']),
        ("rows.parquet.gz", b"", ['got ".parquet.gz"']),
        ("rows", b"", ["got no ending"]),
    ],
)
def test_every_fault_of_a_file_is_reported_with_its_line(
    tmp_path: Path, name: str, content: bytes, facts: list[str]
) -> None:
    require_facts(fault(write(tmp_path / name, content)), str(tmp_path / name), *facts)


def test_a_path_without_a_table_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "triplets.jsonl", b"")
    path = tmp_path / "triplet.jsonl"
    near = tmp_path / "triplets.jsonl"
    require_facts(fault(path), f"{path} must exist, got no such file; did you mean {near}?")
    other = tmp_path / "no" / "x.csv"
    require_facts(fault(other), f"{other} must exist, got no such file; check the path")
    require_facts(fault(tmp_path), "got triplets.jsonl; ")
    with refused(ConfigError, "split must be left out for ", 'which has no splits, got "test"; '):
        read_rows(near, split="test")


def test_valid_rows_beside_faults_are_read_and_blank_lines_skipped(tmp_path: Path) -> None:
    faults, path = FileFaults(), write(tmp_path / "rows.jsonl", b'\noops\n{"a": 1}\n   \n\n{"a": 2}')
    assert [(row.location, row.values) for row in read_rows(path, faults=faults)] == [
        (f"{path}:3", {"a": 1}),
        (f"{path}:6", {"a": 2}),
    ]
    assert (faults.count, count_rows(path)) == (1, 3)
    with refused(DataError, "rows.jsonl:2 must be one JSON object"):
        faults.raise_if_any()
    faults, path = FileFaults(), write(tmp_path / "rows.csv", b'id,text\n1,"a\nb\xff\nc"\n2,\n')
    assert [dict(row.values) for row in read_rows(path, faults=faults)] == [{"id": "2", "text": None}]
    assert faults.count == 1


def parquet_of(path: Path, *columns: tuple[str, pa.Array]) -> Path:
    pq.write_table(pa.table([values for _, values in columns], names=[name for name, _ in columns]), path)
    return path


def texts_with_a_stray_byte(before: int) -> pa.Array:
    """Texts ``a``, `before` of them, then one that is not UTF-8; Arrow checks none of it."""
    data = b"a" * before + b"b\xff"
    offsets = pa.array([*range(before + 1), before + 2], pa.int32())
    return pa.Array.from_buffers(pa.string(), before + 1, [None, offsets.buffers()[1], pa.py_buffer(data)])


def column_fault(path: Path, column: str) -> str:
    return refusal(lambda: [row.values[column] for row in read_rows(path)])


def test_rows_come_back_as_written(tmp_path):
    rows = [{"id": n, "text": f"text {n}", "more": {"list": [n, None]}} for n in range(2500)]
    table(tmp_path / "rows.parquet", rows)
    read = list(parquet_rows([tmp_path / "rows.parquet"]))
    assert [dict(values) for _, values in read] == rows
    assert [place for place, _ in read] == [f"{tmp_path / 'rows.parquet'}:{n}" for n in range(1, 2501)]
    assert parquet_size([tmp_path / "rows.parquet"]) == count_rows(tmp_path) == 2500
    first = read[0][1]
    assert (list(first), len(first)) == (["id", "text", "more"], 3)
    assert ("text" in first, "none" in first, first.get("none")) == (True, False, None)


def test_a_time_that_python_cannot_hold_matters_only_where_it_is_used(tmp_path):
    when = pa.array([0, 2**62], pa.timestamp("us"))
    path = parquet_of(tmp_path / "rows.parquet", ("id", pa.array([1, 2])), ("when", when))
    assert [row.values["id"] for row in read_rows(path)] == [1, 2]
    told = f'{path}:2: "when" must hold values that Python can hold, got timestamp[us]: '
    require_facts(column_fault(path, "when"), told, "the column as text")


@pytest.mark.parametrize("before", [0, 1500])
def test_a_text_that_is_not_utf8_is_named_with_its_row_and_column(tmp_path, before):
    texts = ("text", texts_with_a_stray_byte(before))
    path = parquet_of(tmp_path / "rows.parquet", ("id", pa.array(range(before + 1))), texts)
    assert [row.values["id"] for row in read_rows(path)] == list(range(before + 1))
    told = f'{path}:{before + 1}: "text" must be UTF-8, got byte 0xff at byte 2 of the value; '
    require_facts(column_fault(path, "text"), told)


def test_a_column_given_twice_matters_only_where_it_is_used(tmp_path):
    twice = ("text", pa.array(["x"])), ("text", pa.array(["y"]))
    path = parquet_of(tmp_path / "rows.parquet", ("id", pa.array([1])), *twice)
    assert [(row.values["id"], list(row.values)) for row in read_rows(path)] == [(1, ["id", "text"])]
    require_facts(column_fault(path, "text"), f'{path} must have one column "text", got 2 of that name; ')


def written(path: Path, content: str) -> Path:
    return write(path, content.encode())


def corpus_fault(source: Path, **columns: str) -> str:
    return refusal(lambda: list(read_corpus(source, columns=columns)))


def test_a_first_row_is_never_taken_for_the_header(tmp_path: Path) -> None:
    path = written(tmp_path / "collection.tsv", "0\twater is wet\n1\tthe heat\n")
    facts = f"{path}:1 must be a header of column names, got '0', 'water is wet'", "'0' is not a name; "
    require_facts(corpus_fault(path), *facts)
    require_facts(corpus_fault(path, doc_id="0", text="water is wet"), *facts)
    sentence = "a passage of more than six words"
    written(path, f"d1\t{sentence}\nd2\tx\n")
    require_facts(corpus_fault(path, doc_id="d1", text=sentence), f"'{sentence}' is not a name")


def test_a_header_of_unknown_names_is_asked_for_where_it_stands(tmp_path: Path) -> None:
    path = written(tmp_path / "c.tsv", "d1\twet\nd2\tdry\n")
    require_facts(corpus_fault(path), f"{path}:1: must have ", "CSV and TSV begin with a header of names")


def test_columns_that_pandas_numbered_are_names(tmp_path: Path) -> None:
    path = written(tmp_path / "c.csv", "0,1\na,b\n")
    assert [one.text for one in read_corpus(path, columns={"doc_id": "0", "text": "1"})] == ["b"]


def test_a_number_beside_known_names_is_the_name_of_a_column(tmp_path: Path) -> None:
    path = written(tmp_path / "c.csv", "_id,text,2019\na,wet,3\n")
    assert [row.values for row in read_rows(path)] == [{"_id": "a", "text": "wet", "2019": "3"}]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("c.csv", "_id;text\n1;a, b\n", "commas, got '_id;text'; "),
        ("c.csv", "_id\ttext\n1\ta\n", "commas, got '_id text'; "),
        ("c.tsv", "_id,text\n1,a\n", "tabs, got '_id,text'; "),
    ],
)
def test_another_separator_than_that_of_the_format_is_named(
    tmp_path: Path, name: str, content: str, told: str
) -> None:
    path = written(tmp_path / name, content)
    require_facts(corpus_fault(path), f"{path}:1 must separate its columns by {told}")


def test_the_nameless_index_of_pandas_is_not_read_and_said(tmp_path: Path) -> None:
    path = written(tmp_path / "c.csv", ",_id,text\n0,a,x\n1,b,y\n")
    told = "c.csv:1: the first column is ignored: it has no name"
    with pytest.warns(UserWarning, match=told):
        assert values(path) == [{"_id": "a", "text": "x"}, {"_id": "b", "text": "y"}]
    written(path, "_id,,text\na,,x\n")
    require_facts(corpus_fault(path), "must name every column once")


def test_a_header_without_rows_may_be_a_row(tmp_path: Path) -> None:
    path = written(tmp_path / "c.csv", "_id,text\n")
    facts = f"{path} must hold at least one row, got none below line 1, '_id', 'text'; ", "put a header"
    require_facts(corpus_fault(path), *facts)


def test_one_object_over_many_lines_is_one_fault(tmp_path: Path) -> None:
    content = '{\n "queries": {\n  "q": "a"\n },\n "corpus": {"d": "b"}\n}\n'
    facts = "must hold one JSON object per line", "or one over many lines: '{'; "
    require_facts(refusal(read_examples, written(tmp_path / "finetune.json", content)), *facts)
