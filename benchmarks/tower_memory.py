"""Memory of a server's towers: one of the embedded model, fifty deltas of rank 8, or twenty of all blocks.

Two jobs of a few steps are exported as deltas, and copied; each case is loaded by a process of its own, which
prints its resident memory. Goals: fifty of rank 8 within 1.5 times the memory of one, and twenty of all
blocks within the size of their files beside it.

Run with ``python benchmarks/tower_memory.py``.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import adiabat

STATUS = Path("/proc/self/status")
METHODS = {"lora": {"kind": "lora", "rank": 8}, "full": {"kind": "full"}}
COUNTS = {"lora": 50, "full": 20}


def resident() -> int:
    """Bytes of this process that lie in memory."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def load(store: str, sources: Sequence[str]) -> None:
    """Load towers, ask each for a vector, and print the memory of the process."""
    import gc

    from adiabat.config.shared import RankingEncoderSection
    from adiabat.serving.served_towers import Towers
    from adiabat.store.vector_store import Store

    towers = Towers(Store.open(store), RankingEncoderSection(), "cpu")
    for number, source in enumerate(sources):
        towers.put(f"tower-{number}", source)
    for tower in towers.listed():
        tower.model.encode(["a question"], side="query", precision="fp32")
    gc.collect()
    print(json.dumps({"resident": resident()}))


def measured(store: Path, sources: Sequence[Path | str]) -> int:
    """Resident bytes of a process with these towers."""
    words = [sys.executable, __file__, "--store", str(store), "--load", *map(str, sources)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    return int(json.loads(ran.stdout.splitlines()[-1])["resident"])


def made(folder: Path) -> tuple[Path, dict[str, Path]]:
    """A store, and a delta by each method."""
    rows = [{"_id": f"d{number}", "text": f"paper {number}"} for number in range(60)]
    store = adiabat.embed("demo", rows, folder / "store")
    pairs = [{"query": f"about {number}", "pos": [f"d{number}"]} for number in range(60)]
    deltas = {}
    for name, method in METHODS.items():
        options: dict[str, Any] = {"recipe": "paper", "learning_rate": 1e-4, "keep": "last", "method": method}
        job = adiabat.tune(
            "demo",
            store,
            pairs,
            folder / name,
            max_epochs=1,
            batches_per_epoch=4,
            negatives="hardest",
            **options,
        )
        adiabat.export(job, folder / f"{name}-delta", to="delta")
        deltas[name] = folder / f"{name}-delta"
    return Path(store), deltas


def size_of(folder: Path) -> int:
    """Bytes of the weights of a directory."""
    return sum(path.stat().st_size for path in folder.rglob("*.safetensors"))


def main() -> None:
    """Make the deltas, and measure each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store")
    parser.add_argument("--load", nargs="+")
    asked = parser.parse_args()
    if asked.load:
        load(asked.store, asked.load)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        store, deltas = made(folder)
        one = measured(store, ["demo"])
        print(f"one tower of the embedded model: {one / 2**20:,.0f} MiB resident")
        for name, count in COUNTS.items():
            copies = [folder / f"{name}-{number}" for number in range(count)]
            for copy in copies:
                shutil.copytree(deltas[name], copy)
            several = measured(store, copies)
            own, files = several - one, count * size_of(deltas[name])
            print(
                f"{count} deltas ({name}): {several / 2**20:,.0f} MiB, {several / one:.2f} times one; "
                f"{own / 2**20:,.0f} MiB beside it, their files {files / 2**20:,.0f} MiB"
            )


if __name__ == "__main__":
    main()
