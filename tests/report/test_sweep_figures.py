"""The figures of a sweep: what is drawn against what, and how."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from adiabat.report import sweep_figures as figures
from adiabat.report.charts import Line, Panel
from adiabat.report.sweep_page import equal_gain_table
from adiabat.results.sweep_result import Setting, SweepResult
from tests.experiments.sweep.test_sweep_analysis import WAYS, remedies
from tests.report.html_page import plain, texts
from tests.report.sample_sweeps import (
    MARGIN,
    RATE,
    RATES,
    drift_at,
    failed_sweep,
    full_sweep,
    grid_of,
    make_failed,
    make_run,
    make_sweep,
    make_task,
    make_tasks,
    simple_sweep,
    sweep_with_a_gap,
)

DECAY = "tune.weight_decay"


def panels_of(result: SweepResult) -> dict[str, list[Panel]]:
    """Panels by the first word of a figure's name."""
    return {drawing.name.partition("-")[0]: drawing.panels for drawing in figures.drawings(result)}


def improvements(result: SweepResult) -> dict[str, Panel]:
    """The panel of each task by its title."""
    return {panel.title: panel for panel in panels_of(result)["improvement"]}


def means_of(panel: Panel) -> list[Line]:
    return [line for line in panel.lines if line.style == "-"]


def marks_of(panel: Panel, *, hollow: bool) -> list[Line]:
    return [line for line in panel.lines if not line.style and line.hollow == hollow]


def test_each_setting_has_its_figures() -> None:
    kinds = ("improvement", "pairs", "drift", "validation")
    assert [one.name for one in figures.drawings(full_sweep())] == [
        *(f"{kind}-learning-rate" for kind in kinds),
        "trade",
    ]
    assert list(panels_of(simple_sweep())) == ["improvement", "validation", "trade"]
    assert figures.drawings(make_sweep([])) == figures.drawings(failed_sweep(*RATES)) == []
    names = [one.name for one in figures.drawings(grid_of(learning_rate=RATES, margin=[0.1, 0.2]))]
    assert len(names) == len(set(names))


def test_a_curve_has_a_point_for_each_run_and_a_mean_for_each_value() -> None:
    panels = improvements(full_sweep())
    assert list(panels) == ["msmarco (target)", "arxiv", "title", "xnli"]
    panel = panels["msmarco (target)"]
    (means,) = means_of(panel)
    marks = [*marks_of(panel, hollow=False), *marks_of(panel, hollow=True)]
    points = [point for line in marks for point in line.points]
    assert len(points) == 11
    for x, mean in means.points:
        values = [y for at, y in points if at == x and y is not None]
        assert mean == pytest.approx(sum(values) / len(values))
    assert panel.failed == [1e-7]
    # Several runs bear no interval, and the line of their means no marker.
    assert not any(line.intervals for line in panel.lines)
    assert means.marker == ""


def test_markers_are_hollow_without_evidence_and_one_run_bears_its_interval() -> None:
    result = simple_sweep({1e-8: (0.5, 0.2), 2e-8: (3.0, -0.9), 5e-8: (1.0, 1.001), 1e-7: (-9.0, -2.0)})
    for turned in (result, make_sweep(result.runs[::-1])):
        target, other = improvements(turned).values()
        hollow = [[x for x, _ in marks_of(panel, hollow=True)[0].points] for panel in (target, other)]
        assert hollow == [[1e-8, 5e-8], [1e-8, 2e-8]]
        (filled,) = marks_of(target, hollow=False)
        assert filled.intervals == [pytest.approx((y - 1, y + 1)) for y in (3.0, -9.0)]
        assert [x for x, _ in means_of(target)[0].points] == RATES


def test_a_value_at_which_every_run_failed_is_a_gap_and_a_cross() -> None:
    (panel,) = improvements(sweep_with_a_gap()).values()
    assert panel.failed == [2e-8]
    assert list(means_of(panel)[0].points) == [(1e-8, 2.0), (2e-8, None), (5e-8, 2.0)]
    for result in (full_sweep(), sweep_with_a_gap(), simple_sweep()):
        drawing = figures.drawings(result)[0]
        failed = any(panel.failed for panel in drawing.panels)
        assert ("a run failed" in texts(drawing.chart.inline())) == failed


def test_a_task_without_percent_or_that_nothing_measured_has_no_panel() -> None:
    result = simple_sweep({1e-8: (0.5, None), 2e-8: (3.0, None)}, tasks=("msmarco", "arxiv", "absent"))
    assert list(improvements(result)) == ["msmarco (target)"]


