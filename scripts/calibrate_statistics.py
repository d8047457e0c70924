"""How often the statistics call a change what is none, and find one that they say they would find.

Trials are pairs of models that are alike: scores of the same queries, strongly correlated, whose differences
have mean 0. They go through `changes_over_runs` as an evaluation does, and the table says in how many of 100
trials

- ``interval`` the 95 % interval of the difference misses zero,
- ``p`` the p-value lies below 0.05,
- ``verdict`` the two together call the model better or worse,
- ``z`` the two-proportion test, which knows of no queries, lies beyond 1.96.

The first and the third are marked where they leave 5 % +- 1 %. The second table shifts one of the models by
what `Change.detectable` comes to on average: the verdict should find that in 80 % of the trials. The third
is about losses: of exactly the margin, which may be called "not worse" in 5 % of the trials at most, and of
none, where it should be in most. The fourth is about the value of a single model: how often its interval
misses the true one.

Usage: python scripts/calibrate_statistics.py [--trials 10000] [--resamples 1000] [--processes 2] [--seed 0]
[--only WORDS]
"""

import argparse
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from jaxtyping import Float

from adiabat.core.margin import DEFAULT_MARGIN, Margin
from adiabat.results.evaluation_result import Change
from adiabat.stats.clusters import Clusters
from adiabat.stats.judgement import ERROR_RATE
from adiabat.stats.paired import changes_over_runs, paired_changes
from adiabat.stats.samples import SHARE, Sample
from adiabat.stats.significance import Z_CRITICAL

AT_ONCE = 50
"""Trials that share their sign flips and resamples."""

TOLERANCE = 0.01

Runs = list[Sample]
Trial = tuple[Runs, Runs]
"""What two models score on the same queries, in each of their runs."""

Make = Callable[[np.random.Generator, int], Trial]
"""Makes a trial of so many queries, without a true difference."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of data: its row in the table, numbers of queries to try, the share of the trials asked for,
    where one takes long, and of data with a loss the same without it.
    """

    about: str
    make: Make
    queries: tuple[int, ...] = (100, 300, 1000)
    share: float = 1.0
    alike: Make | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """Values of the queries of one model, between 0 and 1, and their true mean."""

    about: str
    make: Callable[..., Any]
    truth: float


@dataclass(frozen=True, slots=True)
class Cell:
    """Shares of the trials of one shape.

    Attributes:
        interval: The interval misses zero.
        p: The p-value lies below 0.05.
        verdict: Better or worse.
        z: Beyond 1.96; None where the measure counts nothing.
        detectable: The smallest detectable difference, on average.
        not_worse: A loss of the margin is excluded.
    """

    trials: int
    interval: float
    p: float
    verdict: float
    z: float | None
    detectable: float
    not_worse: float


def errors(counts: Float[np.ndarray, " n"], pairs: Float[np.ndarray, " n"] | int) -> Sample:
    """Errors among the pairs of each query."""
    reference = np.broadcast_to(np.asarray(pairs, dtype=np.float64), counts.shape)
    return Sample(
        "PND pooled",
        counts.astype(np.float64),
        "cosine",
        reference=reference,
        lower_is_better=True,
        proportion=True,
    )


def leaning(
    logit: Float[np.ndarray, " n"], random: np.random.Generator, spread: float
) -> Float[np.ndarray, " n"]:
    """Probabilities of an error of each query, which a model has moved on the scale of log odds."""
    return 1 / (1 + np.exp(-logit - random.normal(0, spread, logit.size)))


def dense(random: np.random.Generator, queries: int) -> Trial:
    """Nearly every query changes a little: 100 pairs each, and both models lean a little to either side."""
    hard = random.normal(-2, 1.5, queries)
    one, other = (errors(random.binomial(100, leaning(hard, random, 0.15)), 100) for _ in range(2))
    return [one], [other]


