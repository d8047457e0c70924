"""Tuning runs from begun loops to their ends: one by itself, several in one step."""

from collections.abc import Callable, Sequence

import torch

from adiabat.config import TuneSettings
from adiabat.errors import DivergedError, ModelError
from adiabat.model.precision import Precision
from adiabat.train.lanes import SharedPass, run_lanes
from adiabat.train.limits import Outcome
from adiabat.train.loop import Loop
from adiabat.train.passes import side_passes
from adiabat.train.stacked import StackedTowers
from adiabat.tune.objective import StoredLoss

GPU_LANES = 32


def lanes_on(device: torch.device) -> int:
    """How many runs are stepped together where nobody says it: a batch of 14 leaves a GPU idle, and a CPU not (LOG.md).

    Args:
        device: Of the runs.

    Returns:
        The most runs of a step.
    """
    return GPU_LANES if device.type == "cuda" else 1


def steps_alone(settings: TuneSettings) -> bool:
    """Whether a run cannot share its steps with others.

    Args:
        settings: Of the run.

    Returns:
        True with a rehearsal, which has other texts in the same step, and with dropout, which each tower draws for itself.
    """
    return settings.rehearsal.use or settings.tune.dropout


def run_together(
    loops: Sequence[Loop],
    objectives: Sequence[StoredLoss],
    *,
    precision: Precision,
    resume: bool,
    note: Callable[[str], None] = lambda sentence: None,
) -> list[Outcome | DivergedError]:
    """Run loops, and leave each one's best weights in its tower.

    Args:
        loops: At least one; several differ in nothing but rate, weight decay and margin. Each has an equal share of the time.
        objectives: That of each loop.
        precision: Of the training pass.
        resume: Each goes on from its newest whole checkpoint where there is one.
        note: Told why runs are made one after another, where torch cannot step their model together.

    Returns:
        How each ended; one that diverged is its error.

    Raises:
        InterruptionError: After Ctrl-C or SIGTERM, with checkpoints written.
        JobError: If a checkpoint cannot be written, or none of those of a run is whole.
    """
    if len(loops) > 1:
        try:
            shared = SharedPass(StackedTowers([one.encoder for one in objectives], precision=precision))
        except ModelError as fault:
            note(f"one run after another: {fault}")
        else:
            return _in_lanes(loops, objectives, shared, resume=resume)
    return [_alone(loop, one, precision=precision, resume=resume) for loop, one in zip(loops, objectives, strict=True)]


def _in_lanes(
    loops: Sequence[Loop], objectives: Sequence[StoredLoss], shared: SharedPass, *, resume: bool
) -> list[Outcome | DivergedError]:
    for place, one in enumerate(objectives):
        one.passes = shared.lane(place)
    outcomes = run_lanes(loops, shared, resume=resume)
    for loop in loops:
        loop.position.seconds /= len(loops)
    return outcomes


def _alone(loop: Loop, objective: StoredLoss, *, precision: Precision, resume: bool) -> Outcome | DivergedError:
    try:
        with side_passes(objective.encoder, precision=precision) as objective.passes:
            return loop.run(resume=resume)
    except DivergedError as fault:
        return fault
