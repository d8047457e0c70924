"""From a teacher to a static model on disk: adiabat against model2vec with the same options.

Both sides load the same model directory and use 256 dimensions by PCA, SIF by rank with 1e-4, and float32, in
turns in one process. Vectors are compared before timing starts.

    python benchmarks/static_distill.py [--model DIR] [--rounds 3]  # default: the demo's model
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32
from model2vec import StaticModel
from model2vec.distill import distill

import adiabat
from adiabat.config.distillation import DistillStaticSettings
from adiabat.config.reader import checked
from adiabat.models.model_paths import demo_model_folder

DIMS, SIF = 256, 1e-4
TOLERATED = 1e-3
SETTINGS = checked(
    DistillStaticSettings,
    {
        "static": {"reduction": {"dims": DIMS}, "weighting": {"a": SIF}, "dtype": "float32"},
        "run": {"device": "cpu"},
    },
)

Table = Float32[np.ndarray, "v e"]


def main() -> None:
    """Both sides in turn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=None, help="directory of the teacher")
    parser.add_argument("--rounds", type=int, default=3, help="alternating measurements of each side")
    options = parser.parse_args()
    model = demo_model_folder() if options.model is None else options.model
    with tempfile.TemporaryDirectory() as folder:
        sides = {"adiabat": lambda out: ours(model, out), "model2vec": lambda out: theirs(model, out)}
        gap = difference(*(table_of(make, Path(folder) / "first") for make in sides.values()))
        seconds = [
            {name: timed(make, Path(folder) / "model") for name, make in sides.items()}
            for _ in range(options.rounds)
        ]
    print(
        "largest difference of two vectors' numbers, against the largest "
        f"number: {gap:.1e}; tolerated {TOLERATED:g}"
    )
    for name in sides:
        taken = [one[name] for one in seconds]
        print(
            f"{name}: median {statistics.median(taken):.1f} s, range {min(taken):.1f} to "
            f"{max(taken):.1f} s over {options.rounds} rounds"
        )
    ratios = [one["model2vec"] / one["adiabat"] for one in seconds]
    print(
        f"ratio of each round: {', '.join(f'{ratio:.1f}' for ratio in ratios)}; "
        f"{torch.get_num_threads()} threads"
    )
    print(f"static_distill: ratio {statistics.median(ratios):.1f} (target 1)")


def ours(model: Path, out: Path) -> None:
    """A directory by adiabat."""
    adiabat.distill_static(str(model), out, settings=SETTINGS)


def theirs(model: Path, out: Path) -> None:
    """A directory by model2vec."""
    distill(
        str(model), pca_dims=DIMS, sif_coefficient=SIF, quantize_to="float32", device="cpu"
    ).save_pretrained(str(out))


def table_of(make: Callable[[Path], None], out: Path) -> Table:
    """The table that a side makes, with rows of zeros for unknown tokens, which the two treat otherwise."""
    make(out)
    model = StaticModel.from_pretrained(str(out))
    table = np.array(model.embedding, dtype=np.float32)
    if (unknown := model.tokenizer.token_to_id("[UNK]")) is not None:
        table[unknown] = 0.0
    shutil.rmtree(out)
    return table


def difference(first: Table, second: Table) -> float:
    """Of two tables, as a share of the largest number; refuses what is not the same."""
    assert first.shape == second.shape, f"{first.shape} against {second.shape}"
    gap = float(np.abs(first - second).max() / np.abs(second).max())
    assert gap <= TOLERATED, f"the tables differ by {gap:.1e}"
    return gap


def timed(make: Callable[[Path], None], out: Path) -> float:
    """Seconds of a side, to the last file."""
    begun = time.perf_counter()
    make(out)
    seconds = time.perf_counter() - begun
    shutil.rmtree(out)
    return seconds


if __name__ == "__main__":
    main()
