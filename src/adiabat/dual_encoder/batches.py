"""The pairs in the batch of each step, and the positions of their texts in the loss (Reimers 2021).

A batch goes through three forms: `Batch` has rows of texts, `Sides` the embeddings of these rows, and
`Pairs` (`losses/embedded_pairs.py`) the input of the loss, with the embeddings of all processes and the known
answers. Documents have one order in all three: positives, shared negatives, own negatives pair by pair.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from adiabat.config.dual_training import TrainSection, TrainSettings
from adiabat.config.dual_training_data import BatchesSection, MixtureSection
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.ragged import Ragged
from adiabat.core.text import cut_middle
from adiabat.data.batch_arrangement import ArrangedBatches, Rules
from adiabat.data.batch_sampler import (
    BatchSampler,
    Mixture,
    ShuffledBatches,
    drawn_counts,
    pass_counts,
    source_weights,
    step_generator,
    text_order,
)
from adiabat.data.examples import unscored
from adiabat.data.pair_sets import OfPairs, PairSet, text_numbers
from adiabat.data.records import Side
from adiabat.losses.embedded_pairs import Guide, Pairs, unit_rows
from adiabat.models.device import on_device
from adiabat.training.distributed import Processes


@dataclass(frozen=True, slots=True)
class Shard:
    """Differences of the single pass over a shard from passes over a whole data set.

    Attributes:
        seed: Seed of its random orders.
        repeats: How often the pass repeats the pairs of each source; 1 if the source supplied all requested
            examples.
    """

    number: int
    seed: int
    first_step: int
    repeats: tuple[float, ...]

    def mixture(self, pairs: PairSet) -> Mixture:
        """Share of each source in the pass.

        ``n_s r_s / sum n r``, for ``n_s`` pairs of source ``s`` that are repeated ``r_s`` times.
        """
        # A source that gave nothing to the shard has size 0.
        sizes = np.bincount(pairs.sources, minlength=len(self.repeats))
        counts = np.rint(sizes * np.array(self.repeats)).astype(np.int64)
        return Mixture(tuple(sizes.tolist()), counts / max(1, counts.sum()), counts, self.seed)


def sampler_of(
    settings: TrainSettings,
    pairs: PairSet,
    *,
    tokens: OfPairs | None = None,
    shard: Shard | None = None,
) -> BatchSampler:
    """The batch sampler of the settings.

    Args:
        tokens: Tokens of each pair; used if batches have a token budget.
        shard: Shard of a stream, for a single pass; None plans passes over the whole data.
    """
    size, section = settings.train.batch_size, settings.batches
    if shard is None:
        seed, first_step = settings.run.seed, 0
    else:
        seed, first_step = shard.seed, shard.first_step
    # Without rules and sources, a permutation of all pairs costs less to plan.
    plain = section == BatchesSection() and settings.mixture == MixtureSection()
    if plain and not pairs.sources.any():
        return ShuffledBatches(len(pairs), size, seed=seed, first_step=first_step)
    mixture = mixture_of(pairs, settings) if shard is None else shard.mixture(pairs)
    rules = Rules(
        batch_size=size,
        levels=_levels(pairs, settings, of_shard=shard is not None),
        random_share=section.group.random_share,
        curriculum_steps=section.group.curriculum_steps,
        keys=_text_keys(pairs) if section.no_duplicates else None,
        tokens=tokens,
        token_budget=section.token_budget,
    )
    drawn = int(mixture.counts.sum())
    return ArrangedBatches(mixture.order, rules, pairs=drawn, seed=seed, first_step=first_step)


def mixture_of(pairs: PairSet, settings: TrainSettings) -> Mixture:
    """Share of each source in a pass, and the number of its pairs there.

    The rule weighs a source by its size, at most by the cap; each pass draws the pairs of a larger one anew.
    """
    section = settings.mixture
    sizes = np.bincount(pairs.sources)
    counted = np.minimum(sizes, section.cap or sizes.max()).tolist()
    asked_weights = [source.weight for source in settings.data.sources]
    weights = source_weights(
        counted, rule=section.rule.kind, temperature=section.rule.temperature, weights=asked_weights
    )
    counts = pass_counts(counted, weights, exhausted=section.exhausted)
    return Mixture(tuple(sizes.tolist()), weights, counts, settings.run.seed)


def _levels(pairs: PairSet, settings: TrainSettings, *, of_shard: bool = False) -> list[OfPairs]:
    """Numbers of tag, topic and source, as far as they group batches; finer ones are distinguished within
    coarser ones.

    Returns:
        One number per pair for each level, finest first. Pairs that fill no batch of one level are batched by
        the next, and the last level has only sources, or a single number for all pairs.
    """
    group = settings.batches.group.kind
    apart = pairs.sources
    if not settings.mixture.one_source_per_batch:
        apart = np.zeros(len(pairs), dtype=np.int64)
    topics = _within(apart, pairs.topics)
    tags = _within(topics, pairs.tags)
    levels = {"none": [], "topic": [topics], "tag": [tags, topics]}[group]
    names = np.unique(pairs.tags if group == "tag" else pairs.topics)
    # A file sorted by topic has shards with a single topic; number 0 stands for no name.
    if levels and len(names) == 1 and not (of_shard and names[0]):
        raise DataError(
            f"{pairs.name}: pairs must be of several {group}s where batches.group is "
            f"{group}, got one; name the column that tells them "
            f"apart (data.columns.{group}), or leave batches.group out"
        )
    if group == "tag" and len(np.unique(topics)) == len(np.unique(apart)):
        # Without topics, pairs left over from tags form random batches.
        levels = levels[:1]
    return [*levels, apart]


def in_small_groups(pairs: PairSet, settings: TrainSettings) -> int:
    """Number of pairs whose topic or tag has too few pairs for a batch; 0 without grouping."""
    if settings.batches.group.kind == "none":
        return 0
    sizes = np.bincount(_levels(pairs, settings)[0])
    return int(sizes[sizes < settings.train.batch_size].sum())


def unnamed(pairs: PairSet, settings: TrainSettings) -> str | None:
    """A note on pairs without the topic or tag that groups batches; None if every pair has one, or without
    grouping.
    """
    group = settings.batches.group.kind
    if group == "none":
        return None
    names = pairs.topics if group == "topic" else pairs.tags
    # Number 0 stands for no name.
    count = int((names == 0).sum())
    if not count:
        return None
    each = " in each topic" if group == "tag" and pairs.topics.any() else ""
    return (
        f"{count:,} of {len(pairs):,} pairs have no {group}: they form separate "
        f"batches, as if they shared one {group}{each}"
    )


def left_out_note(sampler: BatchSampler, *, steps: int) -> str | None:
    """A note on the pairs that the passes of a run left out; None if there are none.

    The passes are planned again, up to the one in which the run ended.
    """
    largest = number = ended = 0
    while ended < steps:
        largest = max(largest, sampler.left_out(number))
        ended += sampler.batches(number)
        number += 1
    if not largest:
        return None
    amount = f"up to {largest:,} of {sampler.pairs:,} pairs of a pass"
    return f"{amount} were in no batch, because none under the rules of [batches] could take them"


def mixture_note(sampler: BatchSampler, pairs: PairSet, settings: TrainSettings, *, steps: int) -> str | None:
    """A note on the share of each source in a run beside the configured one; None with a single source, or
    without steps.

    It plans the run's passes again.
    """
    paths = [source.path for source in settings.data.sources]
    if len(paths) < 2 or not steps:
        return None
    counts = drawn_counts(sampler, pairs.sources, steps=range(steps), count=len(paths))
    return drawn_note(paths, counts, mixture_of(pairs, settings).weights)


def drawn_note(paths: Sequence[str], counts: Int[np.ndarray, " s"], weights: Float[np.ndarray, " s"]) -> str:
    """A note on the pairs drawn of each source, in numbers and beside the configured share."""
    shares = 100 * counts / max(1, counts.sum())
    sources = [
        f"{cut_middle(path, limit=40)} {count:,} ({share:.1f} %, asked for {100 * weight:.1f} %)"
        for path, count, share, weight in zip(paths, counts, shares, weights, strict=True)
    ]
    return f"pairs drawn of each source: {'; '.join(sources)}"


def _within(outer: OfPairs, inner: OfPairs) -> OfPairs:
    """A number for each combination of two numbers, as small as possible."""
    # The combinations as digits of one number, to base `width`, in 64 bits.
    width = int(inner.max(initial=0)) + 1
    combined = outer.astype(np.int64) * width + inner
    numbers: OfPairs = np.unique(combined, return_inverse=True)[1]
    return numbers


def _text_keys(pairs: PairSet) -> Int[np.ndarray, "pairs 2"]:
    """Numbers of each pair's texts, equal for equal texts on either side."""
    queries, documents = text_numbers(pairs.texts)
    return np.stack([queries[pairs.query], documents[pairs.positive]], axis=1)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of `Texts` by position; p pairs, n shared negatives or h own negatives for each pair.

    Attributes:
        query: Query of each pair.
        positive: Positive of each pair.
        shared: Negatives that every query is compared with.
        own: Negatives compared only with their own query; missing ones are filled with its positive.
        scores: A teacher's scores of the positive and of the own negatives; None where the loss needs none.
    """

    query: Int[np.ndarray, " p"]
    positive: Int[np.ndarray, " p"]
    shared: Int[np.ndarray, " n"]
    own: Int[np.ndarray, "p h"]
    scores: Float32[np.ndarray, "p h_and_one"] | None = None

    @property
    def documents(self) -> Int[np.ndarray, " d"]:
        """Rows of all documents: positives, shared negatives, own negatives, ``d = p + n + p h``."""
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
    """Refuse data that lists too few negatives for the loss.

    A triplet loss compares with nothing else. Own negatives of unequal number are filled up with the
    positive, which only a mask of duplicates keeps from counting as its own negative.
    """
    loss = section.loss
    if not loss.negatives_per_query:
        return
    if loss.needs_scores:
        _check_scores(pairs)
    counts = pairs.negatives.lengths[pairs.query_rows]
    # In-batch losses take the answers of other queries, of which a batch of one has none.
    needs_negatives = loss.fills_lists or section.batch_size == 1
    if needs_negatives and not counts.all():
        raise DataError(
            f"{pairs.name}: every query must list a negative if train.loss is triplet or listwise, "
            "or train.batch_size is 1, got none for "
            f"{int((counts == 0).sum()):,} of {len(counts):,}; list some, or change these settings"
        )
    if loss.fills_lists or loss.negatives_shared or loss.mask_duplicates:
        return
    if bool((counts < loss.negatives_per_query).any()):
        raise ConfigError(
            f"train.loss.mask_duplicates must be true where queries of {pairs.name} list "
            f"fewer than {loss.negatives_per_query} negatives "
            "of their own, got false; set it, or lower train.loss.negatives_per_query"
        )


def _check_scores(pairs: PairSet) -> None:
    """Refuse data in which a document of a query has no score of a teacher."""
    queries = pairs.query
    if pairs.scores is not None and pairs.negative_scores is not None:
        owners = np.repeat(np.arange(len(pairs.negatives)), pairs.negatives.lengths)
        listed = owners[np.isnan(pairs.negative_scores)]
        queries = np.union1d(pairs.query[np.isnan(pairs.scores)], np.intersect1d(listed, pairs.query))
    if len(queries):
        (query_id,) = pairs.texts.query_ids.take(queries[:1])
        raise DataError(unscored(f"{pairs.name}: query {query_id}"))


def draw_batch(
    pairs: PairSet, rows: Int[np.ndarray, " p"], section: TrainSection, *, seed: int, step: int
) -> Batch:
    """The batch of some pairs, with negatives drawn at random from those listed for their queries.

    A query that lists no more than `negatives_per_query` gives all of them, in their order.
    """
    # A generator for each step, so that a resumed run draws the same negatives.
    random = step_generator(seed, step)
    count = section.loss.negatives_per_query

    def drawn(query: int) -> Int[np.ndarray, " k"]:
        listed = pairs.negatives[query]
        if len(listed) > count:
            listed = random.choice(listed, count, replace=False)
        return listed.astype(np.int64)

    return _batch(pairs, rows, section, drawn)


def validation_batch(pairs: PairSet, rows: Int[np.ndarray, " p"], section: TrainSection) -> Batch:
    """The batch of some pairs, with negatives that follow from the texts alone: those whose hash with their
    query is lowest.
    """

    def lowest(query: int) -> Int[np.ndarray, " k"]:
        listed = pairs.negatives[query].astype(np.int64)
        (query_text,) = pairs.texts.queries.take(np.array([query]))
        order = text_order(f"{query_text}\0{text}" for text in pairs.texts.documents.take(listed))
        return listed.take(order[: section.loss.negatives_per_query])

    return _batch(pairs, rows, section, lowest)


def pair_order(pairs: PairSet) -> OfPairs:
    """Pairs ordered by the hash of both texts, so that validation does not depend on the order of files."""
    queries = pairs.texts.queries.take(pairs.query)
    documents = pairs.texts.documents.take(pairs.positive)
    return text_order(map("\0".join, zip(queries, documents, strict=True)))


def _batch(
    pairs: PairSet,
    picked: Int[np.ndarray, " p"],
    section: TrainSection,
    draw: Callable[[int], Int[np.ndarray, " k"]],
) -> Batch:
    """The batch of some pairs, with the negatives drawn for each row of a query."""
    count = section.loss.negatives_per_query
    # Rows take half the memory in 32 bits; in a batch they are also keys, which tensors hold as 64-bit
    # numbers.
    query, positive = pairs.query[picked].astype(np.int64), pairs.positive[picked].astype(np.int64)
    # A missing negative is filled with the positive, which a mask of duplicates leaves out.
    own = np.repeat(positive[:, None], count, axis=1)
    if not count:
        return Batch(query, positive, positive[:0], own)
    negatives = [draw(row) for row in query.tolist()]
    if section.loss.negatives_shared:
        return Batch(query, positive, Ragged.of(negatives).values, own[:, :0])
    for index, rows in enumerate(negatives):
        # A loss without a mask repeats the negatives that there are.
        listed = np.resize(rows, count) if section.loss.fills_lists else rows
        own[index, : len(listed)] = listed
    scores = _scores_of(pairs, picked, own) if section.loss.needs_scores else None
    return Batch(query, positive, positive[:0], own, scores)


def _scores_of(
    pairs: PairSet, picked: Int[np.ndarray, " p"], own: Int[np.ndarray, "p h"]
) -> Float32[np.ndarray, "p h_and_one"]:
    """A teacher's scores of the positive and of the own negatives of some pairs."""
    assert pairs.scores is not None
    assert pairs.negative_scores is not None
    scores = np.empty((len(picked), 1 + own.shape[1]), dtype=np.float32)
    scores[:, 0] = pairs.scores[picked]
    starts = pairs.negatives.offsets
    for row, query in enumerate(pairs.query[picked].tolist()):
        part = slice(starts[query], starts[query + 1])
        of_query = pairs.negative_scores[part].tolist()
        by_document = dict(zip(pairs.negatives.values[part].tolist(), of_query, strict=True))
        scores[row, 1:] = [by_document[document] for document in own[row].tolist()]
    return scores


