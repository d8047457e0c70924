"""Tuning steps per second on a GPU, recorded as CUDA graphs and taken operation by operation; and how far their weights differ.

Queries are those of the demo, documents random vectors. A step has 14 queries, the triplet loss, AdamW and frozen embeddings. Steps are
taken by the loop of `adiabat tune`, without validation and checkpoints.

    python benchmarks/gpu_tune.py [--model demo] [--precision fp32|bf16] [--negatives examples|hardest] [--documents 5600] [--steps 300]
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import adiabat
from adiabat.adiabatic.tuning_context import TuningContext, prepared_tower
from adiabat.adiabatic.tuning_loop import make_loop
from adiabat.config.reader import checked
from adiabat.config.tuning import TuneSettings
from adiabat.data.examples import read_examples
from adiabat.data.records import ExampleSet
from adiabat.datasets.bundled import DEMO_TRAIN
from adiabat.models.device import device_name, device_of
from adiabat.training.captured_step import RECORDERS
from adiabat.training.checkpoint import Limits
from adiabat.training.loop import Loop
from adiabat.training.passes import side_passes

BATCH_SIZE, MARGIN, RATE = 14, 0.1, 1e-6

COMPARED = 30
"""Steps after which weights are compared."""

TARGETS = {"examples": 250, "hardest": 150}
"""Recorded steps per second in float32 on one H100 or H200; hardest ones are those of 100,000 documents."""


def main() -> None:
    """Take both kinds of steps, and print their speeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--negatives", default="examples", choices=[*TARGETS])
    parser.add_argument("--documents", type=int, default=5_600)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    device = device_of(options.device)
    with tempfile.TemporaryDirectory() as folder:
        context, start = context_of(options, Path(folder))
        recorded, weights = measured(context, options, Path(folder) / "recorded")
        _, again = measured(context, options, Path(folder) / "again")
        with patch.dict(RECORDERS, clear=True):
            eager, eager_weights = measured(context, options, Path(folder) / "eager")
    change = (eager_weights - start).norm()
    print(f"{device_name(device)}, {options.precision}, {options.documents:,} documents, negatives = {options.negatives}")
    print(f"operation by operation: {eager:.0f} steps/s")
    print(f"a second run is equal bit for bit: {torch.equal(weights, again)}")
    print(f"after {COMPARED} steps both kinds differ by {float((weights - eager_weights).norm() / change):.2g} of the change's norm")
    print(f"gpu_tune: {recorded:.0f} steps/s (target {TARGETS[options.negatives]})")


def context_of(options: argparse.Namespace, folder: Path) -> tuple[TuningContext, Tensor]:
    """Random documents with the demo's queries, and the weights that are tuned."""
    model, drawn = adiabat.load(options.model), np.random.default_rng(0)
    vectors = drawn.standard_normal((options.documents, model.query.width), dtype=np.float32)
    adiabat.import_vectors(vectors, folder / "store", ids=[f"d{row}" for row in range(options.documents)])
    examples, rows = read_examples(DEMO_TRAIN), []
    assert isinstance(examples, ExampleSet)
    for example in examples.examples:
        positive, negative = drawn.choice(options.documents, size=2, replace=False)
        rows.append(json.dumps({"query": example.query, "pos": [f"d{positive}"], "neg": [f"d{negative}"]}))
    (folder / "triplets.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    context = TuningContext(lambda: model, folder / "store", str(folder / "triplets.jsonl"))
    return context, trained_weights(prepared_tower(model.query, settings_of(options))[0])


def settings_of(options: argparse.Namespace) -> TuneSettings:
    """The regime with another rate, so that weights move."""
    tune = {"loss": {"margin": MARGIN}, "learning_rate": RATE, "batch_size": BATCH_SIZE, "negatives": options.negatives}
    return checked(TuneSettings, {"tune": tune, "run": {"device": options.device, "precision": options.precision}})


def trained_weights(tower: torch.nn.Module) -> Tensor:
    """All weights that are not frozen, end to end."""
    return torch.cat([weights.detach().flatten().cpu() for weights in tower.parameters() if weights.requires_grad])


def measured(context: TuningContext, options: argparse.Namespace, folder: Path) -> tuple[float, Tensor]:
    """Steps per second, and the weights after the first steps."""
    settings = settings_of(options)
    tower, _ = prepared_tower(context.model.query, settings)
    objective = context.objective(tower, settings)
    folder.mkdir()
    limits = Limits(steps_per_epoch=10**9, max_epochs=1, idle_epochs=1)
    loop = make_loop(objective, settings, folder, limits=limits, watch=lambda position: None, note=print)
    with side_passes(tower, precision=options.precision) as objective.passes:
        # The first steps record, and compile kernels.
        take(loop, COMPARED)
        weights = trained_weights(tower)
        # Every length is recorded by now.
        take(loop, options.steps)
        seconds = take(loop, options.steps)
        if tower.device.type == "cuda":
            print(f"{folder.name}: kernels run in {share_of_kernels(loop):.0%} of the time")
    return options.steps / seconds, weights


def take(loop: Loop, steps: int) -> float:
    """Seconds of some steps."""
    started = time.perf_counter()
    for _ in range(steps):
        loop.step()
    if loop.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def share_of_kernels(loop: Loop) -> float:
    """Share of the wall time of fifty steps in which kernels run, one after the other."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        seconds = take(loop, 50)
    return sum(event.self_device_time_total for event in profiled.key_averages()) / 1e6 / seconds


if __name__ == "__main__":
    main()
