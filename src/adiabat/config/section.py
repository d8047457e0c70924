"""What a section of settings is, and the kinds of value that several sections have."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from adiabat.config.faults import Need, idle_phrases

Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[tuple[Text, ...], Field(strict=False)]
"""A list in TOML, which `Section` is too strict to take for a tuple."""
Fraction = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[int, Field(ge=0)]
OptimizerName = Literal["adamw", "adamax", "adamax-no-momentum", "adadelta", "adafactor", "sgd"]
MixtureRule = Literal["proportional", "equal", "temperature", "weights"]
Exhausted = Literal["stop", "cycle", "drop"]
ScheduleName = Literal["constant", "linear", "quadratic", "exponential", "cosine"]
ScalingRule = Literal["none", "linear", "sqrt"]


class IdleError(ValueError):
    """A setting would have no effect."""


class PlacedError(ValueError):
    """A setting is wrong in a section that several others hold, so that whoever reads them knows the whole of its key."""

    def __init__(self, name: str, phrase: str) -> None:
        """Say what is wrong.

        Args:
            name: Of the setting, in its section.
            phrase: What follows the key: ``must ..., got ...``.
        """
        super().__init__(f"{name} {phrase}")
        self.name, self.phrase = name, phrase


class Section(BaseModel):
    """A table of settings; unknown keys are refused, values are taken as they are, and no setting changes after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True)
    needs: ClassVar[Mapping[str, Need]] = {}

    @model_validator(mode="after")
    def _nothing_ignored(self) -> Self:
        """Refuse a setting that another one makes meaningless."""
        if faults := list(idle_phrases(self.needs, vars(self), defaults_of(type(self)), "")):
            raise IdleError("; ".join(faults))
        return self


def defaults_of(kind: type[Section]) -> dict[str, Any]:
    """What every setting of a section is where nobody says anything.

    Args:
        kind: Which section.

    Returns:
        Name to value.
    """
    return {name: field.default for name, field in kind.model_fields.items()}
