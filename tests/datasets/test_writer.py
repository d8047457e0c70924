import gzip
import os
import random
import signal
import string
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from adiabat.config.dataset_settings import Documents, SquadSettings
from adiabat.core.errors import DataError, InUseError
from adiabat.data.corpora import read_corpus
from adiabat.data.examples import read_examples
from adiabat.data.records import Document, ExampleSet, text_id
from adiabat.datasets.writer import DatasetSummary, DatasetWriter, HashSet, create_dataset
from tests.datasets.making import made, names, rows
from tests.forks import exit_code
from tests.refused import refused
from tests.store.crashes import files_of_at_most

SETTINGS = SquadSettings()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "source.json"
    path.parent.mkdir()
    path.write_text("12345")
    return path


def fill(output: DatasetWriter) -> None:
    first = output.document("d1", "שלום", title="A title")
    second = output.document("d2", "line\u2028separator")
    assert output.document("d1", "שלום", title="A title") == first
    output.triplet(["train"], "7", "what?", positives=[first], negatives=[second])
    output.triplet(["train-hard"], "7", "what?", positives=[first], negatives=[])
    output.note("1 of 3 left out")


def begun(source: Path, out: Path, documents: Documents = "ids") -> AbstractContextManager[DatasetWriter]:
    return create_dataset(out, maker="tests", source=source, settings=SETTINGS, documents=documents)


def make(source: Path, out: Path) -> DatasetSummary:
    with begun(source, out) as output:
        fill(output)
    return output.summary


def test_documents_and_examples_are_what_the_readers_read(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    counts = {"train.jsonl.gz": 1, "train-hard.jsonl.gz": 1}
    assert make(source, out) == DatasetSummary(out, 2, counts, ("1 of 3 left out",))
    assert names(out) == ["corpus.jsonl.gz", "made.json", "train-hard.jsonl.gz", "train.jsonl.gz"]
    wanted = [Document("d1", "A title שלום"), Document("d2", "line\u2028separator")]
    assert list(read_corpus(out)) == list(read_corpus(out / "corpus.jsonl.gz")) == wanted
    examples = read_examples(out / "train.jsonl.gz")
    assert isinstance(examples, ExampleSet)
    assert [(one.query_id, one.query, one.positives, one.negatives) for one in examples.examples] == [
        ("7", "what?", ("d1",), ("d2",))
    ]


def test_a_maker_that_fails_leaves_nothing(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "deeper" / "out"
    with refused(DataError, "the source is damaged"), begun(source, out) as output:
        fill(output)
        assert not out.exists()
        raise DataError("the source is damaged")
    assert names(tmp_path) == ["in"]


def test_what_was_put_there_meanwhile_stays(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with refused(DataError, "out must still be missing or empty"), begun(source, out) as output:
        fill(output)
        out.mkdir()
        (out / "mine").touch()
    assert names(out) == ["mine"]
    assert names(tmp_path) == ["in", "out"]


def test_two_makers_of_one_directory_do_not_mix(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with begun(source, out) as output:
        fill(output)
        with refused(InUseError, "must have one writer at a time"):
            make(source, out)
    assert rows(out / "train.jsonl.gz")[0]["query"] == "what?"


def test_a_full_disk_is_one_line_and_leaves_nothing(source: Path, tmp_path: Path) -> None:
    full = refused(DataError, "the disk of ", "out is full: File too large")
    with files_of_at_most(4_096), full, begun(source, tmp_path / "out") as output:
        for number in range(20_000):
            output.example("train", {"noise": text_id(str(number))})
    assert names(tmp_path) == ["in"]


def test_what_a_killed_maker_left_is_no_part_of_the_next_one(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def killed() -> None:
        with begun(source, out) as output:
            for number in range(9_000):
                output.example("stale", {"number": number, "padding": "x" * 40})
            os.kill(os.getpid(), signal.SIGKILL)

    assert exit_code(killed) == -signal.SIGKILL
    assert names(tmp_path) == [".out.making", "in"]
    make(source, out)
    assert "stale.jsonl.gz" not in names(out)
    assert gzip.decompress((out / "train.jsonl.gz").read_bytes())
    assert names(tmp_path) == ["in", "out"]


def test_a_hash_set_agrees_with_a_set_while_it_grows() -> None:
    draw = random.Random(0)
    strings = ["", "ב", *("".join(draw.choices(string.ascii_lowercase, k=3)) for _ in range(6_000)), ""]
    hashes, expected = HashSet(), set[str]()
    for text in strings:
        assert hashes.add(text) == (text not in expected)
        expected.add(text)
    assert len(hashes) == len(expected) > 3 * 1024 + 1


def test_a_record_holds_source_settings_and_counts_and_equal_rows_are_equal_bytes(
    source: Path, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        make(source, tmp_path / name)
    record = made(tmp_path / "one")
    assert (record["maker"], record["source_bytes"]) == ("tests", {"source.json": 5})
    assert record["settings"] == SETTINGS.model_dump(mode="json")
    assert (record["documents"], record["examples"]) == (2, {"train.jsonl.gz": 1, "train-hard.jsonl.gz": 1})
    assert record["notes"] == ["1 of 3 left out"]
    assert record["versions"]["adiabat"]
    for name in ("corpus.jsonl.gz", "train.jsonl.gz"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_texts_in_examples_need_no_corpus_and_many_rows_keep_their_order(
    source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with begun(source, out, "texts") as output:
        fill(output)
        for number in range(3_000):
            output.example("many", {"number": number, "padding": "x" * 200})
        with pytest.raises(ValueError, match="stem must be other than corpus"):
            output.example("corpus", {"query": "x"})
    assert output.summary.documents == 0
    assert rows(out / "train.jsonl.gz") == [
        {"query": "what?", "pos": ["A title שלום"], "neg": ["line\u2028separator"]}
    ]
    first = next(read_corpus(out / "train.jsonl.gz"))
    assert first.doc_id == text_id("A title שלום")
    assert [row["number"] for row in rows(out / "many.jsonl.gz")] == list(range(3_000))
    assert "corpus.jsonl.gz" not in names(out)


def test_an_empty_directory_is_filled_and_stays_empty_where_the_maker_fails(
    source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    empty = refused(DataError, "source.json must give at least one example, got none (all were empty)")
    with empty, begun(source, out) as output:
        output.note("all were empty")
    assert names(out) == []
    make(source, out)
    before = names(out)
    with refused(DataError, "out must be a new or empty directory, ", "out holds 4 files: corpus.jsonl.gz;"):
        make(source, out)
    assert names(out) == before
    assert names(tmp_path) == ["in", "out"]


def test_a_file_or_the_current_directory_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source.parent)
    for out, fact in (
        (source, "source.json is a file"),
        (source / "below", "Not a directory"),
        (Path(), "the current directory"),
    ):
        with refused(DataError, "out must be ", fact):
            make(source, out)
    assert names(tmp_path) == ["in"]
