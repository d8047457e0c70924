"""`adiabat evaluate --run`: several runs of one setting give means and intervals over queries and runs."""

import shutil
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

import adiabat
from adiabat.evaluation.score_files import read_scores
from adiabat.results.evaluation_result import Result
from adiabat.results.record import read_result
from adiabat.runs.run_config import Job, read_description, write_description
from adiabat.stats.paired import changes_over_runs
from tests.commands import PAIRS, Run, assert_refused, evaluate, lines, setting, tune, write_world
from tests.commands import command as command
from tests.commands import here as here


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of one setting, and queries that they were not trained on."""
    folder = tmp_path_factory.mktemp("world")
    write_world(folder)
    lines(folder / "train.jsonl", PAIRS[:10])
    lines(
        folder / "test.jsonl",
        [{"query": f"new {number}", "pos": [f"d{10 + number % 10}"]} for number in range(40)],
    )
    options = {
        "max_epochs": 2,
        "batches_per_epoch": 3,
        "validation_fraction": 0.3,
        "learning_rate": 0.01,
        "keep": "last",
    }
    for seed in range(3):
        adiabat.tune(
            folder / "model",
            folder / "store",
            folder / "train.jsonl",
            folder / f"job{seed}",
            seed=seed,
            **options,
        )
    return folder


RUNS = ("--run", "job1", "--run", "job2")


def test_values_are_means_over_runs_and_compare_reads_their_scores(here: Path, command: Run) -> None:
    alone = [
        adiabat.evaluate(f"job{seed}", "store", "test.jsonl", baseline="model").datasets[0].main_change()
        for seed in range(3)
    ]
    said = command(*evaluate("test.jsonl", *RUNS, "--baseline", "model", model="job0"))
    result = read_result(here / "new" / "result.json", Result)
    assert (result.model, result.runs, result.run_differences) == ("job0", ["job1", "job2"], [])
    change = result.datasets[0].main_change()
    assert change.after == pytest.approx(np.mean([single.after for single in alone]))
    assert change.before == alone[0].before
    assert change.test == "t test"
    assert [overlap.model for overlap in result.datasets[0].trained] == ["job0", "job1", "job2"]
    assert "Values are means over 3 runs of the model" in said.err
    assert "job1, job2" in (here / "new" / "report.html").read_text()
    files = sorted((here / "new" / "scores").rglob("*.parquet"))
    assert [path.parent.name for path in files] == ["baseline", "run 1", "run 2", "run 3"]
    stored = [read_scores(path).samples[0] for path in files]
    assert changes_over_runs([stored[1:]], [stored[:1]], seed=0)[0] == change
    compared = adiabat.compare("new/scores/baseline", "new/scores/model")
    assert compared.pairings[0].change.after == pytest.approx(change.after)
    # The same command replaces its own scores.
    assert command(*evaluate("test.jsonl", *RUNS, "--baseline", "model", model="job0")).code == 0


def test_parts_of_the_queries_are_means_over_runs_too(here: Path) -> None:
    lines(
        here / "mixed.jsonl", [{"query": f"new {number}", "pos": [f"d{number % 20}"]} for number in range(40)]
    )
    (found,) = adiabat.evaluate(
        "job0", "store", "mixed.jsonl", runs=["job1"], baseline="model", resamples=200
    ).datasets
    assert [(part.name, part.queries) for part in found.parts] == [
        ("all queries", 40),
        ("new documents", 20),
        ("seen documents", 20),
    ]
    levels = [part.change.after for part in found.parts]
    assert levels[0] == pytest.approx(np.mean(levels[1:]))


def test_a_run_that_is_named_twice_or_of_other_documents_is_refused(here: Path, command: Run) -> None:
    assert_refused(
        command(*evaluate("test.jsonl", "--run", "job0", model="job0")),
        "--run must name each run once, got job0 twice",
    )
    shutil.copytree("job0", "copy")
    said = command(*evaluate("test.jsonl", "--run", "copy", model="job0"))
    assert "copy has the query tower of job0" in said.err
    with pytest.raises(TypeError, match="runs must be a list of models"):
        adiabat.evaluate("job0", "store", "test.jsonl", runs="job1")


def test_a_run_of_another_experiment_is_named_with_its_settings(here: Path, command: Run) -> None:
    other = Job(Path(shutil.copytree("job1", "other")))
    description = read_description(other)
    description["tune"]["learning_rate"], description["job"]["examples"], description["job"]["store"] = (
        0.02,
        "0",
        "elsewhere",
    )
    write_description(other, description)
    said = " ".join(
        command(*evaluate("test.jsonl", "--run", "other", "--run", "model", model="job0")).err.split()
    )
    assert (
        "other is no run of the same experiment as job0: they differ in "
        "job.data, tune.learning_rate (0.01, 0.02)." in said
    )
    assert (
        "whether model is a run of the same experiment as job0 is unknown, because only one of them is a job."
        in said
    )


@pytest.mark.parametrize(
    ("keep", "said"),
    [("last", "last epoch 1: "), ("loss", "no epoch had a lower validation loss than the start: ")],
)
def test_tune_says_which_epoch_was_kept(here: Path, command: Run, keep: str, said: str) -> None:
    options = setting(f"tune.keep={keep}"), setting("tune.max_epochs=1"), setting("tune.learning_rate=1e-30")
    told = command(*tune("train.jsonl", *chain.from_iterable(options), out=keep)).err
    assert f"stopped after the limit of 1 epoch was reached; {said}" in told
