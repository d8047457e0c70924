"""Triplets per second of query-tower tuning: stored document vectors against sentence-transformers with a frozen document route.

The same on both sides: model, triplets (real texts), batch 14, cosine triplet loss with margin 0.1, fused AdamW, embedding block frozen,
float32. sentence-transformers encodes both documents of every triplet at every step; adiabat reads them.

    python benchmarks/tune.py [--pairs 5] [--steps 20]
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import TripletDistanceMetric, TripletLoss
from transformers.utils import logging

from adiabat import api
from adiabat.config import TuneSettings, checked
from adiabat.data.examples import read_examples
from adiabat.data.records import ExampleSet
from adiabat.demo.data import DEMO_CORPUS, DEMO_TRAIN
from adiabat.demo.model import demo_model_folder
from adiabat.model.freezing import freeze
from adiabat.train.limits import Limits
from adiabat.train.log import JobLog
from adiabat.train.loop import Loop
from adiabat.train.optimizers import make_optimizer
from adiabat.train.passes import side_passes
from adiabat.train.schedules import Schedule
from adiabat.tune.adiabatic import tunable_tower
from adiabat.tune.ground import Ground

BATCH_SIZE, MARGIN, RATE = 14, 0.1, 5e-8


def main() -> None:
    """Alternate both sides and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5, help="alternating measurements of each side")
    parser.add_argument("--steps", type=int, default=20, help="optimiser steps per measurement of the peer; ours does five times as many")
    arguments = parser.parse_args()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        triplets = read_triplets(arguments.steps * BATCH_SIZE)
        peer = peer_side(triplets, Path(folder) / "peer")
        ours = our_side(triplets, Path(folder), 5 * arguments.steps)
        report(alternate(ours, peer, arguments.pairs))


def read_triplets(count: int) -> list[tuple[str, str, str]]:
    """The first triplets of the demo's training set, as texts."""
    from adiabat.data.corpora import read_corpus

    text_of = {document.doc_id: document.text for document in read_corpus(DEMO_CORPUS)}
    examples = read_examples(DEMO_TRAIN)
    assert isinstance(examples, ExampleSet)
    return [(one.query, text_of[one.positives[0]], text_of[one.negatives[0]]) for one in examples.examples[:count]]


def peer_side(triplets: list[tuple[str, str, str]], folder: Path) -> Callable[[], float]:
    """A function that trains one epoch with sentence-transformers and gives triplets per second."""
    from sentence_transformers.base.modules.router import Router

    query, document = (SentenceTransformer(str(demo_model_folder()), device="cpu") for _ in range(2))
    routes: Any = [list(tower.children()) for tower in (query, document)]
    model = SentenceTransformer(modules=[Router.for_query_document(routes[0], routes[1])], device="cpu")
    document.requires_grad_(False)
    query[0].get_submodule("auto_model.embeddings").requires_grad_(False)
    names = ("query", "positive", "negative")
    data = Dataset.from_dict({name: [triplet[column] for triplet in triplets] for column, name in enumerate(names)})
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        num_train_epochs=1,
        per_device_train_batch_size=BATCH_SIZE,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        optim="adamw_torch_fused",
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        router_mapping={"query": "query", "positive": "document", "negative": "document"},
    )
    loss = TripletLoss(model, distance_metric=TripletDistanceMetric.COSINE, triplet_margin=MARGIN)

    def measure() -> float:
        trainer = SentenceTransformerTrainer(model=model, args=arguments, train_dataset=data, loss=loss)
        # Its own clock, which leaves the trainer's setting up out.
        return float(trainer.train().metrics["train_samples_per_second"])

    return measure


def our_side(triplets: list[tuple[str, str, str]], folder: Path, steps: int) -> Callable[[], float]:
    """A function that runs adiabat's loop over stored vectors, and gives triplets per second."""
    import json

    path = folder / "triplets.jsonl"
    rows = [json.dumps({"query": query, "pos": [positive], "neg": [negative]}) for query, positive, negative in triplets]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    model = api.load("demo")
    api.embed(model, path, folder / "store")
    settings = checked(TuneSettings, {"tune": {"learning_rate": RATE, "margin": MARGIN, "batch_size": BATCH_SIZE}})
    tower = tunable_tower(model.query, dropout=False)
    freeze(tower.backbone, settings.tune.freeze)
    objective = Ground(lambda: model, folder / "store", str(path)).objective(tower, settings)

    def measure() -> float:
        trainable = [weights for weights in tower.parameters() if weights.requires_grad]
        loop = Loop(
            objective=objective,
            optimizer=make_optimizer("adamw", trainable, learning_rate=RATE, weight_decay=0.01),
            learning_rate=RATE,
            schedule=Schedule(),
            limits=Limits(steps_per_epoch=steps + 1, max_epochs=2, idle_epochs=2),
            folder=folder / "checkpoints",
            log=JobLog(folder / "log.jsonl"),
        )
        with side_passes(tower, precision="fp32") as objective.passes:
            started = time.perf_counter()
            for _ in range(steps):
                loop.step()
            return steps * BATCH_SIZE / (time.perf_counter() - started)

    return measure


def alternate(ours: Callable[[], float], peer: Callable[[], float], pairs: int) -> list[tuple[float, float]]:
    """Measure in turn, after one warm-up of each."""
    ours(), peer()
    return [(ours(), peer()) for _ in range(pairs)]


def report(measured: list[tuple[float, float]]) -> None:
    """Print medians, ranges and the ratio."""
    for name, column in (("adiabat", 0), ("sentence-transformers", 1)):
        rates = [pair[column] for pair in measured]
        print(f"{name}: median {statistics.median(rates):.1f} triplets/s, range {min(rates):.1f} to {max(rates):.1f}")
    ratios = [one / other for one, other in measured]
    print(f"ratio pair by pair: {', '.join(f'{ratio:.1f}' for ratio in ratios)}; {torch.get_num_threads()} threads")
    print(f"tune: ratio {statistics.median(ratios):.1f} (target 10)")


if __name__ == "__main__":
    main()
