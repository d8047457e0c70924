"""Alternatives in training and tuning: losses, methods, schedules and so on, each a table named by its
`kind`.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, PositiveFloat, PositiveInt

from adiabat.config.faults import Need
from adiabat.config.section import (
    Amount,
    Choice,
    Fraction,
    ScalingRule,
    ScheduleName,
    Section,
    Text,
    by_kind,
    sections_in,
)

if TYPE_CHECKING:
    from torch import Tensor

    from adiabat.losses.embedded_pairs import Pairs
    from adiabat.losses.in_batch import Criterion, Distance
    from adiabat.losses.log_denominator import Temperature as LossTemperature

HIGHEST = 1e6
"""Upper bound of settings; larger values overflow float32."""

# --- Temperatures of the softmax losses of training ---


class Temperature(Choice):
    """The same in every step (fixed), falling linearly from its first value (scheduled, Reimers 2021), or
    trained with the weights (learned).
    """

    bare = "value"
    kind: Literal["fixed", "scheduled", "learned"] = "fixed"
    value: PositiveFloat = 0.05
    """Divisor of similarities: in every step (fixed), at the end (scheduled), or at the start (learned)."""
    first: PositiveFloat = 1.0
    """Temperature of the first step of a schedule."""
    steps: PositiveInt | None = None
    """Number of steps until the last value; None takes the whole run. Reimers 2021 uses 10,000."""

    needs = (
        Need("first", "kind", ("scheduled",)),
        Need("steps", "kind", ("scheduled",)),
    )
    """Only a schedule has a first value."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """A temperature that is trained starts in its range."""
        if self.kind == "learned" and self.value < LOWEST_LEARNED:
            yield "value", f'must be >= {LOWEST_LEARNED} with kind = "learned", got {self.value:g}; raise it'


LOWEST_LEARNED = 0.01
"""`COLDEST` of `losses/log_denominator.py`, below which a learned temperature does not go."""

# --- Settings that losses of training and of tuning share ---


class TaughtLoss(Choice):
    """Settings of a loss that learns from a teacher's scores."""

    objective: Literal["kl", "margin_mse"] = "kl"
    """Divergence of the teacher's softmax over the documents of a query from the model's (kl), or squared
    error of the margins between the positive and each negative (margin_mse)."""
    teacher_temperature: Annotated[float, Field(ge=1e-6, le=HIGHEST)] = 1.0
    """Divisor of the teacher's scores."""

    def _function(self) -> "Callable[..., Tensor]":
        """The function of the objective, at the teacher's temperature."""
        from adiabat.losses.in_batch import listwise_divergence, margin_mse

        loss = listwise_divergence if self.objective == "kl" else margin_mse
        return partial(loss, teacher_temperature=self.teacher_temperature)


class WeightedLoss(Choice):
    """Settings of a loss whose negatives may weigh more the nearer they are."""

    hardness: Annotated[float, Field(ge=0, le=HIGHEST)] = 0.0
    """Growth of the weights of negatives with their similarity: each counts ``exp(hardness * similarity)``
    times (Lan et al. 2025, who take 9); 0 weighs all alike."""


# --- Losses of training: both towers, pairs in a batch ---


class JudgingSection(Section):
    """A model whose scores exclude likely positives from the negatives: those at the positive's score or
    above.
    """

    bare = "model"
    model: Text
    """A model; a guide takes ``self``, too, for the trained model."""
    margin: Annotated[float, Field(ge=0)] = 0.0
    """Exclude negatives that score above the positive's score minus this margin."""
    relative: bool = False
    """Interpret the margin as a share of the positive's score."""

    needs = (Need("relative", "margin"),)
    """Only a margin can be relative."""


class GuideSection(JudgingSection):
    """``[train.loss.guide]``: a model whose scores exclude likely positives from the negatives."""


class InBatchLoss(WeightedLoss):
    """Settings of losses that compare each query with all documents of the batch."""

    fills_lists: ClassVar[bool] = False
    needs_scores: ClassVar[bool] = False
    similarity: Literal["cosine", "dot"] = "cosine"
    """Similarity of embeddings."""
    temperature: Temperature = Temperature()
    """Divisor of similarities."""
    margin: Annotated[float, Field(ge=0)] = 0.0
    """Margin subtracted from the similarity of the positive."""
    symmetric: bool = True
    """Average the loss in both directions: of each query over documents, and of each positive over
    queries."""
    negatives_per_query: Amount = 1
    """Number of listed negatives per query in a step, drawn at random if the query lists more."""
    negatives_shared: bool = True
    """Use a listed negative for every query in the batch, or only for its own query."""
    mask_duplicates: bool = True
    """Mask texts equal to a query's positive, and positives of an equal query, out of its negatives (Moiseev
    et al. 2023)."""
    guide: GuideSection | None = None
    """A model whose scores exclude likely positives from the negatives."""

    @property
    def ranks_by(self) -> Literal["cosine", "dot", "euclidean"]:
        """How validation ranks documents."""
        return self.similarity

    def _at_temperature(self, loss: "Callable[..., Tensor]", **settings: Any) -> "Criterion":
        """A loss with these settings, margin and directions; its temperature may change from step to step."""
        given = partial(
            loss, margin=self.margin, symmetric=self.symmetric, hardness=self.hardness, **settings
        )
        return lambda pairs, temperature: given(pairs, temperature=temperature)

    needs = (Need("negatives_shared", "negatives_per_query"),)
    """Only listed negatives can be shared."""


