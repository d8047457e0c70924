"""A step of both towers at a large batch with one hard negative per query: gradient caching against
sentence-transformers' cached loss.

Both sides have the same model, texts (demo papers, real lengths), batch, loss, temperature and precision, and
chunks with as many tokens as the peer's rows hold on average. Texts are tokenised beforehand. A step is a
forward and a backward pass, without an optimiser. The sides run in separate processes, in turn; each process
takes a warm-up step of one chunk and a measured one. A third side is adiabat with a frozen document tower.
Losses must agree.

Run with ``python benchmarks/big_batch.py``; a step at 1,024 takes minutes on two cores.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from rise import rise_of
from torch import Tensor

from adiabat.data.corpora import read_corpus
from adiabat.data.examples import read_examples
from adiabat.data.records import ExampleSet
from adiabat.datasets.bundled import DEMO_CORPUS, DEMO_TRAIN
from adiabat.losses.embedded_pairs import Pairs
from adiabat.losses.in_batch import in_batch_softmax
from adiabat.models.bulk import TokenTable
from adiabat.models.device import Precision, autocast
from adiabat.models.loading import load
from adiabat.models.model_paths import demo_model_folder
from adiabat.training.gradient_cache import Chunking
from adiabat.training.passes import Group, side_passes

SIDES = ("adiabat", "adiabat, documents frozen", "sentence-transformers")
TEMPERATURE = 0.05
TARGETS = {"sentence-transformers": 1.3, "frozen": 3.0}

Texts = tuple[list[str], list[str], list[str]]
Step = Callable[[int], float]


def texts_of(batch: int) -> Texts:
    """Queries, positives and one hard negative each, repeated where the demo has too few."""
    documents = {document.doc_id: document.text for document in read_corpus(DEMO_CORPUS)}
    found = read_examples(DEMO_TRAIN)
    assert isinstance(found, ExampleSet)
    rows = [found.examples[number % len(found)] for number in range(batch)]
    return (
        [row.query for row in rows],
        [documents[row.positives[0]] for row in rows],
        [documents[row.negatives[0]] for row in rows],
    )


def our_step(texts: Texts, chunk_rows: int, precision: Precision, *, frozen: bool) -> Step:
    """A step over the first rows, through gradient caching."""
    model = load(demo_model_folder()).query.eval()
    documents = load(demo_model_folder()).query.eval().requires_grad_(False) if frozen else model
    tables = [
        TokenTable.of(model, texts[0], side="query"),
        TokenTable.of(model, texts[1] + texts[2], side="document"),
    ]
    tokens = int(chunk_rows * np.concatenate([table.lengths for table in tables]).mean())
    chunking = Chunking(tokens, cached=True)

    def step(rows: int) -> float:
        model.zero_grad()
        picked = np.arange(rows)
        towers = (model, documents) if frozen else (model,)
        with side_passes(*towers, precision=precision, chunking=chunking) as passes:
            both = Group(tables[1], np.concatenate([picked, len(texts[0]) + picked]), tower=len(towers) - 1)
            query, document = passes.embed_all([Group(tables[0], picked), both])
            loss = in_batch_softmax(
                Pairs(query, document[:rows], shared=document[rows:]), temperature=TEMPERATURE
            )
            loss.backward()  # type: ignore[no-untyped-call]
        return float(loss)

    return step


def peer_step(texts: Texts, chunk_rows: int, precision: Precision) -> Step:
    """The same through CachedMultipleNegativesRankingLoss."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss

    model = SentenceTransformer(str(demo_model_folder()), device="cpu").eval()
    loss_of = CachedMultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE, mini_batch_size=chunk_rows)

    features = {
        rows: [model.preprocess(column[:rows]) for column in texts] for rows in (chunk_rows, len(texts[0]))
    }

    def step(rows: int) -> float:
        model.zero_grad()
        with autocast(torch.device("cpu"), precision):
            loss: Tensor = loss_of([dict(column) for column in features[rows]], torch.empty(0))
            loss.backward()  # type: ignore[no-untyped-call]
        return float(loss)

    return step


def measure(side: str, options: argparse.Namespace) -> dict[str, float]:
    """Seconds, loss and rise of the resident set of one step."""
    texts = texts_of(options.batch)
    if side == "sentence-transformers":
        step = peer_step(texts, options.chunk_rows, options.precision)
    else:
        step = our_step(texts, options.chunk_rows, options.precision, frozen="frozen" in side)
    step(options.chunk_rows)
    start = time.perf_counter()
    megabytes, loss = rise_of(lambda: step(options.batch))
    return {"seconds": time.perf_counter() - start, "loss": loss, "megabytes": megabytes}


def main() -> None:
    """Let the sides take turns, and print ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=1_024)
    parser.add_argument("--chunk-rows", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(measure(options.side, options)))
        return
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(options.rounds):
        for side in SIDES:
            command = [sys.executable, __file__, *sys.argv[1:], "--side", side]
            found[side].append(
                json.loads(
                    subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[
                        -1
                    ]
                )
            )
    report(found, options)


def report(found: dict[str, list[dict[str, float]]], options: argparse.Namespace) -> None:
    """Print what was found."""
    for side, rounds in found.items():
        medians = {
            key: statistics.median(one[key] for one in rounds) for key in ("seconds", "loss", "megabytes")
        }
        print(
            f"{side}: {medians['seconds']:.1f} s, {medians['megabytes']:.0f} MB above "
            f"what was there, loss {medians['loss']:.5f}"
        )
    print(
        f"batch {options.batch:,}, chunks of {options.chunk_rows} rows, "
        f"{options.precision}, {torch.get_num_threads()} threads"
    )
    for side, name, target in (
        (SIDES[0], "big_batch", TARGETS[SIDES[2]]),
        (SIDES[1], "big_batch, documents frozen", TARGETS["frozen"]),
    ):
        ratios = [
            theirs["seconds"] / ours["seconds"]
            for ours, theirs in zip(found[side], found[SIDES[2]], strict=True)
        ]
        print(
            f"{name}: ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} "
            f"to {max(ratios):.2f}) (target {target})"
        )


if __name__ == "__main__":
    main()
