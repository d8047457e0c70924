"""The figures of a sweep (Vasilyev et al. 2024); `sweep_curves` has the data of their panels."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from adiabat.core.text import cut_middle
from adiabat.report import charts
from adiabat.report import sweep_curves as curves
from adiabat.report.chart_style import ACCENT, BAD, GOOD, INK, MUTED
from adiabat.report.format import cut_name, difference_tick
from adiabat.report.sweep_cases import Overview
from adiabat.report.sweep_curves import Curve, Kind, Panel, Series
from adiabat.report.sweep_gain_tradeoff import trades
from adiabat.report.sweep_values import rate, setting_value

# Mid-tones, to be seen on light and dark pages alike; markers tell curves apart without colour.
_GREEN, _ROSE, _OCHRE, _TEAL = "#1b8a5a", "#c2568f", "#a67c00", "#2a8f9c"
_TARGETS = ((INK, "D"), (GOOD, "d"), (ACCENT, "P"))
_OTHERS = ((_GREEN, "o"), (_ROSE, "s"), (_OCHRE, "^"), (ACCENT, "v"), (_TEAL, "<"), (MUTED, "p"), (GOOD, "h"))
_SIDES = {"improved": (GOOD, "^"), "worsened": (BAD, "v")}

MOST_TICKS = 8
"""Values of a setting up to which each has a number below the axis."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One figure: its data, and what they are drawn with.

    Attributes:
        name: Of its files, and prefix of the ids inside it.
        kind: What it shows.
        title: In words, with what it is drawn against.
        panels: Left to right, top to bottom.
        series: Setting that it is drawn against; None is the gain of the targets.
    """

    name: str
    kind: Kind
    title: str
    panels: tuple[Panel, ...]
    series: Series | None = None

    @property
    def across(self) -> str:
        """What the horizontal axis has."""
        return "gain of the targets, %" if self.series is None else cut_name(self.series.setting.label, limit=60)


def pictures(view: Overview) -> list[Picture]:
    """All figures of a sweep, with something to show on each."""
    drawn = [picture for series in curves.series_of(view) for picture in against(view, series)]
    return [*drawn, *([cost] if (cost := trade_picture(view)) else [])]


def trade_picture(view: Overview) -> Picture | None:
    """What gains of the targets cost.

    Returns:
        The figure; None where no two settings have a gain, or nothing beside it.
    """
    panels = [panel for panel in trades(view) if any(curve.points for curve in panel.curves)]
    return Picture("trade", "trade", "Gain of the targets, and what it costs", tuple(panels)) if panels else None


def against(view: Overview, series: Series) -> list[Picture]:
    """The figures of one setting, with something to show on each."""
    return [picture for picture in _against(view, series) if any(panel.curves for panel in picture.panels)]


def _against(view: Overview, series: Series) -> Iterator[Picture]:
    slug = re.sub(r"[^a-z0-9]+", "-", series.setting.label.lower()).strip("-") or "setting"
    against = f"against {series.setting.label}"
    yield Picture(f"improvement-{slug}", "improvement", f"Improvement {against}", tuple(curves.improvements(view, series)), series)
    yield from _pair_pictures(view, series, slug)
    yield Picture(f"drift-{slug}", "drift", f"Drift {against}", tuple(curves.drifts(view, series)), series)
    yield Picture(f"validation-{slug}", "validation", f"Training {against}", tuple(curves.validations(series)), series)


def _pair_pictures(view: Overview, series: Series, slug: str) -> Iterator[Picture]:
    """All comparisons of a grid side by side; where there are several combinations, those side by side for each comparison."""
    by_task: dict[str, list[tuple[str, list[Panel]]]] = {}
    for (task, comparison, similarity), panels in curves.pairs(view, series):
        by_task.setdefault(task, []).append((", ".join(filter(None, [comparison, similarity])), panels))
    shown: list[tuple[str, Sequence[Panel]]] = []
    for task, compared in by_task.items():
        title = f"Language pairs of {task} against {series.setting.label}"
        if len(series.combinations) == 1:
            shown.append((title, [replace(panel, title=told) for told, (panel,) in compared]))
        else:
            shown += [(f"{title}, {told}", own) for told, own in compared]
    for index, (title, every) in enumerate(shown, start=1):
        yield Picture(f"pairs-{slug}" + f"-{index}" * (len(shown) > 1), "pairs", title, tuple(every), series)


def chart_of(picture: Picture) -> charts.Chart:
    """Panels side by side, with one colour and marker for each label."""
    styles = _styles(picture)
    panels = [_panel(picture, panel, styles) for panel in picture.panels]
    columns = 3 if len(panels) == 3 and picture.kind in ("drift", "trade") else 2
    return charts.curves(picture.name, panels, height=3.8 if len(panels) == 1 else 2.8, columns=columns)


def _styles(picture: Picture) -> dict[str, tuple[str, str]]:
    """Colour and marker of each label, the same in all panels of a figure."""
    roles = {curve.label: curve.role for panel in picture.panels for curve in panel.curves}
    styles: dict[str, tuple[str, str]] = {}
    for among, roles_among in ((_TARGETS, {"target"}), (_OTHERS, {"other", "combination"})):
        labels = [label for label, role in roles.items() if role in roles_among]
        for index, label in enumerate(labels):
            # Colours and markers come round at different times, so that many curves still differ.
            styles[label] = (among[index % len(among)][0], among[(index + index // len(among)) % len(among)][1])
    return styles | {label: _SIDES[role] for label, role in roles.items() if role in _SIDES}


def _panel(picture: Picture, panel: Panel, styles: dict[str, tuple[str, str]]) -> charts.Panel:
    series, kind = picture.series, picture.kind
    values = sorted({x for one in series.combinations for x, _ in one.cases}) if series else []
    above = [value for value in values if value > 0]
    percent = kind in ("improvement", "trade") and (panel.percent or kind == "improvement")
    heights = [point.y for curve in panel.curves for point in curve.points]
    is_log = kind == "drift" and bool(heights) and min(heights) > 0
    return charts.Panel(
        [line for curve in panel.curves for line in _lines(curve, styles[curve.label])],
        picture.across,
        _up(kind, panel),
        title=cut_middle(cut_name(panel.title, limit=200), limit=40),
        log=("x" if series and series.scale == "log" else "") + ("y" if is_log else ""),
        across=[(0.0, "", MUTED)] if percent else [],
        down=[(0.0, "", MUTED)] if kind == "trade" else [],
        x_tick=setting_value if series else difference_tick,
        y_tick=difference_tick if percent else rate,
        ticks=values if len(values) <= MOST_TICKS else values[:: -(-len(values) // MOST_TICKS)],
        linear_to=min(above) if series and series.scale == "symlog" and above else 0.0,
        failed=panel.failed,
    )


def _up(kind: Kind, panel: Panel) -> str:
    of = "" if panel.ceiling is None else f" of {panel.ceiling:,.0f}"
    names: dict[Kind, str] = {"improvement": "improvement, % (up is better)", "pairs": f"language pairs{of}"}
    return names.get(kind, "improvement, %" if panel.percent else "drift" if kind == "trade" else "")


def _lines(curve: Curve, style: tuple[str, str]) -> list[charts.Line]:
    """The line of means, and a marker for each run: hollow where it has no evidence; a run alone at its place bears its interval."""
    colour, marker = style
    label = cut_name(curve.label, limit=34) + (" (target)" if curve.role == "target" else "")
    width = 2.4 if curve.role == "target" else 1.4
    several = len({(point.x, point.seed) for point in curve.points}) > len({point.x for point in curve.points})
    means = charts.Line(curve.means, label, colour, "", "--" if curve.faint else "-", width=width)
    if curve.faint:
        return [means]
    lines = [replace(means, marker="" if several else marker) if curve.means else charts.Line([], label, colour, marker, "")]
    for hollow in (False, True):
        points = [point for point in curve.points if point.open == hollow]
        ends = () if several else [point.interval for point in points]
        lines.append(charts.Line([(point.x, point.y) for point in points], "", colour, marker, "", ends, hollow=hollow))
    return [line for line in lines if line.points or line.label]