class InBatchSoftmax(InBatchLoss):
    """Cross-entropy of the positive among all documents of the batch."""

    kind: Literal["in_batch_softmax"] = "in_batch_softmax"

    def criterion(self, tile: int | None) -> "Criterion":
        """The loss of a batch."""
        from adiabat.losses.in_batch import in_batch_softmax

        return self._at_temperature(in_batch_softmax, tile=tile)


class SamToNe(InBatchLoss):
    """In-batch softmax whose denominators also hold the texts of the same tower (Moiseev et al. 2023)."""

    kind: Literal["samtone"] = "samtone"
    same_tower: Literal["query", "document", "both"] = "query"
    """Towers whose texts are added to the denominators."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Texts of the document tower are used only with the symmetric loss."""
        if self.same_tower != "query" and not self.symmetric:
            yield (
                "same_tower",
                f'must be "query" where symmetric is false, got "{self.same_tower}"; set symmetric = true',
            )

    def criterion(self, tile: int | None) -> "Criterion":
        """The loss of a batch."""
        from adiabat.losses.in_batch import samtone

        return self._at_temperature(samtone, side=self.same_tower, tile=tile)


class Pair(InBatchLoss):
    """In-batch softmax with a second term that keeps positives away from other positives (PAIR, Ren et al.
    2021).
    """

    kind: Literal["pair"] = "pair"
    weight: Fraction = 0.1
    """Weight of the second term."""
    printed: bool = False
    """Use PAIR in the form printed by Moiseev et al. 2023."""

    def criterion(self, tile: int | None) -> "Criterion":
        """The loss of a batch."""
        from adiabat.losses.in_batch import pair

        return self._at_temperature(pair, weight=self.weight, printed=self.printed, tile=tile)


class PairwiseLoss(Choice):
    """Settings of losses that compare each query only with its own documents.

    Attributes:
        fills_lists: Whether every query needs equally many negatives, so that short lists are repeated.
        needs_scores: Whether it learns from a teacher's scores of the documents.
    """

    fills_lists: ClassVar[bool] = False
    needs_scores: ClassVar[bool] = False

    temperature: ClassVar[Temperature] = Temperature()
    guide: ClassVar[GuideSection | None] = None
    mask_duplicates: ClassVar[bool] = False
    negatives_shared: ClassVar[bool] = False


class Triplet(PairwiseLoss):
    """Triplet loss: the positive should be closer than each listed negative by a margin."""

    fills_lists = True
    kind: Literal["triplet"] = "triplet"
    margin: Annotated[float, Field(ge=0)] = 0.1
    """Margin by which the negative's distance should exceed the positive's."""
    distance: Literal["cosine", "euclidean", "dot"] = "cosine"
    """Distance of embeddings."""
    negatives_per_query: PositiveInt = 1
    """Number of listed negatives per query in a step, drawn at random if the query lists more."""

    @property
    def ranks_by(self) -> Literal["cosine", "dot", "euclidean"]:
        """How validation ranks documents."""
        return self.distance

    def criterion(self, tile: int | None) -> "Criterion":
        """The loss of a batch."""
        from adiabat.losses.in_batch import triplet_margin

        del tile

        def loss(pairs: "Pairs", temperature: "LossTemperature") -> "Tensor":
            del temperature
            assert pairs.own is not None
            rows = pairs.rows
            return triplet_margin(
                pairs.query[rows],
                pairs.positive[rows],
                pairs.own[rows],
                margin=self.margin,
                distance=self.distance,
            )

        return loss


class RegressionLoss(PairwiseLoss):
    """Mean squared error (mse), or 1 - cosine, between a query and its document's vector, which must be
    frozen or stored (Reimers 2021).
    """

    kind: Literal["mse", "cosine_distance"]
    negatives_per_query: ClassVar[int] = 0
    ranks_by: ClassVar[Literal["cosine"]] = "cosine"

    def criterion(self, tile: int | None) -> "Criterion":
        """The loss of a batch."""
        from adiabat.losses.in_batch import cosine_distance, mean_squared_error

        del tile
        loss = mean_squared_error if self.kind == "mse" else cosine_distance
        return lambda pairs, t: loss(pairs.query[pairs.rows], pairs.positive[pairs.rows])


