"""A sweep sorted into cases, and what its runs changed taken together."""

from dataclasses import replace

import pytest

from adiabat.report.sweep_cases import Outcome, comparisons_of, key_of, measures_of, outcome, overview_of, pair_counts
from tests.report.sample_sweeps import (
    MARGIN,
    RATE,
    RATES,
    full_sweep,
    make_change,
    make_failed,
    make_grid,
    make_run,
    make_sweep,
    make_task,
    run_at,
    simple_sweep,
)


def two_seeds(first: float | None, second: float | None, *, other: tuple[float, float] = (0.0, 0.0)):
    """One setting with two seeds: improvements of the target, and of the other task."""
    seen = overview_of(make_sweep([run_at(1e-8, *pair, seed=seed) for seed, pair in enumerate(zip((first, second), other, strict=True))]))
    return seen, seen.cases[0]


def seeds_with_pairs(*sides: tuple[int | None, int | None]):
    """One setting with a seed for each count of language pairs that improved and that worsened."""
    return [make_run({RATE: 1e-8}, [make_task("xnli", 1.0, grids=[make_grid(*one)])], seed=seed) for seed, one in enumerate(sides)]


def test_runs_that_differ_by_their_seed_are_one_case() -> None:
    seen = overview_of(full_sweep())
    assert [len(case.runs) for case in seen.cases] == [3, 3, 3, 3]
    assert [(len(case.done), len(case.failed)) for case in seen.cases] == [(3, 0), (3, 0), (3, 0), (2, 1)]
    assert [case.values for case in seen.cases] == [(rate, ["embeddings"]) for rate in RATES]
    assert (len(seen.done), len(seen.failed)) == (11, 1)


def test_cases_come_as_their_first_runs_do_whatever_the_order_of_seeds() -> None:
    result = full_sweep()
    by_seed = sorted(result.runs, key=lambda run: run.seed)
    seen = overview_of(replace(result, runs=by_seed))
    assert [case.values for case in seen.cases] == [case.values for case in overview_of(result).cases]
    backwards = overview_of(replace(result, runs=result.runs[::-1]))
    assert [case.values[0] for case in backwards.cases] == RATES[::-1]
    assert backwards.settings[0].values == tuple(RATES)


def test_settings_are_named_by_their_last_part_and_numbers_are_sorted() -> None:
    rate, freeze = overview_of(full_sweep(freezes=(["embeddings"], [], ["embeddings"]))).settings
    assert (rate.label, rate.numeric, rate.values) == ("learning rate", True, tuple(RATES))
    assert (freeze.label, freeze.numeric, freeze.values) == ("freeze", False, (["embeddings"], []))


def test_settings_that_end_alike_keep_their_whole_names() -> None:
    names = ["tune.distance", "data.distance", MARGIN]
    run = make_run({"tune.distance": "cosine", "data.distance": "euclidean", MARGIN: 0.1})
    assert [setting.label for setting in overview_of(make_sweep([run], varied=names)).settings] == [
        "tune.distance",
        "data.distance",
        "margin",
    ]


def test_an_overlay_is_a_setting_where_there_is_one() -> None:
    runs = [make_run({RATE: 1e-8}, variant=variant) for variant in ("plain", "sgd")]
    seen = overview_of(make_sweep(runs))
    assert [setting.name for setting in seen.settings] == [RATE, "variant"]
    assert seen.settings[1].values == ("plain", "sgd")
    assert [case.values for case in seen.cases] == [(1e-8, "plain"), (1e-8, "sgd")]
    assert [setting.name for setting in overview_of(make_sweep(runs[:0])).settings] == [RATE]


def test_truth_is_not_one_but_one_is_one() -> None:
    assert key_of(True) != key_of(1)
    assert key_of(1) == key_of(1.0)
    assert key_of(["a", "b"]) != key_of(["b", "a"])


# --- Outcomes ---


def test_one_run_has_its_own_interval_and_several_have_their_range() -> None:
    seen = overview_of(simple_sweep())
    alone = outcome(seen.cases[2], "msmarco")
    assert alone is not None
    assert (alone.mean, alone.bounds, alone.verdict) == (7.3, pytest.approx((6.3, 8.3)), "better")
    _, case = two_seeds(2.0, 5.0)
    both = outcome(case, "msmarco")
    assert both is not None
    assert (both.mean, both.bounds, both.verdict) == (3.5, (2.0, 5.0), "better")


