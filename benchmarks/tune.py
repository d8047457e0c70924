"""Triplets per second of query-tower tuning: stored document vectors against sentence-transformers with a
frozen document route.

Both sides have the same model, triplets (real texts), batch 14, cosine triplet loss with margin 0.1, fused
AdamW, frozen embedding block, and float32. sentence-transformers encodes both documents of every triplet at
every step; adiabat reads their vectors.

    python benchmarks/tune.py [--pairs 5] [--steps 20]
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from peer_triplets import (
    BATCH_SIZE,
    MARGIN,
    RATE,
    Triplet,
    examples_of,
    pair_by_pair,
    peer_trainers,
    spread,
    texts_of,
    triplets_of,
)
from transformers.utils import logging

import adiabat
from adiabat.adiabatic.tuning_context import TuningContext
from adiabat.config.reader import checked
from adiabat.config.tuning import TuneSettings
from adiabat.datasets.bundled import DEMO_TRAIN
from adiabat.models.freezing import freeze
from adiabat.models.towers import trainable_copy
from adiabat.runs.run_log import JobLog
from adiabat.training.checkpoint import Limits
from adiabat.training.loop import Loop
from adiabat.training.optimizers import Schedule, make_optimizer
from adiabat.training.passes import side_passes


def main() -> None:
    """Alternate both sides and print the ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=5, help="alternating measurements of each side")
    parser.add_argument(
        "--steps",
        type=int,
        default=20,
        help="optimiser steps per measurement of the peer; adiabat takes five times as many",
    )
    arguments = parser.parse_args()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        triplets = triplets_of(examples_of(DEMO_TRAIN)[: arguments.steps * BATCH_SIZE], texts_of())
        peer = peer_side(triplets, Path(folder) / "peer")
        ours = our_side(triplets, Path(folder), 5 * arguments.steps)
        report(alternate(ours, peer, arguments.pairs))


def peer_side(triplets: list[Triplet], folder: Path) -> Callable[[], float]:
    """A function that trains one epoch with sentence-transformers and gives triplets per second."""
    trainer_of = peer_trainers(triplets, folder)
    # Its own clock, which leaves the trainer's setting up out.
    return lambda: float(trainer_of().train().metrics["train_samples_per_second"])


def our_side(triplets: list[Triplet], folder: Path, steps: int) -> Callable[[], float]:
    """A function that runs adiabat's loop over stored vectors, and gives triplets per second."""
    path = folder / "triplets.jsonl"
    rows = [
        json.dumps({"query": query, "pos": [positive], "neg": [negative]})
        for query, positive, negative in triplets
    ]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    model = adiabat.load("demo")
    adiabat.embed(model, path, folder / "store")
    settings = checked(
        TuneSettings, {"tune": {"loss": {"margin": MARGIN}, "learning_rate": RATE, "batch_size": BATCH_SIZE}}
    )
    tower = trainable_copy(model.query).train(False)
    freeze(tower.backbone, settings.tune.freeze)
    objective = TuningContext(lambda: model, folder / "store", str(path)).objective(tower, settings)

    def measure() -> float:
        trainable = [weights for weights in tower.parameters() if weights.requires_grad]
        loop = Loop(
            objective=objective,
            optimizer=make_optimizer("adamw", trainable, learning_rate=RATE, weight_decay=0.01),
            learning_rate=RATE,
            schedule=Schedule(),
            limits=Limits(steps_per_epoch=steps + 1, max_epochs=2, idle_epochs=2),
            folder=folder / "checkpoints",
            log=JobLog(folder / "log.jsonl"),
        )
        with side_passes(tower, precision="fp32") as objective.passes:
            started = time.perf_counter()
            for _ in range(steps):
                loop.step()
            return steps * BATCH_SIZE / (time.perf_counter() - started)

    return measure


def alternate(ours: Callable[[], float], peer: Callable[[], float], pairs: int) -> list[tuple[float, float]]:
    """Measure in turn, after one warm-up of each."""
    ours(), peer()
    return [(ours(), peer()) for _ in range(pairs)]


def report(measured: list[tuple[float, float]]) -> None:
    """Print medians, ranges and the ratio."""
    for name, column in (("adiabat", 0), ("sentence-transformers", 1)):
        print(f"{name}: {spread([pair[column] for pair in measured], 'triplets/s')}")
    ratios = [one / other for one, other in measured]
    print(f"{pair_by_pair(ratios)}; {torch.get_num_threads()} threads")
    print(f"tune: ratio {statistics.median(ratios):.1f} (target 10)")


if __name__ == "__main__":
    main()
