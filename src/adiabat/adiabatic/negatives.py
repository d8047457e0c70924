"""Sources of the negatives of a step: the examples, random documents of the store, or the store's hardest for
the current tower.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from adiabat.config.tuning import TuneSection
from adiabat.core.errors import ConfigError, DataError, DivergedError
from adiabat.core.ragged import Ragged
from adiabat.core.wording import call_of
from adiabat.data.batch_sampler import step_generator
from adiabat.data.examples import unscored
from adiabat.models.embedding_head import STATED, Similarity
from adiabat.store.addressing import AddressedSet
from adiabat.store.search import search
from adiabat.store.vector_store import Store

Chooser = Callable[[Int[np.ndarray, " b"], int, Float[Tensor, "b e"]], Ragged]
"""Returns rows of each query's negatives, from the examples of a step, its number and its query
embeddings."""


def negative_chooser(settings: TuneSection, examples: AddressedSet, store: Store, *, seed: int) -> Chooser:
    """The source of negatives that the settings choose."""
    count = settings.negatives.per_query

    def none(rows: Int[np.ndarray, " b"], step: int, query: Float[Tensor, "b e"]) -> Ragged:
        return Ragged.of(np.empty(0, dtype=np.int64) for _ in rows)

    def listed(rows: Int[np.ndarray, " b"], step: int, query: Float[Tensor, "b e"]) -> Ragged:
        return listed_negatives(examples, rows, settings)

    def random(rows: Int[np.ndarray, " b"], step: int, query: Float[Tensor, "b e"]) -> Ragged:
        return _random(examples.known.take(rows), store.count, count, step_generator(seed, step))

    if not settings.loss.draws_negatives():
        return none
    if settings.negatives.kind == "examples":
        _require_listed(examples, settings)
        if not _without_negatives(examples, settings):
            return listed
    largest = int(examples.known.lengths.max()) + count
    if store.count < largest:
        raise DataError(
            f"{store.path} must hold at least {largest} documents for tune.negatives.per_query "
            f"= {count} beside a query's positives, "
            f"got {store.count}; lower it"
        )
    if settings.negatives.kind == "random":
        return random
    assert settings.loss.distance is not None
    similarity = STATED[settings.loss.distance]

    def hardest(rows: Int[np.ndarray, " b"], step: int, query: Float[Tensor, "b e"]) -> Ragged:
        return _hardest(examples.known.take(rows), store, count, query, similarity)

    return hardest if settings.negatives.kind == "hardest" else _listed_or(hardest, examples, settings)


def _listed_or(hardest: Chooser, examples: AddressedSet, settings: TuneSection) -> Chooser:
    """Take listed negatives, or the store's hardest for queries without any."""

    def choose(rows: Int[np.ndarray, " b"], step: int, query: Float[Tensor, "b e"]) -> Ragged:
        bare = examples.negatives.lengths[rows] == 0
        if bare.all():
            return hardest(rows, step, query)
        listed = iter(listed_negatives(examples, rows[~bare], settings))
        if not bare.any():
            return Ragged.of(listed)
        mined = iter(hardest(rows[bare], step, query[torch.from_numpy(bare).to(query.device)]))
        # Both in the order of the rows.
        return Ragged.of(next(mined if none else listed) for none in bare)

    return choose


def require_scores(examples: AddressedSet, settings: TuneSection) -> None:
    """Refuse queries without a teacher's scores, or without negatives, where the loss learns from scores."""
    if not settings.loss.needs_scores:
        return
    if examples.unscored:
        raise DataError(unscored(examples.unscored))
    bare = int((examples.negatives.lengths == 0).sum())
    if bare:
        raise DataError(
            f"{examples.name}: every query must list a negative with tune.loss = {settings.loss.kind}, "
            f"{bare:,} of {len(examples):,} list none; {call_of('label')} finds and scores some"
        )


def _require_listed(examples: AddressedSet, settings: TuneSection) -> None:
    if settings.batch_size == 1 and not len(examples.negatives.values):
        raise ConfigError(
            "tune.batch_size must be at least 2 where no negatives are listed, got 1: "
            f"{examples.name} lists none, so a query has no "
            "negative; raise it, or set tune.negatives = hardest or random"
        )
    short = int((examples.negatives.lengths < settings.negatives.difficulty).sum())
    if settings.negatives.difficulty > 1 and short:
        raise DataError(
            f"{examples.name}: every query must list at least tune.negatives.difficulty "
            f"= {settings.negatives.difficulty} negatives, "
            f"{short} of {len(examples)} do not; lower it"
        )


