"""Settings of a sweep beside one another: their comparison as models of a suite, and what they cost."""

from dataclasses import replace

import pytest

from adiabat.experiments.sweep_analysis import with_variation
from adiabat.report import pages
from adiabat.report.sweep_costs import cost_table, step_time
from adiabat.report.sweep_headline import headline, reservations, tone
from adiabat.results.sweep_result import Speed, SweepResult
from tests.report.html_page import Page, html_of, plain, printed, texts
from tests.report.sample_sweeps import make_change, trained_sweep

DATA = trained_sweep({"asked": {"squad": 0.61, "quora": 0.55, "untrained": 0.50}})
SPEEDS = {"large": 100.0, "small": 1000.0, "slow": 90.0}


def backbones() -> SweepResult:
    """Three models; the slow one is both slower and worse than the large one."""
    result = trained_sweep({"asked": {"large": 0.61, "small": 0.60, "slow": 0.55}})
    speeds = {name: Speed(speed, 0.9 * speed, 1.1 * speed, 512, 5) for name, speed in SPEEDS.items()}
    return replace(result, runs=[replace(run, start=run.variant) for run in result.runs], speed=speeds)


def test_a_sweep_over_training_says_which_setting_is_best_as_a_suite_does() -> None:
    said = plain(headline(DATA))
    assert said.startswith("2 runs completed. squad is best on asked, nDCG@10 0.610 [0.590, 0.630]")
    assert "quora (−0.060" in said
    assert tone(DATA) == "good"
    assert any("Benjamini" in sentence for sentence in reservations(DATA))


def test_settings_below_their_start_are_no_good_news() -> None:
    worse = trained_sweep({"asked": {"squad": 0.45, "quora": 0.40, "untrained": 0.50}})
    tasks = [replace(task, changes=[make_change(-10.0)]) for task in worse.runs[0].tasks]
    assert tone(worse) == "plain"
    runs = [replace(worse.runs[0], tasks=tasks), worse.runs[1]]
    said = plain(" ".join(reservations(with_variation(replace(worse, runs=runs)))))
    assert "Worse than their start on a target: squad." in said


def test_the_page_has_the_comparison_before_the_settings_and_the_cost_after_both() -> None:
    shown = Page(html_of(DATA))
    ids = shown.ids()
    places = [ids.index(name) for name in ("models-by-tasks", "tasks", "settings-table", "costs", "runs")]
    assert places == sorted(places)
    assert len(ids) == len(set(ids))
    assert "409,600" in shown.text
    assert "documents per second" not in shown.text


def test_the_terminal_has_scores_differences_and_costs() -> None:
    said = printed(DATA)
    assert max(map(len, said.splitlines())) <= 80
    assert "squad" in said
    assert "untrained" in said
    assert "84 ms" in said


def test_models_have_their_size_and_speed_and_one_that_is_slower_and_worse_is_hollow() -> None:
    result = backbones()
    row = cost_table(result).rows[1]
    assert [plain(cell.text) for cell in row.cells[:3]] == ["small", "22.7 M", "1,000"]
    shown = Page(html_of(result))
    assert "documents per second" in shown.text
    (figure,) = [
        section.charts[0]
        for group in pages._module(result).page(result).sections
        if group is not None and group.id == "costs"
        for section in group.sections
        if section.kind == "figure"
    ]
    assert set(SPEEDS) <= set(texts(figure.inline()))


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.084, "84 ms"), (0.9961, "1.00 s"), (12.345, "12.35 s"), (0.0012345, "1.23 ms")]
)
def test_the_time_of_a_step_has_three_digits(seconds: float, told: str) -> None:
    assert plain(step_time(seconds)) == told
