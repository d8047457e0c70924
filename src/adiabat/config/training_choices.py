"""What training and tuning choose among: losses, methods, schedules and so on, each a table that its `kind` names."""

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
"""Bound of settings that make float32 overflow beyond it."""

# --- Temperatures of the softmax losses of training ---


class FixedTemperature(Choice):
    """The same temperature in every step."""

    bare = "value"
    kind: Literal["fixed"] = "fixed"
    value: PositiveFloat = 0.05
    """Similarities are divided by it."""


class ScheduledTemperature(Choice):
    """A temperature that moves along a line from its first to its last value (Reimers 2021)."""

    kind: Literal["scheduled"] = "scheduled"
    first: PositiveFloat = 1.0
    """Temperature of the first step."""
    last: PositiveFloat = 0.05
    """Temperature at the end."""
    steps: PositiveInt | None = None
    """Steps until the last value; None takes the whole run. Reimers 2021 takes 10,000."""


class TrainedTemperature(Choice):
    """A temperature that is trained with the weights."""

    kind: Literal["learned"] = "learned"
    first: Annotated[float, Field(ge=0.01)] = 0.05
    """Temperature of the first step."""


Temperature = Annotated[FixedTemperature | ScheduledTemperature | TrainedTemperature, Field(discriminator="kind")]

# --- Losses of training: both towers, pairs in a batch ---


class GuideSection(Section):
    """``[train.loss.guide]``: a model whose scores take likely positives out of the negatives."""

    bare = "model"
    model: Text
    """A MODEL, or `self` for the model that is trained."""
    margin: Annotated[float, Field(ge=0)] = 0.0
    """Negatives that score less than this below the positive are taken out too."""
    relative: bool = False
    """Whether the margin is a share of the positive's score."""

    def needs(self) -> Iterator[Need]:
        """Only a margin can be relative."""
        yield Need("relative", "margin")


class InBatchLoss(Choice):
    """What the losses share that compare each query with all documents of the batch."""

    similarity: Literal["cosine", "dot"] = "cosine"
    """How embeddings are compared."""
    temperature: Temperature = FixedTemperature()
    """What similarities are divided by."""
    margin: Annotated[float, Field(ge=0)] = 0.0
    """Subtracted from the similarity of the positive."""
    symmetric: bool = True
    """Average the loss of each query among documents with that of each positive among queries."""
    negatives_per_query: Amount = 1
    """Listed negatives of each query in a step, drawn at random where it lists more."""
    negatives_shared: bool = True
    """Whether a listed negative is a negative of every query in the batch, or of its own query alone."""
    mask_duplicates: bool = True
    """Mask texts equal to a query's positive, and positives of an equal query, out of its negatives (Moiseev et al. 2023)."""
    guide: GuideSection | None = None
    """A model whose scores take likely positives out of the negatives."""

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

        return lambda pairs, t: in_batch_softmax(pairs, temperature=t, margin=self.margin, symmetric=self.symmetric, tile=tile)


class SamToNe(InBatchLoss):
    """In-batch softmax whose denominators also hold the texts of the same tower (Moiseev et al. 2023)."""

    kind: Literal["samtone"] = "samtone"
    same_tower: Literal["query", "document", "both"] = "query"
    """Towers whose own texts are added to the denominators."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Texts of the document tower need the direction from documents to queries."""
        if self.same_tower != "query" and not self.symmetric:
            yield "same_tower", f'must be "query" where symmetric is false, got "{self.same_tower}"; set symmetric = true'

    def criterion(self, tile: int | None) -> "Criterion":
        """The loss of a batch."""
        from adiabat.losses.in_batch import samtone

        side, margin, symmetric = self.same_tower, self.margin, self.symmetric
        return lambda pairs, t: samtone(pairs, temperature=t, side=side, margin=margin, symmetric=symmetric, tile=tile)


class Pair(InBatchLoss):
    """In-batch softmax with a second term that keeps positives away from other positives (PAIR, Ren et al. 2021)."""

    kind: Literal["pair"] = "pair"
    weight: Fraction = 0.1
    """Weight of the second term."""
    printed: bool = False
    """Take PAIR in the form that Moiseev et al. 2023 print."""

    def criterion(self, tile: int | None) -> "Criterion":
        """The loss of a batch."""
        from adiabat.losses.in_batch import pair

        weight, printed, margin, symmetric = self.weight, self.printed, self.margin, self.symmetric
        return lambda pairs, t: pair(pairs, temperature=t, weight=weight, printed=printed, margin=margin, symmetric=symmetric, tile=tile)


class PairwiseLoss(Choice):
    """What the losses share that compare each query with its own documents alone."""

    temperature: ClassVar[FixedTemperature] = FixedTemperature()
    guide: ClassVar[GuideSection | None] = None
    mask_duplicates: ClassVar[bool] = False
    negatives_shared: ClassVar[bool] = False


