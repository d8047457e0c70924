"""A folder is read as the splits that its files name, as the ``datasets`` library finds them, and never as
one set of several.
"""

import warnings
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import pytest

from adiabat.core.errors import ConfigError
from adiabat.data.corpora import read_corpus, training_texts
from adiabat.data.examples import ExampleReader, SourcePosition, read_examples, source_identity
from adiabat.data.folders import place_of, split_of
from adiabat.data.records import ExampleSet
from adiabat.data.table_rows import count_rows, read_rows
from tests.data.files import refusal, table, write
from tests.refused import refused, require_facts

fault = partial(refusal, read_examples)

TRAIN = [{"query": f"question {number}", "positive": f"answer {number}"} for number in range(4)]
TEST = [{"query": f"question {number}", "positive": f"answer {number}"} for number in range(4, 6)]


def queries(source: str | Path, **options: Any) -> list[str]:
    read = read_examples(source, **options)
    assert isinstance(read, ExampleSet)
    return [example.query for example in read.examples]


LAYOUTS = [
    ("data/train-00000-of-00001.parquet", "data/test-00000-of-00001.parquet"),
    ("data/train/0001.parquet", "data/test/0001.parquet"),
    ("train.jsonl", "test.jsonl"),
    ("train.jsonl.gz", "eval.jsonl.gz"),
    ("faq_train.csv", "faq_test.csv"),
    ("Train.tsv", "TEST.tsv"),
    ("train-v1.1.json", "test-v1.1.json"),
    ("training.csv.gz", "evaluation.csv.gz"),
]


@pytest.mark.parametrize(("train", "test"), LAYOUTS)
def test_files_that_name_splits_are_read_by_split_and_never_together(
    tmp_path: Path, train: str, test: str
) -> None:
    table(tmp_path / train, TRAIN)
    table(tmp_path / test, TEST)
    split = f"{tmp_path} must be read with one of its splits ("
    require_facts(fault(tmp_path), split, "train", f"name one as {tmp_path}?split=NAME")
    wanted = [row["query"] for row in TRAIN]
    assert queries(tmp_path, split="train") == queries(f"{tmp_path}?split=train") == wanted
    assert queries(f"{tmp_path}?split=test") == [row["query"] for row in TEST]
    require_facts(fault(tmp_path, split="dev"), "), got dev; ", "data.split")
    require_facts(refusal(place_of, tmp_path), split)


@pytest.mark.parametrize(("train", "test"), [names for names in LAYOUTS if names[0].islower()])
def test_splits_are_those_of_the_library(
    tmp_path: Path, train: str, test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    table(tmp_path / "set" / train, TRAIN)
    table(tmp_path / "set" / test, TEST)
    patterns = datasets.data_files.get_data_patterns(str(tmp_path / "set"))
    found = datasets.data_files.DataFilesDict.from_patterns(patterns, base_path=str(tmp_path / "set"))
    assert {split: [Path(file) for file in files] for split, files in found.items()} == {
        "train": list(place_of(tmp_path / "set", "train").files),
        "test": list(place_of(tmp_path / "set", "test").files),
    }


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("dev.jsonl", "dev"),
        ("valid_2.jsonl", "valid"),
        ("nq-train-00001-of-00002.parquet", "train"),
        ("data/random-00000-of-00003.csv", "random"),
        ("eval/part.jsonl", "eval"),
        ("test/train-station.jsonl", "train"),
        ("contest.jsonl", ""),
        ("latest.csv", ""),
        ("0000.parquet", ""),
    ],
)
def test_a_split_is_a_word_of_its_own_in_the_name(name: str, split: str) -> None:
    assert split_of(Path(name)) == split


def test_parts_of_the_only_split_are_read_in_order_and_counted(tmp_path: Path) -> None:
    table(tmp_path / "train_part2.jsonl", TRAIN[2:])
    table(tmp_path / "train_part1.jsonl", TRAIN[:2])
    assert queries(tmp_path) == [row["query"] for row in TRAIN]
    assert [row.location for row in read_rows(tmp_path)][1:3] == [
        f"{tmp_path}/train_part1.jsonl:2",
        f"{tmp_path}/train_part2.jsonl:1",
    ]
    assert count_rows(tmp_path) == 4
    identity = (str(tmp_path), "train")
    assert source_identity(*identity) == source_identity(str(tmp_path), None) == identity


