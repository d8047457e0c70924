"""What training and tuning choose among: methods and learning-rate schedules, each a table that its `kind` names."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from adiabat.config.section import Choice, Fraction

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
