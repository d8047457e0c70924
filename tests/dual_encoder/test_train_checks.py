"""What users of ``adiabat train`` and ``adiabat tune`` do wrong is told before anything heavy is loaded."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import adiabat
from adiabat.cli.options import rank as rank_of_process
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked
from adiabat.core.errors import AdiabatError, ConfigError, DataError, JobError, StoreError
from adiabat.dual_encoder.train_checks import require_estimable, require_ready
from adiabat.runs.output_dir import open_job
from adiabat.runs.run_config import Job
from tests.dual_encoder.problem import FROZEN
from tests.runs.before import forget

QUICK = """
import sys
from adiabat.cli import main
for words in {commands!r}:
    sys.argv = ["adiabat", *words]
    try:
        main()
    except SystemExit as end:
        print(f"exit {{end.code}}", file=sys.stderr)
sys.exit("torch was loaded" if {{"torch", "transformers"}} & set(sys.modules) else 0)
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.jsonl").write_text('{"query": "q", "positive": "p"}\n')
    (tmp_path / "RUN.toml").write_text('[job]\nmodel = "model"\ndata = "pairs.jsonl"\n')
    open_job(tmp_path / "begun", {**settings().model_dump(), "digests": {"model": "00"}}, resume=False)
    return tmp_path


def settings(**tables: dict[str, Any]) -> TrainSettings:
    job = {"model": "model", "data": "pairs.jsonl", "out": "new", **tables.pop("job", {})}
    return checked(TrainSettings, {"job": job, **tables})


def run(commands: list[list[str]], **environment: str) -> list[str]:
    """What is told on stderr by commands that run in one process, which must not load torch."""
    code = QUICK.format(commands=commands)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_mistakes_are_told_before_torch_is_loaded(world: Path) -> None:
    train, tune = ["train", "RUN.toml"], ["tune", "model", "store", "pairs.jsonl"]
    mistakes = {
        "job.out must be given": train,
        "run.device must be auto, cpu": [*train, "--out", "new", "--device", "gpu"],
        "pair.jsonl must exist": [*train, "--out", "new", "--set", "job.data=pair.jsonl"],
        "begun holds a job already": [*train, "--out", "begun"],
        "got a difference: run.seed was 0, is 3": [*train, "--out", "begun", "--seed", "3", "--resume"],
        "dev.jsonl must exist": [*train, "--dry-run", "--set", "data.validation=dev.jsonl"],
        "tuned begun holds a job already": [*tune, "--out", "begun"],
        "tuned run.device must be auto": [*tune, "--out", "new", "--device", "gpu"],
        "tuned store must be a store": [*tune, "--out", "new"],
    }
    told = run(list(mistakes.values()))
    assert told[1::2] == ["exit 2"] * len(mistakes)
    told_of = zip(mistakes, told[::2], strict=True)
    assert [words for words, line in told_of if words.removeprefix("tuned ") not in line] == []
    assert not (world / "new").exists()


def test_of_the_processes_of_a_machine_the_first_tells_a_mistake(world: Path) -> None:
    commands = [["train", "RUN.toml"], ["train", "RUN.toml", "--set", "train.los=1"]]
    assert run(commands, RANK="1", LOCAL_RANK="1") == ["exit 2", "exit 2"]
    told = run(commands, RANK="8", LOCAL_RANK="0")
    assert told[1::2] == ["exit 2", "exit 2"]
    assert [line.startswith("adiabat: process 8: ") for line in told[::2]] == [True, True]


GONE = {"path": "pairs.jsonl", "corpus": "gone.csv"}


@pytest.mark.parametrize(
    ("tables", "error", "told"),
    [
        ({"job": {"out": None}}, ConfigError, "job.out must be given"),
        ({"run": {"device": "gpu"}}, ConfigError, "run.device must be auto"),
        ({"job": {"data": "gone.jsonl"}}, DataError, "gone.jsonl must exist"),
        ({"data": {"corpus": "gone.jsonl"}}, DataError, "gone.jsonl must exist"),
        ({"data": {"validation": "gone.jsonl"}}, DataError, "gone.jsonl must exist"),
        ({"job": {"data": None}, "data": {"sources": [GONE]}}, DataError, "gone.csv must exist"),
        ({"towers": {**FROZEN, "store": "gone"}}, StoreError, "gone must be a store"),
        ({"job": {"out": "begun"}}, JobError, "holds a job already"),
    ],
)
def test_python_users_are_told_the_same(
    world: Path, tables: dict[str, Any], error: type[AdiabatError], told: str
) -> None:
    with pytest.raises(error, match=told):
        adiabat.train(settings=settings(**tables))
    with pytest.raises(error, match=told):
        require_ready(settings(**tables), resume=False)
    assert not (world / "new").exists()


@pytest.mark.parametrize(
    ("ranked", "rank"), [({}, 0), ({"RANK": "0"}, 0), ({"RANK": "3"}, 3), ({"RANK": "x"}, 0)]
)
def test_the_rank_is_what_the_launcher_says(
    monkeypatch: pytest.MonkeyPatch, ranked: dict[str, str], rank: int
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    for name, value in ranked.items():
        monkeypatch.setenv(name, value)
    assert rank_of_process() == rank


def test_an_estimate_needs_no_directory_and_may_be_of_a_job_that_stands_there(world: Path) -> None:
    require_estimable(settings(job={"out": None}))
    require_estimable(settings(job={"out": "begun"}, run={"seed": 3}))
    (world / "notes").mkdir()
    (world / "notes" / "todo.txt").touch()
    with pytest.raises(JobError, match="notes holds other files"):
        require_estimable(settings(job={"out": "notes"}))


def test_a_job_of_before_settings_existed_is_gone_on_with_by_their_defaults_alone(world: Path) -> None:
    forget(Job(world / "begun"), "train.keep", "mixture")
    assert require_ready(settings(job={"out": "begun"}), resume=True) is None
    best = settings(job={"out": "begun"}, train={"keep": "best"})
    with pytest.raises(JobError, match="a difference: train.keep was 'not set', is 'best'; repeat"):
        require_ready(best, resume=True)
