"""The objective of training both towers (Ziarko et al. 2024; Moiseev et al. 2023; Reimers 2021)."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from adiabat.config.dual_training import TrainSection, TrainSettings
from adiabat.config.training_choices import GuideSection, InBatchLoss
from adiabat.data.batch_sampler import BatchSampler, validation_batches
from adiabat.data.pair_sets import PairSet
from adiabat.data.records import Side
from adiabat.dual_encoder.batches import (
    Batch,
    Shard,
    Sides,
    draw_batch,
    pair_order,
    pairs_of,
    sampler_of,
    share_of,
    validation_batch,
)
from adiabat.dual_encoder.stream import Stream, shard_name
from adiabat.dual_encoder.text_cache import BatchPlan, PairTexts
from adiabat.dual_encoder.train_checks import steps_of, steps_within
from adiabat.losses.embedded_pairs import Guide, Pairs, unit_rows
from adiabat.losses.in_batch import Criterion, triplet_errors
from adiabat.losses.log_denominator import LearnedTemperature, Temperature, scheduled_temperature
from adiabat.models.bulk import TokenTable
from adiabat.models.towers import DualEncoder
from adiabat.runs.run_log import Validation
from adiabat.scaling_laws.flops import Cost, PassedParameters, training_flops
from adiabat.store.vector_store import Store
from adiabat.training.distributed import ALONE, Processes
from adiabat.training.flop_count import passed_parameters
from adiabat.training.gradient_cache import Chunking
from adiabat.training.passes import Passes, side_passes

CHUNK_TOKENS = {"cpu": 4_096, "cuda": 65_536}
"""Default tokens per pass: on a CPU, a number that stays near the caches; on a GPU, one that keeps it
busy."""


@dataclass
class PairContrast:
    """The objective: embed a batch of pairs, and distinguish each query's document from the others.

    A step draws its batch from its number and the seed (`rows`, `draw_batch`), embeds each distinct text once
    (`PairTexts.embed`), and compares every query with its candidates (`pairs_of`, `Criterion`). Nothing else
    is kept from step to step but weights, so a resumed run repeats its steps. Texts of frozen towers are the
    exception: their vectors are cached, and stored with each checkpoint (`keep_in`, `save`).

    Attributes:
        towers: Towers to train; the texts of a frozen tower are embedded once each.
        examples: Training pairs, or a stream of them.
        validation: Validation pairs; their texts are numbered together with those of training pairs, but not
            with a stream's.
        guide: Excludes candidates from the negatives; None if there is none, or if `towers` are the guide.
        processes: Processes that share each batch.
        store: Stored vectors that replace document embeddings; None embeds documents.
    """

    towers: DualEncoder
    examples: PairSet | Stream
    validation: PairSet
    settings: TrainSettings
    guide: DualEncoder | None = None
    processes: Processes = ALONE
    store: Store | None = None

    def __post_init__(self) -> None:
        """Tokenise validation texts, and plan the batches of the data, or of the newest shard of a stream."""
        section = self.settings.train
        self._criterion = criterion_of(section, tile=self.settings.memory.loss_tile)
        choice = section.loss.temperature
        self._learned = LearnedTemperature(choice.value) if choice.kind == "learned" else None
        self._texts = self._cached(self.validation)
        self._folder: tuple[Path, bool] | None = None
        self._saved_shard: Shard | None = None
        if isinstance(self.examples, Stream):
            self._now = self.examples.newest(self._planned)
        else:
            self._now = self._planned(self.examples)
        self._drawn: tuple[int, Batch] | None = None
        precision, chunking = self.settings.run.precision, self._chunking()
        self.passes = Passes(*self._texts.trained, precision=precision, chunking=chunking)
        # A shared tower is registered under both names; its parameters count once.
        self.module = nn.ModuleDict({"query": self.towers.query, "document": self.towers.document})
        if self._learned is not None:
            self.module["temperature"] = self._learned.to(self.towers.query.device)

    @property
    def stream(self) -> Stream | None:
        """The stream, if the data are read during the run; None if all pairs are available."""
        return self.examples if isinstance(self.examples, Stream) else None

    @property
    def train(self) -> PairSet:
        """Training pairs; in a stream, those of the current shard."""
        return self._now.pairs

    @property
    def sampler(self) -> BatchSampler:
        """The batch sampler over `train`."""
        return self._now.sampler

    @property
    def tables(self) -> Mapping[Side, TokenTable]:
        """Tokens of the texts of `train`, for each side with a trained tower."""
        return self._now.texts.tables

    @property
    def steps(self) -> int:
        """Optimiser steps of the run."""
        return self._paid or steps_of(self.settings.train, self.sampler.pairs)

    @cached_property
    def _paid(self) -> int | None:
        """Number of steps within a budget of operations."""
        budget = self.settings.train.budget_flops
        return None if budget is None else steps_within(budget, self.flops_of)

    def flops_of(self, step: int) -> float:
        """Operations of one step by parameters and tokens, the unit of budgets (Ziarko et al. 2024).

        The sum over trained towers of ``2 (N_F + N_B + N_U) t``: ``N`` parameters that a token passes
        forwards, backwards and in updates, ``t`` tokens of the step without padding.
        """
        return sum(
            training_flops(self._passed[side], float(tokens)) for side, tokens in self.tokens_of(step).items()
        )

    def cost(self, step: int) -> Cost:
        """Cost of a step (Ziarko et al. 2024), with that of vectors from frozen towers and a guide that it is
        the first to need.
        """
        passes = self.cost_of_passes(step)
        embedded = self.at(step).texts.first_operations(self._distinct(step), step)
        return Cost(passes.flops, passes.operations + embedded)

    def cost_of_passes(self, step: int) -> Cost:
        """Cost of a step's passes of trained towers."""
        groups = self.at(step).texts.groups(self._distinct(step))
        return Cost(self.flops_of(step), self.passes.operations(groups))

    @cached_property
    def _passed(self) -> Mapping[Side, PassedParameters]:
        """Parameters that a token of each trained tower passes, counted once because a run freezes nothing
        later.
        """
        return {side: passed_parameters(self.towers.tower(side)) for side in self.tables}

    def _planned(self, pairs: PairSet, shard: Shard | None = None) -> BatchPlan:
        """The batches of all pairs, which share their texts with validation, or those of a shard of the
        stream.
        """
        texts = self._texts if shard is None else self._cached(pairs)
        # Counting the tokens of every pair takes time and memory, and only a budget needs it.
        tokens = texts.tokens(pairs) if self.settings.batches.token_budget is not None else None
        return BatchPlan(pairs, texts, sampler_of(self.settings, pairs, tokens=tokens, shard=shard), shard)

    def _cached(self, pairs: PairSet) -> PairTexts:
        """The texts of pairs as inputs of the towers, of the guide and of the store."""
        return PairTexts.of(pairs.texts, self.towers, self.settings, guide=self.guide, store=self.store)

    def at(self, step: int) -> BatchPlan:
        """The batch plan of a step; in a stream, its shard is read if necessary."""
        if self.stream is not None and not self._now.holds(step):
            self._now = self.stream.plan(step, self._planned)
            self._keep_shard()
        return self._now

    def ending(self, step: int) -> str | None:
        """Why the data end the run at a step; None if they do not."""
        return None if self.stream is None else self.stream.ending(step, self._planned)

    def keep_in(self, folder: Path, *, resume: bool) -> None:
        """Keep embeddings of frozen towers in files, so that a resumed run reads the same ones."""
        self._folder = folder, resume
        self._texts.keep_in(
            folder if self.stream is None else folder / "validation", self.processes.rank, resume=resume
        )
        self._keep_shard()

    def _keep_shard(self) -> None:
        """Keep embeddings of the current shard's texts in a folder of their own, deleted with the shard."""
        if self._folder is not None and self._now.shard is not None:
            folder, resume = self._folder
            self._now.texts.keep_in(
                folder / shard_name(self._now.shard.number), self.processes.rank, resume=resume
            )

    def save(self) -> None:
        """Record on disk which embeddings exist; call it with every checkpoint.

        Shards before the previous checkpoint are deleted.
        """
        if self.store is not None:
            # A checkpoint must not hold weights that were trained on two stores.
            self.store.require_unchanged()
        self._texts.save()
        if self.stream is None:
            return
        self._now.texts.save()
        if self._saved_shard is not None and self._folder is not None:
            self.stream.forget(self._saved_shard, self._folder[0])
        # The run may go back to this checkpoint, so its shard stays until the next one.
        self._saved_shard = self._now.shard

    def _chunking(self) -> Chunking:
        """How `[memory]` divides a batch; it changes memory and time of a step, not its gradient."""
        memory = self.settings.memory
        tokens = memory.chunk_tokens or CHUNK_TOKENS[self.towers.query.device.type]
        return Chunking(
            tokens,
            memory.cached,
            checkpointed=memory.checkpointing,
            buckets=memory.length_buckets,
            kept_bytes=memory.keep,
            compiled=self.settings.run.compile,
        )

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Let threads share the passes within the block.

        Their copies of the towers share the weights, and sum their own gradients.
        """
        before, precision, chunking = self.passes, self.settings.run.precision, self._chunking()
        with side_passes(*self._texts.trained, precision=precision, chunking=chunking) as self.passes:
            try:
                yield
            finally:
                self.passes = before

    def relieve(self) -> str | None:
        """Make passes smaller after a shortage of a GPU's memory, and say how; None if they cannot be
        smaller.
        """
        tokens = self.passes.relieve()
        if tokens is None:
            return None
        return (
            f"the memory of the GPU did not hold a step: from here on, passes have {tokens:,} tokens and "
            "keep no graph, which changes the last digits alone; memory.cached = true with "
            f"memory.chunk_tokens = {tokens} does so from the start"
        )

    def loss(self, step: int) -> Tensor:
        """The loss of a batch of pairs: this process's part of it, against the documents of all processes."""
        now, batch = self.at(step), self._batch(step)
        # Each process embeds its own texts, and compares them with the embeddings of all.
        mine = share_of(now.pairs, batch, self.settings.train, self.processes)
        sides = now.texts.embed(mine, self.passes)
        guide = now.texts.guide(mine)
        pairs = pairs_of(batch, sides, now.pairs, self.settings.train, self.processes, guide=guide)
        return self._criterion(pairs, self.temperature(step))

    def temperature(self, step: int) -> Temperature:
        """Temperature that divides similarities."""
        choice = self.settings.train.loss.temperature
        if self._learned is not None:
            # The optimiser may have moved it out of its range.
            self._learned.clamp_()
            learned: Tensor = self._learned()
            return learned
        if choice.kind == "fixed":
            return choice.value
        return scheduled_temperature(
            step, first=choice.first, last=choice.value, steps=choice.steps or self.steps
        )

    def figures(self) -> Mapping[str, float]:
        """Further values of the log."""
        return {} if self._learned is None else {"temperature": self._validation_temperature()}

    def batch_ids(self, step: int) -> list[str]:
        """Ids of the queries of one step."""
        pairs = self.at(step).pairs
        return pairs.texts.query_ids.take(pairs.query[self.rows(step)])

    def tokens_of(self, step: int) -> dict[Side, int]:
        """Tokens that pass through trained towers in a step, without padding."""
        distinct = self._distinct(step)
        return {side: int(table.lengths[distinct[side]].sum()) for side, table in self.tables.items()}

    def _distinct(self, step: int) -> dict[Side, Int[np.ndarray, " _"]]:
        """Distinct texts of a step."""
        return {side: np.unique(rows) for side, rows in self._batch(step).sides.items()}

    def rows(self, step: int) -> Int[np.ndarray, " p"]:
        """Pairs of a step's batch, the same in all processes."""
        return self.at(step).sampler.rows(step)

    def _batch(self, step: int) -> Batch:
        """The batch of a step, drawn once and cached for consecutive callers."""
        if self._drawn is None or self._drawn[0] != step:
            pairs, seed = self.at(step).pairs, self.settings.run.seed
            batch = draw_batch(pairs, self.rows(step), self.settings.train, seed=seed, step=step)
            self._drawn = step, batch
        return self._drawn[1]

    @torch.no_grad()
    def validate(self) -> Validation:
        """Loss over batches that follow from the texts alone, and the rank of each query's answer among all
        validation documents.

        `Validation.errors` counts queries whose top document is wrong, or pairs in the wrong order
        (`error_unit`). ``P@1`` is the share of queries with rank 1, ``RR`` the mean of 1 / rank.
        """
        if self.store is not None:
            self.store.require_unchanged()
        queries, candidates = self.validation.query_rows, self.validation.candidates
        query = _Rows(queries, self._texts.sides["query"].embed(queries))
        document = _Rows(candidates, self._texts.sides["document"].embed(candidates))
        loss = self._validation_loss(query, document)
        # Documents are ranked as in the loss: the cosine is the dot product of unit vectors.
        ranks_by = self.settings.train.loss.ranks_by
        if ranks_by == "cosine":
            query, document = query.unit(), document.unit()
        distance = ranks_by == "euclidean"
        answers = [_places(candidates, self.validation.answers[row]) for row in queries.tolist()]
        ranks = ranks_of_answers(query.vectors, document.vectors, answers, distance=distance)
        errors, compared = int((ranks > 1).sum()), len(queries)
        measures = {"P@1": 1.0 - errors / len(queries), "RR": float((1.0 / ranks).mean())}
        if self.settings.train.error_unit == "pairs":
            errors = pair_errors(self.validation, query, document, distance=distance)
            compared = listed_pairs(self.validation)
        self._texts.leave_uncounted()
        return Validation(loss, errors, compared, measures)

    def _validation_loss(self, query: "_Rows", document: "_Rows") -> float:
        """Mean over pairs, in batches of the training size, so that there are as many in-batch negatives as
        in training.
        """
        section, total = self.settings.train, 0.0
        for batch, weight in self._validation_batches:
            sides = Sides(query.of(batch.query), document.of(batch.documents))
            pairs = pairs_of(batch, sides, self.validation, section, ALONE, guide=self._texts.guide(batch))
            total += float(self._criterion(pairs, self._validation_temperature())) * weight
        return total / len(self.validation)

    @cached_property
    def _validation_batches(self) -> list[tuple[Batch, int]]:
        """Batches with the number of their pairs that count: the last one is filled up with earlier pairs
        where a loss compares within the batch.
        """
        section, order = self.settings.train, pair_order(self.validation)
        batches = validation_batches(order, section.batch_size, full=isinstance(section.loss, InBatchLoss))
        return [(validation_batch(self.validation, rows, section), weight) for rows, weight in batches]

    @torch.no_grad()
    def _validation_temperature(self) -> float:
        """A temperature at which losses of different steps are comparable: the last one of a schedule, or the
        current learned one.
        """
        if self._learned is None:
            return self.settings.train.loss.temperature.value
        return float(self.temperature(0))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Embeddings of some texts, by the rows of the texts."""

    rows: Int[np.ndarray, " n"]
    vectors: Float[Tensor, "n e"]

    def unit(self) -> "_Rows":
        """The embeddings scaled to length 1."""
        return replace(self, vectors=unit_rows(self.vectors))

    def of(self, rows: Int[np.ndarray, " k"]) -> Float[Tensor, "k e"]:
        """The embeddings of some of the texts."""
        return self.vectors[torch.from_numpy(np.searchsorted(self.rows, rows)).to(self.vectors.device)]


def _places(rows: Int[np.ndarray, " n"], targets: Int[np.ndarray, " k"]) -> Int[np.ndarray, " _"]:
    """Positions of `targets` among ascending rows; targets that are not among them are left out."""
    positions = np.minimum(np.searchsorted(rows, targets), len(rows) - 1)
    present: Int[np.ndarray, " _"] = positions[rows[positions] == targets]
    return present


def criterion_of(section: TrainSection, *, tile: int | None = None) -> Criterion:
    """The loss of the settings."""
    loss = section.loss.criterion(tile)
    if isinstance(section.loss, InBatchLoss):
        loss = _compared(section.loss, loss)
    # Outermost, since a cosine of shortened embeddings needs their own lengths.
    return loss if not section.matryoshka else partial(_over_widths, loss, section.matryoshka)


def _compared(settings: InBatchLoss, loss: Criterion) -> Criterion:
    """The loss by cosine or dot product, with the model's own guide embeddings if it is its own guide."""

    def compared(pairs: Pairs, temperature: Temperature) -> Float[Tensor, ""]:
        alike = pairs if settings.similarity == "dot" else pairs.unit()
        if settings.guide is not None and settings.guide.model == "self":
            alike = replace(alike, guide=_own_opinion(alike, settings.guide))
        return loss(alike, temperature)

    return compared


