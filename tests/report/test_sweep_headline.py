"""What a sweep says: never more than its runs allow."""

from dataclasses import replace

from adiabat.report.sweep_cases import overview_of, rate_setting
from adiabat.report.sweep_headline import best_of, headline, reservations, tone
from tests.report.html_page import plain
from tests.report.sample_sweeps import (
    MARGIN,
    RATE,
    failed_sweep,
    full_sweep,
    make_failed,
    make_run,
    make_sweep,
    make_task,
    make_tasks,
    run_at,
    simple_sweep,
)


def said(result) -> str:
    return plain(headline(overview_of(result)))


def toned(result) -> str:
    return tone(overview_of(result))


def reserved(result) -> str:
    return plain(" ".join(reservations(overview_of(result))))


def margins(*gains: tuple[float, float]):
    return make_sweep([make_run({MARGIN: 0.1 * place}, make_tasks(*gain)) for place, gain in enumerate(gains, 1)], varied=(MARGIN,))


# --- Head line: rates ---


def test_the_largest_rate_without_harm_is_told_with_what_comes_next_and_what_it_gains() -> None:
    assert said(simple_sweep()) == (
        "None of 4 runs failed. Of 4 learning rates, 5e-8 is the largest at which no run made another task measurably worse; at 1e-7, "
        "arxiv got worse. Without such harm, 5e-8 gained most on the target: msmarco +7.3 % [+6.3, +8.3] (better); elsewhere arxiv +0.4 % "
        "(no evidence)."
    )
    assert toned(simple_sweep()) == "good"


def test_the_rate_that_gains_most_need_not_be_the_largest() -> None:
    told = said(simple_sweep({1e-8: (2.0, 0.0), 2e-8: (6.0, 0.0), 5e-8: (4.0, 0.0), 1e-7: (9.0, -5.0)}))
    assert "5e-8 is the largest at which" in told
    assert "Without such harm, 2e-8 gained most on the target: msmarco +6.0 %" in told


def test_where_even_the_smallest_rate_does_harm_that_is_said() -> None:
    result = simple_sweep({1e-8: (1.5, -2.0), 2e-8: (3.0, -3.0)})
    assert said(result) == (
        "None of 2 runs failed. Each of 2 learning rates made another task measurably worse: even at the smallest, 1e-8, arxiv got worse. "
        "The target gained most with 2e-8: msmarco +3.0 % [+2.0, +4.0] (better); elsewhere arxiv −3.0 % (worse)."
    )
    assert toned(result) == "bad"


def test_harm_below_a_rate_without_harm_is_told() -> None:
    told = said(simple_sweep({1e-8: (1.5, -2.0), 2e-8: (3.0, -0.3), 5e-8: (4.0, -2.0)}))
    assert (
        "2e-8 is the largest at which no run made another task measurably worse; at 5e-8, arxiv got worse; below it, at 1e-8, arxiv" in told
    )


def test_one_seed_that_does_harm_is_enough() -> None:
    runs = [
        run_at(rate, 5.0, other, seed=seed)
        for rate, others in {1e-8: (0.0, 0.0), 2e-8: (0.0, -4.0)}.items()
        for seed, other in enumerate(others)
    ]
    told = said(make_sweep(runs))
    assert "Of 2 learning rates, 1e-8 is the largest at which no run made another task measurably worse; at 2e-8, arxiv got worse." in told
    assert "msmarco +5.0 % (+5.0 to +5.0; better)" in told


def test_a_rate_at_which_a_run_failed_is_not_called_harmless() -> None:
    told = said(make_sweep([run_at(1e-8, 2.0, 0.0), run_at(2e-8, 3.0, 0.0), make_failed({RATE: 2e-8}, seed=1)]))
    assert told.startswith("1 of 3 runs failed. Of 2 learning rates, 1e-8 is the largest")
    assert "; at 2e-8, a run failed." in told
    nothing = said(make_sweep([make_failed({RATE: 1e-8}), run_at(2e-8, 3.0, -3.0)]))
    assert "No learning rate of 2 is known to do no harm: at the smallest, 1e-8, a run failed. The target gained most with 2e-8" in nothing


