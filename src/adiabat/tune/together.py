"""Tuning runs from begun loops to their ends: one by itself, several in one step."""

from collections.abc import Sequence

import torch

from adiabat.errors import DivergedError
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


def run_together(
    loops: Sequence[Loop], objectives: Sequence[StoredLoss], *, precision: Precision, resume: bool
) -> list[Outcome | DivergedError]:
    """Run loops, and leave each one's best weights in its tower.

    Args:
        loops: At least one; several differ in nothing but rate, weight decay and margin.
        objectives: That of each loop.
        precision: Of the training pass.
        resume: Each goes on from its newest whole checkpoint where there is one.

    Returns:
        How each ended; one that diverged is its error.

    Raises:
        InterruptionError: After Ctrl-C or SIGTERM, with checkpoints written.
        JobError: If a checkpoint cannot be written, or none of those of a run is whole.
    """
    if len(loops) > 1:
        shared = SharedPass(StackedTowers([one.encoder for one in objectives], precision=precision))
        for place, one in enumerate(objectives):
            one.passes = shared.lane(place)
        return run_lanes(loops, shared, resume=resume)
    try:
        with side_passes(objectives[0].encoder, precision=precision) as objectives[0].passes:
            return [loops[0].run(resume=resume)]
    except DivergedError as fault:
        return [fault]
