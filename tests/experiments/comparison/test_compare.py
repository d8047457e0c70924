"""Whole comparisons of two candidates with two seeds on two tasks: what they leave, and what they say."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from adiabat.config.comparison_settings import COMPARISONS, CompareSettings
from adiabat.config.reader import read_settings
from adiabat.core.errors import ConfigError, DataError, JobError, ModelError
from adiabat.core.files import read_json
from adiabat.core.progress import Watch
from adiabat.experiments.comparison import compare
from adiabat.experiments.comparison_rows import Row, rows_at
from adiabat.results.comparison_result import Comparison
from adiabat.results.record import read_result
from adiabat.runs.run_config import is_described, is_job
from adiabat.runs.run_dir import Job
from tests.experiments.comparison.world import lines, run, settings_of, tiny, write_world


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Comparison]:
    folder = tmp_path_factory.mktemp("data")
    write_world(folder)
    return folder, run(settings_of("data", folder))


@pytest.fixture(scope="module")
def backbones(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Comparison]:
    folder = tmp_path_factory.mktemp("backbones")
    write_world(folder)
    return folder, run(settings_of("backbones", folder, compare={"keep_models": False}))


Done = tuple[Path, Comparison]


def test_every_run_is_a_job_of_its_own_with_its_seed(data: Done) -> None:
    folder, _ = data
    for name in ("near", "far"):
        for seed in (0, 1):
            job = Job(folder / "out" / "runs" / name / f"seed-{seed}")
            result = read_result(job.result)
            assert (result.seed, result.training.steps if result.training else 0) == (seed, 3)
            assert is_job(job.folder)
            assert job.model.is_dir()
            assert not job.checkpoints.exists()
    assert {path.name for path in (folder / "out").iterdir()} == {"config.toml", "runs.jsonl", "runs", "result.json", "report.html"}


def test_models_are_removed_where_they_are_not_to_be_kept(backbones: Done) -> None:
    folder, _ = backbones
    left = {path.name for path in (folder / "out" / "runs" / "small" / "seed-0").iterdir()}
    assert left == {"checksums.json", "config.toml", "log.jsonl", "result.json", "report.html", "trained.bin"}


def test_scores_are_means_over_queries_tasks_and_seeds_of_what_the_rows_hold(data: Done) -> None:
    folder, found = data
    rows = rows_at(folder / "out" / "runs.jsonl")
    for standing in found.standings:
        of_runs = [fmean(fmean(task.values) for task in rows[standing.name, seed].tasks.values()) for seed in (0, 1)]
        assert standing.runs == pytest.approx(of_runs)
        assert standing.overall.score == pytest.approx(fmean(of_runs))
        for place, task in enumerate(("asked", "listed")):
            values = [fmean(rows[standing.name, seed].tasks[task].values) for seed in (0, 1)]
            assert standing.tasks[place].score == pytest.approx(fmean(values))
        start = fmean(fmean(task.values) for task in rows["", None].tasks.values())
        assert standing.gain.difference == pytest.approx(standing.overall.score - start)
        assert found.starts[0].overall.score == pytest.approx(start)
        assert standing.measures["nDCG@10"] == pytest.approx(standing.overall.score)


def test_candidates_stand_highest_first_and_are_compared_with_the_first(data: Done) -> None:
    _, found = data
    first, second = found.standings
    assert first.overall.score >= second.overall.score
    assert first.to_best is None
    assert second.to_best is not None
    assert second.to_best.difference == pytest.approx(second.overall.score - first.overall.score)
    low, high = second.to_best.interval
    assert low < second.to_best.difference < high
    assert first.best_share + second.best_share == pytest.approx(1)
    assert (found.measure, found.seeds, found.resamples) == ("nDCG@10", [0, 1], 200)
    assert [(task.name, task.kind, task.queries, task.documents) for task in found.tasks] == [
        ("asked", "ranking", 9, 16),
        ("listed", "pairs", 8, 11),
    ]


def test_what_a_candidate_took_stands_beside_its_score(data: Done, backbones: Done) -> None:
    near = next(one for one in data[1].standings if one.name == "near")
    assert (near.steps, near.pairs, near.passes, near.speed) == (3, 24, 18 / 24, None)
    assert near.step_seconds is not None
    assert near.trained < near.parameters
    small, large = (next(one for one in backbones[1].standings if one.name == name) for name in ("small", "large"))
    assert small.parameters < large.parameters
    for one in (small, large):
        assert one.speed is not None
        assert (one.speed.texts, one.speed.rounds) == (8, 3)
        assert 0 < one.speed.slowest <= one.speed.texts_per_second <= one.speed.fastest


def test_backbones_have_starts_of_their_own_and_data_sets_share_one(data: Done, backbones: Done) -> None:
    assert [(start.model, start.candidate) for start in data[1].starts] == [("tiny", "")]
    assert [(start.model, start.candidate) for start in backbones[1].starts] == [("small", "small"), ("tiny", "large")]
    # The tiny model is the start of both comparisons, and is measured alike in both.
    assert data[1].starts[0].overall.score == backbones[1].starts[1].overall.score


def test_the_files_say_what_was_returned(data: Done) -> None:
    folder, found = data
    written = read_json(folder / "out" / "result.json", remedy="")
    assert written == json.loads(json.dumps(found.to_json()))
    assert written["settings"]["candidates"][1]["data"]["columns"] == {"query": "question", "positive": "answer"}
    assert found.standings[0].name in (folder / "out" / "report.html").read_text(encoding="utf-8")
    config = tomllib.loads((folder / "out" / "config.toml").read_text(encoding="utf-8"))
    assert config["candidates"]["far"]["train"]["steps"] == 3
    assert is_described(folder / "out", "candidates")
    assert not is_job(folder / "out")


def test_a_run_is_what_train_makes_of_the_same_settings(data: Done, tmp_path: Path) -> None:
    from adiabat.dual_encoder.train import train

    folder, _ = data
    settings = settings_of("data", folder)
    train(tiny, settings.training(settings.candidates[0], seed=1, out=tmp_path / "job"))
    one, other = (tiny(str(place), settings.encoder) for place in (tmp_path / "job", folder / "out" / "runs" / "near" / "seed-1"))
    assert np.array_equal(one.encode(["about memo 7"], side="query"), other.encode(["about memo 7"], side="query"))


SPEC = """
[compare]
out = "which-data"
seeds = [0]

