"""Which pairs make the batch of each step, as settings ask for it (Reimers 2021)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from adiabat.config.dual_training import TrainSettings
from adiabat.config.dual_training_data import BatchesSection, MixtureSection
from adiabat.core.errors import DataError
from adiabat.core.text import cut_middle
from adiabat.data.batch_arrangement import ArrangedBatches, Rules
from adiabat.data.batch_sampler import BatchSampler, Mixture, ShuffledBatches, drawn_counts, pass_counts, source_weights
from adiabat.data.pair_sets import PairSet, text_numbers
from adiabat.dual_encoder.text_cache import PairTexts


@dataclass(frozen=True, slots=True)
class Shard:
    """What sets the one pass over a shard of a stream apart from passes over data that are all there.

    Attributes:
        number: From 0.
        seed: Of its orders.
        first_step: The step that begins it.
        repeats: How often the pass takes the pairs of each source: 1 where as much was read as was asked for.
    """

    number: int
    seed: int
    first_step: int
    repeats: tuple[float, ...]

    def mixture(self, pairs: PairSet) -> Mixture:
        """How much of each source the pass holds."""
        sizes = np.bincount(pairs.sources, minlength=len(self.repeats))
        counts = np.rint(sizes * np.array(self.repeats)).astype(np.int64)
        return Mixture(tuple(sizes.tolist()), counts / max(1, counts.sum()), counts, self.seed)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The batches of steps that draw on the same pairs: of a whole run, or of a shard of a stream.

    Attributes:
        pairs: Trained on.
        texts: Of the pairs.
        sampler: Draws the pairs of each step.
        steps: The steps; None where all are.
        shard: Number of the shard; None where there is no stream.
    """

    pairs: PairSet
    texts: PairTexts
    sampler: BatchSampler
    steps: range | None = None
    shard: int | None = None

    def holds(self, step: int) -> bool:
        """Whether a step draws on these pairs."""
        return self.steps is None or step in self.steps


def sampler_of(
    settings: TrainSettings, pairs: PairSet, *, tokens: Int[np.ndarray, " pairs"] | None = None, shard: Shard | None = None
) -> BatchSampler:
    """The batches that settings describe.

    Args:
        tokens: Of each pair; read where batches have a budget of tokens.
        shard: Of a stream, whose first pass alone is then taken; None plans passes over all there is.
    """
    size, section = settings.train.batch_size, settings.batches
    seed, first_step = (settings.run.seed, 0) if shard is None else (shard.seed, shard.first_step)
    plain = section == BatchesSection() and settings.mixture == MixtureSection()
    if plain and not pairs.sources.any():
        return ShuffledBatches(len(pairs), size, seed=seed, first_step=first_step)
    mixture = mixture_of(pairs, settings) if shard is None else shard.mixture(pairs)
    rules = Rules(
        batch_size=size,
        levels=_levels(pairs, settings, of_shard=shard is not None),
        random_share=section.group.random_share,
        curriculum_steps=section.group.curriculum_steps,
        keys=_keys(pairs) if section.no_duplicates else None,
        tokens=tokens,
        token_budget=section.token_budget,
    )
    return ArrangedBatches(mixture.order, rules, pairs=int(mixture.counts.sum()), seed=seed, first_step=first_step)


def mixture_of(pairs: PairSet, settings: TrainSettings) -> Mixture:
    """How much of each source a pass holds."""
    section = settings.mixture
    sizes = np.bincount(pairs.sources)
    counted = np.minimum(sizes, section.cap or sizes.max()).tolist()
    asked_weights = [source.weight for source in settings.data.sources]
    weights = source_weights(counted, rule=section.rule.kind, temperature=section.rule.temperature, weights=asked_weights)
    counts = pass_counts(counted, weights, exhausted=section.exhausted)
    return Mixture(tuple(sizes.tolist()), weights, counts, settings.run.seed)


