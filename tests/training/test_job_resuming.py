"""Jobs of every kind that are cut short, or go on: what resuming them gives, and what it refuses."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import adiabat
from adiabat.config.distillation import FitSettings
from adiabat.config.reader import checked
from adiabat.core.errors import InterruptionError, InUseError, JobError
from adiabat.core.files import sole_writer
from adiabat.models.saving import save
from tests.adiabatic import problem as tuning
from tests.dual_encoder import problem as training
from tests.dual_encoder.streamed import stream_settings
from tests.dual_encoder.test_order import settings_for
from tests.jobs import everything, interrupt_at, log_of, refuse_steps
from tests.pages import without_pages
from tests.refused import one_line
from tests.tiny import tiny_dual

Job = Callable[..., Any]
"""Runs a job in a folder; takes `resume`, `notes`, and how long it is: 1 or 2 times four steps, and four
more."""


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        without_pages(patch)
        yield


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data and models of all jobs."""
    folder = tmp_path_factory.mktemp("world")
    for name in ("tune", "train", "sources", "stream", "distill"):
        (folder / name).mkdir()
    tuning.write_problem(folder / "tune")
    training.write_problem(folder / "train")
    for name, options in {"teacher": {"seed": 1}, "student": {"seed": 3}}.items():
        save(tiny_dual(**options), folder / "distill" / name)
    rows = [{"id": str(number), "text": f"a text of {number * number}"} for number in range(60)]
    (folder / "distill" / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def steps_of(length: int) -> dict[str, Any]:
    """Settings under which a longer job begins as a shorter one does."""
    return {"steps": 4 * (length + 1), "schedule": "constant", "warmup_steps": 2}


def trained(**tables: Any) -> Job:
    """A training job over one file."""

    def job(world: Path, out: Path, *, length: int = 2, **how: Any) -> Any:
        train = {**steps_of(length), **tables.get("train", {})}
        return training.run(
            training.job_settings(training.Problem(world / "train"), out, **{**tables, "train": train}), **how
        )

    return job


def mixed(world: Path, out: Path, *, length: int = 2, **how: Any) -> Any:
    """A training job over a mixture of sources, in batches of a topic without equal texts."""
    settings = settings_for(
        world / "sources",
        job={"model": "tiny", "out": str(out)},
        mixture={"rule": "equal", "exhausted": "cycle", "one_source_per_batch": True},
        batches={"group": {"kind": "topic", "curriculum_steps": 20}, "no_duplicates": True},
        train={"batch_size": 4, "validate_every": 4, **steps_of(length)},
        run={"log_every": 1},
    )
    return training.run(settings, **how)


def streamed(world: Path, out: Path, *, length: int = 2, **how: Any) -> Any:
    """A training job over a stream, with a frozen tower."""
    tables = {
        "towers": {"kind": "asymmetric", "frozen": "document"},
        "train": {"validate_every": 4, **steps_of(length)},
    }
    return training.run(stream_settings(world / "stream", out, **tables), **how)


def tuned(**tune: Any) -> Job:
    """A tuning job."""

    def job(world: Path, out: Path, *, length: int = 2, **how: Any) -> Any:
        here = tuning.Problem(
            tuning.problem_model(), world / "tune" / "store", world / "tune" / "triplets.jsonl"
        )
        return tuning.run(here, out, tuning.settings_of(tune={**tune, "max_epochs": length + 1}), **how)

    return job


def distilled(
    world: Path, out: Path, *, length: int = 2, resume: bool = False, notes: list[str] | None = None
) -> Any:
    """A student that is fitted to its teacher."""
    del notes
    here = world / "distill"
    tables = {
        "distill": {"teachers": [str(here / "teacher")], "student": str(here / "student"), "out": str(out)},
        "data": {"texts": [str(here / "corpus.jsonl")], "validation_fraction": 0.2},
        "train": {"batch_size": 8, "validate_every": 4, **steps_of(length)},
        "run": {"device": "cpu"},
    }
    return adiabat.distill_fit(settings=checked(FitSettings, tables), resume=resume)


JOBS: dict[str, Job] = {
    "train": trained(
        train={
            "loss": {"negatives_per_query": 1, "temperature": "learned"},
            "keep": "best",
            "learning_rate": 0.015,
        },
        towers={"kind": "shared_projection", "projection_width": 8},
        memory={"cached": True, "chunk_tokens": 60},
    ),
    "train adapters": trained(
        train={
            "loss": {"kind": "samtone", "same_tower": "both"},
            "method": {"kind": "lora", "rank": 4},
            "optimizer": "adafactor",
        }
    ),
    "train beside frozen documents": trained(
        train={"loss": {"guide": "self"}, "optimizer": "sgd", "schedule": "exponential"},
        towers={"kind": "asymmetric", "frozen": "document"},
    ),
    "train on a mixture": mixed,
    "train on a stream": streamed,
    **{
        f"tune by {optimizer}": tuned(
            optimizer=optimizer, dropout=True, loss="in_batch_softmax", negatives="hardest"
        )
        for optimizer in ("adamax-no-momentum", "sgd")
    },
    "tune adapters": tuned(method={"kind": "lora", "rank": 4}, keep="last"),
    "distill": distilled,
}
each_job = pytest.mark.parametrize("name", JOBS)


@pytest.fixture(scope="module")
def whole(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Each job, without interruption."""
    finished: dict[str, Path] = {}

    def job(name: str) -> Path:
        if name not in finished:
            finished[name] = tmp_path_factory.mktemp("whole") / "job"
            JOBS[name](world, finished[name])
        return finished[name]

    return job


@each_job
def test_a_job_stopped_by_ctrl_c_is_resumed_bit_for_bit(
    world: Path, whole: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for place, step in enumerate((1, 9)):
        with monkeypatch.context() as patch:
            interrupt_at(step, patch)
            with one_line(InterruptionError, f"stopped at step {step + 1};", "resume=True"):
                JOBS[name](world, tmp_path / "job", resume=place > 0)
        assert not (tmp_path / "job" / "model").exists()
    JOBS[name](world, tmp_path / "job", resume=True)
    assert everything(tmp_path / "job") == everything(whole(name))


@each_job
def test_a_finished_job_goes_on_to_a_later_end_as_one_that_never_stopped_and_then_ends_at_once(
    world: Path, whole: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    JOBS[name](world, tmp_path / "job", length=1)
    assert log_of(tmp_path / "job")[-1]["step"] < log_of(whole(name))[-1]["step"]
    longer = JOBS[name](world, tmp_path / "job", resume=True)
    left = everything(tmp_path / "job")
    refuse_steps(monkeypatch)
    assert JOBS[name](world, tmp_path / "job", resume=True).training == longer.training
    assert everything(tmp_path / "job") == left
    assert left == everything(whole(name))


@pytest.mark.parametrize("name", ["train", "tune by sgd", "distill"])
def test_a_job_is_in_the_way_of_another_and_has_one_writer(
    world: Path, whole: Callable[[str], Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = whole(name)
    left = everything(job)
    refuse_steps(monkeypatch)
    with one_line(JobError, str(job), "holds a job already", "resume=True"):
        JOBS[name](world, job)
    with sole_writer(job), one_line(InUseError, "one writer at a time"):
        JOBS[name](world, job, resume=True)
    assert everything(job) == left


@pytest.mark.parametrize(("made", "why"), [(False, "does not exist"), (True, "is empty")])
@pytest.mark.parametrize("name", ["train", "tune by sgd"])
def test_resuming_what_is_not_there_begins(
    world: Path, tmp_path: Path, name: str, made: bool, why: str
) -> None:
    notes: list[str] = []
    if made:
        (tmp_path / "job").mkdir()
    JOBS[name](world, tmp_path / "job", length=1, resume=True, notes=notes)
    assert notes[0] == f"resume found no job to resume, {tmp_path / 'job'} {why}: starting a new one"
    assert len(notes) > 1
