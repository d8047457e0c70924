"""``adiabat train``: what is told to whom, with which exit code."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import read_settings
from adiabat.core.files import read_json
from adiabat.models.embedding_head import EncoderSettings
from tests.commands import Run, listing, setting
from tests.commands import run as run
from tests.dual_encoder.problem import write_problem
from tests.tiny import save_tiny

RUN = """
[job]
model = "model"
data = "pairs.jsonl"

[data]
validation_fraction = 0.3

[train]
batch_size = 6
steps = 4
validate_every = 2
learning_rate = 1e-3
"""


@pytest.fixture(scope="module", autouse=True)
def no_page() -> None:
    """These jobs write pages."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("world")
    save_tiny(here / "model", width=16, settings=EncoderSettings(max_tokens=48))
    write_problem(here)
    (here / "RUN.toml").write_text(RUN)
    return here


def train(*more: str, file: str = "RUN.toml", out: str | None = "new") -> tuple[str, ...]:
    return ("train", file, *(("--out", out) if out else ()), *more)


def test_a_run_answers_with_its_directory_and_tells_people_the_rest_doubts_first_and_last(
    run: Run, tmp_path: Path
) -> None:
    validated = setting("data.validation=pairs.jsonl", "data.validation_fraction=0.1")
    said = run(*train(*validated, out=str(tmp_path / "job")))
    assert (said.code, said.out) == (0, f"{tmp_path / 'job'}\n"), said.err
    assert re.search(r"^training [\d,]+ of [\d,]+ parameters on \d+ pairs of pairs$", said.err, re.MULTILINE)
    assert re.search(r"^validating on 40 queries$", said.err, re.MULTILINE)
    doubt = "40 of 40 validation queries are also trained on"
    lines = said.err.splitlines()
    assert (lines[0].startswith(doubt), lines[-1].startswith(f"note: {doubt}")) == (True, True), said.err
    notes = json.loads((tmp_path / "job" / "result.json").read_text())["training"]["notes"]
    assert notes[0].startswith(doubt)
    page = (tmp_path / "job" / "report.html").read_text()
    assert "Training model on pairs" in page
    assert "validation_fraction" in page


def test_programs_get_the_whole_result(run: Run, tmp_path: Path) -> None:
    said = run(*train("--json", "--seed", "7", out=str(tmp_path / "job")))
    result = json.loads(said.out)
    assert (result["seed"], result["training"]["steps"], result["training"]["kind"]) == (7, 4, "training")
    record = read_json(tmp_path / "job" / "result.json", remedy="")
    assert result == {**record, "headline": result["headline"], "reasons": result["reasons"]}
    assert result["command"].startswith("adiabat train RUN.toml --out ")


def test_a_dry_run_says_what_a_run_takes_and_writes_nothing(run: Run, world: Path, tmp_path: Path) -> None:
    before = listing(world)
    said = run(*train("--dry-run", *setting("train.loss.temperature=0.1")))
    assert said.code == 0
    table = tomllib.loads(said.out)
    assert table["train"]["loss"]["temperature"]["value"] == 0.1
    assert (table["train"]["steps"], table["job"]["out"]) == (4, "new")
    for word in ("parameters", "length", "operations", "memory", "time"):
        assert re.search(rf"^# {word}: .*\d", said.out, re.MULTILINE)
    as_json = json.loads(run(*train("--dry-run", "--json", out=None)).out)
    assert (as_json["steps"], as_json["settings"]["train"]["batch_size"]) == (4, 6)
    assert as_json["flops"] > 0
    assert listing(world) == before
    (tmp_path / "told.toml").write_text(said.out)
    told = read_settings(TrainSettings, tmp_path / "told.toml")
    changes = ["train.loss.temperature=0.1", "job.out=new"]
    assert told == read_settings(TrainSettings, Path("RUN.toml"), changes)
