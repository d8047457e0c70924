"""Corpus, queries and judgements are found in every layout of BEIR and mteb: folders, saved data sets, and
the hub.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import pytest

from adiabat.core.errors import ConfigError
from adiabat.data import judged_sets
from adiabat.data.corpora import read_corpus
from adiabat.data.examples import read_examples, source_identity
from adiabat.data.records import Example, ExampleSet
from tests.data.files import refusal, table, write
from tests.refused import require_facts

fault = partial(refusal, read_examples)

DOCUMENTS = [{"_id": f"d{number}", "title": "", "text": f"document {number}"} for number in range(3)]
QUERIES = [{"_id": f"q{number}", "text": f"query {number}"} for number in range(3)]
TEST = [{"query-id": "q0", "corpus-id": "d0", "score": 2}, {"query-id": "q0", "corpus-id": "d1", "score": 0}]
DEV = [{"query-id": "q1", "corpus-id": "d1", "score": 1}]


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    judged_sets._hub_configs.cache_clear()
    judged_sets._hub_splits.cache_clear()


def card(folder: Path, **paths: dict[str, str]) -> None:
    """A ``README.md`` with the files of each configuration by split."""
    configs = []
    for name, splits in paths.items():
        files = [{"split": split, "path": path} for split, path in splits.items()]
        configs.append({"config_name": name.replace("_", "-"), "data_files": files})
    # JSON is YAML.
    (folder / "README.md").write_text(f"---\n{json.dumps({'configs': configs})}\n---\n# A set\n")


def of_parquet_folders(folder: Path) -> None:
    table(folder / "corpus/corpus-00000-of-00001.parquet", DOCUMENTS)
    table(folder / "queries/queries-00000-of-00001.parquet", QUERIES)
    table(folder / "data/test-00000-of-00001.parquet", TEST)
    table(folder / "data/dev-00000-of-00001.parquet", DEV)


def of_json_lines(folder: Path) -> None:
    write(folder / "corpus.jsonl", *DOCUMENTS)
    write(folder / "queries.jsonl", *QUERIES)
    write(folder / "qrels/test.jsonl", *TEST)
    write(folder / "qrels/dev.jsonl", *DEV)


def with_a_card(folder: Path) -> None:
    of_json_lines(folder)
    judged = {"test": "qrels/test.jsonl", "dev": "qrels/dev.jsonl"}
    card(folder, default=judged, corpus={"corpus": "corpus.jsonl"}, queries={"queries": "queries.jsonl"})


def of_splits_in_every_part(folder: Path) -> None:
    for split, rows in (("test", TEST), ("dev", DEV)):
        table(folder / f"corpus/{split}-00000-of-00001.parquet", DOCUMENTS)
        table(folder / f"queries/{split}-00000-of-00001.parquet", QUERIES)
        table(folder / f"qrels/{split}-00000-of-00001.parquet", rows)
    parts = ("corpus", "queries", "qrels")
    card(folder, **{part: {split: f"{part}/{split}-*" for split in ("test", "dev")} for part in parts})


def of_plain_parquet(folder: Path) -> None:
    table(folder / "corpus.parquet", [{"id": row["_id"], "text": row["text"]} for row in DOCUMENTS])
    table(folder / "queries.parquet", [{"id": row["_id"], "text": row["text"]} for row in QUERIES])
    table(folder / "qrels/test.parquet", [{**row, "score": float(row["score"])} for row in TEST])
    table(folder / "qrels/dev.parquet", DEV)


def saved_by_part(folder: Path) -> None:
    parts = {
        "corpus": {"corpus": DOCUMENTS},
        "queries": {"queries": QUERIES},
        "default": {"test": TEST, "dev": DEV},
    }
    for name, splits in parts.items():
        by_split = {split: datasets.Dataset.from_list(rows) for split, rows in splits.items()}
        datasets.DatasetDict(by_split).save_to_disk(str(folder / name))


def saved_as_one(folder: Path) -> None:
    parts = {"corpus": DOCUMENTS, "queries": QUERIES, "test": TEST, "dev": DEV}
    sets = {name: datasets.Dataset.from_list(rows) for name, rows in parts.items()}
    datasets.DatasetDict(sets).save_to_disk(str(folder))


LAYOUTS: list[Callable[[Path], None]] = [
    of_parquet_folders,
    of_json_lines,
    with_a_card,
    of_splits_in_every_part,
    of_plain_parquet,
    saved_by_part,
    saved_as_one,
]


Bare = list[tuple[str, tuple[str, ...], tuple[str, ...], tuple[int, ...]]]


def bare(address: str | Path, **options: Any) -> tuple[str, Bare]:
    read = read_examples(address, **options)
    assert isinstance(read, ExampleSet)
    assert read.is_judged
    return read.name, [(one.query, one.positives, one.negatives, one.grades) for one in read.examples]


OF_TEST = [("query 0", ("d0",), ("d1",), (2,))]
OF_DEV = [("query 1", ("d1",), (), (1,))]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_every_layout_gives_the_same_queries_judgements_and_corpus(
    tmp_path: Path, layout: Callable[[Path], None]
) -> None:
    layout(folder := tmp_path / "set")
    assert bare(folder) == ("set/test", OF_TEST)
    dev = ("set/dev", OF_DEV)
    assert bare(folder, split="dev") == bare(f"{folder}?split=dev") == dev
    assert bare(folder, split="validation") == bare(folder, usual_split="dev") == dev
    corpus = f"{folder}?config=corpus&split=test" if layout is of_splits_in_every_part else folder
    assert [document.doc_id for document in read_corpus(corpus)] == ["d0", "d1", "d2"]
    assert source_identity(str(folder), None)[1] == "test"


@pytest.mark.parametrize("layout", [with_a_card, of_splits_in_every_part], ids=lambda layout: layout.__name__)
def test_configurations_of_the_hub_are_parts_too(tmp_path: Path, layout: Callable[[Path], None]) -> None:
    layout(tmp_path / "set")
    name = f"hf:{tmp_path / 'set'}"
    assert bare(name)[1] == OF_TEST
    assert bare(f"{name}:dev")[1] == bare(f"{name}?split=dev")[1] == bare(name, split="dev")[1] == OF_DEV
    if layout is with_a_card:
        assert [document.doc_id for document in read_corpus(name)] == ["d0", "d1", "d2"]
        assert [document.doc_id for document in read_corpus(f"{name}:corpus:corpus")] == ["d0", "d1", "d2"]


def test_beir_keeps_judgements_on_the_hub_in_a_set_beside(tmp_path: Path) -> None:
    write(tmp_path / "set/corpus.jsonl", *DOCUMENTS)
    write(tmp_path / "set/queries.jsonl", *QUERIES)
    card(tmp_path / "set", corpus={"corpus": "corpus.jsonl"}, queries={"queries": "queries.jsonl"})
    name = f"hf:{tmp_path / 'set'}"
    require_facts(fault(name), f"{name} must have judgements, got none in {name}-qrels")
    require_facts(fault(tmp_path / "set"), "queries.jsonl, qrels/SPLIT.tsv), got ")
    write(tmp_path / "set-qrels/test.jsonl", *TEST)
    write(tmp_path / "set-qrels/train.jsonl", *DEV)
    judged_sets._hub_splits.cache_clear()
    assert bare(name) == (f"{tmp_path}/set/test", OF_TEST)
    assert bare(f"{name}:train")[1] == OF_DEV


def test_subsets_such_as_languages_are_chosen_by_name(tmp_path: Path) -> None:
    for language, rows in (("en", TEST), ("de", DEV)):
        for part, content in (("corpus", DOCUMENTS), ("queries", QUERIES), ("qrels", rows)):
            table(tmp_path / f"{language}-{part}/test-00000-of-00001.parquet", content)
    parts = [f"{language}_{part}" for language in ("en", "de") for part in ("corpus", "queries", "qrels")]
    card(tmp_path, **{part: {"test": f"{part.replace('_', '-')}/test-*"} for part in parts})
    for name in (str(tmp_path), f"hf:{tmp_path}"):
        facts = f"{name} must be read with one of its subsets, got en, de; ", f"{name}?config=en"
        require_facts(refusal(read_examples, name, error=ConfigError), *facts)
        assert bare(f"{name}?config=de")[1] == OF_DEV
        assert len(list(read_corpus(f"{name}?config=de"))) == 3


def test_judgements_of_another_shape_are_told_with_their_place(tmp_path: Path) -> None:
    of_json_lines(tmp_path)
    rows = {"query-id": "q0", "corpus-id": "d0", "score": None}, {"query-id": "q0", "doc": "d0"}
    path = write(tmp_path / "qrels/test.jsonl", *rows)
    lacking = f'{path}:2: expected "corpus-id" of a judgement, found "query-id", "doc"'
    require_facts(fault(tmp_path), f'{path}:1: "score" must be a whole number', lacking)
    write(path, {"query_id": 7, "doc_id": 1, "relevance": "1"})
    write(tmp_path / "queries.jsonl", {"query_id": 7, "query": "seven"})
    read = read_examples(tmp_path)
    assert isinstance(read, ExampleSet)
    assert read.examples == (Example("7", "seven", ("1",), (), (1,), f"{path}:1"),)


def test_a_folder_of_examples_beside_a_corpus_and_queries_is_not_judged(tmp_path: Path) -> None:
    write(tmp_path / "corpus.jsonl", *DOCUMENTS)
    write(tmp_path / "train.jsonl", {"query": "a", "positive": "d0"})
    assert not judged_sets.is_judged(tmp_path)
    write(tmp_path / "queries.jsonl", *QUERIES)
    assert not judged_sets.is_judged(tmp_path)
