"""Small tuning problems: a tiny encoder, a store, and queries with positives and negatives."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from adiabat.adiabatic.negatives import negative_chooser
from adiabat.adiabatic.stored_loss import StoredDocuments
from adiabat.adiabatic.tune import begin
from adiabat.adiabatic.tuning_context import TuningContext
from adiabat.api.tune_verb import at_its_rate
from adiabat.config.reader import checked
from adiabat.config.section import overlaid
from adiabat.config.tuning import TuneSection, TuneSettings
from adiabat.core.progress import Watch
from adiabat.core.ragged import Ragged
from adiabat.data.records import Document
from adiabat.models.bulk import TokenTable
from adiabat.models.device import Precision
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.models.towers import DualEncoder, trainable_copy
from adiabat.results.evaluation_result import Result
from adiabat.store.addressing import AddressedSet
from adiabat.store.build import build_store
from adiabat.store.vector_store import Store
from tests.commands import lines
from tests.imported import import_vectors
from tests.settings_by_name import by_name
from tests.tiny import tiny_dual, tiny_encoder

WIDTH = 16


def random_vectors(count: int, *, seed: int = 0, width: int = WIDTH) -> Float[np.ndarray, "n e"]:
    """Vectors of unequal lengths, so that cosine and distance rank differently."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((count, width)) * rng.uniform(0.3, 1.5, (count, 1))).astype(np.float32)


