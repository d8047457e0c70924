import gzip
from pathlib import Path
from typing import Any

import pytest

from adiabat.config.dataset_settings import MsmarcoSettings
from adiabat.data.corpora import read_corpus
from adiabat.data.records import Document
from adiabat.datasets.msmarco import make_msmarco
from tests.datasets.making import fault, maker, rows

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


make = maker(make_msmarco, MsmarcoSettings)


def test_splits_are_the_publishers_and_documents_go_by_passage_id(folder: Path, tmp_path: Path) -> None:
    record = make(folder, tmp_path / "out", "msmarco.pairs=all")
    assert record["examples"] == {"dev.small.jsonl.gz": 1, "train.jsonl.gz": 2}
    assert rows(tmp_path / "out" / "train.jsonl.gz") == [
        {"query_id": "7", "query": "first?", "pos": ["3", "4"], "neg": ["21", "23"]},
        {"query_id": "8", "query": "second?", "pos": ["5"], "neg": ["20", "22", "6"]},
    ]
    assert rows(tmp_path / "out" / "dev.small.jsonl.gz") == [{"query_id": "11", "query": "ثالث", "pos": ["2"], "neg": ["10", "11", "12"]}]
    used = (2, 3, 4, 5, 6, 10, 11, 12, 20, 21, 22, 23)
    assert list(read_corpus(tmp_path / "out")) == [Document(str(number), PASSAGES[number]) for number in used]
    assert record["notes"] == ["12 of 30 passages written: those that a query names"]


def test_packed_tables_give_the_same(folder: Path, tmp_path: Path) -> None:
    make(folder, tmp_path / "plain")
    for name, cells in TABLES.items():
        (folder / name).unlink()
        write(folder / f"{name}.gz", cells)
    make(folder, tmp_path / "packed")
    for name in ("train", "dev.small", "corpus"):
        assert rows(tmp_path / "plain" / f"{name}.jsonl.gz") == rows(tmp_path / "packed" / f"{name}.jsonl.gz")


def test_training_queries_get_the_first_positive_and_the_first_negative(folder: Path, tmp_path: Path) -> None:
    (folder / "top1000.dev").unlink()
    record = make(folder, tmp_path / "out")
    assert [(row["pos"], row["neg"]) for row in rows(tmp_path / "out" / "train.jsonl.gz")] == [(["3"], ["21"]), (["5"], ["20"])]
    assert rows(tmp_path / "out" / "dev.small.jsonl.gz")[0]["neg"] == []
    assert record["notes"][1].startswith("dev.small: 1 of 1 queries have no negatives")


def test_the_number_of_negatives_is_limited(folder: Path, tmp_path: Path) -> None:
    make(folder, tmp_path / "out", "msmarco.pairs=all", "msmarco.most_negatives=2", "msmarco.subset_negatives=2")
    assert [row["neg"] for row in rows(tmp_path / "out" / "train.jsonl.gz")] == [["21", "23"], ["20", "22"]]
    assert rows(tmp_path / "out" / "dev.small-2negatives.jsonl.gz")[0]["neg"] == ["10", "11"]


@pytest.mark.parametrize(
    ("changes", "settings", "facts"),
    [
        ({"collection.tsv": None}, [], ["must hold collection.tsv"]),
        ({"queries.train.tsv": None}, [], ["must hold queries.train.tsv"]),
        ({"qrels.train.tsv": None, "qrels.dev.small.tsv": None}, [], ["must hold qrels.SPLIT.tsv"]),
        ({"queries.train.tsv": [(8, "second?")]}, [], ["queries.train.tsv must hold", 'the id "7"']),
        ({"collection.tsv": TABLES["collection.tsv"][:21]}, [], ["collection.tsv must hold", 'the id "21"']),
        ({"collection.tsv": [("x", "y"), (3, ""), *TABLES["collection.tsv"]]}, [], ["2 faults: ", 'collection.tsv:2: "passage"']),
        ({}, ["msmarco.train=5", "msmarco.documents=texts"], ["2 faults: msmarco.train has no effect", "msmarco.documents must"]),
        (
            {
                "qrels.train.tsv": [(7, 0, "D3", 1), (8, 0, 5, 1), (8, 0, 6)],
                "queries.train.tsv": [(8, "second?"), (8, "another?"), (8, " ")],
                "qidpidtriples.train.full.2.tsv": [(8, 5, -20)],
            },
            [],
            [
                "5 faults: ",
                "qrels.train.tsv:1 must name a passage and its relevance by whole numbers, got D3",
                "qrels.train.tsv:3 must have 4 fields between tabs, got 3",
                "full.2.tsv:1 must name a passage and its relevance by whole numbers, got -20",
                'queries.train.tsv:2: query id must be unique, got "8" again',
                'queries.train.tsv:3: "query" must not be empty',
            ],
        ),
    ],
)
def test_faulty_folders_are_refused(
    folder: Path, tmp_path: Path, changes: dict[str, list[Any] | None], settings: list[str], facts: list[str]
) -> None:
    for name, cells in changes.items():
        if cells is None:
            (folder / name).unlink()
        else:
            write(folder / name, cells)
    message = fault(make, folder, tmp_path / "out", *settings)
    assert all(fact in message for fact in facts), message
