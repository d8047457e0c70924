"""An address: a path or hub name, and behind a question mark its split, its configuration and its columns."""

from pathlib import Path

import pytest

from adiabat.core.errors import ConfigError, DataError
from adiabat.data.corpora import read_corpus
from adiabat.data.examples import ExampleReader, SourcePosition, read_examples, stream_examples
from adiabat.data.records import ExampleSet
from adiabat.data.sources import Source, with_columns, with_split
from tests.data.files import write
from tests.refused import refused


def test_an_address_is_taken_apart_and_put_together_again() -> None:
    source = Source.of("a/b.csv?query=frage&positive=antwort_id&split=test")
    assert source == Source("a/b.csv", "test", None, {"query": "frage", "positive": "antwort_id"})
    assert str(source) == "a/b.csv?split=test&query=frage&positive=antwort_id"
    assert Source.of("hf:owner/name:dev?query=q") == Source("hf:owner/name:dev", None, None, {"query": "q"})
    for name in ("a&b", "50 %", "was?", "größe", "a=b", "a+b", "%26"):
        address = with_columns("b.csv", {"query": name})
        assert Source.of(address).columns == {"query": name}
    assert Source.of("b.csv?query=gr%C3%B6%C3%9Fe%20x&label=").columns == {"query": "größe x", "label": ""}
    assert with_split("b.csv?query=q", "dev") == "b.csv?split=dev&query=q"


def test_a_question_mark_in_the_name_of_a_file_is_no_address(tmp_path: Path) -> None:
    plain = write(tmp_path / "what?query=x.jsonl", {"query": "a", "positive": "b"})
    assert isinstance(read_examples(plain), ExampleSet)
    odd = write(tmp_path / "why?.jsonl", {"frage": "a", "positive": "b"})
    read = read_examples(f"{odd}?query=frage")
    assert isinstance(read, ExampleSet)
    assert read.examples[0].query == "a"
    with refused(DataError, "gone?.jsonl must exist, got no such file"):
        read_examples(tmp_path / "gone?.jsonl")


@pytest.mark.parametrize(
    ("query", "facts"),
    [
        ("frage=query", ['got "frage=query"', "the names are split, config, doc_id"]),
        ("querry=x", ['got "querry=x"', "the names are split, config, "]),
        ("query=a&query=b", ['must give "query" once']),
        ("query=a&b", ['got "b"']),
        ("query=", ['must give "query" a value']),
        ("query=%ff", ["must be percent-encoded UTF-8"]),
    ],
)
def test_what_is_no_address_is_told(query: str, facts: list[str]) -> None:
    with refused(ConfigError, *facts):
        Source.of(f"b.csv?{query}")


def test_two_splits_for_one_set_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", {"query": "a", "positive": "b"})
    with refused(ConfigError, 'must name one split, got "train" and "test"'):
        read_examples(f"{tmp_path}?split=train", split="test")


def test_every_reader_of_examples_and_documents_maps_the_columns_of_an_address(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"frage,dokument,nr\nwho?,she,7\n")
    address = f"{path}?query=frage&positive=dokument"
    read = read_examples(address, columns={"query": "another"})
    assert isinstance(read, ExampleSet)
    streamed = next(stream_examples(address).examples)
    tape = next(ExampleReader(address).read(SourcePosition(), 1))
    every = {(each.query, each.positives) for each in (read.examples[0], streamed, tape)}
    assert every == {("who?", ("she",))}
    assert (read.name, read.examples[0].location) == ("a", f"{path}:2")
    assert [document.doc_id for document in read_corpus(f"{path}?doc_id=nr&text=dokument")] == ["7"]


def test_a_message_does_not_advise_the_mapping_that_was_given(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"frage,dokument\nwho?,she\n")
    with refused(DataError, 'must have "frage" (query), "antwort" (positive)'):
        read_examples(f"{path}?query=frage&positive=antwort")
    with refused(DataError, 'must have "frage" (query), "positive" ', 'got "frage", "dokument"'):
        read_examples(f"{path}?query=frage")
