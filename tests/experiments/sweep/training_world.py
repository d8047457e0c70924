"""A whole sweep over training runs in a second: tiny models, pairs that share words with their answers, and
two tasks.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adiabat.config.reader import checked
from adiabat.config.shared import EncoderSection
from adiabat.config.sweeps import TrainSweepSettings
from adiabat.core.progress import Watch
from adiabat.experiments.sweep import sweep
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.loading import load
from adiabat.models.towers import DualEncoder
from adiabat.results.sweep_result import SweepResult
from adiabat.runs.run_config import Job, is_job
from tests.tiny import tiny_dual

KINDS = ("paper", "note", "memo", "letter", "book")
TABLES: dict[str, Any] = {
    "data": {"validation_fraction": 0.3},
    "train": {"steps": 3, "batch_size": 6, "validate_every": 3, "learning_rate": 3e-3},
    "run": {"log_every": 1, "device": "cpu"},
    "measure": {"resamples": 200, "report": ["nDCG@10", "RR"]},
}


def lines(path: Path, rows: Sequence[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_world(folder: Path) -> None:
    """Two sets of pairs, and two tasks: a corpus with queries by id, and a file of triplets."""
    texts = [f"{KINDS[number % 5]} {number * number}" for number in range(30)]
    lines(folder / "near.jsonl", [{"query": f"about {text}", "positive": text} for text in texts])
    lines(
        folder / "far.jsonl",
        [{"question": f"who {number}?", "answer": f"nobody {number * 7}"} for number in range(30)],
    )
    documents = [f"{KINDS[number % 5]} {number * number + 1}" for number in range(16)]
    lines(
        folder / "corpus.jsonl",
        [{"_id": f"d{number}", "text": text} for number, text in enumerate(documents)],
    )
    lines(
        folder / "asked.jsonl",
        [{"query": f"about {text}", "pos": [f"d{number}"]} for number, text in enumerate(documents[:9])],
    )
    rows = [
        {"query": f"מה {text}", "pos": [text], "neg": [documents[(n + 3) % 16]]}
        for n, text in enumerate(documents[:8])
    ]
    lines(folder / "listed.jsonl", rows)


def tiny(name: str, section: EncoderSection) -> DualEncoder:
    """A loader: the directory of a job, or a model of a seed and a width made from the name."""
    if is_job(Path(name)):
        return load(Job(Path(name)).model)
    del section
    settings = EncoderSettings(max_tokens=48)
    return tiny_dual(width=8 if name == "small" else 16, seed=int(name == "other"), settings=settings)


def settings_of(kind: str, folder: Path, **tables: Any) -> TrainSweepSettings:
    """A sweep over two data sets or two models with two seeds on two tasks, under these further tables."""
    variants: dict[str, list[dict[str, Any]]] = {
        "data": [
            {"name": "near", "job": {"data": str(folder / "near.jsonl")}},
            {
                "name": "far",
                "job": {"data": str(folder / "far.jsonl")},
                "data": {"columns": {"query": "question", "positive": "answer"}},
            },
        ],
        "models": [{"name": "small", "job": {"model": "small"}}, {"name": "large", "job": {"model": "tiny"}}],
    }
    base: dict[str, Any] = {
        **TABLES,
        "sweep": {"verb": "train", "out": str(folder / "out"), "seeds": [0, 1]},
        "job": {"model": "tiny"} if kind == "data" else {"data": str(folder / "near.jsonl")},
        "tasks": [
            {
                "kind": "retrieval",
                "name": "asked",
                "data": str(folder / "asked.jsonl"),
                "corpus": str(folder / "corpus.jsonl"),
            },
            {"kind": "triplets", "data": str(folder / "listed.jsonl")},
        ],
        "variants": variants[kind],
        "speed": {"texts": 8, "rounds": 3},
    }
    merged = {
        name: {**base.get(name, {}), **table} if isinstance(table, dict) else table
        for name, table in tables.items()
    }
    return checked(TrainSweepSettings, {**base, **merged})


def brief(folder: Path, **tables: Any) -> TrainSweepSettings:
    """One seed and one task, unless the tables say otherwise."""
    task = {
        "kind": "retrieval",
        "name": "asked",
        "data": str(folder / "asked.jsonl"),
        "corpus": str(folder / "corpus.jsonl"),
    }
    return settings_of("data", folder, **{"sweep": {"seeds": [0]}, "tasks": [task], **tables})


def run(settings: TrainSweepSettings, *, resume: bool = False, notes: list[str] | None = None) -> SweepResult:
    """Make a sweep, with every note kept."""
    said = [] if notes is None else notes
    return sweep(tiny, settings, resume=resume, command="adiabat sweep", watch=Watch(note=said.append))


def settings_in(result: SweepResult) -> list[str]:
    """Names of the settings that are compared with one another."""
    return [model.name for model in result.models if model.name not in result.starts]
