"""The margin of non-inferiority: the largest loss that does not matter."""

import re
from dataclasses import dataclass
from typing import ClassVar

_FORM = re.compile(r"\s*(?P<number>[0-9.]+(?:e-?[0-9]+)?)\s*(?P<unit>%|[A-Za-z][\w@() -]*?)?\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Margin:
    """The largest loss that does not matter, of any measure.

    Attributes:
        value: Share of the baseline's value, in (0, 1); with `unit` a difference of that measure.
        unit: Name of a measure with or without its cutoff, such as ``nDCG``; "" for a share.
    """

    FORM: ClassVar[str] = 'a share such as 0.01 or "1 %", or a difference with its measure such as "0.01 nDCG"'

    value: float = 0.01
    unit: str = ""

    @classmethod
    def parse(cls, given: float | str) -> "Margin":
        """Read a share (``0.01``, ``"1 %"``), or a difference with the measure it is of (``"0.01 nDCG"``).

        Raises:
            ValueError: If it is neither, or the number is not above 0 and below 1.
        """
        form = _FORM.fullmatch(given if isinstance(given, str) else repr(float(given)))
        try:
            value = float(form["number"]) if form else 0.0
        except ValueError:
            value = 0.0
        unit = (form["unit"] or "").strip() if form else ""
        if unit == "%":
            value, unit = value / 100, ""
        if not 0 < value < 1:
            raise ValueError(f"must be {cls.FORM}, got {given!r}")
        return cls(value, unit)

    def of(self, measure: str) -> "Margin":
        """The margin for a measure: itself if it is a share or names the measure, else the default share."""
        family = re.split(r"[@( ]", measure, maxsplit=1)[0]
        return self if not self.unit or self.unit.casefold() in (measure.casefold(), family.casefold()) else DEFAULT_MARGIN

    def __str__(self) -> str:
        return f"{self.value:g} {self.unit}" if self.unit else f"{100 * self.value:g} %"


DEFAULT_MARGIN = Margin()
"""One percent of the baseline."""