def several(random: np.random.Generator, queries: int) -> Trial:
    """1 to some hundred pairs each, which a model moves together: pairs of a query are no independent
    trials.
    """
    pairs = np.ceil(random.lognormal(2.5, 0.8, queries)).astype(np.int64)
    hard = random.normal(-1, 1, queries)
    one, other = (errors(random.binomial(pairs, leaning(hard, random, 1.0)), pairs) for _ in range(2))
    return [one], [other]


def sparse(random: np.random.Generator, queries: int) -> Trial:
    """One query in ten changes, right to wrong as often as wrong to right: P@1."""
    before = random.random(queries) < 0.3
    changed = random.random(queries) < 0.1
    before = np.where(changed, random.random(queries) < 0.5, before)
    return [errors(before ^ changed, 1)], [errors(before, 1)]


def sparse_sizes(random: np.random.Generator, queries: int) -> Trial:
    """One query in ten changes, by any amount: RR."""
    before = random.random(queries)
    after = np.where(random.random(queries) < 0.1, random.random(queries), before)
    # What a query was before it changed is as good as what it became.
    return [Sample("RR", after)], [Sample("RR", before)]


def skewed(random: np.random.Generator, queries: int) -> Trial:
    """Most queries lose an error or some of 200, a few gain many: an exponential distribution around 0."""
    before = random.integers(20, 80, queries)
    after = before + random.geometric(1 / 8, queries) - 8
    return [errors(after, 200)], [errors(before, 200)]


def sparse_skewed(random: np.random.Generator, queries: int) -> Trial:
    """One query in ten changes, four of five by 0.2 down and one by 0.8 up."""
    before = random.random(queries)
    step = np.where(random.random(queries) < 0.2, 0.8, -0.2)
    return [Sample("RR", before + step * (random.random(queries) < 0.1))], [Sample("RR", before)]


def rank_correlation(random: np.random.Generator, queries: int) -> Trial:
    """Similarities of sentence pairs beside what people said, in steps of 0.2: Spearman."""
    people = random.random(queries)
    reference = np.round(25 * people) / 5
    one, other = (people + random.normal(0, 0.3, queries) for _ in range(2))
    return [Sample("Spearman", one, "cosine", reference, "spearman")], [
        Sample("Spearman", other, "cosine", reference, "spearman")
    ]


def precision(random: np.random.Generator, queries: int) -> Trial:
    """Similarities of pairs, three in ten of which belong together: average precision."""
    together = (random.random(queries) < 0.3).astype(np.float64)
    shared = random.normal(0, 1, queries)
    one, other = (together + shared + random.normal(0, 0.5, queries) for _ in range(2))
    return [Sample("AP", one, "cosine", together, "average precision")], [
        Sample("AP", other, "cosine", together, "average precision")
    ]


def runs_of(random: np.random.Generator, queries: int, make: Make) -> Trial:
    """Three runs of either model, of a statistic that is no mean."""
    sides = make(random, queries)
    return [_moved(random, sides[0][0]) for _ in range(3)], [_moved(random, sides[1][0]) for _ in range(3)]


def _moved(random: np.random.Generator, sample: Sample) -> Sample:
    values = sample.values
    if sample.statistic == "v-measure":
        other = random.integers(0, 5, values.size).astype(np.float64)
        return replace(sample, values=np.where(random.random(values.size) < 0.1, other, values))
    return replace(sample, values=values + random.normal(0, 0.2, values.size))


def clusters(random: np.random.Generator, queries: int) -> Trial:
    """Five clusters of texts with five labels, three in ten texts in a wrong one: V-measure."""
    label = random.integers(0, 5, queries).astype(np.float64)
    samples = []
    for _ in range(2):
        cluster = np.where(random.random(queries) < 0.3, random.integers(0, 5, queries), label)
        samples.append(Sample("V-measure", cluster.astype(np.float64), "", label, "v-measure"))
    return samples[:1], samples[1:]


