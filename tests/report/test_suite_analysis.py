"""What follows from the values of a suite: best models, ranks, means, findings."""

import random
from dataclasses import replace

import pytest

from adiabat.evaluation.suite_findings import analysed
from adiabat.report.suite_headline import Overview
from adiabat.results.suite_result import ModelStanding, SuiteResult, by_kind, equal_values
from tests.report.sample_suites import full_suite, make_pairing, make_suite, make_task

VALUES = {"first": {"a": 0.5, "b": 0.6, "c": 0.6}, "second": {"a": 0.9, "b": 0.3, "c": 0.1}, "alone": {"a": 0.2}}


def view_of(values=VALUES, **options) -> Overview:
    return Overview(make_suite(values, **options))


def standings(view: Overview) -> list[ModelStanding]:
    return view.result.analysis.models


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    view = view_of()
    assert view.rankings["first"].ranks == {"a": 3, "b": 1.5, "c": 1.5}
    assert {name: set(one.best) for name, one in view.rankings.items()} == {"first": {"b", "c"}, "second": {"a"}, "alone": set()}


LAST_DIGIT = {"x": {f"m{number}": value for number, value in enumerate((0.3, 0.1 + 0.2, 0.3, 0.1 + 0.2, 0.3 - 1e-16))}}


def test_values_that_differ_in_their_last_digit_share_their_ranks_and_are_all_best() -> None:
    assert len(set(LAST_DIGIT["x"].values())) == 3
    view = view_of(LAST_DIGIT)
    assert set(view.rankings["x"].ranks.values()) == {3}
    assert set(view.rankings["x"].best) == set(LAST_DIGIT["x"])
    assert [view.mark("x", model).best for model in LAST_DIGIT["x"]] == [True] * 5
    assert not view.rankings["x"].clear


def test_of_equal_models_the_one_that_others_are_compared_with_leads() -> None:
    view = view_of(LAST_DIGIT)
    assert view.rankings["x"].against == "m1"
    assert view.rankings["x"].best == ["m1", "m0", "m2", "m3", "m4"]
    assert view_of({"x": {"a": 0.6, "b": 0.5}}, baseline="b").rankings["x"].best == ["a"]
    assert view_of({"x": {"a": 0.6}}).rankings["x"].best == []


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [(0.3, 0.1 + 0.2, True), (0.3, 0.3 + 1e-11, False), (0.0, 1e-17, True), (1e6, 1e6 + 1e-7, True), (0.5, 0.4, False), (-0.2, 0.2, False)],
)
def test_only_rounding_makes_no_difference(first, second, equal) -> None:
    assert equal_values(first, second) is equal_values(second, first) is equal


def test_ranks_are_those_of_sorting_by_hand() -> None:
    draw = random.Random(3)
    values = {f"t{task}": {f"m{model}": draw.choice([0.1, 0.2, 0.3, 0.4]) for model in range(6)} for task in range(20)}
    kinds = {f"t{task}": "triplets" for task in range(0, 20, 2)}
    view = view_of(values, kinds=kinds)
    for task, by_model in values.items():
        order = sorted(by_model.values(), reverse=task not in kinds)
        for model, value in by_model.items():
            places = [place for place, other in enumerate(order, start=1) if other == value]
            assert view.rankings[task].ranks[model] == sum(places) / len(places)


def test_the_order_of_models_changes_nothing() -> None:
    turned = {task: dict(reversed(by_model.items())) for task, by_model in VALUES.items()}
    # Of two equal best models either may be the one that others are compared with.
    one, other = view_of(), view_of(turned)
    for ranking, turned_ranking in zip(one.rankings.values(), other.rankings.values(), strict=True):
        assert ranking.ranks == turned_ranking.ranks
        assert set(ranking.best) == set(turned_ranking.best)
    assert sorted(standings(one), key=lambda standing: standing.model) == sorted(standings(other), key=lambda standing: standing.model)


def test_a_task_that_one_model_did_has_no_best_and_no_rank() -> None:
    view = view_of()
    assert (view.rankings["alone"].best, view.rankings["alone"].ranks) == ([], {})
    assert [standing.tasks for standing in standings(view)] == [3, 2, 2]


def test_where_lower_is_better_the_lowest_is_best_and_a_fall_is_better() -> None:
    view = view_of({"x": {"a": 0.2, "b": 0.4}}, kinds={"x": "triplets"})
    assert view.rankings["x"].best == ["a"]
    assert view.pairings["x", "b"].verdict == "worse"
    beside = view_of({"x": {"a": 0.2, "b": 0.4}}, kinds={"x": "triplets"}, baseline="b")
    assert beside.pairings["x", "a"].verdict == "better"


def test_a_verdict_that_the_correction_does_not_uphold_is_no_evidence() -> None:
    pairing = make_pairing(make_task("x"), "a", "b", 0.6, 0.5)
    assert (pairing.change.verdict, pairing.verdict) == ("better", "better")
    assert replace(pairing, significant=False).verdict == "no evidence"


