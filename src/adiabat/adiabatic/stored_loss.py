"""The objective of adiabatic tuning: a query tower's loss against stored document vectors, which are only
read (Vasilyev et al. 2024).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from adiabat.adiabatic.judged_queries import MEASURE, JudgedQueries
from adiabat.adiabatic.negatives import Chooser, listed_negatives
from adiabat.config.training_choices import StoreTuning
from adiabat.config.tuning import TuneSection
from adiabat.core.ragged import Ragged
from adiabat.data.batch_sampler import BatchSampler, ShuffledBatches, text_order, validation_batches
from adiabat.losses.embedded_pairs import Pairs, unit_rows
from adiabat.losses.in_batch import Distance, triplet_errors
from adiabat.losses.log_denominator import weighted
from adiabat.models.bulk import TokenTable, embed_all
from adiabat.models.device import Precision
from adiabat.models.encoder import Encoder
from adiabat.runs.run_log import Validation
from adiabat.scaling_laws.flops import Cost, PassedParameters, training_flops
from adiabat.store.addressing import AddressedSet
from adiabat.store.device_store import without_answers
from adiabat.store.vector_store import Store
from adiabat.training.flop_count import passed_parameters
from adiabat.training.passes import Group, Passes

if TYPE_CHECKING:
    from adiabat.adiabatic.fixed_steps import Capture
    from adiabat.adiabatic.regularization import Guard, Rehearsal

BLOCK_ROWS = 4_096
"""Number of documents scored at a time."""

Blocks = Callable[[], Iterator[tuple[int, Float[Tensor, "b e"]]]]
"""Yields all documents in blocks, each with the row of its first."""


Exclude = Callable[[Float[Tensor, "q b"], int], Float[Tensor, "q b"]]
"""Sets the scores of each query's known answers in a block, whose first row is given, to minus infinity."""


def store_softmax(
    query: Float[Tensor, "q e"],
    positive: Float[Tensor, "q e"],
    known: Ragged | Int[Tensor, "q m"],
    blocks: Blocks,
    *,
    temperature: float,
    unit: bool = True,
    hardness: float = 0.0,
) -> Float[Tensor, ""]:
    """Cross-entropy of each query's answer among all documents of a store except its other answers.

    ``loss = -mean_i ln( exp(s_ip / T) / (exp(s_ip / T) + sum_{j not in K_i} w_ij exp(s_ij / T)) )`` with
    ``s`` the cosine or dot product, ``K_i`` the known answers of query ``i``, ``p`` one of them, and constant
    weights ``w_ij = exp(a s_ij)``.

    Args:
        query: Embeddings as the encoder gives them.
        positive: Row ``i`` is an answer of query ``i``; it receives no gradient.
        known: Rows of the store that answer each query; in a tensor, shorter lists repeat a row.
        blocks: The store in blocks, such as from `in_blocks`; documents may have any length, and zero vectors
            have a cosine of 0.
        temperature: ``T`` above, > 0, dimensionless.
        unit: Whether vectors are scaled to length 1, so that ``s`` is the cosine.
        hardness: ``a`` above, >= 0, dimensionless; 0 weighs all documents alike.

    Returns:
        The loss.

    Raises:
        ValueError: If the temperature is not above 0.

    Reference:
        The running maximum is that of Milakov and Gimelshein 2018, the running sum of documents that of Rabe
        and Staats 2021; the weights those of Lan et al. 2025, equation 5.
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be > 0, got {temperature}; 0.05 is common for cosines")
    scaled: Callable[[Tensor], Tensor] = unit_rows if unit else lambda vectors: vectors
    exclude = (
        partial(_without_listed, known) if isinstance(known, Ragged) else partial(without_answers, known)
    )
    loss: Tensor = _StoreSoftmax.apply(
        scaled(query.float()), scaled(positive), exclude, blocks, temperature, scaled, hardness
    )  # type: ignore[no-untyped-call]
    return loss


def _without_listed(known: Ragged, scores: Float[Tensor, "q b"], start: int) -> Float[Tensor, "q b"]:
    rows, query_rows = known.values, np.repeat(np.arange(len(known)), known.lengths)
    inside = (rows >= start) & (rows < start + scores.shape[1])
    scores[_on(query_rows[inside], scores), _on(rows[inside] - start, scores)] = -torch.inf
    return scores


def in_blocks(store: Store, device: torch.device, *, block_rows: int = BLOCK_ROWS) -> Blocks:
    """A store for `store_softmax`: its documents in float32, read again in each pass."""

    def blocks() -> Iterator[tuple[int, Float[Tensor, "b e"]]]:
        for start, vectors in store.blocks(block_rows):
            yield start, torch.from_numpy(vectors).to(device, non_blocking=True).float()

    return blocks


class _StoreSoftmax(torch.autograd.Function):
    """Computes the gradient in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Float[Tensor, "q e"],
        positive: Float[Tensor, "q e"],
        exclude: Exclude,
        blocks: Blocks,
        temperature: float,
        scaled: Callable[[Tensor], Tensor],
        hardness: float,
    ) -> Float[Tensor, ""]:
        """Start with the answers, so that the loss is never below 0, then add up all documents."""
        target = (query * positive).sum(dim=1).double() / temperature
        highest, mass, mean = target.clone(), torch.ones_like(target), positive.double()
        for start, documents in blocks():
            units = scaled(documents)
            scores = weighted(exclude(query @ units.T / temperature, start), temperature, hardness)
            higher = torch.maximum(highest, scores.amax(dim=1).double())
            # Sums so far are rescaled to the new maximum, so that no exponential overflows.
            shrunk, weights = torch.exp(highest - higher), torch.exp(scores - higher.float()[:, None])
            mass = mass * shrunk + weights.sum(dim=1).double()
            mean = mean * shrunk[:, None] + (weights @ units).double()
            highest = higher
        ctx.save_for_backward(
            ((mean / mass[:, None] - positive) / (temperature * len(query))).to(query.dtype)
        )
        return (highest + torch.log(mass) - target).mean().to(query.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None, None, None]:
        """``(sum_j P_ij d_j - p_i) / (q T)``, where ``P`` has the weights."""
        (slope,) = ctx.saved_tensors
        return gradient * slope, None, None, None, None, None, None


