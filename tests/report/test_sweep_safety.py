"""The limit made of noise beside the labels of a sweep."""

from dataclasses import replace

import pytest

from adiabat.adiabatic.drift import MARGINS, OVERLAP_LOSS, ROTATION_SHARE
from adiabat.report import pages
from adiabat.report.sweep_analysis import drift_limits
from adiabat.report.sweep_cases import overview_of
from adiabat.report.sweep_page import drift_limit_table
from adiabat.results.drift_judgement import Drift, limits_of
from adiabat.results.sweep_result import SweepResult, SweepRun
from tests.report.html_page import plain
from tests.report.sample_sweeps import MARGIN, RATE, RATES, make_run, make_sweep, make_tasks

OTHERS = [0.5, 0.2, -0.3, -4.0]
"""Percent on the other task: worse at the highest rate alone, for the interval is 1 to each side."""

NOISE = {OVERLAP_LOSS: 0.1, MARGINS: 1.0, ROTATION_SHARE: 0.3}


def drifted(run: SweepRun, overlap: float) -> SweepRun:
    return replace(run, drift=Drift(600, {OVERLAP_LOSS: overlap, MARGINS: 2 * overlap, ROTATION_SHARE: 0.1}, {}))


def series(overlaps: list[float], others: list[float], **varied: float) -> list[SweepRun]:
    return [
        drifted(make_run({RATE: rate, **varied}, make_tasks(3.0, other)), overlap)
        for rate, overlap, other in zip(RATES, overlaps, others, strict=True)
    ]


def sweep(runs: list[SweepRun], **parts: object) -> SweepResult:
    return replace(make_sweep(runs), noise=NOISE, **parts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("overlaps", "safe", "agreement"),
    [([0.01, 0.02, 0.04, 0.05], 5e-8, "hit"), ([0.01, 0.05, 0.06, 0.07], 1e-8, "early"), ([0.01, 0.02, 0.03, 0.04], 1e-7, "late")],
)
def test_the_limit_of_noise_is_held_against_the_first_damage(overlaps: list[float], safe: float, agreement: str) -> None:
    found = {one.measure: one.judgement for one in drift_limits(overview_of(sweep(series(overlaps, OTHERS))))}
    # A share of the movement has no limit.
    assert set(found) == {OVERLAP_LOSS, MARGINS}
    one = found[OVERLAP_LOSS]
    assert one.limit == limits_of(NOISE)[OVERLAP_LOSS]
    assert (one.safe, one.harmless, one.harmed, one.agreement) == (safe, 5e-8, ("arxiv",), agreement)
    assert one.bracket == (overlaps[2], overlaps[3])


def test_a_run_that_failed_has_drifted_beyond_everything() -> None:
    runs = series([0.01, 0.02, 0.03, 0.04], [0.5, 0.2, 0.1, 0.1])
    runs[3] = replace(runs[3], status="failed", drift=None, tasks=[])
    one = drift_limits(overview_of(sweep(runs)))[0].judgement
    assert (one.safe, one.harmless, one.harmed) == (5e-8, 5e-8, ("no model",))


def test_a_ladder_ends_where_harm_is_not_known() -> None:
    runs = series([0.01, 0.02, 0.03, 0.04], [0.5, 0.2, 0.1, 0.1])
    unknown = replace(runs[2].tasks[1], changes=[replace(runs[2].tasks[1].main, verdict=None)])
    runs[2] = replace(runs[2], tasks=[runs[2].tasks[0], unknown])
    one = drift_limits(overview_of(sweep(runs)))[0].judgement
    assert (one.safe, one.harmless, one.harmed, one.agreement) == (2e-8, 2e-8, (), "untested")
    runs[0] = replace(runs[0], tasks=[runs[0].tasks[0], unknown])
    assert drift_limits(overview_of(sweep(runs))) == []


def test_each_margin_has_a_ladder_of_its_own() -> None:
    runs = series([0.01, 0.02, 0.04, 0.05], OTHERS, **{MARGIN: 0.1}) + series([0.05, 0.06, 0.07, 0.08], OTHERS, **{MARGIN: 0.3})
    found = drift_limits(overview_of(sweep(runs, varied=[RATE, MARGIN])))
    assert [(one.series, one.measure) for one in found[::2]] == [("margin 0.1", OVERLAP_LOSS), ("margin 0.3", OVERLAP_LOSS)]
    assert [one.judgement.agreement for one in found[::2]] == ["hit", "early"]
    assert found[2].judgement.safe is None
    table = drift_limit_table(overview_of(sweep(runs, varied=[RATE, MARGIN])))
    assert table is not None
    assert table.cells()[2][1][3].text == "no rate"


def test_nothing_is_judged_without_noise_other_tasks_or_rates() -> None:
    runs = series([0.01, 0.02, 0.04, 0.05], OTHERS)
    assert drift_limits(overview_of(replace(sweep(runs), noise={}))) == []
    assert drift_limits(overview_of(sweep(runs[:2]))) == []
    assert drift_limits(overview_of(sweep(runs, targets=["msmarco", "arxiv"]))) == []


def test_the_page_has_the_table_with_a_cell_for_each_column() -> None:
    seen = overview_of(sweep(series([0.01, 0.02, 0.04, 0.05], OTHERS)))
    table = plain(pages.files(seen.result)["report.html"]()).split('id="judged"')[1].split("</table>")[0]
    assert table.count("<th ") == 7
    row = table.split("<tbody>")[1].split("</tr>")[0]
    assert row.count("<td") == 7
    for cell in (OVERLAP_LOSS, "5e−8", "arxiv", "hit", "0.04000 to 0.05000"):
        assert f">{cell}<" in row
    assert 'id="judged"' not in pages.files(replace(seen.result, noise={}))["report.html"]()
