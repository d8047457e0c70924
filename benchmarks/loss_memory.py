"""Memory of the tiled in-batch loss, forward and backward, beyond its inputs and their gradients; and its
speed against the full matrix.

Memory is the rise of the resident set during the loss, in a separate process, minus the gradients. Time and
values are compared with the full matrix at a size where it still fits, five pairs in turn.

Run with ``python benchmarks/loss_memory.py``; 65,536 rows take some minutes on two cores.
"""

import argparse
import statistics
import subprocess
import sys
import time

import torch
from rise import rise_of
from torch import Tensor

from adiabat.losses.embedded_pairs import Pairs
from adiabat.losses.in_batch import in_batch_softmax

WIDTH, TEMPERATURE, TARGET_MB = 384, 0.05, 1024
MB = 2**20


def leaves(rows: int) -> list[Tensor]:
    """Two random towers' worth of unit vectors."""
    generator = torch.Generator().manual_seed(0)
    parts = [torch.randn(rows, WIDTH, generator=generator) for _ in range(2)]
    return [torch.nn.functional.normalize(part, dim=1).requires_grad_() for part in parts]


def loss_of(sides: list[Tensor], tile: int | None) -> Tensor:
    """Value, with gradients left on the sides."""
    loss = in_batch_softmax(Pairs(sides[0], sides[1]), temperature=TEMPERATURE, tile=tile)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def growth(rows: int, tile: int) -> float:
    """MB by which the resident set rises above what it is before the loss, at its highest, less the gradients
    (Linux only).
    """
    sides = leaves(rows)
    loss_of(leaves(64), 32)
    megabytes, _ = rise_of(lambda: loss_of(sides, tile))
    return megabytes - 2 * rows * WIDTH * 4 / MB


def timed(rows: int, tile: int | None) -> tuple[float, list[Tensor]]:
    """Seconds of one forward and backward pass; loss and gradients."""
    sides = leaves(rows)
    start = time.perf_counter()
    loss = loss_of(sides, tile)
    seconds = time.perf_counter() - start
    return seconds, [loss, *(side.grad for side in sides if side.grad is not None)]


def compare(rows: int, tile: int) -> None:
    """Both ways in turn, five times; prints the ratio of times and the largest relative difference."""
    ratios, differences = [], []
    for _ in range(5):
        whole, expected = timed(rows, None)
        tiled, found = timed(rows, tile)
        ratios.append(whole / tiled)
        differences += [float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True)]
    print(
        f"{rows:,} rows: full matrix / tiled {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f}) in time, "
        f"values and gradients within {max(differences):.1e}"
    )


def main() -> None:
    """Compare at a small size, then measure the large one in a fresh process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=65_536)
    parser.add_argument("--compare", type=int, default=8_192)
    parser.add_argument("--tile", type=int, default=1_024)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(growth(options.rows, options.tile))
        return
    compare(options.compare, options.tile)
    command = [
        sys.executable,
        __file__,
        "--measure",
        "--rows",
        str(options.rows),
        "--tile",
        str(options.tile),
    ]
    start = time.perf_counter()
    found = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(
        f"{options.rows:,} x {options.rows:,}, tile {options.tile:,}: "
        f"{time.perf_counter() - start:.0f} s in all"
    )
    print(f"loss_memory: {found:.0f} MB (target <= {TARGET_MB})")


if __name__ == "__main__":
    main()