@pytest.mark.parametrize("ending", ["jsonl", "csv", "tsv.gz", "parquet"])
def test_a_stream_goes_on_in_the_file_and_line_where_it_stopped(tmp_path: Path, ending: str) -> None:
    for part in range(3):
        rows = [{"query": f"q{part}{row}", "positive": "a"} for row in range(3)]
        table(tmp_path / f"train-{part}.{ending}", rows)
    expected = [f"q{part}{row}" for part in range(3) for row in range(3)]
    for size in (1, 2, 3, 4, 9):
        position, read = SourcePosition(), list[str]()
        while not position.ended:
            reader = ExampleReader(str(tmp_path))
            read += [example.query for example in reader.read(position, size)]
            position = reader.position()
        assert read == expected
    reader = ExampleReader(str(tmp_path))
    assert len(list(islice(reader.read(SourcePosition(), 5), 5))) == 5


def test_files_of_no_split_beside_a_split_are_named(tmp_path: Path) -> None:
    table(tmp_path / "train.jsonl", TRAIN)
    table(tmp_path / "more.jsonl", TEST)
    assert "one of its splits (files that name none, train), got none" in fault(tmp_path)
    with pytest.warns(UserWarning, match="files that name no split are left out of train: more.jsonl"):
        assert len(queries(tmp_path, split="train")) == len(TRAIN)


def test_the_corpus_beside_examples_is_no_split_of_them(tmp_path: Path) -> None:
    table(tmp_path / "corpus.jsonl", [{"_id": "d1", "text": "a"}])
    table(tmp_path / "train.jsonl", TRAIN)
    assert len(queries(tmp_path)) == len(TRAIN)
    assert [document.doc_id for document in read_corpus(tmp_path)] == ["d1"]


def test_one_table_in_two_formats_is_refused(tmp_path: Path) -> None:
    table(tmp_path / "train.jsonl", TRAIN)
    table(tmp_path / "train.jsonl.gz", TRAIN)
    assert f"{tmp_path} must hold each table once, got train.jsonl and train.jsonl.gz" in fault(tmp_path)
    table(tmp_path / "other/train.jsonl", TRAIN)
    table(tmp_path / "other/train_2.parquet", TRAIN)
    assert "must hold files of one format, got train.jsonl and train_2.parquet" in fault(tmp_path / "other")


def test_hidden_files_and_descriptions_hold_no_rows(tmp_path: Path) -> None:
    table(tmp_path / "train.jsonl", TRAIN)
    for name in (
        "._train.jsonl",
        ".ipynb_checkpoints/test.jsonl",
        "dataset_infos.json",
        "config.json",
        "train.jsonl.stats.json",
    ):
        write(tmp_path / name, b"no rows")
    assert len(queries(tmp_path)) == len(TRAIN)


def test_missing_parts_and_links_that_lead_nowhere_are_told(tmp_path: Path) -> None:
    for part in (0, 2):
        table(tmp_path / f"train-{part:05}-of-00003.parquet", TRAIN[:2])
    with pytest.warns(UserWarning, match="only 2 of 3 parts of train are there"):
        assert len(queries(tmp_path)) == 4
    (tmp_path / "train-00001-of-00003.parquet").symlink_to(tmp_path / "gone")
    assert "train-00001-of-00003.parquet" in fault(tmp_path)


def test_a_corpus_is_read_with_all_of_its_splits_and_training_texts_are_not(tmp_path: Path) -> None:
    documents = [{"_id": f"d{number}", "text": f"text {number}"} for number in range(5)]
    table(tmp_path / "files/train.jsonl", documents[:3])
    table(tmp_path / "files/test.jsonl", documents[3:])
    parts = {"train": documents[:3], "test": documents[3:]}
    saved = {split: datasets.Dataset.from_list(rows) for split, rows in parts.items()}
    datasets.DatasetDict(saved).save_to_disk(str(tmp_path / "saved"))
    for name in ("files", "saved"):
        said = rf"{name}: all of its splits are read as one corpus \(test, train\)"
        with pytest.warns(UserWarning, match=said):
            every = {document.doc_id for document in read_corpus(tmp_path / name)}
        assert every == {document["_id"] for document in documents}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            some = [document.doc_id for document in read_corpus(f"{tmp_path / name}?split=test")]
        assert some == ["d3", "d4"]
        require_facts(refusal(training_texts, tmp_path / name), "one of its splits (test, train), got none")


def test_a_split_of_a_folder_without_splits_is_refused(tmp_path: Path) -> None:
    table(tmp_path / "0.parquet", TRAIN)
    with refused(ConfigError, "split must be left out for ", 'which has no splits, got "test"'):
        read_examples(tmp_path, split="test")
    assert "parts.jsonl" in fault(Path(write(tmp_path / "texts/parts.jsonl", *TRAIN)).parent)


