"""Search of a million stored vectors beside faiss: exact by both, and approximate with its recall.

Vectors are those of the demo's corpus, copied with noise until there are as many as asked for, so that they
lie in clusters as texts do. Queries are copies with more noise. Sides take turns in one process.

Run with ``python benchmarks/search.py``; ``--count``, ``--dtype`` and ``--rounds`` change the size.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import faiss
import numpy as np
from jaxtyping import Float32, Int64

import adiabat
from adiabat.datasets.bundled import DEMO_CORPUS
from adiabat.store.approximate import ApproximateIndex
from adiabat.store.search import search
from adiabat.store.stored_blocks import keep_in_memory
from adiabat.store.vector_store import Store

DEPTH, QUERIES = 10, 64
NEAR, FAR = 0.4, 0.6
"""Length of the noise that is added to a unit vector for a document, and for a query."""

Vectors = Float32[np.ndarray, "n e"]
Side = Callable[[Vectors], Int64[np.ndarray, "q k"]]


def noisy(base: Vectors, count: int, noise: float, rng: np.random.Generator) -> Vectors:
    """Unit vectors around randomly chosen ones."""
    drawn = base[rng.integers(len(base), size=count)]
    width = drawn.shape[1]
    drawn += (noise / np.sqrt(width)) * rng.standard_normal(drawn.shape, dtype=np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return drawn


def timed(side: Side, queries: Vectors) -> float:
    """Seconds of one search."""
    start = time.perf_counter()
    side(queries)
    return time.perf_counter() - start


def told(name: str, sides: Mapping[str, Side], queries: Vectors, rounds: int) -> None:
    """Print the median time of each side, in turns."""
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, run in sides.items():
            seconds[side].append(timed(run, queries))
    for side, values in seconds.items():
        low, high = min(values), max(values)
        middle = statistics.median(values)
        print(f"{name:>10} | {side:<28} | {1000 * middle:8.1f} ms ({1000 * low:.1f} to {1000 * high:.1f})")


def main() -> None:
    """Make the store, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--dtype", choices=("float16", "float32"), default="float32")
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        demo = adiabat.embed("demo", DEMO_CORPUS, Path(folder) / "demo")
        base = demo.gather(np.arange(demo.count)).astype(np.float32)
        documents = noisy(base, asked.count, NEAR, rng)
        queries = noisy(base, QUERIES, FAR, rng)
        ids = [str(row) for row in range(asked.count)]
        store: Store = adiabat.import_vectors(documents, Path(folder) / "store", ids=ids, dtype=asked.dtype)
        flat = faiss.IndexFlatIP(documents.shape[1])
        flat.add(documents)
        del documents
        began = time.perf_counter()
        index = ApproximateIndex.build(store, "cosine")
        built = time.perf_counter() - began
        recall = index.tune([queries], 0.95)
        threads = faiss.omp_get_max_threads()
        print(f"{asked.count:,} x {store.width} in {asked.dtype}, {threads} threads of faiss")
        groups = f"{index.probed} of {index.index.nlist} groups"
        print(f"approximate: built in {built:.0f} s; {groups}, recall {recall:.3f}")
        sides: dict[str, Side] = {
            "adiabat, exact": lambda vectors: search(store, vectors, DEPTH).rows,
            "faiss, IndexFlatIP": lambda vectors: flat.search(vectors, DEPTH)[1],
            "adiabat, approximate": lambda vectors: index.search(store, vectors, DEPTH).rows,
        }
        agreed = np.mean(sides["adiabat, exact"](queries) == sides["faiss, IndexFlatIP"](queries))
        print(f"both exact searches agree on {agreed:.1%} of rows; the others are ties within rounding")
        told("1 query", sides, queries[:1], asked.rounds)
        told("64 queries", sides, queries, asked.rounds)
        # As a server holds them.
        if keep_in_memory(store):
            kept = {"adiabat, exact, in memory": sides["adiabat, exact"]}
            kept["faiss, IndexFlatIP"] = sides["faiss, IndexFlatIP"]
            told("1 query", kept, queries[:1], asked.rounds)
            told("64 queries", kept, queries, asked.rounds)


if __name__ == "__main__":
    main()
