"""The page of a sweep."""

import re
from functools import cache

import pytest

from adiabat.adiabatic.drift import MARGINS, OVERLAP_LOSS
from adiabat.report.sweep_page import drift_limit_table
from adiabat.results.sweep_result import SweepResult
from tests.experiments.sweep.test_sweep_analysis import NOISE, OTHERS, series
from tests.report.html_page import Page, html_of, plain
from tests.report.sample_sweeps import (
    MARGIN,
    RATE,
    even_sweep,
    failed_sweep,
    full_sweep,
    grid_of,
    make_run,
    make_sweep,
    simple_sweep,
)
from tests.report.test_sweep_figures import many_ways


@cache
def full_html() -> str:
    """Drawn once for all tests that only read it."""
    return html_of(full_sweep())


def test_a_page_has_the_facts_of_its_runs() -> None:
    grid = ("learning rate (4)", "12, of 4 settings and 3 seeds", "failed: the loss is not finite")
    assert Page(full_html()).lacks(*grid, "encoder.layer.1.output.dense.bias 0.0526") == []


@pytest.mark.parametrize(
    ("result", "absent"),
    [
        (make_sweep([]), {"settings-table", "against-0", "layers", "drift", "runs", "figures"}),
        (make_sweep([make_run({RATE: 1e-8})], tasks=()), {"against-0", "trade", "drift"}),
        (failed_sweep(1e-8), {"against-0", "layers", "drift"}),
        (even_sweep(["msmarco"], rates=[1e-8]), {"against-0", "drift"}),
        (simple_sweep(), {"drift", "figures"}),
    ],
    ids=["nothing", "no task", "all failed", "one run", "no grid and no drift"],
)
def test_parts_without_data_are_left_out(result: SweepResult, absent) -> None:
    shown = Page(html_of(result))
    assert not absent & set(shown.ids())
    assert "verdict" in shown.ids()


def test_the_setting_that_gains_most_without_harm_is_shaded() -> None:
    rows = re.findall(r'<tr class="safe">\s*<th[^>]*><span>\s*<span dir="auto">([^<]*)', full_html())
    assert rows == ["5e-8"]
    assert '<tr class="safe">' not in html_of(simple_sweep({1e-8: (1.0, -3.0), 2e-8: (1.0, -4.0)}))


def test_limits_on_drift_have_a_table_with_a_cell_for_each_column() -> None:
    runs = series([0.01, 0.02, 0.04, 0.05], OTHERS)
    table = plain(html_of(make_sweep(runs, noise=NOISE))).split('id="judged"')[1].split("</table>")[0]
    assert table.count("<th ") == 7
    row = table.split("<tbody>")[1].split("</tr>")[0]
    assert row.count("<td") == 7
    for cell in (OVERLAP_LOSS, "5e−8", "arxiv", "hit", "0.04000 to 0.05000"):
        assert f">{cell}<" in row
    assert 'id="judged"' not in html_of(make_sweep(runs))
    both = [
        *series([0.01, 0.02, 0.04, 0.05], OTHERS, **{MARGIN: 0.1}),
        *series([0.05, 0.06, 0.07, 0.08], OTHERS, **{MARGIN: 0.3}),
    ]
    limits = drift_limit_table(make_sweep(both, noise=NOISE, varied=[RATE, MARGIN]))
    assert limits is not None
    third = [cell.text for cell in limits.rows[2].cells[:4]]
    assert third == ["margin 0.3", OVERLAP_LOSS, "0.04583", "no rate"]
    assert [row.cells[1].text for row in limits.rows] == [OVERLAP_LOSS, MARGINS] * 2


def scattered() -> SweepResult:
    names = (RATE, MARGIN, "tune.batch_size")
    values = ((1e-8, 0.1, 8), (1e-8, 0.2, 16), (2e-8, 0.1, 16), (2e-8, 0.2, 8))
    return make_sweep([make_run(dict(zip(names, one, strict=True))) for one in values], varied=names)


@pytest.mark.parametrize(
    ("result", "drawn"),
    [
        pytest.param(grid_of(optimizer=["adamw", "sgd"]), False, id="words"),
        pytest.param(even_sweep(["msmarco"], rates=[1e-8]), False, id="one setting"),
        pytest.param(scattered(), False, id="apart"),
        pytest.param(full_sweep(), True, id="drawn"),
    ],
)
def test_a_page_without_curves_says_why(result: SweepResult, drawn: bool) -> None:
    shown = Page(full_html() if drawn else html_of(result))
    assert ("figures" in shown.ids()) is not drawn
    assert ("No two settings differ in one number alone" in shown.text) is not drawn


def test_what_is_not_drawn_is_counted() -> None:
    assert "8 of 9 methods are drawn" in html_of(many_ways())
