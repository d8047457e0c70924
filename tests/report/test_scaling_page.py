"""Sweeps and plans on disk: records that come back equal, pages that hold what was found and nothing else,
figures, tables.
"""

import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from adiabat.config.budgets import PlanSettings, ScalingSettings
from adiabat.config.reader import checked
from adiabat.core.progress import SILENT
from adiabat.core.text import NO_BREAK
from adiabat.experiments.plan import plan
from adiabat.experiments.scaling_analysis import evidence_of, fitted, result_of
from adiabat.report.scaling_figures import panels_of
from adiabat.report.scaling_headline import headline, reservations
from adiabat.report.scaling_page import crossing_row, terminal
from adiabat.results.record import read_result
from adiabat.results.scaling_result import CrossingRecord, ScalingResult, ScalingRun
from adiabat.runs.output_dir import write_report
from adiabat.scaling_laws.frontier import Crossing
from adiabat.scaling_laws.laws import Method
from tests.experiments.scaling.world import BUDGETS, SIZES, TRUTHS, load, row, rows_of, written
from tests.laws_once import equal_laws_are_fitted_once as equal_laws_are_fitted_once
from tests.report.html_page import html_of, printed

NONE = {"status": "failed", "reason": "<b>power</b> cut", "loss": None, "validation_loss": None}
FAILED = replace(row("full", 2_000_000, 1e12, 0.5), **NONE)
RANKS = [row("lora", 4_000_000, budget, 0.5 + 1 / rank, rank=rank) for budget in BUDGETS for rank in (8, 128)]
FROZEN = [
    row("freezing", size, budget, 0.6 + frozen / 20, frozen=frozen)
    for size in SIZES[:2]
    for budget in BUDGETS
    for frozen in (1, 2)
]


def recorded(title: str, rows: list[ScalingRun]) -> ScalingResult:
    settings = checked(ScalingSettings, {"scaling": {"resamples": 8}})
    evidence = evidence_of(rows, "validation", least_steps=10)
    fits = fitted(evidence, settings, SILENT)
    about = {"command": "adiabat scaling", "inputs": {"a": {"b": "c"}}}
    return result_of(settings, title, rows, evidence, fits, None, **about)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def swept() -> ScalingResult:
    """The record of a scaling experiment."""
    return recorded("sizes & methods", [*rows_of(scored=True), *RANKS, *FROZEN, FAILED])


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> ScalingResult:
    """The record of a plan."""
    path = written(tmp_path_factory.mktemp("plan"), rows_of())
    section = {"budget": 8 * BUDGETS[-1], "runs": str(path), "resamples": 8, "measure": False}
    return plan(load, checked(PlanSettings, {"plan": section}))