def share_of(pairs: PairSet, batch: Batch, section: TrainSection, processes: Processes) -> Batch:
    """This process's part of a batch: its pairs, with the negatives of their queries."""
    mine = processes.share(len(batch.query))
    listed = np.minimum(pairs.negatives.lengths[batch.query], section.loss.negatives_per_query)
    # Shared negatives lie query by query, so those of consecutive pairs are consecutive.
    ends = np.concatenate([[0], np.cumsum(listed)])
    shared = batch.shared
    if len(shared):
        shared = shared[ends[mine.start] : ends[mine.stop]]
    return Batch(batch.query[mine], batch.positive[mine], shared, batch.own[mine])


def pairs_of(
    batch: Batch,
    sides: Sides,
    examples: PairSet,
    section: TrainSection,
    processes: Processes,
    *,
    guide: Sides | None = None,
) -> Pairs:
    """Input of the loss: embeddings of all processes, and the known answers among the texts.

    Args:
        batch: The whole batch, alike in all processes; keys are made of it and need no exchange.
        sides: Embeddings of this process's share.
        guide: The guide's embeddings of the same share; None without another model as guide.
    """
    query, positive, shared, own = _gathered(batch, sides, processes)
    device = query.device
    keys = _keys(batch, examples, device) if section.loss.mask_duplicates else {}
    opinion, judge = None, section.loss.guide
    if guide is not None and judge is not None:
        unit = Sides(unit_rows(guide.query), unit_rows(guide.documents))
        opinion = Guide(*_gathered(batch, unit, processes), margin=judge.margin, relative=judge.relative)
    scores = None if batch.scores is None else on_device(torch.from_numpy(batch.scores), device)
    rows = processes.share(len(batch.query))
    return Pairs(query, positive, shared, own, rows=rows, guide=opinion, scores=scores, **keys)


