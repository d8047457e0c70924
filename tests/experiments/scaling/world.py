"""Small sweeps: a tiny model of four blocks, pairs that share words with their answers; and rows that no run
made.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adiabat.config.budgets import PlanSettings, ScalingSettings
from adiabat.config.reader import checked
from adiabat.config.shared import EncoderSection
from adiabat.core.progress import Watch
from adiabat.experiments.plan import plan
from adiabat.experiments.scaling import scaling
from adiabat.experiments.scaling_analysis import rows_at
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.towers import DualEncoder
from adiabat.results.scaling_result import Advice, Choice, Reason, ScalingResult, ScalingRun
from adiabat.scaling_laws.flops import PassedParameters, training_flops
from adiabat.scaling_laws.laws import Method, Way
from tests.commands import lines
from tests.tiny import save_tiny

Truth = Callable[[float, float], float]

KINDS = ("paper", "note", "memo", "letter", "book")
SIZES = (1_000_000, 4_000_000, 16_000_000, 64_000_000)
BUDGETS = (1e13, 4e13, 1.6e14, 6.4e14)
BUDGET = 4 * BUDGETS[-1]
"""That plans are asked for."""
TRUTHS: dict[Method, Truth] = {
    "full": lambda size, tokens: 0.2 + 30 / size**0.3 + 50 / tokens**0.3,
    "lora": lambda size, tokens: 0.2 + 40 / size**0.3 + 50 / tokens**0.3,
}


def write_world(folder: Path) -> None:
    """What a scaling experiment reads."""
    save_tiny(folder / "model", width=16, layers=4, settings=EncoderSettings(max_tokens=48))
    texts = [f"{KINDS[number % 5]} {number * number}" for number in range(60)]
    lines(folder / "pairs.jsonl", [{"query": f"about {text}", "positive": text} for text in texts])
    lines(folder / "corpus.jsonl", [{"_id": f"d{n}", "text": text} for n, text in enumerate(texts[:20])])
    asked = [{"query": f"about {text}", "pos": [f"d{n}"]} for n, text in enumerate(texts[:9])]
    lines(folder / "asked.jsonl", asked)


def tables_of(folder: Path, **tables: Any) -> dict[str, Any]:
    """Three sizes by full training at three budgets, under these further tables."""
    usual: dict[str, Any] = {
        "scaling": {"out": str(folder / "out"), "budgets": [2e7, 4e7, 8e7], "least_steps": 1, "resamples": 8},
        "models": [tiny(folder)],
        "job": {"data": str(folder / "pairs.jsonl")},
        "data": {"validation_fraction": 0.3, "cache": str(folder / "cache")},
        "train": {"batch_size": 12, "validate_every": 100},
        "run": {"device": "cpu"},
    }
    for name, table in tables.items():
        usual[name] = {**usual.get(name, {}), **table} if isinstance(table, dict) else table
    return usual


def tiny(folder: Path, name: str = "tiny", blocks: Sequence[int] = (1, 2, 4), **more: str) -> dict[str, Any]:
    """The tiny model under a name, with these numbers of its blocks."""
    rate = {"pretraining_rate": 0.03}
    return {"model": str(folder / "model"), "name": name, "blocks": list(blocks), **rate, **more}


def settings_of(folder: Path, **tables: Any) -> ScalingSettings:
    """Those of `tables_of`, checked."""
    return checked(ScalingSettings, tables_of(folder, **tables))


def load(name: str, section: EncoderSection) -> DualEncoder:
    """A model of a directory or a job."""
    import adiabat

    return adiabat.load(name, settings=section)


def run(settings: ScalingSettings, *, resume: bool = False, notes: list[str] | None = None) -> ScalingResult:
    """Make a scaling experiment."""
    said = notes if notes is not None else []
    return scaling(load, settings, resume=resume, command="adiabat scaling", watch=Watch(note=said.append))


def row(
    method: Method,
    size: int,
    budget: float,
    loss: float,
    *,
    rank: int | None = None,
    frozen: int = 0,
    seed: int = 0,
    family: str = "",
    scores: dict[str, float] | None = None,
) -> ScalingRun:
    """A run that nobody made."""
    updated = {
        "full": size,
        "lora": size * (rank or 0) // 640,
        "bias": size // 1000,
        "freezing": size * (4 - frozen) // 4,
    }[method]
    whole = size + (updated if method == "lora" else 0)
    passed = PassedParameters(whole, updated if method == "freezing" else whole, updated)
    way = Way(family, f"m{size // 1_000_000}", f"models/m{size // 1_000_000}", None, method, rank, frozen)
    tokens = budget / training_flops(passed, 1.0)
    return ScalingRun(
        name=f"{way.title}, {budget:g} FLOP, seed {seed}",
        way=way,
        parameters=passed,
        learning_rate=1e-3,
        batch_size=32,
        budget=budget,
        seed=seed,
        status="done",
        reason="the last step",
        steps=100,
        tokens=tokens,
        flops=budget,
        loss=1.1 * loss,
        validation_loss=loss,
        validation={"P@1": 0.5, "RR": 0.6},
        queries=100,
        seconds=12.0,
        memory=size * 20,
        device="CPU",
        scores=scores or {},
    )


def rows_of(
    truths: dict[Method, Truth] = TRUTHS, *, noise: float = 0.005, seed: int = 0, scored: bool = False
) -> list[ScalingRun]:
    """A whole sweep that nobody made, small budgets first."""
    generator = np.random.default_rng(seed)
    found = []
    for budget in BUDGETS:
        for method, truth in truths.items():
            for size in SIZES:
                rank = 32 if method == "lora" else None
                bare = row(method, size, budget, 1.0, rank=rank)
                loss = truth(size, bare.tokens) * math.exp(noise * generator.standard_normal())
                scores = {}
                if scored:
                    scores["sts"] = 1 - loss + 0.01 * generator.standard_normal()
                    scores["search"] = 0.5 - loss / 5
                found.append(row(method, size, budget, loss, rank=rank, scores=scores))
    return found


def asked(runs: Path | None, **section: Any) -> PlanSettings:
    """A plan that measures nothing."""
    usual: dict[str, Any] = {"budget": BUDGET}
    usual |= {} if runs is None else {"runs": str(runs), "resamples": 8, "measure": False}
    return checked(PlanSettings, {"plan": {**usual, **section}})


def written(folder: Path, rows: list[ScalingRun]) -> Path:
    """A file of rows."""
    path = folder / "runs.parquet"
    kept = rows_at(path)
    # Each addition writes the file anew: all but the last are put there before.
    kept._rows.update((one.name, one) for one in rows[:-1])
    kept.add(rows[-1])
    return path


def advice_of(result: ScalingResult) -> Advice:
    """That there is."""
    assert result.advice is not None
    return result.advice


def advised(runs: Path | None, **section: Any) -> Advice:
    """Of a plan that measures nothing."""
    return advice_of(plan(load, asked(runs, **section)))


def best_of(advice: Advice) -> Choice:
    """That there is."""
    assert advice.best is not None
    return advice.best


def reason_of(advice: Advice, what: str) -> Reason:
    """The reason for one recommended value."""
    return next(reason for reason in advice.reasons if reason.what == what)
