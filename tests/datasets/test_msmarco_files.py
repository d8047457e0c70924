import gzip
from pathlib import Path
from typing import Any

import pytest

from adiabat.config.dataset_settings import MsmarcoSettings
from adiabat.config.reader import read_settings
from adiabat.core.errors import ConfigError, DataError
from adiabat.data.corpora import read_corpus
from adiabat.data.examples import read_examples
from adiabat.data.records import Document, ExampleSet
from adiabat.datasets.msmarco import make_msmarco
from tests.datasets.making import made, rows

PASSAGES = {number: f'passage {number}, with "a quote' for number in range(30)}
TABLES: dict[str, list[Any]] = {
    "collection.tsv": [(number, text) for number, text in PASSAGES.items()],
    "queries.train.tsv": [(7, "first?"), (8, "second?"), (9, "judged by nobody")],
    "qrels.train.tsv": [(7, 0, 3, 1), (8, 0, 5, 1), (7, 0, 4, 1), (8, 0, 6, 0), (7, 0, 3, 1)],
    "qidpidtriples.train.full.2.tsv": [(8, 5, 20), (7, 3, 4), (7, 3, 21), (8, 5, 22), (7, 3, 21), (7, 3, 23), (9, 1, 2), (8, 5, 6)],
    "queries.dev.small.tsv": [(11, "ثالث")],
    "qrels.dev.small.tsv": [(11, 0, 2, 1)],
    "top1000.dev": [(11, pid, "ثالث", PASSAGES[pid]) for pid in (10, 2, 11, 10, 12)],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "msmarco"
    path.mkdir()
    for name, cells in TABLES.items():
        write(path / name, cells)
    return path


def write(path: Path, cells: list[Any]) -> None:
    data = "".join("\t".join(map(str, row)) + "\n" for row in cells).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def make(source: Path, out: Path, *settings: str) -> dict[str, Any]:
    make_msmarco(source, out, read_settings(MsmarcoSettings, None, settings))
    return made(out)


def fault(source: Path, out: Path, *settings: str) -> str:
    with pytest.raises((ConfigError, DataError)) as caught:
        make(source, out, *settings)
    assert not out.exists()
    return str(caught.value)


def test_splits_are_the_publishers_and_documents_go_by_passage_id(folder: Path, tmp_path: Path) -> None:
    told = make(folder, tmp_path / "out", "msmarco.pairs=all")
    assert told["examples"] == {"dev.small.jsonl.gz": 1, "train.jsonl.gz": 2}
    assert rows(tmp_path / "out" / "train.jsonl.gz") == [
        {"query_id": "7", "query": "first?", "pos": ["3", "4"], "neg": ["21", "23"]},
        {"query_id": "8", "query": "second?", "pos": ["5"], "neg": ["20", "22", "6"]},
    ]
    assert rows(tmp_path / "out" / "dev.small.jsonl.gz") == [
        {"query_id": "11", "query": "ثالث", "pos": ["2"], "neg": ["10", "11", "12"]},
    ]
    used = (2, 3, 4, 5, 6, 10, 11, 12, 20, 21, 22, 23)
    assert list(read_corpus(tmp_path / "out")) == [Document(str(number), PASSAGES[number]) for number in used]
    assert told["notes"] == ["12 of 30 passages written: those that a query names"]


def test_what_is_tuned_on_has_the_first_positive_and_the_first_negative(folder: Path, tmp_path: Path) -> None:
    make(folder, tmp_path / "out")
    assert [(row["pos"], row["neg"]) for row in rows(tmp_path / "out" / "train.jsonl.gz")] == [(["3"], ["21"]), (["5"], ["20"])]
    assert rows(tmp_path / "out" / "dev.small.jsonl.gz")[0]["neg"] == ["10", "11", "12"]
    examples = read_examples(tmp_path / "out" / "train.jsonl.gz")
    assert isinstance(examples, ExampleSet)
    assert [example.query_id for example in examples.examples] == ["7", "8"]


def test_no_more_negatives_are_kept_than_asked_for(folder: Path, tmp_path: Path) -> None:
    make(folder, tmp_path / "out", "msmarco.pairs=all", "msmarco.most_negatives=2", "msmarco.subset_negatives=2")
    assert [row["neg"] for row in rows(tmp_path / "out" / "train.jsonl.gz")] == [["21", "23"], ["20", "22"]]
    assert rows(tmp_path / "out" / "dev.small-2negatives.jsonl.gz")[0]["neg"] == ["10", "11"]


def test_packed_tables_give_the_same(folder: Path, tmp_path: Path) -> None:
    make(folder, tmp_path / "plain")
    for name, cells in TABLES.items():
        (folder / name).unlink()
        write(folder / f"{name}.gz", cells)
    make(folder, tmp_path / "packed")
    for name in ("train", "dev.small", "corpus"):
        assert rows(tmp_path / "plain" / f"{name}.jsonl.gz") == rows(tmp_path / "packed" / f"{name}.jsonl.gz")


def test_a_split_without_candidates_has_no_negatives_and_says_so(folder: Path, tmp_path: Path) -> None:
    (folder / "top1000.dev").unlink()
    told = make(folder, tmp_path / "out")
    assert rows(tmp_path / "out" / "dev.small.jsonl.gz")[0]["neg"] == []
    assert told["notes"][1:] == ["dev.small: 1 of 1 queries list no negatives: no file beside the judgements names any"]


@pytest.mark.parametrize("name", ["collection.tsv", "queries.train.tsv"])
def test_a_missing_table_is_named(folder: Path, tmp_path: Path, name: str) -> None:
    (folder / name).unlink()
    assert f"must hold {name} (plain, .gz or .zst), got none" in fault(folder, tmp_path / "out")


def test_a_folder_without_judgements_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "must hold qrels.SPLIT.tsv, got none" in fault(tmp_path / "empty", tmp_path / "out")


def test_queries_and_passages_that_are_nowhere_are_told(folder: Path, tmp_path: Path) -> None:
    write(folder / "queries.train.tsv", [(8, "second?")])
    assert fault(folder, tmp_path / "out") == (
        f'{folder / "queries.train.tsv"} must hold every query that is judged, got none with the id "7"'
    )
    write(folder / "queries.train.tsv", TABLES["queries.train.tsv"])
    write(folder / "collection.tsv", TABLES["collection.tsv"][:21])
    assert fault(folder, tmp_path / "out") == (
        f'{folder / "collection.tsv"} must hold every passage that is named, got none with the id "21"'
    )


def test_every_fault_of_the_tables_is_told_at_once(folder: Path, tmp_path: Path) -> None:
    write(folder / "qrels.train.tsv", [(7, 0, "D3", 1), (8, 0, 5, 1), (8, 0, 6)])
    write(folder / "queries.train.tsv", [(8, "second?"), (8, "another?"), (8, " ")])
    write(folder / "qidpidtriples.train.full.2.tsv", [(8, 5, -20)])
    said = fault(folder, tmp_path / "out")
    for wanted in (
        "5 faults: ",
        "qrels.train.tsv:1 must name a passage and its relevance by whole numbers, got D3",
        "qrels.train.tsv:3 must have 4 fields between tabs, got 3",
        "qidpidtriples.train.full.2.tsv:1 must name a passage and its relevance by whole numbers, got -20",
        'queries.train.tsv:2: query id must be unique, got "8" again',
        'queries.train.tsv:3: "query" must not be empty',
    ):
        assert wanted in said
    for name in ("qrels.train.tsv", "queries.train.tsv", "qidpidtriples.train.full.2.tsv"):
        write(folder / name, TABLES[name])
    write(folder / "collection.tsv", [("x", "y"), (3, ""), *TABLES["collection.tsv"]])
    said = fault(folder, tmp_path / "out")
    assert said.startswith("2 faults: ")
    assert 'collection.tsv:2: "passage" must not be empty' in said


def test_settings_of_triplet_files_and_texts_are_refused(folder: Path, tmp_path: Path) -> None:
    said = fault(folder, tmp_path / "out", "msmarco.train=5", "msmarco.documents=texts")
    assert said.startswith("2 faults: msmarco.train has no effect with a folder of the publisher's files; leave it out; ")
    assert 'msmarco.documents must be "ids" with a folder of the publisher\'s files, got "texts"' in said
