"""Make runs from laws that are known, with one percent of noise, and see what fits find of them (mission B7).

    python scripts/recover_laws.py [--seeds 100] [--resamples 200]

The grid is the source's: its eight sizes at its six budgets. Printed for each law: the largest error of a prediction at four times the
largest budget over all seeds, which is to stay under five percent, and how often intervals at 95 percent hold the law's true loss there,
and how often that of one more run.
"""

import argparse
from collections.abc import Callable, Sequence

import numpy as np

from adiabat.console import watching
from adiabat.plan.fitting import fit
from adiabat.plan.intervals import Ensemble
from adiabat.plan.laws import ONE_SHARE, SHARE, SIZE_AND_TOKENS, Law, Points
from adiabat.plan.published import BUDGETS, PYTHIA

Truth = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]

NOISE = 0.01
SIZES = np.array([float(one.parameters) for one in PYTHIA])
LAWS: dict[str, tuple[Law, Truth, tuple[float, ...]]] = {
    "size and tokens": (SIZE_AND_TOKENS, lambda n, d, s: 0.2 + 126 / n**0.3 + 707 / d**0.35, (1.0,)),
    "one share": (ONE_SHARE, lambda n, d, s: 0.15 + (2 * np.log(d) + 80) / n**0.3 + 700 / d**0.35, (1.0,)),
    "shares": (
        SHARE,
        lambda n, d, s: 0.15 + (2 * np.log(d) + 80) / n**0.3 + (300 * (1 - s) ** 2 + 700) / d**0.35,
        (1.0, 0.75, 0.5, 0.25),
    ),
}


def main() -> None:
    """Print a line for each law."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--resamples", type=int, default=200)
    given = parser.parse_args()
    for name, (law, truth, shares) in LAWS.items():
        found = []
        with watching() as watch:
            for seed in range(given.seeds):
                found.append(recovered(law, truth, shares, seed, given.resamples))
                watch.progress(name, seed + 1, given.seeds)
        errors, of_law, of_run = zip(*found, strict=True)
        print(
            f"{name}: largest error {max(errors):.1%}, its mean over seeds {np.mean(errors):.1%}; intervals at 95 % hold the law "
            f"{np.mean(of_law):.1%}, a run {np.mean(of_run):.1%} ({given.seeds} seeds, {given.resamples} resamples)",
            flush=True,
        )


def recovered(law: Law, truth: Truth, shares: tuple[float, ...], seed: int, resamples: int) -> tuple[float, float, float]:
    """Largest relative error beyond the grid, and how many of the intervals there hold the law and a run of it."""
    points = simulated(truth, shares, BUDGETS, seed)
    ensemble = Ensemble.of(fit(law, points), points, resamples=resamples, seed=seed)
    true, run = (simulated(truth, shares[:1], [4 * BUDGETS[-1]], one, noise) for one, noise in ((0, 0.0), (seed + 10_000, NOISE)))
    predicted = ensemble.predict(true)
    wide = ensemble.predict(true, of_a_run=True, seed=seed)
    return (
        max(abs(one.value / loss - 1) for one, loss in zip(predicted, true.loss, strict=True)),
        float(np.mean([one.holds(float(loss)) for one, loss in zip(predicted, true.loss, strict=True)])),
        float(np.mean([one.holds(float(loss)) for one, loss in zip(wide, run.loss, strict=True)])),
    )


def simulated(truth: Truth, shares: Sequence[float], budgets: Sequence[float], seed: int, noise: float = NOISE) -> Points:
    """A run of each size and share at each budget."""
    size, budget, share = (each.ravel() for each in np.meshgrid(SIZES, budgets, shares, indexing="ij"))
    tokens = budget / ((2 + 4 * share) * size)
    return Points(size, tokens, share, truth(size, tokens, share) * np.exp(noise * np.random.default_rng(seed).standard_normal(len(size))))


if __name__ == "__main__":
    main()
