"""``adiabat train``: what is told to whom, with which exit code, and what users do wrong."""

import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import adiabat
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import read_settings
from adiabat.core.files import read_json
from adiabat.models.embedding_head import EncoderSettings
from tests.commands import Run, lines, listing, one_thread, run_in_process, setting
from tests.dual_encoder.problem import write_problem, write_rows
from tests.tiny import edit, save_tiny

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
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    here = tmp_path_factory.mktemp("world")
    with one_thread():
        save_tiny(here / "model", width=16, settings=EncoderSettings(max_tokens=48))
        save_tiny(here / "wide", width=24, settings=EncoderSettings(max_tokens=48))
        shutil.copytree(here / "model", here / "no_padding")
        edit(here / "no_padding", "tokenizer_config.json", pad_token=None)
        write_problem(here)
        write_faults(here)
        yield here


def write_faults(here: Path) -> None:
    (here / "RUN.toml").write_text(RUN)
    (here / "no_model.toml").write_text(RUN.replace('model = "model"\n', ""))
    (here / "typos.toml").write_text(RUN.replace("steps", "step").replace("[job]", "[jobs]"))
    (here / "bad.toml").write_text("[train\n")
    write_rows(here / "bare.jsonl", [{"query": f"q {number}", "positive": f"p {number}"} for number in range(20)])
    write_rows(here / "ids.jsonl", [{"query": f"q {number}", "positive": f"d{number}"} for number in range(20)])
    lines(here / "corpus.jsonl", [{"_id": f"d{number}", "text": f"text {number}"} for number in range(18)])
    write_rows(here / "one.jsonl", [{"query": "q", "positive": "p"}])
    (here / "notes").mkdir()
    (here / "notes" / "todo.txt").write_text("x")
    (here / "begun").mkdir()
    (here / "begun" / "config.toml").write_text('[job]\nmodel = "model"\n')


