"""Make runs from laws that are known, with one percent of noise, and see what fits and plans find of them
(Ziarko et al. 2024).

    python scripts/recover_laws.py [--seeds 100] [--resamples 200] [--cases 100] [--rows FILE]
    python scripts/recover_laws.py --runs benchmarks/scaling/short-pairs

The grid is the source's: its eight sizes at its six budgets. Printed for each law: the largest error of a
prediction at four times the largest budget over all seeds, which is to stay under five percent, and how often
intervals at 95 percent hold the law's true loss there, and how often that of one more run.

Then plans for four times the largest budget from sweeps of two methods with laws drawn at random, four sizes
and four budgets; cases in
which the best options of the methods differ by less than three percent are drawn again. Runs are long or
short: pre-training counts as further tokens (Hernandez et al. 2021), which long runs exceed by far, and short
ones barely, so that their losses follow no power of their tokens. In crossing cases runs are short, and the
method that is best at the budget is not the best of the largest runs. Each case is a row of `--rows`, by
which a run that was cut short goes on.

With `--runs`, instead, the coverage of the largest budget of real sweeps, predicted from smaller ones.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from trials import Trials

from adiabat.api.call import shown_progress
from adiabat.config.budgets import PlanSection
from adiabat.experiments.plan_prior import BUDGETS, PYTHIA
from adiabat.experiments.scaling_analysis import evidence_of, rows_in
from adiabat.scaling_laws.fitting import Ensemble, fit
from adiabat.scaling_laws.flops import PassedParameters
from adiabat.scaling_laws.held_out import coverages, predictions, widths
from adiabat.scaling_laws.laws import ONE_SHARE, SHARE, SIZE_AND_TOKENS, Law, Method, Option, Points, Run, Way
from adiabat.scaling_laws.recommendation import Candidate, fit_kinds, recommend

Truth = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]

Loss = Callable[[float, float], float]

NOISE = 0.01
APART = 1.03
"""How many times the least loss of one method that of the other must be for a case to count."""

TOKENS = 2e8
"""About the tokens of a run in the middle of the grid."""

PRETRAINED = {"long": (1e-4, 1e-3), "short": (0.3, 3.0), "crossing": (0.3, 3.0)}
"""Range of the tokens that pre-training counts for, as multiples of `TOKENS`, by the name of the case."""

CONFIDENT = 0.95

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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--resamples", type=int, default=200)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--runs", type=Path, nargs="+", default=[])
    given = parser.parse_args()
    if given.runs:
        for path in given.runs:
            show_coverage(path, given.resamples)
        return
    for name, (law, truth, shares) in LAWS.items():
        found = []
        with shown_progress() as watch:
            for seed in range(given.seeds):
                found.append(recovered(law, truth, shares, seed, given.resamples))
                watch.progress(name, seed + 1, given.seeds)
        errors, of_law, of_run = zip(*found, strict=True)
        print(
            f"{name}: largest error {max(errors):.1%}, its mean over seeds "
            f"{np.mean(errors):.1%}; intervals at 95 % hold the law "
            f"{np.mean(of_law):.1%}, a run {np.mean(of_run):.1%} ({given.seeds} "
            f"seeds, {given.resamples} resamples)",
            flush=True,
        )
    with TemporaryDirectory() as folder:
        show_plans(given.rows or Path(folder) / "rows.jsonl", given.cases, given.resamples)


def show_coverage(path: Path, resamples: int) -> None:
    """Print how real losses of the largest budget lie to predictions from smaller ones."""
    runs = evidence_of(rows_in(path), PlanSection().loss, least_steps=PlanSection().least_steps).runs
    kinds = list(dict.fromkeys(run.option.way.kind for run in runs))
    with shown_progress() as watch:
        predicted = []
        for number, kind in enumerate(kinds):
            predicted += predictions(
                [run for run in runs if run.option.way.kind == kind], resamples=resamples, seed=number
            )
            watch.progress("laws", number + 1, len(kinds))
    print(f"{path}: {len(runs)} runs, {len(predicted)} predicted from smaller budgets, {resamples} resamples")
    for one in coverages(predicted):
        line = "" if one.line_error is None else f", straight lines miss by {one.line_error:.3f}"
        print(
            f"  {one.family or 'all'}: {one.runs} runs of the largest budget; laws miss by "
            f"{one.law_error:.3f}{line} (mean |ln|); within: "
            f"nominal {one.nominal}, widened {one.widened}, line {one.line} of {one.lines}; "
            f"first choice {one.regret:.1%} above the best"
        )
    for family in dict.fromkeys(kind.family for kind in kinds):
        at = widths(predicted, family, 4.0, 4.0)
        factors = ("none" if width is None else f"{np.exp(width.size):.3f}" for width in (at.law, at.line))
        print(
            "  {}: at four times the budget, ends move by a factor of {} (law), {} (straight line)".format(
                family, *factors
            ),
            flush=True,
        )


@dataclass(frozen=True)
class Case:
    """A plan and what would have come of it.

    Attributes:
        sure: Share of resampled laws by which the recommended method stays ahead.
        right: Whether it is the best.
        regret: True loss of the recommended option, as a share above the least.
        options: How many were predicted; next to it, of how many an interval held a run: of the law, with
            noise, held out, of lines.
    """

    name: str
    sure: float
    right: bool
    regret: float
    options: int
    law: int
    noise: int
    held_out: int
    line: int


def show_plans(path: Path, cases: int, resamples: int) -> None:
    """Print what plans from long and from short runs are worth."""
    trials = Trials(path, cases * len(PRETRAINED))
    for kind, pretrained in PRETRAINED.items():
        for number in range(cases):
            if (name := f"{kind} {number}") not in trials.names:
                trials.add(planned(name, pretrained, number, resamples, crossing=kind == "crossing"))
        rows = [Case(**row) for row in trials.rows if row["name"].startswith(kind)]
        confident = [row for row in rows if row.sure >= CONFIDENT]
        options = sum(row.options for row in rows)
        within = ", ".join(
            f"{one.name} {sum(getattr(row, one.name) for row in rows) / options:.1%}"
            for one in fields(Case)[-4:]
        )
        print(
            f"{kind} runs: {len(rows)} cases, the better method named in "
            f"{np.mean([row.right for row in rows]):.0%}; "
            f"{CONFIDENT:.0%} sure in {len(confident)}, right in "
            f"{sum(row.right for row in confident)} of these; "
            f"regret {np.mean([row.regret for row in rows]):.1%} on average, at most "
            f"{max(row.regret for row in rows):.1%}; "
            f"one more run within the interval of: {within} ({options} options, {resamples} resamples)",
            flush=True,
        )


def planned(name: str, pretrained: tuple[float, float], seed: int, resamples: int, *, crossing: bool) -> Case:
    """The first case of a seed whose methods lie apart, and cross beyond the runs if they are to."""
    generator = np.random.default_rng(seed)
    budgets, ahead = BUDGETS[:4], 4 * BUDGETS[3]
    while True:
        truths = drawn_laws(generator, pretrained)
        options = [option for method in truths for option in options_of(method)[:4]]
        losses, last = (
            {one: truths[one.way.method](*at(one, budget)) for one in options}
            for budget in (ahead, budgets[-1])
        )
        best = min(losses, key=lambda one: losses[one]).way.method
        apart = min(loss for one, loss in losses.items() if one.way.method != best) >= APART * min(
            losses.values()
        )
        if apart and not (crossing and min(last, key=lambda one: last[one]).way.method == best):
            break
    runs = [run_of(one, budget, truths, generator) for one in options for budget in budgets]
    asked = dict.fromkeys(options, ahead)
    found = recommend(fit_kinds(runs, asked=asked, resamples=resamples, seed=seed), asked)
    more = {one: run_of(one, ahead, truths, generator).loss for one in options}

    def held(interval: Callable[[Candidate], tuple[float, float] | None]) -> int:
        ends = [(interval(one), more[one.option]) for one in found.candidates]
        return sum(pair is not None and pair[0] <= loss <= pair[1] for pair, loss in ends)

    return Case(
        name=name,
        sure=found.sure,
        right=found.best.option.way.method == best,
        regret=losses[found.best.option] / min(losses.values()) - 1,
        options=len(found.candidates),
        law=held(lambda one: (one.law.low, one.law.high)),
        noise=held(lambda one: (one.run.low, one.run.high)),
        held_out=held(lambda one: one.held_out),
        line=held(lambda one: one.line_held_out),
    )


def drawn_laws(generator: np.random.Generator, pretrained: tuple[float, float]) -> dict[Method, Loss]:
    """Laws of two methods of one family, which differ in what tokens and pre-training are worth; the best
    size lies in the grid or near.
    """
    c, alpha = generator.uniform(0.1, 0.4), generator.uniform(0.2, 0.45)
    a = generator.uniform(0.1, 0.5) * 5e7**alpha

    def drawn() -> Loss:
        beta = generator.uniform(0.25, 0.45)
        b = generator.uniform(0.1, 0.5) * TOKENS**beta
        before = TOKENS * float(np.exp(generator.uniform(*np.log(pretrained))))
        return lambda size, tokens: float(c + a / size**alpha + b / (tokens + before) ** beta)

    return {"full": drawn(), "lora": drawn()}


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


def run_of(
    option: Option, budget: float, truths: Mapping[Method, Loss], generator: np.random.Generator
) -> Run:
    """A run with noise."""
    size, tokens = at(option, budget)
    return Run(
        option,
        budget,
        tokens,
        truths[option.way.method](size, tokens) * float(np.exp(NOISE * generator.standard_normal())),
    )


def recovered(
    law: Law, truth: Truth, shares: tuple[float, ...], seed: int, resamples: int
) -> tuple[float, float, float]:
    """Largest relative error beyond the grid, and how many of the intervals there hold the law and a run of
    it.
    """
    points = simulated(truth, shares, BUDGETS, seed)
    ensemble = Ensemble.of(fit(law, points), points, resamples=resamples, seed=seed)
    true, run = (
        simulated(truth, shares[:1], [4 * BUDGETS[-1]], one, noise)
        for one, noise in ((0, 0.0), (seed + 10_000, NOISE))
    )
    draws = ensemble.draws(true)
    predicted = ensemble.estimates(true, draws)
    wide = ensemble.estimates(true, ensemble.noisy(draws, seed))
    return (
        max(abs(one.value / loss - 1) for one, loss in zip(predicted, true.loss, strict=True)),
        float(np.mean([one.holds(float(loss)) for one, loss in zip(predicted, true.loss, strict=True)])),
        float(np.mean([one.holds(float(loss)) for one, loss in zip(wide, run.loss, strict=True)])),
    )


def simulated(
    truth: Truth, shares: Sequence[float], budgets: Sequence[float], seed: int, noise: float = NOISE
) -> Points:
    """A run of each size and share at each budget."""
    size, budget, share = (each.ravel() for each in np.meshgrid(SIZES, budgets, shares, indexing="ij"))
    tokens = budget / ((2 + 4 * share) * size)
    return Points(
        size,
        tokens,
        share,
        truth(size, tokens, share) * np.exp(noise * np.random.default_rng(seed).standard_normal(len(size))),
    )


if __name__ == "__main__":
    main()
