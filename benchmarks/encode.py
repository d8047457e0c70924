"""`Encoder.encode` against `SentenceTransformer.encode`: documents per second with the same model, texts and
token limit.

Three sides take turns in one process: adiabat with its defaults; the peer with its defaults; and the peer
under the autocast that adiabat chose, with the fastest of a few batch sizes, determined beforehand. Cosines
compare adiabat's vectors with the peer's default ones.

Run with ``python benchmarks/encode.py``; ``--corpus`` takes any corpus that adiabat reads, and several.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from sentence_transformers import SentenceTransformer

from adiabat.data.corpora import read_corpus
from adiabat.datasets.bundled import DEMO_CORPUS
from adiabat.models.device import Precision, autocast, device_name, device_of, minimum_cosine
from adiabat.models.encoder import Encoder
from adiabat.models.loading import load
from adiabat.models.model_paths import demo_model_folder

BATCH_SIZES = (8, 16, 32, 64, 128)
OURS, DEFAULTS, AUTOCAST = "adiabat", "peer, defaults", "peer under autocast"
TARGETS: Mapping[str, float] = {DEFAULTS: 2.0, AUTOCAST: 1.3}

Vectors = Float[np.ndarray, "n e"]
Side = Callable[[Sequence[str]], Vectors]


@dataclass
class Measured:
    """Seconds of every round by side, and the smallest cosine to the default peer, by side."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    cosines: dict[str, float] = field(default_factory=dict)

    def ratios(self, peer: str) -> list[float]:
        """How many times as long the peer took, round by round."""
        return [theirs / ours for theirs, ours in zip(self.seconds[peer], self.seconds[OURS], strict=True)]


def by_peer(
    model: SentenceTransformer, precision: Precision, batch_size: int, texts: Sequence[str]
) -> Vectors:
    """The peer's vectors."""
    with autocast(model.device, precision):
        vectors = model.encode(
            list(texts), batch_size=batch_size, show_progress_bar=False, convert_to_numpy=True
        )
    return np.asarray(vectors, dtype=np.float32)


def timed(side: Side, texts: Sequence[str]) -> tuple[float, Vectors]:
    """Seconds and vectors of one run."""
    start = time.perf_counter()
    vectors = side(texts)
    return time.perf_counter() - start, vectors


def fastest_batch_size(model: SentenceTransformer, precision: Precision, texts: Sequence[str]) -> int:
    """The peer's best batch size on a part of the texts, each size timed twice."""
    part = texts[: max(len(texts) // 4, 1)]
    seconds = {
        size: min(timed(partial(by_peer, model, precision, size), part)[0] for _ in range(2))
        for size in BATCH_SIZES
    }
    return min(seconds, key=seconds.__getitem__)


def measured(sides: Mapping[str, Side], texts: Sequence[str], rounds: int) -> Measured:
    """Let the sides take turns; each round begins with the next side."""
    result = Measured({name: [] for name in sides})
    order = list(sides)
    vectors: dict[str, Vectors] = {}
    for turn in range(rounds):
        for name in order[turn % len(order) :] + order[: turn % len(order)]:
            seconds, vectors[name] = timed(sides[name], texts)
            result.seconds[name].append(seconds)
    result.cosines = {name: minimum_cosine(vectors[name], vectors[DEFAULTS]) for name in sides}
    return result


def report(measurement: Measured, documents: int) -> None:
    """Print medians, ranges and cosines of one corpus."""
    for name, seconds in measurement.seconds.items():
        rate = sorted(documents / one for one in seconds)
        print(
            f"  {name}: median {statistics.median(rate):.1f} documents/s, range {rate[0]:.1f} "
            f"to {rate[-1]:.1f} over {len(rate)} runs, "
            f"minimum cosine {measurement.cosines[name]:.6f}"
        )
    for peer in TARGETS:
        ratios = measurement.ratios(peer)
        print(
            f"  ratio to {peer}: median {statistics.median(ratios):.2f}, range "
            f"{min(ratios):.2f} to {max(ratios):.2f}",
            flush=True,
        )


def on_corpus(
    encoder: Encoder, peer: SentenceTransformer, corpus: str | Path, options: argparse.Namespace
) -> Measured:
    """Measure on a sample of one corpus."""
    texts = [document.text for document in read_corpus(corpus)]
    texts = random.Random(0).sample(texts, min(options.documents, len(texts)))
    lengths = encoder.tokenize(texts, side="document").lengths
    cut = sum(length == encoder.settings.max_tokens for length in lengths) / len(lengths)
    precision = encoder.settle("auto")
    size = fastest_batch_size(peer, precision, texts)
    print(
        f"{Path(corpus).name}: {len(texts)} documents, {statistics.mean(lengths):.0f} "
        f"tokens on average, {cut:.0%} at the limit"
    )
    print(f"  {precision}; fastest batch size of the peer in it: {size}", flush=True)
    sides: dict[str, Side] = {
        OURS: partial(encoder.encode, side="document"),
        DEFAULTS: partial(by_peer, peer, "fp32", 32),
        AUTOCAST: partial(by_peer, peer, precision, size),
    }
    result = measured(sides, texts, options.rounds)
    report(result, len(texts))
    return result


def main() -> None:
    """Measure corpus by corpus, then print the smallest ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="directory or hub name (default: the embedded one)")
    parser.add_argument("--corpus", nargs="+", default=[DEMO_CORPUS], help="default: the demo's abstracts")
    parser.add_argument("--documents", type=int, default=256, help="sampled from each corpus")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    device = device_of(options.device)
    name = str(options.model or demo_model_folder())
    encoder = load(name).document.to(device)
    peer = SentenceTransformer(name, device=str(device))
    print(f"{device_name(device)}; torch {torch.__version__}")
    results = [on_corpus(encoder, peer, corpus, options) for corpus in options.corpus]
    lowest = {peer: min(statistics.median(result.ratios(peer)) for result in results) for peer in TARGETS}
    print(f"encode: ratio {lowest[DEFAULTS]:.2f} (target {TARGETS[DEFAULTS]:g})")
    print(f"encode at equal autocast: ratio {lowest[AUTOCAST]:.2f} (target {TARGETS[AUTOCAST]:g})")


if __name__ == "__main__":
    main()
