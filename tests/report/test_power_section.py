"""What a set could show, in one line."""

from dataclasses import replace

from adiabat.report.power_section import finding, in_brief
from adiabat.results.power_record import Power
from tests.report.html_page import plain

LIMITS = {"detectable": 0.315, "excludable": None, "room": 0.5, "margin": 0.005, "margin_text": "1 %"}
SEVEN = Power(measure="RR", before=0.5, units=7, unit="query", needed=19_876, **LIMITS)  # type: ignore[arg-type]


def test_one_line_has_the_gain_that_shows_and_the_queries_that_a_loss_takes() -> None:
    # 0.315 of 0.5 is 63 %.
    gain, loss = "7 queries show gains of 63 % or more", "excluding a loss of 1 % takes about 20,000 queries"
    assert plain(in_brief(SEVEN)) == f"{gain}; {loss}"
    assert plain(in_brief(replace(SEVEN, needed=None, name="mine"))) == f"mine: {gain}"


def test_a_set_that_shows_nothing_has_its_whole_finding() -> None:
    for nothing in (replace(SEVEN, detectable=0.6), replace(SEVEN, varies=False)):
        assert in_brief(nothing) == finding(nothing)
