"""Exact search on a GPU: the same hits, scores, ties and counts as on the CPU; and milliseconds against
1,000,000 vectors.

    python benchmarks/gpu_search.py [--documents 1000000]

Equal results are tested first, on fewer documents, a fourth of which are different: every document ties with
its copies. The time is that of `adiabat.store.search.search` with the vectors on the device, where the first
search has left them.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from gpu_rows import SMALL, append

from adiabat.models.device import device_of
from adiabat.store.imports import Incoming, import_vectors
from adiabat.store.scoring import CPU, SIMILARITIES
from adiabat.store.search import count_at_least, score_rows, search
from adiabat.store.vector_store import Store

WIDTH = 384
COMPARED, QUERIES = (2_000, 50) if SMALL else (40_000, 500)


def main() -> None:
    """Compare, then measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=1_000_000)
    options = parser.parse_args()
    device, documents = device_of("auto"), 5_000 if SMALL else options.documents
    with tempfile.TemporaryDirectory() as folder:
        compare(device, Path(folder))
        vectors = np.random.default_rng(1).standard_normal((documents, WIDTH), dtype=np.float32)
        store = stored(vectors, Path(folder) / "large")
        for queries in (1, 64):
            asked = np.random.default_rng(2).standard_normal((queries, WIDTH), dtype=np.float32)
            seconds = [timed(store, asked, device) for _ in range(23)][3:]
            milliseconds = 1000 * statistics.median(seconds)
            append(f"search {queries}", milliseconds, f"{milliseconds:.2f} ({documents:,} documents)")


def stored(vectors: np.ndarray, folder: Path) -> Store:
    """A store in float16."""
    file = folder.with_suffix(".npy")
    np.save(file, vectors)
    return import_vectors(Incoming(file, [f"d{row}" for row in range(len(vectors))]), folder)


def timed(store: Store, asked: np.ndarray, device: torch.device) -> float:
    """Seconds of one search."""
    started = time.perf_counter()
    search(store, asked, 10, device=device)
    return time.perf_counter() - started


def compare(device: torch.device, folder: Path) -> None:
    """The row of equal results."""
    rng = np.random.default_rng(0)
    distinct = rng.standard_normal((COMPARED // 4, WIDTH), dtype=np.float32) * np.exp(
        rng.uniform(-3, 3, (COMPARED // 4, 1))
    )
    store = stored(
        distinct[rng.integers(len(distinct), size=COMPARED)].astype(np.float32), folder / "compared"
    )
    queries = rng.standard_normal((QUERIES, WIDTH), dtype=np.float32)
    queries[::2] = store.gather(rng.integers(COMPARED, size=len(queries[::2])))
    different = []
    for similarity in SIMILARITIES:
        levels = score_rows(store, queries, rng.integers(COMPARED, size=(QUERIES, 2)), similarity=similarity)
        found = []
        # Twice on the device: copied to it, and kept there.
        for place in (CPU, device, device):
            hits = search(store, queries, 100, similarity=similarity, device=place)
            counts, _ = count_at_least(store, queries, levels, similarity=similarity, device=place)
            found.append((hits.rows, hits.scores, counts))
        if not all(
            np.array_equal(one, other)
            for each in found[1:]
            for one, other in zip(found[0], each, strict=True)
        ):
            different.append(similarity)
    append(
        "equal ranks", float(not different), f"different by {', '.join(different)}" if different else "equal"
    )


if __name__ == "__main__":
    main()
