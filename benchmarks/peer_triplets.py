"""The peer of `tune.py` and `sweep.py`: sentence-transformers over the demo's triplets, with a Router whose
document route is frozen.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.modules.router import Router
from sentence_transformers.sentence_transformer.losses import TripletDistanceMetric, TripletLoss

from adiabat.data.corpora import read_corpus
from adiabat.data.examples import read_examples
from adiabat.data.records import Example, ExampleSet
from adiabat.datasets.bundled import DEMO_CORPUS
from adiabat.models.model_paths import demo_model_folder

BATCH_SIZE, MARGIN, RATE = 14, 0.1, 5e-8
"""Of both sides."""

COLUMNS = ("query", "positive", "negative")

Triplet = tuple[str, str, str]
"""Texts, in the order of `COLUMNS`."""


def examples_of(path: Path) -> list[Example]:
    """All of a file."""
    found = read_examples(path)
    assert isinstance(found, ExampleSet)
    return list(found.examples)


def texts_of(corpus: Path = DEMO_CORPUS) -> dict[str, str]:
    """Id to text of every document."""
    return {document.doc_id: document.text for document in read_corpus(corpus)}


def triplets_of(examples: Sequence[Example], texts: Mapping[str, str]) -> list[Triplet]:
    """Of each example its query with its first positive and its first negative, by the texts of documents."""
    return [(one.query, texts[one.positives[0]], texts[one.negatives[0]]) for one in examples]


def peer_trainers(triplets: Sequence[Triplet], folder: Path) -> Callable[[], SentenceTransformerTrainer]:
    """A function that makes trainers of one epoch, all of one model."""
    query, document = (SentenceTransformer(str(demo_model_folder()), device="cpu") for _ in range(2))
    routes: Any = [list(tower.children()) for tower in (query, document)]
    model = SentenceTransformer(modules=[Router.for_query_document(routes[0], routes[1])], device="cpu")
    document.requires_grad_(False)
    query[0].get_submodule("auto_model.embeddings").requires_grad_(False)
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
        router_mapping={name: "query" if name == "query" else "document" for name in COLUMNS},
    )
    data = Dataset.from_dict(dict(zip(COLUMNS, map(list, zip(*triplets, strict=True)), strict=True)))
    loss = TripletLoss(model, distance_metric=TripletDistanceMetric.COSINE, triplet_margin=MARGIN)
    return partial(SentenceTransformerTrainer, model=model, args=arguments, train_dataset=data, loss=loss)


def spread(values: Sequence[float], unit: str) -> str:
    """Median and range."""
    return f"median {statistics.median(values):.1f} {unit}, range {min(values):.1f} to {max(values):.1f}"


def pair_by_pair(ratios: Sequence[float]) -> str:
    """Every ratio."""
    return f"ratio pair by pair: {', '.join(f'{ratio:.1f}' for ratio in ratios)}"
