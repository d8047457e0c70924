"""What jobs leave behind, whichever verb they come from, and how they are cut short."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from adiabat.models.encoder import Encoder
from adiabat.models.loading import load
from adiabat.results.record import read_result
from adiabat.runs.run_log import read_log
from adiabat.training.loop import Loop
from tests.tiny import files_of

FILES = {
    "checkpoints",
    "checksums.json",
    "config.toml",
    "log.jsonl",
    "model",
    "report.html",
    "result.json",
    "trained.bin",
}
"""Of a finished job."""


def weights_of(encoder: Encoder) -> dict[str, bytes]:
    """Every bit of an encoder."""
    return {name: weights.detach().numpy().tobytes() for name, weights in encoder.named_parameters()}


def log_of(out: Path) -> list[dict[str, Any]]:
    """Rows of a job's log, but the seconds."""
    return [
        {key: value for key, value in row.items() if key != "seconds"} for row in read_log(out / "log.jsonl")
    ]


def everything(out: Path) -> dict[str, Any]:
    """What a finished job leaves, but the seconds and the time of day."""
    newest = max((out / "checkpoints").iterdir())
    tensors = {
        name: tensor.numpy().tobytes() for name, tensor in load_file(newest / "state.safetensors").items()
    }
    result = read_result(out / "result.json").training
    assert result is not None
    towers = load(out / "model")
    return {
        "model": files_of(out / "model"),
        "query": weights_of(towers.query),
        "document": weights_of(towers.document),
        "checkpoint": (newest.name, tensors),
        "log": log_of(out),
        "errors": result.validation_errors,
        "best": result.best_epoch,
        "layers": result.layers,
        "steps": result.steps,
    }


def interrupt_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send Ctrl-C while a step is taken."""
    take = Loop.step

    def interrupted(self: Loop) -> None:
        if self.position.step == step:
            os.kill(os.getpid(), signal.SIGINT)
        take(self)

    monkeypatch.setattr(Loop, "step", interrupted)


def refuse_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where any further step is taken."""
    monkeypatch.setattr(Loop, "step", lambda self: pytest.fail("a step was taken"))
