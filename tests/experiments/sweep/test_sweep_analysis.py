"""What the runs of a sweep say together: cases, harm, costs of gains, limits on drift and moved tensors,
worked by hand.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from adiabat.adiabatic.drift import HEADROOM, MARGINS, OVERLAP_LOSS, ROTATION_SHARE, limits_of
from adiabat.experiments.sweep_analysis import Step, change_of, is_moved, limit_beside_labels, with_variation
from adiabat.results.rate_search_result import Drift
from adiabat.results.sweep_result import Case, DriftLimit, SweepAnalysis, SweepResult, SweepRun, Value, key_of
from adiabat.results.training_record import LayerChange
from tests.report.sample_sweeps import (
    MARGIN,
    RATE,
    RATES,
    full_sweep,
    grid_of,
    make_change,
    make_failed,
    make_grid,
    make_layers,
    make_run,
    make_sweep,
    make_task,
    make_tasks,
    run_at,
    simple_sweep,
)


def view_of(runs: Sequence[SweepRun], **parts: Any) -> SweepAnalysis:
    return make_sweep(runs, **parts).variation


def case_of(runs: Sequence[SweepRun], **parts: Any) -> Case:
    (case,) = view_of(runs, **parts).cases
    return case


def two_seeds(first: float | None, second: float | None, *, other: tuple[float, float] = (0.0, 0.0)) -> Case:
    """One setting with two seeds: improvements of the target, and of the other task."""
    return case_of(
        [run_at(1e-8, *pair, seed=seed) for seed, pair in enumerate(zip((first, second), other, strict=True))]
    )


# --- Cases and settings ---


def test_runs_that_differ_by_their_seed_are_one_case_in_the_order_of_their_first_runs() -> None:
    result = full_sweep()
    cases = result.variation.cases
    assert [(len(case.runs), case.failed) for case in cases] == [(3, 0), (3, 0), (3, 0), (3, 1)]
    assert [case.values for case in cases] == [[rate, ["embeddings"]] for rate in RATES]
    by_seed = with_variation(replace(result, runs=sorted(result.runs, key=lambda run: run.seed)))
    assert [case.values for case in by_seed.variation.cases] == [case.values for case in cases]
    backwards = with_variation(replace(result, runs=result.runs[::-1])).variation
    assert [case.values[0] for case in backwards.cases] == RATES[::-1]
    assert backwards.settings[0].values == RATES


def test_settings_have_their_values_in_order() -> None:
    rate, freeze = full_sweep(freezes=(["embeddings"], [], ["embeddings"])).variation.settings
    assert (rate.name, rate.numeric, rate.values) == (RATE, True, RATES)
    assert (freeze.name, freeze.numeric, freeze.values) == ("tune.freeze", False, [["embeddings"], []])
    runs = [make_run({RATE: 1e-8}, variant=variant) for variant in ("plain", "sgd")]
    view = view_of(runs)
    assert [(setting.name, setting.values) for setting in view.settings] == [
        (RATE, [1e-8]),
        ("variant", ["plain", "sgd"]),
    ]
    assert [case.values for case in view.cases] == [[1e-8, "plain"], [1e-8, "sgd"]]
    assert [setting.name for setting in view_of([]).settings] == [RATE]
    assert key_of(True) != key_of(1) == key_of(1.0)
    assert key_of(["a", "b"]) != key_of(["b", "a"])


# --- Changes, harm and gain ---


def test_one_run_has_its_own_interval_and_several_have_their_range() -> None:
    alone = simple_sweep().variation.cases[2].change("msmarco")
    assert alone is not None
    assert (alone.mean, alone.interval, alone.verdict) == (7.3, pytest.approx((6.3, 8.3)), "better")
    both = two_seeds(2.0, 5.0).change("msmarco")
    assert both is not None
    assert (both.mean, both.interval, both.verdict) == (3.5, (2.0, 5.0), "better")
    zero = two_seeds(None, 5.0).change("msmarco")
    assert zero is not None
    assert (zero.percent, zero.improvement, zero.values) == (False, None, pytest.approx([0.1, 0.025]))
    single = change_of("a", "b", "c", [make_change(None)])
    assert (single.mean, single.interval) == (0.1, (0.05, 0.15))


def test_means_are_those_of_a_plain_loop() -> None:
    result = full_sweep()
    for case in result.variation.cases:
        for task in result.task_names:
            total, count = 0.0, 0
            for position in case.runs:
                for own in result.runs[position].tasks:
                    if own.task == task and result.runs[position].status == "done":
                        total, count = total + (own.changes[0].improvement or 0.0), count + 1
            found = case.change(task)
            assert found is not None
            assert found.mean == pytest.approx(total / count)


@pytest.mark.parametrize(
    ("other", "worse", "harmless"),
    [((0.0, 0.0), [], True), ((0.0, -3.0), ["arxiv"], False), ((2.0, 2.0), [], True)],
)
def test_one_run_that_is_worse_is_harm(other: tuple[float, float], worse: list[str], harmless: bool) -> None:
    case = two_seeds(5.0, 5.0, other=other)
    assert (case.worse, case.harmless) == (worse, harmless)


def test_what_is_not_known_is_not_harmless() -> None:
    task = make_task("arxiv", 1.5)
    failed = [make_run({RATE: 1e-8}, [task]), make_failed({RATE: 1e-8}, seed=1)]
    unmeasured = [make_run({RATE: 1e-8}, [make_task("msmarco", 1.5)])]
    unjudged = [make_run({RATE: 1e-8}, [replace(task, changes=[replace(task.main, verdict=None)])])]
    for runs in (failed, unmeasured, unjudged):
        case = case_of(runs)
        assert (case.harmless, case.worse) == (False, [])


def test_the_gain_is_the_mean_of_the_targets_and_the_best_case_does_no_harm() -> None:
    runs = [run_at(1e-8, 2.0, 5.0)]
    gains = [case_of(runs, targets=targets).gain for targets in (("msmarco", "arxiv"), ("msmarco",), ())]
    assert [*gains, simple_sweep({1e-8: (None, 1.0)}).variation.cases[0].gain] == [3.5, 2.0, None, None]
    assert full_sweep().ordered == ["msmarco", "arxiv", "title", "xnli"]
    assert simple_sweep().variation.best == 2
    assert simple_sweep({1e-8: (1.0, -3.0)}).variation.best_case is None


def test_the_rate_is_a_number_that_varies() -> None:
    view = simple_sweep().variation
    assert view.rate == 0
    assert view_of([make_run({MARGIN: margin}) for margin in (0.1, 0.2)], varied=(MARGIN,)).rate is None
    assert view_of([run_at(1e-8, 1.0, 1.0)]).rate is None


def test_counts_of_language_pairs_are_means_over_runs_that_have_them() -> None:
    def seeds(*sides: tuple[int | None, int | None]) -> list[SweepRun]:
        return [
            make_run({RATE: 1e-8}, [make_task("xnli", 1.0, grids=[make_grid(*one)])], seed=seed)
            for seed, one in enumerate(sides)
        ]

    (counts,) = case_of(
        [*seeds((200, 3), (211, 4)), make_failed({RATE: 1e-8}, seed=2)], tasks=("xnli",)
    ).pairs
    assert counts.compared == ("xnli", "entailment-neutral", "cosine")
    assert (counts.pairs, counts.improved, counts.worsened, counts.improved_z, counts.worsened_z) == (
        225,
        205.5,
        3.5,
        204.5,
        5.5,
    )
    (unknown,) = case_of(seeds((200, 3), (None, None)), tasks=("xnli",)).pairs
    assert (unknown.improved, unknown.improved_z) == (None, None)


# --- Costs of gains ---

PULL = "tune.pull"
Points = Sequence[tuple[float, float, float, float, float]]


def drifted(by: float) -> Drift:
    return Drift(10, {OVERLAP_LOSS: by}, {OVERLAP_LOSS: 0.0})


def remedies(ways: Mapping[str, Points], **parts: Any) -> SweepResult:
    """Variant to (rate, pull, gain, change of the other task, drift)."""
    runs = [
        make_run({RATE: rate, PULL: pull}, make_tasks(gain, other), variant=name, drift=drifted(drift))
        for name, points in ways.items()
        for rate, pull, gain, other, drift in points
    ]
    return make_sweep(runs, varied=(RATE, PULL), **parts)


WAYS: dict[str, Points] = {
    "rate": [(1e-8, 0.0, 2.0, -0.5, 0.1), (1e-7, 0.0, 6.0, -4.0, 0.3), (2e-8, 0.0, 4.0, -2.0, 0.2)],
    "pulled": [(1e-7, 1.0, 5.0, -2.0, 0.16), (1e-7, 10.0, 3.0, -0.4, 0.08)],
    "small": [(1e-9, 0.0, 0.5, -0.1, 0.01), (2e-9, 0.0, 1.0, -0.2, 0.02)],
}


def test_a_method_goes_along_the_number_that_its_cases_differ_by() -> None:
    view = remedies(WAYS).variation
    rate, pulled, _ = view.methods
    assert (rate.line, [view.cases[place].values[0] for place in rate.cases]) == (True, [1e-8, 2e-8, 1e-7])
    assert (pulled.line, [view.cases[place].values[1] for place in pulled.cases]) == (True, [1.0, 10.0])
    values: list[Value] = [None, 0.1, 0.05]
    runs = [
        make_run({"guard.limit": value}, make_tasks(gain, -1.0))
        for value, gain in zip(values, (3.0, 2.0, 1.0), strict=True)
    ]
    unlimited = view_of(runs, varied=("guard.limit",))
    (method,) = unlimited.methods
    # No limit is beyond every limit.
    assert [unlimited.cases[place].values[0] for place in method.cases] == [0.05, 0.1, None]
    assert method.line


def test_at_equal_gain_methods_are_read_between_their_nearest_runs() -> None:
    # At 5 %, the largest gain of a run that two methods come to: half-way from 4 to 6 % by rate alone, and a
    # run of the pulled.
    equal = remedies(WAYS).variation.equal_gain
    assert equal is not None
    assert equal.gain == 5.0
    assert [(cost.method, cost.changes, cost.drift) for cost in equal.costs] == [
        (1, {"arxiv": -2.0}, pytest.approx(0.16)),
        (0, {"arxiv": pytest.approx(-3.0)}, pytest.approx(0.25)),
    ]
    # Intervals of the samples are 1 % to either side, so that 0.5 % and 0.4 % are undecided.
    assert [cost.harmless for cost in equal.costs] == [3.0, 2.0]


def test_the_gain_is_one_that_most_methods_reach_and_the_least_drift_counts_where_one_comes_back() -> None:
    third = remedies(
        {**WAYS, "low": [(1e-8, 0.0, 1.5, -0.1, 0.05), (2e-8, 0.0, 3.5, -1.0, 0.1)]}
    ).variation.equal_gain
    assert third is not None
    assert (third.gain, len(third.costs)) == (3.5, 3)
    there_and_back = [(1e-8, 0.0, 2.0, -1.0, 0.1), (2e-8, 0.0, 4.0, -3.0, 0.2), (3e-8, 0.0, 2.0, -9.0, 0.6)]
    equal = remedies(
        {"back": there_and_back, "plain": [(1e-8, 0.0, 1.0, 0.0, 0.1), (2e-8, 0.0, 3.0, -1.0, 0.3)]}
    ).variation.equal_gain
    assert equal is not None
    assert equal.gain == 3.0
    assert next(cost for cost in equal.costs if cost.method == 0).changes == {"arxiv": pytest.approx(-2.0)}


@pytest.mark.parametrize(
    "result",
    [
        simple_sweep(),  # one method
        make_sweep(
            [make_run({RATE: rate}, make_tasks(1.0, 0.0)) for rate in (1e-8, 2e-8)],
            targets=("msmarco", "arxiv"),
        ),
        make_sweep([make_failed({RATE: 1e-8})]),
        remedies(
            {
                "a": [(1e-8, 0.0, -2.0, 0.0, 0.1), (2e-8, 0.0, -1.0, 0.0, 0.1)],
                "b": [(1e-8, 0.0, -3.0, 0.0, 0.1)],
            }
        ),
        # Two numbers differ, so that there is no line.
        grid_of(learning_rate=[1e-8, 2e-8], margin=[0.1, 0.2], tasks=("msmarco", "arxiv")),
    ],
)
def test_without_two_methods_at_the_same_gain_there_is_nothing_to_compare(result: SweepResult) -> None:
    assert result.variation.equal_gain is None


def test_seeds_are_taken_together() -> None:
    runs = [
        make_run({RATE: rate}, make_tasks(gain, other), seed=seed, variant=name)
        for name in ("a", "b")
        for rate, gain in ((1e-8, 2.0), (2e-8, 4.0))
        for seed, other in ((0, -3.0), (1, 0.0))
    ]
    equal = view_of(runs).equal_gain
    assert equal is not None
    assert [(cost.changes, cost.drift, cost.interpolated) for cost in equal.costs] == [
        ({"arxiv": -1.5}, None, False)
    ] * 2


# --- Limits on drift ---

LADDER = (
    Step(1e-8, 0.01, ()),
    Step(1e-7, 0.05, ()),
    Step(1e-6, 0.2, ("xnli",)),
    Step(1e-5, 0.4, ("xnli", "squad")),
)
"""Damage begins at 1e-6."""

OTHERS = [0.5, 0.2, -0.3, -4.0]
"""Percent on the other task: worse at the highest rate alone, for the interval is 1 to each side."""

NOISE = {OVERLAP_LOSS: 0.1, MARGINS: 1.0, ROTATION_SHARE: 0.3}


@pytest.mark.parametrize(
    ("limit", "safe", "agreement"),
    [
        (0.001, None, "early"),
        (0.02, 1e-8, "early"),
        (0.05, 1e-7, "hit"),
        (0.19, 1e-7, "hit"),
        (0.2, 1e-6, "late"),
        (9.0, 1e-5, "late"),
    ],
)
def test_a_limit_is_a_hit_within_its_bracket_alone(limit: float, safe: float | None, agreement: str) -> None:
    found = limit_beside_labels(LADDER, limit)
    assert (found.safe, found.harmless, found.harmed, found.agreement) == (safe, 1e-7, ["xnli"], agreement)
    assert found.bracket == (0.05, 0.2)


def test_without_damage_a_limit_is_early_or_untested_and_with_damage_everywhere_nothing_is_harmless() -> None:
    unharmed = [Step(step.rate, step.drift, ()) for step in LADDER]
    assert [limit_beside_labels(unharmed, limit).agreement for limit in (0.4, 0.39)] == ["untested", "early"]
    assert (limit_beside_labels(unharmed, 0.4).bracket, limit_beside_labels(unharmed, 0.4).harmed) == (
        (0.4, None),
        [],
    )
    harmed = [Step(step.rate, step.drift, ("squad",)) for step in LADDER]
    assert [limit_beside_labels(harmed, limit).agreement for limit in (0.001, 0.01)] == ["untested", "late"]
    assert limit_beside_labels(harmed, 0.01).harmless is None
    wavering = limit_beside_labels(
        (Step(1e-8, 0.1, ()), Step(1e-7, 0.3, ()), Step(1e-6, 0.1, ("xnli",))), 0.2
    )
    assert (wavering.safe, wavering.bracket) == (1e-8, (0.3, 0.1))


def test_a_drift_at_the_limit_raises_the_noise_by_the_headroom() -> None:
    limit = limits_of({"turn": 0.2, "margins": 0.0})
    assert math.hypot(0.2, limit["turn"]) == pytest.approx(0.2 * (1 + HEADROOM))
    assert limit["margins"] == 0


def series(overlaps: list[float], others: list[float], **varied: float) -> list[SweepRun]:
    measured = [
        Drift(600, {OVERLAP_LOSS: overlap, MARGINS: 2 * overlap, ROTATION_SHARE: 0.1}, {})
        for overlap in overlaps
    ]
    points = zip(RATES, measured, others, strict=True)
    return [
        make_run({RATE: rate, **varied}, make_tasks(3.0, other), drift=drift) for rate, drift, other in points
    ]


def limits(runs: list[SweepRun], **parts: Any) -> list[DriftLimit]:
    return make_sweep(runs, **{"noise": NOISE, **parts}).variation.drift_limits


@pytest.mark.parametrize(
    ("overlaps", "safe", "agreement"),
    [
        ([0.01, 0.02, 0.04, 0.05], 5e-8, "hit"),
        ([0.01, 0.05, 0.06, 0.07], 1e-8, "early"),
        ([0.01, 0.02, 0.03, 0.04], 1e-7, "late"),
    ],
)
def test_the_limit_of_noise_is_held_against_the_first_damage(
    overlaps: list[float], safe: float, agreement: str
) -> None:
    found = {one.measure: one for one in limits(series(overlaps, OTHERS))}
    # A share of the movement has no limit.
    assert set(found) == {OVERLAP_LOSS, MARGINS}
    one = found[OVERLAP_LOSS]
    assert one.limit == limits_of(NOISE)[OVERLAP_LOSS]
    assert (one.safe, one.harmless, one.harmed, one.agreement) == (safe, 5e-8, ["arxiv"], agreement)
    assert one.bracket == (overlaps[2], overlaps[3])


def test_a_series_ends_at_a_run_that_failed_or_where_harm_is_not_known() -> None:
    runs = series([0.01, 0.02, 0.03, 0.04], [0.5, 0.2, 0.1, 0.1])
    one = limits([*runs[:3], replace(runs[3], status="failed", drift=None, tasks=[])])[0]
    # A run without a model has drifted beyond every limit, which ends no bracket.
    assert (one.safe, one.harmless, one.harmed, one.bracket) == (5e-8, 5e-8, ["no model"], (0.03, None))
    unknown = replace(runs[2].tasks[1], changes=[replace(runs[2].tasks[1].main, verdict=None)])
    runs[2] = replace(runs[2], tasks=[runs[2].tasks[0], unknown])
    one = limits(runs)[0]
    assert (one.safe, one.harmless, one.harmed, one.agreement) == (2e-8, 2e-8, [], "untested")
    runs[0] = replace(runs[0], tasks=[runs[0].tasks[0], unknown])
    assert limits(runs) == []


def test_a_measure_that_runs_of_an_earlier_version_lack_has_no_limit() -> None:
    runs = series([0.01, 0.02, 0.04, 0.05], OTHERS)
    assert runs[1].drift is not None
    older = {OVERLAP_LOSS: runs[1].drift.means[OVERLAP_LOSS]}
    runs[1] = replace(runs[1], drift=replace(runs[1].drift, means=older))
    assert [one.measure for one in limits(runs)] == [OVERLAP_LOSS]


def test_each_margin_has_a_series_of_its_own_and_nothing_is_judged_without_noise_other_tasks_or_rates() -> (
    None
):
    first = series([0.01, 0.02, 0.04, 0.05], OTHERS, **{MARGIN: 0.1})
    found = limits(
        [*first, *series([0.05, 0.06, 0.07, 0.08], OTHERS, **{MARGIN: 0.3})], varied=[RATE, MARGIN]
    )
    assert [(one.cases, one.measure) for one in found[::2]] == [
        ([0, 1, 2, 3], OVERLAP_LOSS),
        ([4, 5, 6, 7], OVERLAP_LOSS),
    ]
    assert [(one.agreement, one.safe) for one in found[::2]] == [("hit", 5e-8), ("early", None)]
    assert limits(first, noise={}) == limits(first[:2]) == limits(first, targets=["msmarco", "arxiv"]) == []


# --- Tensors ---


def layers_of(*layers: LayerChange) -> dict[str, list[tuple[str, float]]]:
    return case_of([make_run({RATE: 1e-8}, layers=list(layers))]).layers


def test_the_two_tensors_of_each_measure_are_those_worked_by_hand() -> None:
    """At 1e-8: 0.output grows from 2 to 2.02, 1.output shrinks from 1 to 0.9, 0.key hardly changes, 1.key
    does not.
    """
    by_weight, by_change, by_norm = simple_sweep().variation.cases[0].layers.values()
    prefix = "encoder.layer."
    key, output = (f"{prefix}0.{name}.weight" for name in ("attention.self.key", "output.dense"))
    assert by_weight == [(key, 3.001), (output, pytest.approx(2.02))]
    assert by_change == [
        (f"{prefix}1.output.dense.bias", pytest.approx(0.1 / 1.9)),
        (output, pytest.approx(0.02 / 4.02)),
    ]
    assert by_norm == [(f"{prefix}1.output.dense.bias", pytest.approx(5e-4)), (key, pytest.approx(2e-4))]
    names = {
        name
        for case in full_sweep().variation.cases
        for tensors in case.layers.values()
        for name, _ in tensors
    }
    # The third has the largest weight of all, and did not move.
    assert names == {layer.name for position, layer in enumerate(make_layers(1e-8)) if position != 2}


@pytest.mark.parametrize(
    ("relative", "after", "moved"),
    [(0.1, 1.0, True), (0.0, 1.0, False), (None, 0.5, True), (None, 0.0, False)],
)
def test_a_tensor_of_zeros_changed_where_it_holds_something_now(
    relative: float | None, after: float, moved: bool
) -> None:
    assert is_moved(LayerChange("x", relative, 0.0, after, 0.0)) is moved


def test_tensors_are_ranked_by_means_over_the_runs_that_changed_them() -> None:
    grown = LayerChange("grown", None, 0.0, 0.5, 1.0)
    by_weight, by_change, by_norm = layers_of(grown, LayerChange("moved", 0.1, 1.0, 1.0, 0.0)).values()
    assert by_weight == [("moved", 1.0), ("grown", 0.5)]
    assert by_change == [("grown", 1.0), ("moved", 0.0)]
    # A tensor of zeros has no relative change.
    assert by_norm == [("moved", 0.1)]
    alike = layers_of(*(LayerChange(name, 0.1, 1.0, 1.0, 0.0) for name in ("c", "a", "b")))
    assert [name for name, _ in alike["largest weight"]] == ["c", "a"]
    several = [
        [LayerChange(name, value, 1.0, 1.0, 0.0) for name, value in zip("ab", pair, strict=True)]
        for pair in ((0.1, 0.3), (0.2, 0.0))
    ]
    case = case_of([make_run({RATE: 1e-8}, layers=layers, seed=seed) for seed, layers in enumerate(several)])
    assert case.layers["relative change"] == [("b", 0.3), ("a", pytest.approx(0.15))]
    for layers in ([replace(layer, relative=0.0) for layer in make_layers(1e-8)], []):
        assert layers_of(*layers) == {}
