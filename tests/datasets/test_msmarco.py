from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from adiabat.config.dataset_settings import MsmarcoSection, MsmarcoSettings
from adiabat.data.corpora import read_corpus
from adiabat.data.records import Document
from adiabat.datasets.msmarco import make_msmarco, split_of
from tests.data.files import jsonl, write
from tests.datasets.making import corpus, fault, maker, names, rows, triplets
from tests.refused import require_facts

SMALL = ("msmarco.train=3", "msmarco.dev=2", "msmarco.test=4")


def sample(number: int, negatives: int = 3, **more: Any) -> dict[str, Any]:
    listed = [f"no {number}.{one}" for one in range(negatives)]
    return {"query": f"query {number}", "pos": [f"yes {number}.a", f"yes {number}.b"], "neg": listed, **more}


make = maker(make_msmarco, MsmarcoSettings)


def test_first_next_and_last_samples_make_the_three_files_of_one_pair_or_of_all(tmp_path: Path) -> None:
    source, out = write(tmp_path / "m.jsonl.gz", *(sample(number) for number in range(11))), tmp_path / "out"
    record = make(source, out, *SMALL)
    assert record["examples"] == {"train.jsonl.gz": 3, "dev.jsonl.gz": 2, "test.jsonl.gz": 4}
    for stem, numbers in {"train": range(3), "dev": range(3, 5), "test": range(7, 11)}.items():
        assert [query for query, _, _ in triplets(out, stem)] == [f"query {number}" for number in numbers]
    assert record["notes"] == ["2 of 11 samples left out: between the validation and the test samples"]
    assert triplets(out, "train")[1] == ("query 1", ["yes 1.a"], ["no 1.0"])
    assert triplets(out, "dev")[0] == ("query 3", ["yes 3.a"], ["no 3.0"])
    every = ("query 7", ["yes 7.a", "yes 7.b"], ["no 7.0", "no 7.1", "no 7.2"])
    assert triplets(out, "test")[0] == every
    assert len(corpus(out)) == 5 * 2 + 4 * 5
    make(source, tmp_path / "all", *SMALL, "msmarco.pairs=all")
    every = ("query 1", ["yes 1.a", "yes 1.b"], ["no 1.0", "no 1.1", "no 1.2"])
    assert triplets(tmp_path / "all", "train")[1] == every


def test_a_negative_that_is_a_positive_is_none_and_samples_without_negatives_are_counted(
    tmp_path: Path,
) -> None:
    samples = [sample(number) for number in range(9)]
    samples[0]["neg"] = ["yes 0.b", "no 0.5"]
    samples[4]["neg"] = ["yes 4.a"]
    samples[8]["neg"] = []
    record = make(write(tmp_path / "m.jsonl", *samples), tmp_path / "out", *SMALL)
    assert triplets(tmp_path / "out", "train")[0][2] == ["no 0.5"]
    assert record["examples"] == {"train.jsonl.gz": 3, "dev.jsonl.gz": 1, "test.jsonl.gz": 3}
    assert record["notes"] == ["2 of 9 samples left out: without negatives"]


def test_queries_asked_again_after_the_tuning_part_are_told(tmp_path: Path) -> None:
    samples = [sample(number) for number in range(9)]
    samples[1]["query"] = samples[5]["query"] = samples[6]["query"] = "query 0"
    record = make(write(tmp_path / "m.jsonl", *samples), tmp_path / "out", *SMALL)
    assert record["notes"] == ["2 samples of dev and test repeat the query of an earlier sample"]


@pytest.mark.parametrize("sizes", [(3, 2, 4), (0, 0, 9), (9, 0, 0), (0, 1, 0), (487_983, 4_200, 7_000)])
def test_splits_have_their_sizes_and_stand_in_order(sizes: tuple[int, int, int]) -> None:
    section = MsmarcoSection(train=sizes[0], dev=sizes[1], test=sizes[2])
    for spare in (0, 1, 5):
        splits = [split_of(number, sum(sizes) + spare, section) for number in range(sum(sizes) + spare)]
        expected = ["train"] * sizes[0] + ["dev"] * sizes[1] + [None] * spare + ["test"] * sizes[2]
        assert splits == expected


def test_test_samples_with_many_negatives_make_a_subset_and_shared_passages_are_one_document(
    tmp_path: Path,
) -> None:
    counts = [65, 65, 65, 65, 65, 64, 65, 66, 1]
    source = write(tmp_path / "m.jsonl", *(sample(number, count) for number, count in enumerate(counts)))
    record = make(source, tmp_path / "out", *SMALL)
    numbers = {"train": 3, "dev": 2, "test": 4, "test-65negatives": 2}
    assert record["examples"] == {f"{stem}.jsonl.gz": number for stem, number in numbers.items()}
    assert [len(negatives) for _, _, negatives in triplets(tmp_path / "out", "test-65negatives")] == [65, 66]
    shared = (sample(number, neg=["shared", "shared", f"no {number}"]) for number in range(9))
    few = *SMALL, "msmarco.pairs=all", "msmarco.subset_negatives=2"
    record = make(write(tmp_path / "s.jsonl", *shared), tmp_path / "few", *few)
    assert record["documents"] == 9 * 3 + 1
    assert record["examples"]["test-2negatives.jsonl.gz"] == 4
    assert triplets(tmp_path / "few", "test")[0][2] == ["shared", "no 5"]


