"""The page of a sweep."""

import re
from functools import cache

import pytest

from adiabat.report import pages
from adiabat.results.sweep_result import SweepResult
from tests.report.html_page import Page as Shown
from tests.report.sample_sweeps import even_sweep, failed_sweep, full_sweep, make_sweep, simple_sweep


def render_sweep(result: SweepResult) -> str:
    return pages.files(result)["report.html"]()


@cache
def full_html() -> str:
    """Drawn once for all tests that only read it."""
    return render_sweep(full_sweep())


def test_a_page_has_the_facts_of_its_runs() -> None:
    shown = Shown(full_html())
    assert "learning rate (4)" in shown.text
    assert "12, of 4 settings and 3 seeds" in shown.text
    assert "failed: the loss is not finite" in shown.text
    assert "Names are shown without encoder.layer." in shown.text


@pytest.mark.parametrize(
    ("result", "absent"),
    [
        (make_sweep([]), {"settings-table", "against-0", "layers", "drift", "runs", "figures"}),
        (failed_sweep(1e-8), {"against-0", "layers", "drift"}),
        (even_sweep(["msmarco"], rates=[1e-8]), {"against-0", "drift"}),
        (simple_sweep(), {"drift", "figures"}),
    ],
    ids=["nothing", "all failed", "one run", "no grid and no drift"],
)
def test_parts_without_data_are_left_out(result: SweepResult, absent) -> None:
    shown = Shown(render_sweep(result))
    assert not absent & set(shown.ids())
    assert "verdict" in shown.ids()


def test_the_setting_that_gains_most_without_harm_is_shaded() -> None:
    rows = re.findall(r'<tr class="safe">\s*<th[^>]*><span>\s*<span dir="auto">([^<]*)', full_html())
    assert rows == ["5e-8"]
    assert '<tr class="safe">' not in render_sweep(simple_sweep({1e-8: (1.0, -3.0), 2e-8: (1.0, -4.0)}))
