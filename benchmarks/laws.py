"""Time of fitting a law and its intervals: the fit, and 1,000 refits to resampled runs (Ziarko et al. 2024).

    python benchmarks/laws.py [--refits 1000] [--rounds 3]

Runs are simulated from known laws on the grid of the paper, with eight sizes and six budgets (for shares,
four shares of each), with one percent of noise. The script prints for each law the seconds of the fit and of
the refits (median, lowest and highest of the rounds), and finally the median of the slowest law including
refits.
"""

import argparse
import platform
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from recover_laws import LAWS, simulated

from adiabat.experiments.plan_prior import BUDGETS
from adiabat.scaling_laws.fitting import fit, refits


def main() -> None:
    """Print a line for each law."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--refits", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print(f"{platform.machine()}, one thread; {given.rounds} rounds")
    slowest = 0.0
    for name, (law, truth, shares) in LAWS.items():
        points = simulated(truth, shares, BUDGETS, seed=0)
        first, rest = [], []
        for _ in range(given.rounds):
            started = time.perf_counter()
            fitted = fit(law, points)
            between = time.perf_counter()
            refits(fitted, points, count=given.refits, seed=0)
            first.append(between - started)
            rest.append(time.perf_counter() - between)
        print(
            f"{name}, {len(points)} runs: fit {spread(first)}, {given.refits:,} refits {spread(rest)}",
            flush=True,
        )
        slowest = max(slowest, statistics.median(map(sum, zip(first, rest, strict=True))))
    print(f"laws: {slowest:.1f} s for {given.refits:,} refits (target 60)")


def spread(seconds: list[float]) -> str:
    """Median with both ends."""
    return f"{statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"


if __name__ == "__main__":
    main()
