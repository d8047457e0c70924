"""The speed of this machine, for plans without runs: operations per second of a few training passes."""

from adiabat.core.ragged import Ragged
from adiabat.models.device import device_of
from adiabat.models.encoder import Encoder, table_rows
from adiabat.scaling_laws.flops import training_flops
from adiabat.training.flop_count import passed_parameters
from adiabat.training.time_limit import seconds_of

TEXTS = 32
"""Texts of a pass: enough to fill the matrix products, and few enough for the memory of a small machine."""

PASSES = 3
"""Timed passes, after one that sets things up."""


def measured_speed(encoder: Encoder, *, device: str, tokens: int) -> float:
    """FLOPs per second of forward and backward passes over random texts of so many tokens.

    Loss and optimizer are left out: they take little beside a batch of the paper's size.
    """
    encoder = encoder.to(device_of(device)).train(True)
    rows = table_rows(encoder.backbone)
    # Any tokens will do; a small table of tokens repeats.
    ids = [number if rows is None else number % rows for number in range(1, tokens + 1)]
    batch = encoder.collate(Ragged.of([ids] * TEXTS), side="query")

    def take() -> None:
        encoder(batch).sum().backward()
        encoder.zero_grad(set_to_none=True)

    # The first pass sets things up and is not counted.
    seconds = [seconds_of(take, encoder.device) for _ in range(1 + PASSES)][1:]
    return training_flops(passed_parameters(encoder), float(TEXTS * tokens)) * PASSES / sum(seconds)