def _levels(pairs: PairSet, settings: TrainSettings, *, of_shard: bool = False) -> list[Int[np.ndarray, " pairs"]]:
    """Numbers of tag, topic and source, as far as batches go by them; finer ones are told apart by the coarser."""
    group = settings.batches.group.kind
    apart = pairs.sources if settings.mixture.one_source_per_batch else np.zeros(len(pairs), dtype=np.int64)
    topics = _within(apart, pairs.topics)
    levels = {"none": [], "topic": [topics], "tag": [_within(topics, pairs.tags), topics]}[group]
    names = np.unique(pairs.tags if group == "tag" else pairs.topics)
    # A file that is sorted by topic has shards of one; number 0 is that of no name.
    if levels and len(names) == 1 and not (of_shard and names[0]):
        raise DataError(
            f"{pairs.name}: pairs must be of several {group}s where batches.group is {group}, got one; name the column that tells them "
            f"apart (data.columns.{group}), or leave batches.group out"
        )
    if group == "tag" and len(np.unique(topics)) == len(np.unique(apart)):
        # Without topics, what is left of the tags is random.
        levels = levels[:1]
    return [*levels, apart]


def in_small_groups(pairs: PairSet, settings: TrainSettings) -> int:
    """Pairs whose topic or tag has too few for a batch of its own.

    Returns:
        How many; 0 where batches are not grouped.
    """
    if settings.batches.group.kind == "none":
        return 0
    sizes = np.bincount(_levels(pairs, settings)[0])
    return int(sizes[sizes < settings.train.batch_size].sum())


def unnamed(pairs: PairSet, settings: TrainSettings) -> str | None:
    """What becomes of pairs without a topic or tag where batches go by it.

    Returns:
        A sentence, or None where each has one, or batches are not grouped.
    """
    group = settings.batches.group.kind
    if group == "none":
        return None
    # Number 0 is that of no name.
    count = int(((pairs.topics if group == "topic" else pairs.tags) == 0).sum())
    if not count:
        return None
    each = " in each topic" if group == "tag" and pairs.topics.any() else ""
    return f"{count:,} of {len(pairs):,} pairs have no {group}: they form batches of their own, as if they were of one {group}{each}"


def left_out_note(sampler: BatchSampler, *, steps: int) -> str | None:
    """How many pairs the passes of a run left out; None where none were."""
    largest = number = ended = 0
    while ended < steps:
        largest = max(largest, sampler.left_out(number))
        ended += sampler.batches(number)
        number += 1
    if not largest:
        return None
    amount = f"up to {largest:,} of {sampler.pairs:,} pairs of a pass"
    return f"{amount} were in no batch, because they fitted into none by the rules of [batches]"


def mixture_note(sampler: BatchSampler, pairs: PairSet, settings: TrainSettings, *, steps: int) -> str | None:
    """How much of each source a run took, beside what was asked for; None where there is one source, or no step.

    The run's passes are planned once more.
    """
    paths = [source.path for source in settings.data.sources]
    if len(paths) < 2 or not steps:
        return None
    counts = drawn_counts(sampler, pairs.sources, steps=range(steps), count=len(paths))
    shares_asked = mixture_of(pairs, settings).weights
    shares = [
        f"{cut_middle(path, limit=40)} {count:,} ({100 * count / counts.sum():.1f} %, asked for {100 * share:.1f} %)"
        for path, count, share in zip(paths, counts.tolist(), shares_asked.tolist(), strict=True)
    ]
    return f"pairs drawn of each source: {'; '.join(shares)}"


def _within(outer: Int[np.ndarray, " pairs"], inner: Int[np.ndarray, " pairs"]) -> Int[np.ndarray, " pairs"]:
    """A number for each pair of numbers."""
    numbers: Int[np.ndarray, " pairs"] = np.unique(outer.astype(np.int64) * (int(inner.max(initial=0)) + 1) + inner, return_inverse=True)[1]
    return numbers


def _keys(pairs: PairSet) -> Int[np.ndarray, "pairs 2"]:
    """Numbers of each pair's texts, equal over both sides where texts are."""
    queries, documents = text_numbers(pairs.texts)
    return np.stack([queries[pairs.query], documents[pairs.positive]], axis=1)
