"""Facts of the headline and reservations of a sweep: never more than its runs allow."""

from dataclasses import replace

import pytest

from adiabat.experiments.sweep_analysis import change_of
from adiabat.report import sweep_headline as words
from adiabat.report.sweep_headline import headline, reservations, tone
from adiabat.results.sweep_result import SweepResult
from tests.report.html_page import plain
from tests.report.sample_sweeps import (
    MARGIN,
    RATE,
    even_sweep,
    failed_sweep,
    full_sweep,
    make_change,
    make_failed,
    make_run,
    make_sweep,
    make_task,
    make_tasks,
    run_at,
    simple_sweep,
)


def said(result: SweepResult) -> str:
    return plain(headline(result))


def reserved(result: SweepResult) -> str:
    return plain(" ".join(reservations(result)))


def margins(*gains: tuple[float, float]) -> SweepResult:
    return make_sweep(
        [make_run({MARGIN: 0.1 * number}, make_tasks(*gain)) for number, gain in enumerate(gains, 1)],
        varied=(MARGIN,),
    )


SEEDS = make_sweep(
    [
        run_at(rate, 5.0, other, seed=seed)
        for rate, seed, other in ((1e-8, 0, 0.0), (1e-8, 1, 0.0), (2e-8, 0, 0.0), (2e-8, 1, -4.0))
    ]
)
CROSSED = make_sweep(
    [
        make_run({RATE: rate, MARGIN: margin}, make_tasks(1e8 * rate + margin, other))
        for rate, margin, other in ((1e-8, 0.1, 0.0), (1e-8, 0.2, 0.0), (2e-8, 0.1, 0.0), (2e-8, 0.2, -3.0))
    ],
    varied=(RATE, MARGIN),
)
LARGEST = "is the largest at which no run made another task measurably worse"


