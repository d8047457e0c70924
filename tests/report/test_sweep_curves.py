"""What the figures of a sweep show, before anything is drawn."""

from dataclasses import replace

import pytest

from adiabat.report import sweep_analysis as analysis
from adiabat.report import sweep_figures as curves
from adiabat.report.sweep_cases import Setting, overview_of
from tests.report.sample_sweeps import (
    MARGIN,
    RATE,
    RATES,
    drift_at,
    failed_sweep,
    full_sweep,
    grid_of,
    make_run,
    make_sweep,
    make_task,
    simple_sweep,
    sweep_with_a_gap,
)

DECAY = "tune.weight_decay"


def only_series(result):
    seen = overview_of(result)
    (series,) = analysis.series_of(seen)
    return seen, series


# --- Improvement ---


def test_a_curve_has_a_point_for_each_run_and_a_mean_for_each_value() -> None:
    seen, series = only_series(full_sweep())
    (panel,) = curves.improvements(seen, series)
    assert [(curve.label, curve.role) for curve in panel.curves] == [
        ("msmarco", "target"),
        ("arxiv", "other"),
        ("title", "other"),
        ("xnli", "other"),
    ]
    target = panel.curves[0]
    assert len(target.points) == 11
    for x, mean in target.means:
        values = [point.y for point in target.points if point.x == x]
        assert mean == pytest.approx(sum(values) / len(values))
    assert panel.failed == (1e-7,)
    assert panel.title == ""


def test_markers_are_open_where_the_verdict_is_no_evidence() -> None:
    seen, series = only_series(simple_sweep({1e-8: (0.5, 0.2), 2e-8: (3.0, -0.9), 5e-8: (1.0, 1.001), 1e-7: (-9.0, -2.0)}))
    (panel,) = curves.improvements(seen, series)
    target, other = panel.curves
    assert [point.open for point in target.points] == [True, False, True, False]
    assert [point.open for point in other.points] == [True, True, False, False]
    assert [point.interval for point in target.points] == [pytest.approx((y - 1, y + 1)) for y in (0.5, 3.0, 1.0, -9.0)]


def test_points_go_from_left_to_right_whatever_the_order_of_runs() -> None:
    result = simple_sweep()
    seen, series = only_series(result)
    turned, other = only_series(replace(result, runs=result.runs[::-1]))
    assert curves.improvements(turned, other) == curves.improvements(seen, series)
    assert [point.x for point in curves.improvements(seen, series)[0].curves[0].points] == RATES


def test_a_value_at_which_every_run_failed_is_a_gap_and_a_cross() -> None:
    seen, series = only_series(sweep_with_a_gap())
    (panel,) = curves.improvements(seen, series)
    assert panel.failed == (2e-8,)
    assert panel.curves[0].means == ((1e-8, 2.0), (2e-8, None), (5e-8, 2.0))


def test_a_task_without_percent_or_that_nothing_measured_has_no_curve() -> None:
    seen, series = only_series(simple_sweep({1e-8: (0.5, None), 2e-8: (3.0, None)}, tasks=("msmarco", "arxiv", "absent")))
    assert [curve.label for curve in curves.improvements(seen, series)[0].curves] == ["msmarco"]


# --- What is drawn against what ---


def test_only_numbers_with_two_values_are_drawn_against() -> None:
    assert analysis.series_of(overview_of(grid_of(learning_rate=[1e-8], freeze=[["a"], ["b"]]))) == []
    assert analysis.series_of(overview_of(grid_of(dropout=[True, False]))) == []
    assert analysis.series_of(overview_of(grid_of(weight_decay=[None, 0.1]))) == []
    assert analysis.series_of(overview_of(make_sweep([]))) == []
    seen, series = only_series(grid_of(learning_rate=[1e-8], idle_epochs=[5, 10, 15]))
    assert (series.setting.label, [x for x, _ in series.combinations[0].cases]) == ("idle epochs", [5.0, 10.0, 15.0])
    assert len(seen.settings) == 2


def test_each_combination_of_the_others_has_its_own_curve() -> None:
    seen = overview_of(
        grid_of(learning_rate=[1e-8, 2e-8, 5e-8], margin=[0.1, 0.2], freeze=[["embeddings"], ["embeddings", "blocks[0]"], []])
    )
    rate, margin = analysis.series_of(seen)
    assert (len(rate.combinations), rate.of, rate.alone) == (6, 6, 0)
    assert [one.label for one in rate.combinations][:3] == [
        "margin 0.1, freeze embeddings",
        "margin 0.1, freeze embeddings + blocks[0]",
        "margin 0.1, freeze none",
    ]
    # Three rates with three freezings are more than can be told apart.
    assert (len(margin.combinations), margin.of) == (1, 9)
    assert margin.combinations[0].label == "learning rate 1e-8, freeze embeddings"
    assert [panel.title for panel in curves.improvements(seen, rate)] == [one.label for one in rate.combinations]


