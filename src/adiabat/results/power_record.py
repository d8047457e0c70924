"""What a set of queries could show, before or after a comparison."""

from dataclasses import dataclass

from adiabat.core.text import NO_BREAK, counted


def _two_digits(value: float) -> str:
    return f"{float(f'{value:.2g}'):g}"


@dataclass(frozen=True, slots=True)
class Power:
    """The improvement that a paired comparison on a set could show, and the loss that it could exclude, each four times in five.

    Attributes:
        name: Name of the set; "" if it has none.
        measure: The measure that decides the verdict.
        before: Value of the baseline.
        units: Number of units, such as queries, with weight.
        unit: Name of a unit in the singular.
        detectable: The true improvement, above 0 and in the measure's own unit, that would be found better with 80 % probability. None if
            nothing varies, or with fewer than two units.
        excludable: The smallest margin, in the measure's own unit, within which a model without any true change would be found not worse
            with 80 % probability. None with fewer than ten units.
        room: The largest improvement that the measure allows; None for an unlimited measure.
        margin: The loss that would matter, in the measure's own unit; None for a share of a baseline that is not above 0.
        margin_text: The same as the settings say it.
        needed: Number of units with which `excludable` would be the margin; None if these are enough, or no number up to a million is.
        spread: The assumed standard deviation of the paired differences, as a multiple of that of the baseline's scores; None if
            differences were observed.
        detectable_range: `detectable` at the lowest and the highest spread that was seen in earlier tunings; None if observed.
        excludable_range: The same for `excludable`.
    """

    measure: str
    before: float
    units: int
    unit: str
    detectable: float | None
    excludable: float | None
    room: float | None
    margin: float | None
    margin_text: str
    needed: int | None
    spread: float | None = None
    spread_range: tuple[float, float] | None = None
    detectable_range: tuple[float, float] | None = None
    excludable_range: tuple[float, float] | None = None
    name: str = ""

    @property
    def about_needed(self) -> int:
        """`needed` to two digits, since it is an estimate, and more than there are; 0 for None."""
        return 0 if self.needed is None else max(int(float(f"{self.needed:.2g}")), self.units + 1)

    @property
    def assumption(self) -> str:
        """The assumption behind a prediction; "" if differences were observed."""
        if self.spread is None or self.spread_range is None:
            return ""
        low, high = self.spread_range
        return (
            f"No tuned model was measured: it is assumed that tuning changes scores by {self.spread:g} times their spread over queries; "
            f"earlier tunings did by {low:g} to {high:g}."
        )

    @property
    def findings(self) -> str:
        """In sentences, without the assumption behind a prediction."""
        needed = f" To exclude a loss of {self.margin_text} takes about {counted(self.about_needed, self.unit)}." if self.needed else ""
        return f"{self._shown()}, and {self._excluded()}.{needed}"

    @property
    def said(self) -> str:
        """In sentences, with the assumption behind a prediction."""
        return f"{self.findings} {self.assumption}".rstrip()

    def size(self, value: float) -> str:
        """A difference in percent of the baseline, or in the measure's own unit where the baseline is 0."""
        return f"{_two_digits(100 * value / self.before)}{NO_BREAK}%" if self.before > 0 else _two_digits(value)

    def _shown(self) -> str:
        here = f"{self.name + ': ' if self.name else ''}{counted(self.units, self.unit)} ({self.measure} {self.before:.3f})"
        if self.detectable is None:
            return f"{here} cannot show an improvement"
        if self.room is not None and self.detectable > self.room:
            return f"{here} cannot show an improvement, because even a perfect score gains only {self.size(self.room)}"
        return f"{here} would show an improvement of {self._about(self.detectable, self.detectable_range)} with 80{NO_BREAK}% probability"

    def _excluded(self) -> str:
        if self.excludable is None:
            return "cannot exclude any loss"
        return f"if nothing changed, exclude a loss of {self._about(self.excludable, self.excludable_range)}"

    def _about(self, value: float, ends: tuple[float, float] | None) -> str:
        return self.size(value) if ends is None else f"about {self.size(value)} ({self.size(ends[0])} to {self.size(ends[1])})"
