"""The section on the power of data sets, on the pages of evaluations and tuning jobs."""

from collections.abc import Sequence

from adiabat.core.text import DASH, NO_BREAK, counted, cut
from adiabat.report.computed_tables import Column, Table
from adiabat.report.pages import Group
from adiabat.report.tables import Cell
from adiabat.results.power_record import Power


def assumptions(powers: Sequence[Power]) -> list[str]:
    """The assumptions behind predictions, each once."""
    return sorted({power.assumption for power in powers} - {""})


def power_section(powers: Sequence[Power]) -> Group:
    """What each set could show, and the assumption behind a prediction."""

    def size(value: str, ends: str) -> Cell:
        return Cell(value or DASH, [ends] if ends else [])

    columns = [
        Column(
            "data set",
            lambda power: Cell(cut(power.name, limit=120), [counted(power.units, power.unit)], bold=True),
            "name",
        ),
        Column("measure", lambda power: Cell(power.measure, [f"{power.before:.3f}"])),
        Column("improvement that would show", lambda power: size(*power.improvement), "number"),
        Column("loss that would be excluded", lambda power: size(*power.loss), "number"),
        Column("margin", lambda power: power.margin_text, "number"),
        Column(
            "needed for the margin",
            lambda power: "" if power.needed is None else counted(power.about_needed, power.unit),
            "number",
        ),
    ]
    return Group(
        id="power",
        title="What the sets could show",
        lead=f"With 80{NO_BREAK}% probability: the improvement that would be found better, "
        "and, if nothing changed, the loss that would be "
        "excluded.",
        sections=[Table(columns=columns, rows=powers, look="stack", caption=assumptions(powers))],
    )
