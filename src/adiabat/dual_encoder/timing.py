"""How long steps of a run take here, found by taking a few and then forgetting them."""

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from adiabat.core.progress import Watch
from adiabat.dual_encoder.contrastive_objective import PairContrast
from adiabat.dual_encoder.tower_setup import optimizer_of
from adiabat.dual_encoder.train_checks import steps_within, with_steps

TIMED_STEPS = 3
"""Steps taken; the first one, which also sets things up, does not count for the time."""


def step_seconds(objective: PairContrast, watch: Watch) -> float:
    """Take a few steps; weights and random numbers are afterwards as they were before."""
    seconds = []
    with _unchanged(objective.module), objective.passing():
        optimizer = optimizer_of(objective.module, objective.settings.train)
        for step in range(TIMED_STEPS):
            watch.progress("measuring steps", step, TIMED_STEPS)
            start = time.monotonic()
            torch.autograd.backward(objective.loss(step))
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if objective.towers.query.device.type == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.monotonic() - start)
    watch.progress("measuring steps", TIMED_STEPS, TIMED_STEPS)
    return statistics.median(seconds[1:])


def fit_into_time(objective: PairContrast, watch: Watch) -> None:
    """Give a run that goes by time alone the steps that fit into it, with their share of the validations; any other stays as it is."""
    section = objective.settings.train
    if section.budget_seconds is None or not section.goes_by_time:
        return
    seconds = step_seconds(objective, watch) + _validation_seconds(objective) / section.validate_every
    each = float(objective.processes.mean(torch.tensor(seconds, device=objective.processes.device)))
    steps = steps_within(section.budget_seconds, lambda step: each, setting="budget_seconds", unit="s")
    objective.settings = with_steps(objective.settings, steps)
    watch.note(f"{section.budget_seconds:g} s are enough for about {steps:,} steps of {each:.3g} s, validations among them")


def _validation_seconds(objective: PairContrast) -> float:
    start = time.monotonic()
    with objective.passing():
        objective.validate()
    return time.monotonic() - start


@contextmanager
def _unchanged(module: nn.Module) -> Iterator[None]:
    """Bring trained weights and torch's random numbers back when the block ends."""
    trained = [weights for weights in module.parameters() if weights.requires_grad]
    before = [weights.detach().clone() for weights in trained]
    devices = {weights.device for weights in trained if weights.device.type == "cuda"}
    with torch.random.fork_rng(list(devices)):
        try:
            yield
        finally:
            with torch.no_grad():
                for weights, value in zip(trained, before, strict=True):
                    weights.copy_(value)
