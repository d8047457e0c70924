"""`Encoder.encode` against `SentenceTransformer.encode`: documents per second with the same model, texts and
token limit.

Three sides take turns in one process: adiabat with its defaults; the peer with its defaults; and the peer
under the autocast that adiabat chose, with the fastest of a few batch sizes, determined beforehand. Cosines
compare adiabat's vectors with the peer's default ones.

Run with ``python benchmarks/encode.py``; ``--corpus`` takes any corpus that adiabat reads, and several.
With ``--backends FOLDER`` the sides are the backends of both: torch, ONNX and OpenVINO of the peer, as they
come and in int8, each in a process of its own with its best batch size and the libraries of FOLDER
(``requirements/oldest.txt``, ``.venv/oldest``); and torch, OpenVINO and int8 of adiabat. Cosines compare with
the peer's torch.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
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
from adiabat.models.openvino_graphs import CALIBRATED, OpenVinoRuntime, runtimes_of, write_quantised

BATCH_SIZES = (8, 16, 32, 64, 128)
OURS, DEFAULTS, AUTOCAST = "adiabat", "peer, defaults", "peer under autocast"
TARGETS: Mapping[str, float] = {DEFAULTS: 2.0, AUTOCAST: 1.3}

BACKENDS = ("torch", "onnx", "onnx-int8", "openvino", "openvino-int8")
"""Of the peer, as `encode_peer.py` takes them."""

AIMS = {
    "the peer's OpenVINO at 0.9999": ("peer openvino", ("adiabat torch", "adiabat openvino"), 1.3),
    "the peer's int8": ("peer openvino-int8", ("adiabat openvino int8",), 1.3),
    "the peer's torch": ("peer torch", ("adiabat torch", "adiabat openvino"), 2.6),
}
"""Peer, the sides of ours that count, the best of which is taken, and the target."""

Vectors = Float[np.ndarray, "n e"]
Side = Callable[[Sequence[str]], Vectors]


@dataclass
class Measured:
    """Seconds of every round by side, and the smallest cosine to the default peer, by side."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    cosines: dict[str, float] = field(default_factory=dict)

    def ratios(self, peer: str, side: str = OURS) -> list[float]:
        """How many times as long the peer took, round by round."""
        return [theirs / ours for theirs, ours in zip(self.seconds[peer], self.seconds[side], strict=True)]


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


def measured(
    sides: Mapping[str, Side], texts: Sequence[str], rounds: int, *, reference: str = DEFAULTS
) -> Measured:
    """Let the sides take turns; each round begins with the next side."""
    result = Measured({name: [] for name in sides})
    order = list(sides)
    vectors: dict[str, Vectors] = {}
    for turn in range(rounds):
        for name in order[turn % len(order) :] + order[: turn % len(order)]:
            seconds, vectors[name] = timed(sides[name], texts)
            result.seconds[name].append(seconds)
    result.cosines = {name: minimum_cosine(vectors[name], vectors[reference]) for name in sides}
    return result


def describe(measurement: Measured, documents: int) -> None:
    """Print medians, ranges and cosines of all sides."""
    for name, seconds in measurement.seconds.items():
        rate = sorted(documents / one for one in seconds)
        print(
            f"  {name}: median {statistics.median(rate):.1f} documents/s, range {rate[0]:.1f} "
            f"to {rate[-1]:.1f} over {len(rate)} runs, "
            f"minimum cosine {measurement.cosines[name]:.6f}"
        )


def report(measurement: Measured, documents: int) -> None:
    """Print what was measured on one corpus, and the ratios."""
    describe(measurement, documents)
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


@dataclass
class Peer:
    """A peer in a process of its own, which encodes all texts when it is asked to."""

    process: "subprocess.Popen[str]"
    vectors: Path

    @classmethod
    def of(cls, backend: str, model: str, texts: Path, libraries: str, log: Path) -> "Peer":
        """Start it, and wait until it is ready."""
        vectors = texts.with_name(f"{backend}.npy")
        script = Path(__file__).with_name("encode_peer.py")
        process = subprocess.Popen(
            [sys.executable, str(script), backend, model, str(texts), str(vectors)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
            env={**os.environ, "PYTHONPATH": libraries},
        )
        peer = cls(process, vectors)
        print(f"  peer {backend}: fastest batch size {peer.answer()}", flush=True)
        return peer

    def answer(self) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            raise SystemExit(f"the peer ended with {self.process.wait()}")
        return line

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """The vectors of the texts that it was started with."""
        assert self.process.stdin is not None
        print(file=self.process.stdin, flush=True)
        self.answer()
        vectors: Vectors = np.load(self.vectors)
        return vectors

    def close(self) -> None:
        """End it."""
        self.process.communicate()


def against_backends(name: str, options: argparse.Namespace) -> None:
    """Measure the backends of both sides on a sample of one corpus."""
    texts = [document.text for document in read_corpus(options.corpus[0])]
    texts = random.Random(0).sample(texts, min(options.documents + CALIBRATED, len(texts)))
    texts, others = texts[: options.documents], texts[options.documents :]
    tower = load(name).document
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "texts.json").write_text(json.dumps(texts))
        graph = folder / "encoder.xml"
        write_quantised(tower, "document", others, graph)
        by_graph = tower.with_runtime(runtimes_of(tower, "document", ["fp32"])[0], "document")
        in_int8 = tower.with_runtime(OpenVinoRuntime(graph, "int8"), "document")
        sides: dict[str, Side] = {
            "adiabat torch": partial(tower.encode, side="document"),
            "adiabat openvino": partial(by_graph.encode, side="document"),
            "adiabat openvino int8": partial(in_int8.encode, side="document"),
        }
        for backend in BACKENDS:
            log = folder / f"{backend}.log"
            peer = Peer.of(backend, name, folder / "texts.json", options.backends, log)
            stack.callback(peer.close)
            sides[f"peer {backend}"] = peer
        result = measured(sides, texts, options.rounds, reference="peer torch")
    describe(result, len(texts))
    for aim, (peer_name, ours, target) in AIMS.items():
        best = min(ours, key=lambda side: statistics.median(result.seconds[side]))
        ratio = statistics.median(result.ratios(peer_name, best))
        print(f"encode against {aim}, by {best}: ratio {ratio:.2f} (target {target:g})")


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
    parser.add_argument("--backends", metavar="FOLDER", help="measure all backends, the peer's with these")
    options = parser.parse_args()
    if options.backends is not None:
        print(f"{device_name(device_of('cpu'))}; torch {torch.__version__}")
        against_backends(str(options.model or demo_model_folder()), options)
        return
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
