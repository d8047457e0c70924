"""Small sweeps: a tiny model with its store, tasks of two kinds, and probes."""

from pathlib import Path
from typing import Any

from adiabat.config.reader import checked
from adiabat.config.shared import EncoderSection
from adiabat.config.sweeps import TuneSweepSettings
from adiabat.core.progress import Watch
from adiabat.experiments.sweep import sweep
from adiabat.models.towers import DualEncoder
from adiabat.results.sweep_result import SweepResult
from tests.adiabatic.problem import problem_model, write_problem
from tests.commands import lines

LANGUAGES = ("de", "en")
LABELS = ("entailment", "neutral", "contradiction")
QUERIES, DOCUMENTS, PAIRS = 40, 30, 18
SHORT = {"batches_per_epoch": 4, "max_epochs": 2}


def write_world(folder: Path) -> None:
    """Everything that a sweep reads."""
    write_problem(folder, queries=QUERIES, documents=DOCUMENTS)
    kinds = ["paper", "note", "memo"]
    texts = [f"{kinds[n % 3]} {n * n}" for n in range(DOCUMENTS)]
    lines(folder / "corpus.jsonl", [{"_id": f"d{n}", "text": text} for n, text in enumerate(texts)])
    asked = [{"query": f"which {kinds[n % 3]} is {n * n}", "pos": [f"d{n}"]} for n in range(20)]
    lines(folder / "test.jsonl", asked)
    pairs = [
        {
            "label": LABELS[n % 3],
            "premise": {language: f"{language} it is said {n}" for language in LANGUAGES},
            "hypothesis": {language: f"{language} so it is {n * 7 % 11}" for language in LANGUAGES},
        }
        for n in range(PAIRS)
    ]
    lines(folder / "grid.jsonl", pairs)
    lines(folder / "probes.txt", [f"a probe of {n} words" for n in range(25)])


def settings_of(folder: Path, **tables: Any) -> TuneSweepSettings:
    """Those of `tables_of`, checked."""
    return checked(TuneSweepSettings, tables_of(folder, **tables))


def tables_of(folder: Path, **tables: Any) -> dict[str, Any]:
    """Two rates, one seed, a ranking and a grid of languages."""
    usual: dict[str, Any] = {
        "sweep": {"out": str(folder / "out"), "seeds": [0]},
        "job": {"model": "tiny", "store": str(folder / "store"), "data": str(folder / "triplets.jsonl")},
        "data": {"validation_fraction": 0.3},
        "tune": {"loss": {"margin": 0.3}, "batch_size": 5, "keep": "last", **SHORT},
        "grid": {"tune": {"learning_rate": [1e-4, 3e-3]}},
        "tasks": [
            retrieval_task(folder, "test"),
            {"kind": "nli_grid", "name": "grid", "data": str(folder / "grid.jsonl")},
        ],
        "measure": {"resamples": 100},
        "probes": {"data": str(folder / "probes.txt"), "depth": 10},
    }
    for name, table in tables.items():
        usual[name] = {**usual.get(name, {}), **table} if isinstance(table, dict) else table
    # What the grid varies cannot be said beside it.
    usual["tune"] = {
        key: value for key, value in usual["tune"].items() if key not in usual["grid"].get("tune", {})
    }
    return usual


def retrieval_task(folder: Path, name: str) -> dict[str, str]:
    """The task of the file NAME.jsonl over the documents of corpus.jsonl."""
    data, corpus = str(folder / f"{name}.jsonl"), str(folder / "corpus.jsonl")
    return {"kind": "retrieval", "name": name, "data": data, "corpus": corpus}


def load(name: str, section: EncoderSection) -> DualEncoder:
    """The tiny model, or one that a run has saved."""
    if name == "tiny":
        return problem_model()
    import adiabat

    return adiabat.load(name, settings=section)


def run(settings: TuneSweepSettings, *, resume: bool = False, notes: list[str] | None = None) -> SweepResult:
    """Make a sweep."""
    said = notes if notes is not None else []
    return sweep(load, settings, resume=resume, command="adiabat sweep", watch=Watch(note=said.append))
