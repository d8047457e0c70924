"""Ten learning rates: a sweep on one store against ten runs of sentence-transformers.

Both sides have the same model, triplets (real texts), batch 14, cosine triplet loss with margin 0.1, fused
AdamW at a constant rate, frozen embedding block, float32, steps per run, and an evaluation of every tuned
model on held-out queries against the corpus. The peer has a Router with a frozen document route; it encodes
the documents of every triplet at every step, and the corpus after every run. adiabat encodes each document
once for all runs and both uses. Loading, tokenising and statistics count on both sides.

A run of the peer takes equally long at every rate, so five of its runs are timed, each paired with a whole
sweep, and ten runs count as ten times their median. The script prints first the ratio of steps alone, as in
`benchmarks/tune.py`, and finally that of the whole.

    python benchmarks/sweep.py [--pairs 5] [--rates 10] [--steps 100] [--queries 300]
    python benchmarks/sweep.py --train TRAIN --test TEST --corpus CORPUS

The peer encodes two documents for each query, so the result depends on text lengths: the demo's queries are
sentences, and shorter queries make the ratio larger.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peer_triplets import (
    BATCH_SIZE,
    MARGIN,
    RATE,
    examples_of,
    pair_by_pair,
    peer_trainers,
    spread,
    texts_of,
    triplets_of,
)
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from transformers.utils import logging

import adiabat
from adiabat.config.reader import checked
from adiabat.config.sweeps import TuneSweepSettings
from adiabat.datasets.bundled import DEMO_CORPUS, DEMO_TEST, DEMO_TRAIN


def main() -> None:
    """Alternate both sides and print the ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=5, help="alternating measurements of each side")
    parser.add_argument("--rates", type=int, default=10)
    parser.add_argument("--steps", type=int, default=100, help="optimiser steps of each run")
    parser.add_argument(
        "--queries", type=int, default=300, help="held-out queries that every tuned model is measured on"
    )
    parser.add_argument("--train", type=Path, default=DEMO_TRAIN, help="examples, each with a negative")
    parser.add_argument("--test", type=Path, default=DEMO_TEST, help="the same, held out")
    parser.add_argument("--corpus", type=Path, default=DEMO_CORPUS, help="the documents that both name")
    given = parser.parse_args()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        data = Data(Path(folder), given)
        report(
            [
                (our_sweep(data, given.rates, number), *peer_run(data, number))
                for number in range(given.pairs)
            ],
            given.rates,
            given.steps,
        )


class Data:
    """Training triplets and held-out queries, and the documents that these name, as both sides read them."""

    def __init__(self, folder: Path, given: argparse.Namespace) -> None:
        self.folder, self.steps = folder, given.steps
        texts = texts_of(given.corpus)
        every = examples_of(given.train)
        # Each side goes over what there is as often as its steps want.
        self.train = [every[number % len(every)] for number in range(self.steps * BATCH_SIZE)]
        self.test = examples_of(given.test)[: given.queries]
        named = {doc_id for one in (*every, *self.test) for doc_id in (*one.positives, *one.negatives)}
        self.texts = {doc_id: texts[doc_id] for doc_id in sorted(named)}
        lines(folder / "corpus.jsonl", [{"_id": doc_id, "text": text} for doc_id, text in self.texts.items()])
        for name, examples in (("train", every), ("test", self.test)):
            lines(
                folder / f"{name}.jsonl",
                [
                    {"query": one.query, "pos": list(one.positives), "neg": list(one.negatives)}
                    for one in examples
                ],
            )


def lines(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def our_sweep(data: Data, rates: int, number: int) -> float:
    """Seconds of a whole sweep, its store included."""
    here = data.folder / f"ours-{number}"
    started = time.perf_counter()
    adiabat.embed("demo", data.folder / "corpus.jsonl", here / "store")
    task = {
        "kind": "retrieval",
        "name": "test",
        "data": str(data.folder / "test.jsonl"),
        "corpus": str(data.folder / "corpus.jsonl"),
    }
    settings = {
        "sweep": {"out": str(here / "sweep")},
        "job": {"model": "demo", "store": str(here / "store"), "data": str(data.folder / "train.jsonl")},
        "tune": {
            "loss": {"margin": MARGIN},
            "batch_size": BATCH_SIZE,
            "batches_per_epoch": data.steps,
            "max_epochs": 1,
            "keep": "last",
        },
        "grid": {"tune": {"learning_rate": [RATE * (1 + place) for place in range(rates)]}},
        "tasks": [{**task, "stores": [str(here / "store")]}],
        "probes": False,
    }
    found = adiabat.sweep(checked(TuneSweepSettings, settings))
    assert all(run.steps == data.steps for run in found.runs)
    return time.perf_counter() - started


def peer_run(data: Data, number: int) -> tuple[float, float]:
    """Seconds of one run, and of its steps alone by the trainer's own clock."""
    started = time.perf_counter()
    trainer = peer_trainers(triplets_of(data.train, data.texts), data.folder / f"peer-{number}")()
    steps = float(trainer.train().metrics["train_runtime"])
    peer_evaluation(data)(trainer.model)
    return time.perf_counter() - started, steps


def peer_evaluation(data: Data) -> Callable[[Any], Any]:
    """Its own evaluator, on the same queries, corpus and measures."""
    queries: dict[str, Any] = {str(number): one.query for number, one in enumerate(data.test)}
    answers = {str(number): set(one.positives) for number, one in enumerate(data.test)}
    corpus: dict[str, Any] = dict(data.texts)
    return InformationRetrievalEvaluator(
        queries, corpus, answers, ndcg_at_k=[10], mrr_at_k=[10], map_at_k=[100], accuracy_at_k=[1]
    )


def report(measured: list[tuple[float, float, float]], rates: int, steps: int) -> None:
    """Print medians, ranges and ratios."""
    for name, column in (
        (f"adiabat, {rates} rates", 0),
        ("sentence-transformers, one run", 1),
        ("sentence-transformers, its steps", 2),
    ):
        print(f"{name}: {spread([each[column] for each in measured], 's')}")
    ratios = [rates * peer / ours for ours, peer, _ in measured]
    of_steps = [rates * own / ours for ours, _, own in measured]
    print(f"steps of the peer alone against the whole sweep: {statistics.median(of_steps):.1f}")
    print(f"{pair_by_pair(ratios)}; {steps} steps a run, {torch.get_num_threads()} threads")
    print(f"sweep: ratio {statistics.median(ratios):.1f} (target 20)")


if __name__ == "__main__":
    main()
