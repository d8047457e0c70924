"""Which texts stand in one step's batch, and in which place of the loss."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from adiabat.config.dual_training import TrainSection
from adiabat.config.training_choices import Triplet
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.ragged import Ragged
from adiabat.data.batch_sampler import step_generator, text_order
from adiabat.data.pair_sets import PairSet
from adiabat.data.records import Side
from adiabat.losses.embedded_pairs import Guide, Pairs, unit_rows
from adiabat.training.distributed import Processes


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of `Texts`, place by place; p pairs, n shared negatives or h own ones for each pair.

    Attributes:
        query: Of each pair.
        positive: Of each pair.
        shared: Negatives that every query is compared with.
        own: Negatives that each query alone is compared with; a place that a query has no negative for holds its positive.
    """

    query: Int[np.ndarray, " p"]
    positive: Int[np.ndarray, " p"]
    shared: Int[np.ndarray, " n"]
    own: Int[np.ndarray, "p h"]

    @property
    def documents(self) -> Int[np.ndarray, " d"]:
        """Rows of all documents: positives, shared negatives, own negatives."""
        return np.concatenate([self.positive, self.shared, self.own.ravel()])

    @property
    def sides(self) -> dict[Side, Int[np.ndarray, " _"]]:
        """Rows of the texts of each side."""
        return {"query": self.query, "document": self.documents}


@dataclass(frozen=True, slots=True)
class Sides:
    """Embeddings of a batch's texts: queries, and documents in the order of `Batch.documents`."""

    query: Float[Tensor, "p e"]
    documents: Float[Tensor, "d e"]


def check_negatives(pairs: PairSet, section: TrainSection) -> None:
    """Refuse data that lists too few negatives for the loss."""
    loss = section.loss
    if not loss.negatives_per_query:
        return
    counts = pairs.negatives.lengths[pairs.query_rows]
    if (isinstance(loss, Triplet) or section.batch_size == 1) and not counts.all():
        raise DataError(
            f"{pairs.name}: every query must list a negative where train.loss is triplet or train.batch_size is 1, got none for "
            f"{int((counts == 0).sum()):,} of {len(counts):,}; list some, or change these settings"
        )
    if isinstance(loss, Triplet) or loss.negatives_shared or loss.mask_duplicates:
        return
    if bool((counts < loss.negatives_per_query).any()):
        raise ConfigError(
            f"train.loss.mask_duplicates must be true where queries of {pairs.name} list fewer than {loss.negatives_per_query} negatives "
            "of their own, got false; set it, or lower train.loss.negatives_per_query"
        )


def draw_batch(pairs: PairSet, rows: Int[np.ndarray, " p"], section: TrainSection, *, seed: int, step: int) -> Batch:
    """The batch of some pairs, with negatives drawn from those that their queries list."""
    random = step_generator(seed, step)
    count = section.loss.negatives_per_query
    return _batch(pairs, rows, section, lambda query: _drawn(pairs.negatives[query], count, random))


def validation_batch(pairs: PairSet, rows: Int[np.ndarray, " p"], section: TrainSection) -> Batch:
    """The batch of some pairs, with negatives that follow from the texts alone: those whose hash with their query is lowest."""

    def lowest(query: int) -> Int[np.ndarray, " k"]:
        listed = pairs.negatives[query].astype(np.int64)
        (query_text,) = pairs.texts.queries.take(np.array([query]))
        order = text_order(f"{query_text}\0{text}" for text in pairs.texts.documents.take(listed))
        return listed.take(order[: section.loss.negatives_per_query])

    return _batch(pairs, rows, section, lowest)


def pair_order(pairs: PairSet) -> Int[np.ndarray, " pairs"]:
    """Pairs by the hash of both their texts."""
    texts = zip(pairs.texts.queries.take(pairs.query), pairs.texts.documents.take(pairs.positive), strict=True)
    return text_order(f"{query}\0{document}" for query, document in texts)


