"""A comparison that was cut short goes on where it was, to the same end; one that is finished may grow, and may not change."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adiabat.config.comparison_settings import CompareSettings
from adiabat.core.errors import ConfigError, JobError
from adiabat.core.progress import Watch
from adiabat.dual_encoder import train as training
from adiabat.experiments import comparison_runs as runs
from adiabat.experiments.comparison import compare
from adiabat.experiments.comparison_rows import rows_at
from adiabat.experiments.comparison_runs import encoding_speeds
from adiabat.results.comparison_result import Comparison
from adiabat.runs.run_config import read_description
from adiabat.runs.run_dir import Job
from adiabat.training.limits import InterruptionError
from adiabat.training.loop import Loop
from tests.experiments.comparison.world import lines, run, settings_of, tiny, write_world
from tests.pages import EVERY, without_pages
from tests.runs.before import forget


class Killed(BaseException):
    """What nothing catches."""


@pytest.fixture(autouse=True, scope="module")
def _no_pages() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        without_pages(patch, EVERY)
        yield


@pytest.fixture
def here(tmp_path: Path) -> Path:
    write_world(tmp_path)
    return tmp_path


def untimed(found: Comparison) -> Any:
    """All that does not depend on the clock."""
    plain = found.to_json()
    for one in plain["standings"]:
        one["step_seconds"], one["trained_on"] = None, Path(one["trained_on"]).name
    return {key: value for key, value in plain.items() if key not in ("created", "seconds", "settings", "command")}


def killed_at(label: str, settings: CompareSettings) -> None:
    """Compare until something of that label is shown, and die there."""

    def progress(shown: str, done: int, total: int) -> None:
        if shown.startswith(label) and done:
            raise Killed

    with pytest.raises(Killed):
        compare(tiny, settings, watch=Watch(progress=progress))


def brief(folder: Path, **tables: Any) -> CompareSettings:
    """One seed and one task, unless it is said otherwise."""
    task = {"name": "asked", "data": str(folder / "asked.jsonl"), "corpus": str(folder / "corpus.jsonl")}
    return settings_of("data", folder, **{"compare": {"seeds": [0]}, "tasks": [task], **tables})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Never cut short."""
    folder = tmp_path_factory.mktemp("whole")
    write_world(folder)
    return run(brief(folder))


@pytest.mark.parametrize("label", ["tiny, untrained: embedding", "near, seed 0: training", "far, seed 0: ranking"])
def test_a_killed_comparison_ends_as_one_that_was_not(label: str, here: Path, whole: Comparison) -> None:
    killed_at(label, brief(here))
    assert untimed(run(brief(here), resume=True)) == untimed(whole)


