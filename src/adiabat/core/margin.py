"""The margin of non-inferiority: the largest loss that does not matter."""

from dataclasses import dataclass

FEWEST_UNITS = 10
"""With fewer units, no loss is excluded."""


@dataclass(frozen=True, slots=True)
class Margin:
    """The largest loss that does not matter.

    Attributes:
        share: Share of the baseline's value, in (0, 1).
        absolute: A difference of the measure that decides, which replaces the share there; None for none.
    """

    share: float = 0.01
    absolute: float | None = None

    @property
    def moving(self) -> float:
        """The share of the baseline that moves with it from resample to resample; 0 for a difference."""
        return self.share if self.absolute is None else 0.0

    @property
    def of_others(self) -> "Margin":
        """The margin of measures that do not decide."""
        return Margin(self.share)

    def in_unit(self, before: float) -> float | None:
        """The margin as a difference of the measure; None for a share of a baseline that is not above 0."""
        if self.absolute is not None:
            return self.absolute
        return self.share * before if before > 0 else None

    def __str__(self) -> str:
        return f"{100 * self.share:g} %" if self.absolute is None else f"{self.absolute:g}"


DEFAULT_MARGIN = Margin()
"""One percent of the baseline."""