def _own_opinion(pairs: Pairs, settings: GuideSection) -> Guide:
    """The trained model as its own guide: its embeddings without gradient."""
    shared, own = (None if rows is None else rows.detach() for rows in (pairs.shared, pairs.own))
    return Guide(
        pairs.query.detach(),
        pairs.positive.detach(),
        shared,
        own,
        margin=settings.margin,
        relative=settings.relative,
    )


def _over_widths(
    loss: Criterion, widths: tuple[int, ...], pairs: Pairs, temperature: Temperature
) -> Float[Tensor, ""]:
    """Mean of the loss over truncated embeddings of each width and over the full ones.

    ``1 / |W| sum_w L(first w numbers)``, where ``W`` has the given widths and the full one (Kusupati et al.
    2022, with equal weights).
    """
    distinct = dict.fromkeys((*widths, pairs.query.shape[1]))
    return torch.stack([loss(pairs.first_numbers(width), temperature) for width in distinct]).mean()


QUERIES_AT_A_TIME = 512
"""Queries ranked together: 512 by 100,000 documents are 200 MB of scores."""


PAIRS_AT_A_TIME = 4_096
"""Pairs compared together: three vectors each, so 38 MB of vectors of 768 numbers."""


EXACT = "donot_use_mm_for_euclid_dist"
"""Mode of `torch.cdist` that sums squared differences: through products, its choice for many rows, rounding
swamps small distances."""


