"""The figures of a search for the largest safe rate."""

import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations, pairwise

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from adiabat.report import rate_search_plots as plots
from adiabat.report.svg import PAPER, drawing
from adiabat.report.wording import setting
from adiabat.results.rate_search_result import SafeRate
from tests.report.sample_safe_rates import EVERY, LIMIT, diverged_search, full_search, make_rung, make_safe_rate, seeds_search
from tests.report.test_plots import texts


def figures_of(result: SafeRate) -> tuple[Figure, Figure]:
    with drawing():
        drift, steps = (picture.draw(result) for picture in plots.pictures())
        for figure in (drift, steps):
            figure.draw_without_rendering()
    return drift, steps


def marks(figure: Figure, marker: str) -> list[tuple[float, float]]:
    lines = [line for line in figure.axes[0].lines if line.get_marker() == marker]
    return [(float(x), float(y)) for line in lines for x, y in zip(*line.get_data(), strict=True)]


def names(figure: Figure) -> list[Annotation]:
    return [text for text in figure.axes[0].texts if isinstance(text, Annotation)]


@pytest.mark.parametrize("search", EVERY)
def test_pictures_are_well_formed_with_ids_of_their_own(search: str) -> None:
    for picture in plots.pictures():
        svg = plots.inlined(picture, EVERY[search]())
        ElementTree.fromstring(svg)
        ids = re.findall(r' id="([^"]*)"', svg)
        assert len(ids) == len(set(ids))
        assert all(one.startswith(f"{picture.name}-") for one in ids)


def test_both_axes_of_both_figures_are_logarithmic_and_their_lines_named() -> None:
    for figure, height, said in zip(figures_of(full_search()), (LIMIT, 1000), ("limit\n0.0458", "wanted\n1,000"), strict=True):
        (axes,) = figure.axes
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
        assert [set(line.get_ydata()) for line in dashed] == [{height}]
        assert [text.get_text() for text in axes.texts if not isinstance(text, Annotation)] == [said]


def test_a_run_that_left_ends_in_an_open_mark_and_one_that_stayed_in_a_full_triangle() -> None:
    result = full_search()
    drift, _ = figures_of(result)
    assert marks(drift, "o") == [(rung.steps[-1], rung.drift["overlap loss"][-1]) for rung in result.rungs[:-1]]
    assert marks(drift, "^") == [(1000, result.rungs[-1].drift["overlap loss"][-1])]
    faces = {line.get_marker(): to_hex(line.get_markerfacecolor()) for line in drift.axes[0].lines if line.get_marker() in "o^"}
    assert faces["o"] == PAPER != faces["^"]
    assert [text.get_text() for text in drift.legends[0].get_texts()] == ["left the band", "inside to the end"]


def crowded() -> SafeRate:
    """All rates of two ladders, and three seeds of the safe one."""
    rates = [1e-5 / 10 ** (place / 6) for place in range(18)]
    seeds = [make_rung(rates[12], seed=seed, factor=1 + seed / 20, power=0.6) for seed in (1, 2)]
    return make_safe_rate([*(make_rung(rate, power=0.6) for rate in rates), *seeds], rates[12], rates=rates[::-1])


@pytest.mark.parametrize(
    "result", [full_search(), seeds_search(), diverged_search(), crowded()], ids=["full", "seeds", "diverged", "crowded"]
)
def test_names_at_the_ends_of_curves_neither_meet_nor_leave_the_picture(result: SafeRate) -> None:
    drift, _ = figures_of(result)
    boxes = [Text.get_window_extent(name).padded(-0.5) for name in names(drift)]
    assert len(boxes) >= len({rung.rate for rung in result.rungs})
    assert [one for one, other in combinations(boxes, 2) if one.overlaps(other)] == []
    frame = drift.axes[0].bbox.padded(1)
    assert all(frame.containsx(x) and frame.containsy(y) for box in boxes for x, y in box.corners())


def test_runs_of_one_rate_bear_one_name_unless_they_ended_differently() -> None:
    drift, _ = figures_of(seeds_search())
    weights = {name.get_text(): name.get_fontweight() for name in names(drift)}
    assert weights == {"2.15e-7": "normal", "1e-7, seed 0": "normal", "1e-7, seed 1": "normal", "4.64e-8, 2 seeds": "bold"}


def test_what_has_no_logarithm_stands_at_the_edges() -> None:
    drift, steps = figures_of(diverged_search())
    low, high = drift.axes[0].get_ylim()
    assert {y for _, y in marks(drift, "v")} == {low}
    crosses = marks(drift, "x")
    assert [x for x, _ in crosses] == [drift.axes[0].get_xlim()[0], 3, 120]
    assert all(LIMIT < y < high for _, y in crosses)
    assert [text.get_text() for text in drift.legends[0].get_texts()] == ["diverged", "left the band", "drift 0"]
    assert marks(steps, "x")[0] == (1e-4, steps.axes[0].get_ylim()[0])
    assert {x for x, _ in marks(steps, "^")} == {1e-8}


def test_bars_reach_down_to_the_look_before() -> None:
    _, steps = figures_of(full_search())
    bars = {
        line.get_xdata()[0]: tuple(line.get_ydata())
        for line in steps.axes[0].lines
        if line.get_linewidth() == 1.2 and len(line.get_xdata()) == 2
    }
    assert bars[1e-7] == (850, 900)
    assert bars[1e-5] == (steps.axes[0].get_ylim()[0], 50)
    assert marks(steps, "^") == [(4.64e-8, 1000)]


def test_colours_go_from_light_to_dark_with_the_rate() -> None:
    _, steps = figures_of(full_search())
    ends = sorted((line.get_xdata()[0], to_hex(line.get_markeredgecolor())) for line in steps.axes[0].lines if line.get_marker() in "o^")
    colours = [[int(colour[place : place + 2], 16) for place in (1, 3, 5)] for _, colour in ends]
    lightness = [0.3 * red + 0.59 * green + 0.11 * blue for red, green, blue in colours]
    assert len(colours) == 8
    assert all(lighter > darker for lighter, darker in pairwise(lightness))


def test_rates_are_written_where_they_have_room_the_safe_one_always() -> None:
    assert {"4.64e-8", "1e-7", "1e-5"} <= set(texts(plots.inlined(plots.pictures()[1], full_search())))
    shown = figures_of(crowded())[1].axes[0].xaxis
    labels = [label.get_text() for label in shown.get_majorticklabels()]
    assert setting(crowded().rate or 0) in labels
    assert 5 < len(labels) < 18
    boxes = [label.get_window_extent() for label in shown.get_majorticklabels()]
    assert [one for one, other in combinations(boxes, 2) if one.overlaps(other)] == []
    assert {label.get_text() for label in shown.get_minorticklabels()} == {""}


@pytest.mark.parametrize(("low", "high", "ticks"), [(0.02, 0.6, [0.02, 0.05, 0.1, 0.2, 0.5]), (1.0, 1.0, [1.0]), (3.0, 4.0, [3.0, 4.0])])
def test_ticks_are_round_where_there_are_round_ones(low: float, high: float, ticks: list[float]) -> None:
    assert plots._ticks(low, high) == pytest.approx(ticks)
    assert len(plots._ticks(1e-12, 1e3)) <= 9
