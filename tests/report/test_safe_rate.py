"""What people read of a search for the largest safe rate: sentences, tables, the page and its files, from the
record alone.
"""

import csv
import io
from functools import cache

import pytest

from adiabat.report import pages
from adiabat.report import rate_search_headline as words
from adiabat.results.rate_search_result import SafeRate
from tests.report.html_page import Page, plain, printed
from tests.report.sample_safe_rates import (
    EVERY,
    LIMIT,
    diverged_search,
    full_search,
    make_safe_rate,
    make_trial,
    seeds_search,
    trial_of,
    unsafe_search,
)


def csv_of(result: SafeRate) -> str:
    return pages.files(result)["table.csv"]()


STEPS = list(range(100, 1001, 100))


def one_run(drift: list[float], steps: list[int] = STEPS) -> SafeRate:
    return make_safe_rate([trial_of(1e-8, steps, drift)], 1e-8)


# --- Sentences ---


@pytest.mark.parametrize(
    ("search", "sentence"),
    [
        (
            "full",
            "Up to a learning rate of 4.64e-8 the answers stay within noise for 1,000 "
            "steps; at 1e-7, drift exceeds it after 900 steps.",
        ),
        (
            "seeds",
            "Up to a learning rate of 4.64e-8 the answers stay within noise "
            "for 1,000 steps with each of 2 seeds; "
            "at 1e-7, drift exceeds it after 800 steps with 1 of 2 seeds.",
        ),
        ("top", "Even the highest rate in the search, 1e-8, stays within noise for 1,000 steps."),
        (
            "unsafe",
            "No rate in the search stays within the limit of 0.001 for 1,000 "
            "steps: even at the lowest, 1e-8, "
            "drift exceeds it after 150 steps.",
        ),
    ],
)
def test_the_head_line_says_the_verdict(search: str, sentence: str) -> None:
    result = EVERY[search]()
    assert plain(words.headline(result)) == sentence
    assert words.tone(result) == ("bad" if search == "unsafe" else "good")


def test_only_a_last_check_beyond_the_limit_exceeds_it() -> None:
    assert [words.ended(trial) for trial in diverged_search().trials] == [
        *["diverged"] * 3,
        "left",
        "inside",
    ]


def test_a_limit_of_noise_is_taken_apart_and_a_given_one_said_to_be_given() -> None:
    noise = plain(words.about_limit(full_search()))
    assert "a drift of 0.0458 by overlap loss, derived from noise" in noise
    assert (
        "changing only the final punctuation of the 680 probes makes the "
        "untuned tower's results drift by 0.100." in noise
    )
    assert "The limit is 46 % of that; independent drift of this size increases the noise by 10 %." in noise
    assert (
        words.about_limit(unsafe_search())
        == "The limit is a drift of 0.001 by overlap loss, taken from the settings, not measured."
    )


@pytest.mark.parametrize(
    ("result", "said"),
    [
        # 0.01 (t / 1000): 0.0458 at 4,580.
        (
            one_run([1e-5 * step for step in STEPS]),
            "1e-8 would exceed the limit after about 4,600 steps: an extrapolation, not a measurement.",
        ),
        (
            one_run([0.03 * (step / 1000) ** 0.02 for step in STEPS]),
            "1e-8 stays within the limit for more than 100 times as many steps: an extrapolation",
        ),
        (
            one_run([LIMIT * step / 1001 for step in STEPS]),
            "1e-8 is about to exceed the limit: an extrapolation",
        ),
        (
            one_run([0.04 - 1e-6 * step for step in STEPS]),
            "Over the later half of the checks, drift at 1e-8 did not grow",
        ),
        (one_run([0.01, 0.02, 0.03], STEPS[:3]), "How long 1e-8 would stay within the limit is unknown"),
        (one_run([0.0] * 10), "How long 1e-8 would stay within the limit is unknown"),
        # (0.0458 / (2000 * 4.64e-8 * 1.3)) ** 1.25 of the faster of two seeds.
        (seeds_search(), "4.64e-8 (its earliest run) would exceed the limit after about 1,700 steps"),
    ],
)
def test_how_long_the_rate_lasts_is_said_to_be_extrapolated_or_unknown(result: SafeRate, said: str) -> None:
    assert said in plain(words.pace(result))
    assert words.pace(result) in words.reservations(result)


def test_one_seed_is_called_one_and_several_have_their_spread() -> None:
    assert words.about_seeds(full_search()) == "This is one seed; another may drift more or less."
    assert (
        words.about_seeds(seeds_search()) == "With 2 seeds at 4.64e-8, drift at the end is 0.0233 to 0.0303."
    )
    grown = make_safe_rate([make_trial(1e-7, factor=0.8), make_trial(1e-7, seed=1, factor=1.2)], 1e-7)
    assert words.about_seeds(grown).endswith(
        "; 1\N{NO-BREAK SPACE}run exceeded the limit (seed no longer requested)."
    )


# --- Tables ---


def test_the_terminal_shows_the_highest_rate_first_and_the_head_line_below() -> None:
    said = printed(diverged_search())
    rows = [line.split() for line in said.splitlines() if line.rstrip().endswith("12 s")]
    assert [row[0] for row in rows] == ["0.0001", "1e-5", "1e-6", "1e-7", "1e-8"]
    assert rows[0][2:7] == ["–", "–", "diverged", "after", "0"]
    assert rows[3][2:7] == ["900", "0.0462", "exceeded", "after", "900"]
    assert rows[4][2:6] == ["1,000", "0", "stays", "within"]
    assert "Up to a learning rate of 1e-8 the answers stay within noise" in " ".join(said.split())
    assert max(map(len, said.splitlines())) <= 80


def test_the_csv_holds_every_run_unrounded() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_of(diverged_search()))))
    assert [row["ended"] for row in rows] == ["diverged", "diverged", "diverged", "left", "inside"]
    assert (rows[0]["last_check"], rows[0]["drift: overlap loss"], rows[0]["left_at"]) == ("", "", "0")
    left = diverged_search().trials[3]
    assert (rows[3]["drift: turn"], rows[3]["left_at"]) == (repr(left.drift["turn"][-1]), "900")
    assert (rows[4]["rate"], rows[4]["left_at"], rows[4]["drift: margins"]) == ("1e-08", "", "0.0")


# --- The page ---


@cache
def html(search: str) -> str:
    return pages.files(EVERY[search]())["report.html"]()


def test_a_page_shows_noise_where_the_limit_is_made_of_it_and_the_runs_of_the_safe_rate_shaded() -> None:
    assert ">noise</span></th>" in html("full")
    assert ">noise</span></th>" not in html("unsafe")
    assert "largest safe rate, at the end" not in html("unsafe")
    assert html("seeds").count('<tr class="safe">') == 2
    assert '<tr class="safe">' not in html("unsafe")
    shown = Page(html("seeds")).text
    assert "1e-7 0.0442 (seed 0), 0.0462 (seed 1) 0.0442 to 0.0462 1 of 2" in shown
    assert "4.64e-8 0.0233 (seed 0), 0.0303 (seed 1) 0.0233 to 0.0303 2 of 2" in shown
