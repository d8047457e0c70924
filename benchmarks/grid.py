"""The language grid by ranking against the same grid by comparing every pair, on random vectors.

Both sides start from the same vectors of 15 languages and count, in all 225 language pairs, by cosine and by distance, the entailment
pairs that are not strictly closer than a neutral pair, and than a contradiction pair: 225 x 2 x 2 x 1,670 x 1,670 comparisons. They run
in turn in one process, and their counts must be equal.

Run with ``python benchmarks/grid.py``.
"""

import argparse
import statistics
import time

import numpy as np
from jaxtyping import Float, Int

from adiabat.measure.grid import NEGATIVES, SIMILARITIES, grid_scores, placements

Vectors = dict[str, Float[np.ndarray, "n e"]]
Errors = Int[np.ndarray, "s c a b"]


def by_ranking(premises: Vectors, hypotheses: Vectors, each: int) -> Errors:
    """Adiabat's grid."""
    scores = grid_scores(premises, hypotheses)
    parts = {name: np.split(values, [each, 2 * each], axis=-1) for name, values in scores.items()}
    return np.array([[placements(parts[name][0], parts[name][1 + c]).errors for c in range(len(NEGATIVES))] for name in SIMILARITIES])


def by_comparing(premises: Vectors, hypotheses: Vectors, each: int) -> Errors:
    """Plain numpy: score language pair by language pair, then broadcast every entailment pair against every other pair."""
    errors = np.zeros((len(SIMILARITIES), len(NEGATIVES), len(premises), len(hypotheses)), dtype=np.int64)
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


def random_vectors(languages: int, pairs: int, width: int, *, seed: int) -> Vectors:
    """One float32 array per language, as an encoder would give."""
    generator = np.random.default_rng(seed)
    return {f"l{i}": generator.standard_normal((pairs, width), dtype=np.float32) for i in range(languages)}


def main() -> None:
    """Alternate the two, compare their counts, print medians and ranges."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--languages", type=int, default=15)
    parser.add_argument("--each", type=int, default=1670, help="sentence pairs of each label")
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    premises = random_vectors(options.languages, 3 * options.each, options.width, seed=0)
    hypotheses = random_vectors(options.languages, 3 * options.each, options.width, seed=1)
    seconds: dict[str, list[float]] = {"ranking": [], "comparing": []}
    for _ in range(options.rounds):
        counted: list[Errors] = []
        for name, count in (("ranking", by_ranking), ("comparing", by_comparing)):
            start = time.perf_counter()
            counted.append(count(premises, hypotheses, options.each))
            seconds[name].append(time.perf_counter() - start)
        if not np.array_equal(counted[0], counted[1]):
            raise SystemExit("grid: the two sides count differently")
    for name, times in seconds.items():
        print(f"{name}: median {statistics.median(times):.2f} s, range {min(times):.2f} to {max(times):.2f} s over {len(times)} runs")
    ratios = [peer / ours for peer, ours in zip(seconds["comparing"], seconds["ranking"], strict=True)]
    print(f"ratio of each round: median {statistics.median(ratios):.2f}, range {min(ratios):.2f} to {max(ratios):.2f}")
    took = statistics.median(seconds["ranking"])
    print(f"grid: ratio {statistics.median(ratios):.1f} (target: exact, <= 5 s; took {took:.2f} s)")


if __name__ == "__main__":
    main()