def test_a_rate_at_which_a_task_was_not_measured_is_not_called_harmless() -> None:
    unmeasured = make_run({RATE: 2e-8}, [make_task("msmarco", 3.0)])
    assert "; at 2e-8, a run lacks a verdict." in said(make_sweep([run_at(1e-8, 2.0, 0.0), unmeasured]))


def test_harm_under_any_other_setting_counts_against_a_rate() -> None:
    gains = {(1e-8, 0.1): 0.0, (1e-8, 0.2): 0.0, (2e-8, 0.1): 0.0, (2e-8, 0.2): -3.0}
    runs = [make_run({RATE: rate, MARGIN: margin}, make_tasks(1e8 * rate + margin, other)) for (rate, margin), other in gains.items()]
    told = said(make_sweep(runs, varied=(RATE, MARGIN)))
    assert "Of 2 learning rates, 1e-8 is the largest" in told
    # The better of the two settings at 2e-8 does no harm, and gains more.
    assert "Without such harm, learning rate 2e-8 with margin 0.1 gained most on the target: msmarco +2.1 %" in told


def test_where_nothing_gains_the_head_line_says_so() -> None:
    result = simple_sweep({1e-8: (-1.5, 0.2), 2e-8: (-3.0, -3.0)})
    assert "Nothing without such harm gained on the target; least was lost with 1e-8: msmarco −1.5 %" in said(result)
    assert toned(result) == "plain"


def test_a_gain_without_evidence_is_told_as_such_and_is_no_good_news() -> None:
    result = simple_sweep({1e-8: (0.4, 0.2), 2e-8: (0.6, 0.1)})
    assert "2e-8 gained most on the target: msmarco +0.6 % [−0.4, +1.6] (no evidence)" in said(result)
    assert toned(result) == "plain"


# --- Head line: anything else ---


def test_without_rates_settings_are_counted() -> None:
    assert "Of 3 settings, 2 made no other task measurably worse in any run. Without such harm, margin 0.2 gained most" in said(
        margins((2.0, 0.0), (3.0, 0.5), (9.0, -2.0))
    )
    assert "Of 2 settings, each made no other task measurably worse in any run. Margin 0.2 gained" in said(margins((2.0, 0.0), (3.0, 0.5)))
    assert "Each of 2 settings made another task worse. The target gained most with margin 0.1:" in said(margins((4.0, -2.0), (3.0, -2.5)))


def test_settings_of_which_not_all_is_known_are_not_called_harmless() -> None:
    result = margins((2.0, -2.0))
    told = said(replace(result, runs=[*result.runs, make_failed({MARGIN: 0.7})]))
    assert "None of 2 settings is known to do no harm: 1 made another task worse, of the others not all is known." in told


def test_one_run_is_told_without_comparing_it() -> None:
    assert said(make_sweep([run_at(1e-8, 3.0, -0.3)])) == (
        "The one run did not fail. No other task got measurably worse. The target gained: msmarco +3.0 % [+2.0, +4.0] (better); elsewhere "
        "arxiv −0.3 % (no evidence)."
    )
    assert "arxiv got measurably worse." in said(make_sweep([run_at(1e-8, 3.0, -3.0)]))
    assert "harm is not ruled out" in said(make_sweep([run_at(1e-8, 3.0, 0.0), make_failed({RATE: 1e-8}, seed=1)]))


def test_where_all_failed_the_reasons_are_told_once() -> None:
    result = make_sweep(
        [make_failed({RATE: rate}, reason=reason) for rate, reason in ((1e-8, "no memory"), (2e-8, "no memory"), (5e-8, "NaN"))]
    )
    assert said(result) == "All 3 runs failed: no memory and NaN."
    assert toned(result) == "bad"
    assert said(failed_sweep(1e-8)) == "The one run failed: the loss is not finite."
    assert said(make_sweep([])) == "No run was made."
    assert reserved(make_sweep([], notes=["a note"])) == "a note"


