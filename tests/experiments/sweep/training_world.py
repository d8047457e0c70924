"""A whole sweep over training runs in a second: tiny models, pairs that share words with their answers, and
two tasks.
"""

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
from tests.commands import lines
from tests.experiments.sweep.world import retrieval_task
from tests.tiny import tiny_dual

KINDS = ("paper", "note", "memo", "letter", "book")
FAR = {"query": "question", "positive": "answer"}
"""Columns of far.jsonl."""
TABLES: dict[str, Any] = {
    "data": {"validation_fraction": 0.3},
    "train": {"steps": 3, "batch_size": 6, "validate_every": 3, "learning_rate": 3e-3},
    "run": {"log_every": 1, "device": "cpu"},
    "measure": {"resamples": 200, "report": ["nDCG@10", "RR"]},
}


def write_world(folder: Path) -> None:
    """Two sets of pairs, and two tasks: a corpus with queries by id, and a file of triplets."""
    texts = [f"{KINDS[number % 5]} {number * number}" for number in range(30)]
    lines(folder / "near.jsonl", [{"query": f"about {text}", "positive": text} for text in texts])
    far = [{"question": f"who {number}?", "answer": f"nobody {number * 7}"} for number in range(30)]
    lines(folder / "far.jsonl", far)
    documents = [f"{KINDS[number % 5]} {number * number + 1}" for number in range(16)]
    lines(folder / "corpus.jsonl", [{"_id": f"d{n}", "text": text} for n, text in enumerate(documents)])
    asked = [{"query": f"about {text}", "pos": [f"d{n}"]} for n, text in enumerate(documents[:9])]
    lines(folder / "asked.jsonl", asked)
    listed = [
        {"query": f"מה {text}", "pos": [text], "neg": [documents[(n + 3) % 16]]}
        for n, text in enumerate(documents[:8])
    ]
    lines(folder / "listed.jsonl", listed)


def near(folder: Path, name: str = "near", **tables: Any) -> dict[str, Any]:
    """A variant that is trained on near.jsonl."""
    return {"name": name, "job": {"data": str(folder / "near.jsonl")}, **tables}


def mixed(folder: Path, name: str) -> dict[str, Any]:
    """A variant that is trained on both files, as much on one as on the other."""
    far = {"path": str(folder / "far.jsonl"), "columns": FAR}
    data = {"sources": [{"path": str(folder / "near.jsonl")}, far]}
    return {"name": name, "data": data, "mixture": {"rule": "equal"}}


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
            near(folder),
            {"name": "far", "job": {"data": str(folder / "far.jsonl")}, "data": {"columns": FAR}},
        ],
        "models": [{"name": "small", "job": {"model": "small"}}, {"name": "large", "job": {"model": "tiny"}}],
    }
    base: dict[str, Any] = {
        **TABLES,
        "sweep": {"verb": "train", "out": str(folder / "out"), "seeds": [0, 1]},
        "job": {"model": "tiny"} if kind == "data" else {"data": str(folder / "near.jsonl")},
        "tasks": [
            retrieval_task(folder, "asked"),
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
    usual: dict[str, Any] = {"sweep": {"seeds": [0]}, "tasks": [retrieval_task(folder, "asked")]}
    return settings_of("data", folder, **{**usual, **tables})


def run(settings: TrainSweepSettings, *, resume: bool = False, notes: list[str] | None = None) -> SweepResult:
    """Make a sweep, with every note kept."""
    said = [] if notes is None else notes
    return sweep(tiny, settings, resume=resume, command="adiabat sweep", watch=Watch(note=said.append))


def settings_in(result: SweepResult) -> list[str]:
    """Names of the settings that are compared with one another."""
    return [model.name for model in result.models if model.name not in result.starts]
