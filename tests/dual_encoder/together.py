"""What test_training_together.py has two processes train; they are started here, as torchrun starts them.

python -m tests.dual_encoder.together FOLDER
"""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from adiabat.core.progress import Watch
from adiabat.dual_encoder.train import train as run_training
from tests.dual_encoder.problem import Problem, from_memory, job_settings
from tests.pages import without_pages

JOBS: dict[str, dict[str, Any]] = {
    "shared negatives": {"train": {"loss": {"kind": "samtone", "same_tower": "both", "guide": "self", "temperature": "learned"}}},
    "own negatives": {
        "train": {"loss": {"negatives_shared": False, "negatives_per_query": 2, "guide": "other"}, "keep": "best"},
        "towers": {"kind": "shared_projection", "projection_width": 8},
        "memory": {"cached": True, "chunk_tokens": 60, "loss_tile": 2},
    },
    "triplets against frozen documents": {
        "train": {"loss": {"kind": "triplet", "margin": 0.3, "negatives_per_query": 2}},
        "towers": {"kind": "asymmetric", "frozen": "document"},
    },
    "windows of a stream": {
        "data": {"stream": {"shard_size": 12}, "validation": "pairs.jsonl"},
        "towers": {"kind": "asymmetric", "frozen": "document"},
    },
}


def run_all(folder: Path, out: Path) -> list[str]:
    """Every job, without dropout, which each process draws for itself; returns what was said.

    By SGD: AdamW would move weights by the sign of gradients that are nothing but rounding, such as those of attention's key biases.
    """
    without_pages(pytest.MonkeyPatch())
    said: list[str] = []
    for name, tables in JOBS.items():
        train = {**tables.get("train", {}), "optimizer": "sgd", "learning_rate": 0.05, "dropout": False, "steps": 6, "validate_every": 3}
        data = {key: str(folder / value) if key == "validation" else value for key, value in tables.get("data", {}).items()}
        settings = job_settings(Problem(folder), out / name, **{**tables, "data": data, "train": train})
        run_training(from_memory, settings, watch=Watch(note=said.append))
    return said


def work(folder: Path) -> int:
    """All jobs, in one of the processes; returns how much it said."""
    torch.set_num_threads(1)
    return len(run_all(folder, folder / "two"))


def main() -> None:
    """Start the processes; what they import is imported once."""
    config = LaunchConfig(1, 1, 2, run_id="test", rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:0", start_method="fork", max_restarts=0)
    print(elastic_launch(config, work)(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