def test_every_fault_of_a_file_is_reported_with_its_line(tmp_path: Path) -> None:
    samples: list[Any] = [sample(number) for number in range(9)]
    samples[2] = 7
    samples[4]["pos"] = []
    samples[6]["query"] = " "
    samples[7]["neg"] = ["", "x"]
    source = write(tmp_path / "m.jsonl", *samples)
    facts = f"{source}:3", f'{source}:5: "pos"', f'{source}:7: "query"', f'{source}:8: "neg"'
    require_facts(fault(make, source, tmp_path / "out", *SMALL), "4 faults: ", *facts)
    assert names(tmp_path) == ["m.jsonl"]


@pytest.mark.parametrize(
    ("name", "row", "settings", "facts"),
    [
        ("triples.train.small.tsv", b"q\tp\tn\n", SMALL, ["must be a file of triplets", "got a table"]),
        ("m.jsonl", b'{"question": "a", "text": "b"}\n' * 9, SMALL, ['"question", "positive"', "m.jsonl:1"]),
        ("m.json.gz", b"no gzip", SMALL, ["must be a gzip file"]),
        ("m.jsonl", sample(0), SMALL, ["msmarco.train + msmarco.dev + msmarco.test = 9 samples, got 1"]),
        ("m.jsonl", b"", ["msmarco.most_negatives=3"], ["msmarco.most_negatives has no effect with a file"]),
    ],
)
def test_a_source_or_setting_that_does_not_fit_is_refused(
    tmp_path: Path, name: str, row: object, settings: Sequence[str], facts: list[str]
) -> None:
    (tmp_path / name).write_bytes(row if isinstance(row, bytes) else jsonl([row]))
    require_facts(fault(make, tmp_path / name, tmp_path / "out", *settings), *facts)


PASSAGES = {number: f'passage {number}, with "a quote' for number in range(30)}
TABLES: dict[str, list[Any]] = {
    "collection.tsv": [(number, text) for number, text in PASSAGES.items()],
    "queries.train.tsv": [(7, "first?"), (8, "second?"), (9, "judged by nobody")],
    "qrels.train.tsv": [(7, 0, 3, 1), (8, 0, 5, 1), (7, 0, 4, 1), (8, 0, 6, 0), (7, 0, 3, 1)],
    "qidpidtriples.train.full.2.tsv": [
        *((8, 5, 20), (7, 3, 4), (7, 3, 21), (8, 5, 22)),
        *((7, 3, 21), (7, 3, 23), (9, 1, 2), (8, 5, 6)),
    ],
    "queries.dev.small.tsv": [(11, "ثالث")],
    "qrels.dev.small.tsv": [(11, 0, 2, 1)],
    "top1000.dev": [(11, pid, "ثالث", PASSAGES[pid]) for pid in (10, 2, 11, 10, 12)],
}


def table(path: Path, cells: list[Any]) -> None:
    write(path, "".join("\t".join(map(str, row)) + "\n" for row in cells).encode())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, cells in TABLES.items():
        table(tmp_path / "msmarco" / name, cells)
    return tmp_path / "msmarco"


def test_splits_are_the_publishers_and_documents_go_by_passage_id(folder: Path, tmp_path: Path) -> None:
    record = make(folder, tmp_path / "out", "msmarco.pairs=all")
    assert record["examples"] == {"dev.small.jsonl.gz": 1, "train.jsonl.gz": 2}
    assert rows(tmp_path / "out" / "train.jsonl.gz") == [
        {"query_id": "7", "query": "first?", "pos": ["3", "4"], "neg": ["21", "23"]},
        {"query_id": "8", "query": "second?", "pos": ["5"], "neg": ["20", "22", "6"]},
    ]
    assert rows(tmp_path / "out" / "dev.small.jsonl.gz") == [
        {"query_id": "11", "query": "ثالث", "pos": ["2"], "neg": ["10", "11", "12"]}
    ]
    used = (2, 3, 4, 5, 6, 10, 11, 12, 20, 21, 22, 23)
    assert list(read_corpus(tmp_path / "out")) == [Document(str(number), PASSAGES[number]) for number in used]
    assert record["notes"] == ["12 of 30 passages written: those that a query names"]


def test_packed_tables_give_the_same(folder: Path, tmp_path: Path) -> None:
    make(folder, tmp_path / "plain")
    for name, cells in TABLES.items():
        (folder / name).unlink()
        table(folder / f"{name}.gz", cells)
    make(folder, tmp_path / "packed")
    for name in ("train", "dev.small", "corpus"):
        assert rows(tmp_path / "plain" / f"{name}.jsonl.gz") == rows(tmp_path / "packed" / f"{name}.jsonl.gz")


def test_training_queries_get_the_first_positive_and_the_first_negative(folder: Path, tmp_path: Path) -> None:
    (folder / "top1000.dev").unlink()
    record = make(folder, tmp_path / "out")
    found = [(row["pos"], row["neg"]) for row in rows(tmp_path / "out" / "train.jsonl.gz")]
    assert found == [(["3"], ["21"]), (["5"], ["20"])]
    assert rows(tmp_path / "out" / "dev.small.jsonl.gz")[0]["neg"] == []
    assert record["notes"][1].startswith("dev.small: 1 of 1 queries have no negatives")


def test_the_number_of_negatives_is_limited(folder: Path, tmp_path: Path) -> None:
    limits = ("msmarco.most_negatives=2", "msmarco.subset_negatives=2")
    make(folder, tmp_path / "out", "msmarco.pairs=all", *limits)
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
        (
            {"collection.tsv": [("x", "y"), (3, ""), *TABLES["collection.tsv"]]},
            [],
            ["2 faults: ", 'collection.tsv:2: "passage"'],
        ),
        (
            {},
            ["msmarco.train=5", "msmarco.documents=texts"],
            ["2 faults: msmarco.train has no effect", "msmarco.documents must"],
        ),
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
            table(folder / name, cells)
    require_facts(fault(make, folder, tmp_path / "out", *settings), *facts)
