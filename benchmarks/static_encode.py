"""Encoding texts with a static model: adiabat against model2vec's encode, on the same directory.

The model is a static model of the demo's model (256 dimensions, float32), the texts are title and abstract of
the demo's papers. Both sides load the same directory, and take turns in separate processes, because model2vec
switches off the threads of tokenizers for its whole process. Embeddings are compared before timing starts,
and 500 texts warm up each side.

    python benchmarks/static_encode.py [--model DIR] [--texts 20000] [--rounds 7]
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32
from model2vec import StaticModel

import adiabat
from adiabat.config.distillation import DistillStaticSettings
from adiabat.config.reader import checked
from adiabat.data.corpora import read_corpus
from adiabat.datasets.bundled import DEMO_CORPUS
from adiabat.models.model_paths import demo_model_folder

SETTINGS = checked(DistillStaticSettings, {"static": {"dtype": "float32"}, "run": {"device": "cpu"}})
TOLERATED = 1e-4

Encode = Callable[[list[str]], Float32[np.ndarray, "n e"]]


def main() -> None:
    """Both sides in turn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=None, help="directory of a static model")
    parser.add_argument(
        "--texts", type=int, default=20_000, help="number of texts; papers are repeated if there are too few"
    )
    parser.add_argument("--rounds", type=int, default=7, help="alternating measurements of each side")
    parser.add_argument(
        "--side", choices=SIDES, default=None, help="measure this side once, and print its seconds"
    )
    options = parser.parse_args()
    texts = list(islice(cycle([document.text for document in read_corpus(DEMO_CORPUS)]), options.texts))
    if options.side is not None:
        encode = SIDES[options.side](options.model)
        encode(texts[:500])
        print(timed(encode, texts))
        return
    with tempfile.TemporaryDirectory() as folder:
        model = options.model
        if model is None:
            model = Path(folder) / "static"
            adiabat.distill_static(str(demo_model_folder()), model, settings=SETTINGS)
        gap = float(np.abs(ours(model)(texts[:500]) - theirs(model)(texts[:500])).max())
        assert gap <= TOLERATED, f"the embeddings differ by {gap:.1e}"
        rates = [
            {name: len(texts) / alone(name, model, len(texts)) for name in SIDES}
            for _ in range(options.rounds)
        ]
    words = statistics.mean(len(text.split()) for text in texts)
    print(f"{len(texts):,} texts of {words:.0f} words; largest difference {gap:.1e}")
    for name in SIDES:
        found = [one[name] for one in rates]
        spread = f"range {min(found):,.0f} to {max(found):,.0f} over {options.rounds} rounds"
        print(f"{name}: median {statistics.median(found):,.0f} texts/s, {spread}")
    ratios = [one["adiabat"] / one["model2vec"] for one in rates]
    print(
        f"ratio of each round: {', '.join(f'{ratio:.2f}' for ratio in ratios)}; "
        f"{torch.get_num_threads()} threads"
    )
    print(f"static_encode: ratio {statistics.median(ratios):.2f} (target 1)")


def alone(side: str, model: Path, texts: int) -> float:
    """Seconds of a side in a process of its own."""
    command = [sys.executable, __file__, "--side", side, "--model", str(model), "--texts", str(texts)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def ours(folder: Path) -> Encode:
    """As adiabat embeds with a directory."""
    model = adiabat.load(str(folder))
    return lambda texts: model.encode(texts, side="document")


def theirs(folder: Path) -> Encode:
    """As model2vec does, without a limit, as adiabat has none for such a directory, and without its bar."""
    model = StaticModel.from_pretrained(str(folder))
    return lambda texts: np.asarray(
        model.encode(texts, max_length=None, show_progress_bar=False), dtype=np.float32
    )


def timed(encode: Encode, texts: list[str]) -> float:
    """Seconds of a side."""
    begun = time.perf_counter()
    encode(texts)
    return time.perf_counter() - begun


SIDES = {"adiabat": ours, "model2vec": theirs}

if __name__ == "__main__":
    main()
