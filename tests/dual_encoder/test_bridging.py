"""Translation bridging: task pairs in one language and parallel sentences, in turn or mixed, in one run (Reimers 2021)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adiabat
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked
from adiabat.dual_encoder.train import prepared
from adiabat.training.distributed import ALONE
from tests.tiny import save_tiny


@pytest.fixture
def here(tmp_path: Path) -> Path:
    save_tiny(tmp_path / "model")
    task = [{"query": f"question {number}", "positive": f"answer {number}"} for number in range(200)]
    parallel = [{"en": f"sentence {number}", "de": f"Satz {number}"} for number in range(60)]
    for name, rows in (("task", task), ("parallel", parallel)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def sources_of_batches(here: Path, *, in_turn: bool) -> list[np.ndarray]:
    tables: dict[str, Any] = {
        "job": {"model": str(here / "model"), "out": str(here / "job")},
        "data": {
            "sources": [
                {"path": str(here / "task.jsonl")},
                {"path": str(here / "parallel.jsonl"), "columns": {"query": "de", "positive": "en"}},
            ]
        },
        "mixture": {"rule": "equal", "exhausted": "cycle", "one_source_per_batch": in_turn},
        "train": {"batch_size": 10, "steps": 30},
    }
    objective, _ = prepared(lambda name, section: adiabat.load(name, settings=section), checked(TrainSettings, tables), ALONE)
    return [objective.train.sources[objective.rows(step)] for step in range(30)]


def test_task_pairs_and_parallel_sentences_take_turns(here: Path) -> None:
    batches = sources_of_batches(here, in_turn=True)
    assert all(len(np.unique(sources)) == 1 for sources in batches)
    order = [int(sources[0]) for sources in batches]
    assert all(sorted(order[place : place + 2]) == [0, 1] for place in range(0, 30, 2))


def test_or_stand_in_every_batch_in_equal_parts(here: Path) -> None:
    for sources in sources_of_batches(here, in_turn=False):
        assert abs(int(sources.sum()) - 5) <= 2
