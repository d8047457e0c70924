"""The page of a sweep."""

import re
from dataclasses import replace
from functools import cache

import pytest

from adiabat.report import pages
from adiabat.results.sweep_result import SweepResult
from tests.report.html_page import NASTY
from tests.report.html_page import Page as Shown
from tests.report.sample_sweeps import (
    RATE,
    RATES,
    even_sweep,
    failed_sweep,
    full_sweep,
    make_failed,
    make_grid,
    make_run,
    make_sweep,
    make_task,
    simple_sweep,
)


def render_sweep(result: SweepResult) -> str:
    return pages.files(result)["report.html"]()


@cache
def full_html() -> str:
    """Drawn once for all tests that only read it."""
    return render_sweep(full_sweep())


def test_a_full_sweep_has_every_part() -> None:
    shown = Shown(full_html())
    parts = {
        "verdict",
        "settings-table",
        "all-measures",
        "against-0",
        "trade",
        "layers",
        "drift",
        "runs",
        "how-to-read",
        "made",
        "settings",
        "versions",
    }
    assert parts <= set(shown.ids())
    assert len(shown.ids()) == len(set(shown.ids()))
    assert "learning rate (4)" in shown.text
    assert "12, of 4 settings and 3 seeds" in shown.text
    assert "failed: the loss is not finite" in shown.text
    assert "Names are shown without encoder.layer." in shown.text
    assert len(shown.tags("svg")) == 5


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


def test_every_text_of_the_user_is_escaped() -> None:
    def nasty(rate: float):
        task = replace(make_task(NASTY, 2.0, grids=[make_grid(3, 1, comparison=NASTY)]), notes=[NASTY])
        layers = [replace(layer, name=NASTY) for layer in make_run({RATE: rate}).layers[:1]]
        return make_run({RATE: rate, NASTY: NASTY}, [task], variant=NASTY, layers=layers, device=NASTY, reason=NASTY)

    runs = [*map(nasty, RATES[:2]), make_failed({RATE: 5e-8, NASTY: NASTY}, reason=NASTY, variant=NASTY)]
    parts = {"title": NASTY, "command": NASTY, "model": NASTY, "notes": [NASTY], "settings": {NASTY: NASTY}, "versions": {NASTY: NASTY}}
    shown = Shown(render_sweep(make_sweep(runs, varied=(RATE, NASTY), tasks=(NASTY,), targets=(NASTY,), **parts)))
    assert len(shown.tags("script")) == 1
    assert shown.tags("img") == []
    assert "{{ 7 * 7 }}" in shown.text
