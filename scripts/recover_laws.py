"""Make runs from laws that are known, with one percent of noise, and see what fits find of them (Ziarko et al. 2024).

    python scripts/recover_laws.py [--seeds 100] [--resamples 200] [--cases 100]

The grid is the source's: its eight sizes at its six budgets. Printed for each law: the largest error of a prediction at four times the
largest budget over all seeds, which is to stay under five percent, and how often intervals at 95 percent hold the law's true loss there,
and how often that of one more run. Then, of cases in which the best options of two methods with laws drawn at random differ by at least
three percent at four times the largest budget, in how many the recipe names the method that is truly best.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from adiabat.api.call import shown_progress
from adiabat.experiments.plan_prior import BUDGETS, PYTHIA
from adiabat.scaling_laws.fitting import Ensemble, fit
from adiabat.scaling_laws.flops import PassedParameters
from adiabat.scaling_laws.laws import ONE_SHARE, SHARE, SIZE_AND_TOKENS, Law, Method, Option, Points, Run, Way
from adiabat.scaling_laws.recommendation import fit_kinds, recommend

Truth = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]

Loss = Callable[[float, float], float]

NOISE = 0.01
APART = 1.03
"""How many times the least loss of one method that of the other must be for a case to count."""

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
    parser.add_argument("--cases", type=int, default=100)
    given = parser.parse_args()
    for name, (law, truth, shares) in LAWS.items():
        found = []
        with shown_progress() as watch:
            for seed in range(given.seeds):
                found.append(recovered(law, truth, shares, seed, given.resamples))
                watch.progress(name, seed + 1, given.seeds)
        errors, of_law, of_run = zip(*found, strict=True)
        print(
            f"{name}: largest error {max(errors):.1%}, its mean over seeds {np.mean(errors):.1%}; intervals at 95 % hold the law "
            f"{np.mean(of_law):.1%}, a run {np.mean(of_run):.1%} ({given.seeds} seeds, {given.resamples} resamples)",
            flush=True,
        )
    right = found_methods(given.cases)
    print(f"method: the best one is named in {right:,} of {given.cases:,} cases that are well apart", flush=True)


def found_methods(cases: int) -> int:
    """In how many cases the recipe names the method that is truly best."""
    generator = np.random.default_rng(0)
    right = done = 0
    with shown_progress() as watch:
        while done < cases:
            truths: dict[Method, Loss] = {"full": drawn_law(generator), "lora": drawn_law(generator)}
            options = [option for method in truths for option in options_of(method)]
            losses = {one: truths[one.way.method](*at(one, 4 * BUDGETS[-1])) for one in options}
            least = {method: min(loss for one, loss in losses.items() if one.way.method == method) for method in truths}
            if max(least.values()) >= APART * min(least.values()):
                runs = [run_of(one, budget, truths, generator) for one in options for budget in BUDGETS]
                asked = dict.fromkeys(options, 4 * BUDGETS[-1])
                found = recommend(fit_kinds(runs, asked=asked, resamples=5), asked)
                right += found.best.option.way.method == min(least, key=lambda method: least[method])
                done += 1
                watch.progress("methods", done, cases)
    return right


def drawn_law(generator: np.random.Generator) -> Loss:
    """A law whose best size lies among those of the grid, or near."""
    c, alpha, beta = generator.uniform(0.1, 0.4), generator.uniform(0.2, 0.45), generator.uniform(0.25, 0.45)
    a, b = (generator.uniform(0.1, 0.5) * middle**power for middle, power in ((5e7, alpha), (2e8, beta)))
    return lambda size, tokens: float(c + a / size**alpha + b / tokens**beta)


def options_of(method: Method) -> list[Option]:
    """Every size of the grid by a method."""
    found = []
    for one in PYTHIA:
        whole = one.parameters
        way = Way("", one.name, one.name, None, method, 32 if method == "lora" else None, 0)
        own = whole // 50 if method == "lora" else 0
        found.append(Option(way, PassedParameters(whole + own, whole + own, own or whole)))
    return found


def at(option: Option, budget: float) -> tuple[float, float]:
    """Size and tokens of an option at a budget."""
    return float(option.size), budget / option.flops_per_token


def run_of(option: Option, budget: float, truths: Mapping[Method, Loss], generator: np.random.Generator) -> Run:
    """A run with noise."""
    size, tokens = at(option, budget)
    return Run(option, budget, tokens, truths[option.way.method](size, tokens) * float(np.exp(NOISE * generator.standard_normal())))


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
