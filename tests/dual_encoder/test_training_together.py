"""Two processes train as one does on the whole batch."""

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from adiabat.config.shared import EncoderSection
from adiabat.core.checksums import CHECKED
from adiabat.models.loading import load
from tests.commands import one_thread
from tests.dual_encoder.problem import from_memory, write_problem
from tests.dual_encoder.together import JOBS, run_all
from tests.jobs import log_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same jobs by one process and by two."""
    here = tmp_path_factory.mktemp("together")
    write_problem(here)
    command = [sys.executable, "-m", "tests.dual_encoder.together", str(here)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    with one_thread():
        said = run_all(here, here / "one")
    assert done.stdout.split("\n")[-2] == str({0: len(said), 1: 0}), done.stderr
    return here


def weights_of(job: Path) -> dict[str, Tensor]:
    towers = load(job / "model")
    return {f"{side} {name}": weights for side in ("query", "document") for name, weights in towers.tower(side).named_parameters()}


def numbers_of(job: Path) -> list[list[Any]]:
    return [list(row.values()) for row in log_of(job)]


@pytest.mark.parametrize("name", JOBS)
def test_weights_and_log_are_those_of_one_process(folder: Path, name: str) -> None:
    one, two = (folder / count / name for count in ("one", "two"))
    np.testing.assert_allclose(np.concatenate(numbers_of(two)), np.concatenate(numbers_of(one)), rtol=1e-3, atol=1e-5)
    assert [list(row) for row in log_of(one)] == [list(row) for row in log_of(two)]
    found, wanted = weights_of(two), weights_of(one)
    assert found.keys() == wanted.keys()
    for key, weights in wanted.items():
        torch.testing.assert_close(found[key], weights, rtol=1e-4, atol=1e-5, msg=partial("{}: {}".format, key))
    start = dict(from_memory("tiny", EncoderSection()).query.named_parameters())
    assert max(float((found[f"query {key}"] - weights).abs().max().detach()) for key, weights in start.items()) > 0.003


@pytest.mark.parametrize("name", JOBS)
def test_one_process_alone_writes(folder: Path, name: str) -> None:
    one, two = (
        sorted(str(path.relative_to(folder / count / name)) for path in (folder / count / name).rglob("*")) for count in ("one", "two")
    )
    # Each process keeps what it embedded by a tower that does not change; which checksums were compared is remembered a moment later.
    own = ("-1.f32", "-1.npy", CHECKED)
    assert [path for path in two if not path.endswith(own)] == [path for path in one if not path.endswith(own)]
