"""Alternatives in training and tuning: losses, methods, schedules and so on, each a table named by its
`kind`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from adiabat.config.faults import Need
from adiabat.config.section import Amount, Choice, Fraction, ScheduleName, Section, Text

if TYPE_CHECKING:
    from torch import Tensor

    from adiabat.losses.embedded_pairs import Pairs
    from adiabat.losses.in_batch import Criterion
    from adiabat.losses.log_denominator import Temperature as LossTemperature

HIGHEST = 1e6
"""Upper bound of settings; larger values overflow float32."""

# --- Temperatures of the softmax losses of training ---


class FixedTemperature(Choice):
    """The same temperature in every step."""

    bare = "value"
    kind: Literal["fixed"] = "fixed"
    value: PositiveFloat = 0.05
    """Divisor of similarities."""


class ScheduledTemperature(Choice):
    """A temperature that changes linearly from its first to its last value (Reimers 2021)."""

    kind: Literal["scheduled"] = "scheduled"
    first: PositiveFloat = 1.0
    """Temperature of the first step."""
    last: PositiveFloat = 0.05
    """Temperature at the end."""
    steps: PositiveInt | None = None
    """Number of steps until the last value; None takes the whole run. Reimers 2021 uses 10,000."""


class TrainedTemperature(Choice):
    """A temperature that is trained with the weights."""

    kind: Literal["learned"] = "learned"
    first: Annotated[float, Field(ge=0.01)] = 0.05
    """Temperature of the first step."""


Temperature = Annotated[
    FixedTemperature | ScheduledTemperature | TrainedTemperature, Field(discriminator="kind")
]

# --- Losses of training: both towers, pairs in a batch ---


class GuideSection(Section):
    """``[train.loss.guide]``: a model whose scores exclude likely positives from the negatives."""

    bare = "model"
    model: Text
    """A model, or `self` for the trained model."""
    margin: Annotated[float, Field(ge=0)] = 0.0
    """Exclude negatives that score above the positive's score minus this margin."""
    relative: bool = False
    """Interpret the margin as a share of the positive's score."""

    def needs(self) -> Iterator[Need]:
        """Only a margin can be relative."""
        yield Need("relative", "margin")


class InBatchLoss(Choice):
    """Settings of losses that compare each query with all documents of the batch."""

    similarity: Literal["cosine", "dot"] = "cosine"
    """Similarity of embeddings."""
    temperature: Temperature = FixedTemperature()
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

    def needs(self) -> Iterator[Need]:
        """Only listed negatives can be shared."""
        yield Need("negatives_shared", "negatives_per_query")


class InBatchSoftmax(InBatchLoss):
    """Cross-entropy of the positive among all documents of the batch."""

    kind: Literal["in_batch_softmax"] = "in_batch_softmax"

    def criterion(self, tile: int | None) -> "Criterion":
        """The loss of a batch."""
        from adiabat.losses.in_batch import in_batch_softmax

        return lambda pairs, t: in_batch_softmax(
            pairs, temperature=t, margin=self.margin, symmetric=self.symmetric, tile=tile
        )


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

        side, margin, symmetric = self.same_tower, self.margin, self.symmetric
        return lambda pairs, t: samtone(
            pairs, temperature=t, side=side, margin=margin, symmetric=symmetric, tile=tile
        )


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

        weight, printed, margin, symmetric = self.weight, self.printed, self.margin, self.symmetric
        return lambda pairs, t: pair(
            pairs,
            temperature=t,
            weight=weight,
            printed=printed,
            margin=margin,
            symmetric=symmetric,
            tile=tile,
        )


class PairwiseLoss(Choice):
    """Settings of losses that compare each query only with its own documents."""

    temperature: ClassVar[FixedTemperature] = FixedTemperature()
    guide: ClassVar[GuideSection | None] = None
    mask_duplicates: ClassVar[bool] = False
    negatives_shared: ClassVar[bool] = False


class Triplet(PairwiseLoss):
    """Triplet loss: the positive should be closer than each listed negative by a margin."""

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


TrainLoss = Annotated[InBatchSoftmax | SamToNe | Pair | Triplet | RegressionLoss, Field(discriminator="kind")]

