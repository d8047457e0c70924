"""What people read of a search for the largest safe rate: sentences, tables, the page and its files, from the
record alone.
"""

import math
from functools import cache

import pytest

from adiabat.report import rate_search_headline as words
from adiabat.results.rate_search_result import SafeRate
from tests.report.html_page import Page, csv_rows, html_of, plain, printed
from tests.report.sample_safe_rates import (
    EVERY,
    LIMIT,
    diverged_search,
    full_search,
    make_safe_rate,
    seeds_search,
    trial_of,
    unsafe_search,
)

STEPS = list(range(100, 1001, 100))


def one_run(drift: list[float], steps: list[int] = STEPS) -> SafeRate:
    return make_safe_rate([trial_of(1e-8, steps, drift)], 1e-8)


# --- Sentences ---

HELD = "Up to a learning rate of {} the answers stay within noise for 1,000 steps, tried with"
LEFT = "No rate in the search keeps the answers within the limit of 0.001 for 1,000 steps;"


@pytest.mark.parametrize(
    ("search", "sentence"),
    [
        ("full", f"{HELD.format('4.64e-8')} 1 seed; at 1e-7, drift exceeds it after 900 steps."),
        ("seeds", f"{HELD.format('4.64e-8')} 2 seeds; at 1e-7, drift exceeds it after 800 steps."),
        ("top", f"{HELD.format('1e-8')} 1 seed."),
        ("unsafe", f"{LEFT} at 1e-8, drift exceeds it after 150 steps."),
    ],
)
def test_the_head_line_says_the_verdict(search: str, sentence: str) -> None:
    result = EVERY[search]()
    assert plain(words.headline(result)) == sentence
    assert words.tone(result) == ("bad" if search == "unsafe" else "good")


def test_only_a_last_check_beyond_the_limit_exceeds_it() -> None:
    ended = [words.ended(trial) for trial in diverged_search().trials]
    assert ended == [*["diverged"] * 3, "left", "inside"]


def test_a_limit_of_noise_is_taken_apart_and_a_given_one_said_to_be_given() -> None:
    noise = plain(words.about_limit(full_search()))
    assert "a drift of 0.0458 by overlap loss, derived from noise" in noise
    assert "of the 680 probes makes the untuned tower's results drift by 0.100." in noise
    assert "The limit is 46 % of that; independent drift of this size increases the noise by 10 %." in noise
    given = words.about_limit(unsafe_search())
    assert given == "The limit is a drift of 0.001 by overlap loss, taken from the settings, not measured."


def test_notes_of_the_search_are_reservations() -> None:
    assert "Note: larger ones may be safe too" in words.reservations(EVERY["top"]())
    assert not any("Note" in said for said in words.reservations(full_search()))


@pytest.mark.parametrize(
    ("result", "steps"),
    [
        # 0.01 (t / 1000): 0.0458 at 4,580.
        (one_run([1e-5 * step for step in STEPS]), "about 4,600"),
        (one_run([0.03 * (step / 1000) ** 0.02 for step in STEPS]), "more than 100,000"),
        (one_run([LIMIT * step / 1001 for step in STEPS]), "about 1,000"),
        # Drift that does not grow.
        (one_run([0.04 - 1e-6 * step for step in STEPS]), "more than 100,000"),
        (one_run([0.01, 0.02, 0.03], STEPS[:3]), "an unknown number of"),
        (one_run([0.0] * 10), "an unknown number of"),
        # (0.0458 / (2000 * 4.64e-8 * 1.3)) ** 1.25 of the faster of two seeds.
        (seeds_search(), "about 1,700"),
    ],
)
def test_how_long_the_rate_lasts_is_said_to_be_extrapolated_or_unknown(result: SafeRate, steps: str) -> None:
    (sentence,) = words.pace(result)
    assert f" {steps} steps" in sentence
    assert "an extrapolation" in sentence
    assert sentence in words.reservations(result)
    assert words.pace(unsafe_search()) == []


# --- When drift is expected to reach its limit, by curves whose answer is known ---

LOOKS = list(range(50, 1_001, 50))


@pytest.mark.parametrize("exponent", [1.0, 0.5, 0.8])
def test_a_power_of_the_steps_is_solved_for_the_limit(exponent: float) -> None:
    drift = [0.001 * step**exponent for step in LOOKS]
    limit = 0.001 * 7_000**exponent
    assert words.expected_leave(LOOKS, drift, limit) == pytest.approx(7_000)


def test_the_earlier_half_does_not_count() -> None:
    drift = [9.0 if step <= 500 else 1e-5 * step for step in LOOKS]
    assert words.expected_leave(LOOKS, drift, 0.02) == pytest.approx(2_000)


def test_drift_that_does_not_grow_never_reaches_it() -> None:
    assert (
        words.expected_leave(LOOKS, [0.01] * 10 + [0.02 - 0.0001 * place for place in range(10)], 0.1)
        == math.inf
    )


def test_too_few_looks_or_no_drift_say_nothing() -> None:
    assert words.expected_leave([], [], 0.1) is None
    assert words.expected_leave([10, 20, 30, 40], [0.1, 0.2, 0.3, 0.4], 0.5) is None
    assert words.expected_leave([10, 20, 30, 40, 50, 60], [0.0] * 6, 0.5) is None


# --- Tables ---


def test_the_terminal_shows_the_highest_rate_first_and_the_head_line_below() -> None:
    said = printed(diverged_search())
    rows = [line.split() for line in said.splitlines() if line.rstrip().endswith("12 s")]
    assert [row[0] for row in rows] == ["0.0001", "1e-5", "1e-6", "1e-7", "1e-8"]
    assert rows[0][2:7] == ["–", "0", "–", "diverged", "after"]
    assert rows[3][2:7] == ["900", "18", "0.0462", "exceeded", "after"]
    assert rows[4][2:7] == ["1,000", "20", "0", "stays", "within"]
    assert "Up to a learning rate of 1e-8 the answers stay within noise" in " ".join(said.split())
    assert max(map(len, said.splitlines())) <= 80


def test_the_csv_holds_every_run_unrounded() -> None:
    rows = csv_rows(diverged_search())
    assert [row["ended"] for row in rows] == ["diverged", "diverged", "diverged", "left", "inside"]
    assert (rows[0]["last_check"], rows[0]["drift: overlap loss"], rows[0]["left_at"]) == ("", "", "0")
    left = diverged_search().trials[3]
    assert (rows[3]["drift: turn"], rows[3]["left_at"]) == (repr(left.drift["turn"][-1]), "900")
    assert (rows[4]["rate"], rows[4]["left_at"], rows[4]["drift: margins"]) == ("1e-08", "", "0.0")


# --- The page ---


@cache
def html(search: str) -> str:
    return html_of(EVERY[search]())


def test_a_page_shows_noise_where_the_limit_is_made_of_it_and_the_runs_of_the_safe_rate_shaded() -> None:
    assert ">noise</span></th>" in html("full")
    assert ">noise</span></th>" not in html("unsafe")
    assert "largest safe rate, at the end" not in html("unsafe")
    assert html("seeds").count('<tr class="safe">') == 2
    assert '<tr class="safe">' not in html("unsafe")
    shown = Page(html("seeds")).text
    assert "1e-7 0.0442 (seed 0), 0.0462 (seed 1) 0.0442 to 0.0462 1 of 2" in shown
    assert "4.64e-8 0.0233 (seed 0), 0.0303 (seed 1) 0.0233 to 0.0303 2 of 2" in shown