class Listwise(TaughtLoss):
    """Learn from a teacher's scores of each query's own documents, in column ``scores`` of the data."""

    fills_lists: ClassVar[bool] = True
    needs_scores: ClassVar[bool] = True
    guide: ClassVar[GuideSection | None] = None
    mask_duplicates: ClassVar[bool] = False
    negatives_shared: ClassVar[bool] = False
    kind: Literal["listwise"] = "listwise"
    similarity: Literal["cosine", "dot"] = "cosine"
    """Similarity of embeddings."""
    temperature: Temperature = Temperature()
    """Divisor of similarities."""
    negatives_per_query: PositiveInt = 7
    """Number of listed negatives per query in a step, drawn at random if the query lists more."""

    @property
    def ranks_by(self) -> Literal["cosine", "dot", "euclidean"]:
        """How validation ranks documents."""
        return self.similarity

    def criterion(self, tile: int | None) -> "Criterion":
        """The loss of a batch."""
        del tile
        loss = self._function()

        def learned(pairs: "Pairs", temperature: "LossTemperature") -> "Tensor":
            return loss(pairs if self.similarity == "dot" else pairs.unit(), temperature=temperature)

        return learned


TrainLoss = Annotated[
    InBatchSoftmax | SamToNe | Pair | Triplet | RegressionLoss | Listwise, Field(discriminator="kind")
]

# --- Losses of tuning: a query tower, documents of a store ---

NegativesFrom = Literal["query", "batch", "store", "none"]


class TuningLoss(Choice):
    """Settings that all losses of tuning share, and what a loss asks of a step.

    Attributes:
        negatives_from: Where a query has its negatives from: from its own list, which is filled up (query),
        from all documents of the
            batch, so that a short list will do (batch), from the whole store, or nowhere. Only the first two
            draw negatives.
        full_batches: Whether validation takes full batches of the size of training, because the loss grows
        with the batch.
        needs_scores: Whether it learns from a teacher's scores, so that each query needs listed negatives,
            which alone have some.
    """

    negatives_from: ClassVar[NegativesFrom] = "query"
    full_batches: ClassVar[bool] = False
    needs_scores: ClassVar[bool] = False
    distance: Literal["cosine", "euclidean", "dot"] | None = None
    """Distance of vectors in loss and validation; None takes the model's own similarity
    (`encoder.similarity`)."""

    @classmethod
    def draws_negatives(cls) -> bool:
        """Whether a step draws negatives for its queries."""
        return cls.negatives_from in ("query", "batch")

    @classmethod
    def distances(cls) -> tuple[object, ...]:
        """The distances that the loss takes."""
        return get_args(get_args(cls.model_fields["distance"].annotation)[0])

    def criterion(self, distance: "Distance") -> "Callable[[Pairs], Tensor]":
        """The loss of a batch whose vectors are compared by a distance; a loss over the whole store has
        none.
        """
        raise NotImplementedError

    def of_both_towers(self, distance: "Distance", per_query: int) -> dict[str, Any] | None:
        """The same loss as ``[train.loss]``, which trains both towers; None if it needs fixed documents."""
        # Only a loss that trains both towers says how.
        del distance, per_query
        return None


class TripletTuning(TuningLoss):
    """Triplet loss: the positive should be closer than each negative by a margin."""

    kind: Literal["triplet"] = "triplet"
    margin: Annotated[float, Field(ge=0, le=HIGHEST)] = 0.1
    """Margin by which the negative's distance should exceed the positive's, in units of `distance`."""

    def criterion(self, distance: "Distance") -> "Callable[[Pairs], Tensor]":
        """The loss of a batch."""
        from adiabat.losses.in_batch import triplet_margin

        def loss(pairs: "Pairs") -> "Tensor":
            assert pairs.own is not None, "each query has negatives of its own"
            return triplet_margin(
                pairs.query, pairs.positive, pairs.own, margin=self.margin, distance=distance
            )

        return loss

    def of_both_towers(self, distance: "Distance", per_query: int) -> dict[str, Any] | None:
        """The triplet loss of training."""
        return {
            "kind": self.kind,
            "margin": self.margin,
            "distance": distance,
            "negatives_per_query": per_query,
        }