def _gathered(
    batch: Batch, sides: Sides, processes: Processes
) -> tuple[
    Float[Tensor, "p e"], Float[Tensor, "p e"], Float[Tensor, "n e"] | None, Float[Tensor, "p h e"] | None
]:
    """Queries, positives and negatives of all processes."""
    count, width = len(sides.query), sides.query.shape[1]
    own_count = count * batch.own.shape[1]
    shared_count = len(sides.documents) - count - own_count
    # The order of `Batch.documents`.
    positive, shared, own = torch.split(sides.documents, [count, shared_count, own_count])
    return (
        processes.gather(sides.query),
        processes.gather(positive),
        processes.gather(shared) if len(batch.shared) else None,
        # Only this process compares with its own negatives.
        processes.spread(own.reshape(count, -1, width)) if batch.own.size else None,
    )


def _keys(batch: Batch, examples: PairSet, device: torch.device) -> dict[str, Tensor]:
    """Rows of `Texts` as keys, equal for equal texts.

    Answers outside the batch would mask nothing and are left out. Rows are distinct texts, so equal rows are
    equal texts on one side.
    """
    listed = examples.answers.take(batch.query)
    in_batch = np.isin(listed.values, batch.documents)
    answers = []
    for start, end in pairwise(listed.offsets.tolist()):
        of_query = listed.values[start:end]
        answers.append(of_query[in_batch[start:end]])
    longest = max(map(len, answers))
    keys = {
        "query_keys": batch.query,
        "positive_keys": batch.positive,
        # Shorter lists repeat their answers, which masks nothing else.
        "answer_keys": np.stack([np.resize(rows, longest) for rows in answers]),
    }
    if len(batch.shared):
        keys["shared_keys"] = batch.shared
    if batch.own.size:
        keys["own_keys"] = batch.own
    tensors = {name: torch.from_numpy(np.ascontiguousarray(rows)) for name, rows in keys.items()}
    return {name: on_device(tensor, device) for name, tensor in tensors.items()}