def store_of(folder: Path, vectors: Float[np.ndarray, "n e"]) -> Store:
    """A store of given vectors, exact in float32."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "vectors.npy", vectors)
    ids = [f"d{row}" for row in range(len(vectors))]
    return import_vectors(folder / "vectors.npy", folder / "stored", ids=ids, dtype="float32")


def embedded_store(model: DualEncoder, texts: Sequence[str], folder: Path) -> Store:
    """Documents d0, d1 and so on, embedded by a model."""
    corpus = [Document(f"d{number}", text) for number, text in enumerate(texts)]
    named: Any = {"dtype": "float32", "source": "corpus", "encoder_name": "tiny"}
    return build_store(model.document, lambda: iter(corpus), folder, **named).store


def addressed(
    positives: Sequence[Sequence[int]],
    negatives: Sequence[Sequence[int]] | None = None,
    *,
    name: str = "set",
    answers: Sequence[Sequence[int]] | None = None,
) -> AddressedSet:
    """Queries of unequal lengths with these rows."""
    texts = [f"{name} {'word ' * (number % 5)}{number}" for number in range(len(positives))]
    lists = negatives if negatives is not None else [[] for _ in positives]
    grades = Ragged.of([1] * len(one) for one in positives)
    known = None if answers is None else Ragged.of(answers)
    ids = [f"q{n}" for n in range(len(texts))]
    return AddressedSet(name, ids, texts, Ragged.of(positives), grades, Ragged.of(lists), answers=known)


def section(**settings: Any) -> TuneSection:
    """Settings of the regime, with the similarity that a run takes from its model."""
    return checked(TuneSettings, by_name(TuneSettings, "tune", {"distance": "cosine", **settings})).tune


def objective_over(
    store: Store,
    train: AddressedSet,
    validation: AddressedSet,
    settings: TuneSection,
    *,
    encoder: Encoder | None = None,
    seed: int = 0,
    precision: Precision = "fp32",
) -> StoredDocuments:
    """The objective over a tiny encoder whose vectors are not normalised."""
    encoder = encoder or tiny_encoder(
        width=store.width, settings=EncoderSettings(max_tokens=64, normalize=False)
    )
    return StoredDocuments(
        encoder=encoder,
        store=store,
        train=train,
        tokens=TokenTable.of(encoder, train.queries, side="query"),
        validation=validation,
        validation_tokens=TokenTable.of(encoder, validation.queries, side="query"),
        settings=settings,
        choose=negative_chooser(settings, train, store, seed=seed),
        seed=seed,
        precision=precision,
    )


@dataclass(frozen=True)
class Problem:
    """All that `adiabat.adiabatic.tune.tune` takes."""

    model: DualEncoder
    store: Path
    data: Path

    def fresh(self) -> DualEncoder:
        """The same model in new objects."""
        return problem_model()

    def context(self, model: DualEncoder | None = None) -> TuningContext:
        """What runs on the problem share, by a model or a fresh one."""
        return TuningContext(lambda: model or self.fresh(), self.store, str(self.data), "tiny")


def problem_model() -> DualEncoder:
    """One tower of one block for both sides."""
    return tiny_dual(width=WIDTH, seed=7, settings=EncoderSettings(max_tokens=32, query_prompt="ask: "))


def objective_in(context: TuningContext, settings: TuneSettings) -> StoredDocuments:
    """The objective over a copy of the query tower, without dropout."""
    return context.objective(trainable_copy(context.model.query).train(False), settings)


def write_problem(folder: Path, *, queries: int = 60, documents: int = 50, negatives: int = 3) -> Problem:
    """Documents embedded by the model itself, and triplets that name them."""
    problem = Problem(problem_model(), folder / "store", folder / "triplets.jsonl")
    texts = [f"{['paper', 'note', 'memo'][number % 3]} {number * number}" for number in range(documents)]
    embedded_store(problem.model, texts, problem.store)
    rng = np.random.default_rng(0)
    rows = []
    for number in range(queries):
        near, *far = rng.choice(documents, size=1 + negatives, replace=False)
        query = f"about {texts[near]}, {number}"
        rows.append({"query": query, "pos": [f"d{near}"], "neg": [f"d{row}" for row in far]})
    lines(problem.data, rows)
    return problem


def settings_of(
    *,
    tune: dict[str, Any] | None = None,
    data: dict[str, Any] | None = None,
    run: dict[str, Any] | None = None,
) -> TuneSettings:
    """A short job that improves."""
    regime: dict[str, Any] = {"learning_rate": 3e-3, "batch_size": 5, "batches_per_epoch": 4, "max_epochs": 3}
    share = {} if data and "validation" in data else {"validation_fraction": 0.3}
    usual = by_name(TuneSettings, "tune", regime | {"margin": 0.3})
    return checked(
        TuneSettings,
        {
            **overlaid(TuneSettings, usual, by_name(TuneSettings, "tune", tune or {})),
            "data": share | (data or {}),
            "run": {"log_every": 3} | (run or {}),
        },
    )


def killable_settings(*, checkpoint_seconds: float) -> TuneSettings:
    """Whatever a resumed job could get wrong: dropout, random negatives, a schedule, an optimizer with
    state.
    """
    tune = {
        "negatives": {"kind": "random", "per_query": 2},
        "dropout": True,
        "schedule": "linear",
        "optimizer": "adamw",
    }
    return settings_of(tune=tune, run={"checkpoint_seconds": checkpoint_seconds})


def run(
    problem: Problem,
    out: Path,
    settings: TuneSettings | None = None,
    *,
    model: DualEncoder | None = None,
    resume: bool = False,
    notes: list[str] | None = None,
) -> Result:
    """Tune on a problem."""
    said = notes if notes is not None else []
    chosen, watch = settings or settings_of(), Watch(note=said.append)
    return tuned(problem.context(model), out, settings=chosen, resume=resume, watch=watch)


def tuned(context: TuningContext, out: Path, **options: Any) -> Result:
    """A job as `adiabat.tune` makes it, after its rate search if it has one."""
    return at_its_rate(begin(context, out, **options)).carry_out().finish(command="")


def recipe(name: str, **tables: Any) -> TuneSettings:
    return checked(TuneSettings, {"tune": {"recipe": name, **tables.pop("tune", {})}, **tables})


RANGE = {"kind": "range", "low": 2e-6, "high": 1e-5, "count": 3, "steps": 150}
"""A range test of three rates."""


def quick(folder: Path, *, limit: float = 0.9, **tune: Any) -> TuneSettings:
    """The quick recipe with a range test, on a tiny problem."""
    for name in ("probe", "text"):
        (folder / f"{name}s.txt").write_text("".join(f"{name} {number}\n" for number in range(20)))
    return recipe(
        "quick",
        tune={"batch_size": 5, "batches_per_epoch": 4, "max_epochs": 3, "idle_epochs": 2, **tune},
        data={"validation_fraction": 0.3},
        guard={"probes": str(folder / "probes.txt"), "depth": 10, "limit": limit, "action": "stop"},
        rehearsal={"texts": str(folder / "texts.txt")},
        rate_search={"kind": "range", "low": 1e-4, "high": 1e-2, "count": 3, "steps": 8},
        run={"log_every": 2},
    )
