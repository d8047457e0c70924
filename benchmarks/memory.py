"""Peak memory of a tuning job with hardest-negative search: a store of 1,000,000 vectors against one of
1,000, with all else equal.

Each job is a separate process; its peak resident set is the operating system's figure at its end.

    python benchmarks/memory.py [--documents 1000000] [--steps 10]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

SMALL, WIDTH, BLOCK = 1_000, 384, 100_000
TARGET_MB = 300


def main() -> None:
    """Make both stores, run both jobs, print both peaks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        peaks = {
            count: job_peak(Path(folder) / str(count), count, arguments.steps)
            for count in (SMALL, arguments.documents)
        }
    for count, peak in peaks.items():
        print(f"{count:,} documents: peak {peak:.0f} MB")
    print(f"memory: difference {peaks[arguments.documents] - peaks[SMALL]:.0f} MB (target <= {TARGET_MB})")


def job_peak(folder: Path, count: int, steps: int) -> float:
    """Build a store of random vectors in one process, tune in another, and give the latter's peak in MB."""
    folder.mkdir()
    write_vectors(folder, count)
    program = (
        "import sys; from adiabat.store.imports import Incoming, import_vectors; "
        "import_vectors(Incoming(sys.argv[1], sys.argv[3]), sys.argv[2])"
    )
    run("-c", program, *map(str, parts(folder)))
    settings = {"learning_rate": 5e-8, "negatives": "hardest", "batches_per_epoch": steps, "max_epochs": 1}
    sets = [word for key, value in settings.items() for word in ("--set", f"tune.{key}={value}")]
    return run(
        "-m",
        "adiabat",
        "tune",
        "demo",
        str(folder / "store"),
        str(folder / "data.jsonl"),
        "--out",
        str(folder / "job"),
        *sets,
    )


def parts(folder: Path) -> tuple[Path, Path, Path]:
    """Vectors, the store made of them, and their ids."""
    return folder / "vectors.npy", folder / "store", folder / "ids.txt"


def write_vectors(folder: Path, count: int) -> None:
    """Random unit vectors block by block, ids, and queries of real length that are answered by random
    documents.
    """
    vectors, _, ids = parts(folder)
    generator = np.random.default_rng(0)
    stored = np.lib.format.open_memmap(vectors, mode="w+", dtype=np.float16, shape=(count, WIDTH))
    for start in range(0, count, BLOCK):
        block = generator.standard_normal((min(BLOCK, count - start), WIDTH), dtype=np.float32)
        stored[start : start + len(block)] = block / np.linalg.norm(block, axis=1, keepdims=True)
    stored.flush()
    ids.write_text("".join(f"d{row}\n" for row in range(count)), encoding="utf-8")
    rows = [
        {
            "query": f"what is said about subject {query} in the report of last year?",
            "pos": [f"d{generator.integers(count)}"],
        }
        for query in range(500)
    ]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def run(*arguments: str) -> float:
    """Run Python in a process of its own; its peak resident set in MB."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)} ended with {os.waitstatus_to_exitcode(status)}")
    return usage.ru_maxrss / 1024


if __name__ == "__main__":
    main()
