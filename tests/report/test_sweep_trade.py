"""What gains cost: the ways of a sweep, and what each loses at a gain that others have too; worked by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from adiabat.report import pages
from adiabat.report import sweep_figures as plots
from adiabat.report.sweep_analysis import at_equal_gain, methods_of
from adiabat.report.sweep_cases import overview_of
from adiabat.report.sweep_figures import trades
from adiabat.report.sweep_page import equal_gain_table
from adiabat.results.drift_judgement import Drift
from adiabat.results.sweep_result import SweepResult, Value
from tests.report.html_page import plain, texts
from tests.report.sample_sweeps import RATE, grid_of, make_failed, make_run, make_sweep, make_tasks, simple_sweep

PULL = "tune.l2_to_start"


def drifted(by: float) -> Drift:
    return Drift(10, {"overlap loss": by}, {"overlap loss": 0.0})


def remedies(ways: Mapping[str, Sequence[tuple[float, float, float, float, float]]], **parts: Any) -> SweepResult:
    """Variant to (rate, pull, gain, change of the other task, drift)."""
    runs = [
        make_run({RATE: rate, PULL: pull}, make_tasks(gain, other), variant=name, drift=drifted(drift))
        for name, points in ways.items()
        for rate, pull, gain, other, drift in points
    ]
    return make_sweep(runs, varied=(RATE, PULL), **parts)


WAYS = {
    "rate": [(1e-8, 0.0, 2.0, -0.5, 0.1), (1e-7, 0.0, 6.0, -4.0, 0.3), (2e-8, 0.0, 4.0, -2.0, 0.2)],
    "pulled": [(1e-7, 1.0, 5.0, -2.0, 0.16), (1e-7, 10.0, 3.0, -0.4, 0.08)],
    "small": [(1e-9, 0.0, 0.5, -0.1, 0.01), (2e-9, 0.0, 1.0, -0.2, 0.02)],
}


def test_a_way_goes_along_the_number_that_its_cases_differ_by() -> None:
    rate, pulled, _ = methods_of(overview_of(remedies(WAYS)))
    assert (rate.label, rate.line, [case.values[0] for case in rate.cases]) == ("rate", True, [1e-8, 2e-8, 1e-7])
    assert (pulled.label, pulled.line, [case.values[1] for case in pulled.cases]) == ("pulled", True, [1.0, 10.0])


def test_at_equal_gain_ways_are_read_between_their_nearest_runs() -> None:
    # At 5 %, the largest gain of a run that two ways come to: half-way from 4 to 6 % by rate alone, and a run of the pulled.
    equal = at_equal_gain(overview_of(remedies(WAYS)))
    assert equal is not None
    assert (equal.gain, equal.without) == (5.0, ("small",))
    assert [(cost.method, cost.changes, cost.drift) for cost in equal.costs] == [
        ("pulled", {"arxiv": -2.0}, pytest.approx(0.16)),
        ("rate", {"arxiv": pytest.approx(-3.0)}, pytest.approx(0.25)),
    ]
    # Intervals of the samples are 1 % to either side, so that 0.5 % and 0.4 % are no evidence.
    assert [cost.harmless for cost in equal.costs] == [3.0, 2.0]


def test_the_gain_is_one_that_most_ways_come_to() -> None:
    third = {**WAYS, "low": [(1e-8, 0.0, 1.5, -0.1, 0.05), (2e-8, 0.0, 3.5, -1.0, 0.1)]}
    equal = at_equal_gain(overview_of(remedies(third)))
    assert equal is not None
    assert (equal.gain, len(equal.costs)) == (3.5, 3)


def test_where_a_way_comes_back_to_a_gain_its_place_of_least_drift_counts() -> None:
    there_and_back = [(1e-8, 0.0, 2.0, -1.0, 0.1), (2e-8, 0.0, 4.0, -3.0, 0.2), (3e-8, 0.0, 2.0, -9.0, 0.6)]
    plain_way = [(1e-8, 0.0, 1.0, 0.0, 0.1), (2e-8, 0.0, 3.0, -1.0, 0.3)]
    equal = at_equal_gain(overview_of(remedies({"back": there_and_back, "plain": plain_way})))
    assert equal is not None
    assert equal.gain == 3.0
    assert next(cost for cost in equal.costs if cost.method == "back").changes == {"arxiv": pytest.approx(-2.0)}


@pytest.mark.parametrize(
    "result",
    [
        simple_sweep(),  # one way
        make_sweep([make_run({RATE: rate}, make_tasks(1.0, 0.0)) for rate in (1e-8, 2e-8)], targets=("msmarco", "arxiv")),
        make_sweep([make_failed({RATE: 1e-8})]),
        remedies({"a": [(1e-8, 0.0, -2.0, 0.0, 0.1), (2e-8, 0.0, -1.0, 0.0, 0.1)], "b": [(1e-8, 0.0, -3.0, 0.0, 0.1)]}),
    ],
)
def test_without_two_ways_to_the_same_gain_there_is_nothing_to_compare(result: SweepResult) -> None:
    assert at_equal_gain(overview_of(result)) is None


def test_what_differs_by_two_numbers_is_no_line_and_not_compared() -> None:
    (way,) = methods_of(overview_of(with_other(grid_of(learning_rate=[1e-8, 2e-8], margin=[0.1, 0.2]))))
    assert not way.line
    panel, *_ = trades(overview_of(with_other(grid_of(learning_rate=[1e-8, 2e-8], margin=[0.1, 0.2]))))
    assert [(len(curve.points), curve.means) for curve in panel.curves] == [(4, ())]


def with_other(result: SweepResult) -> SweepResult:
    runs = [make_run(run.varied, make_tasks(2.0, -1.0)) for run in result.runs]
    return make_sweep(runs, varied=result.varied)


def test_no_limit_is_beyond_every_limit() -> None:
    values: list[Value] = [None, 0.1, 0.05]
    runs = [make_run({"guard.limit": value}, make_tasks(gain, -1.0)) for value, gain in zip(values, (3.0, 2.0, 1.0), strict=True)]
    (way,) = methods_of(overview_of(make_sweep(runs, varied=("guard.limit",))))
    assert ([case.values[0] for case in way.cases], way.line, way.label) == ([0.05, 0.1, None], True, "")


def test_the_figure_joins_ways_and_has_a_panel_for_the_drift() -> None:
    picture = plots.trade_picture(overview_of(remedies(WAYS)))
    assert picture is not None
    assert [panel.title for panel in picture.panels] == ["arxiv", "drift: overlap loss"]
    assert [[x for x, _ in curve.means] for curve in picture.panels[0].curves if len(curve.means) == 3] == [[2.0, 4.0, 6.0]]
    assert {"rate", "pulled", "small"} <= set(texts(plots.chart_of(picture).inline()))


def test_more_ways_than_a_figure_tells_apart_are_counted() -> None:
    result = remedies({f"way {number}": [(1e-8, 0.0, 1.0, 0.0, 0.1), (2e-8, 0.0, 2.0, -1.0, 0.2)] for number in range(9)})
    picture = plots.trade_picture(overview_of(result))
    assert picture is not None
    assert [len(panel.curves) for panel in picture.panels] == [8, 8]
    assert "8 of 9 methods are drawn" in pages.files(result)["report.html"]()


def test_the_table_tells_what_is_interpolated_and_who_is_left_out() -> None:
    seen = overview_of(remedies(WAYS))
    table = equal_gain_table(seen)
    assert table is not None
    assert "small" in table.lead
    rows = [[plain(cell.text) for cell in row] for _, row in table.cells()]
    assert rows == [["pulled", "−2.00 %", "0.1600", "+3.00 %"], ["rate", "≈ −3.00 %", "≈ 0.2500", "+2.00 %"]]


def test_seeds_are_taken_together_and_evidence_in_any_is_evidence() -> None:
    runs = [
        replace(make_run({RATE: rate}, make_tasks(gain, other), seed=seed, variant=name), drift=None)
        for name in ("a", "b")
        for rate, gain in ((1e-8, 2.0), (2e-8, 4.0))
        for seed, other in ((0, -3.0), (1, 0.0))
    ]
    seen = overview_of(make_sweep(runs))
    equal = at_equal_gain(seen)
    assert equal is not None
    assert [(cost.changes, cost.drift, cost.interpolated) for cost in equal.costs] == [({"arxiv": -1.5}, None, False)] * 2
    (panel,) = trades(seen)
    assert {point.open for curve in panel.curves for point in curve.points} == {False}
    table = equal_gain_table(seen)
    assert table is not None
    assert table.cells()[0][1][2].text == "–"


def test_a_task_without_percent_has_no_panel_and_a_setting_without_a_model_is_counted() -> None:
    runs = [make_run({RATE: rate}, make_tasks(2.0, None)) for rate in (1e-8, 2e-8)]
    assert trades(overview_of(make_sweep(runs))) == []
    page = pages.files(make_sweep([*simple_sweep().runs, make_failed({RATE: 1e-6})]))["report.html"]()
    assert "1 setting without a known gain" in plain(page)


def test_settings_of_exactly_one_gain_keep_their_intervals() -> None:
    picture = plots.trade_picture(overview_of(remedies({"soft": [(1e-8, 0.0, 2.0, -3.0, 0.1), (2e-8, 0.0, 2.0, -3.0, 0.1)]})))
    assert picture is not None
    (curve,) = picture.panels[0].curves
    lines = plots._lines(curve, ("#000000", "o"))
    assert any(ends is not None for line in lines for ends in line.intervals)
