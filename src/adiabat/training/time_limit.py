"""What a time limit covers beside steps and validations: it counts from the start of a command, or of a call,
to the written page.
"""

import hashlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

import torch

from adiabat.models.encoder import Encoder

PASSES_OF_WRITING = 3.0
"""Time of writing weights, as a multiple of the time of their digest: they are copied, flushed to disk, and
read again for a checksum."""

DIGESTED = 2**24
"""Weights of which a digest is timed, or few more."""

PAGE_SECONDS = 2.0
"""Seconds of a page with its figures and of the hashes of texts: 1.1 s of processor time for the demo, on one
core of 2026."""

LEAST_LEFT = 1e-3
"""Seconds of a time limit that is used up: a limit is above 0."""


def seconds_since(started: float) -> float:
    """Seconds that a job has taken until now: libraries, data and model were loaded, and its speed was
    measured.
    """
    return time.monotonic() - started


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of some work on a device."""
    start = time.monotonic()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.monotonic() - start


@dataclass(frozen=True, slots=True)
class WritingTime:
    """Expected seconds of writing a job's files.

    Attributes:
        checkpoint: Of a checkpoint: trained weights, the best ones, and two moments of the optimizer.
        ending: Of the model, the page and the hashes of texts, at the end.
    """

    checkpoint: float
    ending: float


def writing_time(towers: Iterable[Encoder]) -> WritingTime:
    """The expected time of writing, from the time that a digest of a part of the weights takes."""
    listed = chain.from_iterable(tower.parameters() for tower in towers)
    # Weights that towers share count once.
    parameters = list(dict.fromkeys(listed))
    digested, start = 0, time.monotonic()
    for weights in parameters:
        if digested < DIGESTED:
            hashlib.sha256(weights.detach().float().cpu().contiguous().numpy().data)
            digested += weights.numel()
    per_weight = PASSES_OF_WRITING * (time.monotonic() - start) / digested
    trained = sum(weights.numel() for weights in parameters if weights.requires_grad)
    return WritingTime(
        checkpoint=4 * trained * per_weight,
        ending=sum(weights.numel() for weights in parameters) * per_weight + PAGE_SECONDS,
    )
