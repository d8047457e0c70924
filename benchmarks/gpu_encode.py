"""Encoding on a GPU, from texts to vectors: documents per second, beside sentence-transformers as it comes
and at its best.

    python benchmarks/gpu_encode.py MODEL --name minilm|large [--documents 16384] [--profile]
    python benchmarks/gpu_encode.py MODEL --name minilm|large --compiled  # from how many documents it pays

The peer's best has weights in bf16, tensors as output, and the better of batches 128 and 512; where the
package flash-attn is installed, its unpadded path is measured too. It encodes fewer texts where it is slow.
Cosines compare vectors with those of the CPU in float32.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import torch
from gpu_rows import SMALL, append, append_failure, kernel_share, peak

from adiabat.data.corpora import read_corpus
from adiabat.datasets.bundled import DEMO_CORPUS
from adiabat.models.device import device_of, minimum_cosine
from adiabat.models.encoder import Encoder
from adiabat.models.loading import load
from adiabat.training.flop_count import passed_parameters

PEER_BATCHES = (128, 512)
COMPARED = 16 if SMALL else 256
"""Texts whose vectors are compared with the CPU's."""


def main() -> None:
    """Measure one model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--name", choices=["minilm", "large"], default="minilm")
    parser.add_argument("--documents", type=int, default=16_384)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--compiled", action="store_true")
    options = parser.parse_args()
    texts = texts_of(64 if SMALL else options.documents)
    encoder = load(options.model).document.to(device_of("auto"))
    row = f"encode {options.name}"
    if options.compiled:
        compile_and_encode(encoder, row, texts)
        return
    if options.name == "minilm":
        exact = load(options.model).document.encode(texts[:COMPARED], side="document", precision="fp32")
        cosine = minimum_cosine(
            exact, encoder.encode(texts[:COMPARED], side="document", precision="fp32" if SMALL else "bf16")
        )
        append("cosine", cosine, f"{cosine:.5f}")
    encoder.encode(texts[: len(texts) // 4], side="document")
    seconds = timed(lambda: encoder.encode(texts, side="document"), repeats=3)
    append(row, len(texts) / seconds, f"{len(texts) / seconds:,.0f}")
    if options.name == "large" and (most := peak()):
        share = 100 * flops_of(encoder, texts) / (seconds * most)
        append(f"{row}, share", share, f"{share:.3g} %")
    if options.profile:
        show_profile(encoder, texts)
    beside_peers(options.model, row, texts, len(texts) / seconds)


def compile_and_encode(encoder: Encoder, row: str, texts: Sequence[str]) -> None:
    """The row of compiled blocks: their speed, and the documents from which on compiling is faster than
    not.
    """
    part = texts[: len(texts) // 4]
    encoder.encode(part, side="document")
    plain = timed(lambda: encoder.encode(texts, side="document"), repeats=3)
    first = timed(lambda: encoder.encode(part, side="document", compiled=True))
    later = timed(lambda: encoder.encode(texts, side="document", compiled=True), repeats=3)
    waiting, saved = first - later * len(part) / len(texts), (plain - later) / len(texts)
    pays = f"pays from {waiting / saved:,.0f} documents on" if saved > 0 else "never pays"
    append(
        f"{row}, compiled",
        len(texts) / later,
        f"{len(texts) / later:,.0f} ({waiting:.0f} s of compiling; {pays})",
    )


def texts_of(count: int) -> list[str]:
    """Abstracts of the demo's papers, numbered so that none is repeated."""
    base = [document.text for document in read_corpus(DEMO_CORPUS)]
    numbered = [f"{number} {text}" for number in range(-(-count // len(base))) for text in base]
    return numbered[:count]


def timed(job: Callable[[], object], *, repeats: int = 1) -> float:
    """The median of its seconds; vectors or tensors are waited for."""
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        job()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def flops_of(encoder: Encoder, texts: Sequence[str]) -> float:
    """Operations of a forward pass over the tokens of all texts, without padding or attention scores."""
    tokens = float(encoder.tokenize(texts, side="document").lengths.sum())
    return 2 * passed_parameters(encoder).forward * tokens


def show_profile(encoder: Encoder, texts: Sequence[str]) -> None:
    """Share of kernels while some blocks of texts are encoded."""
    if SMALL:
        append_failure("encode profile", "there is no GPU")
        return
    share = kernel_share(lambda: encoder.encode(texts[:8192], side="document"))
    append("encode profile", share, f"{share:.0f} %")


def beside_peers(model: str, row: str, texts: Sequence[str], ours: float) -> None:
    """Rows of the peer, each as a multiple of its speed."""
    from sentence_transformers import SentenceTransformer

    device = str(device_of("auto"))
    peer = SentenceTransformer(model, device=device)
    part = texts[: len(texts) // 8]
    theirs = speed_of_peer(peer, part, batch_size=32)
    append(f"{row}, peer", ours / theirs, f"{ours / theirs:.1f} ({theirs:,.0f} documents/s)")
    if SMALL:
        for name in ("best peer", "unpadded peer"):
            append_failure(f"{row}, {name}", "there is no GPU")
        return
    peer = peer.to(torch.bfloat16)
    append_best(f"{row}, best peer", peer, texts[: len(texts) // 4], ours)
    if find_spec("flash_attn") is None:
        append_failure(f"{row}, unpadded peer", "the package flash-attn is not installed")
        return
    chosen: dict[str, Any] = {"attn_implementation": "flash_attention_2", "dtype": torch.bfloat16}
    unpadded: Any = SentenceTransformer(model, device=device, model_kwargs=chosen)
    unpadded[0].unpad_inputs = True
    append_best(f"{row}, unpadded peer", unpadded, texts[: len(texts) // 4], ours)


def append_best(row: str, peer: Any, texts: Sequence[str], ours: float) -> None:
    """A row of a peer at its faster batch size, with tensors as output."""
    speeds = {
        size: speed_of_peer(peer, texts, batch_size=size, convert_to_tensor=True) for size in PEER_BATCHES
    }
    size = max(speeds, key=lambda size: speeds[size])
    theirs = speeds[size]
    append(row, ours / theirs, f"{ours / theirs:.1f} ({theirs:,.0f} documents/s, batch {size})")


def speed_of_peer(peer: Any, texts: Sequence[str], **options: Any) -> float:
    """Documents per second, after a short warm-up."""
    peer.encode(list(texts[: len(texts) // 4]), show_progress_bar=False, **options)
    return len(texts) / timed(lambda: peer.encode(list(texts), show_progress_bar=False, **options))


if __name__ == "__main__":
    main()
