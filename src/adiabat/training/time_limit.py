"""What a time limit covers beside steps and validations: it counts from the start of a command, or of a call, to the written page."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from adiabat.models.encoder import Encoder

PASSES_OF_WRITING = 3.0
"""Time of writing weights, as a multiple of the time of their digest: they are copied, flushed to disk, and read again for a checksum."""

PAGE_SECONDS = 2.0
"""Seconds of a page with its figures and of the hashes of texts: 1.1 s of processor time for the demo, on one core of 2026."""

LEAST_LEFT = 1e-3
"""Seconds of a time limit that is used up: a limit is above 0."""


def seconds_since(started: float) -> float:
    """Seconds that a job has taken until now: libraries, data and model were loaded, and its speed was measured."""
    return time.monotonic() - started


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of some work on a device."""
    start = time.monotonic()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
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
    """The expected time of writing, from the time that a digest of all weights takes."""
    digest_seconds, trained, weights = 0.0, 0, 0
    for tower in dict.fromkeys(towers):
        digest_seconds += seconds_of(tower.weights_digest, tower.device)
        trained += sum(parameter.numel() for parameter in tower.parameters() if parameter.requires_grad)
        weights += sum(parameter.numel() for parameter in tower.parameters())
    written = PASSES_OF_WRITING * digest_seconds
    return WritingTime(checkpoint=4 * trained / weights * written, ending=written + PAGE_SECONDS)
