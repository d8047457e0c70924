"""Pairs per second of training both towers: adiabat's loop against the sentence-transformers trainer.

Both sides have the same model, pairs (demo papers, real lengths) in the same batches, in-batch softmax at
temperature 0.05, fused AdamW with the same rate, gradients clipped to 1, and precision. Every step's loss is
compared. With --dropout, both keep the model's dropout, and losses then agree only roughly. The peer pads
batches to their longest text; adiabat packs them, or sorts them into chunks.

    python benchmarks/train.py [--batch 64] [--precision fp32|bf16] [--pairs 5] [--steps 2] [--dropout]
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import nn
from torch.utils.data import BatchSampler, SequentialSampler
from transformers import PrinterCallback
from transformers.utils import logging

import adiabat
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked
from adiabat.data.corpora import read_corpus
from adiabat.data.examples import read_examples
from adiabat.data.records import ExampleSet
from adiabat.datasets.bundled import DEMO_CORPUS, DEMO_TRAIN
from adiabat.dual_encoder.contrastive_objective import PairContrast
from adiabat.dual_encoder.train import prepared
from adiabat.models.model_paths import demo_model_folder
from adiabat.runs.run_log import JobLog, read_log
from adiabat.training.checkpoint import Limits
from adiabat.training.distributed import ALONE
from adiabat.training.loop import Loop
from adiabat.training.optimizers import Schedule, decay_groups, make_optimizer

RATE, TEMPERATURE, WEIGHT_DECAY, MAX_NORM = 2e-5, 0.05, 0.01, 1.0

Side = Callable[[], tuple[float, list[float]]]
"""Trains from the same start, and gives pairs per second and the loss of every step."""


def main() -> None:
    """Alternate both sides and print the ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--pairs", type=int, default=5, help="alternating measurements of each side")
    parser.add_argument("--steps", type=int, default=2, help="optimiser steps per measurement")
    parser.add_argument("--dropout", action="store_true")
    options = parser.parse_args()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        objective = our_objective(options, Path(folder))
        ours, peer = (
            our_side(objective, options, Path(folder)),
            peer_side(objective, options, Path(folder) / "peer"),
        )
        ours(), peer()
        report([(ours(), peer()) for _ in range(options.pairs)], options)


def our_objective(options: argparse.Namespace, folder: Path) -> PairContrast:
    """Both towers in one, over the demo's pairs."""
    text_of = {document.doc_id: document.text for document in read_corpus(DEMO_CORPUS)}
    examples = read_examples(DEMO_TRAIN)
    assert isinstance(examples, ExampleSet)
    rows = [{"query": one.query, "positive": text_of[one.positives[0]]} for one in examples.examples]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    loss = {"symmetric": False, "negatives_per_query": 0, "temperature": TEMPERATURE}
    train = {
        "loss": loss,
        "batch_size": options.batch,
        "dropout": options.dropout,
    }
    tables = {
        "job": {"model": "demo", "data": str(folder / "pairs.jsonl")},
        "train": train,
        "run": {"precision": options.precision},
    }
    settings = checked(TrainSettings, tables)
    objective, _ = prepared(lambda name, section: adiabat.load(name, settings=section), settings, ALONE)
    return objective


def our_side(objective: PairContrast, options: argparse.Namespace, folder: Path) -> Side:
    """Adiabat's loop."""
    start = {name: weights.detach().clone() for name, weights in objective.module.state_dict().items()}

    def measure() -> tuple[float, list[float]]:
        objective.module.load_state_dict(start)
        groups = decay_groups(objective.module)
        log = JobLog(folder / "log.jsonl")
        log.truncate(step=-1)
        loop = Loop(
            objective=objective,
            optimizer=make_optimizer("adamw", groups, learning_rate=RATE, weight_decay=WEIGHT_DECAY),
            learning_rate=RATE,
            schedule=Schedule(),
            limits=Limits(
                options.steps + 1,
                None,
                None,
                max_steps=options.steps + 1,
                keep="last",
                max_grad_norm=MAX_NORM,
                log_every=1,
            ),
            folder=folder / "checkpoints",
            log=log,
        )
        with objective.passing():
            started = time.perf_counter()
            for _ in range(options.steps):
                loop.step()
            seconds = time.perf_counter() - started
        log.close()
        return options.steps * options.batch / seconds, [
            row["loss"] for row in read_log(folder / "log.jsonl")
        ]

    return measure


def in_order(dataset: Dataset, batch_size: int, drop_last: bool, **others: Any) -> BatchSampler:
    """Batches of the trainer, in the order of the data, which is that of our steps."""
    return BatchSampler(SequentialSampler(dataset), batch_size, drop_last)


def peer_side(objective: PairContrast, options: argparse.Namespace, folder: Path) -> Side:
    """The sentence-transformers trainer over the same batches."""
    data = Dataset.from_list(list(rows_of(objective, options)))
    sampler: Any = in_order
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        num_train_epochs=1,
        per_device_train_batch_size=options.batch,
        learning_rate=RATE,
        weight_decay=WEIGHT_DECAY,
        max_grad_norm=MAX_NORM,
        lr_scheduler_type="constant",
        optim="adamw_torch_fused",
        bf16=options.precision == "bf16",
        save_strategy="no",
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        batch_sampler=sampler,
    )

    def measure() -> tuple[float, list[float]]:
        model = SentenceTransformer(str(demo_model_folder()), device="cpu")
        for part in model.modules():
            if isinstance(part, nn.Dropout) and not options.dropout:
                part.p = 0.0
        loss = MultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE)
        trainer = SentenceTransformerTrainer(model=model, args=arguments, train_dataset=data, loss=loss)
        trainer.remove_callback(PrinterCallback)
        # Its own clock, which leaves the trainer's setting up out.
        rate = float(trainer.train().metrics["train_samples_per_second"])
        return rate, [row["loss"] for row in trainer.state.log_history if "loss" in row]

    return measure


def rows_of(objective: PairContrast, options: argparse.Namespace) -> Iterator[dict[str, str]]:
    """The texts of our steps, in their order."""
    pairs, texts = objective.train, objective.train.texts
    picked = np.concatenate([objective.rows(step) for step in range(options.steps)])
    queries, positives = texts.queries.take(pairs.query[picked]), texts.documents.take(pairs.positive[picked])
    for query, positive in zip(queries, positives, strict=True):
        yield {"query": query, "positive": positive}


def report(
    measured: list[tuple[tuple[float, list[float]], tuple[float, list[float]]]], options: argparse.Namespace
) -> None:
    """Print medians, ranges, the greatest difference of losses, and the ratio."""
    for name, column in (("adiabat", 0), ("sentence-transformers", 1)):
        rates = [pair[column][0] for pair in measured]
        print(
            f"{name}: median {statistics.median(rates):.1f} pairs/s, range "
            f"{min(rates):.1f} to {max(rates):.1f}"
        )
    apart = max(
        abs(one - other)
        for (_, ours), (_, theirs) in measured
        for one, other in zip(ours, theirs, strict=True)
    )
    ratios = [ours[0] / theirs[0] for ours, theirs in measured]
    dropout = "dropout" if options.dropout else "no dropout"
    print(
        f"batch {options.batch}, {options.precision}, {dropout}, {torch.get_num_threads()} "
        f"threads; losses differ by at most {apart:.1e}"
    )
    print(f"train: ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) (target 2)")


if __name__ == "__main__":
    main()
