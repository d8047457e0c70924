"""DATA of every verb: folders of several splits, layouts of the hub, and addresses with columns."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import adiabat
from adiabat.results.evaluation_result import Result
from adiabat.results.record import read_result
from tests.commands import DOCUMENTS, FAST, PAIRS, Run, assert_refused, evaluate, tune, write_world
from tests.commands import here as here
from tests.commands import run as run
from tests.pages import no_page as no_page


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("world")
    write_world(here)
    for split, rows in (("train", PAIRS[:14]), ("validation", PAIRS[14:])):
        (here / "split/data").mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), here / f"split/data/{split}-00000-of-00001.parquet")
    for part, rows in (
        ("corpus/corpus", DOCUMENTS),
        ("queries/queries", [{"_id": f"q{number}", "text": pair["query"]} for number, pair in enumerate(PAIRS)]),
        ("data/test", [{"query-id": f"q{number}", "corpus-id": f"d{number}", "score": 1} for number in range(12)]),
    ):
        path = here / f"mteb/{part}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), path)
    return here


@pytest.mark.parametrize(
    "command",
    [
        tune("split"),
        ("tune", "model", "store", "pairs.jsonl", "--out", "new", *FAST[:-2], "--set", "data.validation=split"),
        evaluate("split"),
        ("advise", "model", "store", "split"),
        ("inspect", "split"),
        ("mine", "split", "corpus.jsonl", "--out", "mined.jsonl"),
        ("space", "model", "store", "split", "--out", "new"),
    ],
    ids=lambda command: command[0],
)
def test_no_verb_reads_several_splits_of_a_folder_as_one_set(run: Run, command: tuple[str, ...]) -> None:
    assert_refused(run(*command), "split must be read with a split, got the splits train, validation", "name one as split?split=NAME")
    assert not Path("new").exists()


def test_a_split_is_named_in_the_address_or_the_settings(run: Run, tmp_path: Path) -> None:
    job = str(tmp_path / "job")
    named = ("--split", "train", "--set", "data.validation=split", "--set", "data.validation_split=validation")
    assert run("tune", "model", "store", "split", "--out", job, *FAST[:-2], *named).code == 0
    record = read_result(Path(job) / "result.json", Result).training
    assert record is not None
    # Training and validation queries are hashed together.
    assert record.texts is not None
    assert (record.validation_pairs, record.texts.queries) == (6, 20)
    # The training data's split is not taken for validation data in the same folder.
    refused = run("tune", "model", "store", "split", "--out", "new", *FAST[:-2], *named[:-2])
    assert_refused(refused, "split must be read with a split, got the splits train, validation")
    assert adiabat.inspect("split?split=validation").rows == 6


def test_the_layout_of_mteb_on_the_hub_is_embedded_and_evaluated(run: Run, tmp_path: Path) -> None:
    store, out = str(tmp_path / "store"), tmp_path / "out"
    assert run("embed", "model", "mteb", "--out", store).code == 0
    assert run(*evaluate("mteb", store=store, out=str(out))).code == 0
    measured = read_result(out / "result.json", Result).datasets
    assert [(each.name, each.queries) for each in measured] == [("mteb/test", 12)]