def seeds(random: np.random.Generator, queries: int) -> Trial:
    """Three runs of either model."""
    hard = random.random(queries)
    return [_run(random, hard) for _ in range(3)], [_run(random, hard) for _ in range(3)]


def seeds_against_one(random: np.random.Generator, queries: int, runs: int = 3) -> Trial:
    """Runs of a model beside a baseline that has none."""
    hard = random.random(queries)
    return [_run(random, hard) for _ in range(runs)], [_run(random, hard, apart=0.0)]


def _run(random: np.random.Generator, hard: Float[np.ndarray, " n"], *, apart: float = 0.1) -> Sample:
    """A run, worse or better on all queries by as much as queries make of a mean, and on each by more."""
    values = hard + random.normal(0, apart / np.sqrt(hard.size)) + random.normal(0, 0.1, hard.size)
    return Sample("nDCG@10", values)


def tuned(random: np.random.Generator, queries: int) -> Trial:
    """Two queries in five change; differences vary 0.4 times as much as scores, as after tunings at high
    rates.
    """
    before = random.random(queries)
    most = np.minimum(before, 1 - before)
    change = np.where(random.random(queries) < 0.4, np.clip(random.normal(0, 0.3, queries), -most, most), 0.0)
    return [Sample("nDCG@10", before + change, bounds=SHARE)], [Sample("nDCG@10", before, bounds=SHARE)]