@pytest.mark.parametrize("which", ["swept", "planned"])
def test_a_record_comes_back_equal_with_its_page_and_figures(
    which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    result: ScalingResult = request.getfixturevalue(which)
    write_report(result, tmp_path)
    read = read_result(tmp_path / "result.json", ScalingResult)
    assert read == result
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") == len(panels_of(result)) == len(list((tmp_path / "figures").glob("*.svg")))
    assert (tmp_path / "train.toml").exists() == (which == "planned")


def test_a_page_holds_every_run_and_escapes_what_it_is_given(swept: ScalingResult) -> None:
    page = html_of(swept)
    assert "sizes &amp; methods" in page
    assert page.count('<td class="head"><span><span dir="auto">m') >= len(swept.runs)
    assert "left out: it failed: &lt;b&gt;power&lt;/b&gt; cut" in page
    assert "<b>power" not in page
    assert page.count("<script") == 1
    assert "http://" not in re.sub(r'xmlns(:xlink)?="[^"]*"', "", page)


def test_a_page_of_a_plan_says_what_to_train_and_why(planned: ScalingResult) -> None:
    page, advice = html_of(planned), planned.advice
    assert advice is not None
    assert advice.best is not None
    assert f"Train {advice.best.way.title} on " in page
    for one in advice.reasons:
        assert one.what in page
    assert "8 times the largest budget of its method" in page
    assert "Runs that would narrow the answer" in page


def test_intervals_of_a_plan_have_the_level_that_the_held_out_losses_show(planned: ScalingResult) -> None:
    assert planned.held_out is not None
    (width,) = planned.held_out.widths
    # The level of 16 scores is 16 / 17.
    assert (width.scores, width.level) == (16, 16 / 17)
    heads = {(16,): "94 %, held out", (19,): "95 %, held out", (8, 19): "at least 89 %, held out"}
    for scores, head in heads.items():
        widths = [replace(width, scores=each, level=min(0.95, each / (each + 1))) for each in scores]
        record = replace(planned.held_out, widths=widths)
        (table,) = terminal(replace(planned, held_out=record))
        assert head in [column.head.replace(NO_BREAK, " ") for column in table.columns]
    page = html_of(planned).replace(NO_BREAK, " ")
    assert "94 %, held out" in page
    assert "95 %, held out" not in page


def test_figures_show_what_there_is(swept: ScalingResult) -> None:
    by_name = panels_of(swept)
    assert list(by_name) == ["isoflop", "optimal", "frontier", "ranks", "frozen", "predicted", "downstream"]
    profile = by_name["isoflop"][0]
    assert profile.title == "full"
    points = profile.lines[0].points
    assert [x for x, _ in points] == list(map(float, SIZES))
    assert [y for _, y in points] == [
        one.validation_loss for one in swept.runs if one.way.method == "full" and one.budget == BUDGETS[0]
    ]
    assert [panel.title for panel in by_name["ranks"]] == ["m4"]
    assert [x for x, _ in by_name["ranks"][0].lines[0].points] == [8, 32, 128]
    assert [panel.title for panel in by_name["frozen"]] == ["m1", "m4"]
    # Half and three quarters are trained, and everything where nothing is frozen.
    assert [x for x, _ in by_name["frozen"][0].lines[0].points] == pytest.approx([0.5, 0.75, 1.0])
    (predicted,) = by_name["predicted"]
    assert next(len(line.points) for line in predicted.lines if line.hollow) == len(BUDGETS)
    assert predicted.lines[-1].style == ":"
    assert [panel.title for panel in by_name["downstream"]] == ["sts", "search"]
    # Correlations within families have no panels of their own.
    within = [replace(one, family="a family") for one in swept.downstream]
    assert panels_of(replace(swept, downstream=[*swept.downstream, *within])) == panels_of(swept)


def test_a_budget_has_one_colour_in_all_panels_of_a_figure(swept: ScalingResult) -> None:
    first, *others = swept.kinds
    rows = [one for one in swept.runs if (one.way.name, one.budget) != ("m1", BUDGETS[0])]
    fewer = replace(swept, kinds=[replace(first, profiles=first.profiles[1:]), *others], runs=rows)
    for panels in panels_of(fewer).values():
        colours = {(line.label, line.colour) for panel in panels for line in panel.lines if line.label}
        assert len(colours) == len({label for label, _ in colours})


def test_tokens_at_the_best_size_are_what_the_budget_pays_for(swept: ScalingResult) -> None:
    sizes, tokens = panels_of(swept)["optimal"]
    for (budget, size), (same, amount) in zip(sizes.lines[0].points, tokens.lines[0].points, strict=True):
        assert budget == same
        assert amount == pytest.approx(budget / (6 * size))


def test_a_page_tells_where_methods_change_places_near_to_their_budgets(tmp_path: Path) -> None:
    slopes: dict[Method, float] = {"full": -0.3, "lora": -0.2, "bias": -0.19}
    level = {"full": 1.0, "lora": 1.0, "bias": 3.0}
    rows = []
    for (method, slope), budget, (place, size) in product(slopes.items(), BUDGETS, enumerate(SIZES)):
        loss = level[method] * (budget / 1e14) ** slope * (1 + place / 10)
        rows.append(row(method, size, budget, loss, rank=64 if method == "lora" else None))
    result = recorded("crossed", rows)
    (one,) = result.crossings
    assert (one.before, one.after) == ("lora", "full")
    assert one.found.budget == pytest.approx(1e14)
    page = html_of(result)
    assert "Where one method overtakes another" in page
    for cell in crossing_row(one).values():
        assert f">{cell}</span>" in page
    write_report(result, tmp_path)
    assert read_result(tmp_path / "result.json", ScalingResult) == result


def test_the_ends_of_a_crossing_may_be_beyond_every_number() -> None:
    row = crossing_row(CrossingRecord("tiny", "lora", "full", Crossing(2e14, (0.0, None), 0.9)))
    assert [*row.values()] == ["tiny", "lora", "full", "2e+14", "[0, \N{INFINITY}]", f"90{NO_BREAK}%"]
    alone = crossing_row(CrossingRecord("tiny", "lora", "full", Crossing(2e14, None, None)))
    assert [*alone.values()][-2:] == ["", None]


def test_the_head_line_names_the_best_run_of_the_largest_budget(swept: ScalingResult) -> None:
    kept = [one for one in swept.runs if one.budget == BUDGETS[-1]]
    best = min(kept, key=lambda one: one.validation_loss or 9)
    assert headline(swept).startswith("At 6.4e+14 FLOP the least validation loss is ")
    assert headline(swept).endswith(f": {best.way.title}.")
    assert any(
        said.startswith(f"Laws exclude 1{NO_BREAK}run of {len(swept.runs)}") for said in reservations(swept)
    )


@pytest.mark.parametrize(("passes", "told"), [(1.02, ""), (1.2, "1.2 times")])
def test_runs_that_read_their_data_again_are_told_from_what_can_be_seen(
    swept: ScalingResult, passes: float, told: str
) -> None:
    rows = [replace(one, passes=passes if place == 0 else 0.5) for place, one in enumerate(swept.runs)]
    said = [one for one in reservations(replace(swept, runs=rows)) if "went over the data" in one]
    assert [told in one for one in said] == ([True] if told else [])


def test_tables_for_the_terminal(swept: ScalingResult, planned: ScalingResult) -> None:
    assert "error on the largest" in printed(swept, width=100)
    told = printed(planned, width=100)
    assert planned.advice is not None
    assert planned.advice.best is not None
    assert planned.advice.best.way.title in told
    assert "Runner-up" in told
    # Names of options survive in a terminal of 80 columns.
    assert "straight line" in (narrow := printed(planned, width=80))
    assert planned.advice.best.way.title in narrow


def test_a_scaling_without_a_loss_still_has_a_page() -> None:
    evidence = evidence_of([FAILED], "validation", least_steps=10)
    settings = checked(ScalingSettings, {"models": [{"model": "m", "pretraining_rate": 1e-3}]})
    result = result_of(settings, "all failed", [FAILED], evidence, [], None, command="")
    assert "No run has given a loss." in html_of(result)
    assert panels_of(result) == {}


def test_laws_are_those_of_the_truth(swept: ScalingResult) -> None:
    full = next(one for one in swept.kinds if one.kind.method == "full")
    assert full.law is not None
    for own in full.law.predicted:
        named = next(one for one in swept.runs if one.name == own.run)
        assert own.fitted == pytest.approx(TRUTHS["full"](named.option.size, named.tokens), rel=0.02)
