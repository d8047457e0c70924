import gzip
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from adiabat.config.dataset_settings import Documents, SquadSettings
from adiabat.core.errors import DataError, InUseError
from adiabat.data.corpora import read_corpus
from adiabat.data.examples import read_examples
from adiabat.data.records import Document, ExampleSet, text_id
from adiabat.datasets.writer import Made, Output, writing
from tests.datasets.making import made, names, rows

SETTINGS = SquadSettings()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "source.json"
    path.parent.mkdir()
    path.write_text("12345")
    return path


def fill(output: Output) -> None:
    first = output.document("d1", "שלום", title="A title")
    second = output.document("d2", "line\u2028separator")
    assert output.document("d1", "שלום", title="A title") == first
    output.triplet("train", "7", "what?", positives=[first], negatives=[second])
    output.triplet("train-hard", "7", "what?", positives=[first], negatives=[])
    output.note("1 of 3 left out")


def make(source: Path, out: Path, documents: Documents = "ids") -> Made:
    with writing(out, maker="tests", source=source, settings=SETTINGS, documents=documents) as output:
        fill(output)
    return output.made


def test_documents_and_examples_are_what_the_readers_read(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert make(source, out) == Made(out, 2, {"train.jsonl.gz": 1, "train-hard.jsonl.gz": 1}, ("1 of 3 left out",))
    assert names(out) == ["corpus.jsonl.gz", "made.json", "train-hard.jsonl.gz", "train.jsonl.gz"]
    wanted = [Document("d1", "A title שלום"), Document("d2", "line\u2028separator")]
    assert list(read_corpus(out)) == list(read_corpus(out / "corpus.jsonl.gz")) == wanted
    examples = read_examples(out / "train.jsonl.gz")
    assert isinstance(examples, ExampleSet)
    assert [(one.query_id, one.query, one.positives, one.negatives) for one in examples.examples] == [("7", "what?", ("d1",), ("d2",))]


def test_texts_stand_in_the_examples_where_they_are_wanted_there(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert make(source, out, "texts").documents == 0
    assert rows(out / "train.jsonl.gz") == [{"query": "what?", "pos": ["A title שלום"], "neg": ["line\u2028separator"]}]
    assert next(document.doc_id for document in read_corpus(out / "train.jsonl.gz")) == text_id("A title שלום")
    assert "corpus.jsonl.gz" not in names(out)


def test_what_was_made_is_told_beside_it(source: Path, tmp_path: Path) -> None:
    make(source, tmp_path / "out")
    told = made(tmp_path / "out")
    assert told["maker"] == "tests"
    assert told["source_bytes"] == {"source.json": 5}
    assert told["settings"] == SETTINGS.model_dump(mode="json")
    assert (told["documents"], told["examples"]) == (2, {"train.jsonl.gz": 1, "train-hard.jsonl.gz": 1})
    assert told["notes"] == ["1 of 3 left out"]
    assert told["versions"]["adiabat"]


def test_equal_rows_are_equal_bytes(source: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        make(source, tmp_path / name)
    for name in ("corpus.jsonl.gz", "train.jsonl.gz"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_many_rows_come_back_in_order(source: Path, tmp_path: Path) -> None:
    with writing(tmp_path / "out", maker="tests", source=source, settings=SETTINGS) as output:
        for number in range(3_000):
            output.example("train", {"number": number, "padding": "x" * 200})
    assert [row["number"] for row in rows(tmp_path / "out" / "train.jsonl.gz")] == list(range(3_000))


def test_a_maker_that_fails_leaves_nothing(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "deeper" / "out"

    def fails() -> None:
        with writing(out, maker="tests", source=source, settings=SETTINGS) as output:
            fill(output)
            assert not out.exists()
            raise DataError("the source is damaged")

    with pytest.raises(DataError, match="the source is damaged"):
        fails()
    assert names(tmp_path) == ["in"]


def test_an_empty_directory_may_stand_there_before_and_after_a_failure(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with (
        pytest.raises(DataError, match=r"source\.json must give at least one example, got none \(all were empty\)"),
        writing(out, maker="tests", source=source, settings=SETTINGS) as output,
    ):
        output.note("all were empty")
    assert names(out) == []
    make(source, out)
    assert len(names(out)) == 4
    assert names(tmp_path) == ["in", "out"]


def test_a_directory_with_files_in_it_is_refused_before_anything_is_done(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for number in range(5):
        (out / f"mine{number}").touch()
    with pytest.raises(DataError, match=r"--out must be a new or empty directory, .*out holds mine0, mine1, mine2 and 2 more"):
        make(source, out)
    assert names(out) == [f"mine{number}" for number in range(5)]


def test_a_file_the_current_directory_or_a_place_inside_a_file_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match=r"must be a directory that can be replaced, .*source\.json is a file"):
        make(source, source)
    with pytest.raises(DataError, match=r"must be a directory that can be made, got .*below: Not a directory"):
        make(source, source / "below")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(DataError, match="is a mount point or the current directory"):
        make(source, Path())
    assert names(tmp_path) == ["here", "in"]


def test_what_was_put_there_meanwhile_stays(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def is_disturbed() -> None:
        with writing(out, maker="tests", source=source, settings=SETTINGS) as output:
            fill(output)
            out.mkdir()
            (out / "mine").touch()

    with pytest.raises(DataError, match="--out must still be missing or empty when it is done"):
        is_disturbed()
    assert names(out) == ["mine"]
    assert names(tmp_path) == ["in", "out"]


def test_two_makers_of_one_directory_do_not_mix(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with writing(out, maker="tests", source=source, settings=SETTINGS) as output:
        fill(output)
        with pytest.raises(InUseError, match="must have one writer at a time"):
            make(source, out)
    assert rows(out / "train.jsonl.gz")[0]["query"] == "what?"


def test_the_corpus_is_no_name_for_examples(source: Path, tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="stem must be other than corpus"),
        writing(tmp_path / "out", maker="tests", source=source, settings=SETTINGS) as output,
    ):
        output.example("corpus", {"query": "x"})
    assert names(tmp_path) == ["in"]


def test_a_full_disk_is_one_line_and_leaves_nothing(source: Path, tmp_path: Path) -> None:
    def write_much() -> None:
        with writing(tmp_path / "out", maker="tests", source=source, settings=SETTINGS) as output:
            for number in range(20_000):
                output.example("train", {"noise": text_id(str(number))})

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, hard))
    try:
        with pytest.raises(DataError, match=r"--out must have room, .*out has none: File too large; free some"):
            write_much()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == ["in"]


KILLED = """
import os, signal, sys
from pathlib import Path
from adiabat.config.dataset_settings import SquadSettings
from adiabat.datasets.writer import writing
with writing(Path(sys.argv[2]), maker="tests", source=Path(sys.argv[1]), settings=SquadSettings()) as output:
    for number in range(9_000):
        output.example("stale", {"number": number, "padding": "x" * 40})
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_maker_left_is_no_part_of_the_next_one(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", KILLED, source, out], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert names(tmp_path) == [".out.making", "in"]
    make(source, out)
    assert "stale.jsonl.gz" not in names(out)
    assert gzip.decompress((out / "train.jsonl.gz").read_bytes())
    assert names(tmp_path) == ["in", "out"]