# --- Losses of tuning: a query tower, documents of a store ---

TunedTemperature = Annotated[float, Field(ge=1e-6, le=HIGHEST)]


class TripletTuning(Choice):
    """Triplet loss: the positive should be closer than each negative by a margin."""

    kind: Literal["triplet"] = "triplet"
    margin: Annotated[float, Field(ge=0, le=HIGHEST)] = 0.1
    """Margin by which the negative's distance should exceed the positive's, in units of `distance`."""
    distance: Literal["cosine", "euclidean", "dot"] | None = None
    """Distance of vectors in loss and validation; None takes the model's own similarity
    (`encoder.similarity`)."""


class SoftmaxTuning(Choice):
    """Cross-entropy of the positive among the documents of the batch, or of the whole store except known
    answers (store_softmax).
    """

    kind: Literal["in_batch_softmax", "store_softmax"]
    temperature: TunedTemperature = 0.05
    """Divisor of similarities."""
    distance: Literal["cosine", "dot"] | None = None
    """Similarity of vectors in loss and validation; None takes the model's own similarity
    (`encoder.similarity`)."""


TuneLoss = Annotated[TripletTuning | SoftmaxTuning, Field(discriminator="kind")]

# --- Negatives of tuning ---


class ListedNegatives(Choice):
    """Negatives listed in the examples; under the triplet loss, queries without any take the store's
    hardest.
    """

    kind: Literal["examples"] = "examples"
    per_query: PositiveInt = 1
    """Number of negatives per query in a step."""
    difficulty: PositiveInt = 1
    """Position of the first negative to use in each list; in arxiv-negatives, 1 is the nearest paper and 21 a
    random one."""


class StoreNegatives(Choice):
    """Documents of the store: drawn at random, or the nearest ones by the current query tower (hardest)."""

    kind: Literal["random", "hardest"]
    per_query: PositiveInt = 1
    """Number of negatives per query in a step."""
    difficulty: ClassVar[int] = 1


Negatives = Annotated[ListedNegatives | StoreNegatives, Field(discriminator="kind")]

# --- What is trained ---


class FullTraining(Choice):
    """Train every weight that is not frozen."""

    kind: Literal["full"] = "full"


class BiasTraining(Choice):
    """Train only the biases."""

    kind: Literal["bias"] = "bias"


class LoRA(Choice):
    """Train low-rank adapters of the dense layers, which are merged into them when the model is saved."""

    kind: Literal["lora"] = "lora"
    rank: PositiveInt = 64
    """Rank of the adapters."""
    alpha: PositiveFloat | None = None
    """Scale of an adapter, times its rank; None takes the rank."""


Method = Annotated[FullTraining | BiasTraining | LoRA, Field(discriminator="kind")]

# --- Learning-rate schedules ---


class ConstantSchedule(Choice):
    """Keep the peak rate until the end."""

    kind: Literal["constant"] = "constant"


class FallingSchedule(Choice):
    """Fall from the peak rate to a share of it at the end of the run."""

    kind: Literal["linear", "quadratic", "cosine"]
    final_fraction: Fraction = 0.0
    """Final learning rate, as a share of the peak."""


class ExponentialSchedule(Choice):
    """Multiply the learning rate by a factor after each epoch."""

    kind: Literal["exponential"] = "exponential"
    gamma: Annotated[float, Field(gt=0, le=1)] = 0.98
    """Factor per epoch."""


Schedule = Annotated[ConstantSchedule | FallingSchedule | ExponentialSchedule, Field(discriminator="kind")]

ENDING: tuple[ScheduleName, ...] = ("linear", "quadratic", "cosine")
"""Schedules that reach a final fraction at the last step, which must be known."""

# --- Learning rate by batch size ---


class UnscaledRate(Choice):
    """Use the learning rate as set, whatever the batch size."""

    kind: Literal["none"] = "none"


class ScaledRate(Choice):
    """Multiply the learning rate by the ratio of batch sizes (linear), or its square root (sqrt)."""

    kind: Literal["linear", "sqrt"]
    reference_batch_size: PositiveInt = 14
    """Batch size for which the learning rate is set."""


RateScaling = Annotated[UnscaledRate | ScaledRate, Field(discriminator="kind")]
