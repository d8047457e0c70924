"""The section on the power of data sets, on the pages of evaluations and tuning jobs."""

from collections.abc import Sequence

from adiabat.core.text import DASH, NO_BREAK, counted, cut
from adiabat.report.pages import Group
from adiabat.report.tables import Cell, Column, Table
from adiabat.results.power_record import Power


def assumptions(powers: Sequence[Power]) -> list[str]:
    """The assumptions behind predictions, each once."""
    return sorted({power.assumption for power in powers} - {""})


def power_section(powers: Sequence[Power]) -> Group | None:
    """What each set could show, and the assumption behind a prediction; None without sets."""
    if not powers:
        return None
    columns = [
        Column("data set", "name"),
        Column("measure"),
        Column("improvement that would show", "number"),
        Column("loss that would be excluded", "number"),
        Column("margin", "number"),
        Column("needed for the margin", "number"),
    ]
    table = Table(columns=columns, look="stack", caption=assumptions(powers))
    for power in powers:
        name = Cell(cut(power.name, limit=120), [counted(power.units, power.unit)], bold=True)
        measure = Cell(power.measure, [f"{power.before:.3f}"])
        needed = "" if power.needed is None else counted(power.about_needed, power.unit)
        table.add(name, measure, _size(*power.improvement), _size(*power.loss), power.margin_text, needed)
    lead = (
        f"With 80{NO_BREAK}% probability: the improvement that would be found better, and, if nothing "
        "changed, the loss that would be excluded."
    )
    return Group(id="power", title="What the sets could show", lead=lead, sections=[table])


def _size(value: str, ends: str) -> Cell:
    """A difference with its range below."""
    return Cell(value or DASH, [ends] if ends else [])