class Triplet(PairwiseLoss):
    """The positive should be nearer than each listed negative, by a margin."""

    kind: Literal["triplet"] = "triplet"
    margin: Annotated[float, Field(ge=0)] = 0.1
    """Difference of distances that costs nothing."""
    distance: Literal["cosine", "euclidean", "dot"] = "cosine"
    """How embeddings are compared."""
    negatives_per_query: PositiveInt = 1
    """Listed negatives of each query in a step, drawn at random where it lists more."""

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
            return triplet_margin(pairs.query[rows], pairs.positive[rows], pairs.own[rows], margin=self.margin, distance=self.distance)

        return loss


class RegressionLoss(PairwiseLoss):
    """Mean squared difference (mse), or 1 - cosine, of a query and its document's vector, which must be frozen or stored (Reimers 2021)."""

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
    """The positive should be nearer than each negative, by a margin."""

    kind: Literal["triplet"] = "triplet"
    margin: Annotated[float, Field(ge=0, le=HIGHEST)] = 0.1
    """Difference of distances that costs nothing, in units of `distance`."""
    distance: Literal["cosine", "euclidean", "dot"] | None = None
    """How loss and validation compare vectors; None takes the model's own similarity (`encoder.similarity`)."""


class SoftmaxTuning(Choice):
    """Cross-entropy of the positive among the documents of the batch, or of the store without known answers (store_softmax)."""

    kind: Literal["in_batch_softmax", "store_softmax"]
    temperature: TunedTemperature = 0.05
    """Similarities are divided by it."""
    distance: Literal["cosine", "dot"] | None = None
    """How loss and validation compare vectors; None takes the model's own similarity (`encoder.similarity`)."""


TuneLoss = Annotated[TripletTuning | SoftmaxTuning, Field(discriminator="kind")]

# --- Negatives of tuning ---


class ListedNegatives(Choice):
    """Negatives that the examples list; under the triplet loss, queries that list none take the store's hardest."""

    kind: Literal["examples"] = "examples"
    per_query: PositiveInt = 1
    """Negatives of each query in a step."""
    difficulty: PositiveInt = 1
    """Number of the first negative in each list; of arxiv-negatives, 1 is the nearest paper and 21 a random one."""


class StoreNegatives(Choice):
    """Documents of the store: drawn at random, or (hardest) the nearest by the query tower of the step."""

    kind: Literal["random", "hardest"]
    per_query: PositiveInt = 1
    """Negatives of each query in a step."""
    difficulty: ClassVar[int] = 1


Negatives = Annotated[ListedNegatives | StoreNegatives, Field(discriminator="kind")]

# --- What is trained ---


class FullTraining(Choice):
    """Every weight that is not frozen."""

    kind: Literal["full"] = "full"


class BiasTraining(Choice):
    """The biases alone."""

    kind: Literal["bias"] = "bias"


class LoRA(Choice):
    """Low-rank adapters of the dense layers, merged into them when the model is saved."""

    kind: Literal["lora"] = "lora"
    rank: PositiveInt = 64
    """Rank of each adapter."""
    alpha: PositiveFloat | None = None
    """Factor of an adapter times its rank; None takes the rank."""


Method = Annotated[FullTraining | BiasTraining | LoRA, Field(discriminator="kind")]

# --- Learning-rate schedules ---


class ConstantSchedule(Choice):
    """The peak rate until the end."""

    kind: Literal["constant"] = "constant"


class FallingSchedule(Choice):
    """From the peak rate down to a share of it at the end of the run."""

    kind: Literal["linear", "quadratic", "cosine"]
    final_fraction: Fraction = 0.0
    """Rate at the end, as a share of the peak."""


class ExponentialSchedule(Choice):
    """The rate is multiplied by a factor after each epoch."""

    kind: Literal["exponential"] = "exponential"
    gamma: Annotated[float, Field(gt=0, le=1)] = 0.98
    """Factor per epoch."""


Schedule = Annotated[ConstantSchedule | FallingSchedule | ExponentialSchedule, Field(discriminator="kind")]

ENDING: tuple[ScheduleName, ...] = ("linear", "quadratic", "cosine")
"""Schedules that reach a final fraction at the last step, which must be known."""

# --- Learning rate by batch size ---


class UnscaledRate(Choice):
    """The learning rate as it is given."""

    kind: Literal["none"] = "none"


class ScaledRate(Choice):
    """The learning rate times the ratio of batch sizes (linear), or its square root (sqrt)."""

    kind: Literal["linear", "sqrt"]
    reference_batch_size: PositiveInt = 14
    """Batch size that the given learning rate belongs to."""


RateScaling = Annotated[UnscaledRate | ScaledRate, Field(discriminator="kind")]
