"""Three streams killed at several moments, and resumed: the same sequence of examples, log and weights, bit
for bit.
"""

import json
import os
import signal
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
from torch import Tensor

from adiabat.config.dual_training import TrainSettings
from adiabat.dual_encoder import stream as streams
from adiabat.dual_encoder.contrastive_objective import PairContrast
from adiabat.dual_encoder.stream_shards import Row, Sources, append_row
from adiabat.dual_encoder.train import train
from tests.dual_encoder.problem import FROZEN, from_memory
from tests.dual_encoder.streamed import stream_settings
from tests.forks import exit_code
from tests.jobs import everything

SEQUENCE = "sequence.jsonl"
Moment = Callable[[pytest.MonkeyPatch], None]


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("alive")


def in_step(step: int) -> Moment:
    def moment(patch: pytest.MonkeyPatch) -> None:
        loss = PairContrast.loss
        patch.setattr(PairContrast, "loss", lambda self, now: die() if now == step else loss(self, now))

    return moment


def while_reading(shard: int) -> Moment:
    read = Sources.read

    def dying(self: Sources, number: int, starts: Any, take: Any) -> Any:
        def taken(examples: Any, place: int) -> None:
            die() if number == shard and place == 1 else take(examples, place)

        return read(self, number, starts, taken)

    return lambda patch: patch.setattr(Sources, "read", dying)


def noting(shard: int, *, part: float) -> Moment:
    """Where a part of a row reached the disk, or all of it."""

    def dying(path: Path, row: Row) -> None:
        if row.shard == shard and part < 1:
            line = json.dumps(asdict(row))
            with path.open("a") as file:
                file.write(line[: int(part * len(line))])
            die()
        append_row(path, row)
        if row.shard == shard:
            die()

    return lambda patch: patch.setattr(streams, "append_row", dying)


def forgetting(step: int) -> Moment:
    forget = streams.Stream.forget

    def dying(self: streams.Stream, number: int, *others: Path) -> None:
        forget(self, number, *others)
        if self.rows[-1].first + self.rows[-1].steps > step:
            die()

    return lambda patch: patch.setattr(streams.Stream, "forget", dying)


JOBS: dict[str, tuple[dict[str, Any], tuple[Moment, ...]]] = {
    "topics, each source in its batches, a checkpoint at every step": (
        {
            "mixture": {"exhausted": "cycle", "one_source_per_batch": True},
            "batches": {"group": {"kind": "topic", "curriculum_steps": 20}, "no_duplicates": True},
            "run": {"checkpoint_seconds": 1e-6},
        },
        (
            *(in_step(3), while_reading(1), noting(2, part=0.0), noting(2, part=0.6)),
            *(in_step(15), noting(4, part=1.0), in_step(21), forgetting(19)),
        ),
    ),
    "a frozen tower and a guide, few checkpoints": (
        {
            "mixture": {"exhausted": "drop"},
            "towers": FROZEN,
            "train": {"loss": {"guide": "other"}, "keep": "best"},
            "run": {"checkpoint_seconds": 1e6},
        },
        (in_step(3), noting(2, part=0.6), noting(4, part=1.0), in_step(21)),
    ),
}


def note_sequence(patch: pytest.MonkeyPatch, path: Path) -> None:
    """Write down what each step learns from."""
    loss = PairContrast.loss

    def noted(self: PairContrast, step: int) -> Tensor:
        batch = self._batch(step)
        texts = {"queries": self.train.texts.queries.take(batch.query)}
        texts["documents"] = self.train.texts.documents.take(batch.documents)
        line = {"step": step, **texts}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return loss(self, step)

    patch.setattr(PairContrast, "loss", noted)


def begin(settings: TrainSettings, moment: Moment | None) -> None:
    """Begin a job, or go on with it, until a moment or to the end."""
    with pytest.MonkeyPatch.context() as patch:
        note_sequence(patch, Path(str(settings.job.out) + SEQUENCE))
        if moment is not None:
            moment(patch)
        train(from_memory, settings, resume=Path(settings.job.out).exists())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each job without interruption, and killed at every moment."""
    here = tmp_path_factory.mktemp("killed")
    for number, (tables, moments) in enumerate(JOBS.values()):
        whole, cut = (stream_settings(here, here / f"{kind}-{number}", **tables) for kind in ("whole", "cut"))
        begin(whole, None)
        died = [exit_code(partial(begin, cut, moment)) for moment in moments]
        assert died == [-signal.SIGKILL] * len(moments)
        begin(cut, None)
    return here


def sequence(path: Path) -> dict[int, Any]:
    """What each step learned from; a step that was taken again must have learned from the same."""
    found: dict[int, Any] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        assert found.setdefault(row["step"], row) == row
    return found


@pytest.mark.parametrize("number", range(len(JOBS)))
def test_examples_shards_notes_and_all_that_a_job_leaves_are_those_of_the_uninterrupted_run(
    folder: Path, number: int
) -> None:
    whole, cut = (folder / f"{kind}-{number}" for kind in ("whole", "cut"))
    steps = sequence(Path(f"{whole}{SEQUENCE}"))
    assert list(steps) == list(range(24))
    assert sequence(Path(f"{cut}{SEQUENCE}")) == steps
    assert everything(cut) == everything(whole)
    files = [(job / "stream" / "shards.jsonl").read_text() for job in (whole, cut)]
    assert files[0] == files[1]
    assert len(files[0].splitlines()) > 5
    results = [json.loads((job / "result.json").read_text()) for job in (whole, cut)]
    assert results[0]["training"]["notes"] == results[1]["training"]["notes"]
    assert not [path for job in (whole, cut) for path in (job / "stream").glob(".*")]