[job]
model = "tiny"

[data]
validation_fraction = 0.3

[train]
steps = 2
batch_size = 6

[run]
device = "cpu"

[measure]
measures = ["RR"]
resamples = 100

[[tasks]]
data = "asked.jsonl"
corpus = "corpus.jsonl"

[[candidates]]
name = "near"
job.data = "near.jsonl"

[[candidates]]
name = "both, equally"
data.sources = [
    {path = "near.jsonl"},
    {path = "far.jsonl", columns = {query = "question", positive = "answer"}},
]
mixture.rule = "equal"
"""


def test_a_spec_is_read_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_world(tmp_path)
    (tmp_path / "SPEC.toml").write_text(SPEC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = run(read_settings(COMPARISONS["data"], Path("SPEC.toml")))
    assert found.measure == "RR"
    assert {(one.name, one.trained_on, one.steps) for one in found.standings} == {
        ("near", "near.jsonl", 2),
        ("both, equally", "near.jsonl + far.jsonl", 2),
    }
    assert found.run_deviation is None
    assert (tmp_path / "which-data" / "report.html").is_file()


# --- What is refused, before anything is trained ---


@pytest.fixture
def here(tmp_path: Path) -> Path:
    write_world(tmp_path)
    return tmp_path


def refused(kind: type[Exception], settings: CompareSettings, *, resume: bool = False) -> str:
    def never(*_: Any) -> Any:
        raise AssertionError("a model was loaded")

    with pytest.raises(kind) as caught:
        compare(never, settings, resume=resume)
    return str(caught.value)


def test_a_stream_is_no_candidate(here: Path) -> None:
    settings = settings_of("data", here, data={"stream": True, "validation": str(here / "near.jsonl"), "validation_fraction": 0.1})
    told = refused(DataError, settings)
    assert 'candidate "near": data.stream must be left out of a comparison, which reads its candidates before it trains on any' in told


def test_what_is_missing_is_told_at_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    settings = settings_of(
        "data",
        here,
        tasks=[],
        candidates=[{"name": "one", "job": {"data": "d"}, "data": {"split": "x"}}],
        measure={"measures": ["nDGC@10"]},
        train={"freeze": ["blocks["]},
    )
    settings = settings.model_copy(update={"compare": settings.compare.model_copy(update={"out": None})})
    said = refused(ConfigError, settings)
    for part in (
        "compare.out must be given, got none",
        "[[candidates]] must list at least two, got 1",
        "[[tasks]] must list at least one, got none",
        "adiabat compare must run in one process, got 2",
        "got 'nDGC@10'; write one like nDCG@10",
        'candidate "one": ',
    ):
        assert part in said, said


def test_faults_of_all_training_data_come_before_any_model(here: Path) -> None:
    lines(here / "near.jsonl", [{"query": "q", "pos": []}])
    said = refused(DataError, settings_of("data", here, train={"batch_size": 25}))
    assert 'candidate "near": ' in said
    assert "must name at least one document, got none" in said
    assert 'candidate "far": far: train.batch_size must be at most the 22 pairs trained on, got 25; lower it' in said
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"train": {"loss": "triplet"}}, "negative"),
        ({"batches": {"group": "topic"}}, "pairs must be of several topics where batches.group is topic, got one"),
    ],
)
def test_data_that_do_not_suit_the_run_are_told_for_every_candidate(tables: dict[str, Any], said: str, here: Path) -> None:
    told = refused(DataError, settings_of("data", here, **tables))
    assert told.startswith('2 faults: candidate "near": ')
    assert 'candidate "far": ' in told
    assert told.count(said) >= 2


def test_a_model_that_cannot_be_had_or_trained_is_found_before_the_first_run(here: Path) -> None:
    def load(name: str, section: Any) -> Any:
        if name == "nowhere":
            raise ModelError("nowhere must be a model")
        return tiny(name, section)

    models = [{"name": "small", "job": {"model": "small"}}, {"name": "gone", "job": {"model": "nowhere"}}]
    with pytest.raises(ModelError, match="gone, untrained: nowhere must be a model"):
        compare(load, settings_of("backbones", here, candidates=models))
    assert not (here / "out" / "runs").exists()
    frozen = [models[0], {"name": "odd", "job": {"model": "tiny"}, "train": {"freeze": ["blocks[7]"]}}]
    with pytest.raises(ModelError, match="odd, untrained: "):
        compare(load, settings_of("backbones", here, candidates=frozen), resume=True)
    assert not (here / "out" / "runs").exists()


def test_a_directory_of_something_else_is_left_alone(here: Path) -> None:
    (here / "out").mkdir()
    (here / "out" / "notes.txt").write_text("mine")
    assert "must be a new or empty directory" in refused(JobError, settings_of("data", here))
    assert [path.name for path in (here / "out").iterdir()] == ["notes.txt"]


def test_a_run_that_fails_is_named_and_what_was_finished_is_kept(here: Path) -> None:
    settings = settings_of("data", here, compare={"seeds": [0]}, train={"learning_rate": 1e30, "max_grad_norm": 0.0})
    with pytest.raises(JobError, match="near, seed 0: the .* must be a finite number"):
        run(settings)
    assert ("", None) in rows_at(here / "out" / "runs.jsonl")


def test_runs_on_other_queries_are_not_ranked_together(here: Path) -> None:
    settings = settings_of("data", here, compare={"seeds": [0]})
    run(settings)
    rows = rows_at(here / "out" / "runs.jsonl")
    shorter = replace(rows["far", 0].tasks["asked"], values=[0.5])
    rows.add(replace(rows["far", 0], tasks={**rows["far", 0].tasks, "asked": shorter}))
    with pytest.raises(DataError, match="task asked: every run must be measured on the same queries, got 9 and 1; start anew"):
        run(settings, resume=True)


def test_a_candidate_that_was_trained_on_queries_of_a_task_is_named_and_called_neither_better_nor_worse(tmp_path: Path) -> None:
    write_world(tmp_path)
    asked = [json.loads(line) for line in (tmp_path / "asked.jsonl").read_text().splitlines()]
    with (tmp_path / "near.jsonl").open("a") as file:
        file.writelines(json.dumps({"query": row["query"].upper(), "positive": f"some {row['pos'][0]}"}) + "\n" for row in asked[:4])
    found = run(settings_of("data", tmp_path, compare={"seeds": [0]}))
    (note,) = found.notes
    assert note.startswith("near was trained or validated on 4 of 9 queries of asked; these are more than a tenth")


@pytest.mark.parametrize(("trained", "verdict"), [(1, "better"), (2, "no evidence")])
def test_a_candidate_that_was_trained_on_more_than_a_tenth_of_a_task_has_no_verdict(tmp_path: Path, trained: int, verdict: str) -> None:
    write_world(tmp_path)
    settings = settings_of("data", tmp_path, compare={"seeds": [0]})
    run(settings)
    rows = rows_at(tmp_path / "out" / "runs.jsonl")

    def scored(row: Row, value: float, trained: int) -> Row:
        values = [value + 1e-3 * place for place in range(10)]
        tasks = {name: replace(task, values=values, trained=trained) for name, task in row.tasks.items()}
        return replace(row, tasks=tasks)

    for name, seed in [("near", 0), ("far", 0), ("", None)]:
        rows.add(scored(rows[name, seed], 0.9 if name == "near" else 0.1, trained if name == "near" else 0))
    found = run(settings, resume=True)
    near, far = found.standings
    assert (near.name, near.gain.verdict) == ("near", verdict)
    assert far.to_best is not None
    assert far.to_best.verdict == ("worse" if verdict == "better" else verdict)


def test_it_says_which_run_it_is_at_and_each_note_once(here: Path) -> None:
    said: list[str] = []
    labels: set[str] = set()
    watch = Watch(note=said.append, progress=lambda label, done, total: labels.add(label.partition(" (")[0]))
    compare(tiny, settings_of("data", here, compare={"seeds": [4]}), watch=watch)
    assert [sentence for sentence in said if ": run " in sentence] == ["near, seed 4: run 1 of 2", "far, seed 4: run 2 of 2"]
    assert len(said) == len(set(said))
    assert {"reading corpora", "reading training data", "near, seed 4: training", "tiny, untrained: ranking asked"} <= labels