def _on(indices: Int[np.ndarray, " n"], like: Tensor) -> Tensor:
    return torch.from_numpy(indices).to(like.device)


VALIDATION_TOKENS = 4_096
"""Tokens per forward pass of a validation."""
VALIDATION_PAIRS = 4_096
"""Pairs compared at a time, which bounds the document vectors in memory; the next constant bounds the listed
pairs."""
VALIDATION_QUERIES = 256


@dataclass(kw_only=True)
class StoredDocuments:
    """The objective of a run: tokenised queries, a store of documents, and validation examples.

    Attributes:
        encoder: The trained query tower.
        store: Document vectors.
        train: Training examples.
        tokens: Tokens of their queries.
        settings: Loss, distance (resolved to the model's if not set), margin, temperature, batch size.
        choose: Source of the negatives of a step.
        seed: Seed of the order.
        precision: Precision of training passes; validation always runs in float32.
        rehearsal: Rehearsal loss; None for none.
        validation: Validation examples, each with at least one negative; without any, the guarded drift
            replaces the loss.
        validation_tokens: Tokens of their queries.
        loss_negatives: Negatives of the validation loss if they differ from those of the errors; None uses
            the same.
        guard: Measures drift in each validation; None does not.
        judged: The validation queries as they are ranked in the whole store; None does not rank them.
    """

    encoder: Encoder
    store: Store
    train: AddressedSet
    tokens: TokenTable
    settings: TuneSection
    choose: Chooser
    seed: int
    precision: Precision = "fp32"
    rehearsal: "Rehearsal | None" = None
    validation: AddressedSet
    validation_tokens: TokenTable
    loss_negatives: Ragged | None = None
    guard: "Guard | None" = None
    judged: JudgedQueries | None = None

    def __post_init__(self) -> None:
        self.passes = Passes(self.encoder, precision=self.precision)
        self.sampler: BatchSampler = ShuffledBatches(
            len(self.train), self.settings.batch_size, seed=self.seed
        )

    @property
    def module(self) -> Encoder:
        """The query tower."""
        return self.encoder

    def loss(self, step: int) -> Tensor:
        """The loss of a batch of queries, each with its first positive, plus the rehearsal loss if there is
        one.
        """
        rows = self.sampler.rows(step)
        query = self.passes.embed(self.tokens, rows)
        negatives = self.choose(rows, step, query)
        loss = self._loss(query, self.train, rows, negatives)
        return loss if self.rehearsal is None else loss + self.rehearsal.loss(self.passes, step)

    def cost(self, step: int) -> Cost:
        """Cost of a step (Ziarko et al. 2024)."""
        groups = self.groups(step)
        return Cost(self.flops(groups), self.passes.operations(groups))

    def groups(self, step: int) -> list[Group]:
        """The texts of a step: queries, and rehearsed ones."""
        queries = Group(self.tokens, self.sampler.rows(step))
        return [queries] if self.rehearsal is None else [queries, self.rehearsal.group(step)]

    def flops(self, groups: Sequence[Group]) -> float:
        """Operations by parameters and tokens, without padding."""
        tokens = sum(int(group.table.lengths[group.rows].sum()) for group in groups)
        return training_flops(self._passed, float(tokens))

    @cached_property
    def _passed(self) -> PassedParameters:
        return passed_parameters(self.encoder)

    def batch_ids(self, step: int) -> list[str]:
        """Ids of the queries of one step."""
        return [self.train.query_ids[row] for row in self.sampler.rows(step)]

    def _loss(
        self,
        query: Float[Tensor, "b e"],
        examples: AddressedSet,
        rows: Int[np.ndarray, " b"],
        negatives: Ragged,
    ) -> Tensor:
        first = first_positives(examples, rows)
        positive = torch.from_numpy(self.store.gather(first)).to(query.device)
        source = self.settings.loss.negatives_from
        if source == "store":
            return self.against_all(
                query, positive, examples.known.take(rows), in_blocks(self.store, query.device)
            )
        negative = torch.from_numpy(self.store.gather(negatives.values)).to(query.device, non_blocking=True)
        if source != "batch":
            scores = None
            if self.settings.loss.needs_scores:
                scores = torch.from_numpy(teacher_scores(examples, rows, negatives)).to(query.device)
            return self.contrast(query, positive, negative, scores=scores)
        known = torch.from_numpy(
            known_positives(examples.known.take(rows), np.concatenate([first, negatives.values]))
        )
        return self.contrast(query, positive, negative, known=known.to(query.device))

    def against_all(
        self,
        query: Float[Tensor, "b e"],
        positive: Float[Tensor, "b e"],
        known: Ragged | Int[Tensor, "b m"],
        blocks: Blocks,
    ) -> Tensor:
        """The loss of queries whose negatives are the whole store, except their `known` answers."""
        loss = self.settings.loss
        assert isinstance(loss, StoreTuning), "the losses over the whole store"
        return store_softmax(
            query,
            positive,
            known,
            blocks,
            temperature=loss.temperature,
            unit=self.distance == "cosine",
            hardness=loss.hardness,
        )

    def contrast(
        self,
        query: Float[Tensor, "b e"],
        positive: Float[Tensor, "b e"],
        negative: Float[Tensor, "n e"],
        *,
        known: Bool[Tensor, "b b_and_n"] | None = None,
        scores: Float[Tensor, "b h_and_one"] | None = None,
    ) -> Tensor:
        """The loss over vectors: a query has its share of the negatives, perhaps with `scores` of a teacher,
        or all that are not its `known` answers, or none.
        """
        match self.settings.loss.negatives_from:
            case "query":
                own = negative.view(len(query), -1, negative.shape[-1])
                pairs = Pairs(query, positive, own=own, scores=scores)
            case "batch":
                pairs = Pairs(query, positive, shared=negative, known=known)
            case _:
                pairs = Pairs(query, positive)
        return self._criterion(pairs)

    @cached_property
    def _criterion(self) -> Callable[[Pairs], Tensor]:
        return self.settings.loss.criterion(self.distance)

    @cached_property
    def capture(self) -> "Capture":
        """Whether its steps are recorded, decided once."""
        from adiabat.adiabatic.fixed_steps import capture_of

        return capture_of(self)

    @property
    def distance(self) -> Distance:
        """Similarity by which queries and documents are compared."""
        assert self.settings.loss.distance is not None, "resolved where the objective is made"
        return self.settings.loss.distance

    @torch.no_grad()
    def validate(self) -> Validation:
        """Loss and errors on the validation examples, and drift.

        The loss is that of training, with each query's first positive and first negatives, or without
        negatives if training has none (`loss_negatives`); errors are counted over all pairs.
        """
        # Before the numbers, and before an epoch on other vectors would be kept.
        self.store.require_unchanged()
        training = [module for module in self.encoder.modules() if module.training]
        self.encoder.eval()
        try:
            look = self.guard.look(self.encoder) if self.guard else None
            if not len(self.validation) and self.guard is not None and look is not None:
                drift = look.measures[self.guard.section.measure]
                return Validation(
                    loss=drift,
                    errors=0,
                    pairs=self.guard.probes,
                    measures=look.measures,
                    outside=look.outside,
                )
            queries = embed_all(self.encoder, self.validation_tokens, token_budget=VALIDATION_TOKENS)
        finally:
            for module in training:
                module.training = True
        measures = {} if look is None else dict(look.measures)
        scores: list[float] = []
        if self.judged is not None:
            scores = self.judged.scores(queries.cpu().numpy(), queries.device).tolist()
            measures[MEASURE] = fmean(scores)
        return Validation(
            loss=self._validation_loss(queries),
            errors=sum(
                self._errors(queries, np.arange(start, min(start + VALIDATION_QUERIES, len(queries))))
                for start in range(0, len(queries), VALIDATION_QUERIES)
            ),
            pairs=pairs_of(self.validation),
            measures=measures,
            scores=tuple(scores),
            # Weights that will be softened at the end may exceed the limit until then.
            outside=look.outside if look and self.guard and self.guard.section.action != "soften" else None,
        )

    def _validation_loss(self, queries: Float[Tensor, "n e"]) -> float:
        """Mean loss over batches of the training size, so that there are as many in-batch negatives as in
        training.
        """
        listed = self.loss_negatives
        examples = self.validation if listed is None else replace(self.validation, negatives=listed)
        # Batches do not matter to a loss over the whole store.
        loss = self.settings.loss
        size = VALIDATION_QUERIES if loss.negatives_from == "store" else self.settings.batch_size
        total = 0.0
        for rows, weight in validation_batches(self._validation_order, size, full=loss.full_batches):
            negatives = listed_negatives(examples, rows, self.settings)
            total += (
                float(
                    self._loss(queries[torch.from_numpy(rows).to(queries.device)], examples, rows, negatives)
                )
                * weight
            )
        return total / len(queries)

    @cached_property
    def _validation_order(self) -> Int[np.ndarray, " n"]:
        """Order by the texts of queries, since neighbours in a file are often similar; equal ones by their
        first positive.
        """
        first = self.validation.positives.values[self.validation.positives.offsets[:-1]]
        by_positive = np.argsort(first, kind="stable")
        return by_positive.take(text_order(self.validation.queries[row] for row in by_positive))

    def _errors(self, queries: Float[Tensor, "n e"], chosen: Int[np.ndarray, " b"]) -> int:
        """Errors over all (positive, negative) pairs of some validation queries."""
        query, near, far = pairs(
            self.validation.positives.take(chosen), self.validation.negatives.take(chosen)
        )
        errors = 0
        for start in range(0, len(query), VALIDATION_PAIRS):
            block = slice(start, start + VALIDATION_PAIRS)
            vectors = [
                torch.from_numpy(self.store.gather(rows[block])).to(queries.device) for rows in (near, far)
            ]
            vectors_asked = queries[torch.from_numpy(chosen[query[block]]).to(queries.device)]
            errors += int(triplet_errors(vectors_asked, vectors[0], vectors[1], distance=self.distance))
        return errors