def test_without_a_percent_differences_stand_in() -> None:
    _, case = two_seeds(None, 5.0)
    found = outcome(case, "msmarco")
    assert found is not None
    assert not found.percent
    assert found.values == pytest.approx([0.1, 0.025])
    alone = Outcome((make_change(None),))
    assert (alone.mean, alone.bounds) == (0.1, (0.05, 0.15))


def test_a_measure_that_is_not_the_main_one_can_be_asked_for() -> None:
    result = simple_sweep()
    case = overview_of(result).cases[0]
    assert measures_of(result, "msmarco") == [("nDCG@10", "cosine"), ("nDCG@10", "distance")]
    by_distance = outcome(case, "msmarco", ("nDCG@10", "distance"))
    assert by_distance is not None
    assert by_distance.mean == 1.5
    assert outcome(case, "msmarco", ("nDCG@10", "dot")) is None
    assert outcome(case, "elsewhere") is None
    assert measures_of(result, "elsewhere") == []


def test_means_are_those_of_a_plain_loop() -> None:
    seen = overview_of(full_sweep())
    for case in seen.cases:
        for task in seen.result.tasks:
            total, count = 0.0, 0
            for run in case.runs:
                for own in run.tasks:
                    if own.task == task and run.status == "done":
                        total, count = total + own.changes[0].improvement, count + 1
            found = outcome(case, task)
            assert found is not None
            assert found.mean == pytest.approx(total / count)


# --- Harm and gain ---


def test_targets_come_first_and_the_others_must_not_get_worse() -> None:
    seen = overview_of(full_sweep())
    assert seen.others == ["arxiv", "title", "xnli"]
    assert seen.ordered == ["msmarco", "arxiv", "title", "xnli"]


@pytest.mark.parametrize(("other", "worse", "harmless"), [((0.0, 0.0), [], True), ((0.0, -3.0), ["arxiv"], False), ((2.0, 2.0), [], True)])
def test_one_run_that_is_worse_is_harm(other, worse, harmless) -> None:
    seen, case = two_seeds(5.0, 5.0, other=other)
    assert (seen.worse(case), seen.harmless(case)) == (worse, harmless)


def test_what_is_not_known_is_not_harmless() -> None:
    failed = overview_of(make_sweep([make_run({RATE: 1e-8}, [make_task("arxiv", 1.5)]), make_failed({RATE: 1e-8}, seed=1)]))
    unmeasured = overview_of(make_sweep([make_run({RATE: 1e-8}, [make_task("msmarco", 1.5)])]))
    task = make_task("arxiv", 1.5)
    unjudged = overview_of(make_sweep([make_run({RATE: 1e-8}, [replace(task, changes=[replace(task.main, verdict=None)])])]))
    for seen in (failed, unmeasured, unjudged):
        assert not seen.harmless(seen.cases[0])
        assert seen.worse(seen.cases[0]) == []


def test_the_gain_is_the_mean_of_the_targets() -> None:
    runs = [run_at(1e-8, 2.0, 5.0)]
    both = overview_of(make_sweep(runs, targets=("msmarco", "arxiv")))
    assert both.gain(both.cases[0]) == 3.5
    one = overview_of(make_sweep(runs))
    assert one.gain(one.cases[0]) == 2.0
    none = overview_of(make_sweep(runs, targets=()))
    assert none.gain(none.cases[0]) is None
    zero = overview_of(simple_sweep({1e-8: (None, 1.0)}))
    assert zero.gain(zero.cases[0]) is None


# --- Language pairs ---


def test_counts_of_language_pairs_are_means_over_runs_that_have_them() -> None:
    result = make_sweep([*seeds_with_pairs((200, 3), (211, 4)), make_failed({RATE: 1e-8}, seed=2)], tasks=("xnli",))
    compared = ("xnli", "entailment-neutral", "cosine")
    assert comparisons_of(result.runs, result.tasks) == [compared]
    counts = pair_counts(result.runs, compared)
    assert counts is not None
    assert (counts.pairs, counts.improved, counts.worsened, counts.improved_z, counts.worsened_z) == (225, 205.5, 3.5, 204.5, 5.5)
    assert pair_counts(result.runs, ("xnli", "entailment-neutral", "distance")) is None


def test_counts_that_one_run_lacks_are_unknown() -> None:
    counts = pair_counts(seeds_with_pairs((200, 3), (None, None)), ("xnli", "entailment-neutral", "cosine"))
    assert counts is not None
    assert (counts.improved, counts.improved_z) == (None, None)
