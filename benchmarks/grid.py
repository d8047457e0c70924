"""The language grid by ranking against pairwise comparisons, on random vectors.

Both sides start from the same vectors of 15 languages and count, in all 225 language pairs, by cosine and by
distance, the entailment pairs
that are not strictly closer than a neutral pair, and than a contradiction pair: 225 x 2 x 2 x 1,670 x 1,670
comparisons. They run in turn in one process, and their counts must be equal. Ranking also gives the
contribution of every premise to every cell, which comparisons of models use; the script also prints the time
and memory of such a comparison of two slightly different models.

The retrieval of the same grid, each entailed hypothesis among the neutral and the contradicted ones of other
premises, is compared with plain products in 64 bits over ``--retrieval-languages`` languages: their counts
must be equal too, except for scores nearer than 1e-7.

Run with ``python benchmarks/grid.py``.
"""

import argparse
import statistics
import time

import numpy as np
from jaxtyping import Float, Int

from adiabat.data.records import NEGATIVES
from adiabat.evaluation.language_grid_measures import grid_scores, measure_grid, measure_grid_retrieval
from adiabat.models.embedding_head import Similarity
from adiabat.stats.grid_comparison import compare_grids
from adiabat.stats.samples import GridSample

Vectors = dict[str, Float[np.ndarray, "n e"]]
Errors = Int[np.ndarray, "s c a b"]
COMPARED: tuple[Similarity, ...] = ("cosine", "distance")

NEAR = 1e-7
"""Scores that search goes by are rounded to 32 bits (`adiabat.store.scoring`); nearer ones may tie, or change
places."""


def by_ranking(premises: Vectors, hypotheses: Vectors, each: int) -> list[GridSample]:
    """Adiabat's grid: sentence pairs in threes that share a premise."""
    labels = [label for label in ("entailment", *NEGATIVES) for _ in range(each)]
    clusters = np.tile(np.arange(each), 3)
    scores = grid_scores(premises, hypotheses, similarities=COMPARED)
    return measure_grid(scores, labels, rows=list(premises), columns=list(hypotheses), clusters=clusters)[1]


def errors_of(cells: list[GridSample]) -> Errors:
    """What was counted, similarity by similarity and comparison by comparison."""
    counted = np.array([one.errors for one in cells])
    return counted.reshape(len(COMPARED), len(NEGATIVES), *counted.shape[1:])


def by_comparing(premises: Vectors, hypotheses: Vectors, each: int) -> Errors:
    """Plain numpy: score language pair by language pair, then broadcast every entailment pair against every
    other pair.
    """
    errors = np.zeros((len(COMPARED), len(NEGATIVES), len(premises), len(hypotheses)), dtype=np.int64)
    # Lengths and widening are hoisted out of the loop, as anyone would.
    queries = [vectors.astype(np.float64) for vectors in premises.values()]
    documents = [vectors.astype(np.float64) for vectors in hypotheses.values()]
    query_lengths = [np.linalg.norm(vectors, axis=1) for vectors in queries]
    document_lengths = [np.linalg.norm(vectors, axis=1) for vectors in documents]
    for a, query in enumerate(queries):
        for b, document in enumerate(documents):
            cosine = np.einsum("ne,ne->n", query, document) / (query_lengths[a] * document_lengths[b])
            distance = -np.linalg.norm(query - document, axis=1)
            for s, scores in enumerate((cosine, distance)):
                positive, *negatives = np.split(scores, [each, 2 * each])
                for c, negative in enumerate(negatives):
                    errors[s, c, a, b] = np.count_nonzero(negative[None, :] >= positive[:, None])
    return errors


def retrieval_by_products(premises: Vectors, hypotheses: Vectors, each: int) -> tuple[Errors, Errors]:
    """Plain numpy, every premise with every hypothesis of a language in 64 bits: errors by more than `NEAR`,
    and those by less as well.
    """
    sure, possible = (
        np.zeros((len(NEGATIVES), len(premises), len(hypotheses)), dtype=np.int64) for _ in range(2)
    )
    wide = [[rows.astype(np.float64) for rows in side.values()] for side in (premises, hypotheses)]
    units = [[rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in side] for side in wide]
    for a, query in enumerate(units[0]):
        for b, document in enumerate(units[1]):
            scores = query[:each] @ document.T
            own = np.diagonal(scores[:, :each])[:, None]
            for c in range(len(NEGATIVES)):
                others = scores[:, (c + 1) * each : (c + 2) * each]
                for errors, level in ((sure, own + NEAR), (possible, own - NEAR)):
                    above = others >= level
                    errors[c, a, b] = np.count_nonzero(above) - np.count_nonzero(np.diagonal(above))
    return sure, possible