def first_positives(examples: AddressedSet, rows: Int[np.ndarray, " b"]) -> Int[np.ndarray, " b"]:
    """Row of the first positive of some queries."""
    first: Int[np.ndarray, " b"] = examples.positives.values[examples.positives.offsets[rows]]
    return first


def teacher_scores(
    examples: AddressedSet, rows: Int[np.ndarray, " b"], negatives: Ragged
) -> Float[np.ndarray, "b h_and_one"]:
    """A teacher's scores of the first positive and of the negatives of some queries."""
    first = first_positives(examples, rows).tolist()
    scores = []
    for index, row in enumerate(rows.tolist()):
        by_document = examples.scores[row]
        documents = [first[index], *negatives[index].tolist()]
        scores.append([by_document[document] for document in documents])
    return np.array(scores, dtype=np.float32)


def pairs(
    positives: Ragged, negatives: Ragged
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """Every pair of a positive and a negative of one query: number of the query, rows of both."""
    # Each positive with all negatives of its query: positives repeat, negatives cycle.
    counts = positives.lengths * negatives.lengths
    query = np.repeat(np.arange(len(positives)), counts)
    near = [np.repeat(positives[i], len(negatives[i])) for i in range(len(positives))]
    far = [np.tile(negatives[i], len(positives[i])) for i in range(len(positives))]
    return query, Ragged.of(near).values, Ragged.of(far).values


def pairs_of(examples: AddressedSet) -> int:
    """Number of (positive, negative) pairs in examples."""
    return int((examples.positives.lengths * examples.negatives.lengths).sum())


def known_positives(answers: Ragged, documents: Int[np.ndarray, " n"]) -> Bool[np.ndarray, "b n"]:
    """Documents of a batch that must not count as negatives because they are known answers of the query."""
    return np.stack([np.isin(documents, answers[index]) for index in range(len(answers))])
