"""What follows from the values of a suite: best models, ranks, means, findings."""

import random
from dataclasses import replace

import pytest

from adiabat.report.suite_analysis import Overview, by_kind, finding, kind_means, mark_of, overview_of, tallies
from adiabat.results.suite_result import SuiteResult, equal_values
from tests.report.sample_suites import full_suite, make_pairing, make_suite, make_task

VALUES = {"first": {"a": 0.5, "b": 0.6, "c": 0.6}, "second": {"a": 0.9, "b": 0.3, "c": 0.1}, "alone": {"a": 0.2}}


def seen_of(values=VALUES, **options) -> Overview:
    return overview_of(make_suite(values, **options))


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    seen = seen_of()
    assert {place: rank for place, rank in seen.ranks.items() if place[0] == "first"} == {
        ("first", "a"): 3,
        ("first", "b"): 1.5,
        ("first", "c"): 1.5,
    }
    assert seen.best == {"first": {"b", "c"}, "second": {"a"}}


LAST_DIGIT = {"x": {f"m{number}": value for number, value in enumerate((0.3, 0.1 + 0.2, 0.3, 0.1 + 0.2, 0.3 - 1e-16))}}


def test_values_that_differ_in_their_last_digit_share_their_ranks_and_are_all_best() -> None:
    assert len(set(LAST_DIGIT["x"].values())) == 3
    seen = seen_of(LAST_DIGIT)
    assert set(seen.ranks.values()) == {3}
    assert seen.best["x"] == set(LAST_DIGIT["x"])
    assert [mark_of(seen, "x", model).best for model in LAST_DIGIT["x"]] == [True] * 5
    assert not seen.clear("x")


def test_of_equal_models_the_one_that_others_are_compared_with_leads() -> None:
    seen = seen_of(LAST_DIGIT)
    assert seen.against["x"] == "m1"
    assert seen.leaders("x") == ["m1", "m0", "m2", "m3", "m4"]
    assert seen_of({"x": {"a": 0.6, "b": 0.5}}, baseline="b").leaders("x") == ["a"]
    assert seen_of({"x": {"a": 0.6}}).leaders("x") == []


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
    seen = seen_of(values, kinds=kinds)
    for task, by_model in values.items():
        order = sorted(by_model.values(), reverse=task not in kinds)
        for model, value in by_model.items():
            places = [place for place, other in enumerate(order, start=1) if other == value]
            assert seen.ranks[task, model] == sum(places) / len(places)


def test_the_order_of_models_changes_nothing() -> None:
    turned = {task: dict(reversed(by_model.items())) for task, by_model in VALUES.items()}
    # Of two equal best models either may be the one that others are compared with.
    one, other = seen_of(), seen_of(turned)
    assert (one.ranks, one.best) == (other.ranks, other.best)
    assert sorted(tallies(one), key=lambda tally: tally.name) == sorted(tallies(other), key=lambda tally: tally.name)


def test_a_task_that_one_model_did_has_no_best_and_no_rank() -> None:
    seen = seen_of()
    assert "alone" not in seen.best
    assert ("alone", "a") not in seen.ranks
    assert seen.contests("a") == ["first", "second"]
    assert [tally.tasks for tally in tallies(seen)] == [3, 2, 2]


def test_where_lower_is_better_the_lowest_is_best_and_a_fall_is_better() -> None:
    seen = seen_of({"x": {"a": 0.2, "b": 0.4}}, kinds={"x": "triplets"})
    assert seen.best["x"] == {"a"}
    assert finding(seen.pairings["x", "b"]) == "worse"
    beside = seen_of({"x": {"a": 0.2, "b": 0.4}}, kinds={"x": "triplets"}, baseline="b")
    assert finding(beside.pairings["x", "a"]) == "better"


def test_a_verdict_that_the_correction_does_not_uphold_is_no_evidence() -> None:
    pairing = make_pairing(make_task("x"), "a", "b", 0.6, 0.5)
    assert (pairing.change.verdict, finding(pairing)) == ("better", "better")
    assert finding(replace(pairing, significant=False)) == "no evidence"


@pytest.mark.parametrize(
    ("values", "clear", "even"),
    [
        ({"a": 0.6, "b": 0.5, "c": 0.4}, True, [True, False, False]),
        ({"a": 0.6, "b": 0.59, "c": 0.4}, False, [True, True, False]),
        ({"a": 0.6, "b": 0.6, "c": 0.4}, False, [True, True, False]),
    ],
)
def test_a_best_model_is_clear_where_all_others_are_measurably_worse(values, clear, even) -> None:
    seen = seen_of({"x": values})
    assert seen.clear("x") is clear
    assert [seen.even("x", model) for model in "abc"] == even
    marks = [mark_of(seen, "x", model) for model in "abc"]
    assert [mark.best for mark in marks] == [value == 0.6 for value in values.values()]
    assert [mark.best or mark.even for mark in marks] == even
    # Whoever is measurably worse is marked too, so that no mark says nothing.
    assert [mark.found for mark in marks] == [None if known else "worse" for known in even]