def test_a_combination_has_one_colour_and_marker_in_all_panels() -> None:
    drawing = figures.drawings(grid_of(learning_rate=RATES, margin=[0.1, 0.2, 0.3]))[0]
    styles = {(line.label, line.colour, line.marker) for panel in drawing.panels for line in means_of(panel)}
    assert len({style[1:] for style in styles}) == len(styles) == 3
    assert {"margin 0.1", "margin 0.2", "msmarco (target)"} <= set(texts(drawing.chart.inline()))


# --- What is drawn against what ---


def test_only_numbers_with_two_values_are_drawn_against() -> None:
    for result in (
        grid_of(learning_rate=[1e-8], freeze=[["a"], ["b"]]),
        grid_of(dropout=[True, False]),
        grid_of(weight_decay=[None, 0.1]),
        make_sweep([]),
    ):
        assert figures.axes_of(result) == []
    (axis,) = figures.axes_of(grid_of(learning_rate=[1e-8], idle_epochs=[5, 10, 15]))
    assert (axis.label, [x for x, _ in axis.curves[0].cases]) == ("idle epochs", [5.0, 10.0, 15.0])


def test_each_combination_of_the_others_has_its_own_curve() -> None:
    freezes = [["embeddings"], ["embeddings", "blocks[0]"], []]
    result = grid_of(learning_rate=[1e-8, 2e-8, 5e-8], margin=[0.1, 0.2], freeze=freezes)
    rate, margin = figures.axes_of(result)
    assert (len(rate.curves), rate.of) == (6, 6)
    labels = [f"margin 0.1, freeze {told}" for told in ("embeddings", "embeddings + blocks[0]", "none")]
    assert [one.label for one in rate.curves][:3] == labels
    # Three rates with three freezings are more than can be told apart.
    assert (len(margin.curves), margin.of) == (figures.MOST_CURVES, 9)
    assert margin.curves[0].label == "learning rate 1e-8, freeze embeddings"


def test_of_too_many_combinations_those_with_most_runs_are_drawn() -> None:
    result = grid_of(learning_rate=[1e-8, 2e-8], margin=[0.1 * place for place in range(1, 10)])
    again = [
        replace(run, name=f"{run.name} again", seed=9) for run in result.runs if run.varied[MARGIN] == 0.5
    ]
    rate, _ = figures.axes_of(make_sweep([*result.runs, *again], varied=result.varied))
    assert (rate.curves[0].label, len(rate.curves), rate.of) == ("margin 0.5", figures.MOST_CURVES, 9)


def test_settings_that_go_together_make_one_curve() -> None:
    gained, names = [make_task("msmarco", 2.0)], ("tune.batch_size", RATE)
    pairs = [(7, 2.5e-8), (14, 5e-8), (28, 1e-7)]
    runs = [make_run(dict(zip(names, pair, strict=True)), gained) for pair in pairs]
    sizes, rates = figures.axes_of(make_sweep(runs, varied=names))
    assert (len(sizes.curves), sizes.curves[0].label) == (1, "")
    assert [x for x, _ in rates.curves[0].cases] == [2.5e-8, 5e-8, 1e-7]
    grid = grid_of(learning_rate=[1e-8, 2e-8], margin=[0.1, 0.2])
    lonely = make_run({RATE: 5e-8, MARGIN: 0.7}, gained)
    rate, _ = figures.axes_of(make_sweep([*grid.runs, lonely], varied=grid.varied))
    assert rate.of == 2
    apart = ((1e-8, 0.1), (2e-8, 0.2), (2e-8, 0.3), (5e-8, 0.3))
    scattered = [make_run({RATE: rate, MARGIN: margin}) for rate, margin in apart]
    assert [axis.of for axis in figures.axes_of(make_sweep(scattered, varied=(RATE, MARGIN)))] == [1, 1]


@pytest.mark.parametrize(
    ("name", "values", "scale"),
    [
        (RATE, [1e-8, 2e-8], "log"),
        (MARGIN, [0.05, 0.1, 0.5], "linear"),
        (MARGIN, [0.0, 0.1], "linear"),
        (DECAY, [0.05, 1.0], "log"),
        (DECAY, [0.0, 0.05, 100.0], "symlog"),
        (DECAY, [-1.0, 100.0], "linear"),
        (DECAY, [0, 0], "linear"),
    ],
)
def test_the_axis_follows_the_span_of_values(name: str, values: list[float], scale: str) -> None:
    assert figures.scale_of(Setting(name, list(values))) == scale


# --- Language pairs, drift and validation ---


