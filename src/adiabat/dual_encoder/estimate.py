"""What a training run will take: counted, and measured on its first steps."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tomli_w

from adiabat.config.dual_training import TrainSettings
from adiabat.core.progress import Watch
from adiabat.core.text import amount
from adiabat.dual_encoder.contrastive_objective import PairContrast
from adiabat.dual_encoder.timing import TIMED_STEPS, fit_into_time, step_seconds
from adiabat.dual_encoder.tower_setup import Loader
from adiabat.dual_encoder.train import check, prepared
from adiabat.dual_encoder.train_checks import require_estimable
from adiabat.dual_encoder.train_record import counts_of, notes_of
from adiabat.models.device import device_name, device_of, peak_memory, reset_peak_memory
from adiabat.runs.run_config import without_none
from adiabat.training.distributed import Processes

SAMPLED_STEPS = 50
"""Batches whose tokens are counted."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a training run will take.

    Attributes:
        settings: As resolved.
        parameters: Of both towers, each once.
        trained: Those that are updated.
        pairs: Trained on; of a stream, those of its first window.
        steps: Optimiser steps.
        tokens: That pass through trained towers in the whole run, padding left out.
        flops: ``2 (N_F + N_B + N_U)`` operations for each of them; see `adiabat.scaling_laws.flops`.
        operations: The same counted one by one; see `adiabat.training.flop_count`.
        memory_bytes: Most that the process held, loading and `TIMED_STEPS` steps among it; on a GPU, of its memory.
        step_seconds: Of one optimiser step, measured; with it, where a tower is frozen, the embedding of texts that are then kept.
        seconds: Of all steps; validations and checkpoints come on top.
        device: Measured on.
        notes: What a reader must know.
    """

    settings: dict[str, Any]
    parameters: int
    trained: int
    pairs: int
    steps: int
    tokens: float
    flops: float
    operations: float
    memory_bytes: int
    step_seconds: float
    seconds: float
    device: str
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Nested plain data, ready for `json.dump`."""
        return asdict(self)

    def summary(self) -> str:
        """The resolved configuration, and what it will take, for people."""
        streamed = self.settings["data"]["stream"]
        data = f"a stream, in windows of about {self.pairs:,} pairs" if streamed else f"{self.pairs:,} pairs"
        lines = [
            f"parameters: {self.parameters:,}, trained: {self.trained:,} ({100 * self.trained / self.parameters:.1f} %)",
            f"length: {self.steps:,} steps on {data}, {self.tokens:.3g} tokens",
            f"operations: {self.flops:.3g} FLOP by parameters and tokens, {self.operations:.3g} counted one by one",
            f"memory: {amount(self.memory_bytes)}, measured in {TIMED_STEPS} steps on {self.device}",
            f"time: {self.seconds:,.0f} s at {self.step_seconds:.2f} s a step, validations not counted",
            *self.notes,
        ]
        return tomli_w.dumps(without_none(self.settings)) + "".join(f"\n# {line}" for line in lines)


def estimate(load: Loader, settings: TrainSettings, *, watch: Watch) -> Estimate:
    """Set a run up, take a few steps that nobody keeps, and say what the whole will take."""
    check(settings)
    require_estimable(settings)
    device = device_of(settings.run.device)
    reset_peak_memory(device)
    objective, _ = prepared(load, settings, Processes(device=device), watch)
    fit_into_time(objective, watch)
    steps = objective.steps
    parameters, trained = counts_of(objective)
    tokens, flops, operations = _passed(objective, steps)
    seconds = step_seconds(objective, watch)
    return Estimate(
        settings=objective.settings.model_dump(mode="json", exclude={"digests"}),
        parameters=parameters,
        trained=trained,
        pairs=len(objective.train),
        steps=steps,
        tokens=tokens,
        flops=flops,
        operations=operations,
        memory_bytes=peak_memory(device),
        step_seconds=seconds,
        seconds=seconds * steps,
        device=device_name(device),
        notes=notes_of(objective),
    )


def _passed(objective: PairContrast, steps: int) -> tuple[float, float, float]:
    """Tokens, and both counts of operations, of a run, from some of its batches."""
    sample = range(min(steps, SAMPLED_STEPS))
    with objective.passing():
        costs = [(sum(objective.tokens_of(step).values()), objective.cost(step)) for step in sample]
    counted = [(tokens, cost.flops, cost.operations) for tokens, cost in costs]
    tokens, flops, operations = (steps * float(each) for each in np.mean(counted, axis=0))
    return tokens, flops, operations
