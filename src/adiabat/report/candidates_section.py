"""The section on the candidates that the result of a tuning run was chosen among."""

from collections.abc import Sequence

from adiabat.core.text import NO_BREAK
from adiabat.report import format as texts
from adiabat.report.chart_style import ACCENT, GOOD, shade
from adiabat.report.charts import NARROW, Line, Panel, curves
from adiabat.report.pages import Group, Sections, figure, group
from adiabat.report.tables import Cell, Contents, Table
from adiabat.results.training_record import Candidate, CandidateFigure


def candidates_of(candidates: Sequence[Candidate]) -> Group | None:
    """The candidates with their figures, and the trade between gain and retention by share of the change;
    None for a run without any.
    """
    if not candidates:
        return None
    rows = []
    for candidate in candidates:
        row: Contents = {"candidate": Cell(candidate.name, bold=candidate.kept)}
        for place, found in enumerate(candidate.figures):
            row[found.name] = _cell(found, is_target=place == 0)
        row["kept"] = "kept" if candidate.kept else candidate.outside
        rows.append(row)
    sections: Sections = [Table.of(rows)]
    shares = [candidate for candidate in candidates if candidate.pull is None]
    if shares:
        sections.insert(0, figure("training", "trade", curves("trade", [_panel(shares)], width=NARROW)))
    return group("training", "candidates", *sections)


def _panel(shares: Sequence[Candidate]) -> Panel:
    """Change in percent on each set by the share of the tuned change."""
    names = [found.name for found in shares[0].figures]
    lines = []
    for place, name in enumerate(names):
        # The start changes nothing.
        points = [(0.0, 0.0)]
        points += [(each.share, _change(each.figures[place])) for each in reversed(shares)]
        colour = GOOD if place == 0 else shade(place / len(names))
        lines.append(Line(points, name, colour, "o" if place == 0 else "s"))
    kept = [(each.share, "kept", ACCENT) for each in shares if each.kept]
    return Panel(lines, "share of the change", "change in %", down=kept, ticks=(0, 0.25, 0.5, 0.75, 1))


def _change(found: CandidateFigure) -> float:
    return found.in_percent(found.change)


def _cell(found: CandidateFigure, *, is_target: bool) -> Cell:
    """The change in percent with the lower end that decides."""
    change, lowest = _change(found), found.in_percent(found.lowest)
    is_sound = found.lowest > 0 if is_target else found.is_retained
    end = f"at least {texts.signed(lowest, decimals=1)}{NO_BREAK}%"
    text = f"{texts.signed(change, decimals=1)}{NO_BREAK}%"
    return Cell(text, [end], value=change, tone="" if is_sound else "bad")