@pytest.mark.parametrize(
    ("result", "facts", "news"),
    [
        (
            simple_sweep(),
            [
                f"Of 4 learning rates, 5e-8 {LARGEST}; at 1e-7, arxiv got worse.",
                "5e-8 gained most",
                "msmarco +7.3 % [+6.3, +8.3] (better); elsewhere arxiv +0.4 % (undecided).",
            ],
            "good",
        ),
        (
            simple_sweep({1e-8: (2.0, 0.0), 2e-8: (6.0, 0.0), 5e-8: (4.0, 0.0), 1e-7: (9.0, -5.0)}),
            [f"5e-8 {LARGEST}", "2e-8 gained most"],
            "good",
        ),
        (
            simple_sweep({1e-8: (1.5, 0.2), 2e-8: (3.0, 2.0)}),
            ["None of 2 learning rates, up to 2e-8, made another task measurably worse in any run"],
            "good",
        ),
        (
            simple_sweep({1e-8: (1.5, -2.0), 2e-8: (3.0, -3.0)}),
            [
                "Each of 2 learning rates made another task measurably worse: "
                "even at the smallest, 1e-8, arxiv",
                "arxiv −3.0 % (worse).",
            ],
            "bad",
        ),
        (
            simple_sweep({1e-8: (1.5, -2.0), 2e-8: (3.0, -0.3), 5e-8: (4.0, -2.0)}),
            [f"2e-8 {LARGEST}", "at 5e-8, arxiv got worse; below it, at 1e-8, arxiv"],
            "good",
        ),
        (
            SEEDS,
            [f"1e-8 {LARGEST}; at 2e-8, arxiv got worse.", "msmarco +5.0 % (+5.0 to +5.0; better)"],
            "good",
        ),
        (
            make_sweep([run_at(1e-8, 2.0, 0.0), run_at(2e-8, 3.0, 0.0), make_failed({RATE: 2e-8}, seed=1)]),
            ["1 of 3 runs failed. Of 2 learning rates, 1e-8", "; at 2e-8, a run failed."],
            "good",
        ),
        (
            make_sweep([make_failed({RATE: 1e-8}), run_at(2e-8, 3.0, -3.0)]),
            ["None of 2 learning rates is known to be harmless: at the smallest, 1e-8, a run failed."],
            "plain",
        ),
        (
            make_sweep([run_at(1e-8, 2.0, 0.0), make_run({RATE: 2e-8}, [make_task("msmarco", 3.0)])]),
            ["; at 2e-8, a run lacks a verdict."],
            "good",
        ),
        # The better of the two settings at 2e-8 is harmless, and gains more.
        (
            CROSSED,
            [
                f"Of 2 learning rates, 1e-8 {LARGEST}",
                "learning rate 2e-8 with margin 0.1 gained most on the target: msmarco +2.1 %",
            ],
            "good",
        ),
        (
            simple_sweep({1e-8: (-1.5, 0.2), 2e-8: (-3.0, -3.0)}),
            ["No setting without such harm gained on the target; 1e-8 lost least: msmarco −1.5 %"],
            "plain",
        ),
        (
            simple_sweep({1e-8: (0.4, 0.2), 2e-8: (0.6, 0.1)}),
            ["msmarco +0.6 % [−0.4, +1.6] (undecided)"],
            "plain",
        ),
        (
            margins((2.0, 0.0), (3.0, 0.5), (9.0, -2.0)),
            ["2 of 3 settings made no other task measurably worse", "margin 0.2 gained most"],
            "good",
        ),
        (margins((2.0, 0.0), (3.0, 0.5)), ["Each of 2 settings made no other task measurably worse"], "good"),
        (
            margins((4.0, -2.0), (3.0, -2.5)),
            ["Each of 2 settings made another task worse. The target gained most with margin 0.1:"],
            "bad",
        ),
        (
            make_sweep([*margins((2.0, -2.0)).runs, make_failed({MARGIN: 0.7})], varied=(MARGIN,)),
            ["None of 2 settings is known to be harmless: 1 made another task worse"],
            "plain",
        ),
        (
            make_sweep([run_at(1e-8, 3.0, -0.3)]),
            ["No other task got measurably worse. The target gained: msmarco +3.0 %"],
            "good",
        ),
        (make_sweep([run_at(1e-8, 3.0, -3.0)]), ["arxiv got measurably worse."], "bad"),
        (
            make_sweep([run_at(1e-8, 3.0, 0.0), make_failed({RATE: 1e-8}, seed=1)]),
            ["harm is not ruled out"],
            "plain",
        ),
        (
            make_sweep(
                [
                    make_failed({RATE: rate}, reason=reason)
                    for rate, reason in ((1e-8, "no memory"), (2e-8, "no memory"), (5e-8, "NaN"))
                ]
            ),
            ["All 3 runs failed: no memory and NaN."],
            "bad",
        ),
        (failed_sweep(1e-8), ["The only run failed: the loss is not finite."], "bad"),
        (make_sweep([]), ["There are no runs."], "bad"),
        (
            even_sweep(["msmarco"], rates=(1e-8, 2e-8), improvement=3.0),
            ["2 runs completed. Only target tasks were measured", "msmarco +3.0 % [+2.0, +4.0] (better)."],
            "plain",
        ),
        (
            simple_sweep({1e-8: (2.0, 5.0), 2e-8: (4.0, 1.0)}, targets=("msmarco", "arxiv")),
            ["1e-8 gained most on the targets on average: msmarco +2.0 %", "arxiv +5.0 %"],
            "plain",
        ),
        (full_sweep(), ["xnli +1.4 % (better; 194 of 225 language pairs better, 6 worse)"], "good"),
        (
            even_sweep(
                ["msmarco", *(f"other {number}" for number in range(7))], rates=(1e-8, 2e-8), improvement=0.5
            ),
            ["other 3 +0.5 % (undecided) and 3 more in the table."],
            "plain",
        ),
    ],
)
def test_the_headline_says_no_more_than_the_runs_allow(
    result: SweepResult, facts: list[str], news: str
) -> None:
    for fact in facts:
        assert fact in said(result)
    assert tone(result) == news


@pytest.mark.parametrize(
    ("result", "facts", "absent"),
    [
        (
            simple_sweep(notes=["one corpus was cut"]),
            [
                "Each of 8 verdicts",
                "for 5e-8, intervals allow a loss of up to 0.6 % (arxiv).",
                "Every setting is one run",
                "selected by the values shown",
                "one corpus was cut",
            ],
            ["language pairs", "Failed"],
        ),
        (
            full_sweep(),
            [
                "with 5e-8: xnli 6 of 225 (entailment-neutral, cosine) and xnli 8 of "
                "225 (entailment-contradiction, cosine).",
                "Failed: the loss is not finite (1 run).",
                "means of up to 3 runs",
            ],
            [],
        ),
        (simple_sweep({1e-8: (1.0, None)}), ["The untuned tower scores 0 on arxiv"], []),
        (simple_sweep({1e-8: (3.0, 2.0), 2e-8: (3.0, 2.0)}), [], ["allow a loss"]),
        (make_sweep([], notes=["a note"]), ["a note"], ["selected"]),
    ],
)
def test_reservations_name_the_limits_of_the_evidence(
    result: SweepResult, facts: list[str], absent: list[str]
) -> None:
    for fact in facts:
        assert fact in reserved(result)
    for fact in absent:
        assert fact not in reserved(result)