@pytest.fixture
def run(world: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(world)
    monkeypatch.delenv("ADIABAT_DEBUG", raising=False)
    return lambda *arguments: run_in_process(capsys, monkeypatch, arguments)


def train(*more: str, file: str = "RUN.toml", out: str | None = "new") -> tuple[str, ...]:
    return ("train", file, *(("--out", out) if out else ()), *more)


# --- What it says ---


def test_a_run_answers_with_its_directory_and_tells_people_the_rest(run: Run, tmp_path: Path) -> None:
    said = run(*train(out=str(tmp_path / "job")))
    assert (said.code, said.out) == (0, f"{tmp_path / 'job'}\n"), said.err
    assert re.search(r"^training [\d,]+ of [\d,]+ parameters on \d+ pairs of pairs$", said.err, re.MULTILINE)
    assert re.search(r"^validating on \d+ queries$", said.err, re.MULTILINE)
    page = (tmp_path / "job" / "report.html").read_text()
    assert "Training model on pairs" in page
    assert "validation_fraction" in page


def test_what_makes_the_figures_doubtful_is_told_first_and_again_below_them(run: Run, tmp_path: Path) -> None:
    said = run(*train(*setting("data.validation=pairs.jsonl", "data.validation_fraction=0.1"), out=str(tmp_path / "job")))
    told = "40 of 40 validation queries are also trained on, so validation looks better than it is: name other data"
    heard = said.err.splitlines()
    assert heard[0].startswith(told), said.err
    assert heard[-1].startswith(f"note: {told}")
    assert json.loads((tmp_path / "job" / "result.json").read_text())["training"]["notes"][0].startswith(told)


def test_programs_get_the_whole_result(run: Run, tmp_path: Path) -> None:
    said = run(*train("--json", "--seed", "7", out=str(tmp_path / "job")))
    result = json.loads(said.out)
    assert (result["seed"], result["training"]["steps"], result["training"]["kind"]) == (7, 4, "training")
    assert result == read_json(tmp_path / "job" / "result.json", remedy="")
    assert result["command"].startswith("adiabat train RUN.toml --out ")


def test_a_job_is_a_model_and_the_same_run_gives_the_same_weights(run: Run, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert run(*train(out=str(tmp_path / name))).code == 0
    first, second = (adiabat.load(tmp_path / name).encode(["about paper 4"], side="query") for name in ("one", "two"))
    assert np.array_equal(first, second)
    again = run("train", str(tmp_path / "one" / "config.toml"), "--out", str(tmp_path / "three"))
    assert again.code == 0, again.err
    assert np.array_equal(adiabat.load(tmp_path / "three").encode(["about paper 4"], side="query"), first)


def test_a_run_that_is_there_is_resumed_and_only_then(run: Run, tmp_path: Path) -> None:
    out = str(tmp_path / "job")
    assert run(*train(out=out)).code == 0
    refused = run(*train(out=out))
    assert (refused.code, refused.out) == (2, "")
    assert "holds a job already; go on with it by --resume" in refused.err
    other = run(*train("--resume", *setting("train.batch_size=5"), out=out))
    assert other.code == 2
    assert "train.batch_size was 6, is 5" in other.err
    assert run(*train("--resume", out=out)).code == 0


def test_a_dry_run_says_what_a_run_would_take_and_writes_nothing(run: Run, world: Path, tmp_path: Path) -> None:
    before = listing(world)
    said = run(*train("--dry-run", *setting("train.loss.temperature=0.1")))
    assert said.code == 0
    table = tomllib.loads(said.out)
    assert (table["train"]["loss"]["temperature"]["value"], table["train"]["steps"], table["job"]["out"]) == (0.1, 4, "new")
    for word in ("parameters", "length", "operations", "memory", "time"):
        assert re.search(rf"^# {word}: .*\d", said.out, re.MULTILINE)
    as_json = json.loads(run(*train("--dry-run", "--json", out=None)).out)
    assert (as_json["steps"], as_json["settings"]["train"]["batch_size"]) == (4, 6)
    assert as_json["flops"] > 0
    assert listing(world) == before
    (tmp_path / "told.toml").write_text(said.out)
    told = read_settings(TrainSettings, tmp_path / "told.toml")
    assert told == read_settings(TrainSettings, Path("RUN.toml"), ["train.loss.temperature=0.1", "job.out=new"])


# --- What users do wrong ---


# Name of the mistake: the command, and words that its one line must hold.
MISTAKES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "no file": (("train",), ("Missing", "adiabat train --help")),
    "a file that is not there": (train(file="none.toml"), ("none.toml", "must be a TOML file of settings")),
    "a file that is no TOML": (train(file="bad.toml"), ("bad.toml must be TOML", "line 1")),
    "a folder": (train(file="notes"), ("must be a readable TOML file", "notes")),
    "unknown keys": (train(file="typos.toml"), ("3 faults", "did you mean job.data?", "unknown key train.step; did you mean train.steps?")),
    "an unknown key by --set": (train(*setting("train.los=pair")), ("unknown key train.los; did you mean train.loss?",)),
    "no model": (train(file="no_model.toml"), ("job.model must be given, got none", "--set job.model=...")),
    "no place": (train(out=None), ("job.out must be given, got none",)),
    "no model in a dry run": (train("--dry-run", file="no_model.toml", out=None), ("job.model must be given, got none",)),
    "data that is not there": (train(*setting("job.data=pair.jsonl")), ("pair.jsonl must exist", "pairs.jsonl")),
    "a model that is nowhere": (train(*setting("job.model=no-such/model")), ("job.model must be a directory", "no-such/model")),
    "documents by id without a corpus that has them": (
        train(*setting("job.data=ids.jsonl", "data.corpus=corpus.jsonl")),
        ("it lacks 2 documents", 'ids.jsonl:19: "d18"', 'ids.jsonl:20: "d19"', "data.corpus"),
    ),
    "a single query": (train(*setting("job.data=one.jsonl")), ("one.jsonl", "must leave queries on both sides", "of 1 held out")),
    "triplets without negatives": (
        train(*setting("job.data=bare.jsonl", "train.loss=triplet")),
        ("every query must list a negative where train.loss is triplet",),
    ),
    "a batch of more than there is": (train(*setting("train.batch_size=99")), ("train.batch_size must be at most the", "got 99")),
    "a rank above the width": (train(*setting("train.method=lora")), ("rank must be <= 16", "got 64; lower it")),
    "widths that cannot be cut": (train(*setting("train.matryoshka=[16]")), ("train.matryoshka must hold widths below 16",)),
    "towers of two widths": (
        train(*setting("towers.kind=asymmetric", "towers.document_model=wide")),
        ("both towers must have one width, got 16 and 24", "towers.projection_width"),
    ),
    "a tokenizer that cannot pad": (
        train(*setting("job.model=no_padding")),
        ("the tokenizer must have a padding token, got none", 'encoder.pad_token = "[SEP]"'),
    ),
    "a pattern that freezes nothing": (train(*setting('train.freeze=["embedings"]')), ('"embedings" must match a parameter', "embeddings")),
    "a temperature too cold to learn": (
        train(*setting("train.loss.temperature={kind='learned', first=0.001}")),
        ("train.loss.temperature.first must be >= 0.01, got 0.001",),
    ),
    "a setting without effect": (train(*setting("train.method.rank=4")), ("train.method.rank belongs to lora; kind is full",)),
    "a GPU that is not there": (train("--device", "cuda:63"), ("run.device must be a device of this machine", "'cuda:63'")),
    "into a folder of something else": (train(out="notes"), ("--out must be a new or empty directory", "notes")),
    "into a job": (train(out="begun"), ("begun holds a job already", "--resume")),
    "going on with another job": (train("--resume", out="begun"), ("--resume must go on with the job in begun as it was begun",)),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_gets_one_line_and_leaves_nothing_behind(name: str, run: Run, world: Path) -> None:
    command, words = MISTAKES[name]
    before = listing(world)
    said = run(*command)
    assert (said.code, said.out) == (2, ""), said.err
    assert re.fullmatch(r"adiabat: [^\n]+\n", said.err), said.err
    assert [word for word in words if word not in said.err] == [], said.err
    assert "Input should be" not in said.err
    assert listing(world) == before