def _batch(pairs: PairSet, picked: Int[np.ndarray, " p"], section: TrainSection, draw: Callable[[int], Int[np.ndarray, " k"]]) -> Batch:
    """The batch of some pairs, with the negatives that are drawn for each row of a query."""
    count = section.loss.negatives_per_query
    # Rows are kept in half the memory; of a batch they are keys, too, which tensors hold as 64-bit numbers.
    query, positive = (rows[picked].astype(np.int64) for rows in (pairs.query, pairs.positive))
    if not count:
        return Batch(query, positive, _none(), _none().reshape(len(query), 0))
    negatives = [draw(row) for row in query.tolist()]
    if isinstance(section.loss, Triplet):
        return Batch(query, positive, _none(), np.stack([np.resize(rows, count) for rows in negatives]))
    if section.loss.negatives_shared:
        return Batch(query, positive, Ragged.of(negatives).values, _none().reshape(len(query), 0))
    own = np.repeat(positive[:, None], count, axis=1)
    for index, rows in enumerate(negatives):
        own[index, : len(rows)] = rows
    return Batch(query, positive, _none(), own)


def _drawn(listed: Int[np.ndarray, " n"], count: int, random: np.random.Generator) -> Int[np.ndarray, " k"]:
    return (listed if len(listed) <= count else random.choice(listed, count, replace=False)).astype(np.int64)


def _none() -> Int[np.ndarray, " none"]:
    return np.empty(0, dtype=np.int64)


def share_of(pairs: PairSet, batch: Batch, section: TrainSection, processes: Processes) -> Batch:
    """This process's part of a batch."""
    mine = processes.share(len(batch.query))
    listed = np.minimum(pairs.negatives.lengths[batch.query], section.loss.negatives_per_query)
    ends = np.concatenate([[0], np.cumsum(listed)])
    shared = batch.shared[ends[mine.start] : ends[mine.stop]] if len(batch.shared) else batch.shared
    return Batch(batch.query[mine], batch.positive[mine], shared, batch.own[mine])


def pairs_of(
    batch: Batch, sides: Sides, examples: PairSet, section: TrainSection, processes: Processes, *, guide: Sides | None = None
) -> Pairs:
    """What the loss looks at: the embeddings of all processes, and what is known of the texts."""
    query, positive, shared, own = _gathered(batch, sides, processes)
    device = query.device
    keys = _keys(batch, examples, device) if section.loss.mask_duplicates else {}
    opinion, judge = None, section.loss.guide
    if guide is not None and judge is not None:
        unit = Sides(unit_rows(guide.query), unit_rows(guide.documents))
        opinion = Guide(*_gathered(batch, unit, processes), margin=judge.margin, relative=judge.relative)
    return Pairs(query, positive, shared, own, rows=processes.share(len(batch.query)), guide=opinion, **keys)


def _gathered(
    batch: Batch, sides: Sides, processes: Processes
) -> tuple[Float[Tensor, "p e"], Float[Tensor, "p e"], Float[Tensor, "n e"] | None, Float[Tensor, "p h e"] | None]:
    """Queries, positives and negatives of all processes."""
    count, width = len(sides.query), sides.query.shape[1]
    own_count = count * batch.own.shape[1]
    positive, shared, own = torch.split(sides.documents, [count, len(sides.documents) - count - own_count, own_count])
    return (
        processes.gather(sides.query),
        processes.gather(positive),
        processes.gather(shared) if len(batch.shared) else None,
        processes.spread(own.reshape(count, -1, width)) if batch.own.size else None,
    )


def _keys(batch: Batch, examples: PairSet, device: torch.device) -> dict[str, Tensor]:
    """Rows of `Texts` are keys: equal where texts are. Answers that are not in the batch would mask nothing."""
    listed = examples.answers.take(batch.query)
    in_batch = np.isin(listed.values, batch.documents)
    answers = [listed.values[start:end][in_batch[start:end]] for start, end in pairwise(listed.offsets.tolist())]
    longest = max(map(len, answers))
    keys = {
        "query_keys": batch.query,
        "positive_keys": batch.positive,
        "answer_keys": np.stack([np.resize(rows, longest) for rows in answers]),
    }
    keys |= {"shared_keys": batch.shared} if len(batch.shared) else {}
    keys |= {"own_keys": batch.own} if batch.own.size else {}
    return {name: torch.from_numpy(np.ascontiguousarray(rows)).to(device) for name, rows in keys.items()}