@pytest.mark.parametrize(
    ("values", "clear", "even"),
    [
        ({"a": 0.6, "b": 0.5, "c": 0.4}, True, [True, False, False]),
        ({"a": 0.6, "b": 0.59, "c": 0.4}, False, [True, True, False]),
        ({"a": 0.6, "b": 0.6, "c": 0.4}, False, [True, True, False]),
    ],
)
def test_a_best_model_is_clear_where_all_others_are_measurably_worse(values, clear, even) -> None:
    view = view_of({"x": values})
    assert view.rankings["x"].clear is clear
    assert [model in view.rankings["x"].not_worse for model in "abc"] == even
    marks = [view.mark("x", model) for model in "abc"]
    assert [mark.best for mark in marks] == [value == 0.6 for value in values.values()]
    assert [mark.best or mark.even for mark in marks] == even
    # Whoever is measurably worse is marked too, so that no mark says nothing.
    assert [mark.verdict for mark in marks] == [None if known else "worse" for known in even]


def test_beside_a_baseline_nothing_is_said_of_who_is_even_with_the_best() -> None:
    view = view_of({"x": {"a": 0.6, "b": 0.5, "c": 0.59}}, baseline="b")
    assert view.rankings["x"].not_worse == ["a"]
    assert [view.mark("x", model).verdict for model in "abc"] == ["better", None, "better"]
    assert not view.rankings["x"].clear
    assert [standing.not_worse for standing in standings(view)] == [None] * 3


def test_a_baseline_that_is_best_itself_is_clear_where_all_others_are_worse() -> None:
    assert view_of({"x": {"a": 0.6, "b": 0.5}}, baseline="a").rankings["x"].clear


def test_findings_count_only_tasks_that_the_baseline_did() -> None:
    view = view_of({"x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.6, "c": 0.5}}, baseline="b")
    found = {standing.model: standing.verdicts for standing in standings(view)}
    assert found == {"a": {"better": 1, "no evidence": 0, "worse": 0}, "b": None, "c": {"better": 0, "no evidence": 0, "worse": 0}}
    assert view.mark("y", "c").verdict == "worse"
    assert "c" not in view.rankings["y"].not_worse


TWO_REFERENCES = {"x": {"a": 0.6, "b": 0.5, "c": 0.4}, "y": {"a": 0.6, "c": 0.59}, "z": {"a": 0.3, "c": 0.5}, "alone": {"a": 0.5}}


def test_the_baseline_is_the_reference_where_it_did_the_task_else_the_best() -> None:
    view = view_of(TWO_REFERENCES, baseline="b")
    assert ({name: one.against for name, one in view.rankings.items()}, view.result.beside_best, view.result.mixed) == (
        {"x": "b", "y": "a", "z": "c", "alone": None},
        ["y", "z"],
        True,
    )
    marks = [[view.mark(task, model) for model in "ac"] for task in "xyz"]
    assert [[(mark.best, mark.even, mark.verdict) for mark in both] for both in marks] == [
        [(True, False, "better"), (False, False, "worse")],
        [(True, False, None), (False, True, None)],
        [(False, False, "worse"), (True, False, None)],
    ]
    assert [standing.not_worse for standing in standings(view)] == [1, None, 2]
    assert view_of(TWO_REFERENCES).result.beside_best == ["x", "y", "z"]
    assert not view_of(TWO_REFERENCES).result.mixed
    assert not view_of(TWO_REFERENCES, baseline="a").result.mixed
    assert not view_of({"x": {"a": 0.6, "c": 0.5}, "y": {"b": 0.5}}, baseline="b").result.mixed


def test_only_a_model_that_did_what_several_did_has_a_mean_rank() -> None:
    assert [standing.mean_rank for standing in standings(view_of(TWO_REFERENCES))] == [pytest.approx(4 / 3), None, pytest.approx(2)]
    # Each lacks another task, so no two means would be over the same ones.
    turns = {"x": {"a": 0.6, "b": 0.5}, "y": {"b": 0.6, "c": 0.5}, "z": {"a": 0.5, "c": 0.6}}
    assert [standing.mean_rank for standing in standings(view_of(turns))] == [None] * 3
    assert [standing.mean_rank for standing in standings(view_of({"x": {"a": 0.6}}))] == [None]


def test_tasks_stand_beside_others_of_their_kind_in_the_order_of_the_suite() -> None:
    tasks = [make_task("a"), make_task("b", "sts"), make_task("c")]
    assert [(kind, [task.name for task in group]) for kind, group in by_kind(tasks)] == [("retrieval", ["a", "c"]), ("sts", ["b"])]


def test_means_are_of_models_that_did_all_tasks_of_a_kind_by_one_measure() -> None:
    (mean,) = full_suite().analysis.means
    assert (mean.kind, mean.measure, mean.tasks) == ("retrieval", "nDCG@10", 2)
    assert list(mean.values.values()) == pytest.approx([(0.55 + 0.41) / 2, (0.61 + 0.40) / 2, (0.60 + 0.30) / 2])
    lacking = view_of({"x": {"a": 0.5, "b": 0.7}, "y": {"a": 0.6}}).result.analysis.means
    assert list(lacking[0].values.values()) == [pytest.approx(0.55), None]


def test_values_of_unlike_measures_are_not_averaged() -> None:
    result: SuiteResult = make_suite({"x": {"a": 0.5}, "y": {"a": 0.6}})
    other = replace(result, tasks=[result.tasks[0], replace(result.tasks[1], measure="RR")])
    scores = [result.scores[0], replace(result.scores[1], measure="RR")]
    assert analysed(replace(other, scores=scores)).analysis.means == []
