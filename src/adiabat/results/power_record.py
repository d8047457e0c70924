"""What a set of queries could show, before or after a comparison."""

from dataclasses import dataclass

from adiabat.core.text import NO_BREAK, counted, two_digits


def _two_digits(value: float) -> str:
    return f"{float(f'{value:.2g}'):g}"


@dataclass(frozen=True, slots=True)
class Power:
    """The improvement that a paired comparison on a set could show, and the loss that it could exclude, each
    four times in five.

    Attributes:
        name: Name of the set; "" if it has none.
        measure: The measure that decides the verdict.
        before: Value of the baseline.
        units: Number of units, such as queries, with weight.
        unit: Name of a unit in the singular.
        detectable: The true improvement, above 0 and in the measure's own unit, that would be found better
            with 80 % probability. None if nothing varies, or with fewer than two units.
        excludable: The smallest margin, in the measure's own unit, within which a model without any true
            change would be found not worse with 80 % probability. None if nothing varies, or with fewer than
            ten units.
        room: The largest improvement that the measure allows; None for an unlimited measure.
        losable: The largest loss that the measure allows; None for an unlimited measure.
        varies: Whether scores, or observed differences, vary. If not, the power is unknown.
        margin: The loss that would matter, in the measure's own unit; None for a share of a baseline that is
            not above 0.
        margin_text: The same as the settings say it.
        needed: Number of units with which `excludable` would be the margin; None if these are enough, or no
            number up to a million is.
        spread: The assumed standard deviation of the paired differences, as a multiple of that of the
            baseline's scores; None if differences were observed.
        detectable_range: `detectable` at the lowest and the highest spread that was seen in earlier tunings;
            None if observed.
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
    losable: float | None = None
    varies: bool = True

    @property
    def about_needed(self) -> int:
        """`needed` to two digits, since it is an estimate, and more than there are; 0 for None."""
        return 0 if self.needed is None else max(two_digits(self.needed), self.units + 1)

    @property
    def assumption(self) -> str:
        """The assumption behind a prediction; "" if differences were observed."""
        if self.spread is None or self.spread_range is None or not self.varies:
            return ""
        low, high = self.spread_range
        return (
            "No tuned model was measured: it is assumed that tuning changes scores by "
            f"{self.spread:g} times their spread over queries; "
            f"earlier tunings did by {low:g} to {high:g}."
        )

    @property
    def findings(self) -> str:
        """In sentences, without the assumption behind a prediction."""
        name, here = (
            f"{self.name}: " if self.name else "",
            f"{counted(self.units, self.unit)} ({self.measure} {self.before:.3f})",
        )
        if not self.varies:
            return (
                f"{name}the power of {here} is unknown, because all "
                f"{'differences' if self.spread is None else 'scores'} are equal."
            )
        needed = (
            f"; excluding a loss of {self.margin_text} takes about {counted(self.about_needed, self.unit)}"
            if self.needed
            else ""
        )
        return f"{name}{here} {self._shown()} and {self._excluded()}{needed}."

    @property
    def said(self) -> str:
        """In sentences, with the assumption behind a prediction."""
        return f"{self.findings} {self.assumption}".rstrip()

    def size(self, value: float) -> str:
        """A difference in percent of the baseline, or in the measure's own unit where the baseline is 0."""
        return (
            f"{_two_digits(100 * value / self.before)}{NO_BREAK}%" if self.before > 0 else _two_digits(value)
        )

    @property
    def improvement(self) -> tuple[str, str]:
        """The improvement that would show, and its range; empty texts if the measure allows none that
        large.
        """
        possible = self.detectable is not None and (self.room is None or self.detectable <= self.room)
        return self._with_range(self.detectable if possible else None, self.detectable_range, self.room)

    @property
    def loss(self) -> tuple[str, str]:
        """The loss that would be excluded, and its range; empty texts if no less than all would be."""
        possible = self.excludable is not None and (self.losable is None or self.excludable < self.losable)
        return self._with_range(self.excludable if possible else None, self.excludable_range, self.losable)

    def _with_range(
        self, value: float | None, ends: tuple[float, float] | None, most: float | None
    ) -> tuple[str, str]:
        if value is None:
            return "", ""
        if ends is None or self.size(ends[0]) == self.size(ends[1]):
            return self.size(value), ""
        low, high = ends
        return self.size(
            value
        ), f"{self.size(low)} {'or more' if most is not None and high > most else f'to {self.size(high)}'}"

    def _shown(self) -> str:
        if self.improvement[0]:
            return f"show gains of {self._about(*self.improvement)} or more with 80{NO_BREAK}% probability"
        if self.detectable is None or self.room is None:
            return "cannot show any gain"
        return f"cannot show any gain, because even a perfect score gains only {self.size(self.room)},"

    def _excluded(self) -> str:
        if self.losable == 0:
            return "have no loss to exclude"
        return (
            f"exclude losses of {self._about(*self.loss)} or more"
            if self.loss[0]
            else "cannot exclude any loss"
        )

    def _about(self, value: str, ends: str) -> str:
        return f"{'' if self.spread is None else 'about '}{value}{f' ({ends})' if ends else ''}"