def ranks_of_answers(
    query: Float[Tensor, "q e"],
    documents: Float[Tensor, "d e"],
    answers: Sequence[Int[np.ndarray, " _"]],
    *,
    distance: bool,
) -> Int[np.ndarray, " q"]:
    """Rank ``1 + #{documents that are not answers and score at least as high as the best answer}``.

    Args:
        query: Embeddings of the queries, scaled for the comparison.
        documents: Embeddings of all candidates.
        answers: Positions of each query's answers among the candidates, at least one.
        distance: Whether the score is the negative Euclidean distance, in place of the dot product.
    """
    ranks = []
    for start in range(0, len(query), QUERIES_AT_A_TIME):
        rows = query[start : start + QUERIES_AT_A_TIME]
        scores = -torch.cdist(rows, documents, compute_mode=EXACT) if distance else rows @ documents.T
        # True where a document is a known answer, which is not ranked against the best one.
        answered = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
        for row, listed in enumerate(answers[start : start + QUERIES_AT_A_TIME]):
            answered[row, torch.from_numpy(listed)] = True
        best = scores.masked_fill(~answered, -torch.inf).amax(dim=1, keepdim=True)
        # Written so that NaN counts as a tie.
        ranks.append(1 + (~(scores < best) & ~answered).sum(dim=1))
    return torch.cat(ranks).cpu().numpy()


def listed_pairs(pairs: PairSet) -> int:
    """Number of (positive, listed negative) pairs."""
    return int(pairs.negatives.lengths[pairs.query].sum())


def pair_errors(pairs: PairSet, query: _Rows, document: _Rows, *, distance: bool) -> int:
    """Number of (positive, listed negative) pairs in the wrong order; a tie is an error.

    A pair is in order if its query scores the positive above the negative, by the dot product or by
    `distance`.
    """
    negatives = pairs.negatives.take(pairs.query)
    # The pair that each listed negative belongs to, in the order of `negatives.values`.
    pair, errors = np.repeat(np.arange(len(pairs)), negatives.lengths), 0
    for start in range(0, len(pair), PAIRS_AT_A_TIME):
        block = pair[start : start + PAIRS_AT_A_TIME]
        queries, near = query.of(pairs.query[block]), document.of(pairs.positive[block])
        far = document.of(negatives.values[start : start + PAIRS_AT_A_TIME])
        if distance:
            errors += int(triplet_errors(queries, near, far, distance="euclidean"))
        else:
            # Written so that NaN counts as an error.
            errors += int((~((queries * near).sum(dim=1) > (queries * far).sum(dim=1))).sum())
    return errors