def searched(examples: AddressedSet, settings: TuneSection) -> Bool[np.ndarray, " n"]:
    """Queries whose negatives are the store's hardest, so that they depend on the tower."""
    everywhere = settings.negatives.kind == "hardest" and settings.loss.draws_negatives()
    # A batch provides others.
    bare = settings.negatives.kind == "examples" and settings.loss.negatives_from == "query"
    found: Bool[np.ndarray, " n"] = ((examples.negatives.lengths == 0) & bare) | everywhere
    return found


def _without_negatives(examples: AddressedSet, settings: TuneSection) -> int:
    """Number of queries that take the store's hardest in place of listed negatives."""
    return int(searched(examples, settings).sum()) if settings.negatives.kind == "examples" else 0


def mined_negatives_note(examples: AddressedSet, settings: TuneSection) -> str | None:
    """A note on queries without listed negatives; None if there are none, or if they need none."""
    bare = _without_negatives(examples, settings)
    if not bare:
        return None
    return (
        f"{bare:,} of {len(examples):,} queries list no negatives: each step takes the "
        "store's hardest for them, as under tune.negatives = hardest"
    )


def short_lists_note(examples: AddressedSet, settings: TuneSection) -> str | None:
    """A note on queries with too few listed negatives; None if there are none, or if listed ones are not
    used.
    """
    section = settings.negatives
    needed = section.per_query + section.difficulty - 1
    lengths = examples.negatives.lengths
    short = int((lengths < needed).sum()) - _without_negatives(examples, settings)
    listed = settings.loss.draws_negatives() and section.kind == "examples"
    # Data without any negatives use those of the batch, as requested.
    if not listed or not short or not lengths.any():
        return None
    then = "theirs are repeated" if settings.loss.negatives_from == "query" else "they use those they list"
    return (
        f"{short:,} of {len(examples):,} queries list fewer than tune.negatives.per_query = "
        f"{section.per_query} negatives from tune.negatives.difficulty = {section.difficulty} on: {then}"
    )


def listed_negatives(examples: AddressedSet, rows: Int[np.ndarray, " b"], settings: TuneSection) -> Ragged:
    """The negatives that examples list, from `negatives.difficulty` on; the last one of a shorter list.

    Where queries have negatives of their own, a list that is too short is repeated, so that every query has
    the same weight. Where negatives serve every query of the batch, a repeated one would count twice, so none
    is repeated.
    """
    section = settings.negatives
    lists = []
    for row in rows:
        listed = examples.negatives[int(row)]
        hard = listed[min(section.difficulty, len(listed)) - 1 :]
        if settings.loss.negatives_from == "query":
            lists.append(np.resize(hard, section.per_query))
        else:
            lists.append(hard[: section.per_query])
    return Ragged.of(lists)


def _random(known: Ragged, count: int, size: int, generator: np.random.Generator) -> Ragged:
    """Rows drawn uniformly from all documents except known answers of the query, without repetition within a
    query.
    """
    return Ragged.of(_draw(known[index], count, size, generator) for index in range(len(known)))


def _draw(
    known: Int[np.ndarray, " p"], count: int, size: int, generator: np.random.Generator
) -> Int[np.ndarray, " h"]:
    rows = generator.choice(count - len(np.unique(known)), size=size, replace=False, shuffle=False)
    # Numbers among the remaining documents become rows by skipping each known one at or below them.
    for row in np.unique(known):
        rows += rows >= row
    return rows


def _hardest(
    known: Ragged, store: Store, size: int, query: Float[Tensor, "b e"], similarity: Similarity
) -> Ragged:
    """The nearest documents in the whole store that are not known answers of the query."""
    if not bool(torch.isfinite(query).all()):
        raise DivergedError(
            "query embeddings must be finite numbers to look for the hardest negatives, got NaN or infinity",
            "lower the learning rate",
        )
    embeddings = query.detach().float().cpu().numpy()
    excluded = [known[index] for index in range(len(known))]
    hits = search(store, embeddings, size, similarity=similarity, device=query.device, excluded=excluded)
    return Ragged.of(row[row >= 0] for row in hits.rows)
