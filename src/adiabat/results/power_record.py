"""What a set of queries could show, before or after a comparison."""

from dataclasses import dataclass

from adiabat.results.record import Ends


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
    spread_range: Ends | None = None
    detectable_range: Ends | None = None
    excludable_range: Ends | None = None
    name: str = ""
    losable: float | None = None
    varies: bool = True
