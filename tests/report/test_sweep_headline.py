"""Facts of the headline and reservations of a sweep: never more than its runs allow."""

import pytest

from adiabat.report.sweep_headline import headline, reservations, tone
from adiabat.results.sweep_result import SweepResult
from tests.report.html_page import plain
from tests.report.sample_sweeps import (
    MARGIN,
    RATE,
    even_sweep,
    failed_sweep,
    full_sweep,
    make_failed,
    make_run,
    make_sweep,
    make_tasks,
    run_at,
    simple_sweep,
)


def margins(*gains: tuple[float, float]) -> SweepResult:
    runs = [make_run({MARGIN: 0.1 * number}, make_tasks(*gain)) for number, gain in enumerate(gains, 1)]
    return make_sweep(runs, varied=(MARGIN,))


BESIDE = "Without measurable harm to tasks beside msmarco:"
LOW = "learning rate 1e-8"
MOST = (
    "learning rate 5e-8 gains most: "
    "msmarco +7.3 % (better; [+6.3, +8.3]) and arxiv +0.4 % (undecided; [−0.6, +1.4])."
)
TWO_SEEDS = make_sweep([run_at(1e-8, 5.0, 0.0, seed=0), run_at(1e-8, 5.0, -4.0, seed=1)])
ONE_FAILED = make_sweep([run_at(1e-8, 2.0, 0.0), run_at(2e-8, 3.0, 0.0), make_failed({RATE: 2e-8}, seed=1)])
OPEN = simple_sweep({1e-8: (0.4, 0.2), 2e-8: (0.6, 0.1)})
ALL_FAILED = "0 runs completed, 2 failed. Failed: the loss is not finite (2 runs)."
FALLEN = simple_sweep({1e-8: (-3.0, 0.0), 2e-8: (1.5, 0.0)})


@pytest.mark.parametrize(
    ("result", "facts", "news"),
    [
        (simple_sweep(), ["4 runs completed.", f"{BESIDE} 3 of 4 settings; of these, {MOST}"], "good"),
        (simple_sweep({1e-8: (2.0, 0.0), 2e-8: (6.0, 0.0), 1e-7: (9.0, -5.0)}), ["2e-8 gains most"], "good"),
        (simple_sweep({1e-8: (1.5, -2.0), 2e-8: (3.0, -3.0)}), [f"{BESIDE} 0 of 2 settings."], "bad"),
        (TWO_SEEDS, [f"{BESIDE} 0 of 1 setting."], "bad"),
        (ONE_FAILED, ["2 runs completed, 1 failed.", f"{BESIDE} 1 of 2 settings; of these, {LOW}"], "good"),
        (make_sweep([make_failed({RATE: 1e-8}), run_at(2e-8, 3.0, -3.0)]), ["0 of 2 settings."], "plain"),
        (OPEN, ["msmarco +0.6 % (undecided; [−0.4, +1.6])"], "plain"),
        (margins((2.0, 0.0), (3.0, 0.5), (9.0, -2.0)), ["2 of 3 settings; of these, margin 0.2"], "good"),
        (make_sweep([run_at(1e-8, 3.0, -0.3)]), ["of these, the only setting gains most"], "good"),
        (failed_sweep(1e-8, 2e-8), [ALL_FAILED], "bad"),
        (make_sweep([]), ["0 runs completed."], "bad"),
        (even_sweep(["msmarco"], rates=(1e-8, 2e-8)), ["2 runs completed."], "plain"),
        (full_sweep(), ["xnli +1.4 % (better; +1.4 to +1.4)"], "good"),
    ],
)
def test_the_headline_says_no_more_than_the_runs_allow(
    result: SweepResult, facts: list[str], news: str
) -> None:
    for fact in facts:
        assert fact in plain(headline(result))
    assert tone(result) == news


@pytest.mark.parametrize(
    ("result", "facts"),
    [
        (simple_sweep(notes=["one corpus was cut"]), ["about one in 20", "one corpus was cut"]),
        (full_sweep(), ["Failed: the loss is not finite (1 run).", "a loss of up to 0.7 % (title)"]),
        (FALLEN, [f"Worse than their start on a target: {LOW}."]),
        (make_sweep([], notes=["a note"]), ["a note"]),
    ],
)
def test_reservations_name_the_limits_of_the_evidence(result: SweepResult, facts: list[str]) -> None:
    for fact in facts:
        assert fact in plain(" ".join(reservations(result)))
