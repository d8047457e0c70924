"""Three streams killed at several moments, and resumed: the same sequence of examples, log and weights, bit for bit.

python -m tests.dual_encoder.test_streams_killed FOLDER has the jobs killed, each in a process of its own that ends itself by SIGKILL.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest
import torch
from torch import Tensor

from adiabat.config.dual_training import TrainSettings
from adiabat.dual_encoder import stream as streams
from adiabat.dual_encoder.contrastive_objective import PairContrast
from adiabat.dual_encoder.stream_shards import Row, Sources, append_row
from adiabat.dual_encoder.train import train
from tests.dual_encoder.problem import from_memory
from tests.dual_encoder.streamed import stream_settings
from tests.jobs import everything
from tests.pages import without_pages

ROOT = Path(__file__).resolve().parents[2]
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
        return read(self, number, starts, lambda examples, place: die() if number == shard and place == 1 else take(examples, place))

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
            "towers": {"kind": "asymmetric", "frozen": "document"},
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
        batch, texts = self._batch(step), self.train.texts
        line = {"step": step, "queries": texts.queries.take(batch.query), "documents": texts.documents.take(batch.documents)}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return loss(self, step)

    patch.setattr(PairContrast, "loss", noted)


def begin(settings: TrainSettings, moment: Moment | None, *, resume: bool) -> int:
    """Train in a process of its own; returns its exit status, the number of the signal where one ended it."""
    child = os.fork()
    if not child:
        try:
            patch = pytest.MonkeyPatch()
            note_sequence(patch, Path(str(settings.job.out) + SEQUENCE))
            if moment is not None:
                moment(patch)
            train(from_memory, settings, resume=resume)
        finally:
            os._exit(sys.exc_info()[0] is not None)
    return os.waitpid(child, 0)[1]


def main(folder: Path) -> None:
    """Each job without interruption, and killed at every moment."""
    torch.set_num_threads(1)
    without_pages(pytest.MonkeyPatch())
    # What pyarrow and torch import with their first array and optimizer is imported once, not in each child.
    pa.array(["text"])
    torch.optim.SGD([torch.zeros(1)]).step()
    for number, (tables, moments) in enumerate(JOBS.values()):
        whole, cut = (stream_settings(folder, folder / f"{kind}-{number}", **tables) for kind in ("whole", "cut"))
        statuses = [begin(whole, None, resume=False)]
        statuses += [begin(cut, moment, resume=place > 0) for place, moment in enumerate((*moments, None))]
        print(json.dumps(statuses), flush=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each job without interruption, and killed at every moment."""
    here = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-m", "tests.dual_encoder.test_streams_killed", str(here)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    killed = [[0, *[signal.SIGKILL] * len(moments), 0] for _, moments in JOBS.values()]
    assert [json.loads(line) for line in done.stdout.splitlines()] == killed, done.stderr
    return here


def sequence(path: Path) -> dict[int, Any]:
    """What each step learned from; a step that was taken again must have learned from the same."""
    found: dict[int, Any] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        assert found.setdefault(row["step"], row) == row
    return found


@pytest.mark.parametrize("number", range(len(JOBS)))
def test_examples_shards_notes_and_all_that_a_job_leaves_are_those_of_the_uninterrupted_run(folder: Path, number: int) -> None:
    whole, cut = (folder / f"{kind}-{number}" for kind in ("whole", "cut"))
    steps = sequence(Path(f"{whole}{SEQUENCE}"))
    assert list(steps) == list(range(24))
    assert sequence(Path(f"{cut}{SEQUENCE}")) == steps
    assert everything(cut) == everything(whole)
    rows, notes = [], []
    for job in (whole, cut):
        rows.append((job / "stream" / "shards.jsonl").read_text())
        notes.append(json.loads((job / "result.json").read_text())["training"]["notes"])
        assert not list((job / "stream").glob(".*"))
    assert rows[0] == rows[1]
    assert len(rows[0].splitlines()) > 5
    assert notes[0] == notes[1]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