def time_retrieval(premises: Vectors, hypotheses: Vectors, each: int) -> str:
    """Measure retrieval both ways, once."""
    labels = [label for label in ("entailment", *NEGATIVES) for _ in range(each)]
    start = time.perf_counter()
    _, cells = measure_grid_retrieval(
        premises, hypotheses, labels, similarities=["cosine"], clusters=np.tile(np.arange(each), 3)
    )
    between = time.perf_counter()
    sure, possible = retrieval_by_products(premises, hypotheses, each)
    ended = time.perf_counter()
    counts = np.array([cell.errors for cell in cells])
    if not np.all((sure <= counts) & (counts <= possible)):
        raise SystemExit("grid: the two sides count differently in retrieval")
    took = (
        f"retrieval in {len(premises) ** 2} cells: {between - start:.2f} s; plain "
        f"products, twice compared, {ended - between:.2f} s"
    )
    left = f"{int((possible - sure).sum())} of {int(sure.sum()):,} errors"
    return f"{took}; counts equal but for {left}, which scores of 32 bits leave open"


def random_vectors(languages: int, pairs: int, width: int, *, seed: int) -> Vectors:
    """One float32 array per language, as an encoder would give."""
    generator = np.random.default_rng(seed)
    return {f"l{i}": generator.standard_normal((pairs, width), dtype=np.float32) for i in range(languages)}


def slightly_changed(vectors: Vectors, *, seed: int) -> Vectors:
    """As a tuned model would give them."""
    generator = np.random.default_rng(seed)
    return {
        name: rows + 0.1 * generator.standard_normal(rows.shape, dtype=np.float32)
        for name, rows in vectors.items()
    }


def time_comparison(premises: Vectors, hypotheses: Vectors, each: int) -> str:
    """Score two models and compare them in every cell."""
    changed = slightly_changed(premises, seed=2)
    start = time.perf_counter()
    before, after = by_ranking(premises, hypotheses, each), by_ranking(changed, hypotheses, each)
    scored = time.perf_counter()
    tables = [compare_grids(now, was, seed=0) for now, was in zip(after, before, strict=True)]
    ended = time.perf_counter()
    significant = sum((one.improved or 0) + (one.worsened or 0) for one in tables)
    memory = sum(one.values.nbytes for one in (*before, *after)) / 2**20
    took = (
        f"{scored - start:.2f} s to score, {ended - scored:.2f} s for p-values of "
        f"{sum(one.values[..., 0].size for one in after)} cells"
    )
    return (
        f"two models compared: {took}, {significant} cells differ significantly; {memory:.0f} MiB of samples"
    )


def main() -> None:
    """Alternate the two, compare their counts, print medians and ranges."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--languages", type=int, default=15)
    parser.add_argument("--each", type=int, default=1670, help="sentence pairs of each label")
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--retrieval-languages", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    premises = random_vectors(options.languages, 3 * options.each, options.width, seed=0)
    hypotheses = random_vectors(options.languages, 3 * options.each, options.width, seed=1)
    ranking, comparing = [], []
    for _ in range(options.rounds):
        start = time.perf_counter()
        cells = by_ranking(premises, hypotheses, options.each)
        between = time.perf_counter()
        counted = by_comparing(premises, hypotheses, options.each)
        comparing.append(time.perf_counter() - between)
        ranking.append(between - start)
        if not np.array_equal(errors_of(cells), counted):
            raise SystemExit("grid: the two sides count differently")
    print(time_comparison(premises, hypotheses, options.each))
    few, few_others = (
        dict(list(side.items())[: options.retrieval_languages]) for side in (premises, hypotheses)
    )
    print(time_retrieval(few, few_others, options.each))
    for name, times in (("ranking", ranking), ("comparing", comparing)):
        print(
            f"{name}: median {statistics.median(times):.2f} s, range {min(times):.2f} "
            f"to {max(times):.2f} s over {len(times)} runs"
        )
    ratios = [peer / ours for peer, ours in zip(comparing, ranking, strict=True)]
    print(
        f"ratio of each round: median {statistics.median(ratios):.2f}, range "
        f"{min(ratios):.2f} to {max(ratios):.2f}"
    )
    print(
        f"grid: ratio {statistics.median(ratios):.1f} (target: exact, <= 5 s; "
        f"took {statistics.median(ranking):.2f} s)"
    )


if __name__ == "__main__":
    main()