CARD = """---
configs:
- config_name: faq
  data_files:
  - split: train
    path: questions/*.jsonl
  - split: holdout
    path: [late.jsonl]
- config_name: other
  data_files: other.jsonl
---
"""


def test_configurations_and_splits_of_a_card_are_read_as_it_says(tmp_path: Path) -> None:
    table(tmp_path / "questions/test.jsonl", TRAIN)
    table(tmp_path / "late.jsonl", TEST)
    table(tmp_path / "other.jsonl", TEST)
    (tmp_path / "README.md").write_text(CARD)
    require_facts(fault(tmp_path), "a configuration, got faq, other; ", f"{tmp_path}?config=faq")
    require_facts(fault(f"{tmp_path}?config=faq"), "one of its splits (holdout, train), got none")
    assert len(queries(f"{tmp_path}?config=faq&split=train")) == len(TRAIN)
    assert len(queries(f"{tmp_path}?config=faq", split="holdout")) == len(TEST)
    assert len(queries(f"{tmp_path}?config=other")) == len(TEST)
    require_facts(fault(f"{tmp_path}?config=none"), 'the configuration "none", got faq, other')
    (tmp_path / "README.md").write_text(CARD.replace("late.jsonl", "../late.jsonl"))
    require_facts(fault(tmp_path), "README.md must be undamaged, got ValueError: the pattern ../late.jsonl")
    (tmp_path / "README.md").write_text("---\nconfigs: [}\n---\n")
    require_facts(fault(tmp_path), f"{tmp_path}/README.md must be undamaged")


def test_columns_that_nothing_maps_are_refused_in_an_address(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", {"a": 1})
    with refused(ConfigError, "must not name columns in its address, got query"):
        read_rows(f"{path}?query=a")


def test_a_folder_of_text_files_is_a_corpus_of_a_document_each(tmp_path: Path) -> None:
    texts = {"b.txt": "One.\nTwo.\n", "law/train.txt": "Three", "law/a.TXT": "Four", "law/z.txt.gz": "Five"}
    for name, text in texts.items():
        write(tmp_path / name, text.encode())
    for name in ("README.txt", "LICENSE", ".hidden.txt"):
        (tmp_path / name).write_text("about it")
    expected = [
        ("b.txt", "One.\nTwo."),
        ("law/a.TXT", "Four"),
        ("law/train.txt", "Three"),
        ("law/z.txt.gz", "Five"),
    ]
    for read in (read_corpus, training_texts):
        assert [(document.doc_id, document.text) for document in read(tmp_path)] == expected
    assert count_rows(tmp_path) == 4
    require_facts(fault(tmp_path), "b.txt: must have")
    with refused(ConfigError, "split must be left out for ", 'text files is a document, got "train"'):
        read_corpus(f"{tmp_path}?split=train")
    (tmp_path / "law/broken.txt").write_bytes(b"line\nbad \xff\n")
    (tmp_path / "law/empty.txt").write_bytes(b" \n")
    told = refusal(lambda source: [*read_corpus(source)], tmp_path)
    require_facts(told, "law/broken.txt:2 must be UTF-8, got byte 0xff", 'law/empty.txt: "text" must not')


@pytest.mark.parametrize("beside", ["model.safetensors", "config.json", "notes.pdf"])
def test_text_files_beside_others_are_no_corpus(tmp_path: Path, beside: str) -> None:
    for name in ("vocab.txt", beside):
        (tmp_path / name).write_text("x")
    require_facts(refusal(read_corpus, tmp_path), "text files alone (.txt", "vocab.txt")
    endings = ".jsonl, .csv, .tsv (each also .gz or .zst) or .parquet"
    require_facts(refusal(read_corpus, tmp_path / "vocab.txt"), endings, 'got ".txt"; ')


@pytest.mark.parametrize(
    ("names", "are_parts"),
    [
        (("part-1.jsonl", "part-2.jsonl"), True),
        (("rows000.csv", "rows001.csv"), True),
        (("sts12.jsonl", "sts13.jsonl"), False),
        (("part-1.jsonl", "part-3.jsonl"), False),
        (("a/part-1.jsonl", "b/part-2.jsonl"), False),
        (("part-1.jsonl", "other-2.jsonl"), False),
        (("part-1.jsonl",), False),
    ],
)
def test_parts_that_are_counted_from_the_first_are_one_table(
    tmp_path: Path, names: Sequence[str], are_parts: bool
) -> None:
    for number, name in enumerate(names):
        table(tmp_path / name, [TRAIN[number]])
    if are_parts:
        assert queries(tmp_path) == ["question 0", "question 1"]
    else:
        assert Path(names[0]).parts[0] in fault(tmp_path)