def test_of_too_many_combinations_the_one_with_most_runs_is_drawn() -> None:
    result = grid_of(learning_rate=[1e-8, 2e-8], margin=[0.1 * place for place in range(1, 9)])
    again = [replace(run, name=f"{run.name} again", seed=9) for run in result.runs if run.varied[MARGIN] == 0.5]
    rate, _ = analysis.series_of(overview_of(replace(result, runs=[*result.runs, *again])))
    assert [one.label for one in rate.combinations] == ["margin 0.5"]
    assert rate.of == 8


def test_settings_that_go_together_make_one_curve() -> None:
    pairs = [(7, 2.5e-8), (14, 5e-8), (28, 1e-7)]
    runs = [make_run({"tune.batch_size": size, RATE: rate}, [make_task("msmarco", 2.0)]) for size, rate in pairs]
    sizes, rates = analysis.series_of(overview_of(make_sweep(runs, varied=("tune.batch_size", RATE))))
    assert (sizes.tied, len(sizes.combinations), sizes.combinations[0].label) == (("learning rate",), 1, "")
    assert (rates.tied, [x for x, _ in rates.combinations[0].cases]) == (("batch size",), [2.5e-8, 5e-8, 1e-7])


def test_settings_that_share_the_rest_with_no_other_are_counted() -> None:
    result = grid_of(learning_rate=[1e-8, 2e-8], margin=[0.1, 0.2])
    lonely = make_run({RATE: 5e-8, MARGIN: 0.7}, [make_task("msmarco", 2.0)])
    rate, _ = analysis.series_of(overview_of(replace(result, runs=[*result.runs, lonely])))
    assert (rate.of, rate.alone) == (2, 1)
    scattered = [make_run({RATE: rate, MARGIN: margin}) for rate, margin in ((1e-8, 0.1), (2e-8, 0.2), (2e-8, 0.3), (5e-8, 0.3))]
    assert [series.of for series in analysis.series_of(overview_of(make_sweep(scattered, varied=(RATE, MARGIN))))] == [1, 1]


@pytest.mark.parametrize(
    ("name", "values", "scale"),
    [
        (RATE, (1e-8, 2e-8), "log"),
        (MARGIN, (0.05, 0.1, 0.5), "linear"),
        (MARGIN, (0.0, 0.1), "linear"),
        (DECAY, (0.05, 1.0), "log"),
        (DECAY, (0.0, 0.05, 100.0), "symlog"),
        (DECAY, (-1.0, 100.0), "linear"),
        (DECAY, (0, 0), "linear"),
    ],
)
def test_the_axis_follows_the_span_of_values(name, values, scale) -> None:
    assert analysis.scale_of(Setting(name, "", values)) == scale


# --- Language pairs ---


def test_pairs_are_counted_up_and_down_and_by_the_z_test() -> None:
    seen, series = only_series(full_sweep(seeds=(0,)))
    found = curves.pairs(seen, series)
    assert [compared for compared, _ in found] == [("xnli", "entailment-neutral", "cosine"), ("xnli", "entailment-contradiction", "cosine")]
    (panel,) = found[0][1]
    assert [(curve.label, curve.role, curve.faint) for curve in panel.curves] == [
        ("improved", "improved", False),
        ("worsened", "worsened", False),
        ("improved, z-test", "improved", True),
        ("worsened, z-test", "worsened", True),
    ]
    assert [[mean for _, mean in curve.means] for curve in panel.curves] == [
        [60.0, 120.0, 194.0, 198.0],
        [0.0, 0.0, 6.0, 24.0],
        [59.0, 119.0, 193.0, 197.0],
        [2.0, 2.0, 8.0, 26.0],
    ]
    assert panel.ceiling == 225
    assert not any(point.open for curve in panel.curves for point in curve.points)


# --- Drift and validation ---


def test_drift_has_a_panel_for_each_measure_with_its_interval() -> None:
    runs = [make_run({RATE: rate}, drift=drift_at(rate)) for rate in RATES]
    further = replace(drift_at(1e-8), means={"rotation share": 0.5, "turn": 0.1}, errors={})
    seen, series = only_series(make_sweep([*runs, make_run({RATE: 2e-7}, drift=further)]))
    panels = curves.drifts(seen, series)
    assert [panel.title for panel in panels] == ["overlap loss", "margins", "turn", "rotation share"]
    first = panels[0].curves[0].points[0]
    assert (first.y, first.interval) == (pytest.approx(0.004), pytest.approx((0.004 - 1.96 * 0.0004, 0.004 + 1.96 * 0.0004)))
    assert panels[2].curves[0].points[-1].interval is None
    assert panels[0].curves[0].means[-1] == (2e-7, None)


def test_steps_and_the_kept_epoch_are_shown_of_each_run() -> None:
    _, series = only_series(full_sweep())
    steps, epochs = curves.validations(series)
    assert [point.y for point in steps.curves[0].points][:3] == [13_000.0, 14_000.0, 15_000.0]
    assert [point.y for point in epochs.curves[0].points][:3] == [3.0, 4.0, 5.0]
    assert steps.failed == (1e-7,)


def test_where_all_failed_nothing_is_shown() -> None:
    seen, series = only_series(failed_sweep(*RATES))
    assert curves.validations(series) == ()
    assert curves.drifts(seen, series) == ()
    assert curves.improvements(seen, series)[0].curves == ()
