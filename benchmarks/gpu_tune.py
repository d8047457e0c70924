"""Tuning steps per second on a GPU, recorded as CUDA graphs and taken operation by operation; and how far
their weights differ.

Queries are those of the demo, documents random vectors. A step has 14 queries, the triplet loss, AdamW and
frozen embeddings. Steps are taken by the loop of `adiabat tune`, without validation and checkpoints.

    python benchmarks/gpu_tune.py [--model demo] [--precision fp32|bf16] [--negatives examples|hardest]
    [--documents 5600] [--steps 300] python benchmarks/gpu_tune.py --rows [--model demo] [--steps 300]      #
    the rows of `gpu_rows.py`, in small without a GPU

35,000 steps with a validation after each epoch of the default length are extrapolated from recorded steps and
validations in float32.
"""

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from gpu_rows import SMALL, append, append_failure, kernel_share
from torch import Tensor
from transformers.utils import logging

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

COMPARED = 5 if SMALL else 30
"""Steps after which weights are compared."""

STEPS_OF_THE_SOURCE = 35_000
"""Vasilyev et al. 2024, who took an hour on an A100."""

TARGETS = {"examples": 250, "hardest": 150}
"""Recorded steps per second in float32 on one H100 or H200; hardest ones are those of 100,000 documents."""


def main() -> None:
    """Take both kinds of steps, and print their speeds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="demo")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--negatives", default="examples", choices=[*TARGETS])
    parser.add_argument("--documents", type=int, default=5_600)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rows", action="store_true")
    options = parser.parse_args()
    if SMALL:
        options.steps = min(options.steps, 5)
    if options.rows:
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        append_rows(options)
        return
    found = compared(options)
    print(
        f"{device_name(device_of(options.device))}, {options.precision}, {options.documents:,} "
        f"documents, negatives = {options.negatives}"
    )
    print(f"operation by operation: {found.eager.rate:.0f} steps/s")
    print(f"a second run is equal bit for bit: {found.is_repeated}")
    print(f"after {COMPARED} steps both kinds differ by {found.difference:.2g} of the change's norm")
    print(f"gpu_tune: {found.recorded.rate:.0f} steps/s (target {TARGETS[options.negatives]})")


def append_rows(options: argparse.Namespace) -> None:
    """The rows of tuning: float32 with all comparisons, then bf16, and the hardest of many documents."""
    found = compared(options)
    rate, seconds = found.recorded.rate, found.recorded.validation_seconds
    append("tune fp32", rate, f"{rate:,.0f} (operation by operation {found.eager.rate:,.0f})")
    steps_alike = (
        f"a second run {'is equal' if found.is_repeated else 'differs'}; "
        f"{found.difference:.2g} of the change's norm"
    )
    append("tune equal", float(found.is_repeated), steps_alike)
    epochs = -(-STEPS_OF_THE_SOURCE // TuneSettings().tune.batches_per_epoch)
    whole = STEPS_OF_THE_SOURCE / rate + epochs * seconds
    append("tune 35,000", whole, f"{whole:,.0f} ({epochs} validations of {seconds:.2f} s)")
    if SMALL:
        append_failure("tune profile", "there is no GPU")
        append_failure("tune bf16", "there is no GPU")
    else:
        append("tune profile", found.recorded.kernels, f"{found.recorded.kernels:.0f} %")
        rate = alone(options, precision="bf16")
        append("tune bf16", rate, f"{rate:,.0f}")
    rate = alone(options, negatives="hardest", documents=400 if SMALL else 100_000)
    append("tune hardest", rate, f"{rate:,.0f}")


@dataclass(frozen=True, slots=True)
class Run:
    """One run; `kernels` is the share of wall time in percent in which kernels run."""

    rate: float
    weights: Tensor
    validation_seconds: float
    kernels: float


@dataclass(frozen=True, slots=True)
class Compared:
    """Both kinds of steps; `difference` is that of their weights, as a share of the change's norm."""

    recorded: Run
    eager: Run
    is_repeated: bool
    difference: float


def compared(options: argparse.Namespace) -> Compared:
    """Take recorded steps twice, and eager ones."""
    with tempfile.TemporaryDirectory() as folder:
        context, start = context_of(options, Path(folder))
        recorded = measured(context, options, Path(folder) / "recorded", profiled=not SMALL)
        again = measured(context, options, Path(folder) / "again")
        with patch.dict(RECORDERS, clear=True):
            eager = measured(context, options, Path(folder) / "eager")
    difference = (recorded.weights - eager.weights).norm() / (eager.weights - start).norm()
    return Compared(recorded, eager, torch.equal(recorded.weights, again.weights), float(difference))


def alone(options: argparse.Namespace, **changes: object) -> float:
    """Steps per second with other options."""
    changed = argparse.Namespace(**{**vars(options), **changes})
    with tempfile.TemporaryDirectory() as folder:
        context, _ = context_of(changed, Path(folder))
        return measured(context, changed, Path(folder) / "run").rate


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
    tune = {
        "loss": {"margin": MARGIN},
        "learning_rate": RATE,
        "batch_size": BATCH_SIZE,
        "negatives": options.negatives,
    }
    return checked(
        TuneSettings, {"tune": tune, "run": {"device": options.device, "precision": options.precision}}
    )


def trained_weights(tower: torch.nn.Module) -> Tensor:
    """All weights that are not frozen, end to end."""
    return torch.cat(
        [weights.detach().flatten().cpu() for weights in tower.parameters() if weights.requires_grad]
    )


def measured(
    context: TuningContext, options: argparse.Namespace, folder: Path, *, profiled: bool = False
) -> Run:
    """A run, its weights after the first steps, and the time of a validation; a profile takes many times as
    long as its steps.
    """
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
        kernels = kernel_share(lambda: take(loop, 50)) if profiled else float("nan")
    if profiled:
        print(f"{folder.name}: kernels run in {kernels:.0f} % of the time")
    started = time.perf_counter()
    objective.validate()
    return Run(options.steps / seconds, weights, time.perf_counter() - started, kernels)


def take(loop: Loop, steps: int) -> float:
    """Seconds of some steps."""
    started = time.perf_counter()
    for _ in range(steps):
        loop.step()
    if loop.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