def test_tasks_that_are_proven_not_worse_leave_no_loss_open() -> None:
    result = simple_sweep()
    proven = [
        replace(
            run,
            tasks=[
                replace(
                    outcome,
                    changes=[
                        replace(change, verdict="not worse", margin=1.0, loss_bound=0.0)
                        for change in outcome.changes
                    ],
                )
                for outcome in run.tasks
            ],
        )
        for run in result.runs
    ]
    assert "allow a loss" in reserved(result)
    assert "allow a loss" not in reserved(replace(result, runs=proven))


def test_rates_that_only_some_variants_have_are_no_series() -> None:
    """Harm at a rate would be ascribed to the rate, though other settings differ there."""
    full = [
        make_run({RATE: rate}, make_tasks(1.0, other), variant="full")
        for rate, other in ((1e-7, 0.0), (1e-6, -5.0))
    ]
    biases = [make_run({RATE: rate}, make_tasks(1.0, 0.0), variant="biases") for rate in (1e-4, 3e-4)]
    assert "3 of 4 settings made no other task measurably worse in any run." in said(
        make_sweep([*full, *biases])
    )
    crossed = [
        make_run({RATE: rate}, make_tasks(1.0, 0.0), variant=name)
        for name in ("a", "b")
        for rate in (1e-7, 1e-6)
    ]
    assert "None of 2 learning rates" in said(make_sweep(crossed))


# --- Words of cases and changes ---


def test_a_case_is_told_by_what_differs() -> None:
    def labels(*pairs: tuple[float, float]) -> list[str]:
        runs = [make_run({RATE: rate, MARGIN: margin}) for rate, margin in pairs]
        view = make_sweep(runs, varied=(RATE, MARGIN)).variation
        return [
            words.case_head(view),
            words.case_label(view, view.cases[0]),
            words.case_cell(view, view.cases[0]),
        ]

    both = "learning rate 1e-8 with margin 0.1"
    assert labels((1e-8, 0.1), (2e-8, 0.2)) == ["setting", both, both]
    assert labels((1e-8, 0.1), (1e-8, 0.2)) == ["margin", "margin 0.1", "0.1"]
    assert labels((1e-8, 0.1))[1:] == ["the only setting"] * 2


@pytest.mark.parametrize(
    ("improvements", "gain", "bounds", "marks", "said"),
    [
        ([7.3], "+7.3 %", "[+6.3, +8.3]", "▲", "better"),
        ([0.2], "+0.2 %", "[−0.8, +1.2]", "○", "undecided"),
        ([-1.004], "−1.004 %", "[−2.004, −0.004]", "▼", "worse"),
        ([7.0, 8.0, 9.0], "+8.0 %", "+7.0 to +9.0", "▲", "better"),
        ([0.5, 3.0, 4.0], "+2.5 %", "+0.5 to +4.0", "▲2 ○1", "better in 2 of 3 seeds, undecided in 1"),
        ([3.0, -3.0], "0.0 %", "−3.0 to +3.0", "▲1 ▼1", "better in 1 of 2 seeds, worse in 1"),
        ([None], "+0.1000", "[+0.0500, +0.1500]", "▲", "better"),
        ([None, 5.0], "+0.0625", "+0.0250 to +0.1000", "▲", "better"),
        ([], "–", "", "", "no verdict"),
    ],
)
def test_a_change_is_a_mean_with_bounds_and_verdicts(
    improvements: list[float | None], gain: str, bounds: str, marks: str, said: str
) -> None:
    unknown = replace(make_change(None), difference=None, difference_interval=None, verdict=None)
    found = change_of("task", "RR", "cosine", [make_change(one) for one in improvements] or [unknown])
    assert (plain(words.gain(found)), plain(words.gain_bounds(found))) == (gain, bounds)
    assert (words.verdict_marks(found), words.verdict_words(found)) == (marks, said)


def test_counts_of_language_pairs_stand_side_by_side() -> None:
    pairs = [(222.0, 0.0), (221.5, 0.5), (1200.0, None), (None, 1.0)]
    assert [words.sides(*pair) for pair in pairs] == ["222/0", "221.5/0.5", "–", "–"]