def test_pairs_are_counted_up_and_down_and_by_the_z_test() -> None:
    panels = panels_of(full_sweep(seeds=(0,)))["pairs"]
    titles = ["xnli entailment-neutral", "xnli entailment-contradiction"]
    assert [panel.title for panel in panels] == [titles[0], titles[0], titles[1], titles[1]]
    assert [panel.y for panel in panels] == ["improved, cosine", "worsened, cosine"] * 2
    improved, worsened = panels[:2]
    curves = [line for panel in (improved, worsened) for line in panel.lines if line.style]
    assert [curve.style for curve in curves] == ["-", "--"] * 2
    assert [[mean for _, mean in curve.points] for curve in curves] == [
        [60.0, 120.0, 194.0, 198.0],
        [59.0, 119.0, 193.0, 197.0],
        [0.0, 0.0, 6.0, 24.0],
        [2.0, 2.0, 8.0, 26.0],
    ]
    assert not any(line.hollow for line in improved.lines)


def test_drift_has_a_panel_for_each_measure_with_its_interval() -> None:
    runs = [make_run({RATE: rate}, drift=drift_at(rate)) for rate in RATES]
    further = replace(drift_at(1e-8), means={"rotation share": 0.5, "turn": 0.1}, errors={})
    panels = panels_of(make_sweep([*runs, make_run({RATE: 2e-7}, drift=further)]))["drift"]
    names = ["overlap loss", "margins", "turn", "rotation share"]
    assert [panel.title for panel in panels] == [f"drift: {name}" for name in names]
    marks = [next(line for line in panel.lines if not line.style) for panel in panels]
    assert marks[0].points[0][1] == pytest.approx(0.004)
    assert marks[0].intervals[0] == pytest.approx((0.004 - 1.96 * 0.0004, 0.004 + 1.96 * 0.0004))
    assert marks[2].intervals[-1] is None
    assert panels[0].lines[0].points[-1] == (2e-7, None)


def test_steps_and_the_kept_epoch_are_shown_of_each_run() -> None:
    steps, epochs = panels_of(full_sweep())["validation"]
    points = [line.points for line in (*steps.lines, *epochs.lines) if not line.style and line.points]
    heights = [[y for _, y in of[:3]] for of in points]
    assert heights == [[13_000.0, 14_000.0, 15_000.0], [3.0, 4.0, 5.0]]
    assert steps.failed == [1e-7]


# --- What gains cost ---


def many_ways() -> SweepResult:
    """One method more than are drawn."""
    way = [(1e-8, 0.0, 1.0, 0.0, 0.1), (2e-8, 0.0, 2.0, -1.0, 0.2)]
    return remedies({f"way {number}": way for number in range(9)})


def trades(result: SweepResult) -> Sequence[Panel]:
    return panels_of(result).get("trade", [])


def test_the_figure_joins_methods_and_has_a_panel_for_the_drift() -> None:
    (drawing,) = figures.trade(remedies(WAYS))
    assert [panel.title for panel in drawing.panels] == ["arxiv", "drift: overlap loss"]
    curves = means_of(drawing.panels[0])
    assert [[x for x, _ in curve.points] for curve in curves if len(curve.points) == 3] == [[2.0, 4.0, 6.0]]
    assert {"rate", "pulled", "small"} <= set(texts(drawing.chart.inline()))
    grid = grid_of(learning_rate=[1e-8, 2e-8], margin=[0.1, 0.2])
    two_numbers = [replace(run, tasks=make_tasks(2.0, 0.0)) for run in grid.runs]
    # What differs by two numbers is no line.
    assert not any(line.style for line in trades(make_sweep(two_numbers, varied=(RATE, MARGIN)))[0].lines)
    assert [len(means_of(panel)) for panel in trades(many_ways())] == [8, 8]
    assert trades(make_sweep([make_run({RATE: rate}, make_tasks(2.0, None)) for rate in (1e-8, 2e-8)])) == []


def test_one_run_keeps_its_interval_beside_its_gain() -> None:
    alone = trades(remedies({"soft": [(1e-8, 0.0, 2.0, -3.0, 0.1), (2e-8, 0.0, 2.0, -3.0, 0.1)]}))[0]
    assert any(ends is not None for line in alone.lines for ends in line.intervals)


def test_the_table_tells_what_is_interpolated_and_which_method_is_left_out() -> None:
    table = equal_gain_table(remedies(WAYS))
    assert table is not None
    assert "which shows too much harm where harm grows faster than gain" in table.lead
    rows = [[plain(cell.text) for cell in row.cells] for row in table.rows]
    assert rows == [["pulled", "−2.00 %", "0.1600", "+3.00 %"], ["rate", "≈ −3.00 %", "≈ 0.2500", "+2.00 %"]]
    without = [replace(run, drift=None) for run in remedies(WAYS).runs]
    lacking = equal_gain_table(make_sweep(without, varied=(RATE, "tune.pull")))
    assert lacking is not None
    assert lacking.rows[0].cells[2].text == "–"
    assert equal_gain_table(make_sweep([make_failed({RATE: 1e-8})])) is None