def test_what_is_finished_is_not_made_again(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = brief(here)
    killed_at("far, seed 0: training", settings)
    trained: list[tuple[str, int]] = []

    def noted(load: Any, own: Any, **more: Any) -> Any:
        trained.append((Path(own.job.data).stem, own.run.seed))
        return training.train(load, own, **more)

    monkeypatch.setattr(runs, "train", noted)
    run(settings, resume=True)
    assert trained == [("far", 0)]
    before = (here / "out" / "runs.jsonl").read_bytes()
    run(settings, resume=True)
    assert len(trained) == 1
    assert (here / "out" / "runs.jsonl").read_bytes() == before


def test_an_interrupted_run_goes_on_from_its_checkpoint(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = brief(here, run={"checkpoint_seconds": 1e-9})
    step = Loop.step
    taken: list[int] = []

    def stopped(self: Loop) -> None:
        step(self)
        taken.append(self.position.step)
        if len(taken) == 2:
            raise InterruptionError("stopped at step 2; run the same command with --resume to go on")

    monkeypatch.setattr(Loop, "step", stopped)
    with pytest.raises(InterruptionError, match="^stopped at step 2; run the same command"):
        run(settings)
    monkeypatch.setattr(Loop, "step", lambda self: (taken.append(self.position.step + 1), step(self))[1])
    run(settings, resume=True)
    # The second step was taken and not yet kept: it is taken again, and the first is not.
    assert taken[:4] == [1, 2, 2, 3]


def test_seeds_and_candidates_may_be_added_and_left_out(here: Path, whole: Comparison) -> None:
    first = {one.name: one.runs[0] for one in whole.standings}
    run(brief(here))
    both = run(brief(here, compare={"seeds": [0, 1]}), resume=True)
    assert {one.name: one.runs[0] for one in both.standings} == first
    near, far = (candidate.model_dump() for candidate in brief(here).candidates)
    third = {**far, "name": "third", "data": {**far["data"], "max_validation": 5}}
    grown = run(brief(here, candidates=[near, third]), resume=True)
    assert {one.name for one in grown.standings} == {"near", "third"}
    # What was left out is still known: it comes back without a run, and only as it was.
    rows = (here / "out" / "runs.jsonl").read_bytes()
    assert {one.name: one.runs[0] for one in run(brief(here), resume=True).standings} == first
    assert (here / "out" / "runs.jsonl").read_bytes() == rows
    with pytest.raises(JobError, match="candidates.far.data.max_validation was 1000, is 5"):
        run(brief(here, candidates=[near, {**third, "name": "far"}]), resume=True)


def test_backbones_are_timed_together_and_again_when_one_is_added(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[list[str]] = []

    def noted(models: Any, texts: Any, **more: Any) -> Any:
        timed.append(list(models))
        return encoding_speeds(models, texts, **more)

    monkeypatch.setattr(runs, "encoding_speeds", noted)
    tables: dict[str, Any] = {"compare": {"seeds": [0]}, "tasks": brief(here).model_dump()["tasks"]}
    two = settings_of("backbones", here, **tables)
    run(two)
    run(two, resume=True)
    third = {"name": "other", "job": {"model": "other"}}
    candidates = [candidate.model_dump() for candidate in two.candidates]
    found = run(settings_of("backbones", here, candidates=[*candidates, third], **tables), resume=True)
    assert timed == [["small", "large"], ["small", "large", "other"]]
    assert all(one.speed is not None for one in found.standings)


def test_another_comparison_is_refused_with_what_differs(here: Path) -> None:
    settings = brief(here)
    run(settings)
    with pytest.raises(JobError, match="holds a comparison already; go on with it by --resume"):
        run(settings)
    with pytest.raises(JobError, match=r"candidates.far.train.steps was 3, is 4.*candidates.near.train.steps was 3, is 4"):
        run(brief(here, train={"steps": 4}), resume=True)
    lines(here / "asked.jsonl", [{"query": "other", "pos": ["d1"]}])
    with pytest.raises(JobError, match="tasks.asked.examples_sha256 was"):
        run(settings, resume=True)


def test_a_comparison_of_before_settings_existed_goes_on_with_their_defaults_alone(here: Path, whole: Comparison) -> None:
    run(brief(here))
    job = Job(here / "out")
    described = read_description(job)
    forget(job, "candidates.near.train.keep", "candidates.far.batches", "tasks.asked.blank", "measure.depth")
    assert untimed(run(brief(here), resume=True)) == untimed(whole)
    assert read_description(job) == described
    forget(job, "candidates.near.train.batch_size", "candidates.near.train.keep", "tasks.asked.examples_sha256")
    told = "2 differences: candidates.near.train.batch_size was 'not set', is 6; tasks.asked.examples_sha256 was 'not set', is "
    with pytest.raises(JobError, match=told):
        run(brief(here), resume=True)


def test_what_changes_no_number_may_change(here: Path) -> None:
    first = run(brief(here))
    again = run(
        brief(here, memory={"chunk_tokens": 999}, measure={"resamples": 300}, run={"seed": 5}),
        resume=True,
    )
    assert [one.runs for one in again.standings] == [one.runs for one in first.standings]
    assert (again.resamples, again.seed) == (300, 5)
    assert again.standings[0].overall.interval != first.standings[0].overall.interval


def test_data_that_changed_under_its_name_is_refused_by_the_next_run(here: Path) -> None:
    run(brief(here))
    rows = (here / "near.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (here / "near.jsonl").write_text("".join(rows[:-1]), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"near, seed 1: digests.examples must be .*the inputs have changed since"):
        run(brief(here, compare={"seeds": [0, 1]}), resume=True)
    assert ("near", 1) not in rows_at(here / "out" / "runs.jsonl")


def test_beginning_with_resume_is_said(here: Path) -> None:
    notes: list[str] = []
    run(brief(here), resume=True, notes=notes)
    assert notes[0].endswith("holds no comparison yet, so there is nothing to go on with: beginning")
