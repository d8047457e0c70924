"""Two processes, started as torchrun starts them, train as one does on the whole batch."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from adiabat.config.shared import EncoderSection
from adiabat.core.progress import Watch
from adiabat.core.provenance import CHECKED
from adiabat.dual_encoder.train import train as run_training
from adiabat.models.loading import load
from tests.dual_encoder.problem import FROZEN, Problem, from_memory, job_settings, write_problem
from tests.forks import exit_code
from tests.jobs import log_of

JOBS: dict[str, dict[str, Any]] = {
    "shared negatives": {
        "train": {
            "loss": {"kind": "samtone", "same_tower": "both", "guide": "self", "temperature": "learned"}
        }
    },
    "own negatives": {
        "train": {
            "loss": {"negatives_shared": False, "negatives_per_query": 2, "guide": "other"},
            "keep": "best",
        },
        "towers": {"kind": "shared_projection", "projection_width": 8},
        "memory": {"cached": True, "chunk_tokens": 60, "loss_tile": 2},
    },
    "triplets against frozen documents": {
        "train": {"loss": {"kind": "triplet", "margin": 0.3, "negatives_per_query": 2}},
        "towers": FROZEN,
    },
    "windows of a stream": {
        "data": {"stream": {"shard_size": 12}, "validation": "pairs.jsonl"},
        "towers": FROZEN,
    },
}


def run_all(folder: Path, out: Path) -> list[str]:
    """Every job, without dropout, which each process draws for itself; returns what was said.

    By SGD: AdamW would move weights by the sign of gradients that are nothing but rounding, such as those of
    attention's key biases.
    """
    said: list[str] = []
    for name, tables in JOBS.items():
        regime = {
            "optimizer": "sgd",
            "learning_rate": 0.05,
            "dropout": False,
            "steps": 6,
            "validate_every": 3,
        }
        data = dict(tables.get("data", {}))
        if "validation" in data:
            data["validation"] = str(folder / data["validation"])
        own = {**tables, "data": data, "train": {**tables.get("train", {}), **regime}}
        settings = job_settings(Problem(folder), out / name, **own)
        run_training(from_memory, settings, watch=Watch(note=said.append))
    return said


def work(folder: Path) -> int:
    """All jobs, in one of the processes; returns how much it said."""
    torch.set_num_threads(1)
    return len(run_all(folder, folder / "two"))


def launch(folder: Path, said: int) -> None:
    """Start the processes, of which only the first says as much as one alone."""
    meeting = {"run_id": "test", "rdzv_backend": "c10d", "rdzv_endpoint": "127.0.0.1:0"}
    config = LaunchConfig(1, 1, 2, start_method="fork", max_restarts=0, **meeting)
    assert elastic_launch(config, work)(folder) == {0: said, 1: 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same jobs by one process and by two."""
    here = tmp_path_factory.mktemp("together")
    write_problem(here)
    said = run_all(here, here / "one")
    assert exit_code(partial(launch, here, len(said))) == 0
    return here


def weights_of(job: Path) -> dict[str, Tensor]:
    towers = load(job / "model")
    return {
        f"{side} {name}": weights
        for side in ("query", "document")
        for name, weights in towers.tower(side).named_parameters()
    }


def numbers_of(job: Path) -> list[list[Any]]:
    return [list(row.values()) for row in log_of(job)]


@pytest.mark.parametrize("name", JOBS)
def test_weights_and_log_are_those_of_one_process(folder: Path, name: str) -> None:
    one, two = (folder / count / name for count in ("one", "two"))
    numbers = [np.concatenate(numbers_of(job)) for job in (two, one)]
    np.testing.assert_allclose(*numbers, rtol=1e-3, atol=1e-5)
    assert [list(row) for row in log_of(one)] == [list(row) for row in log_of(two)]
    found, wanted = weights_of(two), weights_of(one)
    assert found.keys() == wanted.keys()
    for key, weights in wanted.items():
        told = partial("{}: {}".format, key)
        torch.testing.assert_close(found[key], weights, rtol=1e-4, atol=1e-5, msg=told)
    start = dict(from_memory("tiny", EncoderSection()).query.named_parameters())
    moved = [float((found[f"query {key}"] - weights).detach().abs().max()) for key, weights in start.items()]
    assert max(moved) > 0.002


@pytest.mark.parametrize("name", JOBS)
def test_one_process_alone_writes(folder: Path, name: str) -> None:
    one, two = (
        sorted(str(path.relative_to(job)) for path in job.rglob("*"))
        for job in (folder / count / name for count in ("one", "two"))
    )
    # Each process keeps what it embedded by a tower that does not change; which checksums were compared is
    # remembered a moment later.
    own = ("-1.f32", "-1.npy", CHECKED)
    shared = [[path for path in paths if not path.endswith(own)] for paths in (one, two)]
    assert shared[0] == shared[1]
