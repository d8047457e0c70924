"""Three sources to stream, and jobs over them."""

from pathlib import Path
from typing import Any

from adiabat.config.dual_training import TrainSettings
from tests.dual_encoder.problem import settings_of, write_rows

SIZES = (12, 24, 48)
TOPICS = ("cooking", "travel", "chess")


def write_streams(folder: Path) -> list[dict[str, Any]]:
    """Three files; a third of each file's queries share their answer, some have several, all list a
    negative.
    """
    for number, count in enumerate(SIZES):
        rows = []
        for n in range(count):
            answer = f"answer {number} {n - n % 3 if n % 9 < 3 else n}"
            positives = [answer, f"more {n}"] if n % 7 == 0 else [answer]
            row = {"query": f"what of {number} {n}", "positive": positives}
            rows.append({**row, "negative": f"no {n % 5}", "topic": TOPICS[n % 3]})
        write_rows(folder / f"{number}.jsonl", rows)
    held = [{"query": f"held {n}", "positive": f"out {n}", "negative": f"no {n}"} for n in range(7)]
    write_rows(folder / "held.jsonl", held)
    return [{"path": str(folder / f"{number}.jsonl")} for number in range(len(SIZES))]


def stream_settings(folder: Path, out: Path, **tables: dict[str, Any]) -> TrainSettings:
    """A short job over windows of 20 examples."""
    data = {
        "sources": write_streams(folder),
        "validation": str(folder / "held.jsonl"),
        "stream": {"shard_size": 20},
    }
    train = {"batch_size": 4, "steps": 24, "validate_every": 8, "learning_rate": 3e-3, "dropout": True}
    return settings_of(
        **{
            **tables,
            "job": {"model": "tiny", "out": str(out)},
            "data": {**data, "cache": str(folder / "cache"), **tables.get("data", {})},
            "mixture": {"rule": "equal", **tables.get("mixture", {})},
            "train": {**train, **tables.get("train", {})},
            "run": {"log_every": 1, **tables.get("run", {})},
        }
    )