def test_without_other_tasks_nothing_is_said_of_harm() -> None:
    result = make_sweep([make_run({RATE: rate}, [make_task("msmarco", 1e8 * rate + 1)]) for rate in (1e-8, 2e-8)], tasks=("msmarco",))
    assert said(result) == (
        "None of 2 runs failed. Only tasks that tuning is for were measured, so what it does elsewhere is not known. 2e-8 gained most on "
        "the target: msmarco +3.0 % [+2.0, +4.0] (better)."
    )
    assert toned(result) == "plain"


def test_several_targets_are_taken_in_the_mean() -> None:
    result = simple_sweep({1e-8: (2.0, 5.0), 2e-8: (4.0, 1.0)}, targets=("msmarco", "arxiv"))
    assert "1e-8 gained most on the targets in the mean: msmarco +2.0 % [+1.0, +3.0] (better), arxiv +5.0 %" in said(result)


# --- Reservations ---


def test_what_the_head_line_leaves_out_is_told() -> None:
    told = reserved(simple_sweep(notes=["one corpus was cut"]))
    assert "about one comparison in 20 is told as a finding all the same, and there are 8 here." in told
    assert "for 5e-8, intervals leave room for a loss of 0.6 % (arxiv)." in told
    assert "Every setting is one run" in told
    assert "The best setting was picked by the same values that are shown" in told
    assert told.endswith("one corpus was cut")


def test_language_pairs_that_got_worse_are_told_though_their_grid_did_not() -> None:
    told = "6 of 225 (entailment-neutral, cosine) and xnli 8 of 225 (entailment-contradiction, cosine)."
    assert f"may hold language pairs that are; with 5e-8: xnli {told}" in reserved(full_sweep())
    assert "language pairs" not in reserved(simple_sweep())


def test_failed_runs_are_told_with_their_reasons() -> None:
    told = reserved(full_sweep())
    assert "Failed: the loss is not finite (1 run). A setting of which a run failed does not count as one that does no harm." in told
    assert "means of up to 3 runs" in told
    assert "Failed" not in reserved(simple_sweep())


def test_a_task_without_percent_is_named() -> None:
    assert "There is no percent where the untuned tower scores 0: on arxiv, tables show differences" in reserved(
        simple_sweep({1e-8: (1.0, None)})
    )


def test_intervals_that_leave_no_room_for_a_loss_are_not_called_a_risk() -> None:
    assert "room for a loss" not in reserved(simple_sweep({1e-8: (3.0, 2.0), 2e-8: (3.0, 2.0)}))


def test_the_best_setting_is_found_and_the_rate_is_a_number() -> None:
    seen = overview_of(simple_sweep())
    assert best_of(seen) is seen.cases[2]
    assert rate_setting(seen) is seen.settings[0]
    assert rate_setting(overview_of(margins((1.0, 1.0), (2.0, 2.0)))) is None
    assert rate_setting(overview_of(make_sweep([run_at(1e-8, 1.0, 1.0)]))) is None


def test_rates_that_only_some_variants_have_are_no_ladder() -> None:
    """Harm at a rate would be told as that of the rate, though what else is tried there differs."""
    full = [make_run({RATE: rate}, make_tasks(1.0, other), variant="full") for rate, other in ((1e-7, 0.0), (1e-6, -5.0))]
    biases = [make_run({RATE: rate}, make_tasks(1.0, 0.0), variant="biases") for rate in (1e-4, 3e-4)]
    said = plain(headline(overview_of(make_sweep([*full, *biases]))))
    assert "learning rates" not in said
    assert "Of 4 settings, 3 made no other task measurably worse in any run." in said
    crossed = [make_run({RATE: rate}, make_tasks(1.0, 0.0), variant=name) for name in ("a", "b") for rate in (1e-7, 1e-6)]
    assert "At no learning rate of 2" in plain(headline(overview_of(make_sweep(crossed))))