def test_beside_a_baseline_nothing_is_said_of_who_is_even_with_the_best() -> None:
    seen = seen_of({"x": {"a": 0.6, "b": 0.5, "c": 0.59}}, baseline="b")
    assert [seen.even("x", model) for model in "abc"] == [True, None, None]
    assert [mark_of(seen, "x", model).found for model in "abc"] == ["better", None, "better"]
    assert not seen.clear("x")
    assert [tally.even for tally in tallies(seen)] == [None] * 3


def test_a_baseline_that_is_best_itself_is_clear_where_all_others_are_worse() -> None:
    assert seen_of({"x": {"a": 0.6, "b": 0.5}}, baseline="a").clear("x")


def test_findings_count_only_tasks_that_the_baseline_did() -> None:
    seen = seen_of({"x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.6, "c": 0.5}}, baseline="b")
    found = {tally.name: tally.found for tally in tallies(seen)}
    assert found == {"a": {"better": 1, "no evidence": 0, "worse": 0}, "b": None, "c": {"better": 0, "no evidence": 0, "worse": 0}}
    assert mark_of(seen, "y", "c").found == "worse"
    assert seen.even("y", "c") is False


TWO_REFERENCES = {"x": {"a": 0.6, "b": 0.5, "c": 0.4}, "y": {"a": 0.6, "c": 0.59}, "z": {"a": 0.3, "c": 0.5}, "alone": {"a": 0.5}}


def test_the_baseline_is_the_reference_where_it_did_the_task_else_the_best() -> None:
    seen = seen_of(TWO_REFERENCES, baseline="b")
    assert (seen.against, seen.beside_best(), seen.mixed()) == ({"x": "b", "y": "a", "z": "c"}, ["y", "z"], True)
    marks = [[mark_of(seen, task, model) for model in "ac"] for task in "xyz"]
    assert [[(mark.best, mark.even, mark.found) for mark in both] for both in marks] == [
        [(True, False, "better"), (False, False, "worse")],
        [(True, False, None), (False, True, None)],
        [(False, False, "worse"), (True, False, None)],
    ]
    assert [tally.even for tally in tallies(seen)] == [1, None, 2]
    assert seen_of(TWO_REFERENCES).beside_best() == ["x", "y", "z"]
    assert not seen_of(TWO_REFERENCES).mixed()
    assert not seen_of(TWO_REFERENCES, baseline="a").mixed()
    assert not seen_of({"x": {"a": 0.6, "c": 0.5}, "y": {"b": 0.5}}, baseline="b").mixed()


def test_only_a_model_that_did_what_several_did_has_a_mean_rank() -> None:
    assert [tally.rank for tally in tallies(seen_of(TWO_REFERENCES))] == [pytest.approx(4 / 3), None, pytest.approx(2)]
    # Each lacks another task, so no two means would be over the same ones.
    turns = {"x": {"a": 0.6, "b": 0.5}, "y": {"b": 0.6, "c": 0.5}, "z": {"a": 0.5, "c": 0.6}}
    assert [tally.rank for tally in tallies(seen_of(turns))] == [None] * 3
    assert [tally.rank for tally in tallies(seen_of({"x": {"a": 0.6}}))] == [None]


def test_tasks_stand_beside_others_of_their_kind_in_the_order_of_the_suite() -> None:
    tasks = [make_task("a"), make_task("b", "sts"), make_task("c")]
    assert [(kind, [task.name for task in group]) for kind, group in by_kind(tasks)] == [("retrieval", ["a", "c"]), ("sts", ["b"])]


def test_means_are_of_models_that_did_all_tasks_of_a_kind_by_one_measure() -> None:
    (mean,) = kind_means(overview_of(full_suite()))
    assert (mean.kind, mean.measure, mean.tasks) == ("retrieval", "nDCG@10", 2)
    assert mean.values == pytest.approx([(0.55 + 0.41) / 2, (0.61 + 0.40) / 2, (0.60 + 0.30) / 2])
    lacking = kind_means(seen_of({"x": {"a": 0.5, "b": 0.7}, "y": {"a": 0.6}}))
    assert lacking[0].values == [pytest.approx(0.55), None]


def test_values_of_unlike_measures_are_not_averaged() -> None:
    result: SuiteResult = make_suite({"x": {"a": 0.5}, "y": {"a": 0.6}})
    other = replace(result, tasks=[result.tasks[0], replace(result.tasks[1], measure="RR")])
    scores = [result.scores[0], replace(result.scores[1], measure="RR")]
    assert kind_means(overview_of(replace(other, scores=scores))) == []
