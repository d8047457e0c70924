"""A link that leads nowhere is never a file that was left out: not in data, not in a store, not in a job."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from adiabat.core.errors import AdiabatError
from adiabat.data.examples import read_examples
from adiabat.data.folders import is_saved
from adiabat.dual_encoder.pair_data import contents_of
from adiabat.runs.run_config import Job, is_job
from adiabat.runs.run_log import read_log
from adiabat.store.vector_store import Store
from tests.commands import DOCUMENTS, PAIRS, lines, write_world

Use = Callable[[Path], object]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    write_world(folder)
    return folder


def lost(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to("gone")
    return path


def beir(folder: Path) -> None:
    lines(folder / "corpus.jsonl", DOCUMENTS)
    queries = "".join(
        json.dumps({"_id": f"q{number}", "text": pair["query"]}) + "\n" for number, pair in enumerate(PAIRS)
    )
    (folder / "queries.jsonl.gz").write_bytes(gzip.compress(queries.encode()))
    (folder / "qrels").mkdir()
    lines(
        folder / "qrels" / "test.tsv",
        ["query-id\tcorpus-id\tscore", *(f"q{number}\td{number}\t1" for number in range(20))],
    )


def table(folder: Path) -> None:
    lines(folder / "train.jsonl", PAIRS)


CASES: dict[str, tuple[Use, str, Use]] = {
    "queries beside their compressed file": (beir, "queries.jsonl", read_examples),
    "judgements of a split": (beir, "qrels/dev.tsv", lambda folder: read_examples(folder, split="dev")),
    "a split of a folder": (table, "test.jsonl", read_examples),
    "the folder of a split": (table, "test", read_examples),
    "the description of a saved set": (table, "dataset_info.json", is_saved),
    "a file of training data": (table, "more.jsonl", lambda folder: contents_of([str(folder)])),
    "the checksums of a job": (
        lambda folder: (folder / "model").mkdir(),
        "checksums.json",
        lambda folder: Job(folder).finished_model(),
    ),
    "the settings of a job": (table, "config.toml", is_job),
    "the log of a job": (table, "log.jsonl", lambda folder: list(read_log(folder / "log.jsonl"))),
    "the result of a job": (
        lambda folder: (folder / "model").mkdir(),
        "result.json",
        lambda folder: Job(folder).is_done,
    ),
}


@pytest.mark.parametrize(("make", "name", "use"), CASES.values(), ids=CASES)
def test_it_is_named_in_data_and_in_jobs(make: Use, name: str, use: Use, tmp_path: Path) -> None:
    make(tmp_path)
    lost(tmp_path / name)
    with pytest.raises(AdiabatError, match=f"{name}.* must exist"):
        use(tmp_path)


@pytest.mark.parametrize(
    "name", ["manifest.json", "ids.arrow", "vectors.npy", "texts.arrow", "appending/commit.json"]
)
def test_it_is_named_in_a_store(name: str, world: Path, tmp_path: Path) -> None:
    shutil.copytree(world / "store", tmp_path / "store")
    lost(tmp_path / "store" / name)
    with pytest.raises(AdiabatError, match=Path(name).stem):
        Store.open(tmp_path / "store")
