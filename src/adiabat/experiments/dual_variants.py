"""Runs of a sweep that tune both towers from the same start, as separate encoders: jobs of `adiabat train` under the adiabatic regime.

Reference: Vasilyev et al. 2024, figure 11a.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from adiabat.adiabatic.negatives import listed_negatives
from adiabat.adiabatic.tune import learning_rate_of
from adiabat.adiabatic.tuning_context import TuningContext
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked
from adiabat.config.section import value_at
from adiabat.config.training_choices import TripletTuning
from adiabat.config.tuning import TuneSection
from adiabat.core.errors import ConfigError, StoreError, several
from adiabat.core.files import write_text
from adiabat.core.ragged import Ragged
from adiabat.experiments.grid import SweepTrial
from adiabat.runs.run_dir import Job
from adiabat.store.addressing import AddressedSet
from adiabat.store.vector_store import Store

SIDES_APART: Mapping[str, Any] = {
    "tune.loss.kind": "triplet",
    "tune.negatives.kind": "examples",
    "tune.l2_to_start": 0.0,
}
"""Settings that have one value where both towers are tuned: the others need documents that stay."""


def require_possible(run: SweepTrial) -> None:
    """Refuse settings that tuning both towers does not know."""
    given = {name: value_at(run.tuned, name) for name in SIDES_APART}
    faults = [f"{name} must be left out" for name in ("guard", "rehearsal") if getattr(run.tuned, name) is not None]
    faults += [
        f"{name.removesuffix('.kind')} must be {json.dumps(value)}, got {json.dumps(given[name])}"
        for name, value in SIDES_APART.items()
        if given[name] != value
    ]
    if run.tuned.tune.learning_rate == "safe":
        faults.append('tune.learning_rate must be a number, got "safe"')
    if run.tuned.tune.schedule.kind == "exponential":
        faults.append('tune.schedule must go by steps, got "exponential"')
    if faults:
        raise ConfigError(f'{run.name}: where variants.towers = "both", {several(faults)}; change it, or set variants.towers = "query"')


def require_texts(store: Store) -> None:
    """Refuse a store whose documents cannot be encoded."""
    if not store.has_texts:
        raise StoreError(f'{store.path} must keep texts where variants.towers = "both", it holds vectors only; rebuild it with texts')


def train_settings(run: SweepTrial, context: TuningContext, job: Job) -> TrainSettings:
    """Write what a run trains and validates on, and what `adiabat train` is told.

    Queries, their first positives and their negatives are those of a run that tunes the query tower alone.
    """
    settings, section = run.tuned, run.tuned.tune
    files = {name: job.prepared / f"{name}.jsonl" for name in ("train", "validation")}
    job.prepared.mkdir(parents=True, exist_ok=True)
    train, validation = context.with_negatives(settings)
    negatives = listed_negatives(train, np.arange(len(train)), section)
    firsts = Ragged.of(train.positives[row][:1] for row in range(len(train)))
    _write(files["train"], _rows(train, firsts, negatives, context.store))
    _write(files["validation"], _rows(validation, validation.positives, validation.negatives, context.store))
    return checked(
        TrainSettings,
        {
            "job": {"model": context.inputs["model"], "data": str(files["train"]), "out": str(job.folder)},
            "encoder": settings.encoder.model_dump(exclude_unset=True),
            "data": {"validation": str(files["validation"]), "cache": str(job.prepared)},
            "towers": {"kind": "asymmetric"},
            "train": _regime(section, context.distance(section)),
            "run": settings.run.model_dump(),
        },
    )


def _regime(section: TuneSection, distance: str) -> dict[str, Any]:
    """``[train]`` of a run, in which settings of ``[tune]`` keep their meaning."""
    same = ("freeze", "optimizer", "weight_decay", "warmup_steps", "batch_size")
    told = {name: getattr(section, name) for name in (*same, "keep", "dropout")}
    assert isinstance(section.loss, TripletTuning)
    told["loss"] = {
        "kind": "triplet",
        "margin": section.loss.margin,
        "distance": distance,
        "negatives_per_query": section.negatives.per_query,
    }
    told |= {"method": section.method.model_dump(), "schedule": section.schedule.model_dump()}
    told |= {"learning_rate": learning_rate_of(section), "max_grad_norm": 0.0, "error_unit": "pairs"}
    told |= {"validate_every": section.batches_per_epoch, "steps": section.max_epochs * section.batches_per_epoch}
    if section.keep == "both":
        told["idle_epochs"] = section.idle_epochs
    return told


def _rows(examples: AddressedSet, positives: Ragged, negatives: Ragged, store: Store) -> Iterator[dict[str, Any]]:
    for row, query in enumerate(examples.queries):
        near, far = (list(dict.fromkeys(store.texts(rows[row]))) for rows in (positives, negatives))
        yield {"query_id": examples.query_ids[row], "query": query, "pos": near, "neg": far}


def _write(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    write_text("".join(json.dumps(row) + "\n" for row in rows), path)