class SoftmaxTuning(TuningLoss):
    """Settings of losses that compare the positive with many documents at once."""

    temperature: Annotated[float, Field(ge=1e-6, le=HIGHEST)] = 0.05
    """Divisor of similarities."""
    distance: Literal["cosine", "dot"] | None = None
    """Similarity of vectors in loss and validation; None takes the model's own similarity
    (`encoder.similarity`)."""


class InBatchTuning(SoftmaxTuning, WeightedLoss):
    """Cross-entropy of the positive among the documents of the batch."""

    negatives_from = "batch"
    full_batches = True
    kind: Literal["in_batch_softmax"] = "in_batch_softmax"

    def criterion(self, distance: "Distance") -> "Callable[[Pairs], Tensor]":
        """The loss of a batch."""
        from adiabat.losses.in_batch import in_batch_softmax

        def loss(pairs: "Pairs") -> "Tensor":
            alike = pairs.unit() if distance == "cosine" else pairs
            return in_batch_softmax(alike, temperature=self.temperature, hardness=self.hardness)

        return loss


class StoreTuning(SoftmaxTuning, WeightedLoss):
    """Cross-entropy of the positive among all documents of the store except known answers."""

    negatives_from = "store"
    kind: Literal["store_softmax"] = "store_softmax"


class ListwiseTuning(SoftmaxTuning, TaughtLoss):
    """Learn from a teacher's scores of each query's own documents, in column ``scores`` of the data."""

    needs_scores = True
    kind: Literal["listwise"] = "listwise"

    def criterion(self, distance: "Distance") -> "Callable[[Pairs], Tensor]":
        """The loss of a batch."""
        loss = partial(self._function(), temperature=self.temperature)
        return lambda pairs: loss(pairs.unit() if distance == "cosine" else pairs)


TuneLoss = Annotated[
    TripletTuning | InBatchTuning | StoreTuning | ListwiseTuning, Field(discriminator="kind")
]

_TUNING_LOSSES = by_kind(sections_in(TuneLoss))
DRAWING_NEGATIVES = tuple(
    kind for kind, loss in _TUNING_LOSSES.items() if issubclass(loss, TuningLoss) and loss.draws_negatives()
)
"""Kinds of losses that draw negatives."""

OF_BOTH_TOWERS = tuple(
    kind
    for kind, loss in _TUNING_LOSSES.items()
    if issubclass(loss, TuningLoss) and loss.model_validate({}).of_both_towers("cosine", 1) is not None
)
"""Kinds of losses that can train both towers."""


class Negatives(Choice):
    """Negatives listed in the examples, drawn from the store at random, or the nearest documents by the
    current query tower (hardest).

    Under a loss whose queries have negatives of their own, a query that lists none takes the store's hardest.
    """

    kind: Literal["examples", "random", "hardest"] = "examples"
    per_query: PositiveInt = 1
    """Number of negatives per query in a step."""
    difficulty: PositiveInt = 1
    """Position of the first negative to use in each list; in arxiv-negatives, 1 is the nearest paper and 21 a
    random one."""

    needs = (Need("difficulty", "kind", ("examples",)),)
    """Only lists have positions."""


class Method(Choice):
    """What is trained: every weight that is not frozen (full), only the biases, or low-rank adapters of the
    dense layers (lora).
    """

    kind: Literal["full", "bias", "lora"] = "full"
    rank: PositiveInt = 64
    """Rank of the adapters, which are merged into the layers when the model is saved."""
    alpha: PositiveFloat | None = None
    """Scale of an adapter, times its rank; None takes the rank."""

    needs = (
        Need("rank", "kind", ("lora",)),
        Need("alpha", "kind", ("lora",)),
    )
    """Only adapters have a rank."""


ENDING: tuple[ScheduleName, ...] = ("linear", "quadratic", "cosine")
"""Schedules that reach a final fraction at the last step, which must be known."""


class Schedule(Choice):
    """Keep the peak rate (constant), fall to a share of it at the end of the run, or fall after each epoch
    (exponential).
    """

    kind: ScheduleName = "constant"
    final_fraction: Fraction = 0.0
    """Final learning rate, as a share of the peak."""
    gamma: Annotated[float, Field(gt=0, le=1)] = 0.98
    """Factor of the learning rate per epoch."""

    needs = (
        Need("final_fraction", "kind", ENDING),
        Need("gamma", "kind", ("exponential",)),
    )
    """A share belongs to the end of the run, and a factor to epochs."""


class RateScaling(Choice):
    """Use the learning rate as set, or multiply it by the ratio of batch sizes (linear), or by its square
    root (sqrt).
    """

    kind: ScalingRule = "none"
    reference_batch_size: PositiveInt = 14
    """Batch size for which the learning rate is set."""

    needs = (Need("reference_batch_size", "kind", ("linear", "sqrt")),)
    """A rate that is not scaled has no reference."""
