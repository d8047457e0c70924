"""The figures of a sweep: which there are, and how their curves are drawn."""

import pytest

from adiabat.report import sweep_figures as figures
from adiabat.report.sweep_cases import overview_of
from adiabat.results.sweep_result import SweepResult
from tests.report.html_page import texts
from tests.report.sample_sweeps import RATES, even_sweep, failed_sweep, full_sweep, grid_of, make_sweep, simple_sweep, sweep_with_a_gap


def pictures_of(result: SweepResult) -> list[figures.Picture]:
    return figures.pictures(overview_of(result))


def test_each_setting_has_its_figures() -> None:
    kinds = ("improvement", "pairs", "drift", "validation")
    assert [picture.name for picture in pictures_of(full_sweep())] == [*(f"{kind}-learning-rate" for kind in kinds), "trade"]
    assert [picture.kind for picture in pictures_of(simple_sweep())] == ["improvement", "validation", "trade"]
    assert pictures_of(make_sweep([])) == pictures_of(failed_sweep(*RATES)) == []
    names = [picture.name for picture in pictures_of(grid_of(learning_rate=RATES, margin=[0.1, 0.2]))]
    assert len(names) == len(set(names))


def test_a_task_has_one_colour_and_marker_and_targets_are_named() -> None:
    tasks = [f"task {number}" for number in range(9)]
    picture = pictures_of(even_sweep(tasks, targets=tasks[:2]))[0]
    styles = figures._styles(picture)
    assert len(set(styles.values())) == len(tasks)
    shown = texts(figures.chart_of(picture).inline())
    assert {"task 0 (target)", "task 1 (target)", "task 8"} <= set(shown)


def test_runs_without_evidence_are_hollow_and_one_run_bears_its_interval() -> None:
    (panel,) = pictures_of(simple_sweep())[0].panels
    lines = figures._lines(panel.curves[0], ("#000000", "o"))
    hollow = [line for line in lines if line.hollow]
    assert [x for line in hollow for x, _ in line.points] == [1e-8]
    assert next(ends for line in lines for ends in line.intervals) is not None
    several = figures._lines(pictures_of(full_sweep())[0].panels[0].curves[0], ("#000000", "o"))
    assert all(not line.intervals for line in several)
    assert several[0].marker == ""


@pytest.mark.parametrize("result", [full_sweep(), sweep_with_a_gap()])
def test_failed_runs_are_marked_where_they_failed(result: SweepResult) -> None:
    picture = pictures_of(result)[0]
    failed = any(panel.failed for panel in picture.panels)
    assert ("a run failed" in texts(figures.chart_of(picture).inline())) == failed
