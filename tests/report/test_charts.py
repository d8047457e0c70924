"""Charts and colours: legends beside the axes, contrast, and equal bytes for equal data."""

import re
import xml.etree.ElementTree as ElementTree
from importlib import resources

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from adiabat.report.chart_style import BAD, GOOD, MUTED, drawing, heat_colours
from adiabat.report.charts import (
    Chart,
    ForestRow,
    Line,
    Panel,
    Spread,
    bars,
    curves,
    forest,
    histogram,
    scatter,
)

POINTS = [(float(x), 2.0**-x) for x in range(10)]
SPREADS = [Spread("after", [0.4, 0.6], 1.2, True), Spread("before", [0.01, 0.09], 1.0, False)]
PLACES = [("p", [(0.0, 1.0)]), ("q", [(1.0, 1.0)])]
LIMITED = Panel([Line(POINTS, "one"), Line(POINTS, "other")], "x", "y", across=[(0.5, "limit", MUTED)])
LOGARITHMIC = Panel([Line(POINTS, "one")], "x", log="xy")
ROWS = [ForestRow("<b>", 1.0, (0.5, 1.5), "better", "+1"), ForestRow("c", -1.0, (-2.0, 0.1), "undecided")]
CHARTS = {
    "curves": curves("a", [LIMITED]),
    "narrow": curves("a", [LOGARITHMIC, Panel([Line(POINTS, "two")], "x")], width=4.0),
    "histogram": histogram("a", [0.0, 1.0, 2.0], SPREADS, label="x", width=7.4),
    "scatter": scatter("a", [("before", PLACES), ("after", PLACES)]),
    "forest": forest("a", ROWS, label="x"),
    "bars": bars("a", [("layer.1", 2.0), ("layer.0", 1.0)], label="x"),
}

laid_out = Chart.draw


@pytest.fixture(autouse=True)
def _as_users_see_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Chart, "draw", laid_out)


every_chart = pytest.mark.parametrize("chart", CHARTS.values(), ids=CHARTS)


@every_chart
def test_a_picture_is_well_formed_and_the_same_for_the_same_data(chart: Chart) -> None:
    svg = chart.inline()
    assert ElementTree.fromstring(svg).tag.endswith("}svg")
    assert svg == chart.inline()
    assert re.findall(r"https?://[^\"' ]*", svg) == ["http://www.w3.org/2000/svg"]
    assert "var(--" in svg
    assert "var(--" not in chart.file()


@every_chart
def test_a_legend_covers_no_axes(chart: Chart) -> None:
    with drawing():
        figure = chart.draw()
        FigureCanvasAgg(figure).draw()
    for legend in figure.legends:
        box = legend.get_window_extent()
        assert not [axes for axes in figure.axes if box.overlaps(axes.bbox)]
    assert all(axes.get_legend() is None for axes in figure.axes)
    assert bool(figure.legends) == any(axes.get_legend_handles_labels()[0] for axes in figure.axes)


def test_a_forest_shows_verdicts_by_colour_and_texts_as_they_are() -> None:
    svg = CHARTS["forest"].inline()
    assert f"var(--good, {GOOD})" in svg
    assert f"var(--muted, {MUTED})" in svg
    assert f"var(--bad, {BAD})" not in svg
    assert "&lt;b&gt;" in svg


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2."""
    colour = colour if len(colour) == 7 else "#" + "".join(2 * digit for digit in colour[1:])
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def schemes() -> dict[str, dict[str, str]]:
    """Variables of the style sheet in the light, dark and printed scheme."""
    sheet = resources.files("adiabat.report").joinpath("style.css").read_text(encoding="utf-8")
    found = [
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{3,6});", block))
        for block in re.findall(r":root \{(.*?)\}", sheet, re.DOTALL)
    ]
    return dict(zip(("light", "dark", "paper"), found, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark", "paper"])
@pytest.mark.parametrize(
    ("ink", "ground"),
    [
        ("good", "good-soft"),
        ("bad", "bad-soft"),
        ("muted", "soft"),
        *((ink, "card") for ink in ("good", "bad", "muted", "ink", "accent")),
    ],
)
def test_letters_contrast_with_their_ground(scheme: str, ink: str, ground: str) -> None:
    colour = schemes()[scheme]
    assert contrast(colour[ink], colour[ground]) >= 4.5


@pytest.mark.parametrize("compared", [True, False])
def test_letters_of_a_heat_map_contrast_with_every_cell(compared: bool) -> None:
    values = np.linspace(-5.0, 5.0, 101) if compared else np.linspace(0.0, 1.0, 101)
    colours = heat_colours(values, compared=compared)
    assert all(contrast(*colours(value)) >= 4.5 for value in values.tolist())
