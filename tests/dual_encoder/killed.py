"""What test_streams_killed.py has killed: jobs over three streams, each in a process of its own that ends itself by SIGKILL.

python -m tests.dual_encoder.killed FOLDER
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

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
from tests.pages import without_pages

SEQUENCE = "sequence.jsonl"
JOBS: dict[str, dict[str, Any]] = {
    "topics, each source in its batches, a checkpoint at every step": {
        "mixture": {"exhausted": "cycle", "one_source_per_batch": True},
        "batches": {"group": {"kind": "topic", "curriculum_steps": 20}, "no_duplicates": True},
        "run": {"checkpoint_seconds": 1e-6},
    },
    "a frozen tower and a guide, few checkpoints": {
        "mixture": {"exhausted": "drop"},
        "towers": {"kind": "asymmetric", "frozen": "document"},
        "train": {"loss": {"guide": "other"}, "keep": "best"},
        "run": {"checkpoint_seconds": 1e6},
    },
}


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("alive")


def in_step(step: int) -> None:
    loss = PairContrast.loss

    def dying(self: PairContrast, now: int) -> Tensor:
        return die() if now == step else loss(self, now)

    vars_of(PairContrast, "loss", dying)


def while_reading(window: int) -> None:
    read = Sources.read

    def dying(self: Sources, number: int, starts: Any, take: Any) -> Any:
        return read(self, number, starts, lambda examples, place: die() if number == window and place == 1 else take(examples, place))

    vars_of(Sources, "read", dying)


def noting(window: int, *, before: bool, part: float) -> None:
    append = append_row

    def dying(path: Path, row: Row) -> None:
        if row.window == window and before:
            line = json.dumps(row.to_json())
            with path.open("a") as file:
                file.write(line[: int(part * len(line))])
            die()
        append(path, row)
        if row.window == window:
            die()

    vars(streams)["append_row"] = dying


def forgetting(step: int) -> None:
    forget = streams.Stream.forget

    def dying(self: streams.Stream, number: int, *others: Path) -> None:
        forget(self, number, *others)
        if self.rows[-1].first + self.rows[-1].steps > step:
            die()

    vars_of(streams.Stream, "forget", dying)


def vars_of(kind: type, name: str, function: Callable[..., Any]) -> None:
    setattr(kind, name, function)


MOMENTS: tuple[Callable[[], None], ...] = (
    lambda: in_step(3),
    lambda: while_reading(1),
    lambda: noting(2, before=True, part=0.0),
    lambda: noting(2, before=True, part=0.6),
    lambda: in_step(15),
    lambda: noting(4, before=False, part=1.0),
    lambda: in_step(21),
    # Where a checkpoint is made at every step; elsewhere the run ends without another.
    lambda: forgetting(19),
)


def note_sequence(path: Path) -> None:
    """Write down what each step learns from."""
    loss = PairContrast.loss

    def noted(self: PairContrast, step: int) -> Tensor:
        batch, texts = self._batch(step), self.train.texts
        line = {"step": step, "queries": texts.queries.take(batch.query), "documents": texts.documents.take(batch.documents)}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return loss(self, step)

    vars_of(PairContrast, "loss", noted)


def begin(settings: TrainSettings, moment: Callable[[], None] | None, *, resume: bool) -> int:
    """Train in a process of its own; returns its exit status, the number of the signal where one ended it."""
    child = os.fork()
    if not child:
        try:
            note_sequence(Path(str(settings.job.out) + SEQUENCE))
            if moment is not None:
                moment()
            train(from_memory, settings, resume=resume)
        finally:
            os._exit(sys.exc_info()[0] is not None)
    return os.waitpid(child, 0)[1]


def main(folder: Path) -> None:
    """Each job without interruption, and killed at every moment."""
    torch.set_num_threads(1)
    without_pages(pytest.MonkeyPatch())
    for number, (name, tables) in enumerate(JOBS.items()):
        whole, cut = (stream_settings(folder, folder / f"{kind}-{number}", **tables) for kind in ("whole", "cut"))
        statuses = [begin(whole, None, resume=False)]
        statuses += [begin(cut, moment, resume=place > 0) for place, moment in enumerate(MOMENTS)]
        statuses.append(begin(cut, None, resume=True))
        print(json.dumps({"job": name, "statuses": statuses}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