def clustered(random: np.random.Generator, queries: int) -> Trial:
    """Clusters of 1 to 20 equal queries; nearly every cluster changes a little."""
    # As many clusters as a set of so many queries has, which differ in size but are about as large in all
    # trials.
    sizes = random.permutation(np.resize(np.arange(1, 21), max(1, 2 * queries // 21)))
    numbers = np.repeat(np.arange(sizes.size), sizes)
    before = random.uniform(0.2, 0.8, sizes.size)
    after = before + random.normal(0, 0.1, sizes.size)
    clusters = Clusters(numbers, "cluster")
    one, other = (
        Sample("nDCG@10", values[numbers], bounds=SHARE, clusters=clusters) for values in (after, before)
    )
    return [one], [other]


def rare_losses(random: np.random.Generator, queries: int) -> Trial:
    """One query in a hundred loses all it has, and nothing else changes: a loss of 1 % of the baseline."""
    before = random.uniform(0.4, 1.0, queries)
    after = np.where(random.random(queries) < 0.01, 0.0, before)
    return [Sample("nDCG@10", after, bounds=SHARE)], [Sample("nDCG@10", before, bounds=SHARE)]


def rare_among_misses(random: np.random.Generator, queries: int) -> Trial:
    """Three queries in ten find their document, and one of a hundred of these loses it: a loss of 1 % of the
    baseline.
    """
    before = (random.random(queries) < 0.3).astype(np.float64)
    after = np.where(random.random(queries) < 0.01, 0.0, before)
    return [Sample("P@1", after, bounds=SHARE)], [Sample("P@1", before, bounds=SHARE)]


def rare_among_changes(random: np.random.Generator, queries: int) -> Trial:
    """One query in a hundred loses all it has, and three in ten change a little."""
    before = random.uniform(0.4, 1.0, queries)
    change = np.where(random.random(queries) < 0.3, random.normal(0, 0.02, queries), 0.0)
    after = np.where(random.random(queries) < 0.01, 0.0, np.clip(before + change, 0, 1))
    return [Sample("nDCG@10", after, bounds=SHARE)], [Sample("nDCG@10", before, bounds=SHARE)]


def rare_where_most(random: np.random.Generator, queries: int) -> Trial:
    """One query in ten has all, and one in 27 of these loses it; the others have 0.3: a loss of 1 % of the
    baseline, which is 0.37.
    """
    before = np.where(random.random(queries) < 0.1, 1.0, 0.3)
    after = np.where((before == 1) & (random.random(queries) < 0.037), 0.0, before)
    return [Sample("nDCG@10", after, bounds=SHARE)], [Sample("nDCG@10", before, bounds=SHARE)]


def rare_beside_halves(random: np.random.Generator, queries: int) -> Trial:
    """Three queries in ten have nearly nothing, which often halves or grows by half; some others lose all: 1
    % of the baseline, 0.426.
    """
    low = random.random(queries) < 0.3
    before = np.where(low, random.uniform(0.01, 0.03, queries), random.uniform(0.4, 0.8, queries))
    factor = np.where(
        low,
        random.choice([0.5, 1.0, 1.5], queries, p=[0.4, 0.2, 0.4]),
        random.random(queries) >= 0.00426 / 0.42,
    )
    return [Sample("RR", before * factor, bounds=SHARE)], [Sample("RR", before, bounds=SHARE)]


def as_rankings_allow(
    random: np.random.Generator, queries: int, unlabelled: int = 5_000, loses: bool = True
) -> Trial:
    """The queries that can lose the most lose it, 1 % of the baseline, and three in ten others change a
    little; as many further queries as given say what can be lost.
    """
    before = random.uniform(0.7, 1.0, queries)
    change = np.where(random.random(queries) < 0.3, random.normal(0, 0.02, queries), 0.0)
    possible = _possible_losses(random, queries)
    losing = possible >= _losing_from()
    after = np.where(losing & loses, before - possible, np.clip(before + change, 0, 1))
    further = _possible_losses(random, unlabelled) if unlabelled else None
    return [Sample("nDCG@10", after, bounds=SHARE, possible_losses=further)], [
        Sample("nDCG@10", before, bounds=SHARE)
    ]


def _possible_losses(random: np.random.Generator, queries: int) -> Float[np.ndarray, " n"]:
    """About those between a model and its tuning: 60 % above 0.3, 3 % above 0.5, none above 0.7."""
    return np.clip(random.normal(0.32, 0.1, queries), 0.0, 0.7)


@cache
def _losing_from() -> float:
    """Possible losses from here on add up to 1 % of a baseline of 0.85 for each query."""
    many = np.sort(_possible_losses(np.random.default_rng(0), 1_000_000))[::-1]
    return float(many[np.searchsorted(np.cumsum(many), 0.01 * 0.85 * many.size)])


def one_large(random: np.random.Generator, queries: int) -> Trial:
    """A third of all queries are one cluster, in which changes correlate; the others are alone."""
    large = queries // 3
    numbers = np.r_[np.zeros(large, dtype=np.int64), 1 + np.arange(queries - large)]
    before = random.uniform(0.2, 0.8, queries)
    shared = np.sqrt(0.2) * random.normal(0, 0.1) * (numbers == 0)
    after = before + shared + np.sqrt(1 - 0.2 * (numbers == 0)) * random.normal(0, 0.1, queries)
    one, other = (
        Sample("nDCG@10", values, bounds=SHARE, clusters=Clusters(numbers)) for values in (after, before)
    )
    return [one], [other]


SHAPES = (
    Shape("dense, small changes", dense),
    Shape("several pairs per query", several),
    Shape("sparse, P@1", sparse),
    Shape("sparse, any size", sparse_sizes),
    Shape("skewed", skewed),
    Shape("sparse and skewed", sparse_skewed),
    Shape("Spearman", rank_correlation, queries=(100, 1000), share=0.1),
    Shape("average precision", precision, queries=(300, 1000), share=0.1),
    Shape("V-measure", clusters, queries=(300, 1000), share=0.1),
    Shape("Spearman, 3 runs of either", partial(runs_of, make=rank_correlation), queries=(300,), share=0.1),
    Shape("average precision, 3 runs of either", partial(runs_of, make=precision), queries=(300,), share=0.1),
    Shape("V-measure, 3 runs of either", partial(runs_of, make=clusters), queries=(300,), share=0.1),
    Shape("clusters of 1 to 20 equal queries", clustered, queries=(105, 210, 330, 1000, 3000), share=0.5),
    Shape("a third in one cluster", one_large, queries=(300, 1000), share=0.5),
    Shape("3 seeds of either", seeds, queries=(100, 1000), share=0.5),
    *(
        Shape(f"{n} seeds, one baseline", partial(seeds_against_one, runs=n), queries=(100, 1000), share=0.5)
        for n in (2, 3, 5)
    ),
)
RARE = (
    Shape("one query in 100 loses all", rare_losses, queries=(100, 300, 1000, 3000)),
    Shape("the same, where 7 in 10 have nothing", rare_among_misses, queries=(100, 300, 1000, 3000)),
    Shape("the same, where 3 in 10 change a little", rare_among_changes, queries=(100, 300, 1000, 3000)),
    Shape("some of those with most lose all", rare_where_most, queries=(100, 400, 1000, 3000)),
    Shape("the same, where small values halve", rare_beside_halves, queries=(50, 100, 300, 1000, 3000)),
    *(
        Shape(
            f"as much as rankings allow is lost, {n:,} unlabelled",
            partial(as_rankings_allow, unlabelled=n),
            queries=(100, 200, 300, 400, 1000),
            alike=partial(as_rankings_allow, unlabelled=n, loses=False),
        )
        for n in (0, 1_000, 5_000)
    ),
)
TUNED = Shape(
    "two in five change, by 0.4 times the spread", tuned, queries=(300, 500, 1000, 3000, 10_000), share=0.5
)
_LOSING = (dense, sparse_sizes, skewed, sparse_skewed, clustered, one_large)
LOSSES_OF = (*(shape for shape in SHAPES if shape.make in _LOSING or "seeds" in shape.about), TUNED, *RARE)
POWER_OF = tuple(
    shape for shape in SHAPES if shape.make in (dense, skewed, clustered) or "seeds" in shape.about
)


LEVELS = (
    Level("P@1 of 0.5", partial(np.random.Generator.binomial, n=1, p=0.5), 0.5),
    Level("P@1 of 0.9", partial(np.random.Generator.binomial, n=1, p=0.9), 0.9),
    Level("P@1 of 0.97", partial(np.random.Generator.binomial, n=1, p=0.97), 0.97),
    Level("RR, mostly 1", partial(np.random.Generator.beta, a=2.0, b=0.3), 2 / 2.3),
    Level("PND, mostly 0", partial(np.random.Generator.beta, a=0.2, b=3.0), 0.2 / 3.2),
)
LEVEL_QUERIES = (50, 100, 300)


def changes_of(
    trials: Sequence[Trial], *, seed: int, resamples: int, margin: Margin = DEFAULT_MARGIN
) -> list[Change]:
    """All at once, on shared resamples."""
    after, before = zip(*trials, strict=True)
    return changes_over_runs(after, before, seed=seed, resamples=resamples, margin=margin)


def tried(
    shape: Shape,
    queries: int,
    *,
    trials: int,
    resamples: int,
    seed: int,
    shift: float = 0.0,
    margin: Margin = DEFAULT_MARGIN,
) -> Cell:
    """Run the trials of one row, of which `AT_ONCE` share their resamples; `shift` is the true difference,
    put on every query.
    """
    random = np.random.default_rng([seed, queries, *shape.about.encode()])
    changes: list[Change] = []
    for block in range(-(-trials // AT_ONCE)):
        made = [shifted(shape.make(random, queries), shift) for _ in range(AT_ONCE)]
        changes += changes_of(made, seed=seed + 1 + block, resamples=resamples, margin=margin)
    return summary(changes)


def shifted(trial: Trial, shift: float) -> Trial:
    """The trial with a true difference between the two."""
    after, before = trial
    if not shift:
        return trial
    return [
        replace(
            one, values=one.values + shift * (1 if one.reference is None else one.reference), proportion=False
        )
        for one in after
    ], [replace(one, proportion=False) for one in before]


def summary(changes: Sequence[Change]) -> Cell:
    """Shares of the trials."""
    counted = [change.z for change in changes if change.z is not None]
    return Cell(
        trials=len(changes),
        interval=float(
            np.mean(
                [
                    not low <= 0 <= high
                    for low, high in (change.difference_interval or (0, 0) for change in changes)
                ]
            )
        ),
        p=float(np.mean([change.p is not None and change.p < ERROR_RATE for change in changes])),
        verdict=float(np.mean([change.verdict in ("better", "worse") for change in changes])),
        z=float(np.mean([abs(z) > Z_CRITICAL for z in counted])) if counted else None,
        detectable=float(np.mean([change.detectable or 0.0 for change in changes])),
        not_worse=float(np.mean([change.not_worse for change in changes])),
    )


def told(cell: Cell) -> list[str]:
    """The figures of a row, per cent; marked where they leave 5 % +- 1 %."""
    shares = [marked(cell.interval, cell.trials), f"{100 * cell.p:.1f}", marked(cell.verdict, cell.trials)]
    return [*shares, "-" if cell.z is None else f"{100 * cell.z:.1f}"]


def marked(share: float, trials: int) -> str:
    """A share in per cent; a few trials more or less are chance: a mark asks for more than two standard
    errors.
    """
    chance = 2 * np.sqrt(ERROR_RATE * (1 - ERROR_RATE) / trials)
    mark = " !" if share > ERROR_RATE else " (few)"
    return (
        f"{100 * share:.1f}{mark if abs(share - ERROR_RATE) > TOLERANCE + chance * (trials < 10_000) else ''}"
    )


def _table_row(*cells: object) -> str:
    """A row in Markdown."""
    return f"| {' | '.join(map(str, cells))} |"


def _row(job: tuple[int, int, int, int, int, bool]) -> str:
    """One row of a table; a job is a place in `SHAPES`, queries, trials, resamples, seed, and whether there
    is a difference to find.
    """
    place, queries, trials, resamples, seed, power = job
    shape = SHAPES[place]
    trials = max(AT_ONCE, round(trials * shape.share))
    if not power:
        cell = tried(shape, queries, trials=trials, resamples=resamples, seed=seed)
        return _table_row(shape.about, queries, f"{cell.trials:,}", *told(cell))
    alike = tried(
        shape, queries, trials=max(AT_ONCE, trials // 10), resamples=resamples, seed=seed + 1_000_000
    )
    cell = tried(
        shape,
        queries,
        trials=max(AT_ONCE, trials // 5),
        resamples=resamples,
        seed=seed,
        shift=alike.detectable,
    )
    verdicts = f"{100 * cell.verdict:.1f}"
    return _table_row(shape.about, queries, f"{cell.trials:,}", f"{alike.detectable:.4f}", verdicts)


def _loss_row(job: tuple[int, int, int, int, int]) -> str:
    """One row of the table of losses; a job is a place in `LOSSES_OF`, queries, trials, resamples and
    seed.
    """
    place, queries, trials, resamples, seed = job
    shape = LOSSES_OF[place]
    options: dict[str, Any] = {
        "trials": max(AT_ONCE, round(trials * shape.share)),
        "resamples": resamples,
        "seed": seed,
    }
    if shape in RARE:
        # The default margin is what these shapes lose.
        cell = tried(shape, queries, **options)
        kept = "-"
        if shape.alike is not None:
            kept = f"{100 * tried(replace(shape, make=shape.alike), queries, **options).not_worse:.1f}"
        return _table_row(shape.about, queries, DEFAULT_MARGIN, marked(cell.not_worse, cell.trials), kept)
    sample = shape.make(np.random.default_rng(0), 2)[0][0]
    size = tried(shape, queries, trials=AT_ONCE, resamples=resamples, seed=seed + 1_000_000).detectable
    # The baseline's mean is 0.5.
    size, margin = (
        (0.5 * DEFAULT_MARGIN.share, DEFAULT_MARGIN) if shape is TUNED else (size, Margin(absolute=size))
    )
    loss = size if sample.lower_is_better else -size
    lost, alike = (tried(shape, queries, shift=shift, margin=margin, **options) for shift in (loss, 0.0))
    shown = "1 %" if shape is TUNED else f"{size:.4f}"
    not_worse = f"{100 * alike.not_worse:.1f}"
    return _table_row(shape.about, queries, shown, marked(lost.not_worse, lost.trials), not_worse)


def _level_row(job: tuple[int, int, int, int]) -> str:
    """One row of the table of levels; a job is a place in `LEVELS`, queries, trials and seed."""
    place, queries, trials, seed = job
    level = LEVELS[place]
    random = np.random.default_rng([seed, queries, *level.about.encode()])
    samples = []
    for _ in range(trials):
        values = level.make(random, size=queries).astype(np.float64)
        samples.append(Sample(level.about, values, bounds=SHARE))
    intervals = [change.after_interval or (0, 1) for change in paired_changes(samples, None, seed=seed)]
    missed = float(np.mean([not low <= level.truth <= high for low, high in intervals]))
    width = float(np.mean([high - low for low, high in intervals]))
    return _table_row(level.about, queries, f"{trials:,}", marked(missed, trials), f"{width:.3f}")


def table(heads: Sequence[str], rows: Sequence[str]) -> str:
    """In Markdown."""
    return "\n".join([_table_row(*heads), "|" + "---|" * len(heads), *rows])


def main() -> None:
    """Run all trials and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--trials", type=int, default=10_000, help="of each row; some rows take a part of them"
    )
    parser.add_argument("--resamples", type=int, default=1000, help="of each bootstrap, and sign flips")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="words that the name of a row's data must contain")
    arguments = parser.parse_args()
    given = (arguments.trials, arguments.resamples, arguments.seed)
    alike = [
        (i, queries, *given, False)
        for i, shape in enumerate(SHAPES)
        if arguments.only in shape.about
        for queries in shape.queries
    ]
    moved = [
        (SHAPES.index(shape), queries, *given, True)
        for shape in POWER_OF
        if arguments.only in shape.about
        for queries in shape.queries
    ]
    with ProcessPoolExecutor(arguments.processes) as pool:
        rows = list(pool.map(_row, [*alike, *moved]))
        losses = [
            (i, queries, *given)
            for i, shape in enumerate(LOSSES_OF)
            if arguments.only in shape.about
            for queries in shape.queries
        ]
        of_losses = list(pool.map(_loss_row, losses))
        levels = [
            (i, queries, arguments.trials, arguments.seed)
            for i, level in enumerate(LEVELS)
            if arguments.only in level.about
            for queries in LEVEL_QUERIES
        ]
        of_levels = list(pool.map(_level_row, levels))
    print("No true difference, per cent of trials ('!' above 6 %, '(few)' below 4 %):\n")
    print(table(["data", "queries", "trials", "interval", "p", "verdict", "z"], rows[: len(alike)]))
    print("\nA true difference of the detectable size, per cent of trials with a verdict (80 wanted):\n")
    print(table(["data", "queries", "trials", "difference", "found"], rows[len(alike) :]))
    print(
        "\nPer cent of trials that are not worse by the margin (with a loss of the "
        "margin 5 at most, without one as many as can be):\n"
    )
    print(table(["data", "queries", "margin", "loss of the margin", "no loss"], of_losses))
    print("\nPer cent of trials in which the interval of one model's value misses the true one:\n")
    print(table(["data", "queries", "trials", "missed", "mean width"], of_levels))


if __name__ == "__main__":
    main()
